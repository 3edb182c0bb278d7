"""Calls that ended problems have left go to the others: the same sum, the same order, whatever was slow or stopped."""

from pathlib import Path

import pytest

from building import composed, make_budget, make_method
from evorun.errors import ConfigError
from evorun.methods.duels.best_of_n import BestOfN
from evorun.runner.settings import check
from evorun.runs.budget import Meter, Usage, redistribute_calls
from evorun.testing.runs import carry_out
from method_fixture import Ask, Driven, drive

HARD = ("p2", "p4")


def clear_on_easy_problems(ask: Ask) -> str:
    """Agree on easy problems; on hard ones call the first of two shown the better one, whichever it is."""
    if ask.role == "generate":
        return f"answer {ask.index}" if ask.name in HARD or ask.index > 3 else "right"
    if ask.name in HARD:
        return "A:"
    first, second = (ask.shown[side]["answer"] == "right" for side in "ab")
    return "T:" if first == second else "A:" if first else "B:"


def best_of_n(**changes: object) -> BestOfN:
    sizes = {"samples": 6, "rounds": None, "duels": 3, "orders": 2, "prior_sd": 3.0, "retries": 0}
    made: BestOfN = make_method("best_of_n", **sizes, stop_probability=0.9, **changes)
    return made


async def play(folder: Path, *, redistribute: bool = True, concurrency: int = 8) -> Driven:
    budget = make_budget(calls_per_problem=90, redistribute=redistribute)
    script = clear_on_easy_problems
    return await drive(best_of_n(), folder, script, problems=6, budget=budget, concurrency=concurrency)


def calls_by_problem(driven: Driven) -> dict[str, int]:
    return {
        record["problem"]: sum(spent["calls"] for spent in record["cost"].values())
        for record in driven.records("predictions")
    }


async def test_saved_calls_go_to_the_problems_that_still_search(tmp_path: Path) -> None:
    kept = calls_by_problem(await play(tmp_path / "kept", redistribute=False))
    moved = calls_by_problem(await play(tmp_path / "moved"))
    easy = {problem: calls for problem, calls in kept.items() if problem not in HARD}
    assert all(calls < 60 for calls in easy.values())
    assert {problem: moved[problem] for problem in easy} == easy
    assert [kept[problem] for problem in HARD] == [90, 90]
    saved = sum(90 - calls for calls in easy.values())
    # Equal parts of what four problems saved, but for a call that is half a duel in two orders.
    assert [moved[problem] for problem in HARD] == [(90 + (saved + 1) // 2) // 2 * 2, (90 + saved // 2) // 2 * 2]


async def test_the_order_in_which_problems_end_changes_nothing(tmp_path: Path) -> None:
    one_by_one, together, some = [await play(tmp_path / str(number), concurrency=number) for number in (1, 8, 3)]
    assert one_by_one.files() == together.files() == some.files()


@pytest.mark.nightly
def test_a_killed_run_redistributes_the_same_calls_again(tmp_path: Path) -> None:
    words = (
        *("engine=simulated", "evorun.progress=off", "task=mathbench", "task.source=sample", "task.limit=6"),
        *("engine.skill=0.5", "method=best_of_n", "method.samples=5", "method.rounds=null", "method.duels=4"),
        *("method.stop_probability=0.9", "budget.calls=300", "budget.redistribute=true"),
    )
    whole = carry_out(check(composed(*words)), tmp_path / "whole")
    calls = [sum(spent["calls"] for spent in record["cost"].values()) for record in whole.records("predictions")]
    assert max(calls) > 50
    assert sum(calls) <= 300
    # What was given is being spent by then.
    broken = carry_out(check(composed(*words)), tmp_path / "again", breaks_after=sum(calls) - 20)
    assert broken.outcome.status == "failed"
    again = carry_out(check(composed(*words)), tmp_path / "again")
    assert again.files() == whole.files()
    assert len(again.asked) == 20


def test_meters_exchange_calls_without_loss() -> None:
    ended, searching = [Meter(10), Meter(7)], [Meter(5), Meter(5), Meter(5)]
    ended[0].by_role["generate"] = Usage(calls=4)
    assert redistribute_calls(ended, searching) == 13
    assert [meter.max_calls for meter in (*ended, *searching)] == [4, 0, 10, 9, 9]
    assert redistribute_calls(ended, searching) == 0
    assert redistribute_calls(searching, []) == 0
    assert [meter.max_calls for meter in searching] == [10, 9, 9]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("method=duel_evolve",), "expected a limit on calls"),
        (("method=gepa", "budget.calls=600"), "works on all problems together"),
    ],
)
def test_what_could_not_be_redistributed_is_refused(words: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"budget.redistribute: .*{complaint}"):
        check(composed("engine=simulated", "task=arithmetic", "budget.redistribute=true", *words))
