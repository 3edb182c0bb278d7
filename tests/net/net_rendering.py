"""Prompts and parsed texts of a task, asked for directly: with texts that have broken prompts, parsers or encoders."""

import json
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from net_digests import Digests, digest, prompt_digests

from building import load_task

FAMILIES: dict[str, dict[str, str]] = {
    "mathbench": {"source": "sample"},
    "arithmetic": {},
    "aime": {"source": "sample"},
    "math500": {"source": "sample"},
    "sudoku": {},
    "graph_coloring": {},
    "tsp": {},
    "livecodebench": {"source": "sample"},
}

_ODD = (
    "",
    "Three and four make seven.",
    "Größe ≥ 数学 👩‍🔬 \u202eleft\u202c \u2028 end",
    "{curly} {{ 7 * 7 }} {% raw %} {# gone #} %s {0} \\1 ${x} <b>&amp;",
    "nul \x00 bell \x07 \x1b[31m",
    "lone \ud800 surrogate",
    '# Problem\n## Candidate A\n```\nnot it\n```\nThe answer is \\boxed{B} or {"solution": "C"}.',
    "  leading and trailing lines \r\n\n\n",
    "Step by step. " * 400 + "That is all.",
)
"""Reasoning that is shown to judges, improvers and reflecting models."""

_BAD = (
    *("", "\x00", "```", "```\n```", "\\boxed{", "\\boxed{}", "{", "{}", "[]", "null", "B", "The answer is B.", "42"),
    *('{"solution": "A"}', '{"solution": ["A"], "reasoning": {}}', '{"solution": "Z", "reasoning": "z"}', "{" * 500),
    *('{"reasoning": "cut o', '{"reasoning": "\\ud800", "solution": "b"}', '```json\n{"solution": "(C)"}\n```'),
    *("\\boxed{1}\\boxed{2}", "\\boxed{\\frac{1}{2}}", "\\boxed{-7}", "\\boxed{1,234}", "$\\boxed{\\text{x}}$"),
    *(
        "```\n1 2 3\n```",
        "```text\n0 1 2 3 4 5 6 7 8 9 0\n```",
        "```python\ndef solve(:\n```",
        "```python\nprint(1)\n```",
    ),
    *('{"reasoning": "r", "solution": "print(1)"}', '{"reasoning": "r", "solution": ""}', "~~~\n[[1, 2]]\n~~~"),
)
"""Completions that no model should write; for some task a few of them can be read."""

_JUDGMENTS = (
    *('{"solution": "A", "reasoning": "Because."}', '{"reasoning": "r\\ud800", "solution": "B"}', "T", "tie", "A", ""),
    *("(b)", '{"solution": "A"}{"solution": "B"}', '{"solution": 1}', "I prefer A.", '{"solution": "candidate b"}'),
)
_EVALUATIONS = (
    *("", "57", "57.5/100", '{"fitness": 80}', '{"fitness": 180}', '{"fitness": "x"}', '{"score": 10}', "```\n35\n```"),
    *('{"reasoning": "r", "fitness": 12.5}', '{"errors": []}', '{"errors": ["a", "b", "c", "d"]}', "```\nNone\n```"),
    *(
        "```\n0,1,row\n3,4,box\n```",
        "```\n(0, 1)\n(2, 3)\n```",
        "```\n0 1\n1 2\n```",
        "```\nmissing 3\n```",
        "fitness: 9",
    ),
)


class _Case(NamedTuple):
    problem: Any
    demonstration: Any
    responses: list[Any]
    """In the task's own form, with odd reasoning."""


def render_family(name: str, own_prompts: Path | None = None) -> Digests:
    """Return the digests of everything that a task renders and reads; `own_prompts` replaces its prompt files."""
    chosen = {} if own_prompts is None else {"prompts": str(own_prompts)}
    loaded = load_task(name, limit=2, **FAMILIES[name], **chosen)
    task: Any = loaded.task
    cases = [_case(name, task, demonstration) for demonstration in loaded.validation[:2]]
    found: Digests = {"prompts": {}}
    asked: dict[str, list[Any]] = {}
    for case in cases:
        for capability, prompt in _prompts(task, case, loaded.validation[2:4]):
            asked.setdefault(capability, []).append(prompt)
    for capability, prompts in asked.items():
        texts = isinstance(prompts[0], str)
        found["prompts"][capability] = {"text": digest(prompts)} if texts else prompt_digests(prompts)
    found["problems"] = digest(msgspec.to_builtins([*loaded.problems, *loaded.validation]))
    if own_prompts is None:
        found["read"] = _read(task, cases)
    return found


def _case(name: str, task: Any, demonstration: Any) -> _Case:
    problem = demonstration.problem
    parsed = [task.parse(problem, text) for text in _completions(name, demonstration.answer)]
    assert all(response.answer is not None for response in parsed[1:6]), [r.error for r in parsed]
    return _Case(problem, demonstration, parsed)


def _completions(name: str, answer: str) -> list[str]:
    if name in ("mathbench", "livecodebench"):
        solution = "```python\nprint(input())  # {{ x }} ü\n```" if name == "livecodebench" else answer
        replies = [{"reasoning": odd, "evolving_memory": odd[:300], "solution": solution} for odd in _ODD]
        return [json.dumps(reply, ensure_ascii=number % 2 == 0) for number, reply in enumerate(replies)]
    if name in ("sudoku", "graph_coloring", "tsp"):
        return [f"{odd}\n```\n{answer}\n```" for odd in _ODD]
    return [f"{odd}\nSo \\boxed{{{answer}}}" for odd in _ODD]


def _prompts(task: Any, case: _Case, others: Any) -> Iterator[tuple[str, Any]]:
    problem = case.problem
    answered = [
        _observed(task, response, i) for i, response in enumerate(case.responses) if response.answer is not None
    ]
    unreadable = [task.parse(problem, text) for text in ("", _ODD[3])]
    Attempt, Explanation, Scored = _word("Attempt"), _word("Explanation"), _word("ScoredResponse")
    yield "generation", task.generation_prompt(problem)
    scored = [
        Scored(
            response=response,
            score=0.1234567 * i - 0.2,
            win=Explanation(reason=_ODD[i % 7], letter="AB"[i % 2]),
            loss=Explanation(reason=_ODD[(i + 3) % 7]),
        )
        for i, response in enumerate(answered)
    ]
    for parents in (scored[:1], scored[1:], scored[::-1]):
        yield "evolution", task.evolution_prompt(problem, parents)
    for first, second in zip(answered, answered[1:] + answered[:1], strict=True):
        yield "judge", task.judge_prompt(problem, first, second)
    attempts = [
        Attempt(
            response=response,
            outcome=("first", "won", "lost", "undecided")[i % 4],
            judged=Explanation(reason=_ODD[(i + 1) % 7], letter="AB"[i % 2]),
        )
        for i, response in enumerate(answered)
    ]
    for shown in (attempts[:1], attempts):
        yield "refinement", task.refinement_prompt(problem, answered[-1], shown)
    examples = [
        *(task.demonstration(case.demonstration, response) for response in answered[:3]),
        *(task.demonstration(other, answered[1]) for other in others),
        *others,
    ]
    for shown in (examples[1:2], examples):
        yield "few_shot", task.few_shot_prompt(problem, shown)
    yield "seed_instruction", task.seed_instruction()
    for instruction in (task.seed_instruction(), *_ODD[1:]):
        yield "instructed", task.instructed_prompt(problem, instruction)
    for response in (*answered, *unreadable):
        for demonstration in (None, case.demonstration):
            grade = None if demonstration is None else task.score(problem, response, demonstration.answer)
            yield "reflection_record", task.reflection_record(problem, response, demonstration, grade)
        yield "errors", task.errors_prompt(problem, response)
        yield "fitness", task.fitness_prompt(problem, response)
    individuals = [_individual(response, i) for i, response in enumerate((*answered, *unreadable))]
    for first, second in pairwise(individuals):
        yield "crossover", task.crossover_prompt(problem, first, second)
    for individual in individuals:
        yield "mutation", task.mutation_prompt(problem, individual)


def _observed(task: Any, response: Any, number: int) -> Any:
    """Return the response with feedback of public tests, where the task gives any."""
    if not hasattr(task, "observe"):
        return response
    feedback = _word("Feedback")(text=_ODD[(number + 2) % 7], score=number / 10)
    return msgspec.structs.replace(response, feedback=feedback)


def _individual(response: Any, number: int) -> Any:
    errors = _word("Diagnosis")(text="" if number % 3 == 0 else f"- {_ODD[number % 7]}")
    return _word("Individual")(response=response, fitness=12.34567 * number, errors=errors)


def _read(task: Any, cases: list[_Case]) -> Digests:
    responses, errors = [], []
    for problem, demonstration, own in cases:
        bad = [task.parse(problem, text) for text in _BAD]
        for response in (*own, *bad):
            signature = None if response.answer is None else task.signature(problem, response)
            learned = None if response.answer is None else task.demonstration(demonstration, response).reasoning
            responses.append({**msgspec.to_builtins(response), "signature": signature, "demonstration": learned})
        errors += [task.parse_errors(problem, text, limit) for text in (*_EVALUATIONS, *_JUDGMENTS) for limit in (0, 2)]
    fields = responses[0].keys()
    return {
        **{f"response.{field}": digest([response[field] for response in responses]) for field in fields},
        "judgment": digest([msgspec.to_builtins(task.parse_judgment(text)) for text in (*_JUDGMENTS, *_BAD)]),
        "errors": digest([msgspec.to_builtins(found) for found in errors]),
        "fitness": digest([task.parse_fitness(text) for text in (*_EVALUATIONS, *_BAD)]),
    }


def _word(name: str) -> Any:
    """Return a struct that tasks are handed, from whichever module defines it."""
    for module in ("evorun.tasks.base", "evorun.tasks.capabilities", "evorun.runs.candidates"):
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise LookupError(f"no module of the tasks defines {name}")
