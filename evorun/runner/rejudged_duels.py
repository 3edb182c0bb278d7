"""A run's duels, judged again: agreement with the recorded verdicts, ratings by the new ones, and what they choose."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET, to_builtins
from msgspec.structs import asdict

from evorun.errors import ConfigError, DataError
from evorun.methods.duels.duels import judge_pairs
from evorun.methods.duels.pair_ratings import rate_pairs
from evorun.models.base import Sampling
from evorun.models.config import ServedModel
from evorun.runner.pair_judge import JUDGE
from evorun.runner.rejudging import MostCalls, Rejudging
from evorun.runner.run_study import digest
from evorun.runner.tournament import JUDGE_MAX_TOKENS
from evorun.runner.work import Effects
from evorun.runs.agreement import measure_agreement, pair_duels
from evorun.runs.budget import Meter, Usage
from evorun.runs.candidates import Candidate, CandidateId
from evorun.runs.directory import RunDirectory
from evorun.runs.paths import display
from evorun.runs.reading import read_predictions, read_records
from evorun.runs.records import write_records
from evorun.runs.results import mean_score
from evorun.runs.schema import CandidateRecord, ComparisonRecord, Metric
from evorun.runs.scores import primary_score
from evorun.runs.statistics import Proportion, mean_interval
from evorun.runs.studies import RefittedRating, RejudgedChoice, RejudgedFigure


class _Duel(NamedTuple):
    """A recorded duel."""

    record: ComparisonRecord
    place: int
    """Its number among the duels of its problem and step."""
    meter: Meter
    """Counts its new judgments."""


class RejudgedDuels(Rejudging):
    """The recorded duels before another judge.

    A duel has the journal key of the recorded one, hence the same seed: the recorded judge would answer the same.
    """

    kind = "duels"

    def __init__(self, run: Path, config: Mapping[str, Any], console: Any, **limits: Any) -> None:
        """Raise ConfigError for a run without duels, and DataError where its problems have changed."""
        super().__init__(run, config, console, **limits)
        self._primary = primary_score(self._loaded.task.scores)
        self._candidates = defaultdict[str, dict[CandidateId, Candidate]](dict)
        self._scores: dict[tuple[str, CandidateId], float | None] = {}
        """The primary score by problem and candidate, as recorded."""
        records = list(read_records(run / "comparisons.jsonl", ComparisonRecord))
        if not records:
            raise ConfigError(f"{display(run)}: expected a run with duels, method={config['method']['name']} held none")
        places = Counter[tuple[str, int]]()
        self._duels = []
        for record in records:
            self._duels.append(_Duel(record, places[record.problem, record.step], Meter()))
            places[record.problem, record.step] += 1
        for found in read_records(run / "candidates.jsonl", CandidateRecord):
            self._candidates[found.problem][found.id] = found.without_grades()
            self._scores[found.problem, found.id] = self._primary.value_in(found)
        self._problems = {problem.id: problem for problem in self._loaded.problems}
        self._require_problems((record.problem for record in records), self._problems)
        for record in records:
            for name in (record.first, record.second):
                if name not in self._candidates[record.problem]:
                    raise DataError(f"{display(run)}: candidates.jsonl lacks '{name}' of a duel; restore the records")
        limit = self._checked.task.sampling.judge_max_tokens or JUDGE_MAX_TOKENS
        self._sampling = self._checked.method.judge_sampling or Sampling(temperature=0.0, max_tokens=limit)

    def _models(self) -> dict[str, ServedModel]:
        return self._checked.panel or {JUDGE: self._get_served(JUDGE)}

    def _count_calls(self) -> MostCalls:
        return MostCalls(sum(len(duel.record.verdicts) for duel in self._duels), self._sampling.max_tokens, {JUDGE})

    def _decides(self) -> dict[str, Any]:
        shown = {
            (problem, name): self._candidates[problem][name].text
            for problem, first, second in ((d.record.problem, d.record.first, d.record.second) for d in self._duels)
            for name in (first, second)
        }
        return {
            "duels": [[d.problem, d.step, d.first, d.second, len(d.verdicts)] for d, _, _ in self._duels],
            "texts": [digest(text) for text in shown.values()],
            "sampling": to_builtins(self._sampling),
            "data": self._loaded.provenance.digest,
        }

    async def _judge(self, directory: RunDirectory, effects: Effects) -> list[RejudgedFigure]:
        # A run that rates pairs has ratings from the new judge, too.
        rated = any(duel.record.ratings is not UNSET for duel in self._duels)

        async def ask(duel: _Duel) -> ComparisonRecord:
            record = duel.record
            ctx = self._make_context(self._problems[record.problem], duel.meter, directory, effects)
            candidates = self._candidates[record.problem]
            [again] = await (rate_pairs if rated else judge_pairs)(
                ctx,
                [candidates[record.first], candidates[record.second]],
                [(0, 1)],
                orders=len(record.verdicts),
                step=record.step,
                sampling=self._sampling,
                judged_before=duel.place,
            )
            return ComparisonRecord(**asdict(again), problem=record.problem, step=record.step)

        judgments = [len(duel.record.verdicts) for duel in self._duels]
        self._announce(f"{len(judgments):,} duels, at most {sum(judgments) * len(self._roles):,} judgments")
        found = await self._ask_all(
            self._duels,
            lambda duel: duel.record.problem,
            max(judgments) * len(self._roles),
            next(iter(self._roles)),
            ask,
            self._charge,
        )
        return self._write_records(directory.path, found)

    def _charge(self, duel: _Duel) -> None:
        for role, usage in duel.meter.by_role.items():
            self._meter.by_role.setdefault(role, Usage()).add(usage)

    def _write_records(self, folder: Path, found: Sequence[ComparisonRecord | None]) -> list[RejudgedFigure]:
        recorded = [duel.record for duel in self._duels]
        judged = [after for after in found if after is not None]
        pairs = zip(recorded, found, strict=True)
        self._all_equal = bool(judged) and all(
            after is None or after.verdicts == before.verdicts for before, after in pairs
        )
        lengths = {
            (problem, name): len(candidate.text)
            for problem, candidates in self._candidates.items()
            for name, candidate in candidates.items()
        }
        left_out = {before.problem for before, after in zip(recorded, found, strict=True) if after is None}
        complete = {duel.problem for duel in recorded} - left_out
        ratings = {problem: self._refit(problem, judged) for problem in self._problems if problem in complete}
        before = {problem: self._refit(problem, recorded) for problem in ratings}
        predictions = {prediction.problem: prediction for prediction in read_predictions(self._run)}
        choices = [
            self._choose(problem, predictions[problem].candidate, rated)
            for problem, rated in ratings.items()
            if problem in predictions
        ]
        refitted = [
            self._choose(choice.problem, _find_best(before[choice.problem]), ratings[choice.problem])
            for choice in choices
        ]
        write_records(folder / "comparisons.jsonl", judged)
        write_records(folder / "ratings.jsonl", [rating for rated in ratings.values() for rating in rated])
        write_records(folder / "choices.jsonl", choices)
        utilities = {
            key: None if value is None else self._primary.utility(value) for key, value in self._scores.items()
        }
        duels = pair_duels(recorded, found, lengths, utilities, self._count_shares_right())
        figures = measure_agreement(duels) if judged else []
        if choices:
            name = self._primary.name
            figures += [
                self._measure_choices(f"{name}: the run's choices", choices),
                self._measure_choices(f"{name}: both by refitted ratings", refitted),
            ]
        return figures

    def _count_shares_right(self) -> dict[str, float]:
        """Return the share of right candidates by problem; none where the task has no right and wrong."""
        if not self._primary.is_correctness:
            return {}
        right: dict[str, list[float]] = defaultdict(list)
        for (problem, _), value in self._scores.items():
            right[problem].append(value or 0.0)
        return {problem: sum(values) / len(values) for problem, values in right.items()}

    def _refit(self, problem: str, duels: Sequence[ComparisonRecord]) -> list[RefittedRating]:
        """Return the ratings of a problem's candidates by these verdicts, as the method rates them."""
        fought = [duel for duel in duels if duel.problem == problem]
        names = {name for duel in fought for name in (duel.first, duel.second)}
        members = [c for c in self._candidates[problem].values() if c.mean is not None or c.id in names]
        ratings = self._checked.method.rate_by_duels(members, fought)
        return [
            RefittedRating(problem=problem, candidate=member.id, mean=round(float(mean), 9), sd=round(float(sd), 9))
            for member, mean, sd in zip(members, ratings.mean, ratings.sd, strict=True)
        ]

    def _choose(self, problem: str, recorded: CandidateId | None, rated: Sequence[RefittedRating]) -> RejudgedChoice:
        now = _find_best(rated)
        return RejudgedChoice(
            problem=problem,
            recorded=recorded,
            now=now,
            recorded_score=None if recorded is None else self._scores.get((problem, recorded)),
            score_now=None if now is None else self._scores.get((problem, now)),
        )

    def _measure_choices(self, group: str, choices: Sequence[RejudgedChoice]) -> RejudgedFigure:
        """Compare the primary scores of two choices for each problem."""
        pairs = [
            (choice.recorded_score, choice.score_now)
            for choice in choices
            if choice.recorded_score is not None and choice.score_now is not None
        ]
        gains = [now - before for before, now in pairs]
        same = sum(choice.recorded == choice.now for choice in choices)
        return RejudgedFigure(
            by="score",
            group=group,
            n=len(choices),
            problems=len(choices),
            recorded=mean_score(self._primary, (before for before, _ in pairs)),
            now=mean_score(self._primary, (now for _, now in pairs)),
            difference=Metric(sum(gains) / len(gains) if gains else None, mean_interval(gains), len(gains)),
            agreement=Proportion(same, len(choices)).metric(),
            rate=self._primary.rate,
        )


def _find_best(rated: Sequence[RefittedRating]) -> CandidateId | None:
    """Return the candidate with the highest mean, the earliest of equals."""
    return max(rated, key=lambda rating: rating.mean).candidate if rated else None
