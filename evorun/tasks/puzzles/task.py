"""A combinatorial puzzle as methods see it: prompts around a fenced answer, and a symbolic system that knows better."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from evorun.models.base import Message
from evorun.runs.candidates import Response
from evorun.tasks.attempts import shown_attempts
from evorun.tasks.base import Demonstration, DrawHelp, Problem, Prompt, Task, Tools
from evorun.tasks.capabilities import Attempt, Diagnosis, Individual, Judgment, ScoredResponse, Verification
from evorun.tasks.diagnosis import last_score
from evorun.tasks.judging import VERDICT_SCHEMA, parse_judgment
from evorun.tasks.prompt_files import PromptFiles
from evorun.tasks.puzzles.reading import fenced, last_block

PENALISED_SCORE = "penalised_score"
"""PS of section 3, in [0, 100]: every puzzle has it, and it is the oracle's fitness (section 4.1.4)."""

_ASKED = {"rules": "Be right.", "puzzle": "1 .", "answer_format": "One line."}
_CANDIDATE = {"answer": "1 2", "reasoning": "What is left is 2."}
_INDIVIDUAL = {"number": 1, "answer": "1 2", "fitness": 50.0, "errors": "0,0,row"}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "generation": _ASKED,
    "evolution": {**_ASKED, "parent_solutions": "Score 0.500"},
    "parent": {**_CANDIDATE, "score": 0.5},
    "judge": {"rules": "Be right.", "puzzle": "1 .", "candidate_a": "1 2", "candidate_b": "1 1"},
    "candidate": _CANDIDATE,
    "refinement": {**_ASKED, "incumbent": "1 2", "attempts": "1 1"},
    "attempt": {**_CANDIDATE, "number": 1, "outcome": "the first attempt", "reason": "It repeats no digit."},
    "few_shot": {**_ASKED, "few_shot_examples": "# Puzzle"},
    "demonstration": {"puzzle": "1 .", "response": "```\n1 2\n```"},
    "instruction": {},
    "instructed": _ASKED,
    "reflection": {**_CANDIDATE, "error": "", "right_answer": "1 2"},
    "crossover": {**_ASKED, "first": "1 2", "second": "2 2"},
    "mutation": {**_ASKED, "individual": "1 1"},
    "individual": _INDIVIDUAL,
    "errors": {"rules": "Be right.", "puzzle": "1 .", "answer": "1 1", "error_format": "One a line."},
    "fitness": {"rules": "Be right.", "puzzle": "1 .", "answer": "1 1", "fitness_rule": "Count what is right."},
}
"""Every prompt file that all puzzles share, with a value for each variable that it is given."""
_OWN = ("rules", "puzzle", "answer_format", "error_format", "fitness_rule")
"""Prompt files that each puzzle has of its own; they are given what `Puzzle.shown` returns."""


class Measure(NamedTuple):
    """The metrics of one answer (Lyria paper, section 3)."""

    correct: bool
    scores: dict[str, float]
    """By metric name, `penalised_score` among them."""


class Puzzle(Task):
    """Base of the combinatorial tasks: a subclass knows one kind of puzzle, all prompting is here.

    Answers are texts in the subclass's canonical form: equal answers have equal texts.
    """

    prompts_folder: ClassVar[Path]
    """The subclass's own prompt files: rules, puzzle, answer_format, error_format, fitness_rule."""
    example: ClassVar[Mapping[str, Any]]
    """A value for each variable that `shown` returns."""
    draw_help = DrawHelp(
        more_validation="raise task.validation_instances (with task.data also lower task.instances)",
        grade_held_out="no generated one of them can be graded; with task.data raise task.instances to grade it",
        keys="task.split, task.instances, task.training_instances, task.instance_seed and task.limit",
    )

    def __init__(self, *, prompts: str | None = None, shown_reasoning_chars: int = 1200) -> None:
        """Compile the prompts; raises ConfigError naming the file that cannot be used.

        prompts: folder of the user's own files (`task.prompts`). shown_reasoning_chars: characters.
        """
        shared = Path(__file__).parent / "prompts"
        examples = {**_EXAMPLES, **{name: dict(self.example) for name in _OWN}}
        self._prompts = PromptFiles((self.prompts_folder, shared), prompts)
        for name, example in examples.items():
            self._prompts.render(name, **example)
        self._reasoning_chars = shown_reasoning_chars
        self._instruction = self._prompts.render("instruction")
        self._rendered: dict[str, tuple[Problem, dict[str, str]]] = {}

    # --- what a subclass knows ---

    @abstractmethod
    def shown(self, problem: Problem) -> Mapping[str, Any]:
        """Return the variables of the subclass's own prompt files."""

    @abstractmethod
    def read(self, problem: Problem, block: str) -> str:
        """Return the answer that a fenced block holds, in canonical form. Raises ValueError with what is wrong."""

    @abstractmethod
    def measure(self, problem: Problem, answer: str | None) -> Measure:
        """Return all metrics of an answer; None stands for a text that could not be read."""

    @abstractmethod
    def findings(self, problem: Problem, answer: str) -> tuple[Any, ...]:
        """Return all semantic errors of an answer (SE of section 4.1.1), worst first where they differ: JSON values."""

    @abstractmethod
    def describe(self, problem: Problem, findings: Sequence[Any]) -> str:
        """Return errors as prompts show them, in the form that `error_format` asks a model for."""

    @abstractmethod
    def read_findings(self, problem: Problem, block: str) -> tuple[Any, ...] | None:
        """Return the errors that a model names in the form of `error_format`; None when they cannot be read."""

    # --- answers ---

    def parse(self, problem: Problem, text: str) -> Response:
        """Read the last fenced block; what comes before it is the reasoning.

        The forms ask for bare numbers, as the paper's do: an answer in brackets is refused (XE, section 4.1.1).
        """
        found = last_block(text)
        if found is None:
            return Response(text=text, answer=None, error="no_block: no fenced block with an answer")
        try:
            answer = self.read(problem, found.content)
        except ValueError as error:
            return Response(text=text, answer=None, reasoning=found.before, error=f"format: {error}")
        return Response(text=text, answer=answer, reasoning=found.before)

    def response(self, answer: str) -> Response:
        """Return an answer that no model wrote as a response."""
        return Response(text=fenced(answer), answer=answer)

    # --- the symbolic system ---

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        """Score by the penalised score and name the first errors (section 4.1.1, 4.1.4). Uses no tools."""
        return self.verified(problem, response, max_errors)

    def verified(self, problem: Problem, response: Response, max_errors: int) -> Verification:
        """Do the same at once: it is a pure function."""
        fitness = self.measure(problem, response.answer).scores[PENALISED_SCORE]
        if response.answer is None:
            # A syntax error takes no part in the limit but for a limit of none (XE, section 4.1.1).
            text = f"The answer cannot be read: {response.error or 'it has another format'}" if max_errors else ""
            return Verification(fitness=fitness, errors=Diagnosis(text=text))
        return Verification(
            fitness=fitness, errors=self._diagnosis(problem, self.findings(problem, response.answer), max_errors)
        )

    def _diagnosis(self, problem: Problem, findings: tuple[Any, ...], max_errors: int) -> Diagnosis:
        named = findings[:max_errors]
        return Diagnosis(text=self.describe(problem, named) if named else "", findings=named)

    # --- asking ---

    def generation_prompt(self, problem: Problem) -> Prompt:
        """Ask for an answer from scratch (prompt templates 13 to 15)."""
        return _prompt(self._prompts.render("generation", **self._asked(problem)), "generate", problem)

    def evolution_prompt(self, problem: Problem, parents: Sequence[ScoredResponse]) -> Prompt:
        """Ask for a better answer than the parents', each shown with its score."""
        blocks = [
            self._prompts.render("parent", **self._candidate(parent.response), score=parent.score) for parent in parents
        ]
        text = self._prompts.render("evolution", **self._asked(problem), parent_solutions="\n\n".join(blocks))
        return _prompt(text, "evolve", problem, [parent.response for parent in parents])

    def judge_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        """Ask which of two answers is better, or whether they tie."""
        shown = [self._prompts.render("candidate", **self._candidate(response)) for response in (first, second)]
        asked = self._posed(problem)
        text = self._prompts.render("judge", **asked, candidate_a=shown[0], candidate_b=shown[1])
        return _prompt(text, "judge", problem, [first, second], schema=VERDICT_SCHEMA)

    def parse_judgment(self, text: str) -> Judgment:
        """Parse a judge's completion; see `evorun.tasks.judging.parse_judgment`."""
        return parse_judgment(text)

    def refinement_prompt(self, problem: Problem, incumbent: Response, attempts: Sequence[Attempt]) -> Prompt:
        """Ask for a better answer than the incumbent's, in view of the attempts so far."""
        blocks = shown_attempts(self._prompts, attempts, self._candidate)
        best = self._prompts.render("candidate", **self._candidate(incumbent))
        text = self._prompts.render("refinement", **self._asked(problem), incumbent=best, attempts=blocks)
        return _prompt(text, "refine", problem, [incumbent])

    def few_shot_prompt(self, problem: Problem, demonstrations: Sequence[Demonstration]) -> Prompt:
        """Ask for an answer, with solved puzzles in view."""
        examples = [
            self._prompts.render("demonstration", puzzle=self._own(d.problem)["puzzle"], response=_solved(d))
            for d in demonstrations
        ]
        text = self._prompts.render("few_shot", **self._asked(problem), few_shot_examples="\n\n".join(examples))
        return _prompt(text, "few_shot", problem)

    def demonstration(self, demonstration: Demonstration, response: Response) -> Demonstration:
        """Return the demonstration with a response's answer and reasoning."""
        return msgspec.structs.replace(demonstration, answer=response.answer or "", reasoning=response.reasoning)

    def seed_instruction(self) -> str:
        """Return the system prompt to start from (ours)."""
        return self._instruction

    def instructed_prompt(self, problem: Problem, instruction: str) -> Prompt:
        """Ask for an answer under this system prompt."""
        own = "" if instruction == self._instruction else blake2b(instruction.encode("utf-8", "replace")).hexdigest()
        text = self._prompts.render("instructed", **self._asked(problem))
        prompt = _prompt(text, "instruct", problem, instruction=own)
        system = Message(role="system", content=instruction)
        return msgspec.structs.replace(prompt, messages=(system, *prompt.messages))

    def reflection_record(self, problem: Problem, response: Response, demonstration: Demonstration | None) -> str:
        """Show a response; with the demonstration, name a right answer."""
        return self._prompts.render(
            "reflection",
            **self._candidate(response),
            error=response.error or "",
            right_answer=demonstration.answer if demonstration else "",
        )

    # --- genetic operators of the model ---

    def crossover_prompt(self, problem: Problem, first: Individual, second: Individual) -> Prompt:
        """Ask for a child of two (prompt templates 7 to 9)."""
        shown = {"first": self._individual(first, 1), "second": self._individual(second, 2)}
        text = self._prompts.render("crossover", **self._asked(problem), **shown)
        return _prompt(text, "crossover", problem, [first.response, second.response])

    def mutation_prompt(self, problem: Problem, individual: Individual) -> Prompt:
        """Ask for a mended answer (prompt templates 10 to 12)."""
        shown = self._individual(individual, 1)
        text = self._prompts.render("mutation", **self._asked(problem), individual=shown)
        return _prompt(text, "mutate", problem, [individual.response])

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask for the errors of an answer (prompt templates 1 to 3)."""
        error_format = self._own(problem)["error_format"]
        shown = {"answer": self._answer(response), "error_format": error_format}
        return _prompt(self._prompts.render("errors", **self._posed(problem), **shown), "errors", problem, [response])

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        """Parse the last fenced block: `unreadable`, `none`, or errors in the form of `error_format`."""
        found = last_block(text)
        if found is None:
            return None
        if found.content.lower() in ("none", "unreadable"):
            unreadable = found.content.lower() == "unreadable" and max_errors > 0
            return Diagnosis(text="The answer cannot be read." if unreadable else "")
        findings = self.read_findings(problem, found.content)
        return None if findings is None else self._diagnosis(problem, findings, max_errors)

    def fitness_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask for the penalised score of an answer (prompt templates 4 to 6).

        The rules follow the metrics of section 3, also where the templates do not: template 4 adds a `delta` to each
        share, and template 6 divides the missing cities by the route's own length less one, not by their number.
        """
        fitness_rule = self._own(problem)["fitness_rule"]
        shown = {"answer": self._answer(response), "fitness_rule": fitness_rule}
        text = self._prompts.render("fitness", **self._posed(problem), **shown)
        return _prompt(text, "fitness", problem, [response])

    def parse_fitness(self, text: str) -> float | None:
        """Return the last number of the completion, brought into [0, 100]; see `last_score`."""
        score = last_score(text)
        return None if score is None else min(100.0, max(0.0, score))

    # --- shown ---

    def _asked(self, problem: Problem) -> dict[str, str]:
        own = self._own(problem)
        return {name: own[name] for name in ("rules", "puzzle", "answer_format")}

    def _posed(self, problem: Problem) -> dict[str, str]:
        own = self._own(problem)
        return {name: own[name] for name in ("rules", "puzzle")}

    def _own(self, problem: Problem) -> dict[str, str]:
        """Return the puzzle's own texts, rendered once: they are the same in all of its prompts."""
        known, texts = self._rendered.get(problem.id, (None, {}))
        if known is not problem:
            shown = self.shown(problem)
            texts = {name: self._prompts.render(name, **shown) for name in _OWN}
            self._rendered[problem.id] = (problem, texts)
        return texts

    def _candidate(self, response: Response) -> dict[str, str]:
        return {"answer": self._answer(response), "reasoning": response.reasoning[: self._reasoning_chars]}

    def _individual(self, individual: Individual, number: int) -> str:
        return self._prompts.render(
            "individual",
            number=number,
            answer=self._answer(individual.response),
            fitness=individual.fitness,
            errors=individual.errors.text,
        )

    def _answer(self, response: Response) -> str:
        # A response that could not be read is still shown, as its text.
        return response.text[: self._reasoning_chars] if response.answer is None else response.answer


def _prompt(
    text: str,
    role: str,
    problem: Problem,
    responses: Sequence[Response] = (),
    schema: dict[str, Any] | None = None,
    **hints: Any,
) -> Prompt:
    known = {"role": role, "problem": problem.id, "answers": [response.answer for response in responses], **hints}
    return Prompt(messages=(Message(role="user", content=text),), json_schema=schema, hints=known)


def _solved(demonstration: Demonstration) -> str:
    return f"{demonstration.reasoning}\n{fenced(demonstration.answer)}".lstrip()
