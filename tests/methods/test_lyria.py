"""Lyria against Algorithm 1 done sequentially, and its parts against the paper's formulas."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lyria_reference import lyria

from building import make_budget, make_config, make_context, make_meter, make_method
from evorun.errors import ConfigError
from evorun.methods.duels.best_of_n import BestOfN
from evorun.methods.lyria.lyria import Lyria, LyriaConfig
from evorun.methods.lyria.population import ExperiencePool, Member, replay, select
from evorun.models.base import Message
from evorun.runs.candidates import Candidate, Response
from evorun.tasks.base import Problem, Prompt, Task, Tools
from evorun.tasks.capabilities import Diagnosis, Individual, Verification
from method_fixture import Ask, Scripted, TestedQuiz, drive, problem, solve, steps


def number(*parts: object) -> int:
    """Return a number that belongs to the parts."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=4).digest(), "big")


def fitness_of(text: str) -> float:
    return 0.0 if text.startswith("?") else float(number("fitness", text) % 100)


def errors_of(text: str, count: int) -> str:
    return ",".join(f"{text}{i}" for i in range(min(count, number("errors", text) % 4)))


class Words(Task):
    """Answers are short words; a text that starts with `?` cannot be read. All is shown as JSON.

    What follows a `#` is talk around the answer, and words that differ in their letters' case are the same answer.
    """

    name = "words"

    def parse(self, problem: Problem, text: str) -> Response:
        if text.startswith("?"):
            return Response(text=text, answer=None, error="format: a question mark")
        return Response(text=text, answer=text.partition("#")[0])

    def signature(self, problem: Problem, response: Response) -> str:
        return (response.answer or "").lower()

    def generation_prompt(self, problem: Problem) -> Prompt:
        return asking("generate")

    def crossover_prompt(self, problem: Problem, first: Individual, second: Individual) -> Prompt:
        return asking("crossover", first, second)

    def mutation_prompt(self, problem: Problem, individual: Individual) -> Prompt:
        return asking("mutate", individual)


class Breeding(Words):
    """The same with symbolic operators and a verifier."""

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: np.random.Generator) -> Response:
        return self.parse(problem, joined(first.response.text, second.response.text, rng))

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        return self.parse(problem, changed(individual.response.text, rng))

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        text = response.text
        return Verification(fitness=fitness_of(text), errors=Diagnosis(text=errors_of(text, max_errors)))


class Described(Words):
    """The same with prompts for a model that scores and finds errors."""

    def fitness_prompt(self, problem: Problem, response: Response) -> Prompt:
        return asking("fitness", answer=response.answer)

    def parse_fitness(self, text: str) -> float | None:
        return float(text) if text.isdigit() else None

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        return asking("errors", answer=response.answer)

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        return Diagnosis(text=text) if text.startswith("error") else None


def asking(ask: str, *shown: Individual, **more: object) -> Prompt:
    content = {"ask": ask, "shown": [[i.response.text, i.fitness, i.errors.text] for i in shown], **more}
    return Prompt(messages=(Message(role="user", content=json.dumps(content)),))


def joined(first: str, second: str, rng: np.random.Generator) -> str:
    return first[:1] + second[1:] + "xy"[int(rng.integers(2))]


def changed(text: str, rng: np.random.Generator) -> str:
    return text[:1] + "abc"[int(rng.integers(3))]


def said(role: str, step: int, index: int, attempt: int, shown: Sequence[Sequence[object]], variety: int) -> str:
    """Return one of few words, so that repeats are frequent; now and then one that cannot be read."""
    drawn = number(role, step, index, attempt, list(map(list, shown)))
    word = f"w{drawn % variety}"
    return f"?{word}" if drawn % 7 == 0 else word


def model(variety: int) -> Scripted:
    return Scripted(lambda ask: said(ask.role, ask.step, ask.index, ask.attempt, ask.shown["shown"], variety))


def config(**values: Any) -> LyriaConfig:
    return make_config("method", "lyria", **{"population": 6, "generations": 3, "elites": 1, **values})


rates = st.sampled_from([0.0, 0.3, 0.7, 1.0])


@given(
    values=st.fixed_dictionaries(
        {
            "population": st.integers(1, 9),
            "generations": st.integers(0, 4),
            "max_errors": st.integers(0, 4),
            "dedup_attempts": st.integers(0, 3),
            "replay_rate": rates,
            "crossover_rate": rates,
            "external_crossover_rate": rates,
            "mutation_rate": rates,
            "external_mutation_rate": rates,
            "fitness_threshold": st.sampled_from([90.0, 100.0]),
        }
    ),
    elites=st.integers(0, 9),
    variety=st.sampled_from([2, 5, 20, 10_000]),
    seed=st.integers(0, 5),
)
async def test_the_same_as_algorithm_1_done_sequentially(
    values: Mapping[str, Any], elites: int, variety: int, seed: int
) -> None:
    settings_ = make_config("method", "lyria", **values, elites=min(elites, values["population"]))
    expected = lyria(
        settings_,
        lambda role, step, index, attempt, shown: said(role, step, index, attempt, shown, variety),
        fitness_of,
        errors_of,
        lambda first, second, rng: joined(first.answer, second.answer, rng),
        lambda one, rng: changed(one.answer, rng),
        (seed, "p0"),
    )
    asked = model(variety)
    history = await solve(Lyria(settings_), asked, task=Breeding(), seed=seed)
    assert len(history) == len(expected.populations)
    for step, population in zip(history, expected.populations, strict=True):
        alive = Counter(rated.text for rated in step.candidates if rated.survivor)
        assert set(alive) == {one.answer for one in population}
        assert step.extra["population"] == len(population)
        assert step.extra["mean_fitness"] == pytest.approx(np.mean([one.fitness for one in population]))
    calls = sorted((ask.role, ask.step, ask.index, ask.attempt) for ask in asked.asked)
    assert calls == sorted(expected.calls)
    readable = expected.best is not None and not expected.best.answer.startswith("?")
    best = history[-1].best
    if readable and expected.best is not None:
        assert best is not None
        assert (best.answer, best.mean) == (expected.best.answer, expected.best.fitness)


async def test_what_a_candidate_records() -> None:
    """Its parents are those whose texts were shown; fitness, errors and call are its own."""
    asked = model(10_000)
    history = await solve(Lyria(config(max_errors=2)), asked, task=Breeding())
    candidates = {rated.id: rated for rated in history[-1].candidates}
    calls = {f"p0|{ask.step}|{ask.role}|{ask.index}|{ask.attempt}": ask for ask in asked.asked}
    operators = {"init": "generate", "crossover": "crossover", "mutation": "mutate"}
    seen = set()
    for candidate in candidates.values():
        text = candidate.text
        assert (candidate.fitness, candidate.errors) == (fitness_of(text), errors_of(text, 2))
        seen.add(candidate.operator)
        if candidate.operator not in operators:
            assert candidate.operator in ("external_crossover", "external_mutation")
            assert candidate.call is None
            continue
        ask = calls[candidate.call or ""]
        assert ask.role == operators[candidate.operator]
        parents = [candidates[parent] for parent in candidate.parents]
        assert ask.shown["shown"] == [[p.text, p.fitness, p.errors] for p in parents]
    assert seen == {*operators, "external_crossover", "external_mutation"}


async def test_expected_calls_are_those_of_appendix_a() -> None:
    """L = 345 at the paper's settings; the meter's mean over problems agrees, within four standard errors."""
    assert make_config("method", "lyria").expected_calls() == pytest.approx(345)
    settings_ = config(population=12, generations=10, elites=2, dedup_attempts=0)
    spent = []
    for number_ in range(12):
        meter = make_meter()
        await solve(Lyria(settings_), model(10**9), task=Breeding(), meter=meter, number=number_)
        spent.append(meter.total.calls)
    error = np.std(spent, ddof=1) / np.sqrt(len(spent))
    assert abs(np.mean(spent) - settings_.expected_calls()) < 4 * error
    assert error < 3


async def test_equal_answers_in_other_words_are_repeats() -> None:
    """Deduplication, the experience pool and evaluation go by answer, not by text."""

    def script(ask: Ask) -> str:
        if ask.role in ("fitness", "errors"):
            return "50" if ask.role == "fitness" else "error"
        word = "abcdef"[(ask.step + ask.index // 2 + 2 * ask.attempt) % 6]
        return f"{word.upper() if ask.index % 2 else word}#said {ask.role} {ask.step} {ask.index} {ask.attempt}"

    asked = Scripted(script)
    history = await solve(Lyria(config(population=4, dedup_attempts=3)), asked, task=Described())
    alive = [rated.answer or "" for rated in history[0].candidates]
    assert alive == ["a", "C", "b", "D"]
    assert history[0].extra["duplicates"] == 2
    assert sorted(ask.index for ask in asked.of("fitness") if ask.step == 0) == [0, 1, 2, 3]
    assert len(asked.of("fitness")) == len({word.shown["answer"].lower() for word in asked.of("fitness")}) <= 6


async def test_nothing_readable_is_no_best() -> None:
    asked = Scripted(lambda ask: f"?{ask.step} {ask.index}")
    settings_ = config(external_crossover_rate=0.0, external_mutation_rate=0.0)
    for step in await solve(Lyria(settings_), asked, task=Breeding()):
        assert step.best is None
    for step in await solve(best_of_n(samples=6), asked, task=Breeding()):
        assert step.best is None


async def test_without_operators_or_verifier_a_model_does_it_all() -> None:
    def script(ask: Ask) -> str:
        if ask.role == "fitness":
            return str(number(ask.shown["answer"]) % 90) if number(ask.shown["answer"]) % 5 else "good"
        if ask.role == "errors":
            return f"error in {ask.shown['answer']}" if number(ask.shown["answer"]) % 3 else "hm"
        return said(ask.role, ask.step, ask.index, ask.attempt, ask.shown["shown"], 30)

    asked = Scripted(script)
    history = await solve(Lyria(config()), asked, task=Described())
    candidates = history[-1].candidates
    texts = {candidate.text for candidate in candidates}
    scored = [ask.shown["answer"] for ask in asked.of("fitness")]
    assert sorted(scored) == sorted(text for text in texts if not text.startswith("?"))  # each answer once
    diagnosed = len(asked.of("errors"))
    assert diagnosed == len(texts)
    for candidate in candidates:
        text = candidate.text
        unread = text.startswith("?") or not number(text) % 5
        assert candidate.fitness == (0 if unread else number(text) % 90)
    assert {c.operator for c in candidates} <= {"init", "crossover", "mutation"}
    assert history[-1].extra["unreadable_scores"] == sum(number(a) % 5 == 0 for a in scored)
    assert history[-1].extra["unreadable_errors"] == sum(
        not number(ask.shown["answer"]) % 3 for ask in asked.of("errors")
    )


async def test_the_judge_model_evaluates(tmp_path: Path) -> None:
    judge = Scripted(lambda ask: "50" if ask.role == "fitness" else "error: none")
    policy = model(1000)
    context = make_context(Described(), problem(0), policy, judge=judge)
    async for _ in steps(Lyria(config()).solve(context)):
        pass
    assert {ask.role for ask in judge.asked} == {"fitness", "errors"}
    assert {ask.role for ask in policy.asked} == {"generate", "crossover", "mutate"}


async def test_stops_at_the_threshold() -> None:
    class Perfect(Breeding):
        async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
            return Verification(fitness=100.0 if response.text == "w3" else 10.0, errors=Diagnosis())

    asked = Scripted(
        lambda ask: "w3" if (ask.step, ask.index) == (2, 0) else said(*ask[1:5], ask.shown["shown"], 10**6)
    )
    history = await solve(Lyria(config(crossover_rate=1.0, external_crossover_rate=0.0)), asked, task=Perfect())
    assert [step.step for step in history] == [0, 1, 2]
    assert history[-1].best is not None
    assert history[-1].best.mean == 100


@pytest.mark.parametrize("calls", [6, 100])
async def test_a_problem_that_a_perfect_fitness_ends_says_so(tmp_path: Path, calls: int) -> None:
    class Perfect(Breeding):
        async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
            return Verification(fitness=100.0, errors=Diagnosis())

    driven = await drive(
        Lyria(config(dedup_attempts=0)),
        tmp_path,
        lambda ask: said(ask.role, ask.step, ask.index, ask.attempt, ask.shown["shown"], 30),
        task=Perfect(),
        problems=2,
        budget=make_budget(calls_per_problem=calls),  # also where its last calls were used up
    )
    assert [prediction["stop"] for prediction in driven.records("predictions")] == ["goal", "goal"]


@pytest.mark.parametrize("calls", [1, 4, 6, 7, 9, 13, 20])
async def test_a_budget_that_ends(tmp_path: Path, calls: int) -> None:
    """Never more calls than allowed, and the best of what they bought is returned."""
    driven = await drive(
        Lyria(config(external_crossover_rate=0.2)),
        tmp_path,
        lambda ask: said(ask.role, ask.step, ask.index, ask.attempt, ask.shown["shown"], 8),
        task=Breeding(),
        problems=2,
        budget=make_budget(calls_per_problem=calls),
    )
    for prediction in driven.records("predictions"):
        assert sum(spent["calls"] for spent in prediction["cost"].values()) <= calls
        mine = [c for c in driven.records("candidates") if c["problem"] == prediction["problem"]]
        readable = [c for c in mine if c["answer"] is not None]
        if readable:
            assert prediction["belief"]["mean"] == max(c["mean"] for c in readable)
        bought = [c for c in driven.records("steps") if c["problem"] == prediction["problem"]]
        assert bought, "the step that the budget cut short is reported"


@pytest.mark.parametrize(("calls", "steps"), [(6, [0]), (9, [0, 1]), (12, [0, 1]), (13, [0, 1, 2])])
async def test_a_generation_of_which_nothing_is_bought_is_no_step(tmp_path: Path, calls: int, steps: list[int]) -> None:
    """Six calls a generation, since a model makes every child and nothing mutates."""
    driven = await drive(
        Lyria(config(crossover_rate=1.0, external_crossover_rate=0.0, mutation_rate=0.0, dedup_attempts=0)),
        tmp_path,
        lambda ask: said(ask.role, ask.step, ask.index, ask.attempt, ask.shown["shown"], 30),
        task=Breeding(),
        problems=1,
        budget=make_budget(calls_per_problem=calls),
    )
    assert [step["step"] for step in driven.records("steps")] == steps


async def test_refused_requests_are_data() -> None:
    asked = Scripted(lambda ask: None if ask.index % 2 else said(*ask[1:5], ask.shown["shown"], 10**6))
    history = await solve(Lyria(config(dedup_attempts=0)), asked, task=Breeding())
    assert history[0].extra["rejected_requests"] == 3
    refused = [r for r in history[0].candidates if r.text == ""]
    assert len(refused) == 3
    assert {c.fitness for c in refused} == {fitness_of("")}


def test_a_budget_below_the_expected_calls_is_told_beforehand() -> None:
    lyria_ = make_method("lyria")
    assert lyria_.warnings(None) == lyria_.warnings(345) == []
    (line,) = lyria_.warnings(344)
    assert "budget of 344 calls per problem: 15 generations of 30 take about 345" in line
    assert line.endswith("up to 3 times (method.dedup_attempts), so that generation 0 alone may take 120")
    (line,) = make_method("lyria", dedup_attempts=0).warnings(344)
    assert line.endswith("so it ends early")


# --- parts ---


def a_member(key: str, fitness: float) -> Member:
    response = Response(text=key, answer=key)
    candidate = Candidate.from_response(response, id=key, generation=0, operator="init")
    return Member(candidate, Individual(response=response, fitness=fitness, errors=Diagnosis()), key.encode())


fitnesses = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=8)


@given(old=fitnesses, known=fitnesses, rate=st.floats(0, 1))
def test_replay_by_its_formula(old: list[float], known: list[float], rate: float) -> None:
    """4.1.3: c'_i is the pool's i-th best where i <= k and it is fitter than the population's i-th worst."""
    population = [a_member(f"o{i}", fitness) for i, fitness in enumerate(old)]
    pool = ExperiencePool(len(old))
    pool.add(a_member(f"e{i}", fitness) for i, fitness in enumerate(known))
    k = int(np.floor(rate * len(old) + 1e-9))
    worst, best = sorted(old), sorted(known, reverse=True)
    expected = [best[i] if i < min(k, len(best)) and best[i] > worst[i] else worst[i] for i in range(len(old))]
    found = replay(population, pool, rate)
    assert [one.fitness for one in found] == expected
    for i, one in enumerate(found):
        assert one.key.startswith(b"e") == (i < min(k, len(best)) and best[i] > worst[i])


def test_a_share_is_not_lost_to_rounding() -> None:
    pool = ExperiencePool(100)
    pool.add(a_member(f"e{i}", 9.0) for i in range(100))
    replaced = replay([a_member(f"o{i}", 0.0) for i in range(100)], pool, 0.29)
    assert sum(one.fitness == 9.0 for one in replaced) == 29


@given(
    generations=st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=6),
    worth=st.lists(st.integers(0, 5).map(float), min_size=31, max_size=31),
    places=st.integers(0, 6),
)
def test_a_pool_with_few_places_gives_what_one_of_all_members_would(
    generations: list[list[int]], worth: list[float], places: int
) -> None:
    pool, everybody = ExperiencePool(places), dict[bytes, Member]()
    for generation in generations:
        members = [a_member(str(answer), worth[answer]) for answer in generation]
        pool.add(members)
        for member in members:
            everybody.setdefault(member.key, member)
        best = sorted(everybody.values(), key=lambda one: -one.fitness)
        for count in range(places + 1):
            # these very objects: of those with one answer the first, of equally fit ones the earlier first
            assert list(map(id, pool.best(count))) == list(map(id, best[:count]))


@pytest.mark.parametrize(("population", "elites"), [(30, 3), (50, 5), (5, 1), (1, 1), (11, 2)])
def test_a_tenth_of_the_population_is_elite_unless_said_otherwise(population: int, elites: int) -> None:
    assert make_config("method", "lyria", population=population).elite_count == elites
    assert make_config("method", "lyria", population=population, elites=0).elite_count == 0


@given(old=fitnesses, elites=st.integers(0, 8), seed=st.integers(0, 1000))
def test_selection_by_its_formula(old: list[float], elites: int, seed: int) -> None:
    population = [a_member(f"o{i}", fitness) for i, fitness in enumerate(old)]
    pool = select(population, elites, np.random.default_rng(seed))
    elite_count = min(elites, len(old))
    assert len(pool) == len(old)
    assert [one.fitness for one in pool[:elite_count]] == sorted(old, reverse=True)[:elite_count]


def test_tournaments_prefer_the_fitter_as_often_as_two_uniform_draws_do() -> None:
    """The best of n is in a pair with probability 1 - ((n - 1) / n)^2."""
    population = [a_member(f"o{i}", float(i)) for i in range(5)]
    rng = np.random.default_rng(0)
    drawn = Counter(one.key for _ in range(4000) for one in select(population, 0, rng))
    share = drawn[b"o4"] / drawn.total()
    assert share == pytest.approx(1 - (4 / 5) ** 2, abs=0.012)
    assert drawn[b"o0"] / drawn.total() == pytest.approx(1 / 25, abs=0.006)


# --- settings ---


def test_regimes() -> None:
    lyria_ = make_method("lyria")
    assert lyria_.information_regime(Breeding) == "oracle"
    assert lyria_.information_regime(Described) == "problem_only"
    assert make_method("lyria", fitness="model", errors="model").information_regime(Breeding) == "problem_only"
    assert make_method("lyria", fitness="model").information_regime(Breeding) == "oracle"

    class WithTests(Breeding, TestedQuiz):
        pass

    assert lyria_.information_regime(WithTests) == "public_tests"


@pytest.mark.parametrize(
    ("values", "task", "word"),
    [
        ({}, Words, "no prompts"),
        ({"fitness": "oracle"}, Described, "method.fitness=model"),
        ({"errors": "verifier"}, Described, "method.errors=model"),
        ({"fitness": "model"}, Breeding, "no prompts"),
    ],
)
def test_misfits_say_what_to_set(values: dict[str, Any], task: type[Task], word: str) -> None:
    found = make_method("lyria", **values).incompatibility(task)
    assert found is not None
    assert word in found
    assert "\n" not in found


@pytest.mark.parametrize("task", [Breeding, Described])
def test_fits(task: type[Task]) -> None:
    assert make_method("lyria").incompatibility(task) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("population", 0), ("generations", -1), ("elites", 31), ("max_errors", -1), ("dedup_attempts", -1),
        ("replay_rate", 1.1), ("crossover_rate", -0.1), ("external_crossover_rate", 2), ("mutation_rate", 2),
        ("external_mutation_rate", -1), ("fitness", "both"), ("errors", "none"), ("fitness_threshold", 101),
        ("evaluator_max_tokens", 0), ("evaluator_temperature", -1),
    ],
)  # fmt: skip
def test_values_out_of_range_are_named(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"method\.{key}"):
        make_config("method", "lyria", **{key: value})


def test_steps_say_how_it_goes() -> None:
    assert make_method("lyria", generations=7).last_step == 7


# --- the baseline: Best-of-N by the oracle ---


def best_of_n(**values: Any) -> BestOfN:
    return make_method("best_of_n", **{"samples": 20, "choose": "oracle", "batches": 4, **values})


@given(
    samples=st.integers(1, 25),
    batches=st.integers(1, 30),
    dedup=st.integers(0, 3),
    variety=st.sampled_from([3, 12, 999]),
)
async def test_best_of_n_by_the_oracle(samples: int, batches: int, dedup: int, variety: int) -> None:
    """Section 4.2.1: samples one after the other, a repeat drawn anew; the fittest is returned."""
    expected: list[str] = []
    calls = []
    for index in range(samples):
        for attempt in range(dedup + 1):
            calls.append((index, attempt))
            text = said("generate", 0, index, attempt, [], variety)
            if text not in expected:
                break
        expected.append(text)
    asked = model(variety)
    history = await solve(best_of_n(samples=samples, batches=batches, dedup_attempts=dedup), asked, task=Breeding())
    assert [rated.text for rated in history[-1].candidates] == expected
    assert sorted((ask.index, ask.attempt) for ask in asked.asked) == sorted(calls)
    assert len(history) <= min(batches, samples)
    readable = [text for text in expected if not text.startswith("?")]
    best = history[-1].best
    assert (best and best.text) == (max(readable, key=fitness_of) if readable else None)


def test_best_of_n_says_what_it_knows() -> None:
    assert best_of_n().information_regime(Breeding) == "oracle"
    assert best_of_n(choose="duels").information_regime(Breeding) == "problem_only"
    assert "method.choose=duels" in (best_of_n().incompatibility(Described) or "")
    assert best_of_n().incompatibility(Breeding) is None
