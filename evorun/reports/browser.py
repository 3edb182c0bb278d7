"""The data of the page's browser of candidates: some problems, compressed, with their texts cut to size."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import JournalError, RunDirectoryError
from evorun.models.base import Message
from evorun.reports.packing import Packed, cut, cut_within, pack_within, rounded
from evorun.runs.call_keys import parse_call_key
from evorun.runs.candidates import CandidateId
from evorun.runs.directory import PROBLEMS
from evorun.runs.journal_file import JOURNAL
from evorun.runs.journal_reader import decode_result, open_journal
from evorun.runs.reading import read_records_by_problem
from evorun.runs.schema import CandidateRecord, ComparisonRecord, PredictionRecord, ProblemRecord, StepRecord
from evorun.runs.scores import Score

MAX_PROBLEMS = 12
"""Maximum problems in a report unless the caller names some."""
MAX_BYTES = 10_000_000
"""Maximum size of the browser's data in a report, compressed; its problems share it equally."""
TEXT_LIMITS = (4000, 2000, 1000, 500, 250, 100, 0)
"""Maximum characters of a candidate's text: the first limit that fits a problem's share. Reasons get a quarter."""


@dataclass
class ProblemData:
    """Everything that the page shows of one problem."""

    id: str
    stratum: str
    correct: bool | None
    value: float | None
    """Of the score that measures candidates; None if it is unknown."""
    answer: str | None
    chosen: CandidateId | None
    """The candidate that the method returned."""
    stop: str | None
    steps: Sequence[StepRecord] = ()
    candidates: Sequence[CandidateRecord] = ()
    duels: Sequence[ComparisonRecord] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    """The fields that the prompts showed; empty if the run did not record them."""
    transcripts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The turns before a candidate's last one and the tools' answers, by the key of the last one's call."""


@dataclass(frozen=True)
class BrowserProblem:
    """One problem as the page carries it."""

    id: str
    stratum: str
    correct: bool | None
    value: float | None
    candidates: int
    duels: int
    packed: Packed


def load_browser(
    run_dir: Path,
    predictions: Sequence[PredictionRecord],
    steps: Sequence[StepRecord],
    candidates_by_problem: dict[str, int],
    measure: Score,
    problems: Sequence[str] | None = None,
) -> list[BrowserProblem]:
    """Load the named problems, or up to `MAX_PROBLEMS` spread over strata and over right and wrong (or high and low).

    `measure` says how good a response is. Raises RunDirectoryError when a named problem has no candidates in this run.
    """
    # ended problems first, then unfinished ones as of their last step
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
    chosen = _spread(outlines.values()) if problems is None else _select_named(outlines, problems, run_dir)
    ids = [problem.id for problem in chosen]
    files = zip(
        read_records_by_problem(run_dir / PROBLEMS, ProblemRecord, ids),
        read_records_by_problem(run_dir / "candidates.jsonl", CandidateRecord, ids),
        read_records_by_problem(run_dir / "comparisons.jsonl", ComparisonRecord, ids),
        strict=True,
    )
    share = MAX_BYTES // max(len(chosen), 1)
    has_tools = any(spent.tool_calls for step in steps for spent in step.cost.values())
    transcripts = _read_transcripts(run_dir, ids) if has_tools else {}
    found = []
    # one after the other: the texts of a dozen problems of a long run are hundreds of megabytes
    for outline, (shown, candidates, duels) in zip(chosen, files, strict=True):
        own = [step for step in steps if step.problem == outline.id]
        data = shown[-1].data if shown else {}
        whole = replace(outline, steps=own, candidates=candidates, duels=duels, data=data, transcripts=transcripts)
        packed = pack_within(share, TEXT_LIMITS, partial(_make_page_data, whole, measure))
        sizes = len(candidates), len(duels)
        found.append(BrowserProblem(whole.id, whole.stratum, whole.correct, whole.value, *sizes, packed))
    return found


def _read_transcripts(run_dir: Path, problems: Collection[str]) -> dict[str, list[str]]:
    """Return what stood before each call of these problems that followed a tool's answer, a text per turn.

    Empty where the journal is gone or cannot be read: the report shows the last turns all the same.
    """
    found = {}
    with suppress(JournalError, RunDirectoryError), closing(open_journal(run_dir / JOURNAL)) as reader:
        for number, (key, _) in enumerate(reader.index()):
            call = parse_call_key(key)
            if call is None or call.problem not in problems or reader.spent(number)[0] is None:
                continue
            messages = decode_result(reader.effect(number).request, _Asked, key, reader.path).messages
            roles = [message["role"] for message in messages]
            if "tool" in roles:
                turns = messages[max(roles.index("tool") - 1, 0) :]
                found[key] = [f"{message['role']}: {message['content']}" for message in turns]
    return found


class _Asked(msgspec.Struct):
    messages: list[Message]


def _spread(outlines: Iterable[ProblemData]) -> list[ProblemData]:
    """Choose problems in turn from the groups of equal stratum and outcome."""
    outlines = list(outlines)
    # without right and wrong, values above and below the middle of the range stand in for them
    values = sorted(problem.value for problem in outlines if problem.value is not None)
    middle = (values[0] + values[-1]) / 2 if values else 0.0
    groups: dict[tuple[str, bool | None], list[ProblemData]] = defaultdict(list)
    for problem in outlines:
        outcome = problem.correct if problem.value is None else problem.value > middle
        groups[problem.stratum, outcome].append(problem)
    in_turn = chain.from_iterable(zip_longest(*groups.values()))
    chosen = [problem for problem in in_turn if problem is not None][:MAX_PROBLEMS]
    return sorted(chosen, key=lambda p: p.stratum)


def _select_named(outlines: dict[str, ProblemData], problems: Sequence[str], run_dir: Path) -> list[ProblemData]:
    for problem in problems:
        if problem not in outlines:
            known = ", ".join(list(outlines)[:5]) or "none"
            raise RunDirectoryError(
                f"{run_dir}: expected the id of a problem with candidates, got '{problem}'; there are: {known}, ..."
            )
    return [outlines[problem] for problem in dict.fromkeys(problems)]


def _make_page_data(problem: ProblemData, measure: Score, limit: int) -> dict[str, Any]:
    """Return the problem for the page's script, which refers to candidates by their position in the list."""
    position = {candidate.id: index for index, candidate in enumerate(problem.candidates)}
    # in an unfinished run, a duel can be on disk before its candidates
    duels = [d for d in problem.duels if d.first in position and d.second in position]
    candidates = [_list_fields(c, position, limit) for c in problem.candidates]
    return {
        "id": problem.id,
        "stratum": problem.stratum,
        "correct": problem.correct,
        "value": problem.value,
        "answer": cut(problem.answer, limit),
        "chosen": position.get(problem.chosen) if problem.chosen is not None else None,
        "stop": problem.stop,
        "data": {name: cut_within(value, limit) for name, value in problem.data.items()},
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
            {
                **shown,
                "note": cut(c.note or "", limit),
                "value": measure.value_in(c),
                **_cut_transcript(problem, c, limit),
            }
            for c, shown in zip(problem.candidates, candidates, strict=True)
        ],
        # arrays: field names would take much of the share if they were repeated for thousands of duels
        "duels": [
            [
                d.step,
                position[d.first],
                position[d.second],
                d.verdicts,
                d.outcome,
                [cut(r, limit // 4) for r in d.reasons],
            ]
            for d in duels
        ],
    }


def _cut_transcript(problem: ProblemData, candidate: CandidateRecord, limit: int) -> dict[str, str]:
    turns = problem.transcripts.get(candidate.call or "")
    return {"transcript": "\n\n".join(cut(turn, limit) or "" for turn in turns)} if turns else {}


def _list_fields(candidate: CandidateRecord, position: dict[CandidateId, int], limit: int) -> dict[str, Any]:
    feedback = candidate.feedback
    same = ("id", "generation", "operator", "survivor", "correct", "attempts", "scores", "fitness")
    # answers and errors stay readable even if texts are cut to nothing
    limits = {"text": limit, "reasoning": limit, "answer": max(limit, 100), "error": max(limit, 100), "memory": limit}
    return {
        **{name: getattr(candidate, name) for name in same},
        **{name: cut(getattr(candidate, name), own_limit) for name, own_limit in limits.items()},
        "parents": [position[parent] for parent in candidate.parents if parent in position],
        "feedback": feedback if feedback is None else {"text": cut(feedback.text, limit), "score": feedback.score},
        "mean": rounded(candidate.mean),
        "sd": rounded(candidate.sd),
        "errors": cut(candidate.errors, limit),
    }
