"""Studies of a completed run's system prompts on its test problems, by runs of `method=fixed_prompts` (ours).

The transplant matrix crosses saved weights with system prompts, and with a method that answers at test time, to show
how much of a gain lies in each. Delete-one measures each principle of the best system prompt. Their runs lie in the
run's directory and resume as any run does.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import ConfigError
from evorun.methods.espl.system_prompts import SystemPrompt
from evorun.methods.search.fixed_prompts import GivenPrompt
from evorun.runner.settings import check
from evorun.runner.stages import Runner
from evorun.runs.candidates import SHARED
from evorun.runs.directory import PROMPT_SCORES, load_manifest
from evorun.runs.manifest import Manifest
from evorun.runs.paths import display
from evorun.runs.reading import read_artifact, read_predictions, read_records, read_steps_without_texts, read_training
from evorun.runs.records import write_json, write_records
from evorun.runs.schema import CandidateRecord, PrincipleEffect, PromptScore, RatingRecord
from evorun.runs.scores import mean_of_samples
from evorun.runs.statistics import mean_interval
from evorun.runs.terminal import Terminal
from evorun.training.policy import ADAPTER, FULL_MODEL, KEPT
from evorun.training.simulated import LEARNED

TRANSPLANT, DELETE_ONE = "transplant", "delete_one"
BEST = "system_prompt.json"
"""Artifact with the best system prompt of a run."""
EVALUATION = ("eval_samples", "eval_temperature", "eval_top_p", "eval_max_tokens")
"""Settings of the run's evaluations that its studies share."""
_AS_THE_RUN = ("seed", "task", "engine", "sandbox", "run", "evorun")


class _Best(msgspec.Struct):
    id: str
    preamble: str
    principles: tuple[str, ...]


class PromptStudies:
    """The studies of one run."""

    def __init__(self, run: Path, config: Mapping[str, Any], console: Terminal, runner: Runner) -> None:
        """config: that of the run; execution settings and `method.eval_samples` may differ.

        Raises ConfigError for a run without evolved system prompts, or one that has not completed.
        """
        self._run = run
        self._manifest: Manifest = load_manifest(run)
        self._config = config
        self._console = console
        self._runner = runner
        if self._manifest.status != "completed":
            raise ConfigError(f"{display(run)}: expected a completed run, its status is {self._manifest.status}")
        records = read_records(run / "candidates.jsonl", CandidateRecord)
        shared = (record for record in records if record.problem == SHARED)
        self._prompts = {record.id: record for record in shared if record.kind == "system_prompt"}
        best = read_artifact(run, BEST, _Best)
        if best is None or best.id not in self._prompts:
            raise ConfigError(
                f"{display(run)}: expected a run whose system prompts evolved (method=espl, espl_evolution or "
                f"espl_self_reflection), which leaves artifacts/{BEST}; method={self._manifest.method} left none"
            )
        self._best = best

    def transplant(self, *, window: bool = False, answers: Mapping[str, Any] | None = None) -> list[PromptScore]:
        """Test the root, the best and the latest system prompt under all saved weights; return the cells.

        answers: the method that answers the test problems under each prompt, and its budget, as composed (`method`,
        `budget`); artifacts/transplant_METHOD.json then has the cells. None: single answers, as in the evaluations.
        window: also test, under each step's weights, the system prompts in its window; prompt_scores.jsonl then holds
        the scores to compare with their ratings (figure 8). Writes artifacts/transplant.json. Raises a run's error.
        """
        ids = list(self._prompts)
        shown = list(dict.fromkeys((ids[0], self._best.id, ids[-1])))
        weights = {0: None, **self._kept()} if self._trained else {self._last_step: None}
        rated = {step: self._window(step) for step in weights} if window else {}
        cells = []
        for step, where in weights.items():
            names = dict.fromkeys((*shown, *rated.get(step, ())))
            prompts = [GivenPrompt(name, self._prompts[name].text) for name in names]
            study = f"{TRANSPLANT}/step_{step}"
            if answers is None:
                found = self._tested(study, prompts, where)
            else:
                found = [self._answered_by(answers, study, prompt, where) for prompt in prompts]
            for prompt, values in zip(prompts, found, strict=True):
                low, high = mean_interval(list(values.values())) or (None, None)
                mean = sum(values.values()) / len(values)
                cells.append(PromptScore(step=step, candidate=prompt.id, score=mean, low=low, high=high, n=len(values)))
        name = TRANSPLANT if answers is None else f"{TRANSPLANT}_{answers['method']['name']}"
        write_json(self._run / "artifacts" / f"{name}.json", cells)
        if window:
            in_window = [cell for cell in cells if cell.candidate in rated[cell.step]]
            write_records(self._run / f"{PROMPT_SCORES}.jsonl", in_window)
        return cells

    def delete_one(self, answers: int | None = None) -> list[PrincipleEffect]:
        """Test the best system prompt whole and without each of its principles, under the final weights.

        answers: the maximum in total, shared equally among prompts and problems; None: as many per problem as in the
        run's evaluations. Writes artifacts/delete_one.json. Raises ConfigError for a prompt without principles or too
        few answers, and a run's error.
        """
        whole = SystemPrompt(self._best.preamble, self._best.principles)
        if not whole.principles:
            raise ConfigError(f"{display(self._run)}: expected principles, the best system prompt has none")
        without = without_each(whole)
        prompts = [GivenPrompt(f"without_{number}", prompt.text) for number, prompt in enumerate(without, 1)]
        if answers is not None:
            minimum = (1 + len(prompts)) * len(read_predictions(self._run))
            if answers < minimum:
                raise ConfigError(
                    f"answers: expected {minimum} or more, one per problem and system prompt ({1 + len(prompts)}), "
                    f"got {answers}"
                )
            self._config = {
                **self._config,
                "method": {**self._config["method"], "eval_samples": answers // minimum - 1},
            }
        kept = self._kept()
        final = kept[max(kept)] if kept else None
        scores = self._tested(DELETE_ONE, [GivenPrompt("whole", whole.text), *prompts], final)
        found = effects(whole, scores[0], scores[1:])
        write_json(self._run / "artifacts" / f"{DELETE_ONE}.json", found)
        return found

    @property
    def _trained(self) -> bool:
        return "training" in self._config

    @property
    def _last_step(self) -> int:
        return max((record.step for record in read_training(self._run)), default=0)

    def _kept(self) -> dict[int, Path]:
        """Return the paths of the saved weights by step, at least the final ones; empty for a run without training."""
        artifacts = self._run / "artifacts"
        kept = {int(folder.name.removeprefix("step_")): folder for folder in (artifacts / KEPT).glob("step_*")}
        if not kept and self._trained:
            trained = FULL_MODEL if self._config["training"]["weights"] == "full" else ADAPTER
            kept = {self._last_step: artifacts if (artifacts / LEARNED).exists() else artifacts / trained}
        return dict(sorted(kept.items()))

    def _window(self, step: int) -> list[str]:
        """Return the system prompts that were in the window after a step."""
        inside: dict[str, bool] = {}
        for rating in read_records(self._run / "ratings.jsonl", RatingRecord):
            if rating.step <= step:
                inside[rating.candidate] = rating.survivor
        return [name for name, survives in inside.items() if survives]

    def _tested(self, study: str, prompts: Sequence[GivenPrompt], weights: Path | None) -> list[dict[str, float]]:
        """Carry out a run; return the score of each prompt on each problem, by its id."""
        evaluation = {key: self._config["method"][key] for key in EVALUATION}
        folder = self._make_folder(study, prompts, evaluation)
        file = folder / "prompts.json"
        write_json(file, prompts)
        self._console.print(
            f"{study}: {len(prompts)} system prompts under {display(weights) if weights else 'the base weights'}",
            soft_wrap=True,
        )
        method = {
            "name": "fixed_prompts",
            "prompts": str(file.resolve()),
            "principles_in": self._config["method"].get("principles_in", "system"),
            **evaluation,
        }
        # the run's budget is for its own search
        config = check(self._composition(weights) | {"method": method, "budget": {"name": "unlimited"}})
        self._runner(config, folder / "run", ["evorun", study], self._console).raise_error()
        primary = self._manifest.scores[0]
        sampled = mean_of_samples(primary)
        scores: list[dict[str, float]] = [{} for _ in prompts]
        for record in read_steps_without_texts(folder / "run"):
            value = sampled.value_in(record)
            value = primary.value_in(record) if value is None else value
            # Without a readable answer, a problem has no best candidate to score.
            scores[record.step][record.problem] = (primary.low or 0.0) if value is None else value
        return scores

    def _answered_by(
        self, answers: Mapping[str, Any], study: str, prompt: GivenPrompt, weights: Path | None
    ) -> dict[str, float]:
        """Carry out a run of a method under a system prompt; return the score of each problem, by its id.

        The prompt takes the place of the task's own system prompt, in every request for an answer.
        """
        folder = self._make_folder(study, prompt, answers)
        task, own = dict(self._config["task"]), folder / "prompts"
        own.mkdir(exist_ok=True)
        if task.get("prompts"):
            shutil.copytree(Path(task["prompts"]).expanduser(), own, dirs_exist_ok=True)
        # a string of the template language, so that nothing in the prompt is taken for a part of a template
        (own / "system.md").write_text("{{ " + json.dumps(prompt.text) + " }}", encoding="utf-8")
        task["prompts"] = str(own.resolve())
        name = answers["method"]["name"]
        self._console.print(f"{study}: {name} under system prompt {prompt.id}", soft_wrap=True)
        config = check(self._composition(weights) | {"task": task, **answers})
        self._runner(config, folder / "run", ["evorun", study], self._console).raise_error()
        primary = self._manifest.scores[0]
        values = {record.problem: primary.value_in(record) for record in read_predictions(folder / "run")}
        return {problem: (primary.low or 0.0) if value is None else value for problem, value in values.items()}

    def _make_folder(self, study: str, tested: GivenPrompt | Sequence[GivenPrompt], how: Mapping[str, Any]) -> Path:
        """Return the folder of a run, named by what is tested and how: an equal study finds it again."""
        digest = hashlib.sha256(msgspec.json.encode([tested, how], order="deterministic")).hexdigest()[:8]
        folder = self._run / study / digest
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _composition(self, weights: Path | None) -> dict[str, Any]:
        """Return the configuration of a study's run, without method and budget."""
        config = self._config
        model, engine = dict(config["model"]), dict(config["engine"])
        if weights is not None and (weights / LEARNED).exists():
            engine["learned"] = msgspec.json.decode((weights / LEARNED).read_bytes())["learned"]
        elif weights is not None and config["training"]["weights"] == "full":
            model |= {"id": str(weights.resolve()), "embedded": False}
        elif weights is not None:
            model["adapter"] = str(weights.resolve())
        return {
            **{key: config[key] for key in _AS_THE_RUN if key in config},
            "model": model,
            "engine": engine,
            "judge": {"name": "policy"},
            "judge_engine": {"name": "policy"},
        }


def without_each(prompt: SystemPrompt) -> list[SystemPrompt]:
    """Return the system prompts to evaluate beside the whole one, in the order of its principles.

    Each lacks one principle; those after it move up a number, as they would if it were removed for good.
    """
    principles = prompt.principles
    return [
        prompt._replace(principles=principles[:index] + principles[index + 1 :]) for index in range(len(principles))
    ]


def effects(
    prompt: SystemPrompt, whole: Mapping[str, float], without: Sequence[Mapping[str, float]]
) -> list[PrincipleEffect]:
    """Return the effect of each principle of a system prompt, with its 95 % interval.

    whole: the mean score of each test problem under the whole prompt, by problem id. without: the same under each of
    `without_each`. Problems are paired, so that their differing difficulty cancels out; one that has no score under
    both counts for nothing. An interval is of its own principle: of 20 principles that do nothing one is expected to
    lie outside.
    """
    found = []
    for principle, scores in zip(prompt.principles, without, strict=True):
        differences = [whole[name] - scores[name] for name in whole if name in scores]
        low, high = mean_interval(differences) or (None, None)
        effect = sum(differences) / len(differences) if differences else 0.0
        found.append(PrincipleEffect(principle=principle, effect=effect, low=low, high=high, n=len(differences)))
    return found
