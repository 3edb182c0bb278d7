"""The figures of a comparison, read back from their SVG: what is drawn, in which colour, and where."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from comparison_fixture import write_method
from scipy import stats

from evorun.reports.axes import PER_PROBLEM_AXES
from evorun.reports.comparison import compare
from evorun.reports.comparison.arms import Point, mean_curve
from evorun.reports.comparison.figures import Figures, make_figures
from evorun.reports.comparison.notes import describe_place_of_reported
from evorun.reports.comparison.plots import Style, assign_styles
from evorun.reports.comparison.search_notes import search_note
from evorun.reports.comparison.tables import make_main_table
from evorun.reports.drawing import GREY, Drawing
from evorun.runs.results import write_results
from evorun.runs.scores import ACCURACY, Score
from evorun.runs.sweeps import JobInSweep, new_sweep, write_sweep

pytestmark = pytest.mark.usefixtures("drawn_figures")

METHODS = ("duel_evolve", "gepa", "lyria", "best_of_n", "self_consistency", "zero_shot")
RANDOM = {"models": {"policy": {"name": "random", "id": "random", "engine": "simulated"}}, "simulated": True}
SVG = "{http://www.w3.org/2000/svg}"


class Svg:
    """The named parts of a drawing."""

    def __init__(self, drawing: Drawing) -> None:
        self.root = ET.fromstring(drawing.svg)
        self.named = {g.get("id", ""): g for g in self.root.iter(f"{SVG}g")}
        self.text = " ".join(text.text or "" for text in self.root.iter(f"{SVG}text"))

    def find(self, pattern: str) -> list[str]:
        """Return the ids that match."""
        return sorted(name for name in self.named if re.fullmatch(pattern, name))

    def style(self, name: str) -> dict[str, str]:
        """Return the style of the part's line."""
        path = next(path for path in self.named[name].iter(f"{SVG}path") if "stroke" in path.get("style", ""))
        return dict(pair.strip().split(": ", 1) for pair in path.get("style", "").split(";"))

    def points(self, name: str) -> np.ndarray[Any, Any]:
        """Return the vertices of the part's line, or of all its areas, in the drawing's units."""
        paths = list(self.named[name].iter(f"{SVG}path"))
        vertices = [
            np.array([float(value) for value in re.findall(r"-?[\d.]+", path.get("d", ""))]).reshape(-1, 2)
            for path in paths
        ]
        if "-band" not in name:
            return vertices[0]
        # areas are defined once and put in their places
        places = [[float(use.get(axis, 0)) for axis in "xy"] for use in self.named[name].iter(f"{SVG}use")]
        return np.concatenate([area + place for area, place in zip(vertices, places, strict=True)])


def _run(folder: Path, method: str, seed: int, right: Sequence[bool], **more: Any) -> Path:
    return write_method(folder / f"{method}-{seed}-{len(more)}", right, method=method, seed=seed, **more)


@pytest.fixture(name="sweep", scope="module")
def _sweep(tmp_path_factory: pytest.TempPathFactory, drawing_only: Callable[..., Any]) -> Figures:
    """Six methods, three seeds each; the last method has one step, all runs are of unequal length and merit."""
    folder = tmp_path_factory.mktemp("sweep")
    runs = [
        _run(folder, method, seed, [i < 9 - rank - seed for i in range(12)], steps=1 if rank == 5 else 4 + seed)
        for rank, method in enumerate(METHODS)
        for seed in range(3)
    ]
    runs.append(_run(folder, "lyria", 0, [i == 0 for i in range(12)], steps=4, **RANDOM))
    with drawing_only("accuracy-*", "final-*"):
        return make_figures(compare(runs))


def _figures(figures: Figures) -> dict[str, Svg]:
    return {drawing.name: Svg(drawing) for drawing in figures}


@pytest.mark.parametrize(
    "x", ["calls", *(pytest.param(other, marks=pytest.mark.nightly) for other in ("step", "tokens"))]
)
def test_every_run_is_drawn_and_none_is_cut_off(sweep: Figures, x: str) -> None:
    svg = _figures(sweep)[f"accuracy-{x}"]
    for arm in range(len(METHODS)):
        assert len(svg.find(f"accuracy-{x}-{arm}")) == 1
        assert len(svg.find(rf"accuracy-{x}-{arm}-seed-\d")) == 3
    (floor,) = svg.find(f"accuracy-{x}-6")  # one run is its own line
    assert not svg.find(f"accuracy-{x}-6-seed-.*")
    clip = next(svg.root.iter(f"{SVG}clipPath"))[0].attrib
    left, top = float(clip["x"]), float(clip["y"])
    right, bottom = left + float(clip["width"]), top + float(clip["height"])
    for name in [*svg.find(rf"accuracy-{x}-[0-4](-seed-\d)?"), floor]:
        xs, ys = svg.points(name).T
        assert left <= xs.min() <= xs.max() <= right
        assert top <= ys.min() <= ys.max() <= bottom


def test_methods_of_one_step_stand_beside_the_generations(
    sweep: Figures, tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("accuracy-step")
    svg = _figures(sweep)["accuracy-step"]
    (mark,) = svg.find("accuracy-step-5")
    ends = [svg.points(name)[:, 0].max() for name in svg.find(r"accuracy-step-[0-4](-seed-\d)?")]
    assert svg.points(mark)[0, 0] > max(ends)
    assert [word for word in svg.text.split() if word.isdecimal()][:6] == ["0", "1", "2", "3", "4", "5"]
    assert not {"6", "simulated"} & set(svg.text.split())
    flat = [_run(tmp_path, method, 0, [True, rank > 0], steps=1) for rank, method in enumerate(METHODS[:2])]
    words = [text.text for text in _figures(make_figures(compare(flat)))["accuracy-step"].root.iter(f"{SVG}text")]
    assert "generation" in words
    assert not any(word and re.fullmatch(r"[\d.]+", word) for word in words)


def test_a_method_has_one_colour_in_all_figures_and_a_floor_grey_dashes(sweep: Figures) -> None:
    figures = _figures(sweep)
    colours = [
        {figures[f"accuracy-{x}"].style(name)["stroke"] for x in ("step", "calls", "tokens")
         for name in figures[f"accuracy-{x}"].find(rf"accuracy-{x}-{arm}(-seed-\d)?")}
        for arm in range(7)
    ]  # fmt: skip
    assert [len(found) for found in colours] == [1] * 7
    assert len(set.union(*colours)) == 7
    assert colours[6] == {GREY}
    floor, first = (figures["accuracy-step"].style(f"accuracy-step-{arm}") for arm in (6, 0))
    assert "stroke-dasharray" in floor
    assert "stroke-dasharray" not in first
    thin, thick = (figures["accuracy-step"].style(f"accuracy-step-0{part}") for part in ("-seed-1", ""))
    assert float(thin["stroke-width"]) < float(thick["stroke-width"])
    bars = figures["final-accuracy"]
    names = [*METHODS, "lyria, random baseline"]
    assert [bars.text.index(name) for name in names] == sorted(bars.text.index(name) for name in names)


def test_a_floor_is_one_level_where_it_ended_with_its_name_beside_it(sweep: Figures) -> None:
    svg = _figures(sweep)["accuracy-step"]
    (left, right), (ends, end) = svg.points("accuracy-step-6").T, svg.points("accuracy-step-0-seed-0")[-1]
    assert right[0] == right[1]
    lowest = svg.points("accuracy-step-4-seed-2")[-1][1]  # 3 of 12
    drop = (lowest - end) / (9 - 3)  # of a twelfth
    assert right[0] == pytest.approx(lowest + drop * (3 - 1), abs=0.01)
    assert left[1] - left[0] > ends - left[0]
    assert "lyria, random baseline" in svg.text


@pytest.mark.nightly
def test_names_stand_beside_the_lines_each_once_and_on_a_line_of_its_own(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("accuracy-calls")
    runs = [
        _run(tmp_path, f"m{i:02}", seed, [j < 6 + i % 4 for j in range(20)], steps=3)
        for i in range(9)
        for seed in range(2)
    ]
    runs += [_run(tmp_path, f"m0{i}", 0, [j < i for j in range(20)], steps=3, **RANDOM) for i in (1, 2)]
    svg = _figures(make_figures(compare(runs)))["accuracy-calls"]
    texts = {t.text: (float(t.get("x", 0)), float(t.get("y", 0))) for t in svg.root.iter(f"{SVG}text")}
    heights = sorted(texts[f"m{i:02}"][1] for i in range(9))
    assert min(np.diff(heights)) > 8.5  # points: the size of the letters
    clip = next(svg.root.iter(f"{SVG}clipPath"))[0].attrib
    assert {texts[f"m{i:02}"][0] for i in range(9)} == {texts["m00"][0]}
    assert texts["m00"][0] > float(clip["x"]) + float(clip["width"])
    floors = [text for text in texts if re.fullmatch(r"(.*, )?random baselines?", text or "")]
    assert floors == ["random baselines"]  # a name for both
    assert not svg.find(".*-seed-.*")  # of so many, thin lines would only cover each other


def test_the_band_is_students_interval_over_the_seeds(sweep: Figures) -> None:
    svg = _figures(sweep)["accuracy-step"]
    seeds = [svg.points(f"accuracy-step-0-seed-{seed}") for seed in range(3)]
    ends = [seed[-1][1] for seed in seeds]
    # the drawing's units of accuracy, from the ends of the first and the last seed: 9 and 7 of 12
    slope = (9 - 7) / 12 / (ends[0] - ends[2])
    values = np.array([9 / 12 + slope * (end - ends[0]) for end in ends])
    assert values == pytest.approx([9 / 12, 8 / 12, 7 / 12], abs=1e-4)
    band = svg.points("accuracy-step-0-band")
    last = band[np.isclose(band[:, 0], seeds[2][-1][0], atol=1e-3)][:, 1]
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert 9 / 12 + slope * (max(last) - ends[0]) == pytest.approx(low, abs=1e-3)
    assert 9 / 12 + slope * (min(last) - ends[0]) == pytest.approx(high, abs=1e-3)
    assert not svg.find("accuracy-step-5-band")  # of one step: a mark with its bar
    edge, run = (svg.style(f"accuracy-step-0-{part}")["stroke-dasharray"] for part in ("band-end-0", "seed-0"))
    # shorter by far, so that no edge is taken for a run
    assert float(edge.split(",")[0]) < 0.4 * float(run.split(",")[0])
    assert "Thin dashed lines are single runs. A line that others run over is drawn wider" in sweep.lines_note
    assert "Bands with dotted edges are 95 % intervals" in sweep.lines_note


def test_a_methods_own_figure_that_arms_share_has_a_line_for_each(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("method-*")
    runs = [
        _run(tmp_path, method, seed, [True, False], steps=3) for method in ("lyria", "elo", "gepa") for seed in range(3)
    ]
    for number, run in enumerate(runs[:6]):
        steps = [json.loads(line) for line in (run / "steps.jsonl").read_bytes().splitlines()]
        for step in steps:
            own = {"alone": 1.0 + step["step"]} if number < 3 else {}
            step["extra"] |= {"rating_spread": number + step["step"], "same": 3.0, "duels": step["step"], **own}
        (run / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
        write_results(run, [ACCURACY], {})
    drawn = make_figures(compare(runs)).methods
    assert [(figure.drawing.name, figure.caption) for figure in drawn] == [("method-rating_spread", "Rating spread")]
    svg = Svg(drawn[0].drawing)
    assert [name for name in svg.find("method-rating_spread-\\d") if svg.style(name)] == [
        "method-rating_spread-0",
        "method-rating_spread-1",
    ]
    assert "Means over the problems that took the step. Thick lines are means over seeds" in drawn[0].note


def test_captions_say_which_horizontal_axes_are_not_linear(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("no figure")
    runs = [_run(tmp_path, f"m{steps}", 0, [i < 6 for i in range(9)], steps=steps) for steps in (2, 3, 60)]
    wide, narrow = (
        {one.drawing.name: one for of in make_figures(compare(given)).curves.values() for one in of}
        for given in (runs, runs[:2])
    )
    sentences = {"step": "The horizontal axis is logarithmic beyond 1.", "calls": "The horizontal axis is logarithmic."}
    for x, sentence in sentences.items():
        assert wide[f"accuracy-{x}"].note == sentence
        assert wide[f"accuracy-{x}"].drawing.caption.endswith(sentence)
        assert narrow[f"accuracy-{x}"].note == ""
        assert "logarithmic" not in narrow[f"accuracy-{x}"].drawing.caption


@pytest.mark.nightly
def test_no_leader_crosses_the_figure_to_a_line_that_ends_early(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("accuracy-step")
    runs = [_run(tmp_path, f"m{steps}", 0, [i < 6 for i in range(9)], steps=steps) for steps in (2, 60)]
    svg = _figures(make_figures(compare(runs)))["accuracy-step"]
    clip = next(svg.root.iter(f"{SVG}clipPath"))[0].attrib
    left, width = float(clip["x"]), float(clip["width"])
    leaders = [svg.points(name) for name in svg.find(r"patch_\d+")]
    starts = [xs.min() for xs, _ in (path.T for path in leaders) if xs.max() > left + width + 1 and len(xs) < 4]
    assert len(starts) == 1  # of the one that goes on to the end
    assert starts[0] > left + 0.85 * width
    # a tenth of the decades that the longer one has, not a sixtieth of its steps
    short, long = (svg.points(name)[:, 0] for name in svg.find("accuracy-step-[01]"))
    one, most = sorted((np.ptp(short), np.ptp(long)))
    assert one / most == pytest.approx(1 / (1 + 9 / 10 * np.log10(59)), rel=0.02)


@pytest.mark.nightly
def test_a_method_that_asks_once_does_not_squeeze_the_curves_of_others(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("accuracy-calls")
    runs = [_run(tmp_path, f"m{steps}", 0, [i < 6 for i in range(9)], steps=steps) for steps in (1, 60)]
    svg = _figures(make_figures(compare(runs)))["accuracy-calls"]
    places = max((svg.points(name)[:, 0] for name in svg.find("accuracy-calls-[01]")), key=len)
    assert len(places) > 50
    assert np.diff(places) == pytest.approx(np.diff(places).mean(), rel=0.01)  # a linear axis


def test_figures_of_simulated_runs_say_so_and_a_papers_score_has_its_own(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("final-*", "accuracy-step")
    rows = [{"method": "gepa", "metrics": {"length": 3.0}}]
    declared = [{"name": name, "low": 0, "high": 5} for name in ("style", "length", "spread")]
    scores = {name: [float(rank), 2.0, 3.0 - rank] for rank, name in enumerate(("style", "length", "spread"))}
    runs = [
        _run(tmp_path, method, 0, [True, False, rank > 0], steps=2, scores=scores, simulated=True,
             declared=[{"name": "accuracy", "low": 0, "high": 1, "rate": True}, *declared],
             config={"reported": {"source": "A paper", "rows": rows}})
        for rank, method in enumerate(METHODS[:2])
    ]  # fmt: skip
    comparison = compare(runs)
    figures = _figures(make_figures(comparison))
    drawn = {name: svg for name, svg in figures.items() if svg.text}
    assert {"accuracy-step", "final-style"} < set(drawn)
    assert [name for name, svg in drawn.items() if "simulated" not in svg.text.split()] == []
    assert [name for name in figures if name.startswith("final-")] == ["final-accuracy", "final-style", "final-length"]
    assert [name for name, svg in figures.items() if "diamonds" in svg.text] == ["final-length"]
    said = (
        "The paper's figures are of length, not of accuracy: the table of scores has them, and --score=length tests "
        "length instead of accuracy."
    )
    assert describe_place_of_reported(comparison) == said
    assert "reported" not in make_main_table(comparison, comparison.rows, [], []).headings


def test_a_method_has_its_colour_on_every_page_whatever_its_rank(tmp_path: Path) -> None:
    pages = [
        assign_styles(
            compare([_run(tmp_path / str(best), name, 0, [name == best, False]) for name in ("gepa", "lyria")])
        )
        for best in ("gepa", "lyria")
    ]
    assert [list(page) for page in pages] == [["gepa", "lyria"], ["lyria", "gepa"]]
    assert pages[0] == pages[1]


def test_a_method_keeps_its_colour_when_others_are_added_to_its_sweep(tmp_path: Path) -> None:
    def assign(*methods: str) -> dict[str, Style]:
        runs = [_run(tmp_path, method, 0, [rank > 1, False]) for rank, method in enumerate(methods)]
        jobs = [JobInSweep(folder=run.name, overrides=(f"method={run.name}",)) for run in runs]
        write_sweep(tmp_path, new_sweep(["evorun"], "basic", jobs))
        return assign_styles(compare(runs))

    before = assign("ppo", "mpo")
    after = assign("ppo", "mpo", "espl", "ace", "pdr", "rsa", "gepa", "lyria", "v1_infer", "zero_shot")
    assert {name: after[name] for name in before} == before
    looks = {(style["color"], style["linestyle"]) for style in after.values()}
    assert len(looks) == len(after) == 10


def _curve(points: Sequence[tuple[int, float, float]]) -> list[Point]:
    return [Point(step, x, value, None) for step, x, value in points]


def test_the_mean_over_seeds_is_taken_step_by_step_of_cost_as_of_score() -> None:
    rng = np.random.default_rng(3)
    numbers = [[1, 2, 3], [0, 1, 2, 3, 4], [1, 2]]
    curves = [
        _curve([(step, 40.0 * step + seed, float(rng.normal(50, 20))) for step in of])
        for seed, of in enumerate(numbers)
    ]
    found = mean_curve(curves, Score("unbounded"), PER_PROBLEM_AXES["calls"])
    assert len(found) == 4  # steps 1 to 4, from where all have begun
    for step, point in zip((1, 2, 3, 4), found, strict=True):
        states = [[p for p in curve if p.step <= step][-1] for curve in curves]
        values = [state.value for state in states]
        assert point.x == pytest.approx(np.mean([state.x for state in states]))
        assert point.value == pytest.approx(np.mean(values))
        assert point.ci95 == pytest.approx(stats.t.interval(0.95, 2, np.mean(values), stats.sem(values)))
    assert [point.x for point in mean_curve(curves, Score("unbounded"), PER_PROBLEM_AXES["step"])] == [1, 2, 3, 4]
    assert mean_curve([], ACCURACY, PER_PROBLEM_AXES["step"]) == []


def test_a_mean_of_equal_curves_is_that_curve_whatever_each_step_costs() -> None:
    curves = [_curve([(step, calls * (step + 1), 0.2 + 0.1 * step) for step in range(6)]) for calls in (10, 30, 37)]
    values = [point.value for point in mean_curve(curves, ACCURACY, PER_PROBLEM_AXES["calls"])]
    assert values == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6, 0.7])


def test_a_mean_has_no_band_of_two_seeds_nor_of_the_whole_range() -> None:
    def bands(*values: float) -> list[tuple[float, float] | None]:
        curves = [_curve([(0, 1, value)]) for value in values]
        return [point.ci95 for point in mean_curve(curves, ACCURACY, PER_PROBLEM_AXES["step"])]

    assert bands(0.5, 0.501) == [None]  # Student's would be from .494 to .507
    assert bands(0.1, 0.9, 0.5) == [None]
    assert bands(0.5, 0.6, 0.55) != [None]
    assert bands(0.5, 0.5, 0.5) == [(0.5, 0.5)]
    assert bands(0.5, 0.5) == [None]


@pytest.mark.nightly
def test_more_methods_than_colours_are_all_drawn_and_told_apart(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only("accuracy-step")
    runs = [_run(tmp_path, f"m{i:02}", 0, [j < i for j in range(20)], steps=3) for i in range(19)]
    svg = _figures(make_figures(compare(runs)))["accuracy-step"]
    looks = set()
    for arm in range(19):
        line, mark = svg.style(f"accuracy-step-{arm}"), svg.named[f"accuracy-step-{arm}"].find(f".//{SVG}use")
        assert mark is not None
        looks.add((line["stroke"], line.get("stroke-dasharray"), mark.get("{http://www.w3.org/1999/xlink}href")))
    assert len(looks) == 19
    assert not svg.find(".*-band")


@pytest.mark.nightly
def test_each_task_has_its_figures_and_a_method_its_colour_in_all(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("accuracy-step-*")
    runs = [
        write_method(tmp_path / f"{task}{method}", [i < n for i in range(6)], method=method, task=task, steps=3)
        for task, outcomes in (("tsp", (5, 2)), ("sudoku", (1, 4)))
        for method, n in zip(("lyria", "gepa"), outcomes, strict=True)
    ]
    figures = _figures(make_figures(compare(runs)))
    assert {"final-accuracy-tsp", "final-accuracy-sudoku", "accuracy-step-tsp", "accuracy-calls-sudoku"} < set(figures)
    tsp, sudoku = figures["accuracy-step-tsp"], figures["accuracy-step-sudoku"]
    # lyria is the first on tsp and the second on sudoku
    for ours, theirs in ((0, 1), (1, 0)):
        first, second = tsp.style(f"accuracy-step-tsp-{ours}"), sudoku.style(f"accuracy-step-sudoku-{theirs}")
        assert first["stroke"] == second["stroke"]


def test_a_legend_says_that_an_arm_has_no_interval_where_one_has_none(tmp_path: Path) -> None:
    def arm(method: str, *correct: bool) -> list[Path]:
        return [write_method(tmp_path / f"{method}{s}", correct * 6, method=method, seed=s) for s in range(2)]

    mixed, other, perfect = arm("zero_shot", True, False), arm("lyria", False, True), arm("few_shot", True, True)
    none = "over seeds and problems (none where it would be the whole range, or all values are equal)"
    for runs, said in ((other, False), (perfect, True)):
        caption = make_figures(compare([*mixed, *runs])).finals[0].drawing.caption
        assert "With 95 % intervals over seeds and problems" in caption
        assert (none in caption) == said


def test_a_legend_speaks_of_the_intervals_of_the_score_that_is_drawn(tmp_path: Path) -> None:
    declared = [{"name": "accuracy", "low": 0, "high": 1, "rate": True}, {"name": "points", "low": 0, "high": 9}]
    runs = [
        write_method(tmp_path / f"{m}{s}", [True, False] * 6, method=m, seed=s, scores={"points": p}, declared=declared)
        for m, p in (("zero_shot", [3.0, 4.0] * 6), ("lyria", [5.0] * 12))
        for s in range(2)
    ]
    figures = make_figures(compare(runs))
    (first,), others = figures.finals[:1], figures.other_finals
    told = ["(none where" in one.drawing.caption for one in (first, *others)]
    assert told == [False, True]


@pytest.mark.nightly
def test_captions_by_step_say_what_the_steps_of_samples_for_an_oracle_are(tmp_path: Path) -> None:
    drawn = {"method": {"name": "best_of_n", "choose": "oracle", "batches": 2, "generations": None}, "seed": 0}
    runs = [write_method(tmp_path / "other", [True, False], steps=2, method="lyria")]
    runs.append(write_method(tmp_path / "drawn", [True, True], steps=2, method="best_of_n", config=drawn))
    said = "Steps of best_of_n: batches that its samples are drawn in (method.batches), of evorun's making."
    curves = make_figures(compare(runs)).curves["Accuracy during the runs"]
    assert [said in figure.drawing.caption for figure in curves] == [True, False, False]
    assert said in search_note(compare(runs))
