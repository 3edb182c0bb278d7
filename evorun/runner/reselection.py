"""A run's candidates under every selector: the same pool, and only the rule of choice changes.

Most rules need no call. Those that ask a judge do so through a journal and within a budget, as all rejudgings.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from evorun.errors import ConfigError
from evorun.methods.base import Method
from evorun.methods.duels.pair_ratings import list_rated_pairs, rate_by_pairs
from evorun.methods.duels.stopping import StopSettings
from evorun.models.base import Sampling
from evorun.models.config import ServedModel
from evorun.ratings.bradley_terry import win_probability
from evorun.runner.pair_judge import JUDGE
from evorun.runner.recorded_stops import get_stop_settings, read_courses
from evorun.runner.rejudging import MostCalls, Rejudging
from evorun.runner.run_study import digest
from evorun.runner.selectors import ASKING, MIN_WEIGHT, Chosen, Pool, choose_by_asking, choose_freely
from evorun.runner.tournament import JUDGE_MAX_TOKENS
from evorun.runner.work import Effects
from evorun.runs.budget import Meter, Usage
from evorun.runs.candidates import Candidate, CandidateId
from evorun.runs.directory import RunDirectory
from evorun.runs.paths import display
from evorun.runs.reading import read_predictions, read_records
from evorun.runs.records import write_records
from evorun.runs.reselected import OWN, SELECTIONS, Selected, summarise
from evorun.runs.schema import CandidateRecord, ComparisonRecord
from evorun.runs.scores import primary_score
from evorun.runs.stopped import STOPS, Stopped, end_all
from evorun.runs.studies import RejudgedFigure
from evorun.tasks.capabilities import SupportsJudging, SupportsPairRatings

PER_CANDIDATE = 2
"""Comparisons of a selector that asks, for each candidate of the largest pool (V1-Infer: 1, 2 or 3)."""


class _Asked(NamedTuple):
    """A problem under a selector that asks."""

    problem: str
    selector: str
    meter: Meter


class Reselection(Rejudging):
    """Every selector on a run's recorded candidates."""

    kind = "choices"
    command = "reselect"

    def __init__(
        self,
        run: Path,
        config: Mapping[str, Any],
        console: Any,
        *,
        selectors: Sequence[str] = (),
        comparisons: int | None = None,
        stop_probability: Sequence[float] = (),
        **limits: Any,
    ) -> None:
        """selectors: those of `ASKING` that are to ask. comparisons: prompts that each of them may send per problem.

        stop_probability: thresholds at which the run's problems are ended. Raises ConfigError for an unknown selector,
        a task that has no prompt for it, a run without candidates, and one to which the thresholds do not apply.
        """
        super().__init__(run, config, console, **limits)
        needed = {name: SupportsPairRatings if name == "swiss" else SupportsJudging for name in ASKING}
        for name in selectors:
            if name not in needed:
                raise ConfigError(f"selectors: expected some of {', '.join(ASKING)}, got {name}")
            if not isinstance(self._loaded.task, needed[name]):
                raise ConfigError(f"selectors={name}: task={self._loaded.task.name} has no prompt for it; leave it out")
        self._selectors = list(dict.fromkeys(selectors))
        self._primary = primary_score(self._loaded.task.scores)
        self._problems = {problem.id: problem for problem in self._loaded.problems}
        self._scores: dict[tuple[str, CandidateId | None], float | None] = {}
        self._candidates = defaultdict[str, list[Candidate]](list)
        for record in read_records(run / "candidates.jsonl", CandidateRecord):
            if record.kind == "response" and record.answer is not None and record.problem in self._problems:
                self._candidates[record.problem].append(record.without_grades())
                self._scores[record.problem, record.id] = self._primary.value_in(record)
        if not self._candidates:
            raise ConfigError(f"{display(run)}: expected a run with candidates for its problems, it recorded none")
        self._stops = get_stop_settings(run, self._checked.method, stop_probability) if stop_probability else None
        self._thresholds = sorted(set(stop_probability))
        self._comparisons = comparisons or PER_CANDIDATE * max(map(len, self._candidates.values()))
        self._own_settings |= {"selectors": self._selectors, "comparisons": comparisons}
        self._own_settings |= {"stop_probability": self._thresholds} if self._thresholds else {}
        limit = self._checked.task.sampling.judge_max_tokens or JUDGE_MAX_TOKENS
        self._sampling = self._checked.method.judge_sampling or Sampling(temperature=0.7, max_tokens=limit)

    def _models(self) -> dict[str, ServedModel]:
        if not self._selectors:
            return {}
        return self._checked.panel or {JUDGE: self._get_served(JUDGE)}

    def _count_calls(self) -> MostCalls:
        asked = len(self._selectors) * len(self._candidates) * self._comparisons * len(self._models())
        return MostCalls(asked, self._sampling.max_tokens, {JUDGE})

    def _decides(self) -> dict[str, Any]:
        return {
            "pool": [[p, c.id, digest(c.text)] for p, members in self._candidates.items() for c in members],
            "selectors": [*self._selectors, self._comparisons if self._selectors else 0],
            "sampling": msgspec.to_builtins(self._sampling),
            "data": self._loaded.provenance.digest,
            **({"stop_probability": self._thresholds} if self._thresholds else {}),
        }

    async def _judge(self, directory: RunDirectory, effects: Effects) -> list[RejudgedFigure]:
        pools = self._make_pools()
        found = {problem: choose_freely(pool) for problem, pool in pools.items()}
        calls = self._comparisons * len(self._roles)

        async def ask(asked: _Asked) -> int | None:
            problem = self._problems[asked.problem]
            name = f"{asked.problem} {asked.selector}"
            ctx = self._make_context(problem, asked.meter, directory, effects, name=name)
            members = pools[asked.problem].candidates
            return await choose_by_asking(ctx, members, asked.selector, self._comparisons, self._sampling)

        items = [_Asked(problem, name, Meter(calls)) for name in self._selectors for problem in pools]
        asking = f", at most {calls * len(items):,} judgments" if items else ""
        self._announce(f"{sum(map(len, self._candidates.values())):,} candidates of {len(pools):,} problems{asking}")
        chosen = await self._ask_all(items, lambda item: item.problem, calls, JUDGE, ask, self._charge)
        spent = Counter[tuple[str, str]]()
        for item, place in zip(items, chosen, strict=True):
            if place is not None:
                found[item.problem][item.selector] = place
                spent[item.problem, item.selector] = item.meter.total.calls
        records = self._record(pools, found, spent)
        write_records(directory.path / SELECTIONS, records)
        if self._stops is not None:
            write_records(directory.path / STOPS, self._end_early(self._stops))
        return summarise([records], self._primary)

    def _end_early(self, settings: StopSettings) -> list[Stopped]:
        """Return the run's problems as recorded, then as each threshold ends them."""
        courses = read_courses(self._run, settings, self._loaded.task, self._problems, self._candidates)
        return [stop for limit in (None, *self._thresholds) for stop in end_all(courses, limit, self._primary)]

    def _charge(self, item: _Asked) -> None:
        for role, usage in item.meter.by_role.items():
            self._meter.by_role.setdefault(role, Usage()).add(usage)

    def _make_pools(self) -> dict[str, Pool]:
        """Return the pools by problem, with all rewards that the run recorded."""
        duels = defaultdict[str, list[ComparisonRecord]](list)
        for duel in read_records(self._run / "comparisons.jsonl", ComparisonRecord):
            duels[duel.problem].append(duel)
        members = [candidate for pool in self._candidates.values() for candidate in pool]
        rated = any(duel.ratings is not UNSET for held in duels.values() for duel in held)
        sure = any(candidate.confidence is not UNSET for candidate in members)
        pools, without_duel = {}, 0
        for problem, candidates in self._candidates.items():
            places = {candidate.id: place for place, candidate in enumerate(candidates)}
            held = [duel for duel in duels.get(problem, ()) if {duel.first, duel.second} <= places.keys()]
            without_duel += len(places.keys() - {end for duel in held for end in (duel.first, duel.second)})
            rewards: dict[str, Sequence[float]] = {}
            if duels:
                # Where pairs were rated, winners alone count here, and ratings as a selector of their own.
                method = self._checked.method
                rated_by = Method.rate_by_duels(method, candidates, held) if rated else None
                utilities = rated_by or method.rate_by_duels(candidates, held)
                rewards["duels"] = win_probability(utilities.mean.round(9), 0.0).tolist()
            if any(candidate.feedback is not None for candidate in members):
                rewards["public tests"] = [0.0 if c.feedback is None else c.feedback.score for c in candidates]
            if any(candidate.fitness is not None for candidate in members):
                rewards["fitness"] = [(candidate.fitness or 0.0) / 100 for candidate in candidates]
            if sure:
                rewards["confidence"] = [candidate.known_confidence for candidate in candidates]
            scores = [self._scores[problem, candidate.id] for candidate in candidates]
            task = self._loaded.task
            pools[problem] = Pool(
                candidates,
                None if task.free_text else [task.signature(self._problems[problem], c) for c in candidates],
                rewards,
                _rate(places, held) if rated else None,
                [-math.inf if score is None else self._primary.utility(score) for score in scores],
            )
        if duels:
            self._dueled = len(members), without_duel
        return pools

    def _record(
        self, pools: Mapping[str, Pool], found: Mapping[str, Mapping[str, Chosen]], spent: Mapping[tuple[str, str], int]
    ) -> list[Selected]:
        """Return the choices of all selectors by problem, the run's own first."""
        returned = {prediction.problem: prediction.candidate for prediction in read_predictions(self._run)}
        records = []
        for problem, pool in pools.items():
            scores = [self._scores[problem, candidate.id] for candidate in pool.candidates]
            places = {candidate.id: place for place, candidate in enumerate(pool.candidates)}
            own = places.get(returned.get(problem) or "")
            for selector, chosen in {OWN: own, **found[problem]}.items():
                records.append(
                    Selected(
                        problem=problem,
                        selector=selector,
                        candidate=pool.candidates[chosen].id if isinstance(chosen, int) else None,
                        score=_expect(chosen, scores),
                        calls=spent.get((problem, selector), 0),
                    )
                )
        return records


def _rate(places: Mapping[CandidateId, int], duels: Sequence[ComparisonRecord]) -> list[float]:
    rates: list[float] = rate_by_pairs(len(places), list_rated_pairs(duels, places), MIN_WEIGHT).tolist()
    return rates


def _expect(chosen: Chosen, scores: Sequence[float | None]) -> float | None:
    """Return the score of a choice, or its expectation where chance chooses; unknown scores are left out."""
    if chosen is None or isinstance(chosen, int):
        return None if chosen is None else scores[chosen]
    known = [(chance, score) for chance, score in zip(chosen, scores, strict=True) if score is not None]
    total = sum(chance for chance, _ in known)
    return sum(chance * score for chance, score in known) / total if total else None
