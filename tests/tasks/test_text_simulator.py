"""The default simulator: its rates are those of its skill, whatever the task; contests and MathBench add mistakes."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from building import load_task
from evorun.cli.compose import default_config
from evorun.errors import ConfigError
from evorun.models.base import Message, Request
from evorun.models.config import ModelConfig
from evorun.runner import registry
from evorun.runner.served import find_unfit_skill
from evorun.runs.candidates import Response
from evorun.simulation.engine import SimulatedConfig
from evorun.simulation.skill import Skill
from evorun.tasks.base import LoadedTask, Problem, Prompt
from evorun.tasks.capabilities import Attempt, Diagnosis, Individual, ScoredResponse
from evorun.tasks.loading import load_rows
from evorun.tasks.math_contest.reading import canonical
from evorun.tasks.simulator import TextSimulator
from score_tasks import Aim
from text_tasks import DrawnSums, Essays, JsonSums, Sums, essays, sums

DRAWS = 500
TOLERANCE = 0.09  # four standard errors of a rate over DRAWS
LOADED = load_rows(Sums(), sums(12), validation=sums(3, 20))
TASK: Any = LOADED.task
PROBLEM = LOADED.problems[0]
RIGHT, WRONG, WRONG_TOO = (Response(text="", answer=answer) for answer in ("5", "6", "7"))
UNREAD = Response(text="", answer=None, error="no_number: ...")
FAMILIES = {
    "sums": LOADED,
    "json_sums": load_rows(JsonSums(), sums(12)),
    "mathbench": load_task("mathbench", source="sample"),
    "integers": load_task("aime", source="sample"),
    "expressions": load_task("hmmt", source="sample"),
}


def texts(loaded: LoadedTask, skill: Skill, prompt: Prompt, draws: int = DRAWS) -> list[str]:
    simulator = loaded.simulator.with_skill(skill)
    rng = np.random.default_rng(1)
    request = Request(messages=prompt.messages, hints=prompt.hints)
    return [simulator.respond(request, rng) for _ in range(draws)]


def rate(skill: Skill, prompt: Prompt, hit: Callable[[str], bool]) -> float:
    return float(np.mean([hit(text) for text in texts(LOADED, skill, prompt)]))


def is_right(text: str) -> bool:
    return TASK.parse(PROBLEM, text).answer == "5"


def says(verdict: str) -> Callable[[str], bool]:
    return lambda text: TASK.parse_judgment(text).verdict == verdict


def individual(response: Response) -> Individual:
    return Individual(response=response, fitness=50, errors=Diagnosis())


@pytest.mark.parametrize("skill", [0.0, 0.4, 1.0])
def test_answers_from_scratch_are_right_at_its_skill(skill: float) -> None:
    for prompt in (TASK.generation_prompt(PROBLEM), TASK.few_shot_prompt(PROBLEM, LOADED.validation)):
        assert rate(Skill(skill=skill, malformed=0), prompt, is_right) == pytest.approx(skill, abs=TOLERANCE)


@pytest.mark.parametrize(("shown", "share"), [([RIGHT, RIGHT], 1), ([RIGHT, UNREAD], 0.5), ([WRONG], 0), ([], 0)])
def test_right_answers_in_view_improve_new_ones_by_their_share(shown: list[Response], share: float) -> None:
    prompts = [TASK.evolution_prompt(PROBLEM, [ScoredResponse(response=one, score=0) for one in shown])]
    if len(shown) == 2:
        prompts.append(TASK.crossover_prompt(PROBLEM, *map(individual, shown)))
    if len(shown) == 1:
        prompts.append(TASK.mutation_prompt(PROBLEM, individual(*shown)))
        prompts.append(TASK.refinement_prompt(PROBLEM, *shown, [Attempt(response=RIGHT, outcome="lost")]))
    for prompt in prompts:
        found = rate(Skill(skill=0.3, improvement=0.4, malformed=0), prompt, is_right)
        assert found == pytest.approx(0.3 + 0.4 * share, abs=TOLERANCE)


@pytest.mark.parametrize("shown", [[WRONG, WRONG_TOO], [RIGHT, WRONG], [UNREAD]])
def test_wrong_answers_in_view_mislead_by_their_share(shown: list[Response]) -> None:
    prompt = TASK.evolution_prompt(PROBLEM, [ScoredResponse(response=one, score=0) for one in shown])
    share = shown.count(RIGHT) / len(shown)
    found = rate(Skill(skill=0.5, improvement=0.4, misleading=0.3, malformed=0), prompt, is_right)
    assert found == pytest.approx(0.5 + 0.4 * share - 0.3 * (1 - share), abs=TOLERANCE)


@pytest.mark.parametrize(
    ("first", "second", "bias", "prefers_first"),
    [
        # of bias b and skill q: b + (1 - b) q where the first is right, b + (1 - b) (1 - q) where the second is
        (RIGHT, WRONG, 0.2, 0.2 + 0.8 * 0.75),
        (WRONG, RIGHT, 0.2, 0.2 + 0.8 * 0.25),
        (RIGHT, UNREAD, 0.2, 0.2 + 0.8 * 0.75),
        (RIGHT, WRONG, -0.2, 0.8 * 0.75),
        (WRONG, WRONG_TOO, 1.0, 1.0),
        (RIGHT, RIGHT, -1.0, 0.0),
    ],
)
def test_the_judge_prefers_the_right_one_at_its_skill_where_bias_does_not_decide(
    first: Response, second: Response, bias: float, prefers_first: float
) -> None:
    skill = Skill(judge_skill=0.75, position_bias=bias, malformed=0, tie_rate=1)
    found = rate(skill, TASK.judge_prompt(PROBLEM, first, second), says("A"))
    assert found == pytest.approx(prefers_first, abs=TOLERANCE)


@pytest.mark.parametrize("pair", [(RIGHT, RIGHT), (WRONG, WRONG_TOO), (WRONG, UNREAD)])
def test_the_judge_ties_equals_at_its_rate(pair: tuple[Response, Response]) -> None:
    found = rate(Skill(tie_rate=0.25, malformed=0), TASK.judge_prompt(PROBLEM, *pair), says("T"))
    assert found == pytest.approx(0.25, abs=TOLERANCE)


@pytest.mark.parametrize(("response", "sound"), [(RIGHT, 0.8), (WRONG, 0.2), (UNREAD, 0.2)])
def test_evaluations_are_right_at_the_judges_skill(response: Response, sound: float) -> None:
    skill = Skill(judge_skill=0.8, malformed=0)
    scores = [TASK.parse_fitness(text) for text in texts(LOADED, skill, TASK.fitness_prompt(PROBLEM, response))]
    assert np.mean([score >= 60 for score in scores]) == pytest.approx(sound, abs=TOLERANCE)
    found = [
        TASK.parse_errors(PROBLEM, text, 3) for text in texts(LOADED, skill, TASK.errors_prompt(PROBLEM, response))
    ]
    assert np.mean([not diagnosis.findings for diagnosis in found]) == pytest.approx(sound, abs=TOLERANCE)


def test_an_instruction_moves_the_skill_by_its_own_amount() -> None:
    def found(instruction: str) -> float:
        skill = Skill(skill=0.5, instruction_gain=0.3, malformed=0)
        return rate(skill, TASK.instructed_prompt(PROBLEM, instruction), is_right)

    assert found(TASK.seed_instruction()) == pytest.approx(0.5, abs=TOLERANCE)
    rates = [found(f"Solve it in way {n}.") for n in range(6)]
    assert all(0.2 - TOLERANCE <= one <= 0.8 + TOLERANCE for one in rates)
    assert max(rates) - min(rates) > 0.2
    assert found("Solve it in way 0.") == rates[0]


def test_the_malformed_share_cannot_be_read() -> None:
    skill = Skill(malformed=0.2)
    unread = rate(skill, TASK.generation_prompt(PROBLEM), lambda text: TASK.parse(PROBLEM, text).answer is None)
    invalid = rate(skill, TASK.judge_prompt(PROBLEM, RIGHT, WRONG), says("invalid"))
    assert (unread, invalid) == pytest.approx((0.2, 0.2), abs=TOLERANCE)


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_its_mistakes_are_answers_and_never_right_and_one_is_typical(family: str) -> None:
    loaded = FAMILIES[family]
    task: Any = loaded.task
    for problem in loaded.problems[:4]:
        prompt = task.generation_prompt(problem)
        [gold] = {task.parse(problem, text).answer for text in texts(loaded, Skill(skill=1, malformed=0), prompt, 3)}
        skill = Skill(skill=0, malformed=0, typical_mistake=0.5)
        answers = [task.parse(problem, text).answer for text in texts(loaded, skill, prompt, 200)]
        assert None not in answers
        assert canonical(gold) not in map(canonical, answers)
        assert max(map(answers.count, answers)) / 200 > 0.4


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_malformed_replies_are_unread_and_reasoning_has_the_mean_length(family: str) -> None:
    loaded = FAMILIES[family]
    task: Any = loaded.task
    problem = loaded.problems[0]
    prompt = task.generation_prompt(problem)
    for text in set(texts(loaded, Skill(malformed=1), prompt, 100)):
        assert task.parse(problem, text).answer is None
    lengths = [
        len(task.parse(problem, text).reasoning.split())
        for text in texts(loaded, Skill(malformed=0, mean_tokens=100), prompt, 500)
    ]
    assert np.mean(lengths) == pytest.approx(105, rel=0.05)


def test_right_parents_improve_answers_in_any_writing() -> None:
    loaded = FAMILIES["expressions"]
    task: Any = loaded.task
    problem = loaded.problems[0]
    [text] = texts(loaded, Skill(skill=1, malformed=0), task.generation_prompt(problem), 1)
    gold = task.parse(problem, text).answer
    prompt = task.evolution_prompt(problem, [ScoredResponse(response=Response(text="", answer=f" {gold} "), score=0)])
    made = texts(loaded, Skill(skill=0.3, improvement=0.4, malformed=0), prompt)
    found = np.mean([task.parse(problem, text).answer == gold for text in made])
    assert found == pytest.approx(0.7, abs=TOLERANCE)


def test_the_same_stream_gives_the_same_text_and_a_reflecting_model_writes_a_fence() -> None:
    hints: list[Any] = [TASK.generation_prompt(PROBLEM).hints, {"role": "reflect"}]
    for one in hints:
        request = Request(messages=(), hints=one)
        made = [LOADED.simulator.respond(request, np.random.default_rng(seed)) for seed in (5, 5, *range(20))]
        assert made[0] == made[1]
        assert len(set(made)) > 5
    assert all(text.count("```") == 2 for text in made)


def test_without_right_and_wrong_the_better_score_counts() -> None:
    loaded = load_rows(Essays(), essays("One two three four.", "One.", "One two."))
    task: Any = loaded.task
    best, worse = loaded.problems[0], loaded.problems[1]
    skill = Skill(skill=0.5, judge_skill=0.9, position_bias=0, malformed=0, improvement=0.4)
    long, short = (Response(text="", answer=answer) for answer in ("a b c d", "a b"))
    judged = [task.parse_judgment(text).verdict for text in texts(loaded, skill, task.judge_prompt(best, short, long))]
    assert judged.count("B") / DRAWS == pytest.approx(0.9, abs=TOLERANCE)
    scores = [task.parse_fitness(text) for text in texts(loaded, skill, task.fitness_prompt(worse, short))]
    assert np.mean([score >= 60 for score in scores]) == pytest.approx(0.9, abs=TOLERANCE)


@pytest.mark.parametrize("skill", [0.0, 0.3, 0.6, 1.0])
def test_where_a_task_scores_in_degrees_skill_is_the_mean_degree(skill: float) -> None:
    loaded = load_rows(Essays(), essays("a b c d e f g h", "i", "j k l", "m n o p q"))
    task: Any = loaded.task
    problem = loaded.problems[0]  # worth eight words, where nothing is worth none
    made = texts(
        loaded, Skill(skill=skill, malformed=0, improvement=0.4, misleading=0.2), task.generation_prompt(problem)
    )
    degrees = np.array([len(text.split()) / 8 for text in made])
    # One word is the worst that it says; the variance of a binomial share of eight parts.
    assert degrees.mean() == pytest.approx(max(skill, 1 / 8 * (1 - skill) ** 8), abs=TOLERANCE + (skill == 0) / 8)
    assert degrees.std() == pytest.approx((skill * (1 - skill) / 8) ** 0.5, abs=TOLERANCE)
    assert len({*degrees.tolist()}) > 4 or skill in (0, 1)


@pytest.mark.parametrize(("skill", "worse"), [(0.1, True), (1.0, False)])
def test_a_skill_below_random_answers_is_told(skill: float, worse: bool) -> None:
    loaded = load_rows(Essays(), essays("a b c d", "e f g h", "i j k l"))  # a random answer is as good as the right one
    told = loaded.simulator.with_skill(Skill(skill=skill)).find_lack_of_skill(loaded.problems)
    said = (  # in the score's own units: 100 less the words
        "task=essays: simulated answers score 99.67 (missing) at engine.skill=0.1, and those of model=random 96. "
        "Check the task's right answers: other answers are as good"
    )
    assert told == (said if worse else None)
    assert LOADED.simulator.with_skill(Skill(skill=0.0)).find_lack_of_skill(LOADED.problems) is None  # right or wrong


def test_better_answers_in_view_help_by_their_degree_and_evaluators_score_by_it() -> None:
    loaded = load_rows(Essays(), essays("a b c d e f g h", "i", "j k l"))
    task: Any = loaded.task
    problem = loaded.problems[0]
    shown = [Response(text="", answer="x " * words) for words in (2, 6)]
    prompt = task.evolution_prompt(problem, [ScoredResponse(response=one, score=0) for one in shown])
    made = texts(loaded, Skill(skill=0.4, improvement=0.4, misleading=0.2, malformed=0), prompt)
    expected = 0.4 + 0.4 * 0.5 - 0.2 * 0.5
    assert np.mean([len(text.split()) / 8 for text in made]) == pytest.approx(expected, abs=TOLERANCE)
    sure = Skill(judge_skill=1, malformed=0)
    scores = [
        np.mean([task.parse_fitness(t) for t in texts(loaded, sure, task.fitness_prompt(problem, one))])
        for one in shown
    ]
    # From 30 for the worst to 80 for the best, on average.
    assert scores == pytest.approx([30 + 50 * 2 / 8, 30 + 50 * 6 / 8], abs=1.5)


def test_between_numbers_lie_numbers() -> None:
    loaded = load_rows(Aim(), [(Problem(id=name, stratum="all", data={"hint": ""}), name) for name in ("100", "108")])
    task: Any = loaded.task
    made = texts(loaded, Skill(skill=0.5, malformed=0), task.generation_prompt(loaded.problems[0]), 500)
    said = {int(task.parse(loaded.problems[0], text).answer) for text in made}
    assert said >= {*range(101, 107)}
    assert said <= {*range(100, 109)}


class OwnAim(Aim):
    """Reads the right answer to the problem alone."""

    def read(self, problem: Problem, text: str) -> str:
        if (answer := super().read(problem, text)) != problem.id:
            raise ValueError("foreign: expected the problem's own number")
        return answer


def test_by_degrees_too_an_unreadable_reply_stands_in_for_a_missing_mistake_and_a_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [(Problem(id=name, stratum="all", data={"hint": ""}), name) for name in ("100", "108")]
    loaded = load_rows(OwnAim(), rows)
    task: Any = loaded.task
    problem = loaded.problems[0]
    found = texts(loaded, Skill(skill=0.35, malformed=0, spread=0), task.generation_prompt(problem))
    right = [task.parse(problem, text).answer == "100" for text in found]
    assert np.mean(right) == pytest.approx(0.35, abs=TOLERANCE)
    assert {text for text, is_right in zip(found, right, strict=True) if not is_right} == {""}
    (line,) = caplog.messages
    assert line.startswith("task=aim: problem 100 has no readable wrong answer")


class Darts(Aim):
    """Says what answers of several degrees look like."""

    def __init__(self, *off: int, farthest: int | None = None) -> None:
        super().__init__()
        self._off, self._farthest = off, farthest

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        return [str(int(gold) + off) for off in self._off]

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str | None:
        return None if self._farthest is None else str(int(problem.id) + self._farthest)


def throw(darts: Darts, skill: float, *problems: str) -> tuple[LoadedTask, list[int]]:
    """Return the task and the distances of `DRAWS` answers to its first problem."""
    rows = [(Problem(id=name, stratum="all", data={"hint": ""}), name) for name in problems]
    loaded = load_rows(darts, rows)
    prompt = darts.generation_prompt(loaded.problems[0])
    made = texts(loaded, Skill(skill=skill, malformed=0, spread=0), prompt, DRAWS)
    return loaded, [int(darts.parse(loaded.problems[0], text).answer or "") - int(problems[0]) for text in made]


@pytest.mark.parametrize("skill", [0.05, 0.25, 0.5, 0.8, 0.95])
def test_a_task_says_what_its_wrong_answers_are_and_skill_is_their_mean_however_few(skill: float) -> None:
    _, off = throw(Darts(10, 9, 3), skill, "100", "300")
    assert set(off) <= {0, 3, 9, 10}
    assert 1 - np.mean(off) / 10 == pytest.approx(skill, abs=TOLERANCE)


def test_all_wrong_answers_that_a_task_gives_are_used() -> None:
    given = range(60, 0, -1)
    loaded = load_rows(Darts(*given), [(Problem(id="100", stratum="all", data={"hint": ""}), "100")])
    simulator: Any = loaded.simulator
    assert simulator.wrong_answers(loaded.problems[0], "100") == [str(100 + off) for off in given]


def test_random_answers_lower_what_a_skill_can_reach_and_a_line_tells_what_none_can() -> None:
    _, off = throw(Darts(farthest=8), 0.3, "100", "103")  # the other right answer is worth 0.7 here
    assert 1 - np.mean(off) / 10 == pytest.approx(0.3, abs=TOLERANCE)
    loaded, off = throw(Darts(3), 0.3, "100", "300")
    assert set(off) == {3}
    told = loaded.simulator.with_skill(Skill(skill=0.3)).find_lack_of_skill(loaded.problems)
    assert told == (
        "task=aim: the worst known answers score 7 (quality) on average, more than engine.skill=0.3 asks for. Set "
        "engine.skill, a share of the right answers' score, above 0.70, or give the task's wrong_answers worse ones"
    )


class Scattered(Darts):
    """Darts whose random answers are of several degrees, 0.65 on average."""

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str | None:
        return str(int(problem.id) + int(rng.integers(1, 7)))


def test_the_level_of_random_answers_that_a_line_tells_is_the_same_at_each_skill() -> None:
    rows = [(Problem(id=f"{number}00", stratum="all", data={"hint": ""}), f"{number}00") for number in range(1, 11)]
    simulator = load_rows(Scattered(7, 5), rows).simulator
    levels = set[str]()
    for skill in (0.1, 0.4):
        told = simulator.with_skill(Skill(skill=skill, improvement=0.6)).find_lack_of_skill([row[0] for row in rows])
        advice = r"Set engine.skill, .* above (0\.\d\d), and engine.improvement below (0\.\d\d), so"
        found = re.search(rf"those of model=random 6\.\d+\. {advice}", told or "")
        assert found is not None, told
        assert float(found[1]) + float(found[2]) == pytest.approx(1)
        levels.add(found[1])
    (level,) = levels
    assert float(level) == pytest.approx(0.65, abs=0.1)
    # where problems differ enough, hard ones keep their errors at any improvement
    spread = simulator.with_skill(Skill(skill=0.1, improvement=0.6, spread=0.5))
    assert re.search(r"above 0\.\d\d$", spread.find_lack_of_skill([row[0] for row in rows]) or "")
    # a difference within chance is told, too, where the skill is below the level that the line names
    near, above = (
        simulator.with_skill(Skill(skill=float(level) + far, improvement=0.1)).find_lack_of_skill(
            [row[0] for row in rows]
        )
        for far in (-0.06, 0.05)
    )
    assert near is not None
    assert above is None


class Measured(Scattered):
    """Scattered, with a ruler as a tool; a turn that asks for it has no answer, and is worth nothing."""

    def max_turns(self, problem: Problem) -> int:
        return 2

    async def answer_tools(self, problem: Problem, said: Message) -> Message | None:
        raise AssertionError("expected no tool to run before the run does")


class Measurer(TextSimulator):
    """Measures before it answers."""

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        measured = any(message["role"] == "tool" for message in request.messages)
        return super().respond(request, rng) if measured else "measure!"


def test_a_turn_that_calls_a_tool_is_not_taken_for_the_answer() -> None:
    rows = [(Problem(id=f"{number}00", stratum="all", data={"hint": ""}), f"{number}00") for number in range(1, 11)]
    simulator = load_rows(Measured(7, 5), rows, simulator=Measurer).simulator
    problems = [row[0] for row in rows]
    assert simulator.with_skill(Skill(skill=0.8, improvement=0.1)).find_lack_of_skill(problems) is None
    told = simulator.with_skill(Skill(skill=0.1)).find_lack_of_skill(problems)
    found = re.search(r"simulated answers score ([\d.]+) ", told or "")
    assert found is not None, told
    assert float(found[1]) > 0


@pytest.mark.parametrize(
    ("task", "method", "skill", "spread", "told"),
    [
        ("arithmetic", "feedback_descent", 0.75, 0.4, True),
        ("arithmetic", "feedback_descent", 0.75, 0.5, False),  # as in the studies
        ("arithmetic", "lyria", 0.4, 0.1, True),
        ("arithmetic", "rsa", 0.35, 0.1, False),
        ("arithmetic", "rsa", 1.0, 0.1, False),
        ("arithmetic", "best_of_n", 0.75, 0.1, False),  # shows no earlier answer
        ("sudoku", "duel_evolve", 0.75, 0.1, False),  # solved cell by cell
    ],
)
def test_a_line_tells_that_answers_in_view_of_right_ones_have_no_errors(
    task: str, method: str, skill: float, spread: float, told: bool
) -> None:
    loaded = load_task(task, limit=2)
    chosen = registry.methods()[method](default_config("method", method))
    engine = SimulatedConfig(name="simulated", skill=skill, improvement=0.6, spread=spread)
    model = ModelConfig(name="m", id="m")
    assert find_unfit_skill(engine, model, chosen, loaded) == (
        f"engine.skill={skill:g} and engine.improvement=0.6 add up to {skill + 0.6:g}, so that "
        "answers in view of right ones alone have no errors. For a comparison, set engine.improvement below "
        f"{1 - skill:g}, or engine.spread=0.5, at which hard problems have few right ones"
        if told
        else None
    )


@pytest.mark.parametrize(
    ("task", "method", "skill", "typical", "told"),
    [
        (
            "arithmetic",
            "self_consistency",
            0.35,
            0.7,
            "engine.typical_mistake=0.7: on 6 of 6 problems one wrong answer is more frequent than the right one at "
            "engine.skill=0.35, so that more votes are worse. For a comparison, set engine.typical_mistake below 0.54",
        ),
        ("arithmetic", "self_consistency", 0.45, 0.7, None),
        ("arithmetic", "self_consistency", 0.35, 0.5, None),
        ("arithmetic", "best_of_n", 0.35, 0.7, None),
        ("sudoku", "self_consistency", 0.35, 0.7, None),  # solved cell by cell
    ],
)
def test_a_line_tells_that_a_vote_must_fail(
    task: str, method: str, skill: float, typical: float, told: str | None
) -> None:
    loaded = load_task(task, limit=6)
    chosen = registry.methods()[method](default_config("method", method))
    engine = SimulatedConfig(name="simulated", skill=skill, typical_mistake=typical)
    assert find_unfit_skill(engine, ModelConfig(name="m", id="m"), chosen, loaded) == told


def test_wrong_answers_of_a_task_with_right_and_wrong_replace_those_to_other_problems() -> None:
    class OffByOne(Sums):
        def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
            return [str(int(gold) + 1), gold, str(int(gold) - 1)]

    loaded = load_rows(OffByOne(), sums(12))
    task: Any = loaded.task
    made = texts(loaded, Skill(skill=0, malformed=0), task.generation_prompt(loaded.problems[0]), 200)
    assert {task.parse(loaded.problems[0], text).answer for text in made} == {"4", "6"}


@pytest.mark.parametrize(("typical", "most"), [(0.7, 0.7), (0.1, 1 / 3), (0.0, 1 / 3), (1.0, 1.0)])
def test_the_typical_mistake_has_its_share_of_the_wrong_answers(typical: float, most: float) -> None:
    loaded = FAMILIES["mathbench"]  # three wrong options each
    task: Any = loaded.task
    problem = loaded.problems[0]
    made = texts(loaded, Skill(skill=0, malformed=0, typical_mistake=typical), task.generation_prompt(problem))
    counts = Counter(task.parse(problem, text).answer for text in made)
    assert max(counts.values()) / DRAWS == pytest.approx(most, abs=TOLERANCE)
    others = sorted(counts.values())[:-1]
    assert all(one / DRAWS == pytest.approx((1 - most) / 2, abs=TOLERANCE) for one in others)


def test_without_a_reference_it_writes_something() -> None:
    loaded = load_rows(Essays(), essays(None))
    task: Any = loaded.task
    [problem] = loaded.problems
    made = texts(loaded, Skill(malformed=0), task.generation_prompt(problem), 20)
    assert all(task.parse(problem, text).answer for text in made)
    assert len(set(made)) > 5


@pytest.mark.parametrize("key", ["skill", "improvement", "judge_skill", "tie_rate", "instruction_gain", "malformed"])
def test_rates_lie_between_zero_and_one(key: str) -> None:
    with pytest.raises(ConfigError, match=f"engine.{key}"):
        Skill(**{key: 1.5})  # type: ignore[arg-type]


def test_random_answers_are_the_mistakes_where_no_other_problems_answer_is_readable() -> None:
    loaded = load_rows(DrawnSums(), sums(8))
    task: Any = loaded.task
    problem = loaded.problems[0]
    replies = texts(loaded, Skill(skill=0.35, malformed=0, spread=0), task.generation_prompt(problem))
    answers = [task.parse(problem, reply).answer for reply in replies]
    assert set(answers) == {f"{tens}5" for tens in ("", *"123456789")}
    assert np.mean([answer == "5" for answer in answers]) == pytest.approx(0.35, abs=TOLERANCE)
