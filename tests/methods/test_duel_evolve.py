"""Duel-Evolve with a scripted model: phases, retries, budget, and what it reports."""

import json
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from building import load_task, make_config, make_context, make_meter, make_method
from evorun.errors import ConfigError
from evorun.methods.duels import arena
from evorun.models import Completion, Reply, Request
from evorun.rollouts.calls import Caller
from evorun.runs.budget import Meter
from evorun.runs.candidates import Candidate, Step

LOADED = load_task("mathbench", source="sample")
PROBLEM = LOADED.problems[0]
Script = Callable[[str, Request], str | None]


class ScriptedModel(Caller):
    """Says what a function of key and request says, and keeps the requests; None rejects."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[tuple[str, Request]] = []

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        self.asked.append((key, request))
        text = self.script(key, request)
        if text is None:
            rejected = Completion(text="", finish_reason="rejected", tokens=0)
            return Reply(completions=(rejected,), prompt_tokens=0, seconds=0.0, error="prompt too long")
        done = Completion(text=text, finish_reason="stop", tokens=3)
        return Reply(completions=(done,), prompt_tokens=5, seconds=0.0)

    def roles(self) -> list[tuple[str, str, str, str]]:
        """Step, role, index and attempt of each call, in order."""
        return [tuple(key.rsplit("|", 4)[1:]) for key, _ in self.asked]  # type: ignore[misc]


def answer(letter: str) -> str:
    return json.dumps({"reasoning": f"It is {letter}.", "solution": letter})


def verdict(letter: str) -> str:
    return json.dumps({"solution": letter, "reasoning": "Because."})


def prefers(letter: str) -> Script:
    """A model that answers C, then B, then A ..., and prefers answers with the given letter wherever they are shown."""

    def script(key: str, request: Request) -> str:
        _, role, index, _ = key.rsplit("|", 4)[1:]
        if role == "generate":
            return answer("ABCD"[int(index) % 4])
        first, second = request.hints["answers"]
        return verdict("A" if first == letter != second else "B" if second == letter != first else "T")

    return script


async def solve(model: ScriptedModel, meter: Meter | None = None, **config: object) -> list[Step]:
    small = {"generations": 2, "initial_candidates": 4, "children": 4, "parents": 3, "duels": 5, **config}
    method = make_method("duel_evolve", **small)
    ctx = make_context(LOADED.task, PROBLEM, model, meter=meter)
    return [step async for step in method.solve(ctx)]


async def test_the_preferred_answer_wins() -> None:
    for letter in "ABCD":
        steps = await solve(ScriptedModel(prefers(letter)))
        best = steps[-1].best
        assert best is not None
        assert best.answer == letter
        assert best.mean == max(rated.mean for rated in steps[-1].candidates)


async def test_phases_and_counts() -> None:
    model = ScriptedModel(prefers("A"))
    steps = await solve(model)
    assert [step.step for step in steps] == [0, 1, 2]
    assert [len(step.candidates) for step in steps] == [4, 8, 12]
    assert all(len(step.comparisons) == 5 for step in steps)
    expected = [(str(s), "generate", str(i), "0") for s in range(3) for i in range(4)]
    assert [call for call in model.roles() if call[1] == "generate"] == expected
    judged = [call for call in model.roles() if call[1] == "judge"]
    assert judged == [(str(s), "judge", str(i), "0") for s in range(3) for i in range(10)]


async def test_each_pair_is_judged_in_both_orders() -> None:
    model = ScriptedModel(prefers("A"))
    await solve(model, generations=0)
    judged = [request.messages[-1]["content"] for key, request in model.asked if "|judge|" in key]
    for shown, swapped in zip(judged[::2], judged[1::2], strict=True):
        first = shown[shown.index("# Candidate A") : shown.index("# Candidate B")]
        assert first.replace("# Candidate A", "").strip() in swapped[swapped.index("# Candidate B") :]


async def test_parents_are_shown_with_their_posterior_means() -> None:
    model = ScriptedModel(prefers("A"))
    steps = await solve(model, generations=1)
    means = {rated.id: rated.mean for rated in steps[0].candidates}
    children = [rated for rated in steps[1].candidates if rated.generation == 1]
    prompts = [request.messages[-1]["content"] for key, request in model.asked if "|1|generate|" in key]
    for child, prompt in zip(children, prompts, strict=True):
        assert len(child.parents) == 3
        assert list(child.parents) == sorted(child.parents, key=lambda p: -means[p])
        assert all(f"Score: {means[parent]:.3f}" in prompt for parent in child.parents)
    assert len({child.parents for child in children}) == 1


async def test_each_child_may_have_its_own_parents() -> None:
    steps = await solve(ScriptedModel(prefers("A")), shared_parents=False, initial_candidates=8, children=8)
    children = [rated for rated in steps[1].candidates if rated.generation == 1]
    assert len({child.parents for child in children}) > 1


async def test_every_newcomer_duels() -> None:
    steps = await solve(ScriptedModel(prefers("A")), duels=4)
    for step in steps[1:]:
        dueled = {side for duel in step.comparisons for side in (duel.first, duel.second)}
        alive = {r.id for r in steps[step.step - 1].candidates}
        newcomers = {r.id for r in step.candidates} - alive
        assert newcomers <= dueled


async def test_an_unparsable_text_is_retried_once_with_another_seed() -> None:
    good = prefers("A")

    def script(key: str, request: Request) -> str | None:
        _, role, index, attempt = key.rsplit("|", 4)[1:]
        return "no idea" if (role, index, attempt) == ("generate", "1", "0") else good(key, request)

    model = ScriptedModel(script)
    (step,) = await solve(model, generations=0)
    first, second = [request for key, request in model.asked if "|generate|1|" in key]
    assert first.messages == second.messages
    assert first.seed != second.seed
    assert sorted(rated.attempts for rated in step.candidates) == [1, 1, 1, 2]
    assert step.extra["unparsable_texts"] == 1


async def test_a_candidate_that_never_parses_is_kept_aside() -> None:
    good = prefers("A")

    def script(key: str, request: Request) -> str | None:
        _, role, index, _ = key.rsplit("|", 4)[1:]
        return "nonsense" if role == "generate" and index == "3" else good(key, request)

    (step,) = await solve(ScriptedModel(script), generations=0)
    lost = [rated for rated in step.candidates if rated.error is not None]
    assert len(lost) == 1
    assert not lost[0].survivor
    assert lost[0].attempts == 2
    assert all(lost[0].id not in (duel.first, duel.second) for duel in step.comparisons)


async def test_without_any_candidate_it_starts_again_from_the_problem() -> None:
    good = prefers("A")

    def script(key: str, request: Request) -> str | None:
        return good(key, request) if "|1|generate|" in key or "|judge|" in key else "nonsense"

    model = ScriptedModel(script)
    steps = await solve(model, generations=1)
    assert steps[0].best is None
    assert steps[1].best is not None
    assert {r.operator for r in steps[1].candidates} == {"init"}


async def test_rejected_requests_are_data() -> None:
    (step,) = await solve(ScriptedModel(lambda key, request: None), generations=0)
    assert step.best is None
    assert all("prompt too long" in (r.error or "") for r in step.candidates)


async def test_a_judge_that_talks_nonsense_decides_nothing() -> None:
    good = prefers("A")
    steps = await solve(ScriptedModel(lambda k, r: "???" if "|judge|" in k else good(k, r)))
    duels = [duel for step in steps for duel in step.comparisons]
    assert {duel.verdicts for duel in duels} == {("invalid", "invalid")}
    assert all(duel.outcome is None for duel in duels)
    assert {rated.mean for rated in steps[-1].candidates} == {0.0}


@pytest.mark.parametrize("calls", [1, 3, 4, 7, 14, 15, 20])
async def test_the_budget_is_never_exceeded_and_half_duels_are_not_bought(calls: int) -> None:
    model = ScriptedModel(prefers("A"))
    steps = await solve(model, make_meter(calls))
    assert len(model.asked) <= calls
    assert sum(1 for call in model.roles() if call[1] == "judge") % 2 == 0
    assert len(model.asked) >= calls - 1
    assert steps
    # a step that could do nothing is not reported
    assert all(step.comparisons or len(step.candidates) > len(before.candidates) for before, step in pairwise(steps))


async def test_a_last_step_whose_responses_are_all_unparsed_is_reported() -> None:
    good = prefers("A")

    def script(key: str, request: Request) -> str | None:
        return "nonsense" if "|1|generate|" in key else good(key, request)

    # 4 responses and 5 duels in both orders, then 4 responses and no call for a duel or a retry
    steps = await solve(ScriptedModel(script), make_meter(18))
    assert [len(step.candidates) for step in steps] == [4, 8]
    assert (steps[1].pool, steps[1].comparisons) == (4, [])


async def test_the_same_seed_asks_the_same_questions() -> None:
    def asked(model: ScriptedModel) -> Sequence[tuple[str, Request]]:
        return sorted(model.asked, key=lambda pair: pair[0])

    one, two = ScriptedModel(prefers("B")), ScriptedModel(prefers("B"))
    await solve(one)
    await solve(two)
    assert asked(one) == asked(two)
    assert len({request.seed for _, request in one.asked}) == len(one.asked)


def test_values_out_of_range_are_refused() -> None:
    for key, value in {"children": 0, "prior_sd": 0.0, "recent_share": 1.5, "max_pool": 1, "top_p": 0.0}.items():
        with pytest.raises(ConfigError, match=rf"method\.{key}"):
            make_config("method", "duel_evolve", **{key: value})
    for key in ("duel_choice", "parent_choice", "ties", "rating", "pool_rank"):
        with pytest.raises(ConfigError, match=rf"method\.{key}: expected one of .*, got 'best'"):
            make_config("method", "duel_evolve", **{key: "best"})
    with pytest.raises(ConfigError, match=r"method\.orders: expected a number in \[1, 2\], got 3"):
        make_config("method", "duel_evolve", orders=3)


def by_quality(key: str, request: Request) -> str:
    """Later candidates are better, and the judge sees it."""
    step, role, index, _ = key.rsplit("|", 4)[1:]
    if role == "generate":
        return json.dumps({"reasoning": f"quality {int(step) * 10 + int(index)}", "solution": "A"})
    first, second = (int(part.split()[0]) for part in request.messages[-1]["content"].split("quality ")[1:])
    return verdict("A" if first > second else "B")


@pytest.mark.parametrize("sizes", [{"children": 4, "duels": 3}, {"children": 1, "duels": 3, "initial_candidates": 20}])
async def test_who_finds_no_duel_waits_for_a_turn(sizes: dict[str, int]) -> None:
    """However many there are, those that came first duel first, and no bound rules them out before."""
    steps = await solve(ScriptedModel(by_quality), generations=12, bound_width=0.3, **{"max_pool": 8, **sizes})
    waiting: list[str] = []
    for step in steps:
        waiting += [rated.id for rated in step.candidates if rated.generation == step.step]
        dueled = {side for duel in step.comparisons for side in (duel.first, duel.second)}
        assert set(waiting[:3]) <= dueled
        waiting = [name for name in waiting if name not in dueled]
    assert bool(waiting) is (sizes["children"] > 3)


async def test_the_dropped_are_counted() -> None:
    steps = await solve(ScriptedModel(by_quality), generations=8, bound_width=0.5, max_pool=6)
    for step in steps:
        assert step.pool == sum(rated.survivor for rated in step.candidates)
        assert step.pool + step.extra["pruned"] + step.extra["capped"] == len(step.candidates)
    assert {steps[-1].extra["pruned"] > 0, steps[-1].extra["capped"] > 0} == {True}


async def test_a_pair_may_be_judged_once_in_random_order() -> None:
    model = ScriptedModel(by_quality)
    steps = await solve(model, orders=1, generations=8)
    duels = [duel for step in steps for duel in step.comparisons]
    assert len(duels) == len([call for call in model.roles() if call[1] == "judge"]) == 9 * 5
    outcome = {("A",): "first", ("B",): "second"}
    assert all(duel.outcome == outcome[duel.verdicts] and len(duel.reasons) == 1 for duel in duels)  # type: ignore[index]
    quality = {rated.id: int(rated.reasoning.split()[-1]) for rated in steps[-1].candidates}
    assert all((duel.outcome == "first") is (quality[duel.first] > quality[duel.second]) for duel in duels)
    shown_first = sum(quality[duel.first] > quality[duel.second] for duel in duels)
    assert 9 < shown_first < 36
    # a budget that is odd is spent whole
    limited = ScriptedModel(by_quality)
    await solve(limited, make_meter(7), orders=1)
    assert [call[1] for call in limited.roles()].count("judge") == 3


@pytest.mark.parametrize("judge", ["sharp", "always ties"])
async def test_newcomers_duel_however_far_ahead_the_front_runner_is(judge: str) -> None:
    """Section 2.3.3: new arrivals are always evaluated, though the prior's upper bound would rule them out."""

    def script(key: str, request: Request) -> str:
        return verdict("T") if judge == "always ties" and "|judge|" in key else by_quality(key, request)

    steps = await solve(ScriptedModel(script), generations=25, duels=12, max_pool=20)
    for step in steps:
        dueled = {side for duel in step.comparisons for side in (duel.first, duel.second)}
        newcomers = {r.id for r in step.candidates if r.generation == step.step}
        assert newcomers <= dueled
        assert sum(rated.survivor for rated in step.candidates) <= 20
    best = steps[-1].best
    assert best is not None
    if judge == "sharp":
        # it has gone on improving: the answer is one of the last generations, not of the first ones
        assert best.generation >= 20


async def test_of_each_step_only_the_best_candidate_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # all of them, a step, would make a run's work grow with the square of its length
    made: list[str] = []

    def counted(one: Candidate, **changes: Any) -> Candidate:
        made.append(one.id)
        return replace(one, **changes)

    monkeypatch.setattr(arena, "replace", counted)
    steps = await solve(ScriptedModel(prefers("B")), generations=9)
    assert len(steps) == 10
    assert made == [step.best.id for step in steps if step.best is not None]


async def test_texts_of_candidates_that_left_the_pool_are_not_in_memory() -> None:
    def script(key: str, request: Request) -> str:
        said = by_quality(key, request)
        return said.replace('", "solution"', f' {"x" * 20_000}", "solution"') if "|generate|" in key else said

    method = make_method("duel_evolve", generations=14, initial_candidates=6, children=6, duels=8, max_pool=6)
    model = ScriptedModel(script)
    held: list[int] = []
    last: Step | None = None
    tracemalloc.start()
    try:
        async for step in method.solve(make_context(LOADED.task, PROBLEM, model)):
            model.asked.clear()
            held.append(tracemalloc.get_traced_memory()[0])
            last = step
    finally:
        tracemalloc.stop()
    # 6 texts a generation, each as text and as reasoning: 10 generations would be 2.4 MB
    assert held[-1] - held[4] < 1_000_000
    assert last is not None
    assert [(one.id, len(one.text) > 20_000) for one in last.candidates] == [
        (f"{step}.{index}", True) for step in range(15) for index in range(6)
    ]
