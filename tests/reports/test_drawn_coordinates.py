"""Figures show what the records say: coordinates read back from the page, against figures counted here anew."""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from comparison_fixture import write_method
from drawn import Panel, Series, panels_of
from evolution_fixture import write_evolution
from rubric_fixture import RubricSpec, write_rubric_run

from evorun.reports.comparison import compare
from evorun.reports.comparison.output import write_comparison
from evorun.reports.html import render_report
from run_fixture import RunSpec, write_run

pytestmark = pytest.mark.usefixtures("drawn_figures")

RIGHT = [True, True, False, True, False, False, True]


def read(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]


def scores_along(run: Path, unit: str, *, of_run: bool) -> Series:
    """Count the accuracy at each step of steps.jsonl, and what the run has spent by then."""
    last: dict[str, dict[str, Any]] = {}
    found = []
    records = read(run, "steps")
    problems = {record["problem"] for record in records}
    for step in sorted({record["step"] for record in records}):
        last |= {record["problem"]: record for record in records if record["step"] == step}
        spent = [role for record in last.values() for role in record["cost"].values()]
        cost = {
            "step": step,
            "calls": sum(role["calls"] for role in spent),
            "tokens": sum(role["prompt_tokens"] + role["completion_tokens"] for role in spent),
        }[unit]
        share = 1 if unit == "step" or of_run else len(problems)
        found.append((cost / share, sum(record["correct"] for record in last.values()) / len(problems)))
    return found


def has(panel: Panel, series: Series) -> bool:
    return any(len(line) == len(series) and is_near(line, series) for line in panel.lines)


def is_near(line: Series, series: Series) -> bool:
    return all(a == pytest.approx(b, rel=2e-3, abs=2e-3) for a, b in zip(line, series, strict=True))


def train(run: Path, calls: int = 10) -> Path:
    """Make of a run one that has trained, whose calls serve all problems."""
    steps = [{"step": i, "calls": calls * i, "tokens": 110 * calls * i, "figures": {"reward": i / 9}} for i in (1, 2)]
    (run / "training.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return run


LABELS = {
    False: {"step": "generation", "calls": "calls per problem", "tokens": "tokens per problem"},
    True: {"step": "training step", "calls": "calls of the run", "tokens": "tokens of the run"},
}


@pytest.fixture(
    name="of_one",
    scope="module",
    params=[pytest.param(False, marks=pytest.mark.nightly), True],
    ids=["searched", "trained"],
)
def _of_one(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]
) -> tuple[Path, str, bool]:
    run = write_method(tmp_path_factory.mktemp("one") / "run", RIGHT, steps=4, calls={"generate": 50, "judge": 3})
    with drawing_only("accuracy-*"):
        return run, render_report(train(run) if request.param else run), request.param


@pytest.mark.nightly
@pytest.mark.parametrize("unit", ["step", "calls", "tokens"])
def test_a_runs_curves_stand_at_the_costs_that_their_axis_names(of_one: tuple[Path, str, bool], unit: str) -> None:
    run, html, trained = of_one
    (panel,) = panels_of(html, f"Accuracy against {LABELS[trained][unit]}")
    assert panel.x == LABELS[trained][unit]
    assert has(panel, scores_along(run, unit, of_run=trained))


@pytest.fixture(
    name="of_two",
    scope="module",
    params=[*(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("neither", "both")), "one"],
)
def _of_two(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]
) -> tuple[list[Path], str, str]:
    """Two runs, of which neither, both or one has trained, and their comparison."""
    folder = tmp_path_factory.mktemp("two")
    runs = [
        write_method(folder / name, outcomes, method=name, steps=4, calls={"generate": calls})
        for name, outcomes, calls in (("gepa", RIGHT, 40), ("grpo", RIGHT[::-1], 60))
    ]
    for run in runs[: {"neither": 0, "both": 2, "one": 1}[request.param]]:
        train(run)
    with drawing_only("accuracy-*"):
        return runs, write_comparison(compare(runs), folder / "comparison.html").read_text(), request.param


@pytest.mark.parametrize("unit", ["step", "calls", "tokens"])
def test_a_comparisons_curves_share_one_unit_and_are_at_it(of_two: tuple[list[Path], str, str], unit: str) -> None:
    runs, page, kinds = of_two
    of_run = kinds != "neither"
    label = LABELS[of_run][unit]
    (panel,) = panels_of(page, f"Accuracy on mathbench against {label}")
    assert panel.x == label
    assert len({id(line) for line in panel.lines}) >= 2
    for run in runs:
        curve = scores_along(run, unit, of_run=of_run)
        if kinds == "one" and unit == "step" and run == runs[1]:  # it takes no training step
            assert [line[0][1] for line in panel.lines if len(line) == 1] == [pytest.approx(curve[-1][1], abs=2e-3)]
        else:
            assert has(panel, curve)


def group_of(records: list[dict[str, Any]], *keys: str) -> dict[Any, list[dict[str, Any]]]:
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[tuple(record[key] for key in keys) if len(keys) > 1 else record[keys[0]]].append(record)
    return groups


def test_final_scores_are_bars_that_end_where_the_predictions_do(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("final-*")
    runs = [write_method(tmp_path / name, right, method=name) for name, right in (("gepa", RIGHT), ("ppo", RIGHT[2:]))]
    page = write_comparison(compare(runs), tmp_path / "comparison.html").read_text()
    (panel,) = panels_of(page, "Final accuracy on mathbench")
    ends = [max(x for x, _ in bar) for bar in panel.patches if min(x for x, _ in bar) == pytest.approx(0, abs=1e-6)]
    expected = [fmean(one["correct"] for one in read(run, "predictions")) for run in runs]
    assert [end for end in ends if end < 1] == [pytest.approx(one, abs=2e-3) for one in sorted(expected, reverse=True)]


def test_figures_of_a_search_are_its_strata_duels_and_posteriors(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("accuracy-strata", "decisive", "calibration")
    run = write_run(tmp_path / "run", RunSpec(problems=6, candidates=12, duels=30))
    html = render_report(run)
    strata = {panel.title: panel for panel in panels_of(html, "Accuracy by generation in each stratum")}
    for name, records in group_of(read(run, "steps"), "stratum").items():
        series = [(at, fmean(r["correct"] for r in own)) for at, own in sorted(group_of(records, "step").items())]
        assert has(strata[name], series)
    (decisive,) = panels_of(html, "Decisive share of duels by generation")
    duels = group_of(read(run, "comparisons"), "step")
    assert has(decisive, [(at, fmean(d["outcome"] is not None for d in own)) for at, own in sorted(duels.items())])
    (calibration,) = panels_of(html, "Share of right candidates by posterior mean")
    graded = sorted((c["mean"], c["correct"]) for c in read(run, "candidates"))
    assert len(graded) == 72  # eight groups of nine
    groups = [graded[i : i + 9] for i in range(0, 72, 9)]
    assert has(calibration, [(fmean(mean for mean, _ in own), fmean(right for _, right in own)) for own in groups])


@pytest.mark.nightly
def test_a_single_arm_has_its_strata_as_means_over_seeds(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("accuracy-strata")
    small = RunSpec(problems=6, candidates=12, duels=6)
    runs = [write_run(tmp_path / f"run{seed}", replace(small, seed=seed, manifest={"seed": seed})) for seed in range(3)]
    page = write_comparison(compare(runs), tmp_path / "comparison.html").read_text()
    strata = {panel.title: panel for panel in panels_of(page, "Accuracy by generation in each stratum")}
    assert len(strata) == 3
    for name, records in group_of([one for run in runs for one in read(run, "steps")], "stratum").items():
        series = [(at, fmean(r["correct"] for r in own)) for at, own in sorted(group_of(records, "step").items())]
        assert has(strata[name], series)
    beside = write_run(tmp_path / "other", replace(small, manifest={"method": "lyria"}))
    assert "In each stratum" not in write_comparison(compare([*runs, beside]), tmp_path / "two.html").read_text()


@pytest.fixture(name="evolved", scope="module")
def _evolved(tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]) -> tuple[Path, str]:
    run = write_evolution(tmp_path_factory.mktemp("espl") / "run")
    with drawing_only("ratings", "reward-by-prompt", "rating-score", "tree", "training"):
        return run, render_report(run)


@pytest.mark.nightly
def test_figures_of_prompts_are_their_ratings_rewards_and_test_scores(evolved: tuple[Path, str]) -> None:
    run, html = evolved
    ratings = group_of(read(run, "ratings"), "candidate")
    last = max(one["step"] for one in read(run, "ratings"))
    (panel,) = panels_of(html, "Ratings of system prompts by training step")
    for course in ratings.values():
        series = [(one["step"], one["mean"]) for one in course]
        assert has(panel, [*series, (last, series[-1][1])] if course[-1]["survivor"] else series)
    means = {
        key: fmean(one["reward"] for one in own if one["reward"] is not None)
        for key, own in group_of(read(run, "rollouts"), "step", "candidate").items()
    }
    (panel,) = panels_of(html, "Reward by training step and prompt")
    points = [point for line in panel.lines for point in line]
    for (step, _), mean in means.items():
        assert any(point == pytest.approx((step, mean), abs=2e-3) for point in points)
    of_steps: dict[int, list[float]] = defaultdict(list)
    for (step, _), mean in means.items():
        of_steps[step].append(mean)
    assert has(panel, [(step, fmean(of_step)) for step, of_step in of_steps.items()])
    (panel,) = panels_of(html, "Test accuracy against rating")
    points = [point for line in panel.lines for point in line]
    for one in read(run, "prompt_scores"):
        rating = [r["mean"] for r in ratings[one["candidate"]] if r["step"] <= one["step"]][-1]
        assert any(point == pytest.approx((rating, one["score"]), rel=2e-3) for point in points)


def test_a_tree_has_its_members_at_the_steps_that_made_them(evolved: tuple[Path, str]) -> None:
    run, html = evolved
    panel = panels_of(html, "Evolutionary tree of system prompts by training step")[0]
    members = [one for one in read(run, "candidates") if one["problem"] == "*"]
    drawn = [panel.named[f"prompt-{index}"][0][0] for index in range(len(members))]
    assert drawn == [pytest.approx(one["generation"], abs=1e-3) for one in members]


@pytest.mark.nightly
def test_figures_of_training_steps_are_those_of_the_records(
    evolved: tuple[Path, str], tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("rewards-and-kl", "gold", "monitors", "unscored", "rubric-lengths")
    run, html = evolved
    training = read(run, "training")
    panels = {panel.title: panel for panel in panels_of(html, "What training steps measured")}
    words = {"sampler_kl": "sampler KL (nats per token)", "clip_ratio": "clipped tokens (share)", "reward": "reward"}
    for name, title in words.items():
        assert has(panels[title], [(one["step"], one["figures"][name]) for one in training])
        assert panels[title].x == "training step"

    rewarded = write_rubric_run(tmp_path / "mpo", RubricSpec(refinements=2, every=5))
    training, html = read(rewarded, "training"), render_report(rewarded)

    def series(name: str, missing: float | None = None) -> Series:
        found = ((one["step"], one["figures"].get(name, missing)) for one in training)
        return [(step, value) for step, value in found if value is not None]

    by_name = {panel.y: panel for panel in panels_of(html, "Rewards and KL divergence by training step")}
    assert has(by_name["raw reward"], series("reward_raw"))
    assert has(by_name["normalised reward"], series("reward_normalised"))
    assert has(by_name["KL (nats per token)"], series("kl"))
    (gold,) = panels_of(html, "Gold score beside the training reward")
    graded = sorted(group_of(read(rewarded, "steps"), "step").items())
    assert has(gold, [(step, fmean(one["scores"]["rubric"] for one in own)) for step, own in graded])
    assert has(gold, series("reward_normalised"))
    monitors = {panel.title: panel for panel in panels_of(html, "Monitors of reward hacking by training step")}
    assert has(monitors["words per response"], series("monitor_words"))
    (unscored,) = panels_of(html, "Responses without a score by reason")
    assert has(unscored, series("reward_unscored_cut_off", 0.0))
    (lengths,) = panels_of(html, "Mean words of rubric items by refinement")
    texts = [one["text"] for one in read(rewarded, "candidates") if one["problem"] == "*"]
    items = [
        text.replace("<rubric>", "").replace("</rubric>", "").replace("</item>", "").split("<item>") for text in texts
    ]
    words_of = [[len(item.split()) for item in of if item.strip()] for of in items]
    assert has(lengths, [(number, fmean(own)) for number, own in enumerate(words_of)])
