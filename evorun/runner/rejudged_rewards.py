"""A run's rollouts, rewarded again by another rubric or another reward model (MPO, section 2.3)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET

from evorun.errors import ConfigError, DataError
from evorun.models.base import Reply
from evorun.models.config import ServedModel
from evorun.rollouts.calls import Calls
from evorun.rollouts.replies import read_reply
from evorun.rollouts.rewards import Reward
from evorun.rollouts.rubric_rewards import PLAN, REWARD_ROLES, SCORE, RubricRewards
from evorun.runner.gold import MethodTools
from evorun.runner.rejudging import MostCalls, Rejudging
from evorun.runner.rubric_study import REWARD, read_rubric_versions
from evorun.runner.run_study import digest
from evorun.runner.training_runs import simulating, training_problems
from evorun.runner.work import Effects
from evorun.runs.candidates import SHARED, Response
from evorun.runs.directory import RunDirectory
from evorun.runs.journal_reader import decode_result
from evorun.runs.paths import display
from evorun.runs.reading import read_rollouts
from evorun.runs.recording import open_effects
from evorun.runs.records import write_records
from evorun.runs.schema import Metric, RolloutRecord
from evorun.runs.statistics import clustered_mean, rank_correlation
from evorun.runs.studies import RejudgedFigure, RejudgedReward
from evorun.runs.terminal import Terminal
from evorun.tasks.rubrics import Rubric

RESAMPLES = 1_999
"""Resamples of an interval here (ours): a row for each step."""

_Shares = tuple[str, float, float]
"""Problem, recorded share of the points, and the new one."""


class RejudgedRewards(Rejudging):
    """The rollouts that a rubric has rewarded, under another one.

    A score has the journal key of the recorded one, hence the same seed: the recorded reward model would give the same
    points by the recorded rubric.
    """

    kind = "rewards"

    def __init__(
        self,
        run: Path,
        config: Mapping[str, Any],
        console: Terminal,
        *,
        rubric: str | None = None,
        **limits: Any,
    ) -> None:
        """rubric: its name or file; None: each rollout's own.

        Raises ConfigError for a run without rewards by a rubric and for an unknown rubric, DataError where the data or
        the run's first rubric have changed.
        """
        super().__init__(run, config, console, **limits)
        self._own_settings["rubric"] = rubric
        training = training_problems(self._checked, self._loaded)
        if training is None:
            raise ConfigError(
                f"{display(run)}: expected a run that learned from a rubric, method={self._checked.method.name} "
                "learns from no problems"
            )
        self._training = training
        self._loaded = simulating(self._loaded, training)
        self._settings, versions = read_rubric_versions(run, self._checked, training.task)
        self._problems = {problem.id: problem for problem in training.problems}
        self._rollouts = [r for r in read_rollouts(run) if r.raw is not UNSET and r.maximum is not UNSET]
        if not self._rollouts:
            raise ConfigError(f"{display(run)}: expected rollouts with points by a rubric, found none")
        self._require_problems((rollout.problem for rollout in self._rollouts), self._problems, "training data")
        self._key = training.task.rubric_key  # type: ignore[attr-defined]  # `read_rubric_versions` has checked it
        self._rubrics: dict[tuple[str, int], Rubric] = {}
        by_id = {version.record.id: version.rubric for version in versions}
        for rollout in self._rollouts:
            key = self._key(self._problems[rollout.problem])
            if rubric is None:
                self._rubrics[key, rollout.step] = by_id[str(rollout.rubric)]
            elif (key, rollout.step) not in self._rubrics:
                self._rubrics[key, rollout.step] = training.task.starting_rubric(rubric, key)  # type: ignore[attr-defined]
        self._responses = self._read_responses()

    def _read_responses(self) -> list[Response]:
        """Return the rollouts' responses, from the run's journal. Raises DataError where it lacks one."""
        with closing(open_effects(self._run)) as journal:
            numbers = {key: number for number, (key, _) in enumerate(journal.index())}
            responses = []
            for rollout in self._rollouts:
                if rollout.call not in numbers:
                    raise DataError(f"{display(self._run)}: the journal lacks {rollout.call}; restore it")
                reply = decode_result(journal.result(numbers[rollout.call]), Reply, rollout.call, self._run)
                responses.append(read_reply(self._training.task, self._problems[rollout.problem], reply))
        return responses

    def _models(self) -> dict[str, ServedModel]:
        return {REWARD: self._get_served(REWARD)}

    def _decides(self) -> dict[str, Any]:
        return {
            "rollouts": [[rollout.step, rollout.problem, rollout.index] for rollout in self._rollouts],
            "texts": [digest(response.text) for response in self._responses],
            "rubrics": [[key, step, rubric] for (key, step), rubric in self._rubrics.items()],
            "settings": asdict(self._settings),
            "data": self._training.provenance.digest,
        }

    def _make_rewards(self, models: Mapping[str, Any], remember: Any, tools: Any) -> RubricRewards:
        split = self._training
        calls = Calls(
            name=SHARED,
            task=split.task,
            seed=self._checked.seed,
            meter=self._meter,
            models=models,
            roles=REWARD_ROLES,
            remember=remember,
        )
        return RubricRewards(
            calls,
            split.task,
            lambda key, step: self._rubrics[key, step],
            self._settings,
            partial(split.grade, tools=tools),
            references={**split.answers, **split.solutions} if self._settings.plan_reference else {},
        )

    def _count_by_step(self, rewards: RubricRewards) -> tuple[Mapping[int, int], int]:
        """Return the most calls of a rollout by step, and those of all rollouts."""
        most = {step: rewards.max_calls(1, step) for step in sorted({rollout.step for rollout in self._rollouts})}
        return most, sum(most[rollout.step] for rollout in self._rollouts)

    def _count_calls(self) -> MostCalls:
        _, total = self._count_by_step(self._make_rewards({}, None, None))
        return MostCalls(total, self._settings.reward_max_tokens, {SCORE, PLAN})

    async def _judge(self, directory: RunDirectory, effects: Effects) -> list[RejudgedFigure]:
        rollouts = self._rollouts
        rewards = self._make_rewards(effects.models, directory.journal.remember, MethodTools(effects.tests))
        most, total = self._count_by_step(rewards)
        self._announce(f"{len(rollouts):,} rollouts, at most {total:,} scores and plans")

        async def ask(place: int) -> Reward:
            rollout = rollouts[place]
            problem = self._problems[rollout.problem]
            return await rewards.reward(rollout.step, rollout.index, problem, self._responses[place])

        def charge(place: int) -> None:
            rewards.charge(rollouts[place].step, rollouts[place].index)

        found = await self._ask_all(
            range(len(rollouts)), lambda place: rollouts[place].problem, max(most.values()), SCORE, ask, charge
        )
        scored = [
            RejudgedReward(
                step=rollout.step,
                problem=rollout.problem,
                index=rollout.index,
                recorded=_share(rollout),
                now=reward.parts["raw"] / reward.parts["maximum"] if "raw" in reward.parts else None,
            )
            for rollout, reward in zip(rollouts, found, strict=True)
            if reward is not None
        ]
        self._all_equal = bool(scored) and all(score.now == score.recorded for score in scored)
        write_records(directory.path / "rewards.jsonl", scored)
        return measure_rewards(scored)


def _share(rollout: RolloutRecord) -> float:
    """Return a rollout's recorded share of the points."""
    assert rollout.raw is not UNSET  # noqa: S101 - others are left out
    assert rollout.maximum is not UNSET  # noqa: S101
    return rollout.raw / rollout.maximum


def measure_rewards(rewards: Sequence[RejudgedReward]) -> list[RejudgedFigure]:
    """Return the mean shares of points and their rank correlation within steps, over all rollouts and by step.

    Intervals resample problems.
    """
    by_step: dict[int, list[_Shares]] = defaultdict(list)
    for reward in rewards:
        if reward.now is not None:
            by_step[reward.step].append((reward.problem, reward.recorded, reward.now))
    if not by_step:
        return []
    return [
        _measure("all", "all rollouts", list(by_step.values())),
        *(_measure("step", f"step {step}", [group]) for step, group in sorted(by_step.items())),
    ]


def _measure(by: str, group: str, steps: Sequence[Sequence[_Shares]]) -> RejudgedFigure:
    pairs = [pair for step in steps for pair in step]
    return RejudgedFigure(
        by=by,
        group=group,
        n=len(pairs),
        problems=len({problem for problem, _, _ in pairs}),
        recorded=_mean((problem, before) for problem, before, _ in pairs),
        now=_mean((problem, after) for problem, _, after in pairs),
        difference=_mean((problem, after - before) for problem, before, after in pairs),
        agreement=rank_correlation(steps, resamples=RESAMPLES),
    )


def _mean(values: Iterable[tuple[str, float]]) -> Metric:
    """Return the mean over all values of all problems."""
    by_problem: dict[str, list[float]] = defaultdict(list)
    for problem, value in values:
        by_problem[problem].append(value)
    sums, counts = list(map(sum, by_problem.values())), list(map(len, by_problem.values()))
    return Metric(sum(sums) / sum(counts), clustered_mean(sums, counts, RESAMPLES), sum(counts))
