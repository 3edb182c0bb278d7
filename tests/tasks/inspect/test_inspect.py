"""`task=inspect`: prompts, scores and answers beside inspect_ai's own evaluation of the same texts, and refusals."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import load_task, task_config
from evorun.errors import ConfigError, DataError
from evorun.models.base import Request
from evorun.runs.candidates import Response
from evorun.simulation.skill import Skill
from evorun.tasks.base import Grade, Prompt
from evorun.testing.tasks import check_task
from evorun_process import evorun_here
from killed_runs import check_killed_run

pytest.importorskip("inspect_ai")
pytestmark = pytest.mark.bridges

TASKS = Path(__file__).parent / "inspect_tasks.py"
TEXTS = (
    *("", "42", "I add them.\n\nANSWER: 42", "ANSWER: B", "ANSWER: (A)", "Answer: red", "ANSWER: white", "crash"),
    *("$\\boxed{62}$", "Jane Austen", "by von Goethe, I think", "one two three", "{x} ANSWER: C"),
)
CASES: dict[str, dict[str, Any]] = {
    "sums": {},
    "capitals": {},
    "talks": {},
    "phrases": {"right_from": 0.5},
    "limits": {"value": "words"},
}


def load(name: str, **settings: Any) -> Any:
    return load_task("inspect", function=f"{TASKS}:{name}", **settings)


class Judge:
    """Remembers nothing and answers as a judge that always finds a reply right."""

    def __init__(self) -> None:
        self.asked: list[tuple[Prompt, int]] = []

    async def remember(self, about: object, compute: Any, kind: type) -> Any:
        return await compute()

    async def judge(self, prompt: Prompt, attempt: int = 0) -> str | None:
        self.asked.append((prompt, attempt))
        return "It names the cause.\nGRADE: C"


def grade(loaded: Any, problem: Any, text: str, tools: Any = None) -> Grade:
    response = loaded.task.parse(problem, text)
    found: Grade = asyncio.run(loaded.grade(problem, response, tools or Judge()))
    return found


def evaluate(name: str, folder: Path) -> list[tuple[str, Any]]:
    """Return inspect_ai's own samples of a task, one for each problem and text, each with its text."""
    from inspect_ai import eval as evaluate_task
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    said = Counter[str]()

    def say(messages: Any, *_: Any) -> ModelOutput:
        prompt = "\n".join(message.text for message in messages)
        said[prompt] += 1
        output = ModelOutput.from_content("mockllm/model", TEXTS[said[prompt] - 1])
        # Without figures, it loads a tokenizer from the net.
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    [log] = evaluate_task(
        f"{TASKS}@{name}",
        model=get_model("mockllm/model", custom_outputs=say),
        epochs=len(TEXTS),
        log_dir=str(folder),
        display="none",
        fail_on_error=False,
    )
    return [(sample.output.completion, sample) for sample in log.samples]


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_inspect_ai_itself(name: str, tmp_path: Path) -> None:
    from inspect_ai.scorer import value_to_float

    loaded, value = load(name, **CASES[name]), CASES[name].get("value")
    problems, seen = {problem.id: problem for problem in loaded.problems}, set()
    for text, sample in evaluate(name, tmp_path):
        problem = problems[str(sample.id)]
        seen.add((problem.id, text))
        ours = [(message["role"], message["content"]) for message in loaded.task.generation_prompt(problem).messages]
        assert ours == [(message.role, message.text) for message in sample.messages[: len(ours)]]
        found = grade(loaded, problem, text)
        if sample.error:  # there it ends the sample
            assert "a scorer's fault" in sample.error.message
            assert "a scorer's fault" in found.detail
            assert found.correct is False
            continue
        theirs = next(iter(sample.scores.values())).value
        expected = value_to_float()(theirs[value] if value else theirs)
        assert found.scores == {"score": expected}, (problem.id, text)
        assert found.correct == (expected >= CASES[name].get("right_from", 1.0))
    assert len(seen) == len(problems) * len(TEXTS)


@pytest.mark.parametrize("name", [*CASES, "judged"])
def test_tasks_conform(name: str) -> None:
    settings = CASES.get(name, {"model_graded": True})
    if name == "limits":  # no reply is named by its target: none is simulated
        assert load(name, **settings).answers == {}
    else:
        check_task(task_config("inspect", function=f"{TASKS}:{name}", **settings))


def test_answers_are_what_the_scorer_reads_whatever_is_right() -> None:
    capitals, phrases = load("capitals"), load("phrases", right_from=0.5)
    for problem in capitals.problems:
        texts = ["ANSWER: B", "I think so.\nANSWER: (B)", "Answer : b."]
        assert {capitals.task.parse(problem, text).answer for text in texts} == {"B"}
        unread = capitals.task.parse(problem, "It is Paris.")
        assert unread.answer is None
        assert unread.error.startswith("no_answer:")
    # A scorer that reads no answer leaves the reply itself.
    assert phrases.task.parse(phrases.problems[0], "Jane Austen\n").answer == "Jane Austen"


def test_an_answer_never_depends_on_what_is_right() -> None:
    loaded = load("numbers")
    # With the target 5, the scorer reads "5" in this reply; with others, the whole reply.
    for problem in loaded.problems:
        assert loaded.task.parse(problem, "3 and 5 and 7 or so").answer == "3 and 5 and 7 or so"


def test_rows_are_drawn_apart_and_repeats_left_out() -> None:
    loaded = load("sums", validation_problems=1, train_problems=1)
    parts = [loaded.problems, [example.problem for example in loaded.validation], loaded.training]
    assert [len(part) for part in parts] == [2, 1, 1]
    assert loaded.validation[0].answer == loaded.answers[loaded.validation[0].problem.id]
    with pytest.raises(DataError, match=r"expected more than .* = 4 different problems"):
        load("sums", validation_problems=4)
    assert len(load("sums", arguments={"first": 2}).problems) == 2
    assert "1 repeated ones left out" in load("repeating").provenance.description


REFUSALS = {
    "twice": "expected a solver of one model call, got 2",
    "never": "expected a solver of one model call, got 0",
    "directly": "expected a solver that asks by `generate` alone",
    "tools": "expected a solver without tools",
    "sandbox": "expected a task without a sandbox, got 'docker'",
    "files": "expected no files, got some",
    "image": "expected messages of text alone, got image",
    "shuffled": "expected the same prompt each time",
    "no_scorer": "task.scorer: expected an index below 0",
    "no_samples": "The specified dataset is empty",
}


@pytest.mark.parametrize("why", REFUSALS)
def test_tasks_of_more_than_one_call_are_refused_in_a_line(why: str) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        load("refused", arguments={"why": why})
    assert REFUSALS[why] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"function": None}, "task.function: expected package.module:function"),
        ({"function": "no_such_module:f"}, "cannot be imported: ModuleNotFoundError"),
        ({"function": f"{TASKS}:absent"}, "cannot be imported: AttributeError"),
        ({"function": "math:floor", "arguments": {"x": 2.5}}, "cannot be called: TypeError"),
        ({"function": "collections:Counter"}, r"expected an inspect_ai Task, got Counter\(\)"),
        ({"function": f"{TASKS}:sums", "scorer": 1}, "task.scorer: expected an index below 1"),
        ({"function": f"{TASKS}:sums", "value": "words"}, "task.value=words: expected null"),
        ({"function": f"{TASKS}:limits"}, "task.value: expected one of words, kept"),
        ({"function": f"{TASKS}:sums", "reply": "ANSWER"}, "task.reply: expected a text with {answer}"),
        ({"function": f"{TASKS}:sums", "model_graded": True}, "expected a scorer that asks a model"),
        ({"function": f"{TASKS}:unequipped"}, "its scorer lacks what it needs: A provider's API"),
        ({"function": f"{TASKS}:judged"}, "set task.model_graded=true, and gold=MODEL"),
    ],
)
def test_wrong_settings_are_refused_in_a_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        load_task("inspect", **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["judged", "judged_by_name"])
def test_the_gold_judge_answers_a_scorer_that_asks_a_model(name: str) -> None:
    loaded, judge = load(name, model_graded=True), Judge()
    problem = loaded.problems[0]
    found = grade(loaded, problem, "It is scattering.", judge)
    assert found.correct is True
    assert found.scores == {"score": 1.0}
    [(prompt, attempt)] = judge.asked
    assert "It is scattering." in prompt.messages[0]["content"]
    assert attempt == 0
    assert loaded.task.score(problem, Response(text="x", answer="x"), ["y"]) == Grade()

    class Mute(Judge):
        async def judge(self, prompt: Prompt, attempt: int = 0) -> None:
            return None

    assert grade(loaded, problem, "It is scattering.", Mute()).correct is None


def test_simulated_models_answer_by_their_skill() -> None:
    loaded = load("capitals")
    problem = loaded.problems[0]
    prompt = loaded.task.generation_prompt(problem)
    request = Request(messages=prompt.messages, hints=prompt.hints)
    for skill in (0, 1):
        simulator = loaded.simulator.with_skill(Skill(skill=skill, malformed=0, spread=0))
        replies = [simulator.respond(request, np.random.default_rng(n)) for n in range(20)]
        assert {grade(loaded, problem, reply).correct for reply in replies} == {bool(skill)}


@pytest.mark.parametrize("name", ["capitals", "judged"])
def test_a_run_is_carried_out_and_read_again_from_its_journal(name: str, tmp_path: Path) -> None:
    graded = ["task.model_graded=true"] if name == "judged" else []
    task = ["task=inspect", f"task.function={TASKS}:{name}", *graded, "method=duel_evolve", "method.max_pool=8"]

    def succeed(*settings: str) -> None:
        done = evorun_here(*task, *settings, "budget.calls_per_problem=12", cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    succeed("engine=simulated", "engine.skill=0.6", "hydra.run.dir=first")
    results = json.loads((tmp_path / "first/results.json").read_text())
    assert results["metrics"]["accuracy"]["n"] == len(load(name, model_graded=bool(graded)).problems)
    succeed("engine=replay", f"engine.run={tmp_path / 'first'}", "hydra.run.dir=second")
    for file in ("predictions.jsonl", "steps.jsonl"):
        assert (tmp_path / "second" / file).read_bytes() == (tmp_path / "first" / file).read_bytes()


def test_a_run_killed_after_a_judgment_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    task = ["task=inspect", f"task.function={TASKS}:judged", "task.model_graded=true", "method=duel_evolve"]
    task += ["method.max_pool=8", "budget.calls_per_problem=30", "engine=simulated", "engine.seconds_per_token=0.002"]
    check_killed_run(task, tmp_path, "gold")


def test_training_learns_from_the_scores_and_not_from_right_or_wrong(tmp_path: Path) -> None:
    task = ["task=inspect", f"task.function={TASKS}:names", "task.train_problems=2", "task.limit=1"]
    method = ["method=grpo", "method.steps=2", "method.problems_per_step=1", "method.group=8", "engine.skill=0.5"]
    done = evorun_here(*task, *method, "engine=simulated", "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rollouts = [json.loads(line) for line in (tmp_path / "run/rollouts.jsonl").read_text().splitlines()]
    assert {(rollout["reward"], rollout["correct"]) for rollout in rollouts} == {(0, False), (0.5, False), (1, True)}
    replayed = evorun_here("replay", "run", cwd=tmp_path)
    assert "the records are the same to the byte" in replayed.stdout, replayed.stdout + replayed.stderr
