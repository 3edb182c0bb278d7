"""What genetic algorithms ask of LiveCodeBench (Lyria): prompts that recombine, errors, fitness, symbolic operators.

The oracle is the suite of public tests (section 6 of the Lyria paper): fitness is the percentage that a program passes,
and its errors are the tests that it fails. A program that passes them all may still fail hidden ones. A problem without
public tests leaves every program at 0.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evorun.runs.candidates import Response
from evorun.sandbox.base import CaseResult, Suite
from evorun.tasks.base import Problem, Prompt, Tools
from evorun.tasks.capabilities import Diagnosis, Individual, Verification
from evorun.tasks.diagnosis import ERRORS_SCHEMA, FITNESS_SCHEMA, bulleted, read_errors, read_fitness
from evorun.tasks.livecodebench import operators
from evorun.tasks.livecodebench.feedback import failures_of, feedback_of
from evorun.tasks.livecodebench.syntax import syntax_error
from evorun.tasks.prompt_files import PromptFiles

_REQUEST = {"problem": "# Problem", "rules": "- Be right.", "reply": "{}"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "crossover": {**_REQUEST, "first": "Program:", "second": "Program:"},
    "mutation": {**_REQUEST, "individual": "Program:"},
    "individual": {"code": "print(1)", "fitness": 50.0, "errors": "- 1 -> wrong answer", "memory": "n = 0"},
    "errors": {"problem": "# Problem", "code": "1| print(1)", "seconds": "4"},
    "fitness": {"problem": "# Problem", "code": "print(1)", "seconds": "4"},
}
"""The prompt files that this adds, with a value for each variable that they are given."""

_LINE = re.compile(r"\blines?\s+(\d{1,9})\b", re.IGNORECASE)


class Recombination(ABC):
    """Recombines, Operates, Verifies, Diagnoses and Scores; what it builds upon is the task's."""

    _prompts: PromptFiles
    _solution_chars: int
    _seconds: str
    _with_memory: Mapping[str, str]
    _memory_schema: dict[str, Any]

    @abstractmethod
    def _prompt(self, text: str, schema: dict[str, Any], **hints: Any) -> Prompt: ...

    @abstractmethod
    def _problem(self, problem: Problem) -> str: ...

    @abstractmethod
    def _code(self, response: Response) -> str: ...

    @abstractmethod
    def _public(self, problem: Problem) -> Suite: ...

    @abstractmethod
    async def _tried(self, problem: Problem, response: Response, tools: Tools) -> tuple[CaseResult, ...]: ...

    # --- the model's operators ---

    def crossover_prompt(self, problem: Problem, first: Individual, second: Individual) -> Prompt:
        """Ask for a program that joins what is good in two (Lyria's LCO; wording ours)."""
        parents = {"first": self._individual(first), "second": self._individual(second)}
        text = self._prompts.render("crossover", problem=self._problem(problem), **parents, **self._with_memory)
        answers = [first.response.answer, second.response.answer]
        return self._prompt(text, self._memory_schema, role="crossover", problem=problem.id, answers=answers)

    def mutation_prompt(self, problem: Problem, individual: Individual) -> Prompt:
        """Ask for a mended program (LMO; wording ours)."""
        shown = self._individual(individual)
        text = self._prompts.render("mutation", problem=self._problem(problem), individual=shown, **self._with_memory)
        answers = [individual.response.answer]
        return self._prompt(text, self._memory_schema, role="mutate", problem=problem.id, answers=answers)

    def _individual(self, individual: Individual) -> str:
        return self._prompts.render(
            "individual",
            code=self._code(individual.response),
            fitness=individual.fitness,
            errors=individual.errors.text,
            memory=individual.response.memory,
        )

    # --- symbolic operators ---

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: np.random.Generator) -> Response:
        """Return the child of ECO; see `evorun.tasks.livecodebench.operators`."""
        return operators.crossover(first, second, rng, self._solution_chars)

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        """Return the mutant of EMO; see `evorun.tasks.livecodebench.operators`."""
        return operators.mutate(individual, rng, self._solution_chars)

    # --- the symbolic system ---

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        """Run the public tests: the percentage passed, and the first that failed; of no Python, its syntax error.

        Findings are the lines that runtime errors ended in, None for an error that shows no line.
        """
        if response.answer is None:
            text = f"No program could be read: {response.error}" if max_errors else ""
            return Verification(fitness=0.0, errors=Diagnosis(text=text))
        results = await self._tried(problem, response, tools)
        if not results:
            return Verification(fitness=0.0, errors=Diagnosis())
        suite = self._public(problem)
        fitness = 100 * feedback_of(suite.cases, results, suite.limits).score
        broken = syntax_error(response.answer) if fitness == 0 else None
        if broken is not None:
            return Verification(fitness=fitness, errors=_diagnosis([(broken, None)][:max_errors]))
        failures = failures_of(suite.cases, results, suite.limits)[:max_errors]
        return Verification(fitness=fitness, errors=_diagnosis(failures))

    # --- a model in its place ---

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask for the errors of a program, its lines numbered (LED; wording ours)."""
        code = "\n".join(f"{n}| {line}" for n, line in enumerate(self._code(response).splitlines(), 1))
        shown = {"problem": self._problem(problem), "code": code, "seconds": self._seconds}
        text = self._prompts.render("errors", **shown)
        return self._prompt(text, ERRORS_SCHEMA, role="errors", problem=problem.id, answers=[response.answer])

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        """Read a list of errors; a finding is the first line number that an error names, or None."""
        errors = read_errors(text, max_errors)
        if errors is None:
            return None
        lines = [_LINE.search(error) for error in errors]
        return _diagnosis([(error, int(line[1]) if line else None) for error, line in zip(errors, lines, strict=True)])

    def fitness_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask for the share of tests that a program would pass (LLM-based FE; wording ours)."""
        shown = {"problem": self._problem(problem), "code": self._code(response), "seconds": self._seconds}
        text = self._prompts.render("fitness", **shown)
        return self._prompt(text, FITNESS_SCHEMA, role="fitness", problem=problem.id, answers=[response.answer])

    def parse_fitness(self, text: str) -> float | None:
        """Read a score; see `read_fitness`."""
        return read_fitness(text)


def _diagnosis(errors: Sequence[tuple[str, int | None]]) -> Diagnosis:
    """errors: what each says, and the line that it names."""
    return Diagnosis(text=bulleted([text for text, _ in errors]), findings=tuple(line for _, line in errors))
