"""What methods may touch of a contest: its prompts (wording ours) and the reading of responses and verdicts."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from evorun.models.base import Message
from evorun.tasks.attempts import shown_attempts
from evorun.tasks.base import Demonstration, DrawHelp, Problem, Prompt, Response, Task
from evorun.tasks.capabilities import Attempt, Judgment, ScoredResponse
from evorun.tasks.json_text import well_formed
from evorun.tasks.judging import VERDICT_SCHEMA, parse_judgment
from evorun.tasks.math_contest import recombination
from evorun.tasks.math_contest.boxes import last_boxed
from evorun.tasks.math_contest.reading import canonical, read_integer
from evorun.tasks.math_contest.recombination import CANDIDATE, POSED, Recombination
from evorun.tasks.prompt_files import PromptFiles

MAX_ANSWER_CHARS = 500
"""Longest answer that is read (ours; of MATH's, none has 100)."""

_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "system": {},
    "generation": POSED,
    "evolution": {**POSED, "parent_solutions": "Answer: 2"},
    "parent": {**CANDIDATE, "score": 0.5},
    "judge": {**POSED, "candidate_a": "Answer: 2", "candidate_b": "Answer: 3"},
    "candidate": CANDIDATE,
    "few_shot": {**POSED, "few_shot_examples": "# Problem"},
    "demonstration": {**POSED, "response": "Counting on from 1 gives \\boxed{2}."},
    "refinement": {**POSED, "incumbent": "Answer: 2", "attempts": "Answer: 3"},
    "attempt": {**CANDIDATE, "number": 1, "outcome": "the first attempt", "reason": "It checks its steps."},
    "instruction": {"form": POSED["form"]},
    "instructed": POSED,
    "reflection": {**CANDIDATE, "error": "", "right": True, "right_answer": "2"},
    **recombination.EXAMPLES,
}
"""Every prompt file, with a value for each variable that it is given."""
_OPTIONAL = frozenset({"form", "answer", "number", "error", "right"})


class MathContest(Recombination, Task):
    """Answers a problem in free text that ends in a box; improves on scored texts, recombines and compares them."""

    name = "math_contest"
    prompt_examples: ClassVar[Mapping[str, Mapping[str, Any]]] = _EXAMPLES
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    """Where its prompt files are; of several folders the first that has the file."""
    draw_help = DrawHelp(
        more_validation="raise task.validation_problems (they come from the train split, less what the run works on)",
        grade_held_out="set task.split=train to grade it",
        keys="task.split, task.train, task.test, task.draw_seed and task.limit",
    )

    def __init__(
        self,
        *,
        integers: bool = True,
        largest: int | None = None,
        prompts: str | None = None,
        shown_reasoning_chars: int = 2000,
    ) -> None:
        """Compile the prompts; raises ConfigError naming the file that cannot be used.

        integers: answers are integers, from 0 to `largest` where that is given. prompts: folder of the user's own
        files. shown_reasoning_chars: see `MathContestConfig`.
        """
        self._prompts = PromptFiles(self.prompt_folders, prompts, self.prompt_examples, _OPTIONAL)
        self.integers = integers
        self.largest = largest
        self._shown_reasoning_chars = shown_reasoning_chars
        self._system = Message(role="system", content=self._prompts.render("system"))
        self._form = _form(integers, largest)
        self._instruction = self._prompts.render("instruction", form=self._form)

    def generation_prompt(self, problem: Problem) -> Prompt:
        """Ask for a solution from scratch."""
        text = self._prompts.render("generation", **self._posed(problem))
        return self._prompt(text, role="generate", problem=problem.id, answers=[])

    def evolution_prompt(self, problem: Problem, parents: Sequence[ScoredResponse]) -> Prompt:
        """Ask for a better solution than the parents', each shown with its score to three decimals."""
        blocks = "\n\n".join(
            self._prompts.render("parent", **self._candidate(parent.response), score=parent.score) for parent in parents
        )
        text = self._prompts.render("evolution", **self._posed(problem), parent_solutions=blocks)
        answers = [parent.response.answer for parent in parents]
        return self._prompt(text, role="evolve", problem=problem.id, answers=answers)

    def judge_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        """Ask which of two solutions is better, or whether they tie."""
        shown = [self._prompts.render("candidate", **self._candidate(response)) for response in (first, second)]
        text = self._prompts.render("judge", **self._posed(problem), candidate_a=shown[0], candidate_b=shown[1])
        answers = [first.answer, second.answer]
        return self._prompt(text, VERDICT_SCHEMA, role="judge", problem=problem.id, answers=answers)

    def few_shot_prompt(self, problem: Problem, demonstrations: Sequence[Demonstration]) -> Prompt:
        """Ask for a solution, with solved problems in view."""
        examples = "\n\n".join(map(self._solved, demonstrations))
        text = self._prompts.render("few_shot", **self._posed(problem), few_shot_examples=examples)
        return self._prompt(text, role="few_shot", problem=problem.id, answers=[])

    def demonstration(self, demonstration: Demonstration, response: Response) -> Demonstration:
        """Return the demonstration with a response's answer and text."""
        return msgspec.structs.replace(demonstration, answer=response.answer or "", reasoning=response.reasoning)

    def refinement_prompt(self, problem: Problem, incumbent: Response, attempts: Sequence[Attempt]) -> Prompt:
        """Ask for a better solution than the incumbent, in view of the attempts so far."""
        blocks = shown_attempts(self._prompts, attempts, self._candidate)
        best = self._prompts.render("candidate", **self._candidate(incumbent))
        text = self._prompts.render("refinement", **self._posed(problem), incumbent=best, attempts=blocks)
        return self._prompt(text, role="refine", problem=problem.id, answers=[incumbent.answer])

    def seed_instruction(self) -> str:
        """Return the system prompt to start from."""
        return self._instruction

    def instructed_prompt(self, problem: Problem, instruction: str) -> Prompt:
        """Ask for a solution under this system prompt."""
        text = self._prompts.render("instructed", **self._posed(problem))
        own = "" if instruction == self._instruction else blake2b(instruction.encode("utf-8", "replace")).hexdigest()
        prompt = self._prompt(text, role="instruct", problem=problem.id, answers=[], instruction=own)
        system = Message(role="system", content=instruction)
        return msgspec.structs.replace(prompt, messages=(system, *prompt.messages[1:]))

    def reflection_record(self, problem: Problem, response: Response, demonstration: Demonstration | None) -> str:
        """Show a response; with the demonstration, say whether it is right, or name the right answer.

        Values that take algebra to compare are not recognised as equal here: the right one is then named beside them.
        """
        right_answer = demonstration.answer if demonstration else ""
        answer = response.answer
        return self._prompts.render(
            "reflection",
            **self._candidate(response),
            error=response.error or "",
            right=answer is not None and canonical(answer) == canonical(right_answer),
            right_answer=right_answer,
        )

    def parse(self, problem: Problem, text: str) -> Response:
        r"""Read the last boxed answer; never raises.

        `answer` is the integer's decimal digits, or the box's content where answers are expressions. Without one,
        `error` starts with its kind: `empty`, `no_box`, `too_long`, `not_an_integer` or `out_of_range`.
        """
        text = well_formed(text)
        answer, error = self._answer(text)
        return Response(text=text, answer=answer, reasoning=text.strip(), error=error)

    def signature(self, problem: Problem, response: Response) -> str:
        """Return the answer in canonical form, so that votes are counted by value as far as texts tell."""
        return canonical(response.answer or "")

    def parse_judgment(self, text: str) -> Judgment:
        """Parse a judge's completion; see `evorun.tasks.judging.parse_judgment`."""
        return parse_judgment(text)

    def _answer(self, text: str) -> tuple[str | None, str | None]:
        """Return (answer, None), or (None, error)."""
        if not text.strip():
            return None, "empty: the completion has no text"
        boxed = last_boxed(text)
        if not boxed:
            return (
                None,
                "no_box: expected the text to end in \\boxed{ANSWER}, found no finished box with something in it",
            )
        if len(boxed) > MAX_ANSWER_CHARS:
            return None, f"too_long: expected an answer of at most {MAX_ANSWER_CHARS} characters, got {len(boxed)}"
        if not self.integers:
            return boxed, None
        value = read_integer(boxed)
        if value is None:
            return None, f"not_an_integer: expected {self._form}, got {boxed!r:.60}"
        if self.largest is not None and not 0 <= value <= self.largest:
            return None, f"out_of_range: expected {self._form}, got {value}"
        return str(value), None

    def _prompt(self, text: str, schema: dict[str, Any] | None = None, **hints: Any) -> Prompt:
        return Prompt(messages=(self._system, Message(role="user", content=text)), json_schema=schema, hints=hints)

    def _posed(self, problem: Problem) -> dict[str, str]:
        return {"problem": problem.data["problem"], "form": self._form}

    def _solved(self, demonstration: Demonstration) -> str:
        response = demonstration.reasoning or f"\\boxed{{{demonstration.answer}}}"
        return self._prompts.render("demonstration", **self._posed(demonstration.problem), response=response)

    def _candidate(self, response: Response) -> dict[str, str]:
        return {"answer": response.answer or "none", "reasoning": _end(response.reasoning, self._shown_reasoning_chars)}


def _form(integers: bool, largest: int | None) -> str:
    """Return what an answer must look like, as prompts say it."""
    if not integers:
        return "the exact value in its simplest form"
    return "an integer" if largest is None else f"an integer from 0 to {largest}"


def _end(text: str, chars: int) -> str:
    """Return the text's last characters: where the argument comes to its answer."""
    return text if len(text) <= chars else f"[...] {text[-chars:]}"
