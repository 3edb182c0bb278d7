"""What methods may touch of MathBench: its prompts (Duel-Evolve, B.1) and the reading of responses and verdicts."""

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from evorun.models.base import Message
from evorun.tasks.attempts import shown_attempts
from evorun.tasks.base import Demonstration, Problem, Prompt, Response, Task
from evorun.tasks.capabilities import Attempt, Judgment, ScoredResponse
from evorun.tasks.judging import VERDICT_SCHEMA, parse_judgment
from evorun.tasks.mathbench import recombination
from evorun.tasks.mathbench.recombination import Recombination
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
    "few_shot": {**_QUESTION, "letters": letters(OPTIONS), "few_shot_examples": "# Problem"},
    "demonstration": {**_QUESTION, "response": "{}"},
    "refinement": {**_QUESTION, "letters": letters(OPTIONS), "incumbent": "Answer: B (2)", "attempts": "Answer: C (3)"},
    "attempt": {**_CANDIDATE, "number": 1, "outcome": "the first attempt", "reason": "It checks its steps."},
    "instruction": {"letters": letters(OPTIONS)},
    "instructed": _QUESTION,
    "reflection": {**_CANDIDATE, "error": "", "right_letter": "B", "right_text": "2"},
    **recombination.EXAMPLES,
}
"""Every prompt file, with a value for each variable that it is given."""
_OPTIONAL = frozenset({"letters", "option_text", "number", "error", "right_text"})


class MathBench(Recombination, Task):
    """Answers a question by option letter; improves on scored answers, recombines and compares answers."""

    name = "mathbench"

    def __init__(
        self, *, prompts: str | None = None, reasoning_max_chars: int = 3000, shown_reasoning_chars: int = 1200
    ) -> None:
        """Compile the prompts; raises ConfigError naming the file that cannot be used.

        prompts: folder of the user's own files. *_chars: characters. See `MathBenchConfig`.
        """
        self._prompts = PromptFiles(Path(__file__).parent / "prompts", prompts, _EXAMPLES, _OPTIONAL)
        self._shown_reasoning_chars = shown_reasoning_chars
        self._schema = answer_schema(OPTIONS, reasoning_max_chars)
        self._system = Message(role="system", content=self._prompts.render("system"))
        self._instruction = self._prompts.render("instruction", letters=letters(OPTIONS))

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

    def few_shot_prompt(self, problem: Problem, demonstrations: Sequence[Demonstration]) -> Prompt:
        """Ask for an answer, with solved problems in view (B.1.5)."""
        examples = "\n\n".join(map(self._solved, demonstrations))
        text = self._prompts.render("few_shot", **_shown(problem), letters=letters(OPTIONS), few_shot_examples=examples)
        return self._prompt(text, self._schema, role="few_shot", problem=problem.id, answers=[])

    def demonstration(self, demonstration: Demonstration, response: Response) -> Demonstration:
        """Return the demonstration with a response's letter and reasoning."""
        return msgspec.structs.replace(demonstration, answer=response.answer or "", reasoning=response.reasoning)

    def refinement_prompt(self, problem: Problem, incumbent: Response, attempts: Sequence[Attempt]) -> Prompt:
        """Ask for a better answer than the incumbent's, in view of the attempts so far (appendix D; wording ours)."""
        blocks = shown_attempts(self._prompts, attempts, partial(self._candidate, problem))
        best = self._prompts.render("candidate", **self._candidate(problem, incumbent))
        text = self._prompts.render(
            "refinement", **_shown(problem), letters=letters(OPTIONS), incumbent=best, attempts=blocks
        )
        return self._prompt(text, self._schema, role="refine", problem=problem.id, answers=[incumbent.answer])

    def seed_instruction(self) -> str:
        """Return the system prompt to start from (B.1.6)."""
        return self._instruction

    def instructed_prompt(self, problem: Problem, instruction: str) -> Prompt:
        """Ask for an answer under this system prompt (B.1.6)."""
        text = self._prompts.render("instructed", **_shown(problem))
        own = "" if instruction == self._instruction else blake2b(instruction.encode("utf-8", "replace")).hexdigest()
        prompt = self._prompt(text, self._schema, role="instruct", problem=problem.id, answers=[], instruction=own)
        system = Message(role="system", content=instruction)
        return msgspec.structs.replace(prompt, messages=(system, *prompt.messages[1:]))

    def reflection_record(self, problem: Problem, response: Response, demonstration: Demonstration | None) -> str:
        """Show a response; with the demonstration, say whether it is right, and name the right letter where not."""
        right = demonstration.answer if demonstration else ""
        return self._prompts.render(
            "reflection",
            **self._candidate(problem, response),
            error=response.error or "",
            right_letter=right,
            right_text=option_text(right, problem.data["options"]) if right else "",
        )

    def parse(self, problem: Problem, text: str) -> Response:
        """Parse a completion; see `parse_choice`."""
        return parse_choice(text, problem.data["options"])

    def parse_judgment(self, text: str) -> Judgment:
        """Parse a judge's completion; see `evorun.tasks.judging.parse_judgment`."""
        return parse_judgment(text)

    def _prompt(self, text: str, schema: dict[str, Any], **hints: Any) -> Prompt:
        return Prompt(messages=(self._system, Message(role="user", content=text)), json_schema=schema, hints=hints)

    def _posed(self, problem: Problem) -> dict[str, str]:
        return _shown(problem)

    def _solved(self, demonstration: Demonstration) -> str:
        reply = {"reasoning": demonstration.reasoning, "solution": demonstration.answer}
        return self._prompts.render(
            "demonstration", **_shown(demonstration.problem), response=msgspec.json.encode(reply).decode()
        )

    def _candidate(self, problem: Problem, response: Response) -> dict[str, str]:
        # A response that could not be parsed is still shown: as its text, without an answer.
        answer = response.answer
        reasoning = response.reasoning if answer else response.reasoning or response.text
        return {
            "answer_letter": answer or "none",
            "option_text": option_text(answer, problem.data["options"]) if answer else "",
            "reasoning": reasoning[: self._shown_reasoning_chars],
        }


def _shown(problem: Problem) -> dict[str, str]:
    return {"question": problem.data["question"], "options": lettered(problem.data["options"])}
