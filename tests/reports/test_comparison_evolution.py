"""Several runs side by side: evolved texts with their differences, training curves, and costs."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
from comparison_fixture import edit_manifest, write_method
from drawn import panels_of
from evolution_fixture import EvolutionSpec, write_evolution
from markup import Page
from rubric_fixture import RubricSpec, write_rubric_run

from evorun.reports.comparison import compare
from evorun.reports.comparison.evolution import collect_evolved_texts, compare_lines
from evorun.reports.comparison.output import write_comparison
from evorun.reports.comparison.search_notes import search_note
from evorun.reports.comparison.tables import make_data_tables, make_run_cost_table, make_search_table

pytestmark = pytest.mark.usefixtures("drawn_figures")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\nd", "a\nc\nx\nd\ny"),
        ("", "one line"),
        ("the same\ntwice", "the same\ntwice"),
        ("<b>\n\n\n", "\n<script>\n"),
    ],
)
def test_either_text_can_be_told_from_the_lines_of_a_difference(before: str, after: str) -> None:
    lines = compare_lines(before, after)
    assert "\n".join(line.text for line in lines if line.kind != "gone") == after
    assert "\n".join(line.text for line in lines if line.kind != "added") == before
    if before == after:
        assert {line.kind for line in lines} == {"common"}


def test_the_best_prompt_of_each_run_stands_beside_the_others_and_stays_a_text(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only()
    runs = [write_evolution(tmp_path / f"{seed}", EvolutionSpec(seed=seed, hostile=True)) for seed in range(2)]
    for seed, run in enumerate(runs):
        edit_manifest(run, seed=seed, config={"method": {"name": "espl"}, "seed": seed})
    comparison = compare(runs)
    found = collect_evolved_texts(comparison)
    assert [one.run for one in found] == [run.name for run in comparison.runs]
    for one, run in zip(found, comparison.runs, strict=True):
        # the one with the highest last rating among those that are kept
        records = [json.loads(line) for line in (run.outcome.run_dir / "ratings.jsonl").open()]
        last = {record["candidate"]: record for record in records}
        best = max((record for record in last.values() if record["survivor"]), key=lambda record: record["mean"])
        texts = {
            record["id"]: record["text"]
            for record in map(json.loads, (run.outcome.run_dir / "candidates.jsonl").open())
            if record["problem"] == "*"
        }
        assert one.text == texts[best["candidate"]]
        assert f"{best['candidate']}, made in training step" in one.title
    assert [len(one.differences) for one in found] == [1, 2]
    page = Page(write_comparison(comparison, tmp_path / "comparison.html").read_text())
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "img", "iframe", "object", "base", "form"})
    lines = [line for one in found for line in one.text.split("\n") if "<" in line]
    assert lines
    assert all(line in page.text for line in lines)


def test_crossovers_are_counted_and_a_run_without_any_is_warned_of(tmp_path: Path) -> None:
    # the fixture makes one in every fourth step
    settings: list[tuple[int, int, dict[str, float]]] = [
        (0, 8, {"crossover_rate": 0.2}),
        (1, 3, {"crossover_rate": 0.2}),
        (0, 3, {"crossover_rate": 0.0}),
        (1, 3, {"crossover_rate": 0.2, "evolve": False}),
    ]
    folders = []
    for number, (seed, steps, method) in enumerate(settings):
        folders.append(write_evolution(tmp_path / f"{number}", EvolutionSpec(steps=steps, seed=seed)))
        edit_manifest(folders[-1], seed=seed, config={"method": {"name": "espl", **method}, "seed": seed})
    comparison = compare(folders)
    table = make_search_table(comparison.rows)
    per_run = list(table.headings).index("crossovers\nper run")
    assert sorted(str(row[per_run]) for row in table.rows) == ["0", "0", "1"]
    assert "Crossovers per run: " in search_note(comparison)
    arms = next(table for table in make_data_tables(comparison) if table.name == "arms")
    exported = list(arms.headings).index("crossovers_per_run")
    assert sorted(row[exported] for row in arms.rows) == [0, 0, 1]
    (warning,) = (line for line in comparison.warnings if "No crossover: " in line)
    warned = next(run for run in comparison.runs if run.outcome.run_dir == folders[1])
    assert warning.startswith(f"{warned.name}: No crossover: ")
    assert "method.crossover_rate is 0.2" in warning


def test_last_rubrics_are_compared_key_by_key(tmp_path: Path) -> None:
    runs = [
        write_rubric_run(tmp_path / "few", RubricSpec(keys=("a", "b"), refinements=1)),
        write_rubric_run(tmp_path / "many", RubricSpec(keys=("b",), refinements=2)),
    ]
    for refine_every, run in enumerate(runs):
        edit_manifest(run, config={"method": {"name": "mpo", "refine_every": refine_every}})
    found = collect_evolved_texts(compare(runs))
    assert [one.title.partition(",")[0] for one in found] == [
        "last rubric for a: a#1",
        "last rubric for b: b#1",
        "last rubric for b: b#2",
    ]
    other = found[2].differences[1]
    assert other.other == f"that of {found[1].run}"
    assert "\n".join(line.text for line in other.lines if line.kind != "added") == found[1].text


def test_reward_kl_and_gold_score_are_drawn_over_one_another(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("training-*", "gold-*")
    runs = [
        write_rubric_run(tmp_path / method, RubricSpec(refinements=1, method=method, hacked=method == "ppo"))
        for method in ("ppo", "mpo")
    ]
    page = write_comparison(compare(runs), tmp_path / "comparison.html").read_text()
    for label, name in (("Normalised reward", "reward_normalised"), ("KL from the reference (nats per token)", "kl")):
        (panel,) = panels_of(page, f"{label} on essay by training step")
        for run in runs:
            records = [json.loads(line) for line in (run / "training.jsonl").open()]
            expected = [(one["step"], one["figures"][name]) for one in records]
            assert any(line == [pytest.approx(at, abs=2e-3) for at in expected] for line in panel.lines)
    of_training = page.partition("<h2>Evolution and training</h2>")[2]
    (panel,) = panels_of(of_training, "Gold score on essay against training step")
    for run in runs:
        records = [json.loads(line) for line in (run / "steps.jsonl").open()]
        steps = sorted({one["step"] for one in records})
        expected = [(at, fmean(one["scores"]["rubric"] for one in records if one["step"] == at)) for at in steps]
        assert any(line == [pytest.approx(at, abs=2e-3) for at in expected] for line in panel.lines)


def test_each_method_has_the_cost_and_the_wall_clock_time_of_a_run(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / f"{method}{seed}", [True] * 4, method=method, seed=seed, calls={"generate": calls})
        for method, calls in (("gepa", 5), ("lyria", 7))
        for seed in range(2)
    ]
    for seconds, run in zip((10, 30, 200, 400), runs, strict=True):
        edit_manifest(run, seconds=seconds)
    grid = make_run_cost_table(compare(runs))
    by_name = {row[0]: row[1:] for row in grid.shown()}
    assert grid.headings[-1] == "wall-clock time"
    assert by_name["gepa"] == ["20", "2,200", "0.0 s", "20.0 s"]
    assert by_name["lyria"] == ["28", "3,080", "0.0 s", "5.0 min"]
