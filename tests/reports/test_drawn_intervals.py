"""Intervals, means over seeds and studies in figures are those of the records: read back from the page."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from comparison_fixture import edit_manifest, write_method
from drawn import Panel, Series, panels_of
from evolution_fixture import write_evolution
from rubric_fixture import RubricSpec, write_rubric_run
from scipy import stats
from test_drawn_coordinates import RIGHT, group_of, has, read, scores_along

from evorun.reports.comparison import compare, export_comparison
from evorun.reports.comparison.output import write_comparison
from evorun.reports.comparison.tables import make_main_table
from evorun.reports.html import render_report
from evorun.reports.population import count_item_words
from evorun.runs.crossed import crossed_mean, tabulate
from evorun.runs.statistics import Proportion, pooled_share
from run_fixture import RunSpec, write_run

pytestmark = pytest.mark.usefixtures("drawn_figures")

RANDOM = {"models": {"policy": {"name": "random", "id": "random", "engine": "simulated"}}, "simulated": True}


def wilson(share: float, n: int) -> tuple[float, float]:
    low, high = stats.binomtest(round(share * n), n).proportion_ci(method="wilson")
    return float(low), float(high)


def has_bar(panel: Panel, *ends: float) -> bool:
    return any(bar == pytest.approx(ends, rel=3e-3, abs=3e-3) for bar in panel.bars)


def is_band(area: Series, ends: list[tuple[float, float, float]]) -> bool:
    """Tell whether an outline has both ends of each interval, given where each stands, and none besides."""
    wanted = [(at, value) for at, low, high in ends for value in (low, high)]
    return all(any(p == pytest.approx(w, rel=3e-3, abs=3e-3) for p in area) for w in wanted) and all(
        any(p == pytest.approx(w, rel=3e-3, abs=3e-3) for w in wanted) for p in area
    )


def write_artifact(run: Path, name: str, records: list[dict[str, Any]]) -> None:
    (run / "artifacts").mkdir(exist_ok=True)
    (run / "artifacts" / name).write_text(json.dumps(records))


@pytest.fixture(name="of_one", scope="module")
def _of_one(tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]) -> tuple[Path, str]:
    run = write_method(tmp_path_factory.mktemp("one") / "run", RIGHT, steps=4, calls={"generate": 50})
    with drawing_only("accuracy-*"):
        return run, render_report(run)


@pytest.mark.nightly
def test_bands_of_strata_are_wilsons_intervals_of_their_own_problems(of_one: tuple[Path, str]) -> None:
    run, html = of_one
    panels = panels_of(html, "Accuracy by generation in each stratum")
    by_stratum = group_of(read(run, "steps"), "stratum")
    assert [panel.title for panel in panels] == sorted(by_stratum)
    for panel in panels:
        by_step = sorted(group_of(by_stratum[panel.title], "step").items())
        shares = [(step, fmean(one["correct"] for one in own), len(own)) for step, own in by_step]
        assert has(panel, [(step, share) for step, share, _ in shares])
        (band,) = panel.areas
        assert is_band(band, [(step, *wilson(share, n)) for step, share, n in shares])


def test_means_in_strata_are_exported_as_points_with_intervals_over_their_seeds(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("accuracy-strata")
    right = [[i % 3 == 0 or i < 3 + seed for i in range(7)] for seed in range(3)]
    runs = [write_method(tmp_path / str(seed), own, seed=seed, steps=2) for seed, own in enumerate(right)]
    export_comparison(compare(runs), tmp_path / "files")
    points = list(csv.DictReader((tmp_path / "files" / "points.csv").open()))
    found = {(p["stratum"], int(p["step"])): p for p in points if p["figure"] == "accuracy-strata"}
    seeds = [group_of(read(run, "steps"), "stratum") for run in runs]
    ends = set()
    for (stratum, step), point in found.items():
        means = [fmean(one["correct"] for one in own[stratum] if one["step"] == step) for own in seeds]
        ci95 = stats.t.interval(0.95, 2, fmean(means), stats.sem(means)) if len(set(means)) > 1 else [fmean(means)] * 2
        low, high = max(ci95[0], 0), min(ci95[1], 1)
        assert (point["arm"], point["run"]) == ("zero_shot", "")
        assert float(point["value"]) == pytest.approx(fmean(means))
        drawn = [float(point[end]) for end in ("low", "high") if point[end]]
        assert drawn == ([] if (low, high) == (0, 1) else pytest.approx([low, high]))
        ends.add("whole range" if not drawn else "no width" if low == high else "usual")
    assert len(found) == 3 * 2
    assert ends == {"whole range", "no width", "usual"}
    (caption,) = [
        one["caption"]
        for one in csv.DictReader((tmp_path / "files" / "captions.csv").open())
        if one["figure"] == "accuracy-strata"
    ]
    assert "they have no width where all seeds agree, and there is none where it would be the whole range" in caption


@pytest.mark.parametrize("unit", ["generation", "calls per problem", "tokens per problem"])
def test_a_runs_band_is_wilsons_interval_at_each_point(of_one: tuple[Path, str], unit: str) -> None:
    run, html = of_one
    (panel,) = panels_of(html, f"Accuracy against {unit}")
    series = scores_along(run, {"generation": "step"}.get(unit, unit.partition(" ")[0]), of_run=False)
    (band,) = panel.areas
    assert is_band(band, [(at, *wilson(share, len(RIGHT))) for at, share in series])


@pytest.mark.nightly
def test_other_scores_are_drawn_each_on_its_own_scale(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("scores", "penalised_score-step")
    names = {"accuracy": 1, "penalised_score": 100, "first_other": 10, "second_other": 1000}
    declared = [{"name": name, "low": 0, "high": high, "rate": name == "accuracy"} for name, high in names.items()]
    scores = {name: [high * (i + 1) / 10 for i in range(7)] for name, high in list(names.items())[1:]}
    run = write_method(tmp_path / "run", RIGHT, steps=4, scores=scores, declared=declared)
    html, by_step = render_report(run), sorted(group_of(read(run, "steps"), "step").items())
    panels = {panel.title: panel for panel in panels_of(html, "Scores by generation")}
    panels["penalised score"] = panels_of(html, "Penalised score against generation")[0]
    assert list(panels) == ["first other (scale 0 to 10)", "second other (scale 0 to 1000)", "penalised score"]
    for (name, high), panel in zip([*list(names.items())[2:], ("penalised_score", 100)], panels.values(), strict=True):
        share = [(step, fmean(one["scores"][name] for one in own) / high) for step, own in by_step]
        panel.lines = [[(x, y / high) for x, y in line] for line in panel.lines]
        assert has(panel, share)


def test_bars_of_the_judge_draw_problems_again(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("decisive", "calibration")
    run = write_run(tmp_path / "run", RunSpec(problems=10, candidates=12, duels=60))
    html = render_report(run)

    def drawn_again(records: list[dict[str, Any]], right: str, wanted: list[Any]) -> tuple[float, float]:
        shares = [
            Proportion(sum(one[right] in wanted for one in own), len(own))
            for own in group_of(records, "problem").values()
        ]
        ends = pooled_share(shares).ci95
        assert ends is not None
        return ends

    (decisive,) = panels_of(html, "Decisive share of duels by generation")
    for step, duels in group_of(read(run, "comparisons"), "step").items():
        low, high = drawn_again(duels, "outcome", ["first", "second"])
        assert has_bar(decisive, step, low, step, high)
    (calibration,) = panels_of(html, "Share of right candidates by posterior mean")
    rated = sorted(read(run, "candidates"), key=lambda one: one["mean"])
    for own in (rated[i : i + 15] for i in range(0, 120, 15)):
        low, high = drawn_again(own, "correct", [True])
        at = fmean(one["mean"] for one in own)
        assert has_bar(calibration, at, low, at, high)


@pytest.fixture(name="seeded", scope="module")
def _seeded(tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]) -> tuple[list[list[Path]], str]:
    """Two methods of three seeds each, of which the second has one step; and a floor."""
    folder = tmp_path_factory.mktemp("seeded")
    rights = [[i < 9 - 2 * rank - seed for i in range(12)] for rank in (0, 1) for seed in range(3)]
    config = {"reported": {"source": "a paper", "rows": [{"method": "gepa", "accuracy": 0.9}]}}
    runs = [
        write_method(
            folder / f"{method}{seed}", rights[3 * rank + seed], method=method, seed=seed, steps=steps,
            calls={"generate": 10 + 4 * seed}, config={"method": {"name": method}, "seed": seed, **config},
        )
        for rank, (method, steps) in enumerate((("gepa", 4), ("zero_shot", 1)))
        for seed in range(3)
    ]  # fmt: skip
    floor = write_method(folder / "floor", [i < 2 for i in range(12)], method="gepa", steps=4, **RANDOM)
    with drawing_only("accuracy-*", "final-*"):
        page = write_comparison(compare([*runs, floor]), folder / "comparison.html").read_text()
    return [runs[:3], runs[3:], [floor]], page


def t_interval(values: list[float]) -> tuple[float, float]:
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return max(float(low), 0.0), min(float(high), 1.0)


def over_both(runs: list[Path]) -> tuple[float, float]:
    """Return the interval over seeds and problems."""
    seeds = [{one["problem"]: float(one["correct"]) for one in read(run, "predictions")} for run in runs]
    found = crossed_mean(tabulate(seeds))
    assert found is not None
    low, high = found.interval()
    return max(low, 0.0), min(high, 1.0)


@pytest.mark.parametrize("unit", ["step", "calls", "tokens"])
def test_means_over_seeds_stand_among_their_runs_with_students_interval(
    seeded: tuple[list[list[Path]], str], unit: str
) -> None:
    (gepa, zero_shot, (floor,)), page = seeded
    label = "step" if unit == "step" else f"{unit} per problem"
    (panel,) = panels_of(page, f"Accuracy on mathbench against {label}")

    def is_line(name: str, series: Series) -> bool:
        return has(Panel("", "", "", lines=[panel.named[f"accuracy-{unit}-{name}"]]), series)

    curves = [scores_along(run, unit, of_run=False) for run in gepa]
    for seed, curve in enumerate(curves):
        assert is_line(f"0-seed-{seed}", curve)
    steps = list(zip(*curves, strict=True))
    means = [(fmean(x for x, _ in of), fmean(y for _, y in of)) for of in steps]
    assert is_line("0", means)
    (band,) = panel.areas
    assert is_band(band, [(at, *t_interval([y for _, y in of])) for (at, _), of in zip(means, steps, strict=True)])
    ends = [scores_along(run, unit, of_run=False)[0] for run in zero_shot]
    (mark,) = panel.named[f"accuracy-{unit}-1"]
    assert mark[1] == pytest.approx(fmean(y for _, y in ends), abs=2e-3)
    if unit != "step":
        assert mark[0] == pytest.approx(fmean(x for x, _ in ends), rel=3e-3)
    low, high = over_both(zero_shot)
    assert has_bar(panel, mark[0], low, mark[0], high)
    level = scores_along(floor, unit, of_run=False)[-1][1]
    assert [y for _, y in panel.named[f"accuracy-{unit}-2"]] == pytest.approx([level, level], abs=2e-3)


def test_final_scores_have_their_intervals_their_runs_and_the_papers_figure(
    seeded: tuple[list[list[Path]], str],
) -> None:
    arms, page = seeded
    (panel,) = panels_of(page, "Final accuracy on mathbench")
    finals = [[fmean(one["correct"] for one in read(run, "predictions")) for run in runs] for runs in arms]
    ends = [max(x for x, _ in bar) for bar in panel.patches if min(x for x, _ in bar) == pytest.approx(0, abs=1e-6)]
    assert [end for end in ends if end < 1] == pytest.approx([fmean(one) for one in finals], abs=2e-3)
    heights = {round(y, 1) for _, y, _, _ in panel.bars}
    assert len(heights) == 3  # an interval is on the bar that it is about
    of_arms = [over_both(arms[0]), over_both(arms[1]), wilson(finals[2][0], 12)]
    drawn = [sorted({(low, high) for low, y, high, _ in panel.bars if round(y, 1) == at}) for at in sorted(heights)]
    assert [one[0] for one in drawn] == [pytest.approx(one, abs=3e-3) for one in of_arms]
    circles = [[x for x, _ in line] for line in panel.lines if len(line) == 3]
    assert circles == [pytest.approx(one, abs=2e-3) for one in finals[:2]]
    assert all(len({y for _, y in line}) == 3 for line in panel.lines if len(line) == 3)  # equal ones are seen, too
    assert [x for line in panel.lines if len(line) == 1 for x, _ in line] == [pytest.approx(0.9, abs=2e-3)]


@pytest.mark.nightly
def test_seeds_that_agree_have_a_bar_beside_the_others(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    """Without one they would look certain."""
    draw_only("final-*", "front-*")
    alike = [
        write_method(tmp_path / f"a{seed}", [i < 6 for i in range(9)], seed=seed, calls={"generate": 4})
        for seed in range(3)
    ]
    apart = [
        write_method(tmp_path / f"b{seed}", [i < 5 + seed for i in range(9)], method="gepa", seed=seed)
        for seed in range(3)
    ]
    compared = compare([*alike, *apart])
    page = write_comparison(compared, tmp_path / "comparison.html").read_text()
    low, high = over_both(alike)
    (final,) = panels_of(page, "Final accuracy on mathbench")
    assert any((one[0], one[2]) == pytest.approx((low, high), abs=3e-3) for one in final.bars)
    (front,) = panels_of(page, "Accuracy on mathbench against tokens: arms that none dominates")
    assert any((one[1], one[3]) == pytest.approx((low, high), abs=3e-3) for one in front.bars)
    assert page.count("With 95 % intervals over seeds and problems") == 2  # the legends of both
    (shown,) = [row for row in make_main_table(compared, compared.rows, [], []).shown() if row[0] == "zero_shot"]
    assert f"{100 * low:.1f} to {100 * high:.1f} %" in shown


@pytest.mark.nightly
def test_means_of_training_and_of_rubrics_are_over_what_all_seeds_have(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("training-normalised_reward", "rubric-lengths")
    runs, series, words = [], [], []
    for seed in range(3):
        run = write_rubric_run(tmp_path / f"{seed}", RubricSpec(refinements=2, every=4, words=10 + 20 * seed))
        edit_manifest(run, seed=seed, status="completed")
        records, candidates = read(run, "training"), read(run, "candidates")
        for one in records:
            one["figures"]["reward_normalised"] = 0.9 - 0.08 * seed + 0.01 * one["step"]
        if seed == 2:  # ended early, after one refinement
            records, candidates = records[:-2], [one for one in candidates if one["id"] != "rubric#2"]
        for name, kept in (("training", records), ("candidates", candidates)):
            (run / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
        write_method_results(run)
        runs.append(run)
        series.append([(one["step"], one["figures"]["reward_normalised"]) for one in records])
        rubrics = [one["text"] for one in candidates if one.get("kind") == "rubric"]
        words.append(list(enumerate(map(count_item_words, rubrics))))
    comparison = compare(runs)
    page = write_comparison(comparison, tmp_path / "comparison.html").read_text()
    (rewards,) = panels_of(page, "Normalised reward on essay by training step")
    (lengths,) = panels_of(page, "Words per item on essay by refinements")
    for panel, lines in ((rewards, series), (lengths, words)):
        assert all(has(panel, one) for one in lines)
        assert has(panel, [(of[0][0], fmean(y for _, y in of)) for of in zip(*lines, strict=False)])
    assert rewards.areas == []  # a step's few rollouts would widen and narrow them at random
    by_number = [[y for _, y in of] for of in zip(*words, strict=False)]
    first, second = by_number
    low, high = stats.t.interval(0.95, 2, fmean(second), stats.sem(second))
    (band,) = lengths.areas
    assert low < 0  # which no number of words is
    assert is_band(band, [(0, first[0], first[0]), (1, 0, high)])  # all start with the same rubric

    export_comparison(comparison, tmp_path / "files")
    points = list(csv.DictReader((tmp_path / "files" / "points.csv").open()))
    assert sum(one["figure"] == "training-normalised_reward" for one in points) == 3 * 8 - 2 + 6
    means = [one for one in points if one["figure"] == "rubric-lengths" and not one["run"]]
    assert [float(one["value"]) for one in means] == pytest.approx(list(map(fmean, by_number)))
    assert [float(one["high"]) for one in means] == pytest.approx([first[0], high])
    assert len({one["run"] for one in points if one["figure"] == "rubric-lengths"}) == 1 + 3


def write_method_results(run: Path) -> None:
    """Write what a finished run has."""
    results = {"metrics": {"rubric": {"value": 0.5, "ci95": None, "n": 1}}, "by_stratum": {}, "cost": {}, "counts": {}}
    (run / "results.json").write_text(json.dumps(results))


@pytest.fixture(name="evolved", scope="module")
def _evolved(tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]) -> tuple[Path, str]:
    run = write_evolution(tmp_path_factory.mktemp("espl") / "run")
    cells = [
        {"step": step, "candidate": who, "score": score, "n": 64, "low": score - 0.1, "high": score + 0.07}
        for (who, step), score in {("0.0", 0): 0.2, ("0.0", 12): 0.5, ("9.0", 0): 0.3, ("9.0", 12): 0.75}.items()
    ]
    write_artifact(run, "transplant.json", cells)
    effects = [{"principle": f"p{i}", "effect": at, "low": at - 0.05, "high": at + 0.02, "n": 64} for i, at in
               enumerate((0.1, -0.2, 0.03))]  # fmt: skip
    write_artifact(run, "delete_one.json", effects)
    with drawing_only("ratings", "rating-score", "transplant", "principles", "tree"):
        return run, render_report(run)


@pytest.mark.nightly
def test_bands_of_ratings_and_bars_of_test_scores_are_those_of_the_records(evolved: tuple[Path, str]) -> None:
    run, html = evolved
    courses = group_of(read(run, "ratings"), "candidate")
    last = max(one["step"] for one in read(run, "ratings"))
    best = max((own for own in courses.values() if own[-1]["survivor"]), key=lambda own: own[-1]["mean"])
    (panel,) = panels_of(html, "Ratings of system prompts by training step")
    (band,) = panel.areas
    held = {**{one["step"]: one for one in best}, last: best[-1]}
    assert is_band(band, [(at, one["mean"] - one["sd"], one["mean"] + one["sd"]) for at, one in held.items()])
    (panel,) = panels_of(html, "Test accuracy against rating")
    for one in read(run, "prompt_scores"):
        at = [r["mean"] for r in courses[one["candidate"]] if r["step"] <= one["step"]][-1]
        assert has_bar(panel, at, one["low"], at, one["high"])


@pytest.mark.nightly
def test_studies_of_prompts_are_drawn_as_they_were_recorded(evolved: tuple[Path, str]) -> None:
    run, html = evolved
    cells = json.loads((run / "artifacts" / "transplant.json").read_text())
    (panel,) = panels_of(html, "Test accuracy by weights and prompt")
    for own in group_of(cells, "candidate").values():
        assert has(panel, [(one["step"], one["score"]) for one in own])
    assert all(has_bar(panel, one["step"], one["low"], one["step"], one["high"]) for one in cells)
    (panel,) = panels_of(html, "Effect of each principle")
    for number, one in enumerate(json.loads((run / "artifacts" / "delete_one.json").read_text()), 1):
        assert has(panel, [(one["effect"], number)])
        assert has_bar(panel, one["low"], number, one["high"], number)


@pytest.mark.nightly
def test_a_trees_edges_join_each_member_to_its_parents(evolved: tuple[Path, str]) -> None:
    run, html = evolved
    panel = panels_of(html, "Evolutionary tree of system prompts by training step")[0]
    members = [one for one in read(run, "candidates") if one["problem"] == "*"]
    place = {one["id"]: panel.named[f"prompt-{index}"][0] for index, one in enumerate(members)}
    edges = [(edge[0], edge[-1]) for edge in panel.patches if len(edge) == 4]
    wanted = [(place[parent], place[one["id"]]) for one in members for parent in one["parents"]]
    assert len(edges) == len(wanted)
    for start, end in wanted:
        assert any(near(edge[0], start) and near(edge[1], end) for edge in edges)


def near(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one == pytest.approx(other, rel=1e-3, abs=1e-2)


@pytest.mark.nightly
def test_figures_of_rubrics_have_their_refinements_thresholds_signs_and_strictness(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("rubric-strictness", "monitors", "gold", "rewards-and-kl")
    run = write_rubric_run(tmp_path / "run", RubricSpec(refinements=2, every=5, hacked=True))
    about = {"step": 10, "n": 3, "unscored": 0}
    strict = [
        {"rubric": f"rubric#{n}", "refined": 5 * n, "score": at, "low": at - 0.1, "high": at + 0.2, **about}
        for n, at in enumerate((0.7, 0.5, 0.4))
    ]
    write_artifact(run, "rubric_scores.json", strict)
    html, training = render_report(run), read(run, "training")
    (panel,) = panels_of(html, "Score of the same responses under each rubric")
    assert has(panel, [(n, one["score"]) for n, one in enumerate(strict)])
    assert all(has_bar(panel, n, one["low"], n, one["high"]) for n, one in enumerate(strict))

    def levels(panel: Panel, axis: int) -> set[float]:
        """Return where lines stand that run along one axis, through the whole panel."""
        straight = [line for line in panel.lines if len(line) == 2 and line[0][axis] == pytest.approx(line[1][axis])]
        return {round(line[0][axis], 2) for line in straight}

    refined = {one["step"] + 0.5 for one in training if one["figures"].get("rubrics_refined")}
    monitors = {panel.title: panel for panel in panels_of(html, "Monitors of reward hacking by training step")}
    for name, title in (("words", "words per response"), ("foreign_script", "letters of a foreign script (share)")):
        assert has(monitors[title], [(one["step"], one["figures"][f"monitor_{name}"]) for one in training])
        assert levels(monitors[title], 0) == refined
    assert 0.05 in levels(monitors["letters of a foreign script (share)"], 1)
    (gold,) = panels_of(html, "Gold score beside the training reward")
    assert levels(gold, 0) == refined
    first, *others = panels_of(html, "Rewards and KL divergence by training step")
    assert levels(first, 0) == refined
    assert [levels(panel, 0) for panel in others] == [refined] * len(others)
    collapsed = [one["step"] for one in training if one["figures"]["reward_collapse"]]
    assert [line[0][0] for line in first.lines if len(line) == 1] == pytest.approx(collapsed)
    grades = sorted(group_of(read(run, "steps"), "step").items())
    for bar, (step, own) in zip(sorted(gold.bars), grades, strict=True):
        values = [one["scores"]["rubric"] for one in own]
        bca = stats.bootstrap((values,), np.mean, method="BCa", rng=np.random.default_rng(1)).confidence_interval
        assert bar == pytest.approx((step, bca.low, step, bca.high), abs=5e-3)


@pytest.mark.parametrize(("recovers", "until"), [pytest.param(False, 30, marks=pytest.mark.nightly), (True, 25)])
def test_the_span_is_shaded_in_which_reward_and_gold_part(
    tmp_path: Path, recovers: bool, until: int, draw_only: Callable[..., None]
) -> None:
    draw_only("gold")
    run = write_rubric_run(tmp_path / "run", RubricSpec(hacked=True))
    steps = read(run, "steps")
    for one in steps:
        if recovers and one["step"] == 30:
            one["scores"]["rubric"] = 0.6
    (run / "steps.jsonl").write_text("".join(json.dumps(one) + "\n" for one in steps))
    (panel,) = panels_of(render_report(run), "Gold score beside the training reward")
    edges = [sorted({round(x, 2) for x, _ in patch}) for patch in panel.patches]
    assert [20, until] in edges  # from the first evaluation after the fall, as the banner says


@pytest.mark.nightly
def test_no_span_is_shaded_where_reward_and_gold_rise_together(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("gold")
    run = write_rubric_run(tmp_path / "run", RubricSpec())
    (panel,) = panels_of(render_report(run), "Gold score beside the training reward")
    widths = [max(x for x, _ in patch) - min(x for x, _ in patch) for patch in panel.patches]
    assert [width for width in widths if 0 < width < 30] == []


@pytest.mark.nightly
def test_lines_of_a_comparisons_rubrics_are_means_over_keys(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("rubric-*")
    runs = [
        write_rubric_run(tmp_path / method, RubricSpec(keys=("a", "b"), refinements=2, method=method, words=words))
        for method, words in (("mpo", 10), ("ppo", 30))
    ]
    scores = [[0.8, 0.6], [0.5, 0.3], [0.4, 0.1]]
    about = {"step": 20, "low": 0.0, "high": 1.0, "n": 3, "unscored": 0}
    for shift, run in enumerate(runs):
        found = [
            {"rubric": f"{key}#{n}", "refined": 10 * n, "score": of[at] - 0.05 * shift, **about}
            for n, of in enumerate(scores)
            for at, key in enumerate("ab")
        ]
        write_artifact(run, "rubric_scores.json", found)
    page = write_comparison(compare(runs), tmp_path / "comparison.html").read_text()
    (lengths,) = panels_of(page, "Words per item on essay by refinements")
    (strictness,) = panels_of(page, "Share of points given on essay by refinements")
    for shift, run in enumerate(runs):
        rubrics = [one["text"] for one in read(run, "candidates") if one["problem"] == "*"]
        items = [text.replace("</item>", "").replace("</rubric>", "").split("<item>")[1:] or [text] for text in rubrics]
        words = [fmean(len(item.split()) for item in of) for of in items]
        assert has(lengths, [(n, fmean(words[2 * n : 2 * n + 2])) for n in range(3)])
        assert has(strictness, [(n, fmean(of) - 0.05 * shift) for n, of in enumerate(scores)])
