"""Rubrics of several runs side by side: figures 5a and 5b, and what refinement cost (table 8)."""

import json
from pathlib import Path
from typing import Any

import pytest
from rubric_fixture import RubricSpec, write_rubric_run

from building import composed
from evorun.reports.comparison.comparison import compare
from evorun.reports.comparison.evolution import (
    compute_rubric_lengths,
    compute_rubric_strictness,
    describe_overhead,
    make_overhead_table,
    measure_seconds_beyond_updates,
)
from evorun.reports.comparison.notes import describe_gold_score, list_cautions
from evorun.reports.comparison.output import write_comparison
from evorun.reports.comparison.tables import make_main_table, make_reported_steps_table
from evorun.runs.directory import load_manifest
from evorun.runs.journal_file import JOURNAL, Effect
from evorun.runs.records import write_json
from evorun.runs.schema import Metric, Results, RoleCost
from journals import write_journal


def _finish(run: Path, seconds: int, **cost: tuple[int, float]) -> None:
    """Write the results of a run: calls and model seconds by role."""
    spent = {role: RoleCost(calls, 10 * calls, calls, seconds=took) for role, (calls, took) in cost.items()}
    metrics = {"rubric": Metric(0.5, None, 1)}
    write_json(run / "results.json", Results(metrics=metrics, by_stratum={}, cost=spent, counts={}))
    manifest: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    manifest["seconds"] = seconds
    manifest["config"]["method"]["trainer"] = "ppo"
    (run / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture(name="runs", scope="module")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    fixed = write_rubric_run(folder / "ppo", RubricSpec(refinements=2, method="ppo"))
    keyed = write_rubric_run(folder / "mpo", RubricSpec(keys=("a", "b"), refinements=2))
    records = [json.loads(line) for line in (fixed / "candidates.jsonl").open()]
    kept = [one for one in records if not one.get("parents")]
    (fixed / "candidates.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
    _finish(fixed, 100, rollout=(90, 9.0), total=(90, 9.0))
    _finish(keyed, 111, rollout=(90, 9.0), refine=(9, 0.9), merge=(1, 0.1), total=(100, 10.0))
    about = {"step": 10, "low": 0.1, "high": 0.9, "n": 3, "unscored": 0}
    scores = {("a", 0): 0.8, ("b", 0): 0.6, ("a", 1): 0.5, ("b", 1): 0.3, ("a", 2): None}
    found = [{"rubric": f"{key}#{n}", "refined": 5 * n, "score": score, **about} for (key, n), score in scores.items()]
    (keyed / "artifacts").mkdir()
    (keyed / "artifacts" / "rubric_scores.json").write_text(json.dumps(found))
    effect = Effect("k", b"0" * 16, b"{}", b"true", None, 1.5)
    write_journal(
        keyed / JOURNAL,
        [effect._replace(key=f"*|{step}|{role}|{step}|0") for step in (10, 20) for role in ("beyond_update", "refine")],
    )
    return [fixed, keyed]


def test_the_cost_of_refinement_stands_beside_the_run_under_a_fixed_rubric(runs: list[Path]) -> None:
    grid = make_overhead_table(compare(runs))
    (row,) = grid.shown()
    assert row[1:] == ["100", "10.0 %", "1,100", "10.0 %", "10.0 s", "10.0 %", "3.0 s", "111.0 s", "1.11"]
    assert measure_seconds_beyond_updates(runs[1]) == 3.0
    assert measure_seconds_beyond_updates(runs[0]) is None
    assert load_manifest(runs[0]).seconds == 100


def test_the_gold_judges_score_is_told_from_that_of_a_rubric_that_evolves(tmp_path: Path) -> None:
    run = write_rubric_run(tmp_path / "mpo", RubricSpec(refinements=1))
    assert describe_gold_score(compare([run])) is None
    _finish(run, 100, gold=(30, 1.0), total=(100, 10.0))
    said = describe_gold_score(compare([run]))
    assert said is not None
    assert said.startswith("Gold score: the gold judge's score of one response per problem, by the task's own rubric")
    write_comparison(compare([run]), tmp_path / "comparison.html")
    assert "not by one that evolves" in (tmp_path / "comparison.html").read_text()


def test_an_arm_trained_under_the_gold_judges_rubric_is_marked(tmp_path: Path) -> None:
    initial = write_rubric_run(tmp_path / "initial", RubricSpec(refinements=1, method="ppo"))
    expert = write_rubric_run(tmp_path / "expert", RubricSpec(refinements=1, method="ppo"))
    for run, rubric in ((initial, "initial"), (expert, "expert")):
        _finish(run, 100, gold=(30, 1.0), total=(100, 10.0))
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["config"]["method"]["rubric"] = rubric
        (run / "manifest.json").write_text(json.dumps(manifest))
    comparison = compare([initial, expert])
    table = make_main_table(comparison, comparison.rows, [], [])
    caveats = table.headings.index("caveats")
    assert ["gold judge's rubric" in str(row[caveats]) for row in table.rows] == [False, True]
    [line] = [line for line in list_cautions(comparison) if "gold judge's own rubric" in line]
    assert "rubric=expert" in line
    assert "rubric=initial" not in line
    _finish(expert, 100, total=(100, 10.0))  # no gold judge
    assert not any("gold judge" in line for line in list_cautions(compare([initial, expert])))


def test_a_papers_ratio_of_run_times_stands_beside_the_measured_one(tmp_path: Path) -> None:
    fixed = write_rubric_run(tmp_path / "ppo", RubricSpec(refinements=1, method="ppo"))
    refined = write_rubric_run(tmp_path / "mpo", RubricSpec(refinements=2))
    for run, seconds, cost in ((fixed, 200, {}), (refined, 250, {"refine": (9, 0.9)})):
        _finish(run, seconds, total=(100, 10.0), **cost)
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["config"]["reported"] = composed("experiment=mpo/overhead")["reported"]
        (run / "manifest.json").write_text(json.dumps(manifest))
    grid = make_overhead_table(compare([fixed, refined]))
    assert grid.headings[-2:] == ["relative to a\nfixed rubric", "reported"]
    assert grid.shown()[-1][-2:] == ["1.25", "1.11"]


def test_a_papers_figures_of_training_steps_stand_beside_the_measured_ones(tmp_path: Path) -> None:
    """Table 5 of MPO: the share of Chinese characters."""
    run = write_rubric_run(tmp_path / "ppo", RubricSpec(refinements=1, method="ppo"))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config"]["reported"] = composed("experiment=mpo/reward_hacking")["reported"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    of_step = {"calls": 1, "tokens": 1, "problem": "*"}
    figures = [{"step": step, "figures": {"monitor_foreign_script": step / 1000}, **of_step} for step in (10, 40)]
    (run / "training.jsonl").write_text("".join(json.dumps(one) + "\n" for one in figures))
    rows = make_reported_steps_table(compare([run])).shown()
    assert [row[2:] for row in rows] == [
        ["10", "0.01", "0.00406"],
        ["20", "\u2013", "0.00229"],
        ["30", "\u2013", "0"],
        ["40", "0.04", "0.10714"],
        ["50", "\u2013", "0.22957"],
    ]


def test_a_papers_figures_of_training_steps_stand_beside_means_over_seeds(tmp_path: Path) -> None:
    runs = []
    for seed in range(3):
        run = write_rubric_run(tmp_path / f"ppo_{seed}", RubricSpec(refinements=1, method="ppo"))
        _finish(run, 100, total=(100, 10.0))
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["seed"] = manifest["config"]["seed"] = seed
        manifest["config"]["reported"] = composed("experiment=mpo/reward_hacking")["reported"]
        (run / "manifest.json").write_text(json.dumps(manifest))
        figures = {"monitor_foreign_script": 0.4 + 0.01 * seed}
        record = {"step": 40, "figures": figures, "calls": 1, "tokens": 1, "problem": "*"}
        (run / "training.jsonl").write_text(json.dumps(record) + "\n")
        runs.append(run)
    table = make_reported_steps_table(compare(runs))
    assert table.headings == ["run", "figure", "step", "measured", "95 % interval\nover seeds", "seeds", "reported"]
    assert [row[1:] for row in table.shown()][3] == [
        "monitor foreign script", "40", "0.41", "0.385 to 0.435", "3", "0.10714"
    ]  # fmt: skip


def test_run_times_below_a_minute_have_no_ratio(runs: list[Path], tmp_path: Path) -> None:
    assert "less than a minute" not in describe_overhead(compare(runs))
    short = write_rubric_run(tmp_path / "mpo", RubricSpec(refinements=1))
    _finish(short, 9, refine=(9, 0.9), total=(100, 10.0))
    comparison = compare([*runs, short])
    assert describe_overhead(comparison).endswith("There is none where either took less than a minute.")
    assert [row[-1] for row in make_overhead_table(comparison).shown()] == ["1.11", "\u2013"]


def test_several_hacked_runs_are_told_of_in_one_line_a_sign(tmp_path: Path) -> None:
    hacked = [write_rubric_run(tmp_path / f"{n}", RubricSpec(hacked=True, every=10 + 5 * n)) for n in range(2)]
    said = [line for line in compare(hacked).warnings if "hacking" in line]
    assert [line.partition("Reward hacking? ")[2][:31] for line in said] == [
        "Training reward and gold score ",
        "Letters of a foreign script (sh",
    ]


def test_lengths_and_strictness_are_means_over_keys_by_refinement(runs: list[Path]) -> None:
    ppo, mpo = sorted(compare(runs).runs, key=lambda run: run.manifest.method, reverse=True)
    assert [point.x for point in compute_rubric_lengths(mpo)] == [0, 1, 2]
    assert len(compute_rubric_lengths(ppo)) == 1
    assert [(one.x, pytest.approx(one.value), one.ci95) for one in compute_rubric_strictness(mpo)] == [
        (0, 0.7, None),
        (1, 0.4, None),
    ]
    assert compute_rubric_strictness(ppo) == []
