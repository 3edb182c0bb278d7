"""What methods may touch of LiveCodeBench: its prompts (Duel-Evolve, B.2), public tests, reading of programs."""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from evorun.models.base import Message
from evorun.runs.candidates import Response
from evorun.sandbox.base import Case, CaseResult, Limits, Suite
from evorun.tasks.attempts import shown_attempts
from evorun.tasks.base import Demonstration, Problem, Prompt, Task, Tools
from evorun.tasks.capabilities import Attempt, Judgment, ScoredResponse
from evorun.tasks.judging import REASONED_VERDICT_SCHEMA, parse_judgment
from evorun.tasks.livecodebench import recombination
from evorun.tasks.livecodebench.feedback import feedback_of
from evorun.tasks.livecodebench.programs import check_of, program_for
from evorun.tasks.livecodebench.reading import MEMORY_CHARS, read_program
from evorun.tasks.livecodebench.recombination import Recombination
from evorun.tasks.livecodebench.signature import signature
from evorun.tasks.prompt_files import PromptFiles

_CANDIDATE = {"code": "print(int(input()) + 1)", "reasoning": "Adding one.", "executions": "1 of 1 passed"}
_PARENT = {**_CANDIDATE, "score": 0.5, "win_reason": "It parses.", "loss_reason": "It is slow.", "memory": "n = 0"}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "system": {},
    "rules": {"seconds": "4"},
    "reply": {"with_memory": True, "memory_chars": MEMORY_CHARS},
    "problem": {
        "question": "Add one.",
        "public_tests": [{"input": "1", "output": "2"}],
        "starter_code": "class Solution:",
    },
    "generation": {"problem": "# Problem", "rules": "- Be right.", "reply": "{}"},
    "evolution": {"problem": "# Problem", "rules": "- Be right.", "reply": "{}", "parent_solutions": "Solution:"},
    "parent": _PARENT,
    "judge": {
        "question": "Add one.",
        "code_a": "print(1)",
        "trace_a": "1 of 1 passed",
        "code_b": "print(2)",
        "trace_b": "0 of 1 passed",
        "seconds": "4",
    },
    "few_shot": {
        "problem": "# Problem",
        "rules": "- Be right.",
        "reply": "{}",
        "count": 3,
        "few_shot_examples": "# Problem",
    },
    "demonstration": {"problem": "# Problem", "response": "{}"},
    "refinement": {
        "problem": "# Problem",
        "rules": "- Be right.",
        "reply": "{}",
        "incumbent": "Solution:",
        "attempts": "Solution:",
    },
    "attempt": {**_CANDIDATE, "number": 1, "outcome": "won", "reason": "It parses.", "memory": "n = 0"},
    "instruction": {},
    "instructed": {
        "question": "Add one.",
        "public_tests": [{"input": "1", "output": "2"}],
        "starter_code": "class Solution:",
    },
    "reflection": {**_CANDIDATE, "error": ""},
    **recombination.EXAMPLES,
}
"""Every prompt file, with a value for each variable that it is given."""

_NOT_RUN = "The public tests were not run."


class LiveCodeBench(Recombination, Task):
    """Answers a problem with a program; improves on scored programs, recombines and compares programs; tests them."""

    name = "livecodebench"

    def __init__(
        self,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        stated_time_limit_s: float = 4.0,
        prompts: str | None = None,
        reasoning_max_chars: int = 3000,
        shown_reasoning_chars: int = 1200,
        solution_max_chars: int = 6000,
    ) -> None:
        """Compile the prompts; raises ConfigError naming the file that cannot be used.

        limits: of a program on one public test. stated_time_limit_s: what the prompts say, in seconds. prompts: folder
        of the user's own files. *_chars: characters. See `LiveCodeBenchConfig`.
        """
        self._limits = limits
        self._prompts = PromptFiles((Path(__file__).parent / "prompts",), prompts)
        for name, example in _EXAMPLES.items():
            self._prompts.render(name, **example)
        self._shown_reasoning_chars = shown_reasoning_chars
        self._solution_chars = solution_max_chars
        self._seconds = f"{stated_time_limit_s:g}"
        self._system = Message(role="system", content=self._prompts.render("system"))
        self._instruction = self._prompts.render("instruction")
        rules = self._prompts.render("rules", seconds=self._seconds)
        self._with_memory = {"rules": rules, "reply": self._reply(with_memory=True)}
        self._without_memory = {"rules": rules, "reply": self._reply(with_memory=False)}
        self._memory_schema = _program_schema(reasoning_max_chars, solution_max_chars, with_memory=True)
        self._plain_schema = _program_schema(reasoning_max_chars, solution_max_chars, with_memory=False)
        self._shown: dict[str, tuple[Problem, str]] = {}
        self._suites: dict[str, tuple[Problem, Suite]] = {}

    # --- asking ---

    def generation_prompt(self, problem: Problem) -> Prompt:
        """Ask for a program from scratch (B.2.1)."""
        text = self._prompts.render("generation", problem=self._problem(problem), **self._with_memory)
        return self._prompt(text, self._memory_schema, role="generate", problem=problem.id, answers=[])

    def evolution_prompt(self, problem: Problem, parents: Sequence[ScoredResponse]) -> Prompt:
        """Ask for a better program than the parents', each with its last win and loss and test runs (B.2.2, B.2.3)."""
        blocks = "\n\n".join(self._parent(parent) for parent in parents)
        text = self._prompts.render(
            "evolution", problem=self._problem(problem), parent_solutions=blocks, **self._with_memory
        )
        answers = [parent.response.answer for parent in parents]
        return self._prompt(text, self._memory_schema, role="evolve", problem=problem.id, answers=answers)

    def judge_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        """Ask which of two programs is better, or whether they tie (B.2.4)."""
        text = self._prompts.render(
            "judge",
            question=problem.data["question"],
            code_a=self._code(first),
            trace_a=_executions(first),
            code_b=self._code(second),
            trace_b=_executions(second),
            seconds=self._seconds,
        )
        answers = [first.answer, second.answer]
        return self._prompt(text, REASONED_VERDICT_SCHEMA, role="judge", problem=problem.id, answers=answers)

    def few_shot_prompt(self, problem: Problem, demonstrations: Sequence[Demonstration]) -> Prompt:
        """Ask for a program, with solved problems in view (B.2.5)."""
        text = self._prompts.render(
            "few_shot",
            problem=self._problem(problem),
            few_shot_examples="\n\n".join(map(self._solved, demonstrations)),
            count=len(demonstrations),
            **self._without_memory,
        )
        return self._prompt(text, self._plain_schema, role="few_shot", problem=problem.id, answers=[])

    def refinement_prompt(self, problem: Problem, incumbent: Response, attempts: Sequence[Attempt]) -> Prompt:
        """Ask for a better program than the incumbent, in view of the attempts so far (appendix D; wording ours)."""
        blocks = shown_attempts(self._prompts, attempts, lambda r: {**self._candidate(r), "memory": r.memory})
        text = self._prompts.render(
            "refinement",
            problem=self._problem(problem),
            incumbent=self._code(incumbent),
            attempts=blocks,
            **self._with_memory,
        )
        answers = [incumbent.answer]
        return self._prompt(text, self._memory_schema, role="refine", problem=problem.id, answers=answers)

    # --- prompts that a method writes (B.2.6) ---

    def seed_instruction(self) -> str:
        """Return the system prompt to start from."""
        return self._instruction

    def instructed_prompt(self, problem: Problem, instruction: str) -> Prompt:
        """Ask for a program under this system prompt (B.2.6)."""
        text = self._prompts.render("instructed", **_parts(problem))
        own = "" if instruction == self._instruction else blake2b(instruction.encode("utf-8", "replace")).hexdigest()
        prompt = self._prompt(
            text, self._plain_schema, role="instruct", problem=problem.id, answers=[], instruction=own
        )
        system = Message(role="system", content=instruction)
        return msgspec.structs.replace(prompt, messages=(system, *prompt.messages[1:]))

    def reflection_record(self, problem: Problem, response: Response, demonstration: Demonstration | None) -> str:
        """Say what the public tests made of a response; a demonstration's program is shown beside it."""
        text = self._prompts.render("reflection", error=response.error or "", **self._candidate(response))
        if demonstration is None or not demonstration.answer:
            return text
        return f"{text}\n\nA program that passes every test:\n```python\n{demonstration.answer}\n```"

    # --- reading ---

    def parse(self, problem: Problem, text: str) -> Response:
        """Parse a completion; see `read_program`."""
        return read_program(text)

    def parse_judgment(self, text: str) -> Judgment:
        """Parse a judge's completion; see `evorun.tasks.judging.parse_judgment`."""
        return parse_judgment(text)

    def signature(self, problem: Problem, response: Response) -> str:
        """Return the program's signature; see `evorun.tasks.livecodebench.signature`."""
        return signature(response.answer or "")

    def demonstration(self, demonstration: Demonstration, response: Response) -> Demonstration:
        """Return the demonstration with a response's program and reasoning."""
        return msgspec.structs.replace(demonstration, answer=response.answer or "", reasoning=response.reasoning)

    # --- looking ---

    async def observe(self, problem: Problem, response: Response, tools: Tools) -> Response:
        """Run every public test and return the response with what they say; unchanged where there is nothing to run."""
        results = await self._tried(problem, response, tools)
        if not results:
            return response
        feedback = feedback_of(self._public(problem).cases, results, self._limits)
        return msgspec.structs.replace(response, feedback=feedback)

    async def _tried(self, problem: Problem, response: Response, tools: Tools) -> tuple[CaseResult, ...]:
        suite = self._public(problem)
        if response.answer is None or not suite.cases:
            return ()
        return await tools.test(program_for(problem, response.answer), suite, stop_at_failure=False)

    def _prompt(self, text: str, schema: dict[str, Any], **hints: Any) -> Prompt:
        return Prompt(messages=(self._system, Message(role="user", content=text)), json_schema=schema, hints=hints)

    def _public(self, problem: Problem) -> Suite:
        known = self._suites.get(problem.id)
        if known is None or known[0] is not problem:
            cases = tuple(Case(test["input"], test["output"]) for test in problem.data["public_tests"])
            known = self._suites[problem.id] = (problem, Suite(cases, check_of(problem), self._limits))
        return known[1]

    def _problem(self, problem: Problem) -> str:
        known = self._shown.get(problem.id)
        if known is None or known[0] is not problem:
            known = self._shown[problem.id] = (problem, self._prompts.render("problem", **_parts(problem)))
        return known[1]

    def _reply(self, *, with_memory: bool) -> str:
        return self._prompts.render("reply", with_memory=with_memory, memory_chars=MEMORY_CHARS)

    def _parent(self, parent: ScoredResponse) -> str:
        return self._prompts.render(
            "parent",
            score=parent.score,
            win_reason=parent.win_reason,
            loss_reason=parent.loss_reason,
            memory=parent.response.memory,
            **self._candidate(parent.response),
        )

    def _solved(self, demonstration: Demonstration) -> str:
        reply = {"reasoning": demonstration.reasoning, "solution": f"```python\n{demonstration.answer}\n```"}
        return self._prompts.render(
            "demonstration", problem=self._problem(demonstration.problem), response=msgspec.json.encode(reply).decode()
        )

    def _candidate(self, response: Response) -> dict[str, str]:
        return {
            "code": self._code(response),
            "reasoning": response.reasoning[: self._shown_reasoning_chars],
            "executions": _executions(response),
        }

    def _code(self, response: Response) -> str:
        # A response that could not be parsed is still shown: as its text.
        return (response.answer or response.text)[: self._solution_chars]


def _parts(problem: Problem) -> dict[str, Any]:
    return {key: problem.data[key] for key in ("question", "public_tests", "starter_code")}


def _executions(response: Response) -> str:
    if response.answer is None:
        return "No program could be read from this reply."
    return response.feedback.text if response.feedback else _NOT_RUN


def _program_schema(reasoning_chars: int, solution_chars: int, *, with_memory: bool) -> dict[str, Any]:
    properties = {"reasoning": {"type": "string", "maxLength": reasoning_chars}}
    if with_memory:
        properties["evolving_memory"] = {"type": "string", "maxLength": MEMORY_CHARS}
    properties["solution"] = {"type": "string", "maxLength": solution_chars}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
