"""A task with questions and answers in text: it states its question, reads replies, and has every capability.

Prompts are rendered from prompt files: the user's (`task.prompts`) precede a family's own, which precede the defaults
in `prompts/` beside this module. A family whose prompts show more than a question and an answer adds it in
`problem_values` and `response_values`; what no file can express, it overrides.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from evorun.errors import ConfigError
from evorun.models.base import Message
from evorun.runs.candidates import Response
from evorun.tasks.base import Demonstration, Grade, Problem, Prompt, Task
from evorun.tasks.capabilities import (
    Attempt,
    AttemptOutcome,
    Diagnosis,
    Individual,
    Judgment,
    PairRating,
    ScoredResponse,
)
from evorun.tasks.excerpts import excerpt
from evorun.tasks.fitness_scores import read_fitness
from evorun.tasks.json_text import read_object, replace_lone_surrogates
from evorun.tasks.judging import (
    ERRORS_SCHEMA,
    FITNESS_SCHEMA,
    RATINGS_SCHEMA,
    VERDICT_SCHEMA,
    format_as_bullets,
    parse_judgment,
    parse_ratings,
    read_errors,
)
from evorun.tasks.prompt_files import PromptFiles
from evorun.tasks.rubric_items import WeightedItem, read_items
from evorun.tasks.rubric_json import digits_schema, scores_schema
from evorun.tasks.rubrics import Rubric, RubricItem, is_rubric_file, read_given, read_rubric, rubric_file
from evorun.tasks.tags import escape_tags
from evorun.tasks.thinking import without_thinking

DEFAULTS = Path(__file__).parent / "prompts"
MAX_RENDERED_CANDIDATES = 4096
"""Most responses that are cached as judges see them (ours): some megabytes."""
_OUTCOMES: dict[AttemptOutcome, str] = {
    "first": "the first attempt",
    "won": "judged better than the best answer before it",
    "lost": "judged worse than the best answer of its time",
    "undecided": "judged neither better nor worse than the best answer of its time",
}
_RUBRIC = "rubric_"
"""Prompt files whose names begin so are rubrics."""
_FREE = Rubric("text", 5)
_WITH_ITEMS = read_rubric("<rubric><item>one\n- 1: text</item><item>two\n- 1: text</item></rubric>")


class TextTask(Task):
    """Asks and reads in text. A subclass defines `question`, `answer_format`, `read` and `write`, perhaps `score`.

    Replies are free text, all of it reasoning, or, where `reply_schema` is set, JSON objects with the reasoning under
    `reasoning`.
    """

    prompt_folders: ClassVar[Sequence[Path]] = ()
    """Folders with the family's own prompt files; the first of several files with the same name counts."""
    script: ClassVar[str | None] = "latin"
    """The script that responses are expected in, a word of Unicode's names of characters; None: any (the monitor
    `foreign_script`)."""
    wording: Mapping[str, str] = {
        "persona": "a careful problem solver",
        "introduction": "",
        "subject": "problem",
        "requirement": "",
        "reasoning_label": "Solution",
        "correction": "The right answer is",
    }
    """Words in the default prompt files that a family may replace; every file may use them."""
    reply_schema: dict[str, Any] | None = None
    """JSON schema of an answer; None: free text."""

    def __init__(self, *, prompts: str | None = None, shown_reasoning_chars: int | None = None) -> None:
        """Compile the prompts. Raises ConfigError naming an unusable file.

        prompts: folder of the user's own files. shown_reasoning_chars: most characters of a response's reasoning in a
        later prompt; None: all of them.
        """
        self.prompts = PromptFiles(
            (*self.prompt_folders, DEFAULTS),
            prompts,
            wording={**TextTask.wording, **self.wording},
        )
        self.shown_reasoning_chars = shown_reasoning_chars
        system = self.prompts.render("system")
        self._system = (Message(role="system", content=system),) if system else ()
        # Problems are posed many times in a run, and some take long to write out (a graph's matrix, a program's tests).
        self._problem_values: dict[str, tuple[Problem, Mapping[str, Any]]] = {}
        self._rendered_candidates: WeakKeyDictionary[Response, tuple[Problem, str]] = WeakKeyDictionary()

    # --- defined by a task ---

    answer_format: str
    """The form of a reply, as prompts ask for it: a sentence or more."""

    def question(self, problem: Problem) -> str:
        """Return the problem as prompts show it: the default is its data's `question`."""
        text: str = problem.data["question"]
        return text

    @abstractmethod
    def read(self, problem: Problem, text: str) -> str:
        """Return the answer that a completion gives; the text is not blank.

        Raises ValueError with `kind: reason` where there is none.
        """

    @abstractmethod
    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        """Return a reply from which `read` reads this answer: demonstrations show it, simulated models give it."""

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Grade a response, even an unreadable one.

        reference: that of the problem's row, which only the driver holds: by default the right answer; None: unknown.
        """
        return Grade(correct=response.answer is not None and response.answer == reference)

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str | None:
        """Return an answer of `model=random`, drawn uniformly from all that have the task's form.

        None, the default: the model gives the right answer to another problem.
        """
        return None

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        """Return answers that a simulated model gives where it errs, as `write` writes them.

        Those that `score` finds as good as the right one are left out, all others are used. Where the task scores by
        degrees, give some of several degrees, down to the lowest. Empty, the default: answers to other problems and, by
        degrees, answers between those and the right one.
        """
        return ()

    # --- placeholders, which a family may extend ---

    def shared_values(self) -> Mapping[str, Any]:
        """Return the placeholders of all prompt files, including files without a problem (`instruction`)."""
        return {"answer_format": self.answer_format}

    def problem_values(self, problem: Problem) -> Mapping[str, Any]:
        """Return the placeholders of the prompt files that pose a problem; called once per problem."""
        return {**self.shared_values(), "question": self.question(problem)}

    def response_values(self, problem: Problem, response: Response) -> Mapping[str, Any]:
        """Return the placeholders of a response: its answer and its reasoning, an excerpt where it is too long."""
        return {"answer": response.answer or "none", "reasoning": self.excerpt(response.reasoning)}

    def excerpt(self, text: str) -> str:
        """Return the part of a response's text that prompts show."""
        return excerpt(text, self.shown_reasoning_chars)

    def shows_excerpt(self, response: Response) -> bool:
        limit = self.shown_reasoning_chars
        shown = (response.reasoning, response.text if response.answer is None else "")
        return limit is not None and max(map(len, shown)) > limit

    def truth_values(
        self, problem: Problem, response: Response, demonstration: Demonstration | None, grade: Grade | None
    ) -> Mapping[str, Any]:
        """Return the placeholders of `reflection` that reveal the right answer and the grade; empty without them."""
        if demonstration is None or grade is None:
            return {"right": False, "right_answer": "", "grade": ""}
        if grade.correct is not None and demonstration.answer:
            return {"right": grade.correct, "right_answer": demonstration.answer, "grade": ""}
        verdict = [] if grade.correct is None else ["right" if grade.correct else "wrong"]
        scores = [f"{name} {value:.4g}" for name, value in grade.scores.items()]
        return {"right": bool(grade.correct), "right_answer": "", "grade": ", ".join([*verdict, *scores])}

    def reasoning(self, text: str, answer: str | None) -> str:
        """Return the part of a completion that argues for its answer, None where there is none."""
        if self.reply_schema is None:
            return text.strip()
        reply = read_object(text, "reasoning", *self.reply_schema.get("properties", ()))
        # Prose from which an answer could be read counts as its reasoning.
        if reply is None:
            return text if answer else ""
        reasoning = reply.get("reasoning")
        return replace_lone_surrogates(reasoning) if isinstance(reasoning, str) else ""

    def solution(self, demonstration: Demonstration) -> str:
        """Return a solved problem's reply, as a demonstration shows it."""
        problem, answer, reasoning = demonstration.problem, demonstration.answer, demonstration.reasoning
        # In free text the whole reply is the reasoning, with the answer in it.
        if self.reply_schema is None and reasoning:  # it is the whole reply
            return reasoning
        return self.write(problem, answer, reasoning)

    # --- reading ---

    def parse(self, problem: Problem, text: str) -> Response:
        # Lone surrogates can be neither recorded nor sent to a model again.
        completion = replace_lone_surrogates(text)
        text = without_thinking(completion)
        if not text.strip():
            empty = "empty: the completion has no text"
            thought = "only_thinking: nothing follows the thinking, or the token limit cut it off"
            return Response(text=text, answer=None, error=thought if completion.strip() else empty)
        try:
            answer, error = self.read(problem, text), None
        except ValueError as reason:
            answer, error = None, str(reason)
        return Response(text=text, answer=answer, reasoning=self.reasoning(text, answer), error=error)

    def parse_judgment(self, text: str) -> Judgment:
        return parse_judgment(text)

    def parse_ratings(self, text: str) -> PairRating:
        return parse_ratings(text)

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        errors = read_errors(text, max_errors)
        return None if errors is None else Diagnosis(text=format_as_bullets(errors), findings=tuple(errors))

    def parse_fitness(self, text: str) -> float | None:
        return read_fitness(text)

    def demonstration(self, demonstration: Demonstration, response: Response) -> Demonstration:
        return msgspec.structs.replace(demonstration, answer=response.answer or "", reasoning=response.reasoning)

    # --- asking ---

    def generation_prompt(self, problem: Problem) -> Prompt:
        return self.ask("generate", "generation", problem)

    def evolution_prompt(self, problem: Problem, parents: Sequence[ScoredResponse]) -> Prompt:
        blocks = [
            self.render_response(
                "parent",
                problem,
                parent.response,
                score=parent.score,
                win_reason=parent.win.reason,
                win_letter=parent.win.letter,
                loss_reason=parent.loss.reason,
                loss_letter=parent.loss.letter,
            )
            for parent in parents
        ]
        seen = [parent.response for parent in parents]
        return self.ask("evolve", "evolution", problem, seen, parent_solutions="\n\n".join(blocks))

    def aggregation_prompt(self, problem: Problem, responses: Sequence[Response]) -> Prompt:
        task = self.prompts.render("generation", **self.cached_problem_values(problem))
        candidates = [self.render_candidate(problem, response) for response in responses]
        count = len(candidates)
        return self.ask("aggregate", "aggregation", problem, responses, task=task, candidates=candidates, count=count)

    def distillation_prompt(self, problem: Problem, responses: Sequence[Response], max_tokens: int) -> Prompt:
        task = self.prompts.render("generation", **self.cached_problem_values(problem))
        candidates = [self.render_candidate(problem, response) for response in responses]
        words, count = max_tokens * 2 // 3, len(candidates)
        shown: dict[str, Any] = {"task": task, "candidates": candidates, "count": count, "words": words}
        # Notes are free text, and no answer.
        return msgspec.structs.replace(self.ask("plan", "distillation", problem, responses, **shown), json_schema=None)

    def distilled_prompt(self, problem: Problem, notes: str, responses: Sequence[Response]) -> Prompt:
        task = self.prompts.render("generation", **self.cached_problem_values(problem))
        return self.ask("aggregate", "distilled", problem, responses, task=task, notes=escape_tags(notes))

    def judge_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        a, b = self.render_candidate(problem, first), self.render_candidate(problem, second)
        return self.ask("judge", "judge", problem, [first, second], VERDICT_SCHEMA, candidate_a=a, candidate_b=b)

    def rating_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        a, b = self.render_candidate(problem, first), self.render_candidate(problem, second)
        return self.ask("rate", "rating", problem, [first, second], RATINGS_SCHEMA, candidate_a=a, candidate_b=b)

    def few_shot_prompt(self, problem: Problem, demonstrations: Sequence[Demonstration]) -> Prompt:
        blocks = [
            self.prompts.render("demonstration", **self.cached_problem_values(d.problem), response=self.solution(d))
            for d in demonstrations
        ]
        shown = "\n\n".join(blocks)
        return self.ask("few_shot", "few_shot", problem, few_shot_examples=shown, count=len(blocks))

    def refinement_prompt(self, problem: Problem, incumbent: Response, attempts: Sequence[Attempt]) -> Prompt:
        blocks = [
            self.render_response(
                "attempt",
                problem,
                attempt.response,
                number=number,
                outcome=_OUTCOMES[attempt.outcome],
                reason=attempt.judged.reason,
                letter=attempt.judged.letter,
                rival="B" if attempt.judged.letter == "A" else "A",
            )
            for number, attempt in enumerate(attempts, 1)
        ]
        best = self.render_response("candidate", problem, incumbent)
        return self.ask("refine", "refinement", problem, [incumbent], incumbent=best, attempts="\n\n".join(blocks))

    def seed_instruction(self) -> str:
        return self.prompts.render("instruction", **self.shared_values())

    def instructed_prompt(self, problem: Problem, instruction: str) -> Prompt:
        prompt = self.ask("instruct", "instructed", problem, hints={"instruction": self._hint(instruction)})
        system = Message(role="system", content=instruction)
        return msgspec.structs.replace(prompt, messages=(system, *prompt.messages[len(self._system) :]))

    def _hint(self, instruction: str) -> str:
        """Return the digest by which simulated models know an instruction other than the seed, and answer better."""
        is_changed = instruction != self.seed_instruction()
        return blake2b(instruction.encode("utf-8", "replace")).hexdigest() if is_changed else ""

    @cached_property
    def _own_system(self) -> Mapping[str, str]:
        """The hint at the user's own system prompt; none without one."""
        if "system" not in self.prompts.own or not self._system:
            return {}
        return {"instruction": self._hint(self._system[0]["content"])}

    def reflection_record(
        self, problem: Problem, response: Response, demonstration: Demonstration | None, grade: Grade | None = None
    ) -> str:
        truth = self.truth_values(problem, response, demonstration, grade)
        return self.render_response("reflection", problem, response, error=response.error or "", **truth)

    def crossover_prompt(self, problem: Problem, first: Individual, second: Individual) -> Prompt:
        parent, partner = self._individual(problem, first, 1), self._individual(problem, second, 2)
        return self.ask(
            "crossover", "crossover", problem, [first.response, second.response], first=parent, second=partner
        )

    def mutation_prompt(self, problem: Problem, individual: Individual) -> Prompt:
        shown = self._individual(problem, individual, 1)
        return self.ask("mutate", "mutation", problem, [individual.response], individual=shown)

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        shown = self.response_values(problem, response)
        return self.ask("errors", "errors", problem, [response], ERRORS_SCHEMA, **shown)

    def fitness_prompt(self, problem: Problem, response: Response) -> Prompt:
        shown = self.response_values(problem, response)
        return self.ask("fitness", "fitness", problem, [response], FITNESS_SCHEMA, **shown)

    def rubric_keys(self) -> tuple[str, ...]:
        return ("",)

    def rubric_key(self, problem: Problem) -> str:
        return ""

    def rubric_items(self, problem: Problem) -> Sequence[WeightedItem]:
        """Return the criteria under `rubric` in the problem's data. Raises ValueError where `read_items` does."""
        return read_items(problem.data.get("rubric", ()))

    def task_description(self) -> str:
        return self.prompts.render("task_description", **self.shared_values())

    def starting_rubric(self, name: str, rubric_key: str) -> Rubric:
        known = [file.removeprefix(_RUBRIC) for file in self.prompts.names if file.startswith(_RUBRIC)]
        if name not in known and is_rubric_file(name):
            return rubric_file(Path(name))
        if name not in known:
            raise ConfigError(
                f"method.rubric: task={self.name} has no rubric '{name}'; expected one of {', '.join(known)}, or a "
                "file (FOLDER/NAME, NAME.md or NAME.txt)"
            )
        text = self.prompts.render(f"{_RUBRIC}{name}", **self.shared_values(), key=rubric_key)
        try:
            return read_given(text)
        except ValueError as error:
            raise ConfigError(f"{_RUBRIC}{name}.md of task={self.name}: {error}") from error

    def scoring_prompt(
        self,
        problem: Problem,
        response: Response,
        rubric: Rubric,
        item: RubricItem | None = None,
        plan: str | None = None,
        *,
        as_json: bool = False,
        reasons: str | None = None,
    ) -> Prompt:
        # A response, a rubric that was refined on its words, and a plan must not end their part of the prompt, nor
        # make the judge quote a score.
        maximum = rubric.maximum if item is None else item.maximum
        values = {
            "task_description": self.task_description(),
            "rubric": rubric.text_for_scorers if item is None else escape_tags(item.text),
            "maximum": maximum,
            "items": rubric.items if item is None else (),
            "plan": "" if plan is None else escape_tags(plan),
            "response": escape_tags(response.text),
            "json": as_json,
            "reasons_alone": reasons is not None,
        }
        number = None if item is None else rubric.items.index(item)
        hints = {"maximum": maximum, "items": [criterion.maximum for criterion in rubric.items], "item": number}
        prompt = self._ask_about("score", "scoring", problem, [response], hints, **values)
        if reasons:
            question = self.prompts.render("points", maximum=int(maximum))
            turns = Message(role="assistant", content=escape_tags(reasons)), Message(role="user", content=question)
            return msgspec.structs.replace(
                prompt,
                messages=(*prompt.messages, *turns),
                json_schema=digits_schema(maximum),
                hints={**prompt.hints, "digits": True},
            )
        return msgspec.structs.replace(prompt, json_schema=scores_schema(rubric, item)) if as_json else prompt

    def planning_prompt(self, problem: Problem, rubric: Rubric, reference: str | None = None) -> Prompt:
        values = {
            "task_description": self.task_description(),
            "rubric": rubric.text_for_scorers,
            "reference": reference or "",
        }
        return self._ask_about("plan", "planning", problem, [], {}, **values)

    def _ask_about(
        self,
        role: str,
        file: str,
        problem: Problem,
        seen: Sequence[Response],
        hints: Mapping[str, Any],
        **values: Any,
    ) -> Prompt:
        """Return a request for free text that is no answer: without the answerer's system message."""
        prompt = self.ask(role, file, problem, seen, hints=hints, **values)
        return msgspec.structs.replace(prompt, messages=prompt.messages[len(self._system) :], json_schema=None)

    def ask(
        self,
        role: str,
        file: str,
        problem: Problem,
        seen: Sequence[Response] = (),
        schema: dict[str, Any] | None = None,
        hints: Mapping[str, Any] = {},
        **values: Any,
    ) -> Prompt:
        """Return the request of a role: a prompt file, given the problem and further placeholders.

        seen: the responses that it shows, in order. schema: of a reply that is no answer.
        """
        text = self.prompts.render(file, **{**self.cached_problem_values(problem), **values})
        return Prompt(
            messages=(*self._system, Message(role="user", content=text)),
            json_schema=schema or self.reply_schema,
            hints={
                **{"role": role, "problem": problem.id, "answers": [response.answer for response in seen]},
                **self._own_system,
                **hints,
            },
        )

    def render_response(self, file: str, problem: Problem, response: Response, **values: Any) -> str:
        """Render a response with a prompt file and further placeholders."""
        return self.prompts.render(file, **self.response_values(problem, response), **values)

    def render_candidate(self, problem: Problem, response: Response) -> str:
        """Return a response as judges see it; cached, since several comparisons show it."""
        known = self._rendered_candidates.get(response)
        if known is None or known[0] is not problem:  # two problems may have equal responses
            if len(self._rendered_candidates) >= MAX_RENDERED_CANDIDATES:
                self._rendered_candidates.clear()
            known = self._rendered_candidates[response] = (
                problem,
                self.render_response("candidate", problem, response),
            )
        return known[1]

    def cached_problem_values(self, problem: Problem) -> Mapping[str, Any]:
        """Return the problem's placeholders, rendered once."""
        # Ids are unique within a run only, so the problem itself is compared: tests and plug-ins reuse ids.
        known = self._problem_values.get(problem.id)
        if known is None or known[0] is not problem:
            known = self._problem_values[problem.id] = (problem, self.problem_values(problem))
        return known[1]

    def _individual(self, problem: Problem, individual: Individual, number: int) -> str:
        return self.render_response(
            "individual",
            problem,
            individual.response,
            number=number,
            fitness=individual.fitness,
            errors=individual.errors.text,
        )

    def try_prompts(self, problem: Problem, gold: str | None) -> None:
        """Render every prompt once. Raises ConfigError naming a file that fails or has an unknown placeholder."""
        # Before the first model call: a prompt file that fails at generation 7 would cost the run.
        read = Response(text="text", answer=gold, reasoning="reasoning")
        unread = Response(text="text", answer=None, error="kind: reason")
        solved = Demonstration(problem=problem, answer=gold or "")
        for response in (read, unread):
            individual = Individual(response=response, fitness=50, errors=Diagnosis(text="- error"))
            self.generation_prompt(problem)
            self.evolution_prompt(problem, [ScoredResponse(response=response, score=0.5)])
            self.aggregation_prompt(problem, [response])
            self.aggregation_prompt(problem, [response, response])
            self.distillation_prompt(problem, [response], 100)
            self.distilled_prompt(problem, "notes", [response])
            self.judge_prompt(problem, response, response)
            self.rating_prompt(problem, response, response)
            self.few_shot_prompt(problem, [solved] if gold else [])
            self.refinement_prompt(problem, response, [Attempt(response=response, outcome="won")])
            self.instructed_prompt(problem, "instruction")
            self.reflection_record(problem, response, solved, Grade(correct=response is read))
            self.crossover_prompt(problem, individual, individual)
            self.mutation_prompt(problem, individual)
            self.errors_prompt(problem, response)
            self.fitness_prompt(problem, response)
            for rubric in (_FREE, _WITH_ITEMS):
                self.scoring_prompt(problem, response, rubric, plan="plan")
                self.scoring_prompt(problem, response, rubric, reasons="reasons")
        self.planning_prompt(problem, _FREE, gold)
        for name in self.prompts.names:
            if name.startswith(_RUBRIC):
                self.starting_rubric(name.removeprefix(_RUBRIC), self.rubric_key(problem))
