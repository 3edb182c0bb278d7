"""`evorun grade`: grade given responses with a task's own parser and grader.

Calls no model, unless the task's grade is the gold judge's opinion.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from evorun.cli.given import given_records
from evorun.cli.graded import GradedResponse, TestCount, make_tables, summarise
from evorun.cli.options import add_option, take_flag
from evorun.cli.output import JSON, print_json
from evorun.cli.plain import composed
from evorun.cli.usage import USAGES
from evorun.errors import ConfigError, DataError
from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.lazy import LazyModel
from evorun.runner.gold import GraderTools, MethodTools
from evorun.runner.served import find_engine_key, open_lazily, read_gold
from evorun.runner.task_loading import load_task
from evorun.runner.task_settings import read_sandbox, read_task
from evorun.runs.outputs import refuse_folder_of_records, refuse_replacing
from evorun.runs.paths import display
from evorun.runs.printable import printable
from evorun.runs.records import write_atomically
from evorun.runs.spending import GOLD
from evorun.runs.terminal import Terminal
from evorun.sandbox.base import CaseResult, Program, Suite
from evorun.sandbox.isolation import isolation_warning, probe
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.base import GradingTools, LoadedTask, Prompt
from evorun.tasks.capabilities import HasPublicTests

T = TypeVar("T")

_log = logging.getLogger(__name__)


class GivenResponse(msgspec.Struct):
    """A line of the responses file."""

    id: str
    response: str


def grade_file(arguments: Sequence[str], console: Terminal) -> int:
    """Grade the responses of a file, write each with its verdict, print a summary, and return the exit code.

    Raises ConfigError for a wrong command line and DataError, naming file and line, for a malformed record.
    """
    as_json = JSON in arguments
    options = _options([argument for argument in arguments if argument != JSON])
    responses, output = _files(options)
    loaded, programs, model = _load([f"{key}={value}" for key, value in options.items()])
    given = list(given_records("responses", responses, GivenResponse, '{"id": "...", "response": "..."}'))
    if not given:
        source = "standard input" if responses is None else str(responses)
        raise DataError(
            f'{source}: expected {{"id": "...", "response": "..."}} per line, got no line; nothing is graded'
        )
    _refuse_unknown(given, loaded)
    graded = asyncio.run(_grade(loaded, programs, model, [record for _, record in given]))
    write_atomically(output, b"".join(msgspec.json.encode(record) + b"\n" for record in graded))
    if as_json:
        document = summarise(graded, loaded.task.scores, len(loaded.problems), loaded.task.strata)
        print_json({"task": loaded.task.name, **document, "output": str(output)})
        return 0
    task = loaded.task
    for table in make_tables(graded, task.scores, loaded.provenance.description, task.strata):
        console.print_table(table.to_rich())
    # Not an error: a file may hold the responses of a single stratum, or those that were ready in time.
    missing = len(loaded.problems) - len({record.id for record in graded})
    if missing:
        console.print(f"{missing} of the task's {len(loaded.problems)} problems have no response")
    console.print(f"written: {printable(display(output))}", soft_wrap=True)
    return 0


def _options(arguments: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for argument in arguments:
        if "=" in argument:
            add_option(options, argument)
    if "seed" in options:
        raise ConfigError("seed: does not decide which problems are drawn; expected task.draw_seed=N, or nothing")
    if len(options) < len(arguments) or not (options.get("responses") and options.get("task")):
        raise ConfigError(f"expected: {USAGES['grade'].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    return options


def _files(options: dict[str, str]) -> tuple[Path | None, Path]:
    """Take the files out of the options and return them; responses from standard input are None."""
    given, output, overwrite = options.pop("responses"), options.pop("output", ""), take_flag(options, "overwrite")
    if given == "-" and not output:
        raise ConfigError("output: expected a file with responses=-; set output=FILE.jsonl")
    target = Path(output) if output else Path(given).parent / f"{Path(given).stem}.graded.jsonl"
    if given != "-" and target.resolve() == Path(given).resolve():
        raise ConfigError(f"output: expected another file than responses={given}, which it would replace")
    refuse_folder_of_records("output", target.parent)
    refuse_replacing("output", target, overwrite=overwrite)
    return None if given == "-" else Path(given), target


def _load(overrides: list[str]) -> tuple[LoadedTask, LazySandbox, LazyModel | None]:
    config = composed(overrides)
    task = read_task(config)
    sandbox = read_sandbox(config, task)
    loaded = load_task(task)
    if task.uses_sandbox:
        found = probe(sandbox, task.private_files)
        if not found.full and found.isolation != "none":  # without any isolation, the first program's error says why
            _log.warning(isolation_warning(found.isolation, found.note))
    programs = LazySandbox(sandbox, task.private_files)
    if not task.task_class.graded_by_opinion:
        return loaded, programs, None
    gold, key = read_gold(config), find_engine_key(config, GOLD)
    return loaded, programs, open_lazily(gold, gold.engine, loaded, MethodTools(programs), key)


def _refuse_unknown(given: Sequence[tuple[str, GivenResponse]], loaded: LoadedTask) -> None:
    drawn = {problem.id for problem in loaded.problems}
    held_out = {example.problem.id for example in loaded.validation}
    for where, record in given:
        if record.id in held_out:
            raise DataError(
                f"{where}: '{record.id}' is held out for demonstrations; {loaded.task.draw_help.grade_held_out}"
            )
        if record.id not in drawn:
            raise DataError(
                f"{where}: '{record.id}' is not among the {len(drawn)} problems drawn; check task.data "
                f"and what decides the draw: {loaded.task.draw_help.keys}"
            )


async def _grade(
    loaded: LoadedTask, programs: LazySandbox, model: LazyModel | None, given: Sequence[GivenResponse]
) -> list[GradedResponse]:
    problems = {problem.id: problem for problem in loaded.problems}
    task = loaded.task
    tools = MethodTools(programs) if model is None else GraderTools(programs, _Unrecorded(model), seed=0)

    async def graded(sample: int, record: GivenResponse) -> GradedResponse:
        problem = problems[record.id]
        response = task.parse(problem, record.response)
        hidden, public = _CountedTests(tools), _CountedTests(tools)
        grade = await loaded.grade(problem, response, hidden)
        if isinstance(task, HasPublicTests):
            await task.observe(problem, response, public)
        return GradedResponse(
            id=record.id,
            sample=sample,
            answer=response.answer,
            correct=grade.correct,
            scores=dict(grade.scores),
            detail=grade.detail,
            error=response.error,
            stratum=problem.stratum,
            public_tests=public.count(),
            hidden_tests=hidden.count(),
        )

    earlier: Counter[str] = Counter()
    numbered = []
    for record in given:
        numbered.append((earlier[record.id], record))
        earlier[record.id] += 1
    try:
        return list(await asyncio.gather(*(graded(sample, record) for sample, record in numbered)))
    finally:
        await programs.close()
        if model is not None:
            await model.close()


class _Unrecorded:
    """A judge without a journal: it answers a repeated question again."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    async def complete(self, key: str, request: Request, *, once: bool) -> Reply:
        return await self._model.complete(request)


class _CountedTests:
    """A task's tools that count the tests of one response."""

    def __init__(self, tools: GradingTools) -> None:
        self._tools = tools
        self._passed = self._tests = 0

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        results = await self._tools.test(program, suite, stop_at_failure=stop_at_failure)
        self._passed += sum(result.verdict == "accepted" for result in results)
        self._tests += len(suite.cases)
        return results

    async def remember(self, about: object, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        return await self._tools.remember(about, compute, kind)

    async def judge(self, prompt: Prompt, attempt: int = 0) -> str | None:
        return await self._tools.judge(prompt, attempt)

    def count(self) -> TestCount | UnsetType:
        """Return the count; unset where nothing was tested."""
        return TestCount(self._passed, self._tests) if self._tests else UNSET
