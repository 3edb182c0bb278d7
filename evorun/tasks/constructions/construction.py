"""Tasks whose responses are programs that construct an object, scored by degrees, without right and wrong.

A program defines `build`, which returns the object as a JSON value. The sandbox runs it once, within limits, and the
task validates and scores the value outside of it, so no program can touch its own score. The score is known to
everybody: feedback, the verifier's fitness and the grade are the same figure.
"""

import json
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, get_args

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from evorun.fields import PositiveInt
from evorun.runs.candidates import Feedback, Response
from evorun.runs.scores import Score
from evorun.sandbox.base import Case, Limits, Program, Suite
from evorun.tasks.advice import paradigms_schema, read_paradigms, read_recommendations
from evorun.tasks.base import (
    DrawHelp,
    Grade,
    GradingTools,
    LoadedTask,
    Problem,
    Prompt,
    Provenance,
    TaskConfig,
    Tools,
    look_up,
)
from evorun.tasks.benchmark import hash_content
from evorun.tasks.capabilities import Diagnosis, Paradigm, PatchForm, Verification
from evorun.tasks.constructions.ladder import LadderSimulator, write_program
from evorun.tasks.livecodebench.feedback import shorten
from evorun.tasks.livecodebench.programs import signature
from evorun.tasks.livecodebench.reading import MAX_SOURCE_BYTES, read_program, read_reasoning
from evorun.tasks.loading import load_rows
from evorun.tasks.patches import apply_patch
from evorun.tasks.text_task import TextTask

ENTRY = "build"
"""The function that a program must define."""
VALID = Score("valid", 0, 1, rate=True)
"""1 for a response whose program returned a valid object, else 0."""
_FAULTS = {
    "time_limit": "stopped after {seconds:g} seconds of computing time",
    "memory_limit": "stopped at {memory} MiB of memory",
    "output_limit": "returned or printed too much",
}


class Evaluation(NamedTuple):
    """The score of a program's object; without an object, the reason."""

    value: float | None
    fault: str = ""


class Construction(TextTask):
    """Asks for a program and scores what it builds. A subclass states the problem and measures the objects."""

    free_text = True
    draw_help = DrawHelp(
        more_validation="its problems are no benchmark with splits; choose a method that needs no validation problems"
    )
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    wording: Mapping[str, str] = {"persona": "a mathematician who optimises by writing programs in Python"}
    object_name: ClassVar[str]
    """The object that programs build, with its article, as prompts name it."""

    def __init__(self, limits: Limits, *, prompts: str | None = None, shown_reasoning_chars: int | None = None) -> None:
        """limits: of a program's run. Others: see `TextTask`."""
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self._limits = limits
        self.answer_format = self.prompts.render("reply")
        self._suites: dict[str, tuple[Problem, Suite]] = {}

    # --- defined by a subclass ---

    @abstractmethod
    def measure(self, problem: Problem, value: Any) -> float:
        """Return the primary score of an object, any JSON value. Raises ValueError with the fault of an invalid one."""

    @abstractmethod
    def worst(self, problem: Problem) -> float:
        """Return the primary score of a response without a valid object."""

    @abstractmethod
    def degree(self, problem: Problem, value: float) -> float:
        """Return a score's quality in [0, 1], where 1 is a proven bound; higher is better, and so is any gain."""

    @abstractmethod
    def seed_degree(self, problem: Problem) -> float:
        """Return the degree of what the built-in seed program builds."""

    @abstractmethod
    def make_ladder(self, problem: Problem) -> Sequence[Any]:
        """Return valid objects from poor to good: what simulated models build."""

    @abstractmethod
    def random_object(self, problem: Problem, rng: np.random.Generator) -> Any:
        """Return a valid object that is drawn without any search."""

    def arguments(self, problem: Problem) -> Sequence[Any]:
        """Return the arguments that `build` receives."""
        return problem.data["arguments"]  # type: ignore[no-any-return]

    # --- scores ---

    async def evaluate(self, problem: Problem, response: Response, tools: Tools) -> Evaluation:
        """Run the response's program in the sandbox, and score the object that it returns."""
        if response.answer is None:
            return Evaluation(None, f"no program could be read: {response.error or 'it has another format'}")
        program = Program(response.answer, ENTRY)
        (result,) = await tools.test(program, self._suite(problem), stop_at_failure=False)
        if result.verdict != "accepted" or result.value is None:
            error = "\n".join(line.strip() for line in result.stderr.strip().splitlines()[-3:])
            fault = _FAULTS.get(result.verdict, f"runtime error: {shorten(error) or 'it returned nothing'}")
            return Evaluation(None, fault.format(seconds=self._limits.cpu_seconds, memory=self._limits.memory_mib))
        try:
            value = self.measure(problem, json.loads(result.value, parse_constant=_reject_constant))
        except (ValueError, RecursionError, OverflowError) as error:
            return Evaluation(None, f"invalid object: {shorten(str(error))}")
        return Evaluation(value)

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Return the primary score, or the worst one where there is no valid object, and whether there is one."""
        value, fault = await self.evaluate(problem, response, tools)
        scores = {self.scores[0].name: self.worst(problem) if value is None else value, VALID.name: float(not fault)}
        return Grade(scores=scores, detail=fault or self._describe(value))

    async def observe(self, problem: Problem, response: Response, tools: Tools) -> Response:
        """Return the response with its score, or its fault, as feedback."""
        value, fault = await self.evaluate(problem, response, tools)
        degree = 0.0 if value is None else self.degree(problem, value)
        return replace(response, feedback=Feedback(text=fault or self._describe(value), score=degree))

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        """Return the degree in per cent, and the fault of a program without a valid object."""
        value, fault = await self.evaluate(problem, response, tools)
        fitness = 0.0 if value is None else 100 * self.degree(problem, value)
        errors = Diagnosis(text=f"- {fault}", findings=(fault,)) if fault and max_errors else Diagnosis()
        return Verification(fitness=fitness, errors=errors)

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Return no score: only the sandbox can give one."""
        return Grade()

    def _describe(self, value: float | None) -> str:
        measure = self.scores[0]
        direction = "higher" if measure.higher_is_better else "lower"
        return f"{measure.name.replace('_', ' ')}: {value:.12g} ({direction} is better)"

    def _suite(self, problem: Problem) -> Suite:
        """Return the run of a problem's programs: one object per problem, so that a journal recognizes it cheaply."""
        cached = self._suites.get(problem.id)
        if cached is None or cached[0] is not problem:
            stdin = "\n".join(json.dumps(argument) for argument in self.arguments(problem))
            cached = self._suites[problem.id] = (problem, Suite((Case(stdin, ""),), "any", self._limits))
        return cached[1]

    # --- asking and reading ---

    def starting_response(self, problem: Problem) -> Response:
        """Return the problem's seed program as a response that no model wrote."""
        program = self.prompts.render("seed")
        return Response(text=self.write(problem, program), answer=program)

    def question(self, problem: Problem) -> str:
        return self.prompts.render("statement", **problem.data)

    def shared_values(self) -> Mapping[str, Any]:
        limits = {"seconds": self._limits.cpu_seconds, "memory_mib": self._limits.memory_mib}
        rules = self.prompts.render("rules", **limits)
        measure = self.scores[0]
        direction = "high" if measure.higher_is_better else "low"
        return {**super().shared_values(), "rules": rules, "object": self.object_name, "direction": direction}

    def problem_values(self, problem: Problem) -> Mapping[str, Any]:
        return {**super().problem_values(problem), "seed": self.prompts.render("seed")}

    def response_values(self, problem: Problem, response: Response) -> Mapping[str, Any]:
        unseen = "it was not run" if response.answer is not None else f"no program could be read: {response.error}"
        return {
            **super().response_values(problem, response),
            # An unparsed response is shown as its text; a program is always shown whole.
            "program": response.answer or self.excerpt(response.text),
            "found": response.feedback.text if response.feedback else unseen,
        }

    def patch_prompt(
        self,
        problem: Problem,
        parent: Response,
        others: Sequence[Response],
        form: PatchForm,
        *,
        paradigm: Paradigm | None = None,
        recommendation: str = "",
    ) -> Prompt:
        shown = self.render_response("candidate", problem, parent)
        blocks = [self.render_response("candidate", problem, other) for other in others]
        hints: dict[str, Any] = {"patch": parent.answer} if form == "diff" else {}
        advice = recommendation if paradigm is None else f"{paradigm.plan}\n{recommendation}"
        if advice:
            hints["advice"] = advice
        values: dict[str, Any] = {"parent": shown, "others": blocks, "form": form}
        values |= {"paradigm": paradigm, "recommendation": recommendation}
        return self.ask("evolve", "patch", problem, [parent, *others], hints=hints, **values)

    def paradigms_prompt(
        self, problem: Problem, best: Response, tried: Sequence[tuple[Paradigm, float]], count: int
    ) -> Prompt:
        shown = self.render_response("candidate", problem, best)
        hints = {"count": count, "known": [paradigm.plan for paradigm, _ in tried]}
        prompt = self._ask_to_reflect("paradigms", problem, hints, best=shown, tried=tried, count=count)
        return replace(prompt, json_schema=paradigms_schema(count))

    def parse_paradigms(self, text: str) -> Sequence[Paradigm]:
        return read_paradigms(text)

    def summary_prompt(self, problem: Problem, program: Response) -> Prompt:
        shown = self.render_response("candidate", problem, program)
        return self._ask_to_reflect("program_summary", problem, {}, program=shown)

    def insights_prompt(
        self, problem: Problem, summaries: Sequence[tuple[Response, str]], insights: str, best: Response
    ) -> Prompt:
        found = [(self.response_values(problem, program)["found"], summary) for program, summary in summaries]
        shown = self.render_response("candidate", problem, best)
        return self._ask_to_reflect("insights", problem, {}, summaries=found, insights=insights, best=shown)

    def recommendations_prompt(
        self, problem: Problem, insights: str, earlier: Sequence[str], best: Response, count: int
    ) -> Prompt:
        values = {"insights": insights, "earlier": "\n".join(f"- {item}" for item in earlier), "count": count}
        shown = self.render_response("candidate", problem, best)
        hints = {"count": count, "known": list(earlier)}
        return self._ask_to_reflect("recommendations", problem, hints, best=shown, **values)

    def parse_recommendations(self, text: str) -> Sequence[str]:
        return read_recommendations(text)

    def _ask_to_reflect(self, file: str, problem: Problem, hints: Mapping[str, Any], **values: Any) -> Prompt:
        """Return a request for free text about programs, which asks for no response to the problem."""
        prompt = self.ask(file, file, problem, **values)
        return replace(prompt, json_schema=None, hints={"role": file, **hints})

    def read_patch(self, problem: Problem, parent: Response, response: Response, form: PatchForm) -> Response:
        if form != "diff":
            return response
        try:
            program = apply_patch(parent.answer or "", response.text)
        except ValueError as error:
            # Models that write the whole program anyway have answered.
            return response if response.answer is not None else replace(response, error=str(error))
        if len(program.encode(errors="replace")) > MAX_SOURCE_BYTES:
            return replace(response, answer=None, error="too_long: the changed program is too long")
        reasoning = response.text.partition("<<<<<<<")[0].strip()
        return replace(response, answer=program, reasoning=reasoning, error=None)

    def try_prompts(self, problem: Problem, gold: str | None) -> None:
        super().try_prompts(problem, gold)
        seed = self.starting_response(problem)
        paradigm = Paradigm(title="title", plan="plan", target="target", pitfalls="pitfalls")
        for form in get_args(PatchForm):
            self.patch_prompt(problem, seed, [seed], form)
            self.patch_prompt(problem, seed, [], form, paradigm=paradigm, recommendation="recommendation")
        self.paradigms_prompt(problem, seed, [(paradigm, 1.0), (paradigm, 0.0)], 3)
        self.summary_prompt(problem, seed)
        self.insights_prompt(problem, [(seed, "summary")], "insights", seed)
        self.recommendations_prompt(problem, "insights", ["recommendation"], seed, 5)

    def read(self, problem: Problem, text: str) -> str:
        return read_program(text)

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"{reasoning}\n```python\n{answer.strip()}\n```".lstrip()

    def reasoning(self, text: str, answer: str | None) -> str:
        return read_reasoning(text)

    def signature(self, problem: Problem, response: Response) -> str:
        return signature(response.answer or "")

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a program that returns a random object."""
        return write_program(self.random_object(problem, rng), 0)


def _reject_constant(name: str) -> float:
    raise ValueError(f"expected finite numbers, got {name}")


def read_number(value: Any, what: str) -> float:
    """Return a finite number of an object. Raises ValueError naming it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(number := float(value)):
        raise ValueError(f"{what}: expected a finite number, got {value!r:.60}")
    return number


class ConstructionGrader:
    """Grades by the task's own scores, which hide nothing from methods."""

    def __init__(self, task: Construction, problems: Sequence[Problem]) -> None:
        self._task = task
        self._problems = {problem.id: problem for problem in problems}

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        """Grade one response. Raises DataError for an unknown problem."""
        return await self._task.grade(look_up(self._problems, problem), response, tools)


@dataclass(kw_only=True)
class ConstructionConfig(TaskConfig):
    """The settings that all problems of construction have."""

    runs_programs = True

    limit: PositiveInt | None
    """Work on this many problems only: the first ones."""
    time_limit_s: Annotated[float, Meta(gt=0, le=3600)]
    """CPU seconds of a program."""
    memory_mib: PositiveInt
    """Address space of each of a program's processes."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones). `seed.md`
    is the seed program."""
    shown_reasoning_chars: PositiveInt | None
    """Maximum characters of a candidate's reasoning in later prompts; programs are shown whole; null: no limit."""

    @abstractmethod
    def make_problems(self) -> Sequence[Problem]:
        """Return the problems."""

    @property
    def output_kib(self) -> int:
        """Maximum size of a program's object as JSON, with all that it prints."""
        return 256

    def load(self) -> LoadedTask:
        """Return the problems. Raises ConfigError for prompt files."""
        problems = self.make_problems()[: self.limit]
        limits = Limits(cpu_seconds=self.time_limit_s, memory_mib=self.memory_mib, output_kib=self.output_kib)
        task = self.make_task(limits)
        provenance = Provenance(source="generated", description=self.description, digest=hash_content(problems))
        return load_rows(
            task,
            [(problem, None) for problem in problems],
            provenance=provenance,
            grader=ConstructionGrader(task, problems),
            simulator=LadderSimulator,
        )

    @abstractmethod
    def make_task(self, limits: Limits) -> Construction:
        """Return the task. Raises ConfigError for unusable prompt files."""
