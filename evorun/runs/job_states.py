"""The progress of jobs, from the files of their run directories: nothing is locked, opened for writing, or believed.

A folder may come from somebody else, or be written at this moment. What cannot be read is left out.
"""

import contextlib
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from evorun.errors import DataError
from evorun.runs.directory import LOCK, MANIFEST, RATINGS, REPORT, RESULTS, TOURNAMENT, find_recording
from evorun.runs.files import is_locked, open_regular, read_regular
from evorun.runs.live import WRITE_INTERVAL_S, ProgressRecord, read_progress
from evorun.runs.manifest import ModelInRun, Status
from evorun.runs.prices import GpuPrice, Rate, Rates, gpu_seconds, price_calls, price_run, to_dollars
from evorun.runs.reading import read_results
from evorun.runs.schema import Metric, RatingRecord, Results, Spent, TrainingRecord
from evorun.runs.scores import ACCURACY, Score
from evorun.runs.spending import GOLD

T = TypeVar("T")

State = Literal["waiting", "starting", "running", "reporting", "done", "failed", "interrupted", "lost"]

ORDER: tuple[State, ...] = ("running", "starting", "reporting", "failed", "lost", "interrupted", "waiting", "done")
"""States as `--watch` sorts them, since a screen may have no place for all jobs."""

_STATES: dict[Status, State] = {"completed": "done", "failed": "failed", "interrupted": "interrupted"}
_MAX_COUNTED = 16 << 20
"""Maximum bytes of a file whose lines are counted (ours): a run's answers to ten thousand problems are shorter."""
_TAIL = 1 << 16
"""Bytes of a file's end in which its last record is looked for (ours)."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is now; `evorun status --json` prints these fields."""

    folder: str
    """Its run directory."""
    kind: Literal["run", "tournament"] = "run"
    """A tournament has no score of its own."""
    name: str
    """Name that tells it from the sweep's other jobs; of a run by itself, its folder."""
    replays: str | None = None
    """The run directory that it replays; null for a run of its own."""
    state: State
    """`starting`: a process works on it, which has no progress yet; `reporting`: all its problems have ended, and a
    process writes its results or report; `lost`: its manifest says that it runs, or SLURM was to start it, but no
    process works on it."""
    done: int | None = None
    """Problems that have ended, or the last step of a run that trains or works on all problems together."""
    planned: int | None = None
    """The number of them in all; null where it is not known."""
    unit: Literal["problems", "steps"] = "problems"
    """Unit of `done` and `planned`."""
    share: float | None = None
    """Share of the job that is done; null where it is not known."""
    left_seconds: float | None = None
    """Estimated seconds until its end, of a job that runs; null where there is no estimate."""
    score: str | None = None
    """Name of the primary score; null while there are no results."""
    score_label: str | msgspec.UnsetType = msgspec.UNSET
    """Its label in tables, where that is not its name."""
    rate: bool = False
    """True where the score is a share of responses."""
    scale_low: float | None = None
    """Minimum of the score; null for no bound."""
    scale_high: float | None = None
    """Maximum of the score; null for no bound."""
    value: float | None = None
    """Mean of the primary score."""
    ci95: tuple[float, float] | None = None
    """Its 95 % interval."""
    calls: int | None = None
    """Model calls, without those of a gold judge; of a job that is not done, those so far."""
    tokens: int | None = None
    """Prompt and completion tokens of these calls."""
    tool_calls: int | None = None
    """Calls of the task's tools so far; they are no model calls."""
    price: float | None = None
    """Price in dollars of its tokens and GPUs so far; null where it is unknown, or there is none."""
    price_unknown: bool = False
    """True where a vendor bills tokens at a price that is not known yet, or at all."""
    gpu_seconds: float | None = None
    """Wall-clock time times the GPUs that the run could use; null where it had none, or used none."""
    error: str | None = None
    """First line of the error."""
    begun: bool = True
    """False for a failed job that could not begin: it has no run directory."""
    note: str | None = None
    """Remark on what the state leaves open."""
    scheduler_id: str | None = None
    """The job's id at the scheduler; null where no scheduler has it."""
    scheduler_state: str | None = None
    """Its state there while it is not done, such as `PENDING (Priority)`; null where the scheduler does not know it."""

    @property
    def is_done(self) -> bool:
        """True for a job that a resume leaves alone."""
        return self.state == "done" and self.note is None

    @property
    def is_under_way(self) -> bool:
        """True while a process works on it."""
        return self.state in ("starting", "running", "reporting")

    @property
    def is_stopped(self) -> bool:
        """True for a job that began, did not complete, and is worked on by no process: a resume continues it."""
        return self.state in ("failed", "interrupted", "lost")

    @property
    def is_expected(self) -> bool:
        """True while a process works on it, or a scheduler will start one."""
        return self.is_under_way or (self.state == "waiting" and self.scheduler_state is not None)


class _Manifest(msgspec.Struct):
    """The part of manifest.json that is read here; leaving out the rest takes a fraction of the time."""

    status: Status
    seconds: float | None = None
    models: dict[str, ModelInRun] = {}
    scores: tuple[Score, ...] = (ACCURACY,)
    hardware: dict[str, Any] = {}
    prices: dict[str, Rate] = {}
    gpu_price: GpuPrice | None = None
    config: dict[str, Any] = {}
    error: str | None = None


class _StepNumber(msgspec.Struct):
    """The part of a line of steps.jsonl that is read here."""

    step: int


class _Tournament(msgspec.Struct):
    """The part of tournament.json that is read here."""

    status: Status
    error: str | None = None


class _TournamentResults(msgspec.Struct):
    """The part of a tournament's results.json that is read here."""

    cost: Spent | None = None


def describe_unseen(host: str) -> str:
    """Return the note on a job that may go on where its lock cannot be seen from here."""
    return f"started on {host}, where alone it can be seen whether it still runs"


def count_states(jobs: Iterable[JobStatus]) -> str:
    """Return how many jobs are in which state: `9 done, 3 running`."""
    counts = Counter(job.state for job in jobs)
    return ", ".join(f"{counts[state]:,} {state}" for state in reversed(ORDER) if counts[state])


_decoder = msgspec.json.Decoder(_Manifest)
_tournament_decoder = msgspec.json.Decoder(_Tournament)
_tournament_results_decoder = msgspec.json.Decoder(_TournamentResults)


def look_at(run: Path, name: str, *, begun: bool = False) -> JobStatus:
    """Return the status of the job in a run directory, which need not exist.

    begun: whether the job's process has been started, which shows in the run directory only later. A process on another
    machine may not be seen. Raises nothing for files that cannot be read.
    """
    folder = str(run).encode("utf-8", "replace").decode()  # a name may be no text, which JSON could not hold
    if run.is_symlink():
        return JobStatus(folder=folder, name=name, state="waiting", note="a symbolic link, which is not followed")
    locked = is_locked(run / LOCK)
    manifest = _read(run / MANIFEST, _decoder)
    if manifest is None and (tournament := _read(run / TOURNAMENT, _tournament_decoder)) is not None:
        return _describe_tournament(run, JobStatus(folder=folder, name=name, state="running"), tournament, locked)
    if manifest is None:
        exists = (run / MANIFEST).exists()
        note = f"its {MANIFEST} cannot be read" if exists else None
        return JobStatus(folder=folder, name=name, state="starting" if locked or begun else "waiting", note=note)
    complete = manifest.status == "completed"
    live = None if complete else read_progress(run)
    results = None
    with contextlib.suppress(DataError):
        results = read_results(run) if complete else None
    done, planned, unit = _progress(run, manifest, results, live)
    state: State = _STATES.get(manifest.status, "lost")
    if locked:
        has_progress = bool(done) or (live is not None and live.share > 0)
        ended = complete or (live is not None and 0 < live.problems <= live.ended)
        state = "reporting" if ended else "running" if has_progress else "starting"
    note = "no report yet" if state == "done" and not (run / REPORT).exists() else None
    if state == "lost":
        note = "its process is gone, as when killed or out of memory"
        if live is not None and live.cost:
            note += f"; calls and tokens are of up to {WRITE_INTERVAL_S:.0f} s before its end, and its journal has all"
    recording = find_recording(manifest.config)
    primary = manifest.scores[0] if manifest.scores else ACCURACY
    metric = Metric(None, None, 0) if results is None else results.metrics.get(primary.name, Metric(None, None, 0))
    calls, tokens, tool_calls, of_tokens = _cost(run, manifest.prices, results, live)
    if live is not None and manifest.status == "running":  # the manifest has the seconds of earlier processes
        manifest.seconds = (manifest.seconds or 0.0) + live.seconds
    price = price_run(manifest, of_tokens)
    return JobStatus(
        folder=folder,
        name=name,
        replays=None if recording is None else str(recording),
        state=state,
        done=done,
        planned=planned,
        unit=unit,
        share=1.0 if complete else None if live is None else live.share,
        left_seconds=live.left_seconds if live is not None and state == "running" else None,
        score=primary.name if results is not None else None,
        score_label=primary.label,
        rate=primary.rate,
        scale_low=primary.low,
        scale_high=primary.high,
        value=metric.value,
        ci95=metric.ci95,
        calls=calls,
        tokens=tokens,
        tool_calls=tool_calls,
        price=price,
        price_unknown=bool(manifest.prices) and price is None,
        gpu_seconds=gpu_seconds(manifest),
        error=next(iter((manifest.error or "").splitlines()), None) if state == "failed" else None,
        note=note,
    )


def look_at_run(run: Path, name: str) -> JobStatus:
    """Return the status of a run or tournament by itself, whose process may work on another machine."""
    status = look_at(run, name)
    live = read_progress(run) if status.state == "lost" else None
    if live is None or live.host is None or live.host == platform.node():
        return status
    return msgspec.structs.replace(status, state="running", note=describe_unseen(live.host))


def _describe_tournament(run: Path, status: JobStatus, tournament: _Tournament, locked: bool) -> JobStatus:
    """Return the status of a tournament: its state and its cost."""
    results = _read(run / RESULTS, _tournament_results_decoder) if tournament.status == "completed" else None
    cost = None if results is None else results.cost
    state: State = "running" if locked else _STATES.get(tournament.status, "lost")
    return msgspec.structs.replace(
        status,
        kind="tournament",
        state=state,
        share=1.0 if state == "done" else None,
        calls=None if cost is None else cost.calls,
        tokens=None if cost is None else cost.tokens,
        error=next(iter((tournament.error or "").splitlines()), None) if state == "failed" else None,
    )


def _read(path: Path, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Return a file's content; None where it cannot be read."""
    try:
        return decoder.decode(read_regular(path))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _progress(
    run: Path, manifest: _Manifest, results: Results | None, live: ProgressRecord | None
) -> tuple[int | None, int | None, Literal["problems", "steps"]]:
    """Return what is done, what is planned, and the unit.

    It is training steps where a run trains, steps where a method works on all problems together, which end together,
    else problems.
    """
    method = manifest.config.get("method")
    steps = method.get("steps") if isinstance(method, dict) else None
    planned = steps if isinstance(steps, int) and not isinstance(steps, bool) else None
    if manifest.config.get("training") is not None:
        last = _last_record(run / "training.jsonl", TrainingRecord)
        return 0 if last is None else last.step, planned, "steps"
    if results is not None and "problems" in results.counts:
        problems = results.counts["problems"]
        return problems, problems, "problems"
    if live is not None:
        return live.ended, live.problems, "problems"
    ended = _count_lines(run / "predictions.jsonl")
    # without ratings no candidate serves all problems
    if ended == 0 and _last_record(run / f"{RATINGS}.jsonl", RatingRecord) is not None:
        step = _last_record(run / "steps.jsonl", _StepNumber)
        return None if step is None else step.step, planned, "steps"
    return ended, _count_lines(run / "problems.jsonl") or None, "problems"


def _cost(
    run: Path, rates: Rates, results: Results | None, live: ProgressRecord | None
) -> tuple[int | None, int | None, int | None, float | None]:
    """Return calls, tokens and tool calls, without those of a gold judge, and the price of these tokens in dollars."""
    if results is not None:
        total = results.cost.get("total")
        return (0, 0, 0, None) if total is None else (total.calls, total.tokens, total.tool_calls, total.price)
    if live is not None and live.cost:
        spent = {role: cost for role, cost in live.cost.items() if role != GOLD}
        units = ("calls", "tokens", "tool_calls")
        calls, tokens, tool_calls = (sum(getattr(cost, unit) for cost in spent.values()) for unit in units)
        return calls, tokens, tool_calls, to_dollars(price_calls(rates, spent))
    last = _last_record(run / "training.jsonl", TrainingRecord)
    return (None, None, None, None) if last is None else (last.calls, last.tokens, None, None)


def _last_record(path: Path, kind: type[T]) -> T | None:
    """Return the last record of a file that can be read; None without one."""
    for line in _last_lines(path):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(line, type=kind)
    return None


def last_line(path: Path) -> str | None:
    """Return the last line of a text that is not empty, cut off at 300 characters; None where there is none."""
    words = (line.decode("utf-8", "replace").strip() for line in _last_lines(path))
    return next((line[:300] for line in words if line), None)


def _last_lines(path: Path) -> Iterator[bytes]:
    """Yield complete lines from a file's end, the last one first; the search ends after `_TAIL` bytes."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL, 0))
            tail = file.read(_TAIL)
    except OSError:
        return
    yield from reversed(tail[: tail.rfind(b"\n") + 1].splitlines())


def _count_lines(path: Path) -> int | None:
    """Return the number of complete lines; 0 for no file, None for one that is too long to count."""
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > _MAX_COUNTED:
                return None
            return file.read(_MAX_COUNTED).count(b"\n")
    except OSError:
        return 0
