"""What genetic algorithms ask of a contest (Lyria): prompts that recombine solutions, and a model's errors and scores.

There is no symbolic system: nothing but the answer key could tell a right answer from a wrong one.
"""

from abc import ABC, abstractmethod
from typing import Any

from evorun.tasks.base import Problem, Prompt, Response
from evorun.tasks.capabilities import Diagnosis, Individual
from evorun.tasks.diagnosis import ERRORS_SCHEMA, FITNESS_SCHEMA, bulleted, read_errors, read_fitness
from evorun.tasks.prompt_files import PromptFiles

POSED = {"problem": "How much is 1 + 1?", "form": "an integer"}
CANDIDATE = {"answer": "2", "reasoning": "Counting on from 1 gives \\boxed{2}."}
EXAMPLES: dict[str, dict[str, Any]] = {
    "crossover": {**POSED, "first": "Answer: 2", "second": "Answer: 3"},
    "mutation": {**POSED, "individual": "Answer: 3"},
    "individual": {**CANDIDATE, "fitness": 50.0, "errors": "- The sum is wrong."},
    "errors": {**POSED, **CANDIDATE},
    "fitness": {**POSED, **CANDIDATE},
}
"""The prompt files that this adds, with a value for each variable that they are given."""


class Recombination(ABC):
    """Recombines, Diagnoses and Scores; what it builds upon is the task's."""

    _prompts: PromptFiles

    @abstractmethod
    def _prompt(self, text: str, schema: dict[str, Any] | None = None, **hints: Any) -> Prompt: ...

    @abstractmethod
    def _posed(self, problem: Problem) -> dict[str, str]:
        """Return `problem`, its text, and `form`, what its answer must look like."""

    @abstractmethod
    def _candidate(self, response: Response) -> dict[str, str]: ...

    def crossover_prompt(self, problem: Problem, first: Individual, second: Individual) -> Prompt:
        """Ask for a solution that joins what is good in two (Lyria's LCO; wording ours)."""
        parents = {"first": self._individual(first), "second": self._individual(second)}
        text = self._prompts.render("crossover", **self._posed(problem), **parents)
        answers = [first.response.answer, second.response.answer]
        return self._prompt(text, role="crossover", problem=problem.id, answers=answers)

    def mutation_prompt(self, problem: Problem, individual: Individual) -> Prompt:
        """Ask for a mended solution (LMO; wording ours)."""
        text = self._prompts.render("mutation", **self._posed(problem), individual=self._individual(individual))
        return self._prompt(text, role="mutate", problem=problem.id, answers=[individual.response.answer])

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask which steps, or which answer, are wrong (LED; wording ours)."""
        text = self._prompts.render("errors", **self._posed(problem), **self._candidate(response))
        return self._prompt(text, ERRORS_SCHEMA, role="errors", problem=problem.id, answers=[response.answer])

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        """Read a list of errors; findings are their texts."""
        errors = read_errors(text, max_errors)
        return None if errors is None else Diagnosis(text=bulleted(errors), findings=tuple(errors))

    def fitness_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask how sound a solution is (LLM-based FE; wording ours)."""
        text = self._prompts.render("fitness", **self._posed(problem), **self._candidate(response))
        return self._prompt(text, FITNESS_SCHEMA, role="fitness", problem=problem.id, answers=[response.answer])

    def parse_fitness(self, text: str) -> float | None:
        """Read a score; see `read_fitness`."""
        return read_fitness(text)

    def _individual(self, individual: Individual) -> str:
        return self._prompts.render(
            "individual",
            **self._candidate(individual.response),
            fitness=individual.fitness,
            errors=individual.errors.text,
        )
