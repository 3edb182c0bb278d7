"""Every function that reads what a model or its program wrote, and texts made to harm it."""

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from gepa.strategies.instruction_proposal import InstructionProposalSignature
from hypothesis import strategies as st

from building import load_task
from evorun.methods.ace import playbook as ace
from evorun.methods.espl import system_prompts
from evorun.methods.espl.operators import OperatorPrompts, read_summary, render_lessons
from evorun.methods.islands.population import is_similar, split_words
from evorun.methods.mpo import meta_prompts
from evorun.methods.mpo.meta_prompts import read_count
from evorun.models import channels
from evorun.models.base import Completion, Reply
from evorun.models.server.messages import Redactor, error_text
from evorun.models.server.wire import without_lone_surrogates
from evorun.rollouts import monitors
from evorun.runs.candidates import Response
from evorun.runs.printable import printable
from evorun.sandbox import same_output
from evorun.sandbox.base import Case, CaseResult, Limits
from evorun.sandbox.testing import cut
from evorun.simulation.loopholes import strengths
from evorun.tasks import advice, judging, patches, score_forms, tool_calls, verdicts
from evorun.tasks.billsum.worker import put_sentences_on_lines
from evorun.tasks.boxes import has_alternatives, is_in_form, last_boxed, without_placeholders
from evorun.tasks.capabilities import Diagnosis, Individual
from evorun.tasks.clauses import clause_before, is_supposed
from evorun.tasks.conclusions import emphasized, read_conclusion
from evorun.tasks.corrections import read_unless_withdrawn, settled
from evorun.tasks.ethics.ethics import read_verdict
from evorun.tasks.fitness_scores import read_fitness, read_last_score
from evorun.tasks.given_scores import is_given
from evorun.tasks.json_text import read_object, replace_lone_surrogates
from evorun.tasks.livecodebench import feedback, operators, programs
from evorun.tasks.livecodebench.reading import read_memory, read_program, read_reasoning
from evorun.tasks.math_contest.reading import canonical, read_integer, stated
from evorun.tasks.multiple_choice import read_choice, read_letter
from evorun.tasks.numbers import read_number
from evorun.tasks.puzzles.denials import drop_dismissed, drop_supposed
from evorun.tasks.puzzles.reading import last_block
from evorun.tasks.reasoning_gym.families import is_accepted
from evorun.tasks.rubric_items import read_written_items
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.rubrics import read_rubric
from evorun.tasks.search_qa.reading import read_call
from evorun.tasks.short_answers import f1, read_answer
from evorun.tasks.short_answers import is_in_form as in_form
from evorun.tasks.tags import escape_tags
from evorun.tasks.thinking import outside_thinking, without_thinking

OPTIONS = ("one", "two", "three", "four")
ONE = {"instances": 1, "validation_instances": 0}
TASKS: dict[str, dict[str, Any]] = {
    "livecodebench": {"source": "sample"},
    "mathbench": {"source": "sample"},
    "math500": {"source": "sample"},
    "aime": {"source": "sample"},
    "sudoku": ONE,
    "tsp": ONE,
    "graph_coloring": ONE,
    "arithmetic": {},
    "search_qa": {"source": "sample"},
    "essay": {"source": "sample"},
    "ethics": {"source": "sample"},
    "billsum": {"source": "sample"},
}
"""Those whose reading differs, and how to load them."""


class Reader(NamedTuple):
    """A function that reads a text, and the module whose regular expressions it uses."""

    read: Callable[[str], object]
    module: str


def functions() -> dict[str, Reader]:
    """Return the functions that read by themselves, by name."""
    known: dict[str, dict[str, Callable[[str], object]]] = {
        "sandbox.comparison": {
            "lines": lambda text: same_output("lines", "1 2", text),
            "lines of it": lambda text: same_output("lines", text, f"{text} 0"),
            "json": lambda text: same_output("json", "[1]", text, printed=True),
            "json of it": lambda text: same_output("json", text, f"{text} ", printed=True),
        },
        "tasks.json_text": {
            "object": lambda text: read_object(text, "solution"),
            "well_formed": replace_lone_surrogates,
        },
        "tasks.judging": {
            "judgment": judging.parse_judgment,
            "errors": lambda text: judging.read_errors(text, 3),
        },
        "tasks.verdicts": {"verdict": verdicts.read_verdict},
        "tasks.fitness_scores": {"fitness": read_fitness, "score": read_last_score},
        "tasks.given_scores": {
            "given": lambda text: is_given(f"{text} 5", len(text) + 1, len(text) + 2),
            "given behind it": lambda text: is_given(f"5 {text}", 0, 1),
        },
        "tasks.multiple_choice": {
            "letter": _or_error(lambda text: read_letter(text, OPTIONS)),
            "choice": lambda text: read_choice(text, OPTIONS),
        },
        "tasks.thinking": {"reply": without_thinking, "outside": outside_thinking},
        "tasks.corrections": {
            "settled": lambda text: settled(text, [(0, 1), (len(text), 2)]),
            "withdrawn": _or_error(lambda text: read_unless_withdrawn(str, text)),
        },
        "tasks.puzzles.reading": {"block": last_block},
        "tasks.puzzles.denials": {
            "drop supposed": drop_supposed,
            "drop dismissed": drop_dismissed,
        },
        "tasks.clauses": {
            "clause": lambda text: clause_before(text, len(text), across_lines=True),
            "supposed": lambda text: is_supposed(text, len(text)),
        },
        "tasks.boxes": {
            "box": last_boxed,
            "form": is_in_form,
            "alternatives": has_alternatives,
            "placeholders": without_placeholders,
        },
        "tasks.conclusions": {
            "concluded": lambda text: read_conclusion(text, "How many ordered pairs (m, n) are there?"),
            "question": lambda text: read_conclusion("There are 5 of them.", text),
            "emphasized": emphasized,
        },
        "tasks.math_contest.reading": {"integer": read_integer, "canonical": canonical, "stated": stated},
        "tasks.livecodebench.reading": {
            "program": _or_error(read_program),
            "reasoning": read_reasoning,
            "memory": read_memory,
        },
        "tasks.search_qa.reading": {
            "call": _or_error(lambda text: read_call(text, 3)),
            "call between tags": _or_error(lambda text: read_call(f"<tool_call>{text}</tool_call>", 3)),
        },
        "tasks.numbers": {"number": _or_error(read_number)},
        "tasks.short_answers": {
            "answer": _or_error(read_answer),
            "in form": in_form,
            "f1": lambda text: f1(text, "the one"),
            "f1 of it": lambda text: f1("1", text),
        },
        "tasks.ethics.ethics": {"verdict": _or_error(read_verdict)},
        "tasks.billsum.worker": {"sentences on lines": put_sentences_on_lines},
        "tasks.tags": {"inert": escape_tags},
        "tasks.rubrics": {
            "rubric": _or_error(read_rubric),
            "items of a problem": _or_error(lambda text: read_written_items(text, 5)),
            "item": _or_error(lambda text: read_rubric(f"<rubric><item>{text}</item></rubric>")),
            "levels": _or_error(lambda text: read_rubric(f"<rubric><item>Title {text}\n- 1: {text}</item></rubric>")),
            "totals": _or_error(lambda text: read_rubric(f"<rubric><item>a\n- 1: b</item></rubric> total {text}")),
        },
        "tasks.rubric_scores": {
            "scores": _or_error(lambda text: read_scores(text, JOINT)),
            "score": _or_error(lambda text: read_scores(text, JOINT, JOINT.items[0])),
            "content": _or_error(lambda text: read_scores(f"<score>{text}</score>", JOINT, JOINT.items[0])),
        },
        "tasks.score_forms": {
            "tags": _or_error(score_forms.find_tags),
            "lines": _or_error(lambda text: score_forms.find_lines(text, LABELS)),
            "table": _or_error(lambda text: score_forms.find_in_table(f"|item|score|\n|-|-|\n|{text}", LABELS)),
            "json": _or_error(lambda text: score_forms.find_in_json(text, LABELS)),
            "label": _or_error(LABELS.find),
        },
        "tasks.reasoning_gym.families": {
            "lists": lambda text: is_accepted("n_queens", text),
            "formulas": lambda text: is_accepted("simple_integration", text),
        },
        "tasks.advice": {
            "paradigms": advice.read_paradigms,
            "note": advice.read_note,
            "recommendations": advice.read_recommendations,
        },
        "tasks.patches": {"apply": _or_error(lambda text: patches.apply_patch("x = 1\ny = 2", text))},
        "tasks.tool_calls": {"calls": tool_calls.read_calls, "around": tool_calls.without_calls},
        "methods.islands.population": {"words": lambda text: is_similar(split_words(text), ("x", "=", "1"), 0.9)},
        "tasks.livecodebench.programs": {
            "signature": programs.signature,
            "syntax_error": programs.syntax_error,
            "entry": lambda text: programs._entry.__wrapped__(text, "solve"),
        },
        "tasks.livecodebench.feedback": {"shorten": feedback.shorten, "failures": _failures},
        "tasks.livecodebench.operators": {"mutate": _mutated, "crossover": _crossed},
        "models.channels": {"recipient": lambda text: channels._RECIPIENT.search(f"assistant {text}")},
        "models.server.messages": {
            "error": lambda text: error_text(text.encode(errors="surrogatepass")),
            "redacted": Redactor("sk-key/0").message,
        },
        "methods.gepa.bridge": {"instruction": InstructionProposalSignature.output_extractor},
        "methods.ace.playbook": {
            "cited": ace.Playbook((ace.Entry(1, "code", "one"),), 2).find_cited,
            "additions": lambda text: ace.Playbook().add(
                [{"section": text, "text": text}], ace.Limits(1, 10_000, 100_000)
            ),
            "similarity": lambda text: ace.similarity(text, "one two"),
        },
        "methods.espl.system_prompts": {
            "edits": lambda text: system_prompts.patch(("one", "two"), _replied(text), EDITS, partial=True)
        },
        "methods.espl.operators": {
            "summary": lambda text: read_summary(_replied(text)),
            "lesson": lambda text: render_lessons(
                [_operators().read_lesson(system_prompts.SystemPrompt("", ("one",)), _replied(text))]
            ),
        },
        "methods.mpo.meta_prompts": {
            "analysis": _or_error(lambda text: meta_prompts.read_analysis(_replied(text))),
            "own score": lambda text: meta_prompts.read_own_score(text, 5.0),
            "refinement": _or_error(lambda text: meta_prompts.read_refinement(_replied(text), 9)),
            "count": _or_error(lambda text: read_count(text, 9)),
        },
        "simulation.loopholes": {"strengths": strengths},
        "rollouts.monitors": {
            "monitors": lambda text: monitors.measure(text, "stop"),
            **{
                f"exploit {number}": lambda text, number=number: monitors.known_exploit(number, text)
                for number in range(len(monitors.EXPLOITS))
            },
        },
        "runs.printable": {"printable": printable},
        "models.server.wire": {"surrogates": lambda text: without_lone_surrogates(text.encode(errors="surrogatepass"))},
    }
    for task in ("sudoku", "tsp", "graph_coloring"):
        puzzle, problem = _loaded(task)
        known[type(puzzle).__module__.removeprefix("evorun.")] = {
            "findings": lambda text, puzzle=puzzle, problem=problem: puzzle.read_findings(problem, text),
            "reply": _or_error(lambda text, puzzle=puzzle, problem=problem: puzzle.read(problem, text)),
        }
    return {
        f"{module}: {what}": Reader(read, f"evorun.{module}")
        for module, ones in known.items()
        for what, read in ones.items()
    }


JOINT = read_rubric("<rubric><item>one\n- 5: text</item><item>two\n- 3: text</item></rubric>")
LABELS = score_forms.ItemLabels(JOINT)
EDITS = system_prompts.Limits(principles=4, principle_chars=50, edits=3)


def _replied(text: str) -> Reply:
    completion = Completion(text=text, finish_reason="stop", tokens=0)
    return Reply(completions=(completion,), prompt_tokens=0, seconds=0.0)


@cache
def _operators() -> OperatorPrompts:
    return OperatorPrompts(EDITS, {}, local_edits=2, rollout_chars=None)


PARSED = ("response", "judgment", "errors", "fitness")
PARSERS = [f"{task}: {what}" for task in TASKS for what in PARSED]


def parser(name: str) -> Callable[[str], object]:
    """Return one of the tasks' parsers; each uses some of the functions."""
    task, what = name.split(": ")
    return _parsers_of(*_loaded(task))[what]


@cache
def _loaded(name: str) -> tuple[Any, Any]:
    loaded = load_task(name, **TASKS[name])
    return loaded.task, loaded.problems[0]


def _parsers_of(task: Any, problem: Any) -> dict[str, Callable[[str], object]]:
    def parse(text: str) -> None:
        response = task.parse(problem, text)
        if response.answer is not None:
            task.signature(problem, response)
        task.score(problem, response, "1")
        task.response_values(problem, response)

    return {
        "response": parse,
        "judgment": task.parse_judgment,
        "errors": lambda text: task.parse_errors(problem, text, 3),
        "fitness": task.parse_fitness,
    }


def _or_error(read: Callable[[str], object]) -> Callable[[str], object]:
    """Return a reader that may say by a ValueError why there is no answer."""

    def reads(text: str) -> None:
        try:
            read(text)
        except ValueError as error:
            if not re.match(r"[a-z_]+: |expected |row ", str(error)):  # not the reader's own
                raise AssertionError(text) from error

    return reads


def _individual(source: str) -> Individual:
    return Individual(
        response=Response(text=source, answer=source), fitness=50, errors=Diagnosis(text="- e", findings=(1, None))
    )


_OTHER = _individual("import math\n\ndef f(a):\n    return math.sqrt(a)\n")


def _failures(text: str) -> None:
    result = CaseResult(verdict="runtime_error", stdout=cut(text), stderr=cut(text), value=None, cpu_seconds=0.0)
    feedback.list_failures([Case(text, text)], [result], Limits())


def _mutated(text: str) -> None:
    operators.mutate(_individual(text), np.random.default_rng(0), len(text))


def _crossed(text: str) -> None:
    for first, second in ((_individual(text), _OTHER), (_OTHER, _individual(text))):
        operators.crossover(first, second, np.random.default_rng(0), len(text))


# --- texts ---

FRAGMENTS = (
    *(
        " ",
        "\n",
        "\r\n",
        "\t",
        "\u00a0",
        "\u2028",
        "\x00",
        "\ud800",
        "\U0001f600",
        "\u00e9",
        "\u0663",
        "\u00b2",
        "\u0130",
    ),
    *(
        "\\",
        "'",
        '"',
        "`",
        "~",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "<",
        "$",
        "*",
        "_",
        "#",
        "-",
        "+",
        ".",
        ",",
        ":",
        ";",
        "=",
    ),
    *("/", "%", "^", "|", "&", "0", "1", "9", "a", "A", "A. ", "x=", "0x", "1e9", "100 ", "000", "1,", ", ", "-1 "),
    *("'\\", '"\\', "',", '",', "('a', 1), ", "\\n", "\\u", "\\ud83d", "True", "None "),
    *("```", "```\n", "```python\n", "\n```\n", "```x```\n", "~~~\n", "``", "\n "),
    *("\\boxed", "\\boxed{", "\\boxed{1}", "\\text{", "\\frac{", "\\frac12", "\\sqrt", "\\,", "\\!", "^{", "\\circ"),
    *(
        "</think>",
        "wait, ",
        "ignore that",
        "that is wrong. ",
        "0, 1, 0, ",
        "0: 1\n",
        "Row 1: ",
        "| 1 ",
        "\\\\ ",
        "\n\n",
    ),
    *('{"edits": [', '{"op": "', '"merge", "ids": [', '"id": "G1", "text": "'),
    *(
        '{"solution": "',
        '"solution": ',
        '{"score": ',
        '{"errors": ["',
        '"reasoning": "',
        '"a": [',
        '{"a":',
        "}}",
        "]]",
        '{"solution": x ',
    ),
    *(
        "the ",
        "answer",
        "answer is ",
        "Answer: ",
        "<tool_call>",
        "</tool_call>",
        "<verdict>",
        "RIGHT</verdict>",
        "solution",
        "is",
        "option ",
        "missing",
        "repeated ",
        "excess",
        "out of ",
        "0 to ",
    ),
    *("def f():\n return 1\n", "class A:\n", "if 1:\n ", "a=1\n", "x;", "lambda:", "not ", "f'{", "a.b", "1if 1else "),
)
"""The pieces that replies, programs and their outputs are made of, and those that have broken parsers."""

HOSTILE = (
    '{"score": ' + "9" * 400 + "}",
    '{"solution": ' + "9" * 400 + "}",
    '{"edits": [{"op": "remove", "id": "' + "9" * 5_000 + '"}, {"op": "remove", "id": ' + "9" * 5_000 + "}]}",
    '{"edits": [{"op": "merge", "ids": [[1], {}, null, 1e400, "\u0663"], "text": "x"}, [], null]}',
    '{"score": NaN,}',
    "x = 0x" + "f" * 5_000,
    "x = " + "9" * 5_000,
    "def f(a):\n    return 0x" + "f" * 5_000,
    '{"solution": "x = 0x' + "f" * 5_000 + '"}',
    "\\boxed{" + "1," * 3_000 + "}",
    "100 " * 2_000,
    "\ud800```python\n\ud800x\n```",
)
"""Texts that the fragments do not come to by chance."""

texts: st.SearchStrategy[str] = st.one_of(
    st.sampled_from(HOSTILE),
    st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join),
    st.text(st.characters(exclude_categories=()), max_size=30),
)


FRAMES = (("", ""), ('{"solution": "```', 'x"}'), ("'", "!"), ("answer is", "!"), ("\\boxed{", "x"), ("missing", "x"))
"""Beginnings and ends of texts whose middle is a fragment again and again."""
BRACKETS = (("\\boxed{", "}"), ("(", ")"), ("[", "]"), ('{"a":', "}"), ("{", "}"), ("```\n", "\n```"), ("'(", ")'"))


def _pumps() -> Iterator[Callable[[int], str]]:
    for fragment in FRAGMENTS:
        for frame in FRAMES if len(fragment) < 3 else FRAMES[:2]:
            yield partial(_repeated, *frame, fragment, "")
    for opening, closing in BRACKETS:
        yield partial(_repeated, "", "", opening, closing)


def _repeated(before: str, behind: str, opening: str, closing: str, length: int) -> str:
    times = length // len(opening + closing)
    return before + opening * times + closing * times + behind


PUMPS = tuple(_pumps())
"""Each makes a text of about so many characters, to be read again and again from each of its characters."""
