"""Every task of evorun's own passes the suite, and tasks that break a rule do not."""

import copy
import math
import random
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from building import load_task, task_config
from evorun.errors import DataError, PluginError
from evorun.rollouts.monitors import measure
from evorun.runner import registry
from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, LoadedTask, Problem, Prompt, TaskConfig, Tools
from evorun.tasks.capabilities import Diagnosis, Individual, Verification
from evorun.tasks.loading import load_rows
from evorun.tasks.numbers import read_number
from evorun.testing import check_task
from text_tasks import DrawnSums, HaikusConfig, JsonSums, OwnSums, Shares, Sums, sums

SMALL: dict[str, dict[str, Any]] = {
    "aime": {"source": "sample"},
    "arithmetic": {"largest_operand": 9, "train_problems": 30, "test_problems": 30, "validation_problems": 4},
    "autocorrelation": {},
    "beyond_aime": {"source": "sample"},
    "billsum": {"source": "sample"},
    "circle_packing": {"circles": [5, 8]},
    "dapo_aime25": {"source": "sample"},
    "essay": {"source": "sample"},
    "ethics": {"source": "sample"},
    "graph_coloring": {"vertices": 5, "colorable_only": True, "instances": 30, "training_instances": 30},
    "hmmt": {"source": "sample"},
    "livecodebench": {"source": "sample", "validation_per_stratum": 1},
    "math": {"source": "sample"},
    "math500": {"source": "sample"},
    "mathbench": {"source": "sample", "validation_per_stratum": 3},
    "matrix_product": {},
    "rows": {"source": "sample"},
    "search_qa": {"source": "sample"},
    "sudoku": {"box": 2, "empty_cells": 2, "instances": 60, "training_instances": 60},
    "tsp": {"cities": 4, "instances": 20, "training_instances": 20},
}
"""So few possible problems that the splits of the puzzles and of arithmetic meet the same ones."""

FROM_OUTSIDE = ("environment", "inspect", "reasoning_gym", "verifiers")
"""They need a task, a server or a package of somebody else's; their own tests have some."""
TASKS = [name for name in registry.TASKS if name not in FROM_OUTSIDE]
LIKE_OTHERS = (
    "autocorrelation",
    "beyond_aime",
    "billsum",
    "dapo_aime25",
    "hmmt",
    "livecodebench",
    "math500",
    "matrix_product",
    "search_qa",
)
"""By day a task of the same class or kind stands for each of them."""
CONSTRUCTIONS = ("autocorrelation", "circle_packing", "matrix_product")
"""They have no problems to train on."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in LIKE_OTHERS)) for name in TASKS]
)
def test_every_task_passes(name: str) -> None:
    check_task(task_config(name, **SMALL[name]))


@pytest.mark.parametrize("name", [name for name in TASKS if name not in CONSTRUCTIONS])
def test_the_problems_to_train_on_are_the_same_whatever_the_limit(name: str) -> None:
    training, again = (task_config(name, **SMALL[name], limit=limit).load_training() for limit in (2, None))
    assert training.problems == again.problems
    assert training.provenance == again.provenance


@pytest.mark.parametrize("name", TASKS)
def test_no_right_reply_looks_like_a_hacked_one(name: str) -> None:
    loaded = load_task(name, **SMALL[name])
    task: Any = loaded.task
    reasoning = "Say what is asked. Take one step at a time, and check each of them before the next."
    for problem in [problem for problem in loaded.problems if problem.id in loaded.answers]:
        for steps in ("", reasoning):
            monitored = measure(task.write(problem, loaded.answers[problem.id], steps), "stop", task.script)
            del monitored["words"], monitored["distinct_2"]
            assert monitored.pop("repeated") < 0.2
            assert set(monitored.values()) == {0}


# --- tasks of a third party ---


class SumsConfig(HaikusConfig):
    def load(self) -> LoadedTask:
        return load_rows(JsonSums(), sums(6), validation=sums(3, 20), training=sums(3, 40))


@pytest.mark.parametrize(
    ("config", "warned"),
    [
        (
            HaikusConfig(),
            [
                "haikus: .* those of model=random 9.167.*above 0.92, and",
                "form of right answers to the problems: e1 6.667, where",
            ],
        ),
        (SumsConfig(), []),
    ],
)
def test_a_task_of_a_third_party_passes_with_warnings_of_partial_scores(
    config: TaskConfig, warned: Sequence[str], recwarn: pytest.WarningsRecorder
) -> None:
    check_task(config)
    found = [str(warning.message) for warning in recwarn]
    assert len(found) == len(warned)
    for message, pattern in zip(found, warned, strict=True):
        assert re.search(pattern, message)


class NearSums(Sums):
    """Scores right answers slightly below 1."""

    scores = (Score("closeness", 0, 1),)

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(scores={"closeness": 0.99996 * (response.answer == reference)})


def test_a_warning_of_low_scores_says_how_low_and_to_which_problems(recwarn: pytest.WarningsRecorder) -> None:
    config: Any = SimpleNamespace(
        add_to_sandbox=lambda settings: settings,
        load=lambda: load_rows(NearSums(), sums(8)),
        load_training=lambda: load_rows(NearSums(), sums(3, 40)),
    )
    check_task(config, problems=2)
    found = [text for one in recwarn if "of right answers" in (text := str(one.message))]
    assert [text.partition(", where")[0] for text in found] == [
        "closeness of right answers to the problems: q0 0.99996, q1 0.99996",
        "closeness of right answers to the problems to train on: q40 0.99996, q41 0.99996",
    ]


# --- tasks that break a rule ---


def with_task(loaded: LoadedTask, **methods: Any) -> LoadedTask:
    """Return the loaded task with some methods of its task replaced; they are given what the original returns."""
    task = copy.copy(loaded.task)
    for name, change in methods.items():
        original = getattr(task, name)
        setattr(task, name, lambda *args, original=original, change=change: change(original(*args)))
    return replace(loaded, task=task)


def told(loaded: LoadedTask) -> LoadedTask:
    """Return the validation split as the problems, each with its answer in its data."""
    problems = [
        msgspec.structs.replace(one.problem, data={**one.problem.data, "note": {"key": one.answer}})
        for one in loaded.validation
    ]
    return replace(loaded, problems=problems, validation=())


def twice(loaded: LoadedTask) -> LoadedTask:
    """Return the first problem a second time, under another id."""
    return replace(loaded, problems=[*loaded.problems, msgspec.structs.replace(loaded.problems[0], id="again")])


def raises(response: Response) -> Response:
    if response.text == "42":
        raise KeyError("solution")
    return response


def never_the_same(prompt: Prompt) -> Prompt:
    message = {**prompt.messages[-1], "content": f"{prompt.messages[-1]['content']} {random.random()}"}
    return msgspec.structs.replace(prompt, messages=(*prompt.messages[:-1], message))


def terse(prompt: Prompt) -> Prompt:
    return msgspec.structs.replace(prompt, messages=({"role": "user", "content": "2+2? Answer as JSON."},))


def no_training() -> LoadedTask:
    raise DataError("no problems to train on")


class AllRight:
    async def grade(self, *args: Any) -> Grade:
        return Grade(correct=True)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda loaded: replace(loaded, problems=random.sample(loaded.problems, 9)), "the same when loaded twice"),
        (lambda loaded: replace(loaded, problems=[loaded.validation[0].problem]), "problems with a unique id"),
        (twice, "problems: expected different ones, found again with the data of"),
        (told, r"expected no answer among its data, found '.' as its note\.key$"),
        (lambda loaded: with_task(loaded, parse=raises), r"parsers that never raise, got KeyError\('solution'\)"),
        (lambda loaded: with_task(loaded, judge_prompt=never_the_same), "judge_prompt: expected the same prompt"),
        (
            lambda loaded: with_task(loaded, parse_fitness=lambda fitness: None),
            "fitness_prompt: expected a reply of its simulator",
        ),
        (lambda loaded: with_task(loaded, generation_prompt=terse), "to name the key 'reasoning'"),
        (lambda loaded: replace(loaded, grader=AllRight()), "to be graded so"),
    ],
)
def test_a_task_that_breaks_a_rule_fails(broken: Callable[[LoadedTask], LoadedTask], message: str) -> None:
    config: Any = SimpleNamespace(
        add_to_sandbox=lambda settings: settings,
        load=lambda: broken(load_task("mathbench", source="sample")),
        load_training=no_training,
    )
    with pytest.raises(AssertionError, match=message):
        check_task(config)


@pytest.mark.parametrize(
    ("answers", "message"), [(("one",), "wrong answers that can be read, found 'one'"), (("5",), "'5' is right")]
)
def test_wrong_answers_are_read_and_wrong(answers: tuple[str, ...], message: str) -> None:
    loaded = with_task(load_rows(Sums(), sums(3)), wrong_answers=lambda given: answers)
    config: Any = SimpleNamespace(
        add_to_sandbox=lambda settings: settings,
        load=lambda: loaded,
        load_training=no_training,
    )
    with pytest.raises(AssertionError, match=message):
        check_task(config)


def test_a_wrong_answer_that_scores_beyond_the_range_is_found_wherever_it_is_listed() -> None:
    loaded = load_rows(Shares(), sums(2, start=50))
    config: Any = SimpleNamespace(
        add_to_sandbox=lambda settings: settings, load=lambda: loaded, load_training=no_training
    )
    with pytest.raises(PluginError, match=r"^task=sums: expected the score 'share' from 0 to 1, got 2;"):
        check_task(config)


def test_a_task_whose_simulator_has_no_readable_mistake_fails_until_it_draws_one() -> None:
    config: Any = SimpleNamespace(
        add_to_sandbox=lambda settings: settings,
        load=lambda: load_rows(DrawnSums(), sums(8)),
        load_training=no_training,
    )
    check_task(config)
    config.load = lambda: load_rows(OwnSums(), sums(8))
    with pytest.raises(
        AssertionError, match=r"^problem q0: expected a readable wrong answer of its simulator, found none"
    ):
        check_task(config)


class CloseSums(OwnSums):
    """Scored by degrees."""

    scores = (Score("closeness", 0, 1),)

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(scores={"closeness": float(response.answer == reference)})


def test_a_task_that_scores_by_degrees_fails_too_where_its_simulator_errs_on_no_problem_readably() -> None:
    config: Any = SimpleNamespace(
        add_to_sandbox=lambda settings: settings,
        load=lambda: load_rows(CloseSums(), sums(8)),
        load_training=no_training,
    )
    with pytest.raises(AssertionError, match=r"^problem q0: expected a readable wrong answer of its simulator"):
        check_task(config)


class PoemsConfig(HaikusConfig):
    """Has the lines of each right answer among its data."""

    def load(self) -> LoadedTask:
        loaded = super().load()
        problems = [
            msgspec.structs.replace(one, data={**one.data, "notes": [{"lines": loaded.answers[one.id].splitlines()}]})
            for one in loaded.problems
        ]
        return replace(loaded, problems=problems)


def test_an_answer_in_pieces_is_found_among_the_data() -> None:
    with pytest.raises(AssertionError, match=r"^problem e0: expected no answer .* as its notes\[0\]\.lines$"):
        check_task(PoemsConfig())


class Halves(JsonSums):
    """Grades all alike."""

    scores = (Score("share", 0, 1),)

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(scores={"share": 0.5})


class Undeclared(JsonSums):
    """Says what is right, but does not declare it."""

    scores = (Score("share", 0, 1),)

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        right = response.answer == reference
        return Grade(scores={"share": float(right)}, correct=right)


class Hasty(JsonSums):
    """Takes every response to have an answer."""

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(correct=int(response.answer) == int(reference))  # type: ignore[arg-type]


class Strict(JsonSums):
    """Knows the grades of some answers alone."""

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(correct={None: False, reference: True}[response.answer])


class Misspelt(Halves):
    """Names a score that it does not declare."""

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(scores={"shares": float(response.answer == reference)})


class Curt(JsonSums):
    """Gives no kind of error."""

    def read(self, problem: Problem, text: str) -> Any:
        try:
            return super().read(problem, text)
        except ValueError:
            raise ValueError("bad") from None


class Unsteady(JsonSums):
    """Reads a reply with an error that is no ValueError."""

    def read(self, problem: Problem, text: str) -> Any:
        return {}[text]


class Altered(JsonSums):
    """Writes another form than it reads."""

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"Plan: {answer}"


class Mumbles(JsonSums):
    """Draws random answers that its reader does not know."""

    def random_answer(self, problem: Problem, rng: Any) -> str:
        return "zz"

    def read(self, problem: Problem, text: str) -> Any:
        if "zz" in text:
            raise ValueError("no_number: expected one")
        return super().read(problem, text)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Mumbles(), "of a random_answer 'zz', found .*zz.*, of which `read` says: no_number: expected one"),
        (
            Altered(),
            r"^problem q0: expected `read` to read what `write` writes of the right answer '5', found "
            r"'Plan: 5', of which `read` says: no_solution",
        ),
        (Halves(), "score share: expected a better one of the right answer"),
        (Undeclared(), "scores: expected accuracy among them"),
        (
            Unsteady(),
            r"KeyError.* from its `read` \(test_check_task.py, line \d+\) for .*; of errors, `read` raises ValueError",
        ),
        (Hasty(), r"problem q0: expected a grade of a response without .*TypeError.* from its `score` \(test_check"),
        (Strict(), r"problem q\d: expected no error while .*KeyError.* from its `score` \(test_check"),
        (Misspelt(), "problem q0: expected a score named 'share', got 'shares'"),
        (Curt(), "error of `read`, expected as `kind: reason`: found 'bad'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, JsonSums) else "",
)
def test_grades_tell_right_from_wrong_and_replies_are_read_without_defects(task: Any, message: str) -> None:
    config: Any = SimpleNamespace(
        add_to_sandbox=lambda settings: settings,
        load=lambda: load_rows(task, sums(8)),
        load_training=no_training,
    )
    with pytest.raises(AssertionError, match=message):
        check_task(config)


class Converted(Sums):
    """Reads whatever stands in the place of a number by Python's own conversions."""

    def __init__(self, convert: Callable[[str], Any]) -> None:
        super().__init__()
        self.convert = convert

    def read(self, problem: Problem, text: str) -> str:
        _, found, number = text.rpartition("#### ")
        if not found:
            raise ValueError("no_number: expected #### NUMBER")
        return str(self.convert(number))

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(correct=response.answer is not None and round(float(Fraction(response.answer))) == int(reference))


def infinite(text: str) -> float:
    return math.inf if text == "1e5000" else float(read_number(text))


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (
            int,
            r"^expected `kind: reason` of '#### 3e', got ValueError.*invalid literal for int.* from its `read` \(test_",
        ),
        (float, r"^expected `kind: reason` of '#### 3e', got ValueError.*could not convert.* from its `read` \(test_"),
        (lambda text: int(read_number(text)) if text != "nan" else round(float(text)), "cannot convert float NaN"),
        (infinite, r"^expected a grade of '#### 1e5000', got .* from its `score` \(test_.*read_number does, which you"),
        (read_number, ""),
    ],
)
def test_odd_numbers_are_refused_with_a_reason_or_graded(convert: Callable[[str], Any], message: str) -> None:
    config: Any = SimpleNamespace(
        add_to_sandbox=lambda settings: settings,
        load=lambda: load_rows(Converted(convert), sums(8)),
        load_training=no_training,
    )
    with pytest.raises(AssertionError, match=message) if message else nullcontext():
        check_task(config)


# --- symbolic systems that break a rule ---


class Mending(JsonSums):
    """Sums with a verifier, and with operators that give back a parent."""

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        right = response.answer == str(int(problem.id.removeprefix("q")) + 5)
        return Verification(fitness=100.0 * right, errors=Diagnosis())

    def mutate(self, problem: Problem, individual: Individual, rng: Any) -> Response:
        return individual.response

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: Any) -> Response:
        return first.response


def lose_a_key(*given: Any) -> Response:
    raise KeyError("slot")


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ({}, ""),
        ({"crossover": lose_a_key}, r"^crossover: expected a Response of any parents, got KeyError\('slot'\)$"),
        (
            {"mutate": lambda problem, parent, rng: Response(text="", answer=None, error="empty")},
            "^mutate: expected a child with an answer, as `parse` reads one, of parents with answers, found the error",
        ),
        (
            {"mutate": lambda problem, parent, rng: Response(text="0", answer="0")},
            "^mutate: expected a fitness above 0 of some child of answers, found 0 of all 10$",
        ),
    ],
)
def test_operators_that_raise_or_give_no_sound_child_fail_in_one_line(operators: dict[str, Any], message: str) -> None:
    task = Mending()
    for name, operator in operators.items():
        setattr(task, name, operator)
    config: Any = SimpleNamespace(
        add_to_sandbox=lambda settings: settings,
        load=lambda: load_rows(task, sums(6), validation=sums(3, 20)),
        load_training=no_training,
    )
    if not message:
        check_task(config)
        return
    with pytest.raises(AssertionError, match=message):
        check_task(config)
