"""GEPA through its own package, with a scripted model under it."""

import asyncio
import gc
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from building import make_budget, make_driver, make_method
from evorun.errors import ConfigError, EngineError, RunDirectoryError
from evorun.methods.context import RunContext
from evorun.methods.gepa.gepa import Gepa
from evorun.models import Message, Reply, Request
from evorun.runs.candidates import Response
from evorun.runs.directory import RunDirectory
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, Problem, Tools
from method_fixture import (
    SEED_INSTRUCTION,
    TOKENS,
    Ask,
    Driven,
    Quiz,
    RightIsRight,
    Script,
    Scripted,
    TestedQuiz,
    drive,
    quiz,
)

BETTER = "A better prompt."


def gepa(**config: object) -> Gepa:
    return make_method("gepa", **{"generations": 4, "minibatch": 2, **config})


def learns(ask: Ask) -> str:
    """A model that is right, or good, under the better prompt only, and finds that prompt at once."""
    if ask.role == "reflect":
        return f"I would write:\n```\n{BETTER}\n```"
    return ("right" if ask.name == "*" or ask.role == "answer" else "good") if ask.instruction == BETTER else "wrong"


def never_learns(ask: Ask) -> str:
    return f"```\nPrompt {ask.step}.\n```" if ask.role == "reflect" else "wrong"


def counted(driven: Driven) -> Counter[str]:
    return Counter(ask.role for ask in driven.model.asked)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.is_alive()}


@pytest.fixture
def metric_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """GEPA's own count of metric calls after each run."""
    import gepa.api

    counts: list[int] = []
    original = gepa.api.optimize

    def optimize(**arguments: Any) -> Any:
        result = original(**arguments)
        counts.append(result.total_metric_calls)
        return result

    monkeypatch.setattr(gepa.api, "optimize", optimize)
    return counts


# --- separate halves of the validation split, with labels ---


async def test_a_better_prompt_wins_and_the_problems_are_answered_under_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driven = await drive(gepa(), tmp_path, learns)
    assert "could not score" not in caplog.text
    steps = driven.records("steps")
    assert [s["correct"] for s in steps if s["problem"] == "p0"] == [False, True, True, True, True]
    assert [s["extra"]["validation_score"] for s in steps if s["problem"] == "p0"] == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert all(p["correct"] and p["stop"] == "generations" for p in driven.records("predictions"))
    answered = [(ask.step, ask.instruction) for ask in driven.model.of("answer")]
    assert answered == [(0, SEED_INSTRUCTION)] * 3 + [(1, BETTER)] * 3
    assert driven.artifact("prompts.json") == [
        {"prompt": BETTER, "score": 1.0},
        {"prompt": SEED_INSTRUCTION, "score": 0.0},
    ]


async def test_a_reflection_may_think_first(tmp_path: Path) -> None:
    def thinks(ask: Ask) -> str:
        return ("<think>\n```\nA draft.\n```\n</think>\n" if ask.role == "reflect" else "") + learns(ask)

    driven = await drive(gepa(generations=1), tmp_path, thinks)
    assert driven.artifact("prompts.json")[0] == {"prompt": BETTER, "score": 1.0}


async def test_prompts_are_reflected_on_and_chosen_by_disjoint_halves(tmp_path: Path) -> None:
    driven = await drive(gepa(train_share=0.25), tmp_path, never_learns)
    batches: dict[int, list[str]] = {}
    for ask in driven.model.of("evaluate"):
        batches.setdefault(ask.step, []).append(str(ask.shown["problem"]))
    chosen_by = set(batches.pop(0))
    reflected_on = {name for batch in batches.values() for name in batch}
    assert len(chosen_by) == 6
    assert len(reflected_on) == 2
    assert not chosen_by & reflected_on
    assert chosen_by | reflected_on == {f"v{i}" for i in range(8)}
    # the run's own problems are only ever answered
    assert {ask.name for ask in driven.model.of("answer")} == {"p0", "p1", "p2"}
    assert {ask.name for ask in driven.model.asked} == {"*", "p0", "p1", "p2"}


async def test_reflection_sees_question_response_and_label(tmp_path: Path) -> None:
    driven = await drive(gepa(generations=1), tmp_path, never_learns)
    (reflection,) = driven.model.of("reflect")
    text = str(reflection.shown["text"])
    seen = [ask.shown["problem"] for ask in driven.model.of("evaluate") if ask.step == 1]
    assert len(seen) == 2
    assert all(f"record of {name}: wrong, known: right" in text for name in seen)
    assert all(f'"problem": "{name}"' in text for name in seen)
    assert SEED_INSTRUCTION in text


async def test_a_model_of_its_own_reflects_and_nothing_else(tmp_path: Path) -> None:
    reflects = Scripted(learns)
    driven = await drive(gepa(), tmp_path, learns, others={"reflection": reflects})
    assert {ask.role for ask in reflects.asked} == {"reflect"}
    assert {ask.role for ask in driven.model.asked} == {"evaluate", "answer"}
    assert driven.cost() == dict(counted(driven) + Counter(ask.role for ask in reflects.asked))


async def test_the_next_prompt_is_chosen_as_the_setting_says(tmp_path: Path) -> None:
    """The seed is right on one problem that chooses, prompt 1 on the others; no later one is any good."""
    probe = await drive(gepa(generations=0), tmp_path / "probe", never_learns)
    chosen_by = [ask.shown["problem"] for ask in probe.model.of("evaluate")]

    def script(ask: Ask) -> str:
        if ask.role != "evaluate":
            return f"```\nPrompt {ask.step + 1}.\n```"
        first, seed = ask.instruction == "Prompt 1.", ask.instruction == SEED_INSTRUCTION
        if ask.shown["problem"] in chosen_by:
            right = seed if ask.shown["problem"] == chosen_by[0] else first
        else:
            right = first and ask.index % 2 == 0  # not on all: what is perfect is not revised
        return "right" if right else "wrong"

    chosen = {}
    for selection in ("current_best", "pareto"):
        method = gepa(generations=12, minibatch=4, candidate_selection=selection)
        driven = await drive(method, tmp_path / selection, script)
        prompts = [c for c in driven.records("candidates") if c["kind"] == "system_prompt"]
        chosen[selection] = {parent for prompt in prompts[2:] for parent in prompt["parents"]}
    assert chosen == {"current_best": {"1.0"}, "pareto": {"0.0", "1.0"}}


async def test_a_split_with_few_problems_to_choose_by_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await drive(gepa(), tmp_path / "few", never_learns)
    assert "gepa: 4 problems to reflect on and 4 to choose prompts by are few; to have more, hold more" in caplog.text
    caplog.clear()
    await drive(gepa(), tmp_path / "many", never_learns, validation=50)
    assert "are few" not in caplog.text


async def test_a_prompt_that_is_no_better_is_not_used(tmp_path: Path) -> None:
    driven = await drive(gepa(), tmp_path, never_learns)
    assert {ask.instruction for ask in driven.model.of("answer")} == {SEED_INSTRUCTION}
    assert len(driven.model.of("answer")) == 3
    assert driven.artifact("prompts.json") == [{"prompt": SEED_INSTRUCTION, "score": 0.0}]


async def test_a_prompt_that_wins_its_minibatch_and_loses_on_validation_is_not_used(tmp_path: Path) -> None:
    def overfits(ask: Ask) -> str:
        if ask.role == "reflect":
            return f"```\n{BETTER}\n```"
        # the seed prompt is right on the half that chooses, the other one on the half that is reflected on
        chooses = ask.shown["problem"] in chosen_by
        return "right" if chooses == (ask.instruction == SEED_INSTRUCTION) else "wrong"

    probe = await drive(gepa(generations=0), tmp_path / "probe", never_learns)
    chosen_by = {ask.shown["problem"] for ask in probe.model.of("evaluate")}
    driven = await drive(gepa(generations=1), tmp_path / "run", overfits)
    assert driven.artifact("prompts.json") == [
        {"prompt": SEED_INSTRUCTION, "score": 1.0},
        {"prompt": BETTER, "score": 0.0},
    ]
    assert {ask.instruction for ask in driven.model.of("answer")} == {SEED_INSTRUCTION}
    last = driven.records("steps")[-1]
    assert (last["step"], last["extra"]["prompts"], last["extra"]["validation_score"]) == (1, 2.0, 1.0)


async def test_every_prompt_is_a_candidate_with_its_parent_its_call_and_its_score(tmp_path: Path) -> None:
    def climbs(ask: Ask) -> str:
        """Prompt 1 is right on even problems, prompt 2 is no better than its parent, prompt 3 is right everywhere."""
        if ask.role == "reflect":
            return f"```\nPrompt {ask.step + 1}.\n```"
        even = "problem" in ask.shown and int(ask.shown["problem"][1:]) % 2 == 0
        return "right" if ask.instruction == "Prompt 3." or (ask.instruction == "Prompt 1." and even) else "wrong"

    driven = await drive(gepa(generations=3, minibatch=4), tmp_path, climbs)
    prompts = [c for c in driven.records("candidates") if c["kind"] != "response"]
    assert driven.records("candidates")[-4:] == prompts
    names = ("id", "generation", "operator", "parents", "text", "call", "survivor")
    assert [tuple(prompt[name] for name in names) for prompt in prompts] == [
        ("0.0", 0, "seed", [], SEED_INSTRUCTION, None, True),
        ("1.0", 1, "reflect", ["0.0"], "Prompt 1.", "*|0|reflect|0|0", True),
        ("2.0", 2, "reflect", ["1.0"], "Prompt 2.", "*|1|reflect|0|0", False),
        ("3.0", 3, "reflect", ["1.0"], "Prompt 3.", "*|2|reflect|0|0", True),
    ]
    seed, first, second, third = (prompt["mean"] for prompt in prompts)
    assert (seed, second, third) == (0.0, None, 1.0)
    assert 0 < first < 1
    assert {(p["kind"], p["problem"], p["answer"], p["correct"]) for p in prompts} == {
        ("system_prompt", "*", None, None)
    }
    ratings = [(r["step"], r["candidate"], r["mean"]) for r in driven.records("ratings")]
    assert ratings == [(0, "0.0", 0.0), (1, "1.0", first), (2, "2.0", None), (3, "3.0", 1.0)]
    assert [p["prompt"] for p in driven.artifact("prompts.json")] == ["Prompt 3.", "Prompt 1.", SEED_INSTRUCTION]


@pytest.mark.parametrize("script", [learns, never_learns])
async def test_the_meter_counts_metric_calls_reflections_and_answers(
    tmp_path: Path, script: Script, metric_calls: list[int]
) -> None:
    driven = await drive(gepa(), tmp_path, script)
    made = counted(driven)
    assert made["evaluate"] == metric_calls[0]
    assert driven.cost() == dict(made)
    assert set(made) == {"evaluate", "reflect", "answer"}


async def test_no_generations_are_the_seed_prompt(tmp_path: Path) -> None:
    driven = await drive(gepa(generations=0), tmp_path, learns)
    assert counted(driven) == {"evaluate": 4, "answer": 3}
    assert {p["steps"] for p in driven.records("predictions")} == {1}


@pytest.mark.parametrize("limit", [4, 9])
async def test_metric_calls_end_it(tmp_path: Path, limit: int, metric_calls: list[int]) -> None:
    driven = await drive(gepa(generations=50, metric_calls=limit), tmp_path, never_learns)
    # GEPA looks at its limit between iterations, and one takes two minibatches here
    assert limit <= metric_calls[0] < limit + 4
    assert len(driven.records("steps")) // 3 == 1 + -(-(limit - 4) // 4)


@pytest.mark.parametrize(
    ("calls", "script"),
    [(7, learns), (8, never_learns), (15, learns), (18, never_learns), (31, learns), (45, never_learns), (59, learns)],
)
async def test_the_budget_ends_it_and_is_never_exceeded(tmp_path: Path, calls: int, script: Script) -> None:
    driven = await drive(gepa(generations=200), tmp_path, script, budget=make_budget(calls=calls))
    assert len(driven.model.asked) <= calls
    assert sum(driven.cost().values()) == len(driven.model.asked)
    predictions = driven.records("predictions")
    assert {p["stop"] for p in predictions} == {"budget"}
    assert all(p["answer"] is not None for p in predictions)


@pytest.mark.parametrize(("calls", "reflections"), [(18, 0), (19, 1)])
async def test_an_iteration_begins_if_all_that_it_may_take_is_left(
    tmp_path: Path, calls: int, reflections: int
) -> None:
    # after the seed prompt's seven: two minibatches of two, a reflection, four to choose by and three to answer
    driven = await drive(gepa(), tmp_path, learns, budget=make_budget(calls=calls))
    assert counted(driven)["reflect"] == reflections


async def test_a_budget_below_the_seed_prompts_own_calls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^budget: expected at least 7 calls, which the seed prompt alone takes$"):
        await drive(gepa(), tmp_path, learns, budget=make_budget(calls=6))


@pytest.mark.parametrize(("validation", "share"), [(0, 0.5), (1, 0.5), (8, 0.0), (8, 1.0), (8, 0.01)])
async def test_a_split_without_two_parts_is_refused(tmp_path: Path, validation: int, share: float) -> None:
    with pytest.raises(ConfigError, match=r"^method\.train_share: expected both parts of the validation split[^\n]*$"):
        await drive(gepa(train_share=share), tmp_path, learns, validation=validation)


async def test_a_problem_of_each_part_is_enough(tmp_path: Path) -> None:
    driven = await drive(gepa(train_share=0.5, generations=1), tmp_path, learns, validation=2)
    assert driven.artifact("prompts.json")[0] == {"prompt": BETTER, "score": 1.0}


async def test_unparsable_and_refused_responses_are_wrong(tmp_path: Path) -> None:
    def mostly_broken(ask: Ask) -> str | None:
        if ask.role == "reflect":
            return learns(ask)
        return {0: "?", 1: None, 2: "right"}[ask.index % 3] if ask.name == "*" else ("?", None, "x")[int(ask.name[1])]

    driven = await drive(gepa(generations=2), tmp_path, mostly_broken)
    # the validation half's four responses: unparsable, refused, right, unparsable
    assert driven.records("steps")[0]["extra"]["validation_score"] == 0.25
    predictions = driven.records("predictions")
    assert [p["answer"] for p in predictions] == [None, None, "x"]
    assert [p["stop"] for p in predictions] == ["failed", "failed", "generations"]
    assert [c["error"] for c in driven.records("candidates")][1] == "rejected: prompt too long"
    # of three problems: one unparsable answer, one refusal, one that reads; each counted in the step that asked for it
    counts = ("texts", "unparsable_texts", "rejected_requests")
    totals = [sum(s["extra"][name] for s in driven.records("steps")) for name in counts]
    assert totals == [driven.cost()["answer"] - totals[2], totals[0] / 2, totals[0] / 2]


class ScoredQuiz(Quiz):
    scores = (Score("length"),)


async def test_without_right_and_wrong_labels_score_by_the_primary_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def by_length(self: RightIsRight, problem: Problem, response: Response, tools: Tools) -> Grade:
        scored = response.answer is not None and problem.id != "v3"
        return Grade(scores={"length": 5.0 + int(problem.id[1])} if scored else {})

    monkeypatch.setattr(RightIsRight, "grade", by_length)
    driven = await drive(gepa(generations=2), tmp_path, learns, task=ScoredQuiz())
    # a length depends on the problem alone: no prompt is better, and none is perfect, where there is no bound;
    # the validation half is v2, v7, v0, and v3, which counts as its worst, v0
    assert {s["extra"]["validation_score"] for s in driven.records("steps")} == {(7 + 12 + 5 + 5) / 4}
    assert len(driven.model.of("reflect")) == 2
    assert "responses have no length: the task could not score them" in caplog.text


async def test_a_prompt_none_of_whose_responses_has_a_score_counts_as_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def without(self: RightIsRight, problem: Problem, response: Response, tools: Tools) -> Grade:
        return Grade(scores={})

    monkeypatch.setattr(RightIsRight, "grade", without)
    driven = await drive(gepa(generations=1), tmp_path, learns, task=ScoredQuiz())
    assert {s["extra"]["validation_score"] for s in driven.records("steps")} == {0.0}


@pytest.mark.parametrize("said", [None, "", "no fence at all", "``````", "```"])
async def test_reflections_without_a_prompt_are_data(tmp_path: Path, said: str | None) -> None:
    driven = await drive(gepa(), tmp_path, lambda ask: said if ask.role == "reflect" else "wrong")
    assert {p["steps"] for p in driven.records("predictions")} == {5}
    assert sum(driven.cost().values()) == len(driven.model.asked)


async def test_the_same_seed_asks_the_same_questions(tmp_path: Path) -> None:
    def fickle(ask: Ask) -> str:
        if ask.role == "reflect":
            return f"```\nPrompt {ask.request.seed % 100}.\n```"
        return "right" if hash((ask.request.seed, ask.instruction)) % 3 == 0 else "wrong"

    runs = [
        await drive(gepa(generations=8), tmp_path / str(i), fickle, seed=seed, concurrency=concurrency)
        for i, (seed, concurrency) in enumerate([(0, 8), (0, 1), (1, 8)])
    ]
    assert runs[0].model.everything() == runs[1].model.everything()
    assert runs[0].files() == runs[1].files()
    assert runs[0].model.everything() != runs[2].model.everything()
    seeds = [ask.request.seed for ask in runs[0].model.asked]
    assert len(set(seeds)) == len(seeds)


# --- the run's problems with their public tests ---


async def test_inference_keeps_each_problems_best_response(tmp_path: Path, metric_calls: list[int]) -> None:
    driven = await drive(gepa(), tmp_path, learns, task=TestedQuiz(), problems=4)
    assert {p["answer"] for p in driven.records("predictions")} == {"good"}
    assert set(counted(driven)) == {"generate", "reflect"}
    assert counted(driven)["generate"] == metric_calls[0]
    assert driven.cost() == dict(counted(driven))
    candidates = [c for c in driven.records("candidates") if c["kind"] == "response"]
    assert len(candidates) == counted(driven)["generate"] == sum(s["extra"]["texts"] for s in driven.records("steps"))
    assert {(c["answer"], c["mean"]) for c in candidates} == {("wrong", 0.5), ("good", 1.0)}
    assert all(c["feedback"]["score"] == c["mean"] for c in candidates)
    assert [s["extra"]["validation_score"] for s in driven.records("steps")][:2] == [0.5, 1.0]


async def test_inference_reflects_on_public_tests_and_sees_no_label(tmp_path: Path) -> None:
    driven = await drive(gepa(), tmp_path, never_learns, task=TestedQuiz(), problems=4)
    for ask in driven.model.of("reflect"):
        assert "known: tests of wrong" in ask.shown["text"]
        assert "right" not in ask.shown["text"]
    assert not any(name.startswith("v") for name in (ask.name for ask in driven.model.asked))


async def test_a_response_that_beats_the_tests_is_kept_whatever_becomes_of_its_prompt(tmp_path: Path) -> None:
    def lucky(ask: Ask) -> str:
        if ask.role == "reflect":
            return never_learns(ask)
        # in a later minibatch, under the seed prompt: another response under it came first
        return "good" if ask.name == "p1" and ask.step > 0 and ask.instruction == SEED_INSTRUCTION else "wrong"

    driven = await drive(gepa(), tmp_path, lucky, task=TestedQuiz(), problems=4)
    assert [p["answer"] for p in driven.records("predictions")] == ["wrong", "good", "wrong", "wrong"]


async def test_of_responses_that_do_equally_well_the_better_prompts_is_kept(tmp_path: Path) -> None:
    """On p0 both prompts do the same; on the other problems the second one does better."""

    def learns_elsewhere(ask: Ask) -> str:
        if ask.role == "reflect":
            return learns(ask)
        better = ask.instruction == BETTER
        if ask.name == "p0":
            return "late" if better else "early"
        return "good" if better else "wrong"

    driven = await drive(gepa(), tmp_path, learns_elsewhere, task=TestedQuiz(), problems=4)
    of_p0 = [(c["answer"], c["mean"]) for c in driven.records("candidates") if c["problem"] == "p0"]
    assert of_p0[0] == ("early", 0.5)
    assert ("late", 0.5) in of_p0
    assert [p["answer"] for p in driven.records("predictions")] == ["late", "good", "good", "good"]


@pytest.mark.parametrize(("problems", "minibatch"), [(1, 3), (2, 3), (4, 3), (5, 2)])
async def test_minibatches_that_repeat_a_problem(tmp_path: Path, problems: int, minibatch: int) -> None:
    """GEPA fills its minibatches up with problems that are in them already."""
    driven = await drive(
        gepa(generations=6, minibatch=minibatch), tmp_path, never_learns, task=TestedQuiz(), problems=problems
    )
    assert driven.cost()["generate"] == counted(driven)["generate"] == problems + 6 * 2 * minibatch


class LateQuiz(TestedQuiz):
    """A tested quiz whose answers `PLACE ...` are tested the later the earlier their index."""

    def __init__(self, patience: int) -> None:
        self.patience = patience

    async def observe(self, problem: Problem, response: Response, tools: Tools) -> Response:
        for _ in range(self.patience * (3 - int((response.answer or "")[0]))):
            await asyncio.sleep(0)
        return await super().observe(problem, response, tools)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("problems", "minibatch"), [(1, 3), (2, 3), (5, 3)])
async def test_the_records_do_not_depend_on_which_test_ends_first(
    tmp_path: Path, problems: int, minibatch: int
) -> None:
    def script(ask: Ask) -> str:
        return never_learns(ask) if ask.role == "reflect" else f"{ask.index} of batch {ask.step}"

    first, *others = [
        (
            await drive(
                *(gepa(generations=6, minibatch=minibatch), tmp_path / str(patience), script),
                task=LateQuiz(patience),
                problems=problems,
            )
        ).files()
        for patience in (0, 50)
    ]
    assert others == [first]


@pytest.mark.parametrize(
    ("calls", "script"), [(4, learns), (5, never_learns), (13, learns), (14, never_learns), (30, learns)]
)
async def test_inference_keeps_to_the_budget(tmp_path: Path, calls: int, script: Script) -> None:
    driven = await drive(
        gepa(generations=200), tmp_path, script, task=TestedQuiz(), problems=4, budget=make_budget(calls=calls)
    )
    assert len(driven.model.asked) <= calls
    assert all(p["answer"] for p in driven.records("predictions"))


class TwoTurnQuiz(TestedQuiz):
    """Each response takes a tool's answer between two turns."""

    def max_turns(self, problem: Problem) -> int:
        return 2

    async def answer_tools(self, problem: Problem, said: Message) -> Message:
        return Message(role="tool", content="Go on.")


def sometimes_learns(ask: Ask) -> str:
    if ask.role == "reflect":
        return f"```\nPrompt {ask.name} {ask.step}.\n```"
    return "good" if ask.request.seed % 3 == 0 else "wrong"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("problems", "minibatch", "calls", "script", "turns"),
    [
        *((5, 3, 21, never_learns, 2), (7, 3, 30, sometimes_learns, 1), (6, 3, 25, learns, 1)),
        *((2, 3, 30, sometimes_learns, 2), (1, 3, 40, never_learns, 1), (3, 1, 9, learns, 1)),
        *((5, 4, 12, sometimes_learns, 1), (2, 5, 33, learns, 1)),
    ],
)
async def test_inference_keeps_to_each_problems_calls(
    tmp_path: Path, problems: int, minibatch: int, calls: int, script: Script, turns: int
) -> None:
    """GEPA draws its minibatches unevenly where they do not divide the problems."""
    calls *= turns
    task = TestedQuiz() if turns == 1 else TwoTurnQuiz()
    per_problem = await drive(
        *(gepa(generations=999, minibatch=minibatch), tmp_path / "each", script),
        task=task,
        problems=problems,
        budget=make_budget(calls_per_problem=calls),
    )
    # an iteration at its dearest: every index of the minibatch twice, the reflection, the validation
    dearest = (2 * minibatch + 1) * turns + 1
    assert all(calls - dearest < cost <= calls for cost in costs(per_problem))
    assert {p["stop"] for p in per_problem.records("predictions")} == {"budget"}
    whole = await drive(
        *(gepa(generations=999, minibatch=minibatch), tmp_path / "whole", script),
        task=task,
        problems=problems,
        budget=make_budget(calls=problems * calls + problems // 2),
    )
    shares = [calls + (number < problems // 2) for number in range(problems)]
    assert all(share - dearest < cost <= share for share, cost in zip(shares, costs(whole), strict=True))
    for driven in (per_problem, whole):
        asked = Counter(ask.name for ask in driven.model.asked)
        assert costs(driven) == [asked[f"p{number}"] for number in range(problems)]


def costs(driven: Driven) -> list[int]:
    """Return the calls of each problem."""
    return [sum(spent["calls"] for spent in p["cost"].values()) for p in driven.records("predictions")]


class Dear(Scripted):
    """A model whose replies to problem p0 cost ten times as much as others."""

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        reply = await super().complete(key, request, step)
        return msgspec.structs.replace(reply, prompt_tokens=10 * TOKENS - 3) if key.startswith("p0|") else reply


async def drive_dear(method: Gepa, folder: Path, script: Script, **how: Any) -> Driven:
    directory = RunDirectory(folder)
    model = Dear(script)
    try:
        driver = make_driver(method, quiz(how.pop("task", None), how.pop("problems", 3)), directory, model, **how)
        await driver.run()
        directory.finish_records([one.id for one in driver.loaded.problems])
    finally:
        directory.close()
    return Driven(folder, model, driver)


async def test_a_problem_whose_tokens_are_spent_leaves_the_search_to_the_others(tmp_path: Path) -> None:
    def learns_late(ask: Ask) -> str:
        return never_learns(ask) if ask.role == "reflect" and (ask.step < 9 or ask.name == "p0") else learns(ask)

    budget = make_budget(tokens_per_problem=60 * TOKENS)
    driven = await drive_dear(
        gepa(generations=999), tmp_path, learns_late, task=TestedQuiz(), problems=4, budget=budget
    )
    spent = [
        sum(role["prompt_tokens"] + role["completion_tokens"] for role in p["cost"].values()) // TOKENS
        for p in driven.records("predictions")
    ]
    assert spent[0] == 10 * costs(driven)[0] <= 60
    assert all(54 < tokens <= 60 for tokens in spent[1:])
    assert [p["answer"] for p in driven.records("predictions")] == ["wrong", "good", "good", "good"]
    # the prompt that came after p0 had left was not tried on it
    assert driven.artifact("prompts.json")[0] == {"prompt": BETTER, "score": 0.75}


async def test_a_problem_whose_tokens_are_spent_keeps_its_answer(tmp_path: Path) -> None:
    budget = make_budget(tokens_per_problem=9 * TOKENS)
    driven = await drive_dear(gepa(), tmp_path, learns, problems=6, budget=budget)
    ends = [(p["answer"], p["stop"]) for p in driven.records("predictions")]
    assert ends == [("wrong", "budget")] + [("right", "generations")] * 5


@pytest.mark.parametrize("task", [Quiz(), TestedQuiz()])
@pytest.mark.parametrize("calls", [29, 32, 35])
async def test_tokens_are_kept_where_all_calls_cost_the_same(tmp_path: Path, task: Quiz, calls: int) -> None:
    """A meter may be off by what a batch costs above the mean so far, which is nothing here."""
    driven = await drive(
        gepa(generations=200), tmp_path, never_learns, task=task, problems=4, budget=make_budget(tokens=calls * TOKENS)
    )
    assert len(driven.model.asked) <= calls
    assert {p["stop"] for p in driven.records("predictions")} == {"budget"}


# --- which set-up, and what it gets to know ---


@pytest.mark.parametrize(
    ("search", "task", "regime"),
    [
        ("auto", Quiz, "labels"),
        ("auto", TestedQuiz, "public_tests"),
        ("split", TestedQuiz, "labels"),
        ("split", Quiz, "labels"),
        ("inference", TestedQuiz, "public_tests"),
    ],
)
async def test_the_regime(tmp_path: Path, search: str, task: type[Quiz], regime: str) -> None:
    method = gepa(search=search, generations=0)
    assert method.information_regime(task) == regime
    driven = await drive(method, tmp_path, learns, task=task())
    assert ("evaluate" in counted(driven)) is (regime == "labels")


def test_inference_needs_public_tests() -> None:
    with pytest.raises(ConfigError, match=r"^method\.search=inference needs a task with public tests, which task=quiz"):
        gepa(search="inference").information_regime(Quiz)


# --- how it ends ---


async def stopped(
    method: Gepa, folder: Path, model: Scripted, task: Quiz, stop: Callable[[asyncio.Task[None]], Any]
) -> None:
    """Start a run, let `stop` do what it will with its task, and wait for the task's end."""
    directory = RunDirectory(folder)
    try:
        running = asyncio.create_task(make_driver(method, quiz(task, problems=4), directory, model).run())
        await stop(running)
        async with asyncio.timeout(60):
            await running
    finally:
        directory.close()


@pytest.mark.parametrize(("role", "nth"), [("evaluate", 1), ("answer", 4), ("reflect", 1), ("generate", 4)])
async def test_an_error_of_the_engine_surfaces_as_itself(
    tmp_path: Path, role: str, nth: int, caplog: pytest.LogCaptureFixture
) -> None:
    failure = EngineError("the server is gone")
    counts: Counter[str] = Counter()

    def fails(ask: Ask) -> str | Exception:
        counts[ask.role] += 1
        return (
            failure
            if ask.role == role and counts[role] >= nth
            else learns(ask)
            if role == "answer"
            else never_learns(ask)
        )

    with pytest.raises(EngineError) as raised:
        await drive(gepa(generations=5), tmp_path, fails, task=TestedQuiz() if role == "generate" else Quiz())
    assert raised.value is failure
    await nobody_is_left(caplog)


@pytest.mark.parametrize("role", ["evaluate", "answer", "generate"])
async def test_an_error_cancels_what_goes_on_beside_it(
    tmp_path: Path, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first calls of this role hang, the last one fails."""
    failure = EngineError("the server is gone")
    hanging, cancelled = 0, 0

    class Failing(Scripted):
        async def complete(self, key: str, request: Request, step: int) -> Reply:
            nonlocal hanging, cancelled
            if f"|{role}|" not in key:
                return await super().complete(key, request, step)
            if hanging == 3:
                raise failure
            hanging += 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1
                raise
            raise AssertionError("nobody sets it")

    async def nothing(running: asyncio.Task[None]) -> None: ...

    task = TestedQuiz() if role == "generate" else Quiz()
    with pytest.raises(EngineError) as raised:
        await stopped(gepa(), tmp_path, Failing(never_learns), task, nothing)
    assert raised.value is failure
    assert cancelled == hanging == 3
    await nobody_is_left(caplog)


@pytest.mark.parametrize("role", ["evaluate", "reflect", "answer", "generate"])
async def test_cancellation_ends_it_at_once(tmp_path: Path, role: str, caplog: pytest.LogCaptureFixture) -> None:
    """Cancelled while a call of this role hangs: the thread ends with the task, and nothing is left to complain."""
    hangs = asyncio.Event()

    class Hanging(Scripted):
        async def complete(self, key: str, request: Any, step: int) -> Any:
            if f"|{role}|" in key:
                hangs.set()
                await asyncio.Event().wait()
            return await super().complete(key, request, step)

    async def cancel(running: asyncio.Task[None]) -> None:
        await hangs.wait()
        running.cancel()

    task = TestedQuiz() if role == "generate" else Quiz()
    with pytest.raises(asyncio.CancelledError):
        await stopped(gepa(), tmp_path, Hanging(never_learns), task, cancel)
    await nobody_is_left(caplog)


async def nobody_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """No task of the run is alive, no thread of GEPA is, and asyncio has no complaint."""
    async with asyncio.timeout(60):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left)
    stacks = [frame for frame in sys._current_frames().values() if _in_gepa(frame)]
    assert not stacks
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio" and record.levelno >= logging.WARNING]


def _in_gepa(frame: Any) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("gepa."):
            return True
        frame = frame.f_back
    return False


async def test_cancelled_while_gepa_itself_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread is between two calls when the run is cancelled: its next call must end it, not wait for ever."""
    from evorun.methods.gepa import bridge as gepa_bridge

    computing, go_on = threading.Event(), threading.Event()
    original = gepa_bridge.Bridge.make_reflective_dataset

    def slow(self: Any, *arguments: Any) -> Any:
        computing.set()
        go_on.wait(5)
        return original(self, *arguments)

    monkeypatch.setattr(gepa_bridge.Bridge, "make_reflective_dataset", slow)

    async def cancel(running: asyncio.Task[None]) -> None:
        await asyncio.to_thread(computing.wait, 5)
        running.cancel()
        asyncio.get_running_loop().call_later(0.1, go_on.set)

    with pytest.raises(asyncio.CancelledError):
        await stopped(gepa(), tmp_path, Scripted(never_learns), Quiz(), cancel)
    await nobody_is_left(caplog)


async def test_an_error_beside_gepa_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*arguments: object) -> None:
        raise RunDirectoryError("cannot write: no space left")

    monkeypatch.setattr(RunContext, "save_artifact", full)
    with pytest.raises(RunDirectoryError, match=r"^cannot write"):
        await drive(gepa(), tmp_path, never_learns)
    await nobody_is_left(caplog)


async def test_a_defect_of_a_task_surfaces(tmp_path: Path) -> None:
    class Broken(Quiz):
        def reflection_record(self, *arguments: Any) -> str:
            raise ZeroDivisionError("a defect")

    with pytest.raises(ZeroDivisionError, match="a defect"):
        await drive(gepa(), tmp_path, never_learns, task=Broken())


async def test_a_missing_package_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gepa.api", None)
    with pytest.raises(ConfigError, match=r"^method=gepa needs the gepa package: pip install 'evorun\[gepa\]'$"):
        await drive(gepa(), tmp_path, learns)


@pytest.mark.nightly
def test_importing_the_method_imports_no_gepa() -> None:
    import subprocess

    code = "import sys, evorun.methods.gepa.gepa; sys.exit('gepa' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
