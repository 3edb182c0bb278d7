"""RLER: criteria of each problem, written from its responses and judged one by one, and what a response earns."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from building import composed, make_config, make_method, simulated_run, task_config
from evorun.errors import ConfigError, DataError
from evorun.runner.estimates import count_calls
from evorun.runner.registry import task_config_class
from evorun.runner.settings import check
from evorun.runs.candidates import Response
from evorun.runs.reading import read_rollouts
from evorun.tasks.rubric_items import WeightedItem, read_items, read_written_items
from evorun.testing.runs import COMPLETED, carry_out
from learning_fixture import Trained, train
from method_fixture import Ask, CriteriaQuiz

POINTS: dict[str, Any] = {
    "Merit": {"a": 2, "b": 1, "c": "hard to say", "d": 2},
    "Fault": {"a": 0, "b": 2, "c": 1, "d": "it is hard to say"},
    "Same": dict.fromkeys("abcd", 1),
    "Wide": {"a": 2, "b": 0, "c": 2, "d": 0},
    "Narrow": {"a": 2, "b": 2, "c": 2, "d": 1},
    "Middle": {"a": 2, "b": 1, "c": 1, "d": 0},
}
ONE = {"steps": 1, "problems_per_step": 1, "group": 4, "kl": 0.0}


def written(*titles: str, weight: int = 1) -> str:
    items = [{"title": title, "description": f"about {title}", "weight": weight} for title in titles]
    return json.dumps({"items": items})


def script(ask: Ask) -> str | None:
    if ask.role == "write_items":
        return written("Same", "Wide", "Narrow") if ask.step == 1 else written("Middle")
    if ask.role == "score":
        points = POINTS[ask.shown["title"]][ask.shown["response"]]
        return points if isinstance(points, str) else f"As it is.\n<score>{points}</score>"
    return "abcd"[ask.index % 4] if ask.role == "rollout" else "right"


async def learn(folder: Path, **config: Any) -> Trained:
    return await train(folder, script, method="rler", task=CriteriaQuiz(), **{**ONE, **config})


async def test_a_response_earns_its_halved_points_by_weight_and_unread_judgments_are_left_out(tmp_path: Path) -> None:
    trained = await learn(tmp_path / "run", adaptive=False)
    assert {ask.role for ask in trained.model.asked} == {"rollout", "score", "evaluate"}
    rollouts = read_rollouts(tmp_path / "run")
    # (2 x merit - fault) / 2; c's merit and d's fault are unknown, and neither they nor their weights count.
    assert [rollout.reward for rollout in rollouts] == [1.0, (2 * 0.5 - 1) / 2, -0.5, 1.0]
    [record] = trained.records("training")
    assert record["figures"]["reward_unread_items"] == 0.5
    assert record["figures"]["reward_items"] == 2.0
    attempts = [
        ask.attempt
        for ask in trained.model.of("score")
        if (ask.shown["title"], ask.shown["response"]) == ("Fault", "d")
    ]
    assert attempts == [0, 1, 2]


async def test_a_response_of_which_nothing_can_be_read_has_no_reward(tmp_path: Path) -> None:
    def unread(ask: Ask) -> str | None:
        return "no idea" if ask.role == "score" and ask.shown["response"] == "b" else script(ask)

    await train(tmp_path / "run", unread, method="rler", task=CriteriaQuiz(), **ONE, adaptive=False)
    rollouts = read_rollouts(tmp_path / "run")
    assert [rollout.reward is None for rollout in rollouts] == [False, True, False, False]
    assert rollouts[1].unscored == "missing"


async def test_written_criteria_are_judged_at_once_and_stay_active_by_their_spread(tmp_path: Path) -> None:
    trained = await learn(tmp_path / "run", steps=2, max_active=1, persistent=False)
    first, second = trained.model.of("write_items")
    assert "about Wide" not in first.shown["text"]
    for response in "abcd":
        assert f"<response>\n{response}\n</response>" in first.shown["text"]
    by_step = [Counter(ask.shown["title"] for ask in trained.model.of("score") if ask.step == step) for step in (1, 2)]
    assert by_step[0] == {"Same": 4, "Wide": 4, "Narrow": 4}
    rewards = [rollout.reward for rollout in read_rollouts(tmp_path / "run")][:4]
    assert rewards == pytest.approx([(0.5 + 1 + 1) / 3, (0.5 + 0 + 1) / 3, (0.5 + 1 + 1) / 3, (0.5 + 0 + 0.5) / 3])
    # Another problem's criteria are its own; the same problem's active ones are shown to the writer and judged again.
    same = len(set(trained.trained_on())) == 1
    assert by_step[1] == ({"Wide": 4, "Middle": 4} if same else {"Middle": 4})
    assert ("about Wide" in second.shown["text"]) == same
    active = {record["text"].partition(":")[0]: record["survivor"] for record in last_ratings(trained)}
    assert (active["Same"], active["Wide"], active["Narrow"]) == (False, True, False)
    figures = [record["figures"] for record in trained.records("training")]
    assert (figures[0]["items_active"], figures[0]["items_inactive"], figures[0]["items_written"]) == (1.0, 2.0, 3.0)
    assert len(trained.artifact("rubric_items.json")) == len(set(trained.trained_on()))


@pytest.mark.parametrize(("answered", "asked"), [("a", 0), ("ab", 1)])
async def test_criteria_are_written_from_two_responses_or_more(tmp_path: Path, answered: str, asked: int) -> None:
    def refuse(ask: Ask) -> str | None:
        said = script(ask)
        return said if ask.role != "rollout" or said in answered else None

    trained = await train(tmp_path / "run", refuse, method="rler", task=CriteriaQuiz(), **ONE)
    assert len(trained.model.of("write_items")) == asked


def last_ratings(trained: Trained) -> list[dict[str, Any]]:
    survivors = {record["candidate"]: record["survivor"] for record in trained.records("ratings")}
    items = [record for record in trained.records("candidates") if record["problem"] == "*"]
    return [{**record, "survivor": survivors[record["id"]]} for record in items]


async def test_the_active_criteria_of_a_problem_go_on_to_its_next_step(tmp_path: Path) -> None:
    """Five problems in ten steps: each comes twice."""
    trained = await learn(tmp_path / "run", steps=10, persistent=False, max_active=3)
    ids = trained.trained_on()[::4]
    again = {problem: ids.index(problem, ids.index(problem) + 1) + 1 for problem in ids}
    judged = {
        step: {ask.shown["title"] for ask in trained.model.of("score") if ask.step == step} for step in range(1, 11)
    }
    # There is room for all three of the first step, but one does not tell the responses apart.
    assert judged[again[ids[0]]] == {"Wide", "Narrow", "Middle"}
    # The others have it already: the reply is refused as a double, and counted.
    assert judged[again[ids[1]]] == {"Middle"}
    figures = [record["figures"].get("items_unread_doubled", 0.0) for record in trained.records("training")]
    assert figures == [float(step in again.values() and step != again[ids[0]]) for step in range(1, 11)]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("I have none.", "missing"),
        ('{"items": [{"title": "A", "description": "one"}, {"title": "a", "description": "two"}]}', "doubled"),
        ('{"items": [{"title": "A", "description": "one", "weight": 0}]}', "weight"),
        (f'{{"items": [{{"title": "A", "description": "one", "weight": {10**400}}}]}}', "weight"),
        ('{"items": [{"title": "A", "description": " "}]}', "items"),
        ('{"items": [{"title": "A"}]}', "json"),
        (written(*"ABCDEF"), "items"),
    ],
)
def test_replies_that_are_no_criteria_are_told_apart(reply: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"^{kind}: "):
        read_written_items(reply, 5)
    assert read_written_items('{"items": []}', 5) == ()
    [item] = read_written_items(f"<think>{written('B')}</think> {written('A', weight=-7)}", 5)
    assert (item.title, item.weight) == ("A", -1.0)


def test_a_rows_own_criteria_come_from_a_column(tmp_path: Path) -> None:
    rows = [
        {"question": f"q{n}", "answer": "1", "rubric": [{"description": "It is short.", "weight": -2}]}
        for n in range(4)
    ]
    (file := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    loaded = task_config("rows", data=str(file), source="auto", rubric="rubric").load()
    items = loaded.task.rubric_items(loaded.problems[0])
    assert items == (WeightedItem("It is short.", "It is short.", -2.0),)
    rubric = items[0].rubric
    prompt = loaded.task.scoring_prompt(loaded.problems[0], Response(text="x", answer="x"), rubric, rubric.items[0])
    assert "It is short." in prompt.messages[-1]["content"]
    assert "It is short." not in str(loaded.task.generation_prompt(loaded.problems[0]).messages)
    file.write_text(json.dumps({**rows[0], "rubric": [{"weight": 1}]}))
    with pytest.raises(DataError, match=r"task\.rubric=rubric: items: .*description"):
        task_config("rows", data=str(file), source="auto", rubric="rubric").load()
    assert read_items([{"description": "d"}])[0].weight == 1.0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"persistent": False, "adaptive": False}, "expected at least one of them true, got neither"),
        ({"rubric": "expert"}, "method.rubric: has no effect with method=rler"),
        ({"scoring": "by_item"}, "method.scoring: has no effect with method=rler"),
    ],
)
def test_settings_without_sense_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_config("method", "rler", **settings)


def test_criteria_in_the_data_are_labels_where_there_is_right_and_wrong() -> None:
    regimes = {
        (name, persistent): make_method("rler", persistent=persistent).information_regime(task)
        for name, task in ((name, task_config_class(name).task_class) for name in ("essay", "mathbench"))
        for persistent in (True, False)
    }
    assert {pair for pair, regime in regimes.items() if regime == "labels"} == {("mathbench", True)}
    assert set(make_method("rler", adaptive=False).active_roles) == {"rollout", "score"}


WORDS = (
    *("task=essay", "task.source=sample", "task.limit=4", "method=rler", "method.steps=3", "method.group=4"),
    *("method.problems_per_step=2", "method.eval_samples=1"),
    *("engine=simulated", "engine.mean_tokens=20", "evorun.progress=off"),
)


def test_killed_and_resumed_and_replayed_it_is_the_same(tmp_path: Path) -> None:
    whole = simulated_run(tmp_path / "whole", *WORDS)
    assert whole.outcome == COMPLETED
    asked = Counter(key.split("|")[2] for key in whole.calls())
    most = {part.role: part.calls for part in count_calls(composed(*WORDS, "method.persistent=false"))}
    assert asked["rollout"] == most["rollout"] == 24
    assert asked["write_items"] <= most["write_items"] + 1  # a cut-off reply is asked for again
    assert asked["score"] <= most["score"]
    broken = carry_out(check(composed(*WORDS)), tmp_path / "broken", breaks_after=20)  # among the judgments
    assert broken.outcome != COMPLETED
    resumed = carry_out(check(composed(*WORDS)), tmp_path / "broken")
    assert resumed.outcome == COMPLETED
    assert resumed.files() == whole.files()
    words = (*WORDS[:-3], "evorun.progress=off", "engine=replay", f"engine.run={whole.path}")
    replayed = carry_out(check(composed(*words)), tmp_path / "replayed")
    assert replayed.files() == whole.files()


RUNS = {"rler": ("method=rler",), "grpo": ("method=grpo", "method.rubric=initial", "method.kl=0.001")}
WORLD = (
    *("task=essay", "task.source=sample", "method.steps=10", "method.problems_per_step=4", "method.group=8"),
    *("method.eval_every=null", "method.eval_samples=2", "engine.mean_tokens=20", "engine.loophole_rate=0.1"),
    *("gold=smollm2_135m", "gold_engine=simulated", "gold_engine.loophole=0", "gold_engine.reward_noise=0"),
)
"""A loophole of the rubric pays more than the policy can earn otherwise; the gold judge knows it."""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("meta", "wins"),
    [
        (("engine.meta_skill=1",), True),
        (("engine.meta_skill=0", "engine.meta_harm=1"), False),
    ],
)
def test_it_wins_and_loses_with_what_is_written(tmp_path: Path, meta: Sequence[str], wins: bool) -> None:
    """The other arm keeps one rubric; the model that writes criteria notices exploits, or writes what does harm."""
    scores = {}
    for name, words in RUNS.items():
        run = simulated_run(tmp_path / name, *WORLD, *words, *meta)
        assert run.outcome == COMPLETED
        scores[name] = run.json("results.json")["metrics"]["mean_rubric"]["value"]
    assert (scores["rler"] > scores["grpo"] + 0.1) == wins
    assert (scores["rler"] < scores["grpo"] - 0.05) != wins
