"""A run's responses, graded again: by another grader, with corrected answers, or by another gold judge."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import evorun
from evorun.errors import DataError
from evorun.models.base import Reply, Request
from evorun.models.config import ServedModel
from evorun.runner.gold import MAX_TOKENS, GraderTools
from evorun.runner.recorder import NO_RESPONSE
from evorun.runner.registry import describe_plugins, name_grading_parts
from evorun.runner.rejudging import MostCalls, Rejudging
from evorun.runner.run_study import digest
from evorun.runner.work import Effects
from evorun.runs.budget import Meter
from evorun.runs.candidates import CandidateId
from evorun.runs.directory import PROBLEMS, RunDirectory
from evorun.runs.effects import JournaledModel
from evorun.runs.paths import display
from evorun.runs.reading import read_predictions, read_records
from evorun.runs.records import write_records
from evorun.runs.results import mean_score, recorded_scores
from evorun.runs.schema import CandidateRecord, Metric, ProblemRecord, StepRecord
from evorun.runs.scores import Graded, Score
from evorun.runs.spending import GOLD
from evorun.runs.statistics import Proportion, mean_interval, rank_correlation
from evorun.runs.strata import sort_strata
from evorun.runs.studies import RejudgedFigure, RejudgedGrade
from evorun.runs.terminal import Terminal
from evorun.tasks.base import Grade
from evorun.tasks.opinions import MAX_ATTEMPTS

Key = tuple[str, CandidateId | None]
"""Problem and candidate."""


class RejudgedGrades(Rejudging):
    """The responses that a run has graded, before another grader; the run's final ones come first."""

    kind = "grades"

    def __init__(self, run: Path, config: Mapping[str, Any], console: Terminal, **limits: Any) -> None:
        """Raise DataError where the task no longer has the run's problems, or has others under their names."""
        super().__init__(run, config, console, **limits)
        self._plugins = describe_plugins(**name_grading_parts(self._checked.task))
        self._problems = {problem.id: problem for problem in self._loaded.problems}
        for record in read_records(run / PROBLEMS, ProblemRecord):
            problem = self._problems.get(record.problem)
            if problem is None or msgspec.json.decode(msgspec.json.encode(problem.data)) != record.data:
                how = "has another one under that name" if problem else "lacks it"
                raise DataError(
                    f"{display(run)}: expected problem '{record.problem}' as the run saw it, the task now {how}: "
                    "change only how it grades"
                )
        self._graded: dict[Key, Graded] = {}
        """As recorded."""
        self._texts: dict[Key, str | None] = {}
        last = {record.problem: record.best for record in read_records(run / "steps.jsonl", StepRecord)}
        for prediction in read_predictions(run):
            best = last.get(prediction.problem)
            key = prediction.problem, prediction.candidate
            self._graded[key], self._texts[key] = prediction, None if best is None else best.text
        self._finals = list(self._graded)
        for candidate in read_records(run / "candidates.jsonl", CandidateRecord):
            if candidate.kind == "response" and candidate.problem in self._problems:
                key = candidate.problem, candidate.id
                self._graded.setdefault(key, candidate)
                self._texts.setdefault(key, candidate.text)

    def _models(self) -> dict[str, ServedModel]:
        return {GOLD: self._get_served(GOLD)} if self._loaded.task.graded_by_opinion else {}

    def _count_calls(self) -> MostCalls:
        calls = MAX_ATTEMPTS * len(self._texts) if self._models() else 0
        return MostCalls(calls, self._checked.task.sampling.judge_max_tokens or MAX_TOKENS, {GOLD})

    def _decides(self) -> dict[str, Any]:
        config = {key: value for key, value in self._config["task"].items() if key != "sampling"}
        return {
            "candidates": list(self._texts),
            "texts": [digest(text) for text in self._texts.values()],
            "task": config,
            "data": self._loaded.provenance.digest,
            "code": {kind: plugin.digest for kind, plugin in self._plugins.items()} or evorun.__version__,
        }

    async def _judge(self, directory: RunDirectory, effects: Effects) -> list[RejudgedFigure]:
        gold = _Metered(effects.models[GOLD], self._meter) if GOLD in effects.models else _NoModel()
        tools = GraderTools(effects.tests, gold, self._checked.seed, self._checked.task.sampling.judge_max_tokens)
        task = self._loaded.task

        async def ask(key: Key) -> Grade:
            problem, text = self._problems[key[0]], self._texts[key]
            response = NO_RESPONSE if text is None else task.parse(problem, text)
            return await self._loaded.grade(problem, response, tools)

        calls = MAX_ATTEMPTS if GOLD in effects.models else 0
        keys = list(self._texts)
        opinions = f", at most {calls * len(keys):,} opinions" if calls else ""
        self._announce(f"{len(keys):,} responses{opinions}")
        found = await self._ask_all(keys, lambda key: key[0], calls, GOLD, ask, lambda key: None)
        grades = {key: grade for key, grade in zip(keys, found, strict=True) if grade is not None}
        finals_of_run = set(self._finals)
        records = [
            RejudgedGrade(
                problem=problem,
                candidate=candidate,
                final=(problem, candidate) in finals_of_run,
                correct=grade.correct,
                scores=dict(grade.scores),
                detail=grade.detail,
            )
            for (problem, candidate), grade in grades.items()
        ]
        write_records(directory.path / "grades.jsonl", records)
        finals = [(self._graded[key], grades[key]) for key in self._finals if key in grades]
        everything = [(self._graded[key], grade) for key, grade in grades.items()]
        self._all_equal = bool(grades) and all(
            before.correct == now.correct and dict(before.scores) == dict(now.scores) for before, now in everything
        )
        figures = [
            self._measure("score", score.name, score, finals, len(finals)) for score in self._list_scores(finals)
        ]
        strata = (problem.stratum for problem in self._loaded.problems)
        for stratum in sort_strata(strata, self._loaded.task.strata):
            members = [
                (self._graded[key], grades[key])
                for key in self._finals
                if key in grades and self._problems[key[0]].stratum == stratum
            ]
            if members and len(members) < len(finals):
                figures.append(
                    self._measure("stratum", f"{self._primary.name}: {stratum}", self._primary, members, len(members))
                )
        if len(everything) > len(finals):
            problems = len({problem for problem, _ in grades})
            group = f"{self._primary.name}: all candidates"
            figures.append(self._measure("all", group, self._primary, everything, problems))
        return figures

    @property
    def _primary(self) -> Score:
        return self._loaded.task.scores[0]

    def _list_scores(self, pairs: Sequence[tuple[Graded, Graded]]) -> list[Score]:
        """Return the scores of the grader, and those that only the run's grader gave."""
        given = [*recorded_scores([now for _, now in pairs], self._loaded.task.scores)]
        names = {score.name for score in given}
        before = recorded_scores([recorded for recorded, _ in pairs], self._manifest.scores)
        return given + [score for score in before if score.name not in names]

    def _measure(
        self, by: str, group: str, score: Score, pairs: Sequence[tuple[Graded, Graded]], problems: int
    ) -> RejudgedFigure:
        both = [
            (before, after)
            for recorded, now in pairs
            if (before := score.value_in(recorded)) is not None and (after := score.value_in(now)) is not None
        ]
        gains = [after - before for before, after in both]
        if score.rate or not both:
            agreement = Proportion(sum(before == after for before, after in both), len(both)).metric()
        else:
            agreement = rank_correlation([[(str(n), *values) for n, values in enumerate(both)]])
        return RejudgedFigure(
            by=by,
            group=group,
            n=len(pairs),
            problems=problems,
            recorded=mean_score(score, (score.value_in(recorded) for recorded, _ in pairs)),
            now=mean_score(score, (score.value_in(now) for _, now in pairs)),
            difference=Metric(sum(gains) / len(gains), mean_interval(gains), len(gains)) if gains else None,
            agreement=agreement,
            rate=score.rate,
        )


class _Metered:
    """The gold judge, whose new opinions a meter counts."""

    def __init__(self, model: JournaledModel, meter: Meter) -> None:
        self._model, self._meter, self._asked = model, meter, set[str]()

    async def complete(self, key: str, request: Request, *, once: bool) -> Reply:
        reply = await self._model.complete(key, request, once=once)
        if key not in self._asked:
            self._asked.add(key)
            self._meter.charge(GOLD, reply)
        return reply


class _NoModel:
    """Stands for the gold judge where the task has right answers."""

    async def complete(self, key: str, request: Request, *, once: bool) -> Reply:
        raise AssertionError("only a task graded by opinion asks the gold judge")
