"""Figures at the width of a paper's column or page: nothing in them is cut, and no text lies on another."""

from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from comparison_fixture import write_method
from evolution_fixture import write_evolution
from rubric_fixture import RubricSpec, write_rubric_run

import evorun
from evorun.cli.verbs import report
from evorun.errors import ConfigError
from evorun.reports.comparison import compare
from evorun.reports.comparison.figures import make_figures
from evorun.reports.drawing import Drawing, drawings_of_width
from evorun.reports.html import make_report
from evorun.runs.terminal import Terminal
from run_fixture import RunSpec, write_run

pytestmark = pytest.mark.usefixtures("drawn_figures")

LONG = "duel_evolve_with_a_long_name"


def list_boxes(figure: Any) -> dict[str, Any]:
    """Return the boxes of the figure's visible texts, in pixels."""
    import matplotlib.text

    figure.draw_without_rendering()
    ticks = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    unseen = {
        label
        for axis in ticks
        for tick in axis.get_major_ticks() + axis.get_minor_ticks()
        for label in (tick.label1, tick.label2)
        if not is_within(tick.get_loc(), axis.get_view_interval())
    }
    found = {}
    for number, text in enumerate(figure.findobj(matplotlib.text.Text)):
        if text.get_visible() and text.get_text().strip() and text not in unseen:
            found[f"{number}: {text.get_text()}"] = text.get_window_extent()
    return found


def is_within(place: float, interval: Any) -> bool:
    low, high = sorted(interval)
    slack = 1e-6 * (high - low)
    return bool(low - slack <= place <= high + slack)


def check(drawings: Iterable[Drawing], width: float) -> None:
    for drawing in drawings:
        figure = drawing.figure
        assert figure.get_figwidth() == width
        boxes = list_boxes(figure)
        for name, box in boxes.items():
            inside = figure.bbox.padded(1)
            assert inside.contains(*box.min), (drawing.name, name, box, inside)
            assert inside.contains(*box.max), (drawing.name, name, box, inside)
        for (one, first), (other, second) in combinations(boxes.items(), 2):
            across = min(first.x1, second.x1) - max(first.x0, second.x0)
            along = min(first.y1, second.y1) - max(first.y0, second.y0)
            assert across < 1 or along < 3, (drawing.name, one, other)  # lines of text have room for accents


@pytest.fixture(name="sweep", scope="module")
def _sweep(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Seven arms of two seeds whose names take several lines, of which one has one step."""
    folder = tmp_path_factory.mktemp("sweep")
    return [
        write_method(
            folder / f"{arm}-{seed}",
            [i < 9 - arm - seed for i in range(12)],
            method=LONG,
            seed=seed,
            steps=1 if arm == 5 else 30 + 10 * arm,
            calls={"generate": 50 * (arm + 1), "judge": 30},
            config={"method": {"name": LONG, "parent_choice": f"choice_{arm}", "rating": "win_rate_" * arm}},
        )
        for arm in range(8)
        for seed in range(2)
    ]


@pytest.mark.nightly
@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [3.25, 5.5])
def test_a_comparisons_figures_fit_the_width(sweep: list[Path], width: float, draw_only: Callable[..., None]) -> None:
    draw_only()  # to no file
    with drawings_of_width(width):
        figures = list(make_figures(compare(sweep)))
    assert {"final-accuracy", "accuracy-step", "accuracy-calls", "front-accuracy"} <= {one.name for one in figures}
    without_bands = [figure.caption for figure in figures if "neither bands" in figure.caption]
    assert without_bands
    for caption in without_bands:
        assert "Figures of more than 7 methods have neither bands nor thin lines." in caption
        assert "single runs" not in caption
    check(figures, width)


KINDS = [("search", 5.5), ("prompts", 3.25), ("rubrics", 3.25)]


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "width"), KINDS)
def test_a_runs_figures_fit_the_width(tmp_path: Path, kind: str, width: float, draw_only: Callable[..., None]) -> None:
    draw_only()
    if kind == "search":
        run = write_run(tmp_path / "run", RunSpec(problems=6, candidates=12, duels=30))
    elif kind == "prompts":
        run = write_evolution(tmp_path / "run")
    else:
        run = write_rubric_run(tmp_path / "run", RubricSpec(refinements=2, every=5, hacked=True))
    with drawings_of_width(width):
        drawings = make_report(run).drawings
    assert len(drawings) > 3
    check(drawings, width)


@pytest.mark.nightly
def test_an_export_has_files_of_exactly_the_width_and_captions_apart(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("final-accuracy", "accuracy-step")
    runs = [write_method(tmp_path / name, [True, False, name == "gepa"], method=name) for name in ("gepa", "lyria")]
    exported = tmp_path / "figures"
    arguments = [*map(str, runs), f"--output={tmp_path / 'c.html'}", f"--export={exported}"]
    assert report([*arguments, "--width=3.25"], Terminal()) == 0
    assert 'width="234pt"' in (exported / "final-accuracy.svg").read_text()
    captions = (exported / "captions.csv").read_text()
    assert "final-accuracy,Final accuracy." in captions
    (drawn,) = [one for name, one in evorun.compare(runs).draw_figures(3.25).items() if name == "final-accuracy"]
    assert drawn.figure.get_figwidth() == 3.25
    assert report([str(runs[0]), f"--export={tmp_path / 'one'}", "--width=4"], Terminal()) == 0
    assert 'width="288pt"' in (tmp_path / "one" / "accuracy-step.svg").read_text()


@pytest.mark.parametrize(
    ("width", "message"),
    [
        ("--width=wide", "--width: expected inches, such as 3.3, got wide"),
        ("--width=0.5", "--width: expected inches from 2.5 to 20, got 0.5"),
    ],
)
def test_a_width_that_is_none_is_refused(tmp_path: Path, width: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        report([str(tmp_path), f"--export={tmp_path / 'figures'}", width], Terminal())
    with pytest.raises(ConfigError, match="expected --export=FOLDER beside it"):
        report([str(tmp_path), "--width=4"], Terminal())
