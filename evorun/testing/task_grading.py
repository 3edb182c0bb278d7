"""The check of a task's grades of right, wrong and unreadable answers, and of its symbolic system."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.sandbox.config import SandboxConfig
from evorun.tasks.base import Grade, GradingTools, LoadedTask, Problem, Tools
from evorun.tasks.capabilities import HasPublicTests, HasStartingResponse, HasSymbolicOperators, HasVerifier, Individual
from evorun.tasks.text_task import TextTask
from evorun.testing.expectations import expect, expect_equal, locate
from evorun.testing.task_cases import MAX_ERRORS, Case, SimulatedTools, make_individual, parse

CHILDREN = 5
"""Children that each operator makes of each parent."""
MAX_WRONG = 20
"""Wrong answers that are graded per problem; of more, as many from the first to the last."""


async def check_grading(loaded: LoadedTask, cases: Sequence[Case], sandbox: SandboxConfig, split: str) -> None:
    """Raise AssertionError for a wrong grade, and warn of low ones.

    sandbox: where the task's programs run. split: what a warning calls the problems.
    """
    tools = SimulatedTools(loaded.simulator, sandbox)
    try:
        right_grades = dict[str, Grade]()
        for case in cases:
            await _check_wrong_answers(loaded, case.problem, tools)
            grades = [await loaded.grader.grade(case.problem, response, tools) for response in case.responses]
            found = [grade.correct for grade in grades]
            if case.problem.id in loaded.answers:
                right_grades[case.problem.id] = grades[0]
            if found[0] is not None:  # None: a task without right and wrong
                answers = [response.answer for response in case.responses]
                expected = (
                    f"problem {case.problem.id}: expected a right, a wrong and an unreadable answer to be graded so"
                )
                expect(found == [True, False, False], f"{expected}, found {found}: {answers}")
                declared = any(score.is_correctness for score in loaded.task.scores)
                expect(declared, "scores: expected accuracy among them, since grades say what is correct")
            elif case.problem.id in loaded.answers:
                primary = loaded.task.scores[0]
                right, *others = (
                    grade.scores.get(primary.name, math.nan) * (1 if primary.higher_is_better else -1)
                    for grade in grades
                )
                expect(
                    not right <= min(others),
                    f"score {primary.name}: expected a better one of the right answer than of an unreadable or a wrong "
                    f"one, found {right} and {others}",
                )
            # Every response has every score, even an unreadable one: means are over all responses.
            for score in (score for score in loaded.task.scores if not score.is_correctness):
                low, high = (
                    -math.inf if score.low is None else score.low,
                    math.inf if score.high is None else score.high,
                )
                for grade in grades:
                    value = grade.scores.get(score.name)
                    fits = value is not None and low <= value <= high
                    expect(
                        fits, f"score {score.name}: expected {score.low} to {score.high} of any response, found {value}"
                    )
                    binary = not score.rate or value in (0, 1)
                    expect(binary, f"score {score.name}: expected 0 or 1 of a rate, found {value}")
            await _check_symbolic_system(loaded.task, case, tools)
        _check_mistakes(loaded, cases)
        _warn_of_low_grades(right_grades, loaded.task.scores[0], split)
    finally:
        await tools.close()


async def _check_wrong_answers(loaded: LoadedTask, problem: Problem, tools: GradingTools) -> None:
    """Check that no wrong answer of the task is right by the run's grader, which may know more than the task.

    Raises PluginError for a score beyond its range.
    """
    task: Any = loaded.task
    gold = loaded.answers.get(problem.id) if isinstance(task, TextTask) else None
    answers = [] if gold is None else task.wrong_answers(problem, gold)
    chosen = np.linspace(0, len(answers) - 1, min(len(answers), MAX_WRONG)).round().astype(int)
    for answer in (answers[place] for place in chosen):
        response = parse(task, problem, task.write(problem, answer))
        expect(
            response.answer is not None,
            f"problem {problem.id}: expected wrong answers that can be read, found {answer!r}",
        )
        grade = await loaded.grade(problem, response, tools)
        expect(grade.correct is not True, f"problem {problem.id}: expected wrong answers, {answer!r} is right")


def _check_mistakes(loaded: LoadedTask, cases: Sequence[Case]) -> None:
    """Check that the simulator errs readably: on each problem or, where the score has degrees, on some problem."""
    if loaded.task.graded_by_opinion:
        return
    solved = [case for case in cases if case.problem.id in loaded.answers]
    unreadable = [case.problem.id for case in solved if case.wrong.answer in (None, case.right.answer)]
    # By degrees, the worst known answer to a problem may be the one given as its right one.
    allowed = 0 if any(score.is_correctness for score in loaded.task.scores) else max(0, len(solved) - 1)
    expect(
        len(unreadable) <= allowed,
        f"problem {', '.join(unreadable[:1])}: expected a readable wrong answer of its simulator, found none; give the "
        "task its wrong_answers, or a random_answer that its reader accepts",
    )


def _warn_of_low_grades(grades: Mapping[str, Grade], score: Score, split: str) -> None:
    """Warn of right answers below the best value that their score declares. grades: by problem."""
    best = score.high if score.higher_is_better else score.low
    if best is None or score.is_correctness:
        return
    known = {problem: value for problem, grade in grades.items() if (value := score.value_in(grade)) is not None}
    low = [
        f"{problem} {_format_apart(value, best)}" for problem, value in known.items() if not math.isclose(value, best)
    ]
    if low:
        warnings.warn(
            f"{score.name} of right answers to {split}: {', '.join(low)}, where `scores` has {best:g} as the best "
            "value; correct the answers, leave them out where none is known, give `scores` the range that answers can "
            "have, or, where the best differs between problems, score the share of each problem's best",
            stacklevel=2,
        )


def _format_apart(value: float, best: float) -> str:
    """Format a value to four digits, or to as many as tell it from the best one."""
    shown = (f"{value:.{digits}g}" for digits in range(4, 18))
    return next(text for text in shown if float(text) != best)


async def _check_symbolic_system(task: Any, case: Case, tools: Tools) -> None:
    problem, scores = case.problem, task.scores
    if isinstance(task, HasStartingResponse):
        start = task.starting_response(problem)
        expect(parse(task, problem, start.text).answer == start.answer, "starting_response: expected one that is read")
    if isinstance(task, HasPublicTests):
        seen = await task.observe(problem, case.right, tools)
        expect(seen.feedback is not None and 0 <= seen.feedback.score <= 1, "observe: expected a score from 0 to 1")
    if isinstance(task, HasVerifier):
        verified = [await task.verify(problem, response, MAX_ERRORS, tools) for response in case.responses]
        for found in verified:
            expect(0 <= found.fitness <= 100, f"verify: expected a fitness from 0 to 100, found {found.fitness}")
            named = len(found.errors.findings)
            expect(named <= MAX_ERRORS, f"verify: expected at most max_errors={MAX_ERRORS} errors, found {named}")
        right, wrong, unread = verified
        if any(score.is_correctness for score in scores):
            expect_equal(right.fitness, 100, "verify: fitness of a right answer")
        else:  # nothing is known to be the best
            expect(
                right.fitness > wrong.fitness,
                f"verify: expected a higher fitness of a better answer, found {right.fitness} and {wrong.fitness}",
            )
        expect_equal(unread.fitness, 0, "verify: fitness of what cannot be read")
    if isinstance(task, HasSymbolicOperators):
        await _check_operators(task, case, tools)


async def _check_operators(task: Any, case: Case, tools: Tools) -> None:
    """Check that symbolic operators give readable children of readable parents, and not only the worst ones."""
    rng, right = np.random.default_rng(0), make_individual(case.right)
    operators: Mapping[str, Callable[[Individual], Any]] = {
        "mutate": lambda parent: task.mutate(case.problem, parent, rng),
        "crossover": lambda parent: task.crossover(case.problem, parent, right, rng),
    }
    for name, operator in operators.items():
        fitness = list[float]()
        for parent in case.responses:
            for _ in range(CHILDREN):
                try:
                    child = operator(make_individual(parent))
                except Exception as error:
                    told = locate(error, type(task))
                    raise AssertionError(f"{name}: expected a Response of any parents, got {told}") from error
                expect(isinstance(child, Response), f"{name}: expected a Response, found {child!r}")
                if parent.answer is None:
                    continue
                expect(
                    child.answer is not None,
                    f"{name}: expected a child with an answer, as `parse` reads one, of parents with answers, found "
                    f"the error {child.error!r}",
                )
                # programs run for their fitness: that takes long
                if isinstance(task, HasVerifier) and not isinstance(task, HasPublicTests):
                    fitness.append((await task.verify(case.problem, child, MAX_ERRORS, tools)).fitness)
        expect(
            not fitness or max(fitness) > 0,
            f"{name}: expected a fitness above 0 of some child of answers, found 0 of all {len(fitness)}",
        )
