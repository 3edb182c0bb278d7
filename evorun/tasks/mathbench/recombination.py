"""What genetic algorithms ask of MathBench (Lyria): prompts that recombine answers, and a model's errors and scores.

There is no symbolic system: nothing but the answer key could tell a right letter from a wrong one, and there is nothing
in a letter to operate on.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from evorun.tasks.base import Problem, Prompt, Response
from evorun.tasks.capabilities import Diagnosis, Individual
from evorun.tasks.diagnosis import ERRORS_SCHEMA, FITNESS_SCHEMA, bulleted, read_errors, read_fitness
from evorun.tasks.mathbench.records import OPTIONS
from evorun.tasks.multiple_choice import letters
from evorun.tasks.prompt_files import PromptFiles

_QUESTION = {"question": "How much is 1 + 1?", "options": "A. 1\nB. 2\nC. 3\nD. 4"}
_CANDIDATE = {"answer_letter": "B", "option_text": "2", "reasoning": "Counting on from 1 gives 2."}
EXAMPLES: dict[str, dict[str, Any]] = {
    "crossover": {**_QUESTION, "letters": letters(OPTIONS), "first": "Answer: B (2)", "second": "Answer: C (3)"},
    "mutation": {**_QUESTION, "letters": letters(OPTIONS), "individual": "Answer: C (3)"},
    "individual": {**_CANDIDATE, "fitness": 50.0, "errors": "- The sum is wrong."},
    "errors": {**_QUESTION, **_CANDIDATE},
    "fitness": {**_QUESTION, **_CANDIDATE},
}
"""The prompt files that this adds, with a value for each variable that they are given."""


class Recombination(ABC):
    """Recombines, Diagnoses and Scores; what it builds upon is the task's."""

    _prompts: PromptFiles
    _schema: dict[str, Any]

    @abstractmethod
    def _prompt(self, text: str, schema: dict[str, Any], **hints: Any) -> Prompt: ...

    @abstractmethod
    def _posed(self, problem: Problem) -> Mapping[str, str]:
        """Return `question` and `options` as prompts show them."""

    @abstractmethod
    def _candidate(self, problem: Problem, response: Response) -> dict[str, str]: ...

    def crossover_prompt(self, problem: Problem, first: Individual, second: Individual) -> Prompt:
        """Ask for an answer that joins what is good in two (Lyria's LCO; wording ours)."""
        parents = {"first": self._individual(problem, first), "second": self._individual(problem, second)}
        text = self._prompts.render("crossover", **self._posed(problem), letters=letters(OPTIONS), **parents)
        answers = [first.response.answer, second.response.answer]
        return self._prompt(text, self._schema, role="crossover", problem=problem.id, answers=answers)

    def mutation_prompt(self, problem: Problem, individual: Individual) -> Prompt:
        """Ask for a mended answer (LMO; wording ours)."""
        shown = self._individual(problem, individual)
        text = self._prompts.render("mutation", **self._posed(problem), letters=letters(OPTIONS), individual=shown)
        answers = [individual.response.answer]
        return self._prompt(text, self._schema, role="mutate", problem=problem.id, answers=answers)

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask which steps, or which choice, are wrong (LED; wording ours)."""
        text = self._prompts.render("errors", **self._posed(problem), **self._candidate(problem, response))
        return self._prompt(text, ERRORS_SCHEMA, role="errors", problem=problem.id, answers=[response.answer])

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        """Read a list of errors; findings are their texts."""
        errors = read_errors(text, max_errors)
        return None if errors is None else Diagnosis(text=bulleted(errors), findings=tuple(errors))

    def fitness_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask how sound an answer is (LLM-based FE; wording ours)."""
        text = self._prompts.render("fitness", **self._posed(problem), **self._candidate(problem, response))
        return self._prompt(text, FITNESS_SCHEMA, role="fitness", problem=problem.id, answers=[response.answer])

    def parse_fitness(self, text: str) -> float | None:
        """Read a score; see `read_fitness`."""
        return read_fitness(text)

    def _individual(self, problem: Problem, individual: Individual) -> str:
        return self._prompts.render(
            "individual",
            **self._candidate(problem, individual.response),
            fitness=individual.fitness,
            errors=individual.errors.text,
        )
