"""Advice on islands: when it is asked for, who gets it, what it costs, and worlds in which it helps and harms."""

from collections import Counter
from pathlib import Path

import pytest
from test_islands import Values, islands

from building import composed, make_budget
from construction_worlds import pack_circles, sum_of_radii
from evorun.errors import ConfigError
from evorun.runner.estimates import count_calls
from evorun.runner.settings import check
from evorun.tasks.advice import read_paradigms, read_recommendations
from evorun.testing.task_parsers import ODD_TEXTS
from method_fixture import Ask, Scripted, drive, solve

# --- paradigms ---


def stuck(ask: Ask) -> str:
    """Return paradigms, and programs that are no better than the seed; the first paradigm of generation 4 helps."""
    if ask.role == "paradigm":
        return "?" if ask.step == 6 and ask.attempt < 2 else "\n".join(f"{name}{ask.step}" for name in "abcd")
    if ask.shown["paradigm"] == "a4":
        return f"x = {ask.step + ask.index} {ask.index}"
    return f"x = 0.5 {ask.step} {ask.index}"


async def test_paradigms_serve_some_changes_to_the_best_program_where_the_search_is_stuck() -> None:
    method = islands(policy="adaevolve", generations=9, children=4, paradigm_window=4, retries=2, paradigm_memory=5)
    model = Scripted(stuck)
    history = await solve(method, model, task=Values())
    proposals = model.of("paradigm")
    # Four children fill the window. Three approaches serve twice each, so a step and a half; and the two of "a4", both
    # in generation 4, are half of the window of generation 5 and none of that of generation 6.
    assert [(ask.step, ask.attempt) for ask in proposals] == [(2, 0), (4, 0), (6, 0), (6, 1), (6, 2), (8, 0)]
    assert method.config.max_paradigm_calls(9) == 4
    assert [method.config.max_paradigm_calls(generations) for generations in range(4)] == [0, 0, 1, 1]
    taken = [
        (ask.step, ask.index, ask.shown["paradigm"])
        for ask in model.of("generate")
        if ask.shown["paradigm"] is not None
    ]
    assert taken[:6] == [(2, 0, "a2"), (2, 1, "b2"), (2, 2, "c2"), (2, 3, "a2"), (3, 0, "b2"), (3, 1, "c2")]
    assert Counter(title for _, _, title in taken) == {f"{name}{step}": 2 for step in (2, 4, 6, 8) for name in "abc"}
    assert [ask.shown["best"] for ask in proposals[:3]] == ["x = 1", "x = 1", "x = 7 3"]
    assert proposals[1].shown["tried"] == [["a2", 0], ["b2", 0], ["c2", 0]]
    assert proposals[2].shown["tried"] == [["b2", 0], ["c2", 0], ["a4", 6], ["b4", 6], ["c4", 6]]
    parents = {ask.shown["parent"] for ask in model.of("generate") if ask.shown["paradigm"] is not None}
    assert parents == {"x = 1", "x = 7 3"}
    assert [(step.extra["paradigms"], step.extra["unread_paradigms"]) for step in history[1:]] == [
        *((0, 0), (3, 0), (0, 0), (3, 0), (0, 0), (3, 2), (0, 0), (3, 0), (0, 0))
    ]
    advised = {candidate.id: candidate.reflection for candidate in history[-1].candidates}
    assert (advised["4.3"], advised["1.0"]) == ("a4: a4", "")


async def test_a_search_that_improves_asks_for_no_paradigms() -> None:
    for below, asks in ((0.25, False), (0.26, True)):  # one child in four is the best so far
        model = Scripted(lambda ask: f"x = {ask.step * (ask.index == 0)}.5 {ask.index}")
        method = islands(policy="adaevolve", children=4, paradigm_window=4, paradigm_below=below)
        await solve(method, model, task=Values())
        assert bool(model.of("paradigm")) == asks


async def test_the_budget_pays_for_paradigms_and_for_the_children_that_use_them(tmp_path: Path) -> None:
    method = islands(policy="adaevolve", generations=None, children=4, paradigm_window=4)
    driven = await drive(
        method, tmp_path, stuck, task=Values(), problems=1, budget=make_budget(calls_per_problem=4 + 1 + 8 + 4)
    )
    # The budget has no room for the second request with the children after it, only for the children.
    assert driven.cost() == {"generate": 16, "paradigm": 1}


def test_a_task_without_prompts_for_paradigms_is_refused() -> None:
    class Bare(Values):
        paradigms_prompt = None  # type: ignore[assignment]

    method = islands(policy="adaevolve")
    assert method.incompatibility(Values) is None
    assert "set method.paradigms=0" in (method.incompatibility(Bare) or "")
    assert islands(policy="shinka").incompatibility(Bare) is None


def test_paradigms_are_read_from_json_and_hostile_texts_are_none() -> None:
    entry = '{"title": "Rows\\n# Instructions", "plan": "Use <|im_end|> rows.", "target": 3}'
    (read,) = read_paradigms(f'So: {{"paradigms": [{entry}, {{"title": "No plan"}}, "text", null]}}')
    assert (read.title, read.target, read.pitfalls) == ("Rows # Instructions", "", "")
    assert "<|im_end|>" not in read.plan
    for text in ("", '{"paradigms": 3}', '{"paradigms": []}', *ODD_TEXTS):
        assert read_paradigms(text) == []


# --- the scratchpad ---


def noted(ask: Ask) -> str:
    """Return summaries, insights, recommendations and programs; the insights of generation 6 are empty."""
    match ask.role:
        case "summary":
            return "" if ask.index == 1 else f"sum {ask.step}.{ask.index}"
        case "insights":
            return " " if ask.step == 6 else f"insights {ask.step}"
        case "recommend":
            return f"first {ask.step}\nsecond {ask.step}\nthird {ask.step}"
    return f"x = 0.5 {ask.step} {ask.index}"


async def test_each_program_is_summed_up_once_and_children_see_one_of_the_recommendations() -> None:
    model = Scripted(noted)
    method = islands(
        policy="shinka", generations=8, children=4, notes_every=5, recommendations=2, diff_share=0.6, cross_share=0.3
    )
    history = await solve(method, model, task=Values())
    # The seed and four children are due in generation 2; from then on four are due after two generations.
    assert [(ask.step, ask.shown["count"]) for ask in model.of("recommend")] == [(2, 2), (4, 2), (8, 2)]
    assert [ask.step for ask in model.of("insights")] == [2, 4, 6, 8]
    summed_up = [ask.shown["program"] for ask in model.of("summary")]
    assert len(summed_up) == len(set(summed_up)) == method.config.max_note_calls(8)[0]
    counts = [method.config.max_note_calls(generations) for generations in range(5)]
    assert counts == [(0, 0), (0, 0), (5, 1), (5, 1), (13, 2)]
    (first, second, *_) = model.of("insights")
    assert first.shown["summaries"][:2] == [["x = 1", "sum 2.0"], ["x = 0.5 1 1", "sum 2.2"]]  # without an empty one
    assert (first.shown["insights"], second.shown["insights"]) == ("", "insights 2")
    assert model.of("recommend")[1].shown["earlier"] == ["first 2", "second 2"]
    seen = {(ask.step, ask.index): ask.shown["recommendation"] for ask in model.of("generate")}
    crossed = {(ask.step, ask.index) for ask in model.of("generate") if ask.shown["ask"] == "cross"}
    assert crossed
    assert {recommendation for place, recommendation in seen.items() if place in crossed or place[0] == 1} == {""}
    shown = {step: {seen[step, i] for i in range(4) if (step, i) not in crossed} for step in range(2, 9)}
    for step, notes in ((2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 4), (8, 8)):  # none came of generation 6
        assert shown[step] <= {f"first {notes}", f"second {notes}"}
    assert set.union(*shown.values()) >= {"first 4", "second 4"}
    assert [(step.extra["recommendations"], step.extra["unread_notes"]) for step in history[1:]] == [
        *((0, 0), (2, 1), (0, 0), (2, 1), (0, 0), (0, 2), (0, 0), (2, 1))
    ]
    advised = {candidate.id: candidate.reflection for candidate in history[-1].candidates}
    assert advised["8.0"] == seen[8, 0]


async def test_the_budget_pays_for_notes_and_for_the_children_that_see_them(tmp_path: Path) -> None:
    method = islands(policy="shinka", generations=None, children=4, notes_every=5)
    budget = make_budget(calls_per_problem=4 + (5 + 2 + 4) + 4 + (8 + 2 + 4) - 1)
    driven = await drive(method, tmp_path, noted, task=Values(), problems=1, budget=budget)
    # One call more would have paid for a second time.
    assert driven.cost() == {"generate": 24, "summary": 5, "insights": 1, "recommend": 1}


def test_recommendations_are_the_items_of_a_numbered_list() -> None:
    text = (
        "<think>1. no</think>Notes:\n1. Use rows\n   of circles.\n\n"
        "2) Shrink <|im_end|> them.\n2. Use rows of circles.\n3."
    )
    assert read_recommendations(text) == ["Use rows of circles.", "Shrink < |im_end|> them."]
    for text in ("", "a\nb", "1.\n2.", *ODD_TEXTS):
        assert all(item.strip() for item in read_recommendations(text))


# --- cost and worlds ---

ADVISED = ("method=islands", "method.children=4", "budget.calls_per_problem=100")


def test_estimates_count_the_calls_for_advice() -> None:
    words = ("task=circle_packing", "engine=simulated", "task.limit=1", "method=islands", "method.policy=adaevolve")
    config = check(composed(*words, "method.generations=9", "method.children=4", "reflection=gpt_oss_120b")).raw
    assert [(part.role, part.model, part.calls) for part in count_calls(config)] == [
        ("generate", config["model"]["name"], 36),
        ("paradigm", "gpt_oss_120b", 3),  # generations 4, 6 and 8
    ]
    words = (*words, "method.policy=shinka", "method.generations=3")
    assert [(part.role, part.calls) for part in count_calls(composed(*words))] == [
        *(("generate", 24), ("summary", 17), ("insights", 1), ("recommend", 1))
    ]
    with pytest.raises(ConfigError, match="reflection: has no effect"):
        check(composed(*words, "method.notes_every=0", "reflection=gpt_oss_120b"))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("policy", "off", "gain"), [("adaevolve", "method.paradigms=0", 0.2), ("shinka", "method.notes_every=0", 0.4)]
)
def test_advice_helps_or_harms_as_what_it_says(tmp_path: Path, policy: str, off: str, gain: float) -> None:
    """All advice helps or all of it harms, by more than the engine's default gain, so that few runs show it.

    The calls come out of the budget: there are fewer programs with advice than without it. Notes take half of them, so
    that a gain of .2 hardly pays for them (docs/constructions.md).
    """
    arm = (*ADVISED, f"method.policy={policy}", f"engine.principle_gain={gain}")
    runs = {
        name: pack_circles(tmp_path / name, *arm, *words)
        for name, words in {
            "without": (off,),
            "helpful": ("engine.helpful_principles=1", "engine.harmful_principles=0"),
            "harmful": ("engine.helpful_principles=0", "engine.harmful_principles=1"),
        }.items()
    }
    radii = {name: sum_of_radii(run) for name, run in runs.items()}
    assert radii["helpful"] > radii["without"] + 0.02, radii
    assert radii["harmful"] < radii["without"], radii
    costs = {name: run.json("results.json")["cost"] for name, run in runs.items()}
    assert all(95 <= cost["total"]["calls"] <= 100 for cost in costs.values())
    assert costs["harmful"]["generate"]["calls"] < costs["without"]["generate"]["calls"] - 5
