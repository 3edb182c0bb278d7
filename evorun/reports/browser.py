"""The data behind the page's browser of candidates: a choice of problems, compressed, their texts cut to a size."""

import base64
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import RunDirectoryError
from evorun.runs.candidates import SHARED, CandidateId
from evorun.runs.directory import PROBLEMS, RATINGS
from evorun.runs.reading import read_records
from evorun.runs.schema import (
    CandidateRecord,
    ComparisonRecord,
    PredictionRecord,
    ProblemRecord,
    RatingRecord,
    StepRecord,
)
from evorun.runs.scores import Score

MAX_PROBLEMS = 12
"""Problems in a report unless the caller names others."""
MAX_BYTES = 10_000_000
"""Size of the browser's data in a report, compressed, shared equally by its problems."""
TEXT_LIMITS = (4000, 2000, 1000, 500, 250, 100, 0)
"""Longest candidate text kept, in characters: the first limit that fits a problem's share. Reasons get a quarter."""


@dataclass
class ProblemData:
    """Everything that the page shows of one problem."""

    id: str
    stratum: str
    correct: bool | None
    value: float | None
    """Of the score that measures candidates; None where it is not known."""
    answer: str | None
    chosen: CandidateId | None
    """The candidate that the method returned."""
    stop: str | None
    steps: list[StepRecord] = field(default_factory=list)
    candidates: list[CandidateRecord] = field(default_factory=list)
    duels: list[ComparisonRecord] = field(default_factory=list)
    ratings: list[RatingRecord] = field(default_factory=list)
    """In the order of their steps."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The fields that the prompts showed; empty for a run that did not record them."""


@dataclass(frozen=True)
class BrowserProblem:
    """One problem as the page carries it."""

    id: str
    stratum: str
    correct: bool | None
    value: float | None
    candidates: int
    duels: int
    text_limit: int
    """Characters after which candidate texts were cut."""
    json: bytes
    """The data."""
    packed: str
    """The same as the page carries it: compressed by zlib, in base64, which is safe inside a script element."""


def load_browser(
    run_dir: Path,
    predictions: Sequence[PredictionRecord],
    steps: Sequence[StepRecord],
    candidates_by_problem: dict[str, int],
    measure: Score,
    problems: Sequence[str] | None = None,
) -> list[BrowserProblem]:
    """Load the named problems, or up to `MAX_PROBLEMS` spread over strata and over right and wrong (high and low).

    `measure` says how good a response is. The candidates that serve all problems come first, as those of a problem `*`.
    Raises RunDirectoryError when a named problem has no candidates in this run.
    """
    # ended problems first, then those under way as their last step has them; of the latter, later steps overwrite
    known = {
        p.problem: ProblemData(p.problem, p.stratum, p.correct, measure.value_in(p), p.answer, p.candidate, p.stop)
        for p in predictions
    }
    ended = set(known)
    for s in steps:
        if s.problem not in ended:
            answer, best = (s.best.answer, s.best.id) if s.best else (None, None)
            known[s.problem] = ProblemData(s.problem, s.stratum, s.correct, measure.value_in(s), answer, best, None)
    outlines = {id: problem for id, problem in known.items() if candidates_by_problem.get(id)}
    for problem in candidates_by_problem:
        outlines.setdefault(problem, ProblemData(problem, "", None, None, None, None, None))
    chosen = _spread(outlines.values()) if problems is None else _named(outlines, problems, run_dir)
    shared = ProblemData(SHARED, "", None, None, None, None, None)
    _fill(run_dir, {p.id: p for p in (shared, *chosen)}, steps)
    if shared.candidates:
        chosen = [shared, *chosen]
    share = MAX_BYTES // max(len(chosen), 1)
    found = []
    for one in chosen:
        for limit in TEXT_LIMITS:
            json = msgspec.json.encode(_page_data(one, limit, measure))
            packed = base64.b64encode(zlib.compress(json, 9)).decode("ascii")
            if len(packed) <= share:
                break
        sizes = len(one.candidates), len(one.duels)
        found.append(BrowserProblem(one.id, one.stratum, one.correct, one.value, *sizes, limit, json, packed))
    return found


def script_json(value: Any) -> str:
    """Encode a value as JSON that can neither end nor escape from the script element around it."""
    # HTML ends a script at its first closing tag, quoted or not; the escapes mean the same to JSON
    text = msgspec.json.encode(value).decode("utf-8")
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _spread(outlines: Iterable[ProblemData]) -> list[ProblemData]:
    """Choose problems in turn from the groups of equal stratum and outcome."""
    outlines = list(outlines)
    # a score has no right and wrong: above and below the middle of its range stand in for them
    values = sorted(problem.value for problem in outlines if problem.value is not None)
    middle = (values[0] + values[-1]) / 2 if values else 0.0
    groups: dict[tuple[str, bool | None], list[ProblemData]] = defaultdict(list)
    for problem in outlines:
        outcome = problem.correct if problem.value is None else problem.value > middle
        groups[problem.stratum, outcome].append(problem)
    in_turn = chain.from_iterable(zip_longest(*groups.values()))
    chosen = [problem for problem in in_turn if problem is not None][:MAX_PROBLEMS]
    return sorted(chosen, key=lambda p: p.stratum)


def _named(outlines: dict[str, ProblemData], problems: Sequence[str], run_dir: Path) -> list[ProblemData]:
    for problem in problems:
        if problem not in outlines:
            known = ", ".join(list(outlines)[:5]) or "none"
            raise RunDirectoryError(
                f"{run_dir}: expected the id of a problem with candidates, got '{problem}'; there are: {known}, ..."
            )
    return [outlines[problem] for problem in dict.fromkeys(problems)]


def _fill(run_dir: Path, chosen: dict[str, ProblemData], steps: Sequence[StepRecord]) -> None:
    for step in steps:
        if step.problem in chosen:
            chosen[step.problem].steps.append(step)
    for problem in read_records(run_dir / PROBLEMS, ProblemRecord):
        if problem.problem in chosen:
            chosen[problem.problem].data = problem.data
    for candidate in read_records(run_dir / "candidates.jsonl", CandidateRecord):
        if candidate.problem in chosen:
            chosen[candidate.problem].candidates.append(candidate)
    for duel in read_records(run_dir / "comparisons.jsonl", ComparisonRecord):
        if duel.problem in chosen:
            chosen[duel.problem].duels.append(duel)
    for rating in read_records(run_dir / f"{RATINGS}.jsonl", RatingRecord):
        if rating.problem in chosen:
            chosen[rating.problem].ratings.append(rating)


def _page_data(problem: ProblemData, limit: int, measure: Score) -> dict[str, Any]:
    """Return the problem for the page's script; candidates are referred to by their position in the list."""
    position = {candidate.id: index for index, candidate in enumerate(problem.candidates)}
    # of a run that is going on, a duel can be on disk before its candidates
    duels = [d for d in problem.duels if d.first in position and d.second in position]
    last = {rating.candidate: rating for rating in problem.ratings}
    candidates = [_candidate(c, position, limit, last.get(c.id, c)) for c in problem.candidates]
    return {
        "id": problem.id,
        "stratum": problem.stratum,
        "correct": problem.correct,
        "value": problem.value,
        "answer": _cut(problem.answer, limit),
        "chosen": position.get(problem.chosen) if problem.chosen is not None else None,
        "stop": problem.stop,
        "data": {name: _cut_within(value, limit) for name, value in problem.data.items()},
        "steps": [
            {
                "step": s.step,
                "best": position.get(s.best.id) if s.best else None,
                "correct": s.correct,
                "pool": s.pool,
                "value": measure.value_in(s),
            }
            for s in problem.steps
        ],
        "candidates": [
            {**shown, "value": measure.value_in(c)} for c, shown in zip(problem.candidates, candidates, strict=True)
        ],
        # arrays: names of fields, repeated for each of thousands of duels, would take much of the share
        "duels": [
            [
                d.step,
                position[d.first],
                position[d.second],
                d.verdicts,
                d.outcome,
                [_cut(reason, limit // 4) for reason in d.reasons],
            ]
            for d in duels
        ],
        "ratings": [
            [r.step, position[r.candidate], _rounded(r.mean), _rounded(r.sd)]
            for r in problem.ratings
            if r.candidate in position
        ],
    }


def _candidate(
    candidate: CandidateRecord, position: dict[CandidateId, int], limit: int, rated: CandidateRecord | RatingRecord
) -> dict[str, Any]:
    """Return a candidate with the latest belief in it, which a shared one has in its ratings."""
    feedback = candidate.feedback
    return {
        "id": candidate.id,
        "kind": candidate.kind,
        "generation": candidate.generation,
        "parents": [position[p] for p in candidate.parents if p in position],
        "operator": candidate.operator,
        "text": _cut(candidate.text, limit),
        "reasoning": _cut(candidate.reasoning, limit),
        # answers and errors stay readable where texts are cut to nothing
        "answer": _cut(candidate.answer, max(limit, 100)),
        "error": _cut(candidate.error, max(limit, 100)),
        "memory": _cut(candidate.memory, limit),
        "feedback": feedback if feedback is None else {"text": _cut(feedback.text, limit), "score": feedback.score},
        "mean": _rounded(rated.mean),
        "sd": _rounded(rated.sd),
        "survivor": rated.survivor,
        "correct": candidate.correct,
        "attempts": candidate.attempts,
        "scores": candidate.scores,
        "fitness": candidate.fitness,
        "errors": _cut(candidate.errors, limit),
    }


def _rounded(value: float | None) -> float | None:
    """Round to more digits than the page shows: random ones are what compresses least."""
    return None if value is None else round(value, 4)


def _cut_within(value: Any, limit: int) -> Any:
    """Cut every text within a value of JSON."""
    if isinstance(value, dict):
        return {key: _cut_within(item, limit) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut_within(item, limit) for item in value]
    return _cut(value, limit) if isinstance(value, str) else value


def _cut(text: str | None, limit: int) -> str | None:
    if text is None or len(text) <= limit:
        return text
    return f"{text[:limit]} … [{len(text) - limit:,} characters cut]"
