"""A combinatorial puzzle as methods see it, its symbolic system, and the simulated model that knows a solution."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY, Score
from evorun.runs.streams import stream
from evorun.simulation.reviewing import score_response
from evorun.simulation.simulator import SKILLS, Filler
from evorun.tasks.base import Demonstration, DrawHelp, Grade, Problem, Prompt, Row, Tools
from evorun.tasks.capabilities import Diagnosis, Verification
from evorun.tasks.clauses import is_supposed
from evorun.tasks.corrections import read_unless_withdrawn
from evorun.tasks.puzzles.denials import choose_block, drop_supposed
from evorun.tasks.puzzles.lenient import closing_passages
from evorun.tasks.puzzles.reading import Block, blocks, fence, last_block
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask
from evorun.tasks.thinking import without_thinking

PENALISED_SCORE = "penalised_score"
"""PS of section 3, in [0, 100]: a score of every puzzle, and the oracle's fitness (section 4.1.4)."""
PENALISED_SCORE_PAPER = "penalised_score_paper"
"""PS by the paper's literal formula, from which evorun's differs in some cases (see each `metrics`)."""
_OWN_FILES = ("rules", "puzzle", "answer_format", "error_format", "fitness_rule")


class Puzzle(TextTask):
    """Answers in a fenced block (Lyria paper, prompt templates 1 to 15); a subclass defines a kind of puzzle.

    The prompt files `rules`, `puzzle`, `answer_format`, `error_format` and `fitness_rule` receive its `puzzle_values`;
    all other files receive those five texts, too. Answers are in canonical form: equal answers have equal texts.

    The fitness rules in prompts follow the metrics of section 3, even where the templates differ: template 4 adds a
    `delta` to each share, and template 6 divides the missing cities by the route's length less one, not by their
    number.
    """

    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    wording: Mapping[str, str] = {"persona": ""}  # no system prompt: the paper's templates have none
    scores: ClassVar[tuple[Score, ...]] = (ACCURACY, Score(PENALISED_SCORE, 0, 100))
    draw_help = DrawHelp(
        more_validation="raise task.validation_instances (with task.data also lower task.instances)",
        grade_held_out="no generated one of them can be graded; with task.data raise task.instances to grade it",
        keys="task.split, task.instances, task.training_instances, task.draw_seed and task.limit",
    )

    def __init__(self, *, prompts: str | None = None, shown_reasoning_chars: int | None = None) -> None:
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)

    # --- what a subclass defines ---

    @abstractmethod
    def puzzle_values(self, problem: Problem) -> Mapping[str, Any]:
        """Return the placeholders of the subclass's own prompt files."""

    @abstractmethod
    def read_answer(self, problem: Problem, block: str) -> str:
        """Return the answer in a fenced block, in canonical form. Raises ValueError with the fault."""

    @abstractmethod
    def measure(self, problem: Problem, answer: str | None) -> Grade:
        """Return the metrics of an answer, with CR as `correct`; None means an unparsed text."""

    @abstractmethod
    def findings(self, problem: Problem, answer: str) -> tuple[Any, ...]:
        """Return all semantic errors of an answer (SE of section 4.1.1), worst first where they differ: JSON values."""

    @abstractmethod
    def describe(self, problem: Problem, findings: Sequence[Any]) -> str:
        """Describe errors for prompts, in the form of `error_format`."""

    @abstractmethod
    def read_findings(self, problem: Problem, block: str) -> tuple[Any, ...] | None:
        """Parse errors in the form of `error_format`; None when they cannot be read."""

    # --- the symbolic system ---

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        """Score by the penalised score and name the first errors (sections 4.1.1 and 4.1.4). Uses no tools."""
        return self.verified(problem, response, max_errors)

    def verified(self, problem: Problem, response: Response, max_errors: int) -> Verification:
        """Return the same without awaiting; it is a pure function."""
        fitness = self.measure(problem, response.answer).scores[PENALISED_SCORE]
        if response.answer is None:
            # A syntax error does not count towards the limit, except for a limit of 0 (XE, section 4.1.1).
            text = f"The answer cannot be read: {response.error or 'it has another format'}" if max_errors else ""
            return Verification(fitness=fitness, errors=Diagnosis(text=text))
        errors = self._diagnosis(problem, self.findings(problem, response.answer), max_errors)
        return Verification(fitness=fitness, errors=errors)

    def _diagnosis(self, problem: Problem, findings: tuple[Any, ...], max_errors: int) -> Diagnosis:
        # The limit holds for models and the symbolic system alike: Lyria's ablations compare them at equal numbers of
        # errors.
        named = findings[:max_errors]
        return Diagnosis(text=self.describe(problem, named) if named else "", findings=named)

    def response(self, answer: str) -> Response:
        """Wrap an answer that no model wrote in a response."""
        return Response(text=fence(answer), answer=answer)

    # --- what differs from the default ---

    def question(self, problem: Problem) -> str:
        text: str = self.cached_problem_values(problem)["question"]
        return text

    def shared_values(self) -> Mapping[str, Any]:
        return {}  # the answer's format depends on the puzzle's size

    def problem_values(self, problem: Problem) -> Mapping[str, Any]:
        # Five small files instead of one, so that judges, evaluators and solvers get the same wording of the rules.
        values = self.puzzle_values(problem)
        own = {name: self.prompts.render(name, **values) for name in _OWN_FILES}
        return {**values, **own, "question": f"{own['rules']}\n\n{own['puzzle']}"}

    def response_values(self, problem: Problem, response: Response) -> Mapping[str, Any]:
        # An unparsed response is shown as its text.
        answer = self.excerpt(response.text) if response.answer is None else response.answer
        return {"answer": answer, "reasoning": self.excerpt(response.reasoning)}

    def reasoning(self, text: str, answer: str | None) -> str:
        """Return the text before the last fenced block; the whole text if its answer is not in a block."""
        found = last_block(text)
        return text[: found.start].strip() if found else text.strip() if answer else ""

    def read(self, problem: Problem, text: str) -> str:
        """Read the last fenced block with an answer; without blocks, the closing passages of the text.

        Fenced blocks without an answer may follow: a check, a program, the puzzle. A withdrawn answer does not count.
        Raises ValueError with the fault of the last block.
        """
        return read_unless_withdrawn(partial(self._read_last, problem), text)

    def _read_last(self, problem: Problem, text: str) -> str:
        all_blocks = [*blocks(text)]
        answer_blocks = [block for block in all_blocks if not is_supposed(text, block.start)]
        if all_blocks and not answer_blocks:
            raise ValueError("supposed: the answer is denied or counterfactual")
        passages = [block.content for block in reversed(answer_blocks)] or self.closing_passages(drop_supposed(text))
        errors = []
        for behind, passage in enumerate(passages, 1):
            try:
                answer = self.read_answer(problem, passage)
            except ValueError as error:
                errors.append(f"format: {error}")
                continue
            return self._choose(problem, text, answer_blocks[: len(answer_blocks) - behind + 1], answer)
        raise ValueError(errors[0] if answer_blocks else "no_block: no fenced block with an answer")

    def _choose(self, problem: Problem, text: str, answer_blocks: Sequence[Block], answer: str) -> str:
        """Return the answer, or that of the previous block if the text offers both and chooses that one."""
        if len(answer_blocks) < 2:
            return answer
        try:
            previous = self.read_answer(problem, answer_blocks[-2].content)
        except ValueError:
            return answer
        choice = answer_blocks[-1] if previous == answer else choose_block(text, *answer_blocks[-2:])
        if choice is None:
            raise ValueError("ambiguous: expected one answer, got two between which the text does not decide")
        return answer if choice is answer_blocks[-1] else previous

    def closing_passages(self, text: str) -> Iterable[str]:
        """Return the parts of a text without fenced blocks that may hold its answer, most likely first."""
        return closing_passages(text)

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"{reasoning}\n{fence(answer)}".lstrip()

    def solution(self, demonstration: Demonstration) -> str:
        return self.write(demonstration.problem, demonstration.answer, demonstration.reasoning)

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Grade by the metrics of section 3; an unparsed response has the worst value of each."""
        grade = self.measure(problem, response.answer)
        detail = response.error or ", ".join(f"{name} {value:.4g}" for name, value in grade.scores.items())
        return msgspec.structs.replace(grade, detail=detail)

    def ask(self, role: str, file: str, problem: Problem, *args: Any, **values: Any) -> Prompt:
        prompt = super().ask(role, file, problem, *args, **values)
        # The paper's evaluators reason first and end with a fenced block or a number, so they get no schema.
        return prompt if role in ("judge", "rate") else msgspec.structs.replace(prompt, json_schema=None)

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        """Parse the last readable fenced block: `unreadable`, `none`, or errors in the form of `error_format`."""
        for block in reversed([*blocks(without_thinking(text))]):
            # Both words are part of the requested format, not errors of a puzzle.
            if block.content.lower() in ("none", "unreadable"):
                unreadable = block.content.lower() == "unreadable" and max_errors > 0
                return Diagnosis(text="The answer cannot be read." if unreadable else "")
            findings = self.read_findings(problem, block.content)
            if findings is not None:
                return self._diagnosis(problem, findings, max_errors)
        return None


# Share of a model's mistakes from scratch that it repeats when it revises a right decision (ours)
_SLIP_SHARE = 0.1
# Share of `Skill.improvement` for repairing a single wrong decision, since an answer has many (ours)
_REPAIR_SHARE = 0.25


# Answers from scratch to a puzzle at each of `SKILLS` (ours)
_DRAWS = 20


class SolvedPuzzle(ABC):
    """A problem with a solution, as a simulated model solves it. A decision is a cell, a vertex or a stop."""

    def __init__(self, task: Puzzle, problem: Problem, solution: str) -> None:
        """Hold the problem and its solution, in canonical form."""
        self._task = task
        self._problem = problem
        self._solution = solution

    @abstractmethod
    def attempt(self, skill: float, rng: np.random.Generator) -> str:
        """Return an answer from scratch: each decision is right with probability `skill`."""

    @abstractmethod
    def revise(
        self, answers: Sequence[str], choice: float, repair: float, slip: float, rng: np.random.Generator
    ) -> str:
        """Return an answer made from at least one other.

        Where they differ, a decision comes from a right one with probability `choice`. Then each wrong decision is
        repaired with probability `repair`, and each right one is lost with probability `slip`.
        """

    @abstractmethod
    def share_right(self, answer: str) -> float:
        """Return the share of its decisions in which an answer agrees with the solution, in [0, 1]."""

    def agreement(self, answer: str | None) -> float:
        """Return `share_right`; 1 for another solution as good as the known one, 0 for no answer."""
        if answer is None:
            return 0.0
        return 1.0 if self.fitness(answer) >= self.fitness(self._solution) else self.share_right(answer)

    @cached_property
    def agreement_by_skill(self) -> Sequence[float]:
        """The mean agreement of answers from scratch, at each of `SKILLS`; it never falls.

        It is more than the skill: any two tours have edges in common, and a puzzle may have several solutions.
        """
        rng = stream(0, "agreement by skill", self._problem.id)
        means = [np.mean([self.agreement(self.attempt(skill, rng)) for _ in range(_DRAWS)]) for skill in SKILLS]
        return tuple(np.maximum.accumulate(means).tolist())

    def fitness(self, answer: str | None) -> float:
        """Return the penalised score, in [0, 100]."""
        return self._task.measure(self._problem, answer).scores[PENALISED_SCORE]

    def errors(self, answer: str | None) -> str:
        """Return the block of an error detector without mistakes."""
        if answer is None:
            return "unreadable"
        findings = self._task.findings(self._problem, answer)
        return self._task.describe(self._problem, findings) if findings else "none"


class PuzzleSimulator(TextSimulator):
    """Decides a puzzle's cells, vertices or stops one by one, each right with probability `Skill.skill`."""

    filler: ClassVar[Filler] = Filler(
        "Look at what is fixed, see what it leaves open, decide the narrowest choice first and check it."
    )
    malformed: ClassVar[Sequence[str]] = (
        "I would begin with the most constrained place and go on from there.",
        "```\nno answer\n```",
        "The answer is easy to see",
        "",
    )
    verdict_reason: ClassVar[str] = "It breaks fewer rules."
    no_errors: ClassVar[str] = fence("none")
    adds_improvement: ClassVar[bool] = False
    has_typical_mistake: ClassVar[bool] = False
    solved: ClassVar[type[SolvedPuzzle]]

    def __init__(self, task: Puzzle, rows: Sequence[Row]) -> None:
        super().__init__(task, rows)
        self._puzzles = {row.problem.id: self.solved(task, row.problem, row.answer or "") for row in rows}

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        hints, skill = request.hints, self._skill
        if "problem" not in hints or hints["role"] in ("judge", "rate", "plan"):
            return super().respond(request, rng)
        malformed, luck, other, last = rng.random(4).tolist()
        if malformed < skill.malformed:
            return self.malformed[int(other * len(self.malformed))]
        puzzle, answers = self._puzzles[hints["problem"]], hints["answers"]
        careful = skill.judges_rightly(hints["problem"], luck, last)
        if hints["role"] == "score":
            return score_response(skill, request, puzzle.fitness(answers[0]) / 100 if careful else other, rng)
        if hints["role"] == "fitness":
            reply = f"{puzzle.fitness(answers[0]) if careful else 100 * other:.1f}"
        elif hints["role"] == "errors":
            # Every detector notices an unreadable answer, however careless it is.
            reply = fence(puzzle.errors(answers[0]) if careful or answers[0] is None else "none")
        else:
            chance = skill.answer_chance(request, ())
            readable = [answer for answer in answers if answer is not None]
            # A careful model rarely spoils right decisions; without any slips a search could only improve.
            slip = _SLIP_SHARE * max(0.0, 1 - chance)
            reply = fence(
                puzzle.revise(readable, skill.judge_skill, _REPAIR_SHARE * skill.improvement, slip, rng)
                if readable
                else puzzle.attempt(chance, rng)
            )
        return f"{self.filler.text(skill.words(last))}\n{reply}"

    def value(self, problem: Problem, answer: str | None) -> float:
        # Below every readable answer, whose penalised score is at least 0.
        return -1.0 if answer is None else self._puzzles[problem.id].fitness(answer)

    def can_grade(self, problem: str) -> bool:
        return problem in self._puzzles

    def grade_response(self, problem: str, text: str) -> float:
        return self._puzzles[problem].agreement(self._task.parse(self._rows[problem].problem, text).answer)

    def grades_by_skill(self, problem: str) -> Sequence[float]:
        return self._puzzles[problem].agreement_by_skill
