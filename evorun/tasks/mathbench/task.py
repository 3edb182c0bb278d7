"""What methods may touch of MathBench: its prompts (Duel-Evolve, B.1) and the reading of responses and verdicts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evorun.models.base import Message
from evorun.tasks.base import Judgment, Problem, Prompt, Response, ScoredResponse, Task
from evorun.tasks.judging import VERDICT_SCHEMA, parse_judgment
from evorun.tasks.mathbench.records import OPTIONS
from evorun.tasks.multiple_choice import answer_schema, lettered, letters, option_text, parse_choice
from evorun.tasks.prompt_files import PromptFiles

_QUESTION = {"question": "How much is 1 + 1?", "options": "A. 1\nB. 2\nC. 3\nD. 4"}
_CANDIDATE = {"answer_letter": "B", "option_text": "2", "reasoning": "Counting on from 1 gives 2."}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "system": {},
    "generation": {**_QUESTION, "letters": letters(OPTIONS)},
    "evolution": {**_QUESTION, "letters": letters(OPTIONS), "parent_solutions": "Answer: B (2)"},
    "parent": {**_CANDIDATE, "score": 0.5},
    "judge": {**_QUESTION, "candidate_a": "Answer: B (2)", "candidate_b": "Answer: C (3)"},
    "candidate": _CANDIDATE,
}
"""Every prompt file, with a value for each variable that it is given."""
_OPTIONAL = frozenset({"letters", "option_text"})


class MathBench(Task):
    """Answers a question by option letter; improves on scored answers; compares two answers."""

    name = "mathbench"

    def __init__(self, *, prompts: str | None = None, reasoning_max_chars: int = 1200) -> None:
        """Compile the prompts; raises ConfigError naming the file that cannot be used.

        prompts: folder of the user's own files, see `MathBenchConfig.prompts`. reasoning_max_chars: characters.
        """
        self._prompts = PromptFiles(Path(__file__).parent / "prompts", prompts, _EXAMPLES, _OPTIONAL)
        self._reasoning_chars = reasoning_max_chars
        self._schema = answer_schema(OPTIONS, reasoning_max_chars)
        self._system = Message(role="system", content=self._prompts.render("system"))

    def generation_prompt(self, problem: Problem) -> Prompt:
        """Ask for an answer from scratch (B.1.1)."""
        text = self._prompts.render("generation", **_shown(problem), letters=letters(OPTIONS))
        return self._prompt(text, self._schema, role="generate", problem=problem.id, answers=[])

    def evolution_prompt(self, problem: Problem, parents: Sequence[ScoredResponse]) -> Prompt:
        """Ask for a better answer than the parents', each shown with its score to three decimals (B.1.2, B.1.3)."""
        blocks = "\n\n".join(
            self._prompts.render("parent", **self._candidate(problem, parent.response), score=parent.score)
            for parent in parents
        )
        text = self._prompts.render("evolution", **_shown(problem), letters=letters(OPTIONS), parent_solutions=blocks)
        answers = [parent.response.answer for parent in parents]
        return self._prompt(text, self._schema, role="evolve", problem=problem.id, answers=answers)

    def judge_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        """Ask which of two responses is better, or whether they tie (B.1.4)."""
        shown = [self._prompts.render("candidate", **self._candidate(problem, r)) for r in (first, second)]
        text = self._prompts.render("judge", **_shown(problem), candidate_a=shown[0], candidate_b=shown[1])
        answers = [first.answer, second.answer]
        return self._prompt(text, VERDICT_SCHEMA, role="judge", problem=problem.id, answers=answers)

    def parse(self, problem: Problem, text: str) -> Response:
        """Parse a completion; see `parse_choice`."""
        return parse_choice(text, problem.data["options"])

    def parse_judgment(self, text: str) -> Judgment:
        """Parse a judge's completion; see `evorun.tasks.judging.parse_judgment`."""
        return parse_judgment(text)

    def _prompt(self, text: str, schema: dict[str, Any], **hints: Any) -> Prompt:
        return Prompt(messages=(self._system, Message(role="user", content=text)), json_schema=schema, hints=hints)

    def _candidate(self, problem: Problem, response: Response) -> dict[str, str]:
        # A response that could not be parsed is still shown: as its text, without an answer.
        answer = response.answer
        reasoning = response.reasoning if answer else response.reasoning or response.text
        return {
            "answer_letter": answer or "none",
            "option_text": option_text(answer, problem.data["options"]) if answer else "",
            "reasoning": reasoning[: self._reasoning_chars],
        }


def _shown(problem: Problem) -> dict[str, str]:
    return {"question": problem.data["question"], "options": lettered(problem.data["options"])}
