"""Rows of frames that no file of a run has as records: model calls and completions, figures, costs, and runs."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from evorun.models.base import Completion, FinishReason
from evorun.runs.call_keys import parse_call_key
from evorun.runs.journal_file import JOURNAL
from evorun.runs.journal_reader import JournalReader, decode_result, make_damage_error, open_journal
from evorun.runs.manifest import Status
from evorun.runs.schema import Metric
from evorun.runs.studies import Opinions, RejudgedFigure, find_rejudgings, load_figures
from evorun.runs.tool_answers import TOOLS, ToolAnswer, count_tool_calls


class OfCall(msgspec.Struct, frozen=True):
    """The key of a model call, and its parts."""

    call: str
    """Key of the call in the run's journal."""
    problem: str
    step: int
    role: str
    """Call role (`generate`, `judge`, ...)."""
    index: int | None
    """Number of the call among those of its problem, step and role, from 0; null for the gold judge's, which have no
    place."""
    attempt: int
    """Number of the attempt at a text that parses, from 0."""


class CallRow(OfCall, frozen=True, kw_only=True):
    """A model call in the journal."""

    prompt_tokens: int
    completion_tokens: int
    seconds: float
    """Time that the engine worked on the call."""
    completions: int
    """Completions in its answer."""
    finish_reason: FinishReason | None
    """The reason for which its first completion ended; null without a completion."""
    error: str | None
    """Why the engine refused the request; null where it answered."""
    tool_calls: int
    """Calls of the task's tools in its answer that were carried out."""


class CompletionRow(OfCall, frozen=True, kw_only=True):
    """A completion in the journal, with the prompt that it answers."""

    number: int
    """Number of the completion in its call, from 0."""
    prompt: str
    """The messages of the request, as JSON."""
    text: str
    """The whole completion."""
    finish_reason: FinishReason
    """The reason for which the completion ended."""
    tokens: int
    """Completion tokens."""


class MetricRow(msgspec.Struct, frozen=True):
    """A figure of results.json."""

    name: str
    """Name of the figure."""
    stratum: str | None
    """The stratum that it is of; null for all problems."""
    value: float | None
    ci95: tuple[float, float] | None
    n: int


class CostRow(msgspec.Struct, frozen=True):
    """A role's cost in results.json."""

    role: str
    """Call role; `total` for the sum, without the gold judge's cost, which is under `gold`."""
    calls: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float | None
    """Total seconds in model calls; null while the run has not ended."""
    cached_tokens: int
    """Prompt tokens that the vendor had in its cache, among `prompt_tokens`."""
    price: float | None
    """Price of the tokens in dollars; null where no vendor bills them, or the price is unknown."""
    tool_calls: int
    """Calls of the task's tools that the role's turns made and got an answer to; they are no model calls."""


class RejudgedRow(RejudgedFigure, frozen=True, kw_only=True):
    """A figure of a rejudging."""

    study: str
    """Name of its folder below the run's rejudge/."""
    kind: Opinions
    asked: str
    """Settings of what gave the opinions: a rubric, and values that differ from the run's."""


class RunRow(msgspec.Struct, frozen=True):
    """A run."""

    path: str
    """Its folder."""
    status: Status
    started: str
    model: str
    """Name of the policy model as reports have it: `simulated` stands before that of one that is simulated."""
    regime: str
    """Information regime: what the method has beside the problem."""
    simulated: bool
    """True where a simulator wrote the texts of any role."""
    score: str
    """Name of the task's primary score."""
    value: float | None
    """Mean of the primary score."""
    ci95: tuple[float, float] | None
    n: int
    """Problems behind the mean: those that have ended."""
    calls: int | None
    """Model calls, without those of a gold judge."""
    prompt_tokens: int | None
    completion_tokens: int | None
    tool_calls: int | None
    """Calls of the task's tools; they are no model calls."""
    price: float | None
    """Price of tokens and GPUs in dollars; null where a part is unknown, or there is none."""
    seconds: float | None
    """Wall-clock time, summed over the processes that worked on the run."""
    error: str | None


def make_metric_rows(
    metrics: Mapping[str, Metric], by_stratum: Mapping[str, Mapping[str, Metric]]
) -> Iterator[MetricRow]:
    """Yield the figures over all problems, then those of each stratum."""
    for stratum, figures in ((None, metrics), *by_stratum.items()):
        for name, metric in figures.items():
            yield MetricRow(name, stratum, metric.value, metric.ci95, metric.n)


class _Tokens(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Answer(msgspec.Struct):
    completions: tuple[Completion, ...]
    error: str | None = None


class _Asked(msgspec.Struct):
    messages: msgspec.Raw


def _find_calls(reader: JournalReader) -> Iterator[tuple[int, OfCall, _Tokens, float, _Answer]]:
    """Yield each model call's number, key, tokens, seconds and answer; other effects are skipped."""
    for number, (key, _) in enumerate(reader.index()):
        usage, seconds = reader.spent(number)
        if usage is None:
            continue
        call = parse_call_key(key)
        if call is None:
            raise make_damage_error(reader.path, f"a model call's key: expected problem|step|role|..., got {key!r}")
        index = None if isinstance(call.index, str) else call.index
        of_call = OfCall(key, call.problem, call.step, call.role, index, call.attempt)
        tokens = decode_result(usage.encode(), _Tokens, key, reader.path)
        yield number, of_call, tokens, seconds, decode_result(reader.result(number), _Answer, key, reader.path)


def _find_tool_calls(reader: JournalReader) -> Iterator[tuple[str, int]]:
    """Yield the key of each model call whose turn used tools, and the number of tool calls."""
    for number, (key, _) in enumerate(reader.index()):
        call = parse_call_key(key)
        if call is None or not call.role.endswith(TOOLS):
            continue
        answers = decode_result(reader.result(number), list[ToolAnswer], key, reader.path)
        yield str(msgspec.structs.replace(call, role=call.role.removesuffix(TOOLS))), count_tool_calls(answers)


def read_calls(run_dir: Path) -> Iterator[CallRow]:
    """Yield a run's model calls in the order of recording. Raises RunDirectoryError or JournalError."""
    with closing(open_journal(run_dir / JOURNAL)) as reader:
        tool_calls = dict(_find_tool_calls(reader))
        for _, call, tokens, seconds, answer in _find_calls(reader):
            yield CallRow(
                **asdict(call),
                prompt_tokens=tokens.prompt_tokens,
                completion_tokens=tokens.completion_tokens,
                seconds=seconds,
                completions=len(answer.completions),
                finish_reason=answer.completions[0].finish_reason if answer.completions else None,
                error=answer.error,
                tool_calls=tool_calls.get(call.call, 0),
            )


def read_completions(run_dir: Path) -> Iterator[CompletionRow]:
    """Yield a run's completions in the order of recording. Raises as `read_calls`."""
    with closing(open_journal(run_dir / JOURNAL)) as reader:
        for number, call, _, _, answer in _find_calls(reader):
            request = decode_result(reader.effect(number).request, _Asked, call.call, reader.path)
            for position, completion in enumerate(answer.completions):
                yield CompletionRow(
                    **asdict(call),
                    number=position,
                    prompt=bytes(request.messages).decode(),
                    text=completion.text,
                    finish_reason=completion.finish_reason,
                    tokens=completion.tokens,
                )


def read_rejudged(run: Path) -> Iterator[RejudgedRow]:
    """Yield the figures of a run's completed rejudgings, the oldest first. Raises RunDirectoryError."""
    for folder, manifest in sorted(find_rejudgings(run), key=lambda study: study[1].started):
        for figure in load_figures(folder):
            yield RejudgedRow(**asdict(figure), study=folder.name, kind=manifest.kind, asked=manifest.asked)
