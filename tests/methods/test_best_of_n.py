"""Best-of-N: the duels of Duel-Evolve without its evolution."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from building import composed, make_meter, make_method, simulated_run
from evorun.errors import ConfigError, DataError
from evorun.methods.duels.arena import Arena
from evorun.methods.duels.best_of_n import BestOfN
from evorun.methods.search.proposals import PILOT_SAMPLES
from evorun.ratings import selection
from evorun.rollouts.calls import Role
from evorun.runner.settings import check
from evorun.runs.budget import Meter
from evorun.runs.candidates import Comparison, Response, Step
from evorun.tasks.base import Problem, Tools
from evorun.tasks.billsum.billsum import BillSum
from evorun.tasks.capabilities import Diagnosis, Verification
from evorun.tasks.essay.essay import Essay
from evorun.tasks.rubric_items import WeightedItem
from evorun.testing.runs import COMPLETED, carry_out
from method_fixture import TOKENS, Ask, CriteriaQuiz, Quiz, Scripted, TestedQuiz, solve


def quality(answer: str) -> int:
    """Return the quality that the judge below sees: each answer its own."""
    return int(answer.split()[-1]) * 7 % 31


def judges_by_quality(ask: Ask) -> str:
    if ask.role == "generate":
        return f"answer {ask.step * 100 + ask.index}"
    first, second = (quality(ask.shown[side]["answer"]) for side in "ab")
    return "A:" if first > second else "B:" if second > first else "T:"


class Verified(Quiz):
    """A quiz whose symbolic system takes all answers for equally good."""

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        return Verification(fitness=50.0, errors=Diagnosis())


def best_of(**config: object) -> BestOfN:
    return make_method("best_of_n", **{"samples": 12, "rounds": 6, "duels": 5, **config})


def duels(step: Step) -> list[tuple[str, str]]:
    return [(duel.first, duel.second) for duel in step.comparisons]


async def test_the_samples_are_drawn_once_and_only_judged_afterwards() -> None:
    model = Scripted(judges_by_quality)
    history = await solve(best_of(), model)
    assert [step.step for step in history] == list(range(7))
    assert [ask.index for ask in model.of("generate")] == list(range(12))
    assert {(ask.step, ask.shown["ask"]) for ask in model.of("generate")} == {(0, "generate")}
    assert [sum(ask.step == step for ask in model.of("judge")) for step in range(7)] == [0, *[10] * 6]
    assert len({ask.request.seed for ask in model.asked}) == len(model.asked)


async def test_every_candidate_duels_before_any_pair_is_left_to_chance() -> None:
    history = await solve(best_of(samples=23, rounds=8, duels=4), Scripted(judges_by_quality))
    dueled: set[str] = set()
    for step in history[1:]:
        fresh = [f"0.{i}" for i in range(23) if f"0.{i}" not in dueled]
        now = {side for pair in duels(step) for side in pair}
        # each duel of the round has at least one of those that wait, as long as any do
        assert set(fresh[: len(step.comparisons)]) <= now
        dueled |= now
    assert len(dueled) == 23


async def test_more_samples_than_the_pool_holds_all_duel_in_the_end() -> None:
    history = await solve(best_of(samples=20, rounds=20, duels=3, max_pool=6), Scripted(judges_by_quality))
    assert len({side for step in history for pair in duels(step) for side in pair}) == 20
    assert all(sum(rated.survivor for rated in step.candidates) <= 6 for step in history)


async def test_the_best_sample_wins() -> None:
    history = await solve(best_of(rounds=30, duels=12), Scripted(judges_by_quality))
    best = history[-1].best
    assert best is not None
    assert best.id == max((f"0.{i}" for i in range(12)), key=lambda name: quality(name[2:]))
    assert best.mean == max(rated.mean or 0 for rated in history[-1].candidates)


async def test_the_belief_is_that_of_duel_evolves_arena() -> None:
    history = await solve(best_of(), Scripted(judges_by_quality))
    arena = Arena(1.0)
    arena.add(history[0].candidates)
    for step in history:
        arena.update(step.comparisons)
        assert [rated.mean for rated in step.candidates] == pytest.approx(arena.mean.tolist(), abs=1e-5)
        assert [rated.sd for rated in step.candidates] == pytest.approx(arena.sd.tolist(), abs=1e-5)


async def test_a_round_is_a_generation_of_duel_evolve_without_children() -> None:
    """From equal beliefs both hold the same duels, to the request: here, after two rounds in which all is a tie."""

    def childless(ask: Ask) -> str:
        if ask.role == "generate":
            return "?" if ask.step > 0 else judges_by_quality(ask)
        return "T:" if ask.step < 3 else judges_by_quality(ask)

    evolving, sampling = Scripted(childless), Scripted(childless)
    settings = {"generations": 7, "initial_candidates": 6, "children": 1, "parents": 2, "duels": 5, "retries": 0}
    evolved = await solve(make_method("duel_evolve", **settings, bound_width=2.0), evolving)
    sampled = await solve(best_of(samples=6, rounds=7, bound_width=2.0), sampling)
    judged = [[(a.step, a.index, a.request) for a in m.of("judge") if a.step > 2] for m in (evolving, sampling)]
    assert len(judged[0]) == 50
    assert judged[0] == judged[1]
    for ours, theirs in zip(sampled[3:], evolved[3:], strict=True):
        assert ours.comparisons == theirs.comparisons
        assert [(r.mean, r.sd) for r in ours.candidates] == [(r.mean, r.sd) for r in theirs.candidates[:6]]
        assert ours.best == theirs.best


async def test_zero_rounds_return_the_first_sample_unjudged() -> None:
    model = Scripted(judges_by_quality)
    (step,) = await solve(best_of(rounds=0), model)
    assert not model.of("judge")
    assert step.best is not None
    assert step.best.id == "0.0"


@pytest.mark.parametrize("calls", [1, 4, 7, 16, 25, 37])
async def test_the_budget_ends_it_without_half_a_duel(calls: int) -> None:
    model, meter = Scripted(judges_by_quality), make_meter(calls)
    history = await solve(best_of(), model, meter=meter)
    assert calls - 1 <= len(model.asked) <= calls
    assert len(model.of("judge")) % 2 == 0
    assert meter.exhausted
    assert all(after.comparisons for _, after in pairwise(history))


@pytest.mark.parametrize("limit", ["calls", "tokens"])
@pytest.mark.parametrize("calls", [4, 25, 100, pytest.param(1000, marks=pytest.mark.nightly)])
async def test_a_fifth_of_a_budget_goes_to_responses_and_all_of_the_rest_to_duels(calls: int, limit: str) -> None:
    model = Scripted(judges_by_quality)
    meter = Meter(max_calls=calls) if limit == "calls" else Meter(max_tokens=TOKENS * calls)
    history = await solve(best_of(samples=None, rounds=None), model, meter=meter)
    # Not one more response without a budget's share: the pilot of a token budget, and two, which a duel takes.
    fewest = PILOT_SAMPLES if limit == "tokens" else 2
    assert len(model.of("generate")) == max(fewest, calls // 5)
    assert [ask.index for ask in model.of("generate")] == list(range(max(fewest, calls // 5)))
    assert calls - 1 <= len(model.asked) <= calls + (limit == "tokens")
    assert history[-1].best is not None


async def test_the_tighter_of_two_limits_decides_a_share() -> None:
    model = Scripted(judges_by_quality)
    half = best_of(samples=None, budget_share=0.5)
    await solve(half, model, meter=Meter(max_calls=1000, max_tokens=50 * TOKENS))
    assert len(model.of("generate")) == 25


@pytest.mark.parametrize("limit", [{"max_calls": 31}, {"max_tokens": 31 * TOKENS}])
async def test_by_the_oracle_every_call_of_a_budget_may_be_a_response(limit: dict[str, int]) -> None:
    model = Scripted(judges_by_quality)
    oracle = best_of(samples=None, choose="oracle", budget_share=1.0, batches=4)
    history = await solve(oracle, model, task=Verified(), meter=Meter(**limit))
    assert [ask.index for ask in model.asked] == list(range(31))
    assert {candidate.attempts for candidate in history[-1].candidates} == {1}
    assert len(history) == 4 if "max_calls" in limit else len(history) >= 4


async def test_a_batch_for_which_nothing_is_left_is_no_step() -> None:
    model = Scripted(judges_by_quality)
    oracle = best_of(samples=6, choose="oracle", batches=2)
    assert len(await solve(oracle, model, task=Verified(), meter=Meter(max_calls=3))) == 1
    assert len(model.asked) == 3


@pytest.mark.parametrize("samples", [0, 1])
async def test_fewer_than_two_candidates_have_nobody_to_meet(samples: int) -> None:
    def script(ask: Ask) -> str:
        return "answer 1" if ask.index < samples else "?"

    history = await solve(best_of(samples=3, retries=0), Scripted(script))
    assert len(history) == 1
    assert (history[0].best is not None) is (samples == 1)


async def test_judges_see_the_public_tests() -> None:
    model = Scripted(judges_by_quality)
    await solve(best_of(), model, task=TestedQuiz())
    for ask in model.of("judge"):
        assert [ask.shown[side]["feedback"] for side in "ab"] == [
            f"tests of {ask.shown[side]['answer']}" for side in "ab"
        ]


async def test_a_comparison_carries_both_reasons() -> None:
    def script(ask: Ask) -> str:
        return judges_by_quality(ask) + f"call {ask.index}" if ask.role == "judge" else judges_by_quality(ask)

    history = await solve(best_of(rounds=1), Scripted(script))
    told: list[Comparison] = list(history[1].comparisons)
    assert [duel.reasons for duel in told] == [(f"call {2 * i}", f"call {2 * i + 1}") for i in range(5)]


def says(answers: str) -> Callable[[Ask], str]:
    """Return a model whose samples have these answers: `g` stands for one that passes all public tests."""
    return lambda ask: {"g": "good"}.get(answers[ask.index], answers[ask.index])


@pytest.mark.parametrize(
    ("choose", "answers", "best"),
    [
        ("weighted", "aaaaabbcdefg", "0.0"),  # 5 x 0.5 against 1 x 1.0
        ("weighted", "aggcgaa", "0.1"),  # 3 x 1.0 against 3 x 0.5
        ("best_of_majority", "aaaaabbcdefg", "0.0"),  # all others are rarer than a third
        ("best_of_majority", "aaggbc", "0.2"),  # both are frequent
        ("majority_of_bests", "aaaaabbcdefg", "0.0"),  # m = 3: `good` wins 397 of 1,728 draws
        ("majority_of_bests", "aaaaggg", "0.4"),  # m = 2: 16 of 49 draws are without `good`
    ],
)
async def test_votes_are_weighed_by_public_tests_without_a_call(choose: str, answers: str, best: str) -> None:
    model = Scripted(says(answers))
    method = best_of(samples=len(answers), choose=choose, reward="public_tests", min_share=0.3)
    (step,) = await solve(method, model, task=TestedQuiz())
    assert step.best is not None
    assert step.best.id == best
    assert step.best.mean == (1.0 if step.best.answer == "good" else 0.5)
    assert len(model.asked) == len(answers)
    assert method.last_step == 0
    assert method.information_regime(TestedQuiz) == "public_tests"


async def test_adaptive_draws_may_choose_another_answer() -> None:
    answers = "aaaaabbcdefg"
    rewards = [0.5] * 11 + [1.0]
    m = selection.choose_draws(list(answers), rewards)
    (step,) = await solve(
        best_of(choose="majority_of_bests", reward="public_tests", draws="adaptive"),
        Scripted(says(answers)),
        task=TestedQuiz(),
    )
    chosen = selection.majority_of_bests(list(answers), rewards, m)
    assert step.best is not None
    assert step.best.id == f"0.{chosen}"


async def test_the_posterior_weighs_the_votes_of_all_samples() -> None:
    """Three samples give one answer; the judge prefers another sample to each of them."""

    def script(ask: Ask) -> str:
        if ask.role == "generate":
            return "shared 1" if ask.index in (2, 5, 7) else f"answer {ask.index}"
        return judges_by_quality(ask)

    sizes = {"rounds": 20, "duels": 10, "samples": 9}
    by_duels = await solve(best_of(**sizes), Scripted(script))
    weighted = await solve(best_of(choose="weighted", **sizes), Scripted(script))
    assert by_duels[-1].best is not None
    assert weighted[-1].best is not None
    assert by_duels[-1].comparisons == weighted[-1].comparisons
    assert by_duels[-1].best.answer == "answer 4"  # quality 28
    assert weighted[-1].best.answer == "shared 1"


async def test_a_verifiers_fitness_weighs_votes_too() -> None:
    method = best_of(choose="weighted", reward="verifier", samples=5)
    (step,) = await solve(method, Scripted(says("abbac")), task=Verified())
    assert step.best is not None
    assert (step.best.id, step.best.mean) == ("0.0", 0.5)
    assert method.information_regime(Verified) == "oracle"


def test_votes_need_answers_that_compare_and_rewards_that_the_task_has() -> None:
    assert best_of(choose="weighted").incompatibility(Quiz) is None
    assert "no two texts of task=billsum are the same; set method.choose=duels" in str(
        best_of(choose="weighted").incompatibility(BillSum)
    )
    tested, verified = (best_of(choose="weighted", reward=reward) for reward in ("public_tests", "verifier"))
    assert tested.incompatibility(TestedQuiz) is None
    assert str(tested.incompatibility(Quiz)).endswith("set method.reward=duels")
    assert verified.incompatibility(Verified) is None
    assert str(verified.incompatibility(Quiz)).endswith("set method.reward=duels")
    with pytest.raises(ConfigError, match=r"^method\.reward: expected duels with method\.choose=duels, got verifier; "):
        best_of(reward="verifier")


POINTS = {
    "Merit": {"a": "1", "b": "2", "c": "no idea", "d": "0"},
    "Fault": {"a": "0", "b": "2", "c": "1", "d": "no idea"},
}
"""With weights of 2 and -1: a has (2 x 0.5) / 2, b (2 - 1) / 2; of c and d only one judgment can be read."""


def judges_by_points(ask: Ask) -> str:
    if ask.role == "generate":
        return "abcd"[ask.index]
    points = POINTS[ask.shown["title"]][ask.shown["response"]]
    return f"<score>{points}</score>" if points.isdigit() else points


async def test_criteria_of_a_problem_give_rewards_and_unread_judgments_are_left_out() -> None:
    model = Scripted(judges_by_points)
    (step,) = await solve(best_of(samples=4, choose="rubric", score_attempts=2), model, task=CriteriaQuiz())
    assert [candidate.mean for candidate in step.candidates] == [0.5, 0.5, -0.5, 0.0]
    assert step.best is not None
    assert step.best.answer == "a"
    assert step.extra["unread_scores"] == 2
    # Each response by each criterion, and the two unread ones again.
    assert Counter(ask.attempt for ask in model.of("score")) == {0: 4 * 2, 1: 2}
    assert not model.of("judge")


@pytest.mark.parametrize(("drawn", "best"), [("ccb", "b"), ("ccd", "d")])
async def test_votes_are_weighed_by_a_rubrics_points_that_are_not_below_0(drawn: str, best: str) -> None:
    """A reward of 0 (d) goes before one below it (c), though both give no vote."""

    def script(ask: Ask) -> str:
        return drawn[ask.index] if ask.role == "generate" else judges_by_points(ask)

    method = best_of(samples=3, choose="weighted", reward="rubric", score_attempts=1)
    (step,) = await solve(method, Scripted(script), task=CriteriaQuiz())
    assert step.best is not None
    assert step.best.answer == best


async def test_a_rubric_that_nothing_can_be_read_of_leaves_the_first_response() -> None:
    model = Scripted(lambda ask: "abcd"[ask.index] if ask.role == "generate" else "no idea")
    (step,) = await solve(best_of(samples=2, choose="rubric"), model, task=CriteriaQuiz())
    assert step.best is not None
    assert (step.best.answer, step.best.mean) == ("a", None)
    assert len(model.of("score")) == 2 * 2 * best_of().config.score_attempts


async def test_a_refused_judgment_is_not_asked_for_again() -> None:
    model = Scripted(lambda ask: "abcd"[ask.index] if ask.role == "generate" else None)
    (step,) = await solve(best_of(samples=2, choose="rubric", score_attempts=3), model, task=CriteriaQuiz())
    assert [ask.attempt for ask in model.of("score")] == [0] * 4
    assert step.extra["unread_scores"] == 4


async def test_a_budget_that_ends_among_the_judgments_still_leaves_a_choice() -> None:
    model, meter = Scripted(judges_by_points), make_meter(4 + 3)
    (step,) = await solve(best_of(samples=4, choose="rubric"), model, task=CriteriaQuiz(), meter=meter)
    assert len(model.asked) == 7
    # a has both judgments; b only that of its merit, 2 of 2.
    assert [candidate.mean for candidate in step.candidates] == [0.5, 1.0, None, None]
    assert step.best is not None
    assert step.best.answer == "b"


async def test_a_rubric_needs_criteria_and_says_what_it_knows() -> None:
    class WithoutCriteria(CriteriaQuiz):
        def rubric_items(self, problem: Problem) -> Sequence[WeightedItem]:
            return ()

    method = best_of(choose="rubric")
    with pytest.raises(DataError, match=r"has no criteria of its own.*task\.rubric=COLUMN"):
        await solve(method, Scripted(judges_by_points), task=WithoutCriteria())
    assert "set method.choose=duels" in str(method.incompatibility(Quiz))
    assert method.information_regime(CriteriaQuiz) == "labels"
    assert method.information_regime(Essay) == "problem_only"
    assert method.active_roles == {"score": Role("reward")}
    assert best_of().active_roles == {"judge": Role("judge")}


def test_a_run_chosen_by_a_rubric_resumes_and_replays_to_the_byte(tmp_path: Path) -> None:
    given = [{"description": "It names the year.", "weight": 2}, {"description": "It is rude.", "weight": -1}]
    rows = [{"question": f"When was {n}?", "answer": str(n), "rubric": given} for n in range(3)]
    (file := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = ("task=rows", f"task.data={file}", "task.source=auto", "task.rubric=rubric")
    words = (*task, "method=best_of_n", "method.samples=4", "method.choose=rubric", "engine.malformed=0")
    words = (*words, "engine=simulated", "evorun.progress=off")
    whole = simulated_run(tmp_path / "whole", *words)
    assert whole.outcome == COMPLETED
    assert Counter(key.split("|")[2] for key in whole.calls()) == {"generate": 3 * 4, "score": 3 * 4 * len(given)}
    assert carry_out(check(composed(*words)), tmp_path / "broken", breaks_after=17).outcome != COMPLETED
    assert carry_out(check(composed(*words)), tmp_path / "broken").files() == whole.files()
