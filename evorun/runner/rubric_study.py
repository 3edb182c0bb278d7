"""A run's test responses scored by each of its rubrics: how strict a rubric has become (MPO, figure 5b).

The responses are scored as in training: by `method.scoring`, which the paper leaves open here, and `method.min_words`.
All items of a rubric count (`method.rubric_dropout`), and no right answer does (`method.exact_match_rate`).

The scores go through a journal in RUN_DIR/rescore/DIGEST: a stopped study continues, and a complete one is not paid for
again. A manifest beside it says what was scored, by which model and command.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from evorun.errors import ConfigError, DataError
from evorun.rollouts.calls import Calls
from evorun.rollouts.rubric_rewards import RESCORE, REWARD_ROLES, RubricRewards
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runner.run_study import RunStudy
from evorun.runner.served import in_manifest
from evorun.runner.settings import RunConfig
from evorun.runner.task_loading import load_task
from evorun.runner.work import Effects
from evorun.runs.candidates import SHARED, Response
from evorun.runs.directory import RUBRIC_SCORES, RunDirectory
from evorun.runs.paths import display
from evorun.runs.reading import read_records
from evorun.runs.records import write_json
from evorun.runs.schema import CandidateRecord, RubricScore, StepRecord
from evorun.runs.statistics import mean_interval
from evorun.runs.streams import stream
from evorun.runs.studies import RescoreManifest
from evorun.runs.terminal import Terminal
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import SupportsRubrics
from evorun.tasks.rubrics import Rubric, read_rubric

STUDY, REWARD = "rescore", "reward"


class _Answer(NamedTuple):
    """A response from an evaluation."""

    step: int
    problem: Problem
    response: Response


class RubricVersion(NamedTuple):
    """A rubric of the run."""

    record: CandidateRecord
    key: str
    rubric: Rubric


class RubricStudy(RunStudy):
    """The rubrics of one run on its test responses."""

    verb = STUDY
    manifest_class = RescoreManifest

    def __init__(self, run: Path, config: Mapping[str, Any], console: Terminal) -> None:
        """config: that of the run; execution settings may differ.

        Raises ConfigError for a run without rubrics or one that has not completed, and DataError when its data or its
        first rubric has changed.
        """
        super().__init__(run, config, console)
        self._loaded = load_task(self._checked.task)
        self._settings, self._versions = read_rubric_versions(run, self._checked, self._loaded.task)
        self._task: Any = self._loaded.task

    def scores(
        self,
        answers: int | None = None,
        *,
        every: bool = False,
        command: Sequence[str] = (),
        resumed: Path | None = None,
    ) -> list[RubricScore]:
        """Score responses to the test problems by each rubric; write artifacts/rubric_scores.json and return it.

        answers: the maximum number of problems, drawn at random and equal for all rubrics; None takes all. every: score
        the responses of every evaluation, not only of the last. command: for the manifest. resumed: the folder of the
        study, where it continues an earlier one. Raises ConfigError when there are no responses, RunDirectoryError when
        `resumed` holds another study, and whatever error stops a run.
        """
        if answers == 0:
            raise ConfigError("answers: expected a number >= 1, got 0")
        chosen = self._answers(answers, every=every)
        rewards = self._make_rewards({}, None)
        calls = sum(rewards.count_max_calls(v.rubric) * len(self._find_own(v, chosen)) for v in self._versions)
        self._console.print(
            f"{STUDY}: {len(chosen):,} responses by {len(self._versions)} rubrics, as in training "
            f"(method.scoring={self._settings.scoring}); at most {calls:,} calls with all repeats",
            soft_wrap=True,
        )
        found: list[RubricScore] = []
        self._carry_out(
            self._identity(chosen),
            {REWARD: self._get_served(REWARD)},
            self._loaded,
            lambda directory, effects: self._score(directory, effects, chosen, found),
            command=command,
            settings={"answers": answers, "every": every, "max_calls": calls},
            resumed=resumed,
            reward=in_manifest(self._get_served(REWARD)),
        )
        (self._run / "artifacts").mkdir(exist_ok=True)
        for place in (self.folder, self._run / "artifacts"):
            write_json(place / RUBRIC_SCORES, found)
        return found

    def _answers(self, count: int | None, *, every: bool) -> list[_Answer]:
        """Return the responses to score, in the order of their records."""
        problems = {problem.id: problem for problem in self._loaded.problems}
        steps = [record for record in read_records(self._run / "steps.jsonl", StepRecord) if record.best is not None]
        last = max((record.step for record in steps), default=0)
        answered = sorted({record.problem for record in steps})
        self._require_problems(answered, problems)
        if not answered:
            raise ConfigError(f"{display(self._run)}: expected responses to its problems, none could be read")
        order = stream(self._checked.seed, STUDY).permutation(len(answered)).tolist()
        drawn = {answered[index] for index in order[:count]}
        parse = self._loaded.task.parse
        return [
            _Answer(record.step, problems[record.problem], parse(problems[record.problem], record.best.text))
            for record in steps
            if record.best is not None and record.problem in drawn and (every or record.step == last)
        ]

    def _identity(self, chosen: Sequence[_Answer]) -> dict[str, Any]:
        """Return all that decides the scores; its digest names the folder, so that other studies lie beside it."""
        return {
            "responses": [[answer.step, answer.problem.id, answer.response.text] for answer in chosen],
            "rubrics": [version.rubric for version in self._versions],
            "settings": asdict(self._settings),
            "reward": self._get_served(REWARD).model.id,
        }

    async def _score(
        self, directory: RunDirectory, effects: Effects, chosen: Sequence[_Answer], found: list[RubricScore]
    ) -> None:
        """Add each rubric's scores to `found`."""
        rewards = self._make_rewards(effects.models, directory.journal.remember)
        for number, version in enumerate(self._versions):  # in turn: a single rubric's calls fill the engine
            found += await self._scores_by(rewards, number, version, chosen)

    def _make_rewards(self, models: Mapping[str, Any], remember: Any) -> RubricRewards:
        loaded = self._loaded
        calls = Calls(
            name=SHARED,
            task=loaded.task,
            seed=self._checked.seed,
            meter=self._meter,
            models=models,
            roles=REWARD_ROLES,
            remember=remember,
        )
        references = {**loaded.answers, **loaded.solutions} if self._settings.plan_reference else {}
        return RubricRewards(calls, loaded.task, _no_rubric, self._settings, _no_grade, references=references)

    def _find_own(self, version: RubricVersion, chosen: Sequence[_Answer]) -> list[tuple[int, _Answer]]:
        """Return the responses to the problems of a rubric's key, with their indices."""
        key = self._task.rubric_key
        return [(index, answer) for index, answer in enumerate(chosen) if key(answer.problem) == version.key]

    async def _scores_by(
        self, rewards: RubricRewards, number: int, version: RubricVersion, chosen: Sequence[_Answer]
    ) -> list[RubricScore]:
        """Return the mean score of each evaluation's responses by a rubric. number: the rubric's, in the run."""
        own = self._find_own(version, chosen)
        async with asyncio.TaskGroup() as together:
            scoring = [
                together.create_task(rewards.rescore(number, index, answer.problem, answer.response, version.rubric))
                for index, answer in own
            ]
        shares: dict[int, list[float]] = {}
        unscored: dict[int, int] = {}
        for (index, answer), task_ in zip(own, scoring, strict=True):
            rewards.charge(number, index, RESCORE)
            raw = task_.result().parts.get("raw")
            unscored[answer.step] = unscored.get(answer.step, 0) + (raw is None)
            if raw is not None:
                shares.setdefault(answer.step, []).append(raw / version.rubric.maximum)
        return [
            RubricScore(
                rubric=version.record.id,
                refined=version.record.generation,
                step=step,
                score=fmean(values) if (values := shares.get(step, [])) else None,
                low=(ends := mean_interval(values) or (None, None))[0],
                high=ends[1],
                n=len(values),
                unscored=unscored[step],
            )
            for step in sorted(unscored)
        ]


def read_rubric_versions(run: Path, config: RunConfig, task: Any) -> tuple[RubricSettings, list[RubricVersion]]:
    """Return a run's settings of rubric rewards and its rubrics; read a first one from its source again.

    The record of a first rubric has only its text. Raises ConfigError for a run without rubrics, and DataError when the
    first rubric or the task has changed.
    """
    records = [
        record
        for record in read_records(run / "candidates.jsonl", CandidateRecord)
        if record.problem == SHARED and record.kind == "rubric"
    ]
    settings = config.method.rubric_settings
    if not records or settings is None:
        raise ConfigError(
            f"{display(run)}: expected a run that learned from a rubric (method=mpo, or method.rubric=... of another "
            f"method that trains); method={config.method.name} did not"
        )
    assert isinstance(task, SupportsRubrics)  # noqa: S101 - else `check` had refused the pair
    keys = {record.id.rpartition("#")[0]: record for record in records}
    by_name = {key or "rubric": key for key in task.rubric_keys()}
    if not keys.keys() <= by_name.keys():
        raise DataError(
            f"{display(run)}: expected rubrics for {', '.join(by_name)}, got rubrics for {', '.join(keys)}; "
            "restore the task that the run had"
        )
    versions = []
    for record in records:
        key = by_name[record.id.rpartition("#")[0]]
        first = settings.rubric or ""
        rubric = read_rubric(record.text) if record.parents else task.starting_rubric(first, key)
        if rubric.text != record.text:
            raise DataError(
                f"{display(run)}: the rubric file of method.rubric={first} has changed since the run: "
                "expected the text that the run had; restore it"
            )
        versions.append(RubricVersion(record, key, rubric))
    return settings, versions


def _no_rubric(key: str, step: int) -> Rubric:
    raise AssertionError("each call of rescore names its rubric")


_no_grade: Callable[..., Any] = _no_rubric
