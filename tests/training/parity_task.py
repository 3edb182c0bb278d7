"""A run that trains a tiny random model on a toy task: a text is right when it has an even number of letters.

`python parity_task.py FOLDER OVERRIDES` carries one out in a process of its own, which kills itself where OVERRIDES
name a moment under `kill`.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from building import composed, toy_task
from evorun.methods.espl import system_prompts
from evorun.methods.espl.operators import OperatorPrompts
from evorun.methods.mpo import refinement as rubric_refinement
from evorun.methods.mpo.meta_prompts import MetaPrompts
from evorun.models import Message, Reply, Request
from evorun.models.embedded import is_ready
from evorun.rollouts import rubric_rewards
from evorun.runner import registry
from evorun.runner.experiment import run_experiment
from evorun.runner.settings import RunConfig, check
from evorun.runner.work import Outcome
from evorun.runs.candidates import Response
from evorun.runs.journal_reader import read_journal
from evorun.runs.terminal import Terminal
from evorun.simulation.skill import Skill
from evorun.tasks.base import Grade, LoadedTask, Problem, Prompt, Task, TaskConfig, Tools
from evorun.tasks.rubric_scores import Scores
from evorun.tasks.rubrics import Rubric
from evorun.training.checkpoints import Checkpoints
from journals import write_journal
from tiny_llama import write_short_tokenizer

EMBEDDED = is_ready()
NO_TOKENIZER = "needs the embedded model's tokenizer"


def write_model(folder: Path, layers: int = 1) -> Path:
    """Write a random Llama with a short tokenizer; its texts vary in length."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = write_short_tokenizer(folder)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.3,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    with torch.no_grad():  # now far the likeliest token, now far the least likely: some completions end early
        model.lm_head.weight[tokenizer.eos_token_id] *= 3
    model.save_pretrained(folder)
    return folder


@dataclass
class ParityConfig(TaskConfig):
    """Schema of the toy task."""

    task_class = None  # type: ignore[assignment]

    name: str = "parity"
    problems: int = 2
    training_problems: int = 5
    trouble: str = ""
    """File in whose presence the training split's grader raises."""
    count: str = ""
    """File that each of its gradings leaves a character in."""

    def load(self) -> LoadedTask:
        return self._loaded("test", self.problems, Parity.grader(self, training=False))

    def load_training(self) -> LoadedTask:
        return self._loaded("train", self.training_problems, Parity.grader(self, training=True))

    @staticmethod
    def _loaded(split: str, size: int, grader: Any) -> LoadedTask:
        problems = [Problem(id=f"{split}{i}", stratum=split, data={"n": i}) for i in range(size)]
        return replace(toy_task(Parity(), problems, grader, split=split), simulator=Babbler())


class Babbler:
    """Says one to eight letters: for runs that need no weights."""

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        return "a" * int(rng.integers(1, 9))

    def with_skill(self, skill: Skill) -> "Babbler":
        return self

    def at_random(self) -> "Babbler":
        return self


class Parity(Task):
    """Takes any text for an answer."""

    name = "parity"

    def parse(self, problem: Problem, text: str) -> Response:
        return Response(text=text, answer=text)

    def generation_prompt(self, problem: Problem) -> Prompt:
        return self.instructed_prompt(problem, "Say something.")

    def seed_instruction(self) -> str:
        return "Say something."

    def instructed_prompt(self, problem: Problem, instruction: str) -> Prompt:
        asked = " ".join([f"Number {problem.data['n']}", *["again"] * problem.data["n"]])
        return Prompt(messages=(Message(role="system", content=instruction), Message(role="user", content=asked)))

    def reflection_record(self, problem: Problem, response: Response, demonstration: Any, grade: Any = None) -> str:
        return response.text

    def rubric_keys(self) -> tuple[str, ...]:
        return ("",)

    def rubric_key(self, problem: Problem) -> str:
        return ""

    def task_description(self) -> str:
        return "Say something."

    def starting_rubric(self, name: str, rubric_key: str) -> Rubric:
        return Rubric("Even is better.", 5.0)

    def scoring_prompt(self, problem: Problem, response: Response, rubric: Rubric, *_: Any, **__: Any) -> Prompt:
        return self.instructed_prompt(problem, f"{rubric.text} {response.text}")

    def planning_prompt(self, problem: Problem, rubric: Rubric, reference: str | None = None) -> Prompt:
        raise NotImplementedError

    @staticmethod
    def grader(config: ParityConfig, *, training: bool) -> "_Grader":
        return _Grader(config if training else ParityConfig())


ParityConfig.task_class = Parity


def is_right(text: str) -> bool:
    """Return whether a text has an even number of letters."""
    return sum(letter.isalpha() for letter in text) % 2 == 0


class _Grader:
    def __init__(self, config: ParityConfig) -> None:
        self._config = config

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        self._note()
        return Grade(correct=is_right(response.text))

    def _note(self) -> None:
        if self._config.count:
            with Path(self._config.count).open("a") as file:
                file.write("x")
        if self._config.trouble and Path(self._config.trouble).exists():
            raise ValueError("the grader has no opinion")


def _any_words(reply: Reply, known: Sequence[str] = ()) -> list[system_prompts.Edit]:
    """Take whatever a model says for a principle to add: a random one writes no edits."""
    return [system_prompts.Edit("add", text=" ".join(reply.completions[0].text.split())[:20])]


def _any_score(text: str, rubric: Rubric, item: object = None) -> Scores:
    """Take whatever a model says for a score."""
    points = float(len(text) % (rubric.maximum + 1))
    return Scores((points,), points, points / rubric.maximum)


def _any_rubric(reply: Reply, words: int, wrap: object = None) -> Rubric:
    """Take whatever a model says for a rubric."""
    text = _said(reply)
    return Rubric(f"Even is better, says {text[:20]}.", 5.0 + len(text) % 3)


def _said(reply: Reply) -> str:
    return reply.completions[0].text


ANY_TEXT: tuple[tuple[Any, str, Any], ...] = (
    (system_prompts, "read_edits", _any_words),
    (rubric_rewards, "read_complete_text", _said),
    (rubric_rewards, "read_scores", _any_score),
    (rubric_refinement, "read_analysis", _said),
    (rubric_refinement, "read_refinement", _any_rubric),
)
"""Readers of a model's texts, and what does in their place: a random model writes nothing that can be read."""


MAX_TOKENS = 6
"""Tokens of a completion at most."""

SMALL = (
    *("method.steps=4", "method.problems_per_step=2", "method.group=4", f"method.max_tokens={MAX_TOKENS}"),
    *("method.eval_every=2", "method.eval_samples=1", "task=arithmetic", "engine=transformers", "engine.device=cpu"),
    *("training.rank=4", "training.learning_rate=0.01", "training.save_every=2", "seed=3", "evorun.progress=off"),
)


def settings(method: str) -> dict[str, Any]:
    """Return the composed configuration of a small run of a method, on the toy task."""
    model = {"name": "tiny", "id": "", "context_length": 2048}
    return {**composed(f"method={method}", *SMALL), "task": {"name": "parity"}, "model": model}


def merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with some replaced; a change of `name` drops the others."""
    result = dict(base)
    for key, value in overrides.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping) and key != "engine"
        result[key] = merged(result[key], value) if nested else value
    return result


def configured(model: Path, **overrides: Any) -> RunConfig:
    """Return the configuration of a small run with some settings changed."""
    registry.TASKS["parity"] = "parity_task:ParityConfig"
    base = settings(overrides.get("method", {}).get("name", "grpo"))
    return check(merged(merged(base, {"model": {"id": str(model)}}), overrides))


def carry_out(folder: Path, model: Path, **overrides: Any) -> Outcome:
    """Carry out a small run."""
    with reading_any_text():
        return run_experiment(configured(model, **overrides), folder, ["evorun"], Terminal(file=StringIO()))


@contextlib.contextmanager
def reading_any_text() -> Iterator[None]:
    """Read whatever the random model says, while the block runs."""
    with contextlib.ExitStack() as patches:
        for module, name, instead in ANY_TEXT:
            patches.enter_context(mock.patch.object(module, name, instead))
        yield


def finished(folder: Path, model: Path, **overrides: Any) -> Path:
    """Carry out a small run that must complete; return its folder."""
    outcome = carry_out(folder, model, **overrides)
    assert outcome.status == "completed", outcome.error
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


RECORDS = ("training", "rollouts", "steps", "metrics", "candidates", "predictions", "ratings")


def records(run: Path) -> dict[str, bytes]:
    """Return the bytes of a run's records."""
    files = [run / f"{name}.jsonl" for name in RECORDS]  # ratings: of runs with system prompts
    return {file.stem: file.read_bytes() for file in files if file.exists()}


def effects(run: Path) -> dict[str, tuple[bytes, float]]:
    """Return result and seconds of everything in a run's journal, by key."""
    return {one.key: (one.result, one.seconds) for one in read_journal(run / "journal.sqlite")}


def adapter_of(folder: Path) -> dict[str, Any]:
    """Return the tensors of an adapter."""
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(folder / "adapter_model.safetensors")
    return found


def same_tensors(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two adapters are equal to the bit."""
    return first.keys() == second.keys() and all(bool((first[name] == second[name]).all()) for name in first)


def _is_before(key: str, step: int) -> bool:
    """Return whether a step's update does not come before this effect."""
    name, of_step, *_ = key.split("|")
    return int(of_step) < step or (int(of_step) == step and name != "*")


def cut_back(run: Path, step: int, left: int) -> dict[str, tuple[bytes, float]]:
    """Make a run's directory what a kill in the middle of a training step leaves; return its journal.

    left: calls of that step that had been answered.
    """
    keep = [f"*|{step}|rollout|{place}|0" for place in range(left)]
    journal = run / "journal.sqlite"
    write_journal(journal, [one for one in read_journal(journal) if one.key in keep or _is_before(one.key, step)])
    for name in ("predictions", "candidates", "metrics"):
        (run / f"{name}.jsonl").unlink()
    for name in ("steps", "training", "rollouts"):
        kept = [
            line for line in (run / f"{name}.jsonl").read_bytes().splitlines(True) if json.loads(line)["step"] < step
        ]
        (run / f"{name}.jsonl").write_bytes(b"".join(kept)[:-5])  # and a torn last line
    shutil.rmtree(run / "artifacts")
    return effects(run)


def die(*_: object, **__: object) -> None:
    """End this process as `kill -9` does; its trainer goes on by itself until it misses the run."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(moment: str) -> None:
    """Make this process die in a reflection, as a rubric is merged, or as its second checkpoint is about to get its
    name."""
    if moment == "checkpoint":
        seal = Checkpoints.seal
        Checkpoints.seal = lambda self, update: die() if update == 4 else seal(self, update)  # type: ignore[method-assign]
    elif moment == "reflection":
        OperatorPrompts.critique = die  # type: ignore[method-assign, assignment]
    elif moment == "refinement":
        MetaPrompts.merging = die  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    kill_at(given.pop("kill", ""))
    outcome = carry_out(Path(sys.argv[1]), Path(given.pop("model")), **given)
    print(outcome.status, outcome.error)
    sys.exit(outcome.status != "completed")
