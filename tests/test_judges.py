"""Judges beside the policy: panels that vote, and an oracle that knows the truth."""

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from building import composed, load_task, simulated_run
from evorun.cli.overrides import words
from evorun.errors import ConfigError
from evorun.methods.base import Method
from evorun.methods.duels.duel_evolve import DuelEvolve
from evorun.methods.duels.duels import majority
from evorun.reports.facts import describe_unevolved
from evorun.reports.overview import load_outcome
from evorun.runner.served import role_warnings
from evorun.runner.settings import check
from evorun.runs.candidates import Response
from evorun.tasks.capabilities import Judgment
from evorun.testing.runs import COMPLETED, Run

SAMPLE = ("task.source=sample", "task.limit=4", "method.generations=3", "engine.skill=0.5")
SMALL = ("method.children=4", "method.initial_candidates=4", "method.duels=5")


def test_the_majority_by_brute_force() -> None:
    for votes in product(("A", "B", "T", "invalid"), repeat=3):
        chosen = majority([Judgment(verdict=vote, reason=f"{i}") for i, vote in enumerate(votes)])  # type: ignore[arg-type]
        ballots = {name: votes.count(name) for name in "ABT" if name in votes}
        winners = [name for name in ballots if ballots[name] == max(ballots.values())]
        assert chosen.votes == votes
        assert chosen.verdict == ("invalid" if not winners else winners[0] if len(winners) == 1 else "T")
        if len(winners) == 1:
            assert chosen.reason == str(votes.index(winners[0]))


def test_one_judge_has_no_votes() -> None:
    alone = Judgment(verdict="A", reason="so")
    assert majority([alone]) is alone


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = simulated_run(
        tmp_path_factory.mktemp("panel") / "run", *SAMPLE, *SMALL, "judge=[policy,gemma3_4b,{name:api,id:another}]"
    )
    assert run.outcome == COMPLETED
    return run


def test_every_judge_of_a_panel_is_asked_under_its_own_key_and_pays_for_itself(panel: Run) -> None:
    asked: dict[str, set[str]] = {}
    for key in panel.calls():
        problem, step, role, index, attempt = key.split("|")
        asked.setdefault(role, set()).add(f"{problem}|{step}|{index}|{attempt}")
    assert set(asked) == {"generate", "judge.0", "judge.1", "judge.2"}
    assert asked["judge.0"] == asked["judge.1"] == asked["judge.2"]
    cost = panel.json("results.json")["cost"]
    assert [cost[f"judge.{i}"]["calls"] for i in range(3)] == [len(asked["judge.0"])] * 3
    assert all(cost[f"judge.{i}"]["prompt_tokens"] > 0 for i in range(3))
    assert sum(cost[role]["calls"] for role in asked) == cost["total"]["calls"]


def test_the_records_of_a_panels_duels_have_votes_whose_majority_they_go_by(panel: Run) -> None:
    duels = panel.records("comparisons")
    assert len({votes for duel in duels for votes in map(tuple, duel["votes"])}) > 5  # the judges are independent
    for duel in duels:
        for verdict, votes in zip(duel["verdicts"], duel["votes"], strict=True):
            ballots = Counter(vote for vote in votes if vote != "invalid").most_common()
            unique = len(ballots) == 1 or ballots[0][1] > ballots[1][1]
            assert verdict == (ballots[0][0] if unique else "T")


def test_the_manifest_lists_all_judges(panel: Run) -> None:
    models = panel.json("manifest.json")["models"]
    assert {role: model["id"] for role, model in models.items() if role != "policy"} == {
        "judge.0": models["policy"]["id"],
        "judge.1": "google/gemma-3-4b-it",
        "judge.2": "another",
    }


@pytest.mark.parametrize("calls", [9, 10, 11, 30])
def test_a_budget_never_pays_for_part_of_a_panel(tmp_path: Path, calls: int, caplog: pytest.LogCaptureFixture) -> None:
    words = (*SAMPLE, *SMALL, "judge=[policy,policy,policy]", f"budget.calls_per_problem={calls}")
    run = simulated_run(tmp_path / "run", *words)
    judged = Counter(tuple(key.split("|")[i] for i in (0, 1, 3)) for key in run.calls() if "|judge." in key)
    assert set(judged.values()) <= {3}
    assert sum(judged.values()) % 6 == 0  # whole duels: two orders of three judges
    made = Counter(key.split("|")[0] for key in run.calls())
    assert max(made.values()) <= calls
    if calls >= 10:  # four candidates and one duel
        assert judged
    assert ("too few for a duel, which takes 6" in caplog.text) is not bool(judged)
    # four candidates, and five duels in two orders before three judges
    assert "takes up to 34 calls per problem" in (describe_unevolved(load_outcome(run.path)) or "")


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["best_of_n", "feedback_descent", "duel_evolve"])
def test_an_oracle_prefers_right_answers_and_costs_what_a_judge_costs(tmp_path: Path, method: str) -> None:
    size = {"best_of_n": ("method.samples=6", "method.rounds=2"), "feedback_descent": ("method.generations=6",)}
    chosen = (f"method={method}", "task.source=sample", "task.limit=6", "engine.skill=0.5")
    small = size.get(method, (*SMALL, "method.generations=2"))
    run = simulated_run(tmp_path / "run", *chosen, *small, "judge=oracle")
    assert run.outcome == COMPLETED
    right = _right_answers(run)
    decided = 0
    for duel in run.records("comparisons"):
        first, second = (right[duel["problem"], duel[side]] for side in ("first", "second"))
        winner = None if first == second else "first" if first else "second"
        assert duel["outcome"] == winner, duel
        decided += winner is not None
        assert set(duel["reasons"]) == {"By the ground truth."}
    assert decided
    manifest = run.json("manifest.json")
    assert manifest["regime"] == "oracle"
    assert manifest["models"]["judge"] == {"name": "oracle", "id": "oracle", "engine": "oracle"}
    verdicts = sum(len(duel["verdicts"]) for duel in run.records("comparisons"))
    assert run.json("results.json")["cost"]["judge"]["calls"] == verdicts
    # The best answer is right wherever a right one took part.
    if method == "duel_evolve":
        solvable = {problem for (problem, _), good in right.items() if good}
        assert {one["problem"] for one in run.records("predictions") if one["correct"]} == solvable


def _right_answers(run: Run) -> dict[tuple[str, str], bool]:
    """Return whether each candidate is right, by the answers that the sample's own file has."""
    loaded = load_task("mathbench", source="sample")
    task: Any = loaded.task
    gold = {name: row.answer for name, row in loaded.simulator._rows.items()}  # type: ignore[attr-defined]
    problems = {problem.id: problem for problem in loaded.problems}
    return {
        (one["problem"], one["id"]): one["answer"] is not None
        and task.signature(problems[one["problem"]], Response(text="", answer=one["answer"])) == gold[one["problem"]]
        for one in run.records("candidates")
    }


def test_an_oracle_compares_wrong_answers_by_how_wrong_they_are(tmp_path: Path) -> None:
    size = ("task.instances=2", "method.samples=5", "method.rounds=2", "method.choose=duels", "engine.skill=0.6")
    run = simulated_run(tmp_path / "run", "method=best_of_n", "task=tsp", *size, "judge=oracle")
    assert run.outcome == COMPLETED
    loaded: Any = load_task("tsp", instances=2)
    rows = loaded.simulator._rows
    grades = {}
    for one in run.records("candidates"):
        problem, gold, _ = rows[one["problem"]]
        grade = loaded.task.score(problem, Response(text="", answer=one["answer"]), gold)
        grades[one["problem"], one["id"]] = (grade.correct, grade.scores["penalised_score"])
    decided = 0
    for duel in run.records("comparisons"):
        first, second = (grades[duel["problem"], duel[side]] for side in ("first", "second"))
        assert duel["outcome"] == (None if first == second else "first" if first > second else "second")
        decided += first != second and not (first[0] or second[0])
    assert decided


def test_a_sweep_takes_panels() -> None:
    assert words("judge=[a,b],[c,d]") == ["judge=panel", "++judge.members=[a,b],[c,d]"]
    assert words("judge=policy") == ["judge=policy"]
    assert words("judge_engine=[server,policy]") == ["judge_engine=panel", "++judge_engine.members=[server,policy]"]
    with pytest.raises(ConfigError, match=r"^judge=.*: expected panels only; "):
        words("judge=[a,b],policy")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["judge=[gemma3_4b]"], r"judge: expected two or more members, judge=\[NAME,NAME,NAME\], got 1"),
        (["judge=panel"], r"judge: expected two or more members, .* got 0"),
        (
            ["judge=[gemma3_4b,gema3_27b_w4a16]"],
            r"judge=gema3_27b_w4a16: unknown judge; did you mean judge=gemma3_27b",
        ),
        (["judge=[gemma3_4b,oracle]"], r"judge=oracle: unknown judge; "),
        (["judge=[gemma3_4b,3]"], r"judge=3: unknown judge; "),
        (
            ["judge=[policy,policy]", "judge_engine=[simulated,policy,policy]"],
            r"judge_engine: expected one engine, ",
        ),
        (
            ["judge=[policy,{name:gemma3_4b,idd:x}]"],
            r"judge\.members\.1\.idd: unknown key; did you mean ",
        ),
        (["judge=oracle", "judge_engine=simulated"], r"judge_engine: has no effect with judge=oracle"),
        (["judge=oracle", "++judge.id=x"], r"judge\.id: unknown key"),
        (
            ["judge=oracle", "method=lyria"],
            r"judge=oracle: gives verdicts on pairs only, .* method=lyria also asks .* errors and",
        ),
        (["judge=[policy,policy,policy]", "method=lyria"], r"judge=panel: gives verdicts on pairs"),
    ],
)
def test_wrong_judges_are_one_line(arguments: list[str], expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^{expected}"):
        check(composed("engine=simulated", *arguments))


def test_a_method_that_refuses_a_budget_is_told_how_many_judges_a_duel_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Method, calls: int, judges: int = 1) -> str:
        return f"{calls} calls, {judges} judges"

    monkeypatch.setattr(DuelEvolve, "budget_obstacle", refuse)
    panel = ("judge=[policy,policy,policy]", "budget.calls_per_problem=7")
    with pytest.raises(ConfigError, match=r"^7 calls, 3 judges$"):
        check(composed("method=duel_evolve", "task=arithmetic", "engine=simulated", *panel))


def test_a_judge_that_nobody_asks_is_said_to_have_no_effect() -> None:
    judges = ("judge=gpt_4o", "judge_engine=simulated", "gold=gpt_4o", "gold_engine=simulated", "engine=simulated")
    for method, said in (("zero_shot", ["judge: has no effect, method=zero_shot asks no judge"]), ("duel_evolve", [])):
        run = check(composed(f"method={method}", "task=essay", "task.source=sample", *judges))
        assert role_warnings(run.others, run.method, run.task) == said
    run = check(composed("method=duel_evolve", "task=arithmetic", *judges))
    assert role_warnings(run.others, run.method, run.task) == [
        "gold: has no effect, task=arithmetic is not graded by opinion"
    ]


def test_a_panel_that_seats_a_model_twice_says_so() -> None:
    for members, said in (("gpt_4o,gemma3_4b,gpt_4o", ["gpt_4o 2 times"]), ("gpt_4o,gemma3_4b", [])):
        panel = (f"judge=[{members}]", "judge_engine=simulated", "engine=simulated")
        run = check(composed("method=duel_evolve", "task=arithmetic", *panel))
        lines = role_warnings(run.others, run.method, run.task)
        assert [line.partition("seats ")[2].partition(",")[0] for line in lines] == said
