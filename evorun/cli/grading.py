"""`evorun grade`: grade given responses with a task's own parser and grader; no model is involved."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evorun.cli.compose import config_folder, register
from evorun.cli.explain import explain
from evorun.cli.overrides import permit_unlisted_key, refuse_wrong_choices
from evorun.cli.plain import plain
from evorun.cli.usage import USAGES
from evorun.errors import ConfigError, DataError
from evorun.models.server.wire import without_lone_surrogates
from evorun.reports.text import label
from evorun.runner import registry
from evorun.runner.settings import typed
from evorun.runs.paths import display
from evorun.runs.printable import printable
from evorun.runs.records import write_atomically
from evorun.runs.results import mean_score, recorded_scores
from evorun.runs.schema import Metric
from evorun.runs.scores import Score
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.isolation import not_full, probe
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.base import LoadedTask

_log = logging.getLogger(__name__)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # Windows editors put it before the first record


class GivenResponse(msgspec.Struct):
    """A line of the responses file."""

    id: str
    response: str


class GradedResponse(msgspec.Struct):
    """A line of the output: a response as it was parsed and graded."""

    id: str
    answer: str | None
    correct: bool | None
    """None on a task without right and wrong."""
    scores: dict[str, float | None]
    detail: str
    """The grader's reason (`wrong_answer at hidden test 3`), where the task gives one."""
    error: str | None
    stratum: str


def grade_file(arguments: Sequence[str], console: Console) -> int:
    """Grade the responses of a file, write each with its verdict, print a summary, and return the exit code.

    For a task with scores, the scores of each response and their means are printed too.
    Raises ConfigError for a wrong command line and DataError, naming file and line, for a malformed record.
    """
    options = _options(arguments)
    responses = Path(options.pop("responses"))
    output = Path(options.pop("output", "") or responses.parent / f"{responses.stem}.graded.jsonl")
    if output.resolve() == responses.resolve():
        raise ConfigError(f"output: expected another file than responses={responses}, which it would replace")
    loaded, sandbox = _load([f"{key}={value}" for key, value in options.items()])
    given = list(_read(responses))
    _refuse_unknown(given, loaded, responses)
    graded = asyncio.run(_grade(loaded, sandbox, [record for _, record in given]))
    write_atomically(output, b"".join(msgspec.json.encode(record) + b"\n" for record in graded))
    primary, *others = recorded_scores(graded, loaded.task.scores)
    right_or_wrong = primary.is_correctness
    if others or not right_or_wrong:
        console.print(_scores(graded, others if right_or_wrong else [primary, *others], right_or_wrong))
    console.print(_summary(graded, loaded, primary))
    if others:
        console.print(_means(graded, others))
    # Not an error: a file may hold the responses of one stratum, or those that were ready in time.
    missing = len(loaded.problems) - len({record.id for record in graded})
    if missing:
        console.print(f"{missing} of the task's {len(loaded.problems)} problems have no response")
    console.print(f"written: {printable(display(output))}", markup=False, soft_wrap=True)
    return 0


def _options(arguments: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key in options:
            raise ConfigError(f"{key}: expected once, got it twice: {key}={options[key]} and {argument}")
        if equals:
            options[key] = value
    if "seed" in options:
        raise ConfigError("seed: does not decide which problems are drawn; expected task.draw_seed=N, or nothing")
    if len(options) < len(arguments) or not (options.get("responses") and options.get("task")):
        raise ConfigError(f"expected: {USAGES['grade'].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    return options


def _load(overrides: list[str]) -> tuple[LoadedTask, SandboxConfig]:
    register()
    refuse_wrong_choices(overrides)
    try:
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            composed = compose("config", overrides=[permit_unlisted_key(override) for override in overrides])
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from error
    config = plain(composed)
    task = typed(registry.task_config_class(config["task"]["name"]), config["task"], "task")
    sandbox = typed(SandboxConfig, config["sandbox"], "sandbox")
    loaded = task.load()
    if task.runs_programs:
        found = probe(sandbox)
        if not found.full and found.isolation != "none":  # without any isolation, the first program says why
            _log.warning(not_full(found.isolation, found.note))
    return loaded, sandbox


def _read(path: Path) -> Iterator[tuple[int, GivenResponse]]:
    """Yield each record with the number of its line."""
    try:
        if path.exists() and not path.is_file():  # a pipe would block, a device would never end
            raise DataError(f"cannot read responses={path}: expected a regular file")
        # Not str.splitlines: texts of models hold other line separators, such as U+2028, inside a record.
        lines = path.read_bytes().removeprefix(_BYTE_ORDER_MARK).split(b"\n")
    except OSError as error:
        raise DataError(f"cannot read responses={path}: {error.strerror}") from error
    decoder = msgspec.json.Decoder(GivenResponse)
    lines_of: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            try:
                record = decoder.decode(line)
            except msgspec.DecodeError:  # perhaps half a surrogate pair, which a model's sampled bytes can form
                record = decoder.decode(without_lone_surrogates(line))
        # msgspec lets the decoder's error for bytes that are not UTF-8 pass.
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(
                f'{path}, line {number}: expected {{"id": "...", "response": "..."}}, got a record with: {error}'
            ) from error
        earlier = lines_of.setdefault(record.id, number)
        if earlier != number:
            raise DataError(
                f"{path}, lines {earlier} and {number}: expected one response a problem, got two to '{record.id}'"
            )
        yield number, record


def _refuse_unknown(given: Sequence[tuple[int, GivenResponse]], loaded: LoadedTask, path: Path) -> None:
    drawn = {problem.id for problem in loaded.problems}
    held_out = {example.problem.id for example in loaded.validation}
    for number, record in given:
        if record.id in held_out:
            raise DataError(
                f"{path}, line {number}: '{record.id}' is held out for demonstrations; "
                f"{loaded.task.draw_help.grade_held_out}"
            )
        if record.id not in drawn:
            raise DataError(
                f"{path}, line {number}: '{record.id}' is not among the {len(drawn)} problems drawn; check task.data "
                f"and what decides the draw: {loaded.task.draw_help.keys}"
            )


async def _grade(loaded: LoadedTask, sandbox: SandboxConfig, given: Sequence[GivenResponse]) -> list[GradedResponse]:
    problems = {problem.id: problem for problem in loaded.problems}
    tools = LazySandbox(sandbox)

    async def graded(record: GivenResponse) -> GradedResponse:
        problem = problems[record.id]
        response = loaded.task.parse(problem, record.response)
        grade = await loaded.grader.grade(problem, response, tools)
        return GradedResponse(
            id=record.id,
            answer=response.answer,
            correct=grade.correct,
            scores=dict(grade.scores),
            detail=grade.detail,
            error=response.error,
            stratum=problem.stratum,
        )

    try:
        return list(await asyncio.gather(*map(graded, given)))
    finally:
        await tools.close()


def _summary(graded: Sequence[GradedResponse], loaded: LoadedTask, primary: Score) -> Table:
    right_or_wrong = primary.is_correctness
    figures = ["responses", "correct" if right_or_wrong else "scored", label(primary), "95 % interval", "unparsable"]
    table = _table(loaded.provenance.description, ["stratum"], figures)
    strata = sorted({record.stratum for record in graded})
    for stratum in [*strata, "all"]:
        rows = [record for record in graded if stratum in ("all", record.stratum)]
        figure = mean_score(primary, map(primary.value_in, rows))
        value, interval = _shown(primary, figure)
        unparsable = sum(record.error is not None for record in rows)
        counted = sum(bool(record.correct) for record in rows) if right_or_wrong else figure.n
        table.add_row(Text(printable(stratum)), str(len(rows)), str(counted), value, interval, str(unparsable))
    return table


def _scores(graded: Sequence[GradedResponse], scores: Sequence[Score], right_or_wrong: bool) -> Table:
    correct = ["correct"] if right_or_wrong else []
    table = _table("each response", ["problem"], [*correct, *(score.name for score in scores)])
    for record in graded:
        values = (score.value_in(record) for score in scores)
        verdict = ["yes" if record.correct else "no"] if right_or_wrong else []
        shown = ("-" if value is None else f"{value:.6g}" for value in values)
        table.add_row(Text(printable(record.id)), *verdict, *shown)
    return table


def _means(graded: Sequence[GradedResponse], scores: Sequence[Score]) -> Table:
    table = _table("means of the scores", ["stratum", "score"], ["responses", "mean", "95 % interval"])
    strata = sorted({record.stratum for record in graded})
    for stratum in [*(strata if len(strata) > 1 else []), "all"]:
        for score in scores:
            rows = [record for record in graded if stratum in ("all", record.stratum)]
            figure = mean_score(score, map(score.value_in, rows))
            value, interval = _shown(score, figure)
            table.add_row(Text(printable(stratum)), score.name, str(figure.n), value, interval)
    return table


def _shown(score: Score, figure: Metric) -> tuple[str, str]:
    """Return a mean and its interval as text: percent for a rate."""
    form = "{:.1%}" if score.rate else "{:.4g}"
    value = "-" if figure.value is None else form.format(figure.value)
    return value, "-" if figure.ci95 is None else f"{form} to {form}".format(*figure.ci95)


def _table(title: str, words: Sequence[str], figures: Sequence[str]) -> Table:
    table = Table(title=Text(printable(title)), title_justify="left")
    for column in words:
        table.add_column(column)
    for column in figures:
        table.add_column(column, justify="right")
    return table
