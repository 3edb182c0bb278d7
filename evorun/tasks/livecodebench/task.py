"""LiveCodeBench as methods see it: its prompts (Duel-Evolve, B.2), public tests and parsing of programs."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from evorun.runs.candidates import Response
from evorun.sandbox.base import Case, CaseResult, Limits, Suite
from evorun.tasks.base import Demonstration, Grade, Problem, Prompt, Tools
from evorun.tasks.capabilities import Diagnosis, Individual, Verification
from evorun.tasks.corrections import read_unless_withdrawn
from evorun.tasks.json_text import end_of_object, object_schema
from evorun.tasks.judging import ERRORS_SCHEMA, REASONED_VERDICT_SCHEMA, format_as_bullets, read_errors
from evorun.tasks.livecodebench import operators
from evorun.tasks.livecodebench.feedback import Failure, list_failures, make_feedback
from evorun.tasks.livecodebench.programs import make_check, make_program, signature, syntax_error
from evorun.tasks.livecodebench.reading import MEMORY_CHARS, read_memory, read_program, read_reasoning
from evorun.tasks.stratified_benchmark import DRAW_HELP
from evorun.tasks.text_task import TextTask

# Roles whose replies no later prompt shows, so that they need no notes (B.2.5, B.2.6)
_WITHOUT_MEMORY = ("few_shot", "instruct")
_LINE = re.compile(r"\blines?\s+(\d{1,9})\b", re.IGNORECASE)


class LiveCodeBench(TextTask):
    """Answers a problem with a program that public tests check; has symbolic operators on programs."""

    name = "livecodebench"
    draw_help = DRAW_HELP
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    wording: Mapping[str, str] = {"persona": "a helpful assistant"}

    def __init__(
        self,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        stated_time_limit_s: float = 4.0,
        prompts: str | None = None,
        reasoning_max_chars: int = 3000,
        shown_reasoning_chars: int | None = None,
        solution_max_chars: int = 6000,
    ) -> None:
        """Compile the prompts; see `TextTask`.

        limits: of a program on one public test. stated_time_limit_s: the limit in prompts, in seconds. *_chars: see
        `LiveCodeBenchConfig`.
        """
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self._limits = limits
        self._solution_chars = solution_max_chars
        self._seconds = f"{stated_time_limit_s:g}"
        self.reply_schema = _program_schema(reasoning_max_chars, solution_max_chars, with_memory=True)
        self._plain_schema = _program_schema(reasoning_max_chars, solution_max_chars, with_memory=False)
        self.answer_format, self._plain_format = (
            self.prompts.render("reply", with_memory=with_memory, memory_chars=MEMORY_CHARS)
            for with_memory in (True, False)
        )
        self._suites: dict[str, tuple[Problem, Suite]] = {}

    # --- asking ---

    def shared_values(self) -> Mapping[str, Any]:
        rules = self.prompts.render("rules", seconds=self._seconds)
        return {**super().shared_values(), "reply": self.answer_format, "rules": rules, "seconds": self._seconds}

    def problem_values(self, problem: Problem) -> Mapping[str, Any]:
        parts = {key: problem.data[key] for key in ("question", "public_tests", "starter_code")}
        return {**super().problem_values(problem), **parts, "problem": self.prompts.render("problem", **parts)}

    def response_values(self, problem: Problem, response: Response) -> Mapping[str, Any]:
        # A method may run no tests; prompts then say so, lest a model take silence for success.
        executions = response.feedback.text if response.feedback else "The public tests were not run."
        if response.answer is None:
            executions = "No program could be read from this reply."
        return {
            # An unparsed response is shown as its text; a program is always shown whole.
            "code": response.answer or self.excerpt(response.text),
            "reasoning": self.excerpt(response.reasoning),
            "executions": executions,
            "memory": response.memory,
        }

    def ask(self, role: str, file: str, problem: Problem, *args: Any, **values: Any) -> Prompt:
        if role in _WITHOUT_MEMORY:
            reply = self._plain_format
            # The prompt and the schema must agree on the keys.
            values |= {"schema": self._plain_schema, "answer_format": reply, "reply": reply}
        return super().ask(role, file, problem, *args, **values)

    def judge_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        a, b = (self.response_values(problem, response) for response in (first, second))
        shown = {"code_a": a["code"], "trace_a": a["executions"], "code_b": b["code"], "trace_b": b["executions"]}
        return self.ask("judge", "judge", problem, [first, second], REASONED_VERDICT_SCHEMA, **shown)

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        shown = self.response_values(problem, response)
        code = "\n".join(f"{number}| {line}" for number, line in enumerate(shown["code"].splitlines(), 1))
        return self.ask("errors", "errors", problem, [response], ERRORS_SCHEMA, **{**shown, "code": code})

    def reflection_record(
        self, problem: Problem, response: Response, demonstration: Demonstration | None, grade: Grade | None = None
    ) -> str:
        # The default would name the reference program as the right answer, which is one of many.
        text = super().reflection_record(problem, response, None)
        if demonstration is None or not demonstration.answer:  # the release has no solutions
            return text
        return f"{text}\n\nA program that passes every test:\n```python\n{demonstration.answer}\n```"

    def try_prompts(self, problem: Problem, gold: str | None) -> None:
        super().try_prompts(problem, gold or "print()")

    # --- reading ---

    def read(self, problem: Problem, text: str) -> str:
        return read_unless_withdrawn(read_program, text, begin=end_of_object(text, "solution"))

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return msgspec.json.encode({"reasoning": reasoning, "solution": f"```python\n{answer}\n```"}).decode()

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a program that prints the output of a public test for any input."""
        outputs = [test["output"] for test in problem.data["public_tests"]] or [""]
        return f"print({outputs[int(rng.integers(len(outputs)))].strip()!r})"

    def reasoning(self, text: str, answer: str | None) -> str:
        return "" if answer is None else read_reasoning(text)

    def parse(self, problem: Problem, text: str) -> Response:
        response = super().parse(problem, text)
        return msgspec.structs.replace(response, memory=read_memory(response.text))

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        """Parse a list of errors; a finding is the first line number that an error names, or None."""
        errors = read_errors(text, max_errors)
        if errors is None:
            return None
        lines = [_LINE.search(error) for error in errors]
        return Diagnosis(
            text=format_as_bullets(errors), findings=tuple(int(line[1]) if line else None for line in lines)
        )

    def signature(self, problem: Problem, response: Response) -> str:
        return signature(response.answer or "")

    # --- public tests ---

    async def observe(self, problem: Problem, response: Response, tools: Tools) -> Response:
        """Run every public test and return the response with feedback; unchanged if there is nothing to run."""
        results = await self._run_public_tests(problem, response, tools)
        if not results:
            return response
        feedback = make_feedback(self._public_suite(problem).cases, results, self._limits)
        return msgspec.structs.replace(response, feedback=feedback)

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        """Run the public tests; return the percentage passed and the first failures, or a syntax error.

        They are Lyria's oracle (its section 6): a program that passes them all may still fail hidden tests. Without
        public tests every program has fitness 0. Findings are the lines of runtime errors, or None for errors without a
        line.
        """
        if response.answer is None:
            text = f"No program could be read: {response.error}" if max_errors else ""
            return Verification(fitness=0.0, errors=Diagnosis(text=text))
        results = await self._run_public_tests(problem, response, tools)
        if not results:
            return Verification(fitness=0.0, errors=Diagnosis())
        cases = self._public_suite(problem).cases
        fitness = 100 * make_feedback(cases, results, self._limits).score
        failures = list_failures(cases, results, self._limits)
        # If the program does not compile, every test fails alike, so a single syntax error is clearer.
        broken = syntax_error(response.answer) if fitness == 0 else None
        if broken is not None:
            failures = [Failure(broken, None)]
        first_failures = failures[:max_errors]
        errors = Diagnosis(
            text=format_as_bullets([failure.trace for failure in first_failures]),
            findings=tuple(failure.line for failure in first_failures),
        )
        return Verification(fitness=fitness, errors=errors)

    async def _run_public_tests(self, problem: Problem, response: Response, tools: Tools) -> tuple[CaseResult, ...]:
        suite = self._public_suite(problem)
        if response.answer is None or not suite.cases:
            return ()
        return await tools.test(make_program(problem, response.answer), suite, stop_at_failure=False)

    def _public_suite(self, problem: Problem) -> Suite:
        """Return the suite of public tests: one object per problem, so that a journal recognizes it cheaply."""
        cached = self._suites.get(problem.id)
        if cached is None or cached[0] is not problem:
            cases = tuple(Case(test["input"], test["output"]) for test in problem.data["public_tests"])
            cached = self._suites[problem.id] = (problem, Suite(cases, make_check(problem), self._limits))
        return cached[1]

    # --- symbolic operators ---

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: np.random.Generator) -> Response:
        return operators.crossover(first, second, rng, self._solution_chars)

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        return operators.mutate(individual, rng, self._solution_chars)


def _program_schema(reasoning_chars: int, solution_chars: int, *, with_memory: bool) -> dict[str, Any]:
    properties = {"reasoning": {"type": "string", "maxLength": reasoning_chars}}
    if with_memory:
        properties["evolving_memory"] = {"type": "string", "maxLength": MEMORY_CHARS}
    properties["solution"] = {"type": "string", "maxLength": solution_chars}
    return object_schema(**properties)
