"""The page of a run that rubrics reward: gold curve, monitors, refinements, and its size."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from drawn import panels_of
from rubric_fixture import RubricSpec, write_rubric_run

from evorun.reports.comparison.comparison import compare
from evorun.reports.comparison.figures import make_figures
from evorun.reports.html import render_report
from evorun.reports.overview import load_curves, load_outcome
from evorun.reports.population import summarise_rollouts
from evorun.reports.rubrics.section import load_rubric_section
from evorun.reports.summary import print_summary
from evorun.runs.reading import read_rollouts, read_steps_without_texts
from evorun.runs.terminal import Terminal
from run_fixture import HOSTILE, RunSpec, write_run

pytestmark = pytest.mark.usefixtures("drawn_figures")


@pytest.fixture(name="hacked", scope="module")
def _hacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_rubric_run(tmp_path_factory.mktemp("hacked") / "run", RubricSpec(hacked=True, hostile=True))
    about = {"step": 30, "low": 0.2, "high": 0.9, "n": 12, "unscored": 0}
    scores = [{"rubric": f"rubric#{n}", "refined": 10 * n, "score": 0.8 - 0.1 * n, **about} for n in range(4)]
    (run / "artifacts").mkdir()
    (run / "artifacts" / "rubric_scores.json").write_text(json.dumps(scores))
    return run


@pytest.fixture(name="html", scope="module")
def _html(hacked: Path, drawing_only: Callable[..., Any]) -> str:
    with drawing_only("tree"):
        return render_report(hacked)


def test_where_reward_and_gold_part_page_and_terminal_say_so(
    hacked: Path, html: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = load_outcome(hacked).hacking
    assert lines is not None
    parted, monitor = lines.lines
    assert "The training reward and the gold score diverge at step 20: since step 15 " in parted
    assert "fell from 0.510 to 0.273, while the normalised reward went from 0.660 to 0.763" in parted
    assert "Letters of a foreign script (share)" in monitor
    print_summary(hacked, Terminal(width=400))
    said = capsys.readouterr().out
    for line in (parted, monitor):
        assert f'<p class="banner" role="note">{line}</p>' in html
        assert line in said
    assert "refinement on a sample refused   unclosed" in said


def test_sound_runs_have_no_such_banner(tmp_path: Path) -> None:
    outcome = load_outcome(write_rubric_run(tmp_path / "run"))
    assert outcome.hacking is not None
    assert list(outcome.hacking.lines) == []
    assert load_outcome(write_run(tmp_path / "other", RunSpec(problems=1))).hacking is None


def _reward_by_a_plug_in(hacked: Path, run: Path) -> Path:
    """Write the hacked run as one of a plug-in's rewards, which has no figures of rubrics."""
    shutil.copytree(hacked, run)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config"]["method"] = {"name": "grpo", "reward_source": run.name}
    (run / "manifest.json").write_text(json.dumps(manifest))
    records = [json.loads(line) for line in (run / "training.jsonl").read_text().splitlines()]
    for record in records:
        for name in [name for name in record["figures"] if name.startswith(("reward_", "rubric"))]:
            del record["figures"][name]
    (run / "training.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


@pytest.mark.nightly
def test_the_reward_of_a_plug_in_is_drawn_with_the_score_and_said_to_part_from_it(
    hacked: Path, tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("gold")
    run = _reward_by_a_plug_in(hacked, tmp_path / "brief")
    hacking = load_outcome(run).hacking
    assert hacking is not None
    assert "while the reward went from 3.30 to 3.81" in next(iter(hacking.lines))
    html = render_report(run)
    assert "The training reward and the gold score diverge at step 20" in html
    # a reward above 1 does not share the axis of a score in [0, 1]
    reward, gold = panels_of(html, "Gold score beside the training reward")
    assert max(y for _, y in reward.lines[0]) > 1
    assert max(y for _, y in gold.lines[0]) <= 1
    assert "Dashed lines: a rubric was replaced" not in html


@pytest.mark.nightly
def test_monitors_warn_of_no_filler_of_a_simulated_model(
    hacked: Path, tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only()
    run = _reward_by_a_plug_in(hacked, tmp_path / "brief")
    warned = "Letters of a foreign script (share)"
    assert any(warned in line for line in load_outcome(run).hacking.lines)  # type: ignore[union-attr]
    assert "A warning goes by means over five steps" in render_report(run)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["simulated"] = True
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert not any(warned in line for line in load_outcome(run).hacking.lines)  # type: ignore[union-attr]
    assert "Nothing warns here: the reasoning of a simulated model is filler" in render_report(run)


@pytest.mark.nightly
def test_a_comparison_draws_each_arms_reward_above_its_score(
    hacked: Path, tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("reward-beside-score")
    runs = [_reward_by_a_plug_in(hacked, tmp_path / name) for name in ("brief", "long")]
    figures = {figure.caption: figure.drawing.svg for figure in make_figures(compare(runs)).trained}
    beside = figures["Reward beside the score"]
    assert beside.count('id="axes_') == 4
    assert all(
        name in beside for name in ("reward_source=brief", "reward_source=long", "training reward", "gold score")
    )
    assert "Gold score" not in figures  # it is the score whose curves stand above


def test_a_figure_without_kl_divergence_says_why(hacked: Path, tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only()
    run = tmp_path / "run"
    shutil.copytree(hacked, run)
    records = [json.loads(line) for line in (run / "training.jsonl").read_text().splitlines()]
    for record in records:
        record["figures"].pop("kl", None)
    (run / "training.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert "a rubric was replaced; no KL divergence was measured, which simulated policies" in render_report(run)


def test_the_section_has_the_figures_and_what_became_of_refinements(
    hacked: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("rewards-and-kl", "rubric-strictness")
    outcome = load_outcome(hacked)
    section = load_rubric_section(outcome, load_curves(outcome, read_steps_without_texts(hacked)))
    assert set(section.plots) == {"gold", "rewards", "monitors", "unscored", "lengths", "strictness"}
    # a line for each of the three refinements in each of the panels: raw, normalised, KL
    assert section.plots["rewards"].svg.count("stroke-dasharray: 3.2,2.4") == 9
    assert "reward collapse" in section.plots["rewards"].svg
    assert section.no_kl == ""
    assert section.tables["refinements"].rows == [
        ("rubrics replaced", "", 3),
        ("merged rubric refused", "total", 3),
        ("refinement on a sample refused", "unclosed", 9),
    ]
    assert section.tables["unscored"].rows == [("cut_off", pytest.approx(10 * 0.25 / 30), 0.25, 3)]
    assert section.tables["rubrics"].rows[0] == (10, 1, 20.0, 160.0, 35.0)
    assert [row[2:4] for row in section.tables["rubric_lengths"].rows] == [(0, 0), (1, 10), (2, 20), (3, 30)]
    assert "share of points given" in section.plots["strictness"].svg
    assert [row[0] for row in section.tables["rubric_scores"].rows] == [f"rubric#{n}" for n in range(4)]


@pytest.mark.nightly
def test_the_reward_is_drawn_once_where_it_is_the_raw_one(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("training")
    run = write_rubric_run(tmp_path / "run")
    measured = {"reward", "reward collapse", "rubric words"}  # KL and the others stand in the section on rewards
    assert _drawn_of_training(run) == measured - {"reward"}
    training = [json.loads(line) for line in (run / "training.jsonl").open()]
    training[3]["figures"]["reward"] -= 0.1  # a penalty for a missing end
    (run / "training.jsonl").write_text("".join(json.dumps(one) + "\n" for one in training))
    assert _drawn_of_training(run) == measured


def test_a_run_without_rubrics_has_its_reward_and_kl_among_the_training_figures(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("training")
    run = write_run(tmp_path / "run", RunSpec(problems=1))
    steps = [{"step": i, "calls": i, "tokens": i, "figures": {"reward": i / 9, "kl": i / 99}} for i in (1, 2)]
    (run / "training.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    assert _drawn_of_training(run) == {"reward", "KL from the reference (nats per token)"}


def _drawn_of_training(run: Path) -> set[str]:
    return {panel.title for panel in panels_of(render_report(run), "What training steps measured")}


def test_a_rubric_has_the_normalised_scores_that_it_gave(hacked: Path) -> None:
    rollouts = read_rollouts(hacked)
    played = summarise_rollouts(rollouts)
    given = [one.normalised for one in rollouts if one.rubric == "rubric#1"]
    assert len(given) == 40
    assert played["rubric#1"].reward.value == pytest.approx(fmean(given))
    assert (played["rubric#1"].rollouts, played["rubric#1"].gain) == (40, None)


def test_hostile_rubrics_stay_texts(html: str) -> None:
    for text in HOSTILE:
        if "<" in text:
            assert text not in html
