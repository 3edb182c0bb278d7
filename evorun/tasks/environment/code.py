"""A tool with which models run Python in the sandbox, beside the tools of an environment."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from evorun.errors import ConfigError
from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.sandbox.base import Case, CaseResult, Limits, Program, Suite
from evorun.tasks.base import Grade, GradingTools, Problem, Tools
from evorun.tasks.environment.sessions import Outcome, Sessions
from evorun.tasks.environment.task import BETWEEN, EnvironmentGrader, EnvironmentTask
from evorun.tasks.tool_calls import Tool, read_calls

PYTHON = "python"
"""Name of the tool."""
MAX_PROGRAMS = 8
"""Programs of a turn that are run (ours)."""
PROGRAMS = Score("programs", low=0)
"""Number of programs that an episode ran."""
FAILED_PROGRAMS = Score("failed_programs", low=0, higher_is_better=False)
"""Number of those that raised an error or reached a limit."""
_PARAMETERS = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
_REFUSAL = f"error: expected a text under code, and at most {MAX_PROGRAMS} programs in a turn"


class CodingTask(EnvironmentTask):
    """Acts in an environment and runs programs in the run's sandbox; they do not touch the environment."""

    scores = (*EnvironmentTask.scores, PROGRAMS, FAILED_PROGRAMS)

    def __init__(
        self, sessions: Sessions, rows: Mapping[str, Any], tools: Sequence[Tool], *, seconds: float, **settings: Any
    ) -> None:
        """seconds: of computing time per program. Others: see `EnvironmentTask`.

        Raises ConfigError for an environment with a tool of the same name.
        """
        if any(tool.name == PYTHON for tool in tools):
            raise ConfigError(f"task.code_tool: expected an environment without a tool '{PYTHON}'; set it to false")
        self._seconds = seconds
        # One suite for all programs, so that the journal recognizes it cheaply.
        self._suite = Suite((Case("", ""),), "any", Limits(cpu_seconds=seconds))
        super().__init__(sessions, rows, tools, **settings)

    def own_tools(self) -> Sequence[Tool]:
        return [Tool(PYTHON, self.prompts.render("python", seconds=self._seconds).strip(), _PARAMETERS)]

    async def list_results(self, turn: str, outcome: Outcome, tools: Tools | None) -> Sequence[str]:
        """Return the output of the turn's programs among the environment's results, in the order of the calls.

        Raises ConfigError for a program without a run's tools.
        """
        results, programs = list(outcome.results), read_programs(turn)
        for place, call in enumerate(read_calls(turn)):
            if place in programs:
                results[place] = describe(await self.run(programs[place], tools))
            elif call.name == PYTHON:
                results[place] = _REFUSAL
        return results

    async def run(self, source: str, tools: Tools | None) -> CaseResult:
        """Run a program; the journal has it once, whoever asks. Raises ConfigError without a run's tools."""
        if tools is None:
            raise ConfigError("task.code_tool: expected a run with a sandbox, got none; set it to false")
        (result,) = await tools.test(Program(source), self._suite, stop_at_failure=False)
        return result


class CodingGrader(EnvironmentGrader):
    """Grades as the environment rewards, and counts the episode's programs."""

    def __init__(self, task: CodingTask, source: str, right_from: float) -> None:
        super().__init__(task, source, right_from)
        self._coding = task

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        grade = await super().grade(problem, response, tools)
        # The programs of the last turn were not run: nobody reads their output.
        answered = response.text.split(BETWEEN)[: self._coding.max_turns(problem)][:-1]
        results = [
            await self._coding.run(source, tools) for turn in answered for source in read_programs(turn).values()
        ]
        failed = sum(result.verdict != "accepted" for result in results)
        counts = {PROGRAMS.name: float(len(results)), FAILED_PROGRAMS.name: float(failed)}
        return msgspec.structs.replace(grade, scores={**grade.scores, **counts})


def read_programs(turn: str) -> dict[int, str]:
    """Return the programs of a turn that are run, by the place of their calls among all calls of the turn."""
    asked = [
        (place, call.arguments["code"])
        for place, call in enumerate(read_calls(turn))
        if call.name == PYTHON and isinstance(call.arguments.get("code"), str)
    ]
    return dict(asked[:MAX_PROGRAMS])


def describe(result: CaseResult) -> str:
    """Return what a program printed and, where it failed, why."""
    printed = "\n".join(text for text in (result.stdout.rstrip(), result.stderr.rstrip()) if text)
    if result.verdict == "accepted":
        return printed or "(nothing printed)"
    return f"error: {result.verdict}\n{printed}".rstrip()
