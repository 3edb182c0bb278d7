"""Conformance of tasks: reproducible splits, hidden answers, parsers that never raise, right grades."""

import asyncio
import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from evorun.cli.compose import yaml_values
from evorun.errors import DataError, EvorunError
from evorun.models.base import Message, Request
from evorun.runs.candidates import Response
from evorun.runs.scores import Score, find_violation
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.simulation.simulator import TaskSimulator
from evorun.simulation.skill import Skill
from evorun.tasks.base import Demonstration, Grade, GradingTools, LoadedTask, Problem, Prompt, TaskConfig, Tools
from evorun.tasks.capabilities import (
    Attempt,
    Diagnosis,
    Explanation,
    HasEpisodes,
    HasPublicTests,
    HasStartingResponse,
    HasSymbolicOperators,
    HasTools,
    HasVerifier,
    Individual,
    Paradigm,
    ScoredResponse,
    SupportsAggregation,
    SupportsDemonstrations,
    SupportsDistillation,
    SupportsErrorDetection,
    SupportsEvolution,
    SupportsFitnessScores,
    SupportsGeneration,
    SupportsJudging,
    SupportsModelOperators,
    SupportsPairRatings,
    SupportsParadigms,
    SupportsRefinement,
    SupportsRubrics,
    SupportsScratchpad,
    SupportsSystemPrompts,
)
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.rubrics import read_rubric
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask
from evorun.testing.expectations import expect, expect_equal, locate

ODD_TEXTS = (
    *("", " \r\n\t", "\x00", "\ud800 lone", "```", "```\n```", "~~~\n[[1, 2]]\n~~~", "\\boxed{", "\\boxed{}"),
    *("{", "{}", "[]", "null", "42", "A", "T", "57.5/100", "The answer is B.", "{" * 500, "A" * 20_000),
    *('{"solution": "A"}', '{"solution": ["A"], "reasoning": {"a": 1}}', '{"reasoning": "cut o', '{"solution": 1e999}'),
    *('{"reasoning": "\\ud800", "solution": "b"}', '{"fitness": 180}', '{"errors": ["a", "b", "c", "d"]}'),
    *("<tool_call>", "</tool_call><tool_call>", '<tool_call>{"name": "x"}</tool_call>', "<tool_call>[[</tool_call>"),
    *("```\n1 2 3\n```", "```python\ndef solve(:\n```", "{{ 7 * 7 }}{% raw %} {problem} %s {0} \\1 ${x}"),
)
"""Completions that have broken parsers, templates or encoders."""

# Characters of an answer too long to be in a prompt by chance.
LONG = 12
_UNREAD = Response(text="", answer=None, error="no_answer: expected one")
MAX_ERRORS = 2
MAX_WRONG = 10
"""Wrong answers that are graded per problem."""


@dataclass(frozen=True)
class _Case:
    """A problem with three simulated responses."""

    problem: Problem
    right: Response
    wrong: Response
    unread: Response

    @property
    def responses(self) -> tuple[Response, Response, Response]:
        return self.right, self.wrong, self.unread


def check_task(config: TaskConfig, *, problems: int = 3, picked_answers: bool = False) -> None:
    """Check a task on its first `problems`. Raises AssertionError for the first broken rule.

    If the task has programs, they run in the sandbox. picked_answers: an answer may be a part of its question, such as
    the largest of its numbers.
    """
    loaded = _check_loading(config)
    training = _check_training(config, loaded)
    asyncio.run(_check_scores(loaded))
    cases = [_make_case(loaded, problem) for problem in loaded.problems[:problems]]
    _check_hidden_answers(loaded, cases, picked_answers)
    if isinstance(loaded.simulator, TextSimulator):
        usual = yaml_values("engine", "simulated")
        simulator = loaded.simulator.with_skill(Skill(skill=usual["skill"], improvement=usual["improvement"]))
        if (lack := simulator.find_lack_of_skill(loaded.problems)) is not None:
            warnings.warn(lack, stacklevel=2)
    _check_parsers(loaded.task, cases[0].problem)
    for case in cases:
        _check_prompts(loaded, case)
    sandbox = config.add_to_sandbox(SandboxConfig())
    asyncio.run(_check_grading(loaded, cases, sandbox))
    if training is not None:
        asyncio.run(
            _check_grading(
                training, [_make_case(training, problem) for problem in training.problems[:problems]], sandbox
            )
        )


def _check_loading(config: TaskConfig) -> LoadedTask:
    # Load twice: a draw that depends on the order of a set or on a shared generator would differ.
    loaded, again = config.load(), config.load()
    expect(loaded.problems, "expected problems to work on")
    for what in ("problems", "validation", "provenance"):
        expect(getattr(again, what) == getattr(loaded, what), f"{what}: expected the same when loaded twice")
    held_out = [example.problem for example in loaded.validation]
    for what, split in (("problems", loaded.problems), ("the validation split", held_out)):
        ids_by_data: dict[bytes, str] = {}
        for problem in split:
            first = ids_by_data.setdefault(_encode(problem), problem.id)
            same = f"{what}: expected different ones, found {problem.id} with the data of {first}; leave one out"
            expect(first == problem.id, same)
    ids = [problem.id for problem in (*loaded.problems, *held_out)]
    expect_equal(len(set(ids)), len(ids), "problems with a unique id, in both splits together")
    _check_apart(loaded.problems, held_out, "the validation split")
    for problem in loaded.problems:
        # '|' separates the parts of a journal's keys.
        expect(problem.id.strip() and "|" not in problem.id, f"expected an id without '|', found {problem.id!r}")
    return loaded


def _encode(problem: Problem) -> bytes:
    return msgspec.json.encode(problem.data, order="deterministic")


def _check_training(config: TaskConfig, loaded: LoadedTask) -> LoadedTask | None:
    """Check the training problems and return them; None if there are none."""
    try:  # a task may have no training split
        training = config.load_training()
    except DataError:
        return None
    expect(training.problems, "expected problems to train on")
    expect_equal(training.validation, (), "validation split of the problems to train on")
    _check_apart(loaded.problems, training.problems, "the training split")
    again = config.load_training()
    expect(training.problems == again.problems, "expected the same problems to train on when loaded twice")
    expect(training.provenance.digest != loaded.provenance.digest, "expected a digest of the training split's own")
    return training


def _check_apart(problems: Sequence[Problem], others: Sequence[Problem], split: str) -> None:
    def identities(problem: Problem) -> set[object]:
        # The data too: the same problem under another id would leak just as much.
        return {problem.id, _encode(problem)}

    known = set[object]().union(*map(identities, problems))
    for other in others:
        expect(
            known.isdisjoint(identities(other)), f"expected no problem of {split} among the others, found {other.id}"
        )


async def _check_scores(loaded: LoadedTask) -> None:
    """Check that a response without an answer is graded by the declared scores; what comes later relies on it."""
    tools = SimulatedTools(loaded.simulator)
    try:
        grade = await loaded.grader.grade(loaded.problems[0], _UNREAD, tools)
    except Exception as error:
        raise AssertionError(
            f"problem {loaded.problems[0].id}: expected a grade of a response without an answer (its `answer` is "
            f"None), got {locate(error, TextTask)}"
        ) from error
    finally:
        await tools.close()
    violation = find_violation(loaded.task.scores, grade)
    expect(violation is None, f"problem {loaded.problems[0].id}: {violation}; `scores` and `score` name the same ones")


def _make_case(loaded: LoadedTask, problem: Problem) -> _Case:
    task: Any = loaded.task
    expect(
        isinstance(task, SupportsGeneration), "expected generation prompts: methods answer its problems from scratch"
    )
    _check_round_trip(loaded, problem)
    prompt = task.generation_prompt(problem)
    # The task's simulator gives the replies: right with skill 1, wrong with skill 0, unreadable if malformed.
    right, wrong = (
        simulate_reply(loaded, problem, prompt, Skill(skill=skill, malformed=0, spread=0)) for skill in (1, 0)
    )
    unread = _parse(task, problem, simulate_reply(loaded, problem, prompt, Skill(malformed=1)))
    expect(unread.answer is None and unread.error, "expected a malformed reply to have no answer, and to say why")
    return _Case(problem, _parse(task, problem, right), _parse(task, problem, wrong), unread)


def _check_round_trip(loaded: LoadedTask, problem: Problem) -> None:
    """Check that the task reads what it writes; all simulated replies rely on it."""
    task, gold = loaded.task, loaded.answers.get(problem.id)
    if not isinstance(task, TextTask):
        return
    drawn = task.random_answer(problem, np.random.default_rng(0))  # of model=random, the floor of every comparison
    for what, answer in (("the right answer", gold), ("a random_answer", drawn)):
        if answer is not None:
            written = task.write(problem, answer)
            error = _parse(task, problem, written).error
            expect(
                error is None,
                f"problem {problem.id}: expected `read` to read what `write` writes of {what} {_cut(answer)}, found "
                f"{_cut(written)}, of which `read` says: {error}",
            )


def _cut(text: str, limit: int = 80) -> str:
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}[...]"


def _check_mistakes(loaded: LoadedTask, cases: Sequence[_Case]) -> None:
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


def _parse(task: Any, problem: Problem, text: str) -> Response:
    try:
        response: Response = task.parse(problem, text)
    except Exception as error:
        raise AssertionError(
            f"expected parsers that never raise, got {locate(error, TextTask)} for {text[:50]!r}; of errors, `read` "
            "raises ValueError"
        ) from error
    return response


def simulate_reply(loaded: LoadedTask, problem: Problem, prompt: Prompt, skill: Skill) -> str:
    """Return the simulator's response to a prompt: its last turn, or all turns of an episode.

    The task's tools answer earlier turns.
    """
    task, simulator, messages = loaded.task, loaded.simulator.with_skill(skill), prompt.messages
    turns = task.max_turns(problem) if isinstance(task, HasTools) else 1
    expect(turns >= 1, f"max_turns: expected at least 1, found {turns}")
    said_so_far: list[str] = []
    for turn in range(turns):
        request = Request(messages=messages, json_schema=prompt.json_schema, hints=prompt.hints)
        try:
            text = simulator.respond(request, np.random.default_rng(turn))
        except Exception as error:  # it reads its own mistakes
            raise AssertionError(
                f"problem {problem.id}: expected no error while the simulator wrote a reply, got "
                f"{locate(error, TextTask)}; of errors, `read` alone raises one: ValueError"
            ) from error
        said = Message(role="assistant", content=text)
        said_so_far.append(text)
        if isinstance(task, HasEpisodes):
            text = task.join_turns(said_so_far)
            answer = asyncio.run(_answer_episode(task, problem, said_so_far, loaded.simulator))
        else:
            answer = asyncio.run(task.answer_tools(problem, said)) if isinstance(task, HasTools) else None
        if answer is None:
            return text
        expect_equal(answer["role"], "tool", "answer_tools: role of the message")
        messages = (*messages, said, answer)
    return text


async def _answer_episode(
    task: HasEpisodes, problem: Problem, turns: Sequence[str], simulator: TaskSimulator
) -> Message | None:
    tools = SimulatedTools(simulator)
    try:
        return await task.answer_episode(problem, turns, tools)
    finally:
        await tools.close()


def _check_hidden_answers(loaded: LoadedTask, cases: Sequence[_Case], picked_answers: bool) -> None:
    task: Any = loaded.task
    for case in cases:
        answer = case.right.answer or ""
        places = [place for place, text in _list_texts(msgspec.to_builtins(case.problem.data)) if _tells(text, answer)]
        expect(
            not places,
            f"problem {case.problem.id}: expected no answer among its data, found {answer!r} as its "
            f"{places[0] if places else ''}",
        )
        prompt = "\n".join(message["content"] for message in task.generation_prompt(case.problem).messages)
        # Short answers, such as the letter of an option, always occur in the prompt.
        told = len(answer) >= LONG and answer in prompt and not picked_answers
        expect(not told, f"problem {case.problem.id}: expected no answer in its prompt, found {answer!r}")


def _list_texts(value: Any, place: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the place of each value in a problem's data, such as `note.key[2]`, and the texts within it in order."""
    items: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        items = ((f"{place}.{key}".lstrip("."), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        items = ((f"{place}[{index}]", item) for index, item in enumerate(value))
    else:
        yield place, [str(value)]
        return
    texts = list[str]()
    for inner, item in items:
        for where, found in _list_texts(item, inner):
            yield where, found
            if where == inner:
                texts += found
    yield place, texts


def _tells(texts: Sequence[str], answer: str) -> bool:
    """Return whether texts, in their order, are the answer; of several, those of a long one, however joined."""
    if len(texts) == 1:
        return texts[0] == answer
    return len(answer) >= LONG and _letters("".join(texts)) == _letters(answer)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _names_kind(error: str | None) -> bool:
    """Return whether an error has the form `kind: reason`."""
    kind, _, reason = (error or "").partition(": ")
    return kind.isidentifier() and bool(reason.strip())


def _check_parsers(task: Any, problem: Problem) -> None:
    for text in ODD_TEXTS:
        try:
            read = list(_readings(task, problem, text))
        except Exception as error:
            told = f"expected parsers that never raise, got {locate(error, TextTask)} for {text[:50]!r}"
            raise AssertionError(told) from error
        for what, value, holds in read:
            expect(holds, f"{what}: found {value!r} for {text[:50]!r}")
    if isinstance(task, HasTools):
        asyncio.run(_check_tools(task, problem))


async def _check_tools(task: HasTools, problem: Problem) -> None:
    for text in ODD_TEXTS:
        try:
            answer = await task.answer_tools(problem, Message(role="assistant", content=text))
        except EvorunError as error:
            raise AssertionError(f"answer_tools: expected an answer to {text[:50]!r}, got {error!r}") from error
        except Exception:  # noqa: S112 - allowed: the episode continues with the error as the answer
            continue
        tools = answer is None or (answer["role"] == "tool" and isinstance(answer["content"], str))
        expect(tools, f"answer_tools: expected a message of the role tool or None, found {answer!r} for {text[:50]!r}")


def _readings(task: Any, problem: Problem, text: str) -> Iterator[tuple[str, Any, object]]:
    """Yield the name of each of the task's parsers, its result on a text, and whether the result has the right form."""
    response = task.parse(problem, text)
    yield "parse", response, isinstance(response, Response) and (response.answer is not None or response.error)
    if response.answer is None:
        yield "error of `read`, expected as `kind: reason`", response.error, _names_kind(response.error)
    else:
        signature = task.signature(problem, response)
        yield "signature", signature, isinstance(signature, str)
    if isinstance(task, SupportsJudging):
        judgment = task.parse_judgment(text)
        yield "parse_judgment", judgment, judgment.verdict in ("A", "B", "T", "invalid")
    if isinstance(task, SupportsPairRatings):
        ratings = task.parse_ratings(text).ratings
        yield "parse_ratings", ratings, ratings is None or all(1 <= rating <= 10 for rating in ratings)
    if isinstance(task, SupportsParadigms):
        paradigms = task.parse_paradigms(text)
        yield "parse_paradigms", paradigms, all(paradigm.title and paradigm.plan for paradigm in paradigms)
    if isinstance(task, SupportsScratchpad):
        recommended = task.parse_recommendations(text)
        yield "parse_recommendations", recommended, all(item.strip() for item in recommended)
    if isinstance(task, SupportsFitnessScores):
        fitness = task.parse_fitness(text)
        yield "parse_fitness", fitness, fitness is None or 0 <= fitness <= 100
    if isinstance(task, SupportsErrorDetection):
        diagnosis = task.parse_errors(problem, text, MAX_ERRORS)
        yield "parse_errors", diagnosis, diagnosis is None or len(diagnosis.findings) <= MAX_ERRORS


def _check_prompts(loaded: LoadedTask, case: _Case) -> None:
    """Render every prompt of the task twice, and read the simulator's reply to each."""
    task: Any = loaded.task
    asked, again = (list(_prompts(task, case, loaded.validation)) for _ in range(2))
    for (name, prompt, read), (_, same, _) in zip(asked, again, strict=True):
        expect(prompt == same, f"{name}: expected the same prompt when rendered twice")
        expect(prompt.messages, f"{name}: expected messages, found none")
        for message in prompt.messages:
            expect(isinstance(message["content"], str), f"{name}: expected texts, found {message['content']!r}")
        json.dumps(prompt.json_schema)
        text = simulate_reply(loaded, case.problem, prompt, Skill(skill=1, malformed=0))
        expect(read(text), f"{name}: expected a reply of its simulator that can be read, found {text[:300]!r}")
    _check_format_is_told("generation_prompt", task.generation_prompt(case.problem))
    if isinstance(task, SupportsSystemPrompts):
        seeded = task.instructed_prompt(case.problem, task.seed_instruction())
        _check_format_is_told("instructed_prompt under the seed instruction", seeded)
        expect(task.seed_instruction().strip(), "seed_instruction: expected a system prompt, found a blank one")
        for response in case.responses:
            for example in (None, *loaded.validation[:1]):
                expect(task.reflection_record(case.problem, response, example).strip(), "reflection_record: is blank")


def _check_format_is_told(name: str, prompt: Prompt) -> None:
    # Completions for training are drawn without the schema, and some servers support none: the text must suffice.
    told = "\n".join(message["content"] for message in prompt.messages)
    for key in (prompt.json_schema or {}).get("required", ()):
        expect(key in told, f"{name}: expected its text to name the key '{key}', which its JSON schema requires")


def _prompts(
    task: Any, case: _Case, validation: Sequence[Demonstration]
) -> Iterator[tuple[str, Prompt, Callable[[str], object]]]:
    """Yield the name of each prompt, the prompt, and a function that is true for readable replies."""
    problem, responses = case.problem, case.responses
    individuals = [_make_individual(response) for response in responses]

    def answered(text: str) -> bool:
        return task.parse(problem, text).answer is not None

    yield "generation_prompt", task.generation_prompt(problem), answered
    if isinstance(task, SupportsEvolution):
        parents = [
            ScoredResponse(response=response, score=0.5, win=Explanation(reason="It is right."))
            for response in responses
        ]
        yield "evolution_prompt", task.evolution_prompt(problem, parents), answered
    if isinstance(task, SupportsAggregation):
        for shown in (responses[:1], responses):
            yield "aggregation_prompt", task.aggregation_prompt(problem, shown), answered
    if isinstance(task, SupportsDistillation):
        yield "distilled_prompt", task.distilled_prompt(problem, "The first draft is wrong.", responses), answered
    if isinstance(task, SupportsParadigms):
        paradigm, program = Paradigm(title="Rows", plan="Use rows."), case.right
        patch = task.patch_prompt(problem, program, responses, "full", paradigm=paradigm)
        yield "patch_prompt", patch, answered
        proposed = task.paradigms_prompt(problem, program, [(paradigm, 0.0)], 3)
        yield "paradigms_prompt", proposed, task.parse_paradigms
    if isinstance(task, SupportsScratchpad):
        program, notes = case.right, "Rows are good."
        patch = task.patch_prompt(problem, program, responses, "full", recommendation="Use rows.")
        yield "patch_prompt", patch, answered
        yield "summary_prompt", task.summary_prompt(problem, program), str.strip
        yield "insights_prompt", task.insights_prompt(problem, [(program, "Rows.")], notes, program), str.strip
        recommending = task.recommendations_prompt(problem, notes, ["Use rows."], program, 5)
        yield "recommendations_prompt", recommending, task.parse_recommendations
    if isinstance(task, SupportsRefinement):
        attempts = [
            Attempt(response=response, outcome="lost", judged=Explanation(reason="It is wrong."))
            for response in responses
        ]
        yield "refinement_prompt", task.refinement_prompt(problem, case.wrong, attempts), answered
    if isinstance(task, SupportsDemonstrations):
        solved = [task.demonstration(example, case.right) for example in validation[:1]]
        yield "few_shot_prompt", task.few_shot_prompt(problem, [*solved, *validation[1:3]]), answered
    if isinstance(task, SupportsSystemPrompts):
        yield "instructed_prompt", task.instructed_prompt(problem, "Take care."), answered
    if isinstance(task, SupportsModelOperators):
        for first, second in pairwise(individuals):
            yield "crossover_prompt", task.crossover_prompt(problem, first, second), answered
        for individual in individuals:
            yield "mutation_prompt", task.mutation_prompt(problem, individual), answered
    if isinstance(task, SupportsJudging):
        readable = task.judge_prompt(problem, case.right, case.wrong)
        yield "judge_prompt", readable, lambda text: task.parse_judgment(text).verdict != "invalid"
    if isinstance(task, SupportsPairRatings):
        rating = task.rating_prompt(problem, case.right, case.wrong)
        yield "rating_prompt", rating, lambda text: task.parse_ratings(text).ratings is not None
    if isinstance(task, SupportsRubrics):
        for rubric in (task.starting_rubric("initial", task.rubric_key(problem)), _TWO_ITEMS):
            scoring = task.scoring_prompt(problem, case.wrong, rubric)
            yield "scoring_prompt", scoring, partial(read_scores, rubric=rubric)  # which raises
        item_prompt = task.scoring_prompt(problem, case.wrong, _TWO_ITEMS, _TWO_ITEMS.items[1], plan="Look at the end.")
        yield "scoring_prompt", item_prompt, partial(read_scores, rubric=_TWO_ITEMS, item=_TWO_ITEMS.items[1])
        yield "planning_prompt", task.planning_prompt(problem, _TWO_ITEMS), str.strip
    if isinstance(task, SupportsFitnessScores):
        yield (
            "fitness_prompt",
            task.fitness_prompt(problem, case.wrong),
            lambda text: task.parse_fitness(text) is not None,
        )
    if isinstance(task, SupportsErrorDetection):
        yield (
            "errors_prompt",
            task.errors_prompt(problem, case.wrong),
            lambda text: task.parse_errors(problem, text, 2) is not None,
        )


_TWO_ITEMS = read_rubric("<rubric><item>Steps\n- 5: sound</item><item>End\n- 2.5: right</item></rubric>")


def _make_individual(response: Response) -> Individual:
    errors = Diagnosis(text="- It is wrong.") if response.answer is None else Diagnosis()
    return Individual(response=response, fitness=50.0, errors=errors)


class SimulatedTools(LazySandbox):
    """The sandbox, with the task's simulator as the gold judge."""

    def __init__(self, simulator: TaskSimulator, sandbox: SandboxConfig | None = None) -> None:
        super().__init__(sandbox or SandboxConfig())
        self._simulator = simulator.with_skill(Skill(malformed=0))

    async def judge(self, prompt: Prompt, attempt: int = 0) -> str | None:
        request = Request(messages=prompt.messages, hints=prompt.hints)
        return self._simulator.respond(request, np.random.default_rng(attempt))


async def _check_wrong_answers(loaded: LoadedTask, problem: Problem, tools: GradingTools) -> None:
    """Check that no wrong answer of the task is right by the run's grader, which may know more than the task."""
    task: Any = loaded.task
    gold = loaded.answers.get(problem.id) if isinstance(task, TextTask) else None
    for answer in () if gold is None else task.wrong_answers(problem, gold)[:MAX_WRONG]:
        response = _parse(task, problem, task.write(problem, answer))
        expect(
            response.answer is not None,
            f"problem {problem.id}: expected wrong answers that can be read, found {answer!r}",
        )
        grade = await loaded.grade(problem, response, tools)
        expect(grade.correct is not True, f"problem {problem.id}: expected wrong answers, {answer!r} is right")


async def _check_grading(loaded: LoadedTask, cases: Sequence[_Case], sandbox: SandboxConfig) -> None:
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
        _warn_of_low_grades(right_grades, loaded.task.scores[0])
    finally:
        await tools.close()


def _warn_of_low_grades(grades: Mapping[str, Grade], score: Score) -> None:
    """Warn of right answers below the best value that their score declares. grades: by problem."""
    best = score.high if score.higher_is_better else score.low
    if best is None or score.is_correctness:
        return
    known = {problem: value for problem, grade in grades.items() if (value := score.value_in(grade)) is not None}
    low = [f"{problem} {value:.4g}" for problem, value in known.items() if not math.isclose(value, best)]
    if low:
        warnings.warn(
            f"{score.name} of right answers: {', '.join(low)}, where `scores` has {best:g} as the best value; correct "
            "the answers, leave them out where none is known, give `scores` the range that answers can have, or, where "
            "the best differs between problems, score the share of each problem's best",
            stacklevel=2,
        )


async def _check_symbolic_system(task: Any, case: _Case, tools: Tools) -> None:
    problem, rng, scores = case.problem, np.random.default_rng(0), task.scores
    if isinstance(task, HasStartingResponse):
        start = task.starting_response(problem)
        expect(_parse(task, problem, start.text).answer == start.answer, "starting_response: expected one that is read")
    if isinstance(task, HasPublicTests):
        seen = await task.observe(problem, case.right, tools)
        expect(seen.feedback is not None and 0 <= seen.feedback.score <= 1, "observe: expected a score from 0 to 1")
    if isinstance(task, HasVerifier):
        right, wrong, unread = [await task.verify(problem, response, MAX_ERRORS, tools) for response in case.responses]
        if any(score.is_correctness for score in scores):
            expect_equal(right.fitness, 100, "verify: fitness of a right answer")
        else:  # nothing is known to be the best
            expect(right.fitness > wrong.fitness, "verify: expected a higher fitness of a better answer")
        expect(0 <= wrong.fitness <= 100, f"verify: expected a fitness from 0 to 100, found {wrong.fitness}")
        expect_equal(unread.fitness, 0, "verify: fitness of what cannot be read")
        expect(len(wrong.errors.findings) <= MAX_ERRORS, f"verify: expected at most {MAX_ERRORS} errors")
    if isinstance(task, HasSymbolicOperators):
        for individual in map(_make_individual, case.responses):
            for child in (
                task.mutate(problem, individual, rng),
                task.crossover(problem, individual, _make_individual(case.right), rng),
            ):
                expect(isinstance(child, Response), f"an operator: expected a Response, found {child!r}")
