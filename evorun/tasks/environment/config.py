"""The settings of `task=environment`: an environment in Python or on an OpenEnv server, and the rows it begins with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from evorun.errors import ConfigError, DataError, EvorunError, first_line
from evorun.fields import OneOf, PositiveFloat, PositiveInt
from evorun.tasks.base import LoadedTask, Problem, Provenance, Row
from evorun.tasks.benchmark import encode_content, hash_content
from evorun.tasks.benchmark_files import Source, read_sources
from evorun.tasks.environment.base import Environment, PythonEnvironment
from evorun.tasks.environment.code import PYTHON, CodingGrader, CodingTask
from evorun.tasks.environment.sessions import Sessions
from evorun.tasks.environment.task import BETWEEN, EnvironmentGrader, EnvironmentSimulator, EnvironmentTask
from evorun.tasks.functions import import_function
from evorun.tasks.loading import load_rows
from evorun.tasks.outside import OutsideConfig
from evorun.tasks.replaying import run_apart
from evorun.tasks.text_task import TextTask
from evorun.tasks.tool_calls import Tool


@dataclass(kw_only=True)
class EnvironmentConfig(OutsideConfig):
    """Episodes of an environment, drawn into problems, demonstrations and problems to train on."""

    task_class: ClassVar[type[TextTask]] = EnvironmentTask

    environment: str | None
    """A class or function that makes an environment: package.module:NAME or FILE.py:NAME; it runs in this process."""
    url: str | None
    """An OpenEnv server instead: http://HOST:PORT or ws://HOST:PORT."""
    rows: str | None
    """JSON lines, each with what one problem's environment is reset with; `prompt`, `id` and `solution` (a list of
    turns) are not passed on."""
    problems: PositiveInt | None
    """Without rows: so many problems, reset with seed=0, 1, ..."""
    reward: Annotated[str, OneOf(("sum", "last"))]
    """With url: the sum of all rewards of an episode, or the last one."""
    right_from: float
    """A reward of at least this is right."""
    max_turns: PositiveInt
    """Turns of an episode."""
    max_result_chars: PositiveInt
    """Longest tool result that a model is shown."""
    sessions: PositiveInt
    """Environments at once."""
    timeout: PositiveFloat
    """With url: seconds to wait for an answer."""
    code_tool: bool
    """Models have a tool `python`, which runs programs in the sandbox."""
    code_time_limit_s: Annotated[float, Meta(gt=0, le=3600)]
    """CPU seconds of such a program."""

    @property
    def uses_sandbox(self) -> bool:
        return self.code_tool

    @property
    def private_files(self) -> Sequence[Path]:
        """The rows, whose keys may hold solutions, and the environment's own file."""
        given = [self.rows, (self.environment or "").rpartition(":")[0]]
        return [path for name in given if name and (path := Path(name).expanduser()).is_file()]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.environment is not None and self.url is not None:
            raise ConfigError("task.url: expected without task.environment; omit one of the two")
        if self.rows is not None and self.problems is not None:
            raise ConfigError("task.problems: expected without task.rows; omit one of the two")

    def load(self) -> LoadedTask:
        """Reset the environment once for each row, and draw.

        Raises ConfigError for an environment that cannot be used, DataError for rows, ToolError for a server.
        """
        given, make = self._read_rows(), self._factory()
        shown, tools = run_apart(self._try(make, given))
        problems, repeated, known = list[Problem](), 0, set[object]()
        rows, answers = dict[str, dict[str, Any]](), dict[str, str]()
        for number, (row, text) in enumerate(zip(given, shown, strict=True)):
            name = str(row.get("id", number)).replace("|", "/")
            prompt = "\n\n".join(part for part in (str(row.get("prompt", "")).strip(), text.strip()) if part)
            if not prompt:
                raise DataError(
                    f"problem '{name}': expected a text from reset, or a key `prompt` in its row, got neither"
                )
            problem = Problem(id=name, stratum="all", data={"question": prompt})
            settings = reset_with(row)
            # Equal texts may hide different states: the row counts too.
            content = (encode_content(problem), msgspec.json.encode(settings, order="deterministic"))
            if content in known:
                repeated += 1
                continue
            if name in rows:
                raise DataError(f"task.rows: expected different ids, got '{name}' twice")
            known.add(content)
            problems.append(problem)
            rows[name] = settings
            if solution := row.get("solution"):
                answers[name] = solution if isinstance(solution, str) else BETWEEN.join(solution)
        source = self.environment or self.url or ""
        split = self.split(problems, source)
        task, grader = self._make_task(make, rows, tools)
        selected, validation, training = ([Row(problem, answers.get(problem.id)) for problem in part] for part in split)
        loaded = load_rows(
            task,
            selected,
            validation=validation,
            training=training,
            grader=grader,
            simulator=EnvironmentSimulator,
            provenance=Provenance(
                source="benchmark",
                description=f"{len(selected)} of {len(problems)} episodes of {source}"
                + (f", {repeated} repeated ones left out" if repeated else ""),
                digest=hash_content([[row.problem, rows[row.problem.id]] for row in selected]),
            ),
        )
        return replace(loaded, solutions=dict[str, str]())

    def _make_task(
        self, make: Callable[[], Environment], rows: Mapping[str, Mapping[str, Any]], tools: Sequence[Tool]
    ) -> tuple[EnvironmentTask, EnvironmentGrader]:
        source = self.environment or self.url or ""
        settings: dict[str, Any] = {
            "max_turns": self.max_turns,
            "max_result_chars": self.max_result_chars,
            "prompts": self.prompts,
            "shown_reasoning_chars": self.shown_reasoning_chars,
        }
        if self.code_tool:
            sessions = Sessions(make, self.sessions, skipped=(PYTHON,))
            coding = CodingTask(sessions, rows, tools, seconds=self.code_time_limit_s, **settings)
            return coding, CodingGrader(coding, source, self.right_from)
        task = EnvironmentTask(Sessions(make, self.sessions), rows, tools, **settings)
        return task, EnvironmentGrader(task, source, self.right_from)

    def _read_rows(self) -> list[dict[str, Any]]:
        if self.rows is None:
            if self.problems is None:
                raise ConfigError(
                    "task.rows: expected a file of JSON lines, or task.problems=N for the seeds 0 to N - 1"
                )
            return [{"seed": seed} for seed in range(self.problems)]
        path = Path(self.rows).expanduser()
        if not path.is_file():
            raise DataError(f"task.rows: expected a file of JSON lines, got '{self.rows}'")
        rows = [dict(record.values) for record in read_sources([Source(path.stem, [path])])]
        if not rows:
            raise DataError(f"task.rows: expected rows, {path.name} has none")
        return rows

    def _factory(self) -> Callable[[], Environment]:
        if self.url is not None:
            from evorun.tasks.environment.openenv import OpenEnv  # aiohttp is slow to import

            url, timeout, returns = self.url, self.timeout, self.reward
            return lambda: OpenEnv(url, timeout=timeout, returns=returns)
        if self.environment is None:
            raise ConfigError("task.environment: expected package.module:NAME, or task.url=URL of an OpenEnv server")
        factory = import_function("task.environment", self.environment)
        return lambda: PythonEnvironment(factory())

    async def _try(self, make: Callable[[], Environment], rows: list[dict[str, Any]]) -> tuple[list[str], list[Tool]]:
        """Return what each reset shows, and the tools; the first row is reset twice."""
        shown = []
        try:
            for row in [rows[0], *rows]:
                environment = make()
                try:
                    shown.append(await environment.reset(reset_with(row)))
                    if len(shown) == 1:
                        tools = list(await environment.tools())
                finally:
                    await environment.close()
        except EvorunError:
            raise
        except Exception as error:  # of the user's own code
            raise ConfigError(f"task.environment={self.environment}: it failed: {first_line(error)}") from error
        if shown[0] != shown[1]:
            raise ConfigError(
                f"task={self.name}: expected the same text after each reset of a row, got another one; a run can "
                "only be resumed where a row (its seed) decides the episode"
            )
        return shown[1:], tools


def reset_with(row: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a row that the environment is reset with."""
    return {key: value for key, value in row.items() if key not in ("prompt", "id", "solution")}
