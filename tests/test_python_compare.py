"""Comparisons in Python: frames against figures counted by hand, and what a notebook shows of them."""

import csv
import importlib
import io
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from statistics import fmean

import pandas
import polars
import pytest
from PIL import Image
from scipy.stats import binomtest

import evorun
from building import simulated_run
from evorun.errors import ConfigError, RunDirectoryError
from evorun.reports.comparison import compare
from evorun.reports.comparison.tables import make_data_tables
from evorun.runs.crossed import crossed_mean, tabulate

SMALL = ("task=mathbench", "task.source=sample", "task.limit=9")
RUNS = {
    f"{name}_{seed}": (*words, *SMALL, f"seed={seed}")
    for seed in (0, 1)
    for name, words in {
        "zero": ("method=zero_shot",),
        "votes": ("method=self_consistency", "method.samples=5"),
    }.items()
}


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("<i>compared")
    for name, words in RUNS.items():
        simulated_run(folder / name, *words)
    return folder


@pytest.fixture(scope="module", name="compared")
def _compared(folder: Path) -> evorun.Comparison:
    return evorun.compare(folder, against="zero_shot")


def correct(folder: Path, run: str) -> dict[str, bool]:
    lines = [json.loads(line) for line in (folder / run / "predictions.jsonl").read_text().splitlines()]
    return {one["problem"]: one["correct"] for one in lines}


def test_arms_and_runs_have_the_means_of_their_problems(folder: Path, compared: evorun.Comparison) -> None:
    own = {name: correct(folder, name) for name in RUNS}
    arms = compared.arms().set_index("run")["accuracy"]
    for method, name in (("zero_shot", "zero"), ("self_consistency", "votes")):
        assert arms[method] == pytest.approx(fmean(fmean(own[f"{name}_{seed}"].values()) for seed in (0, 1)))
    runs = compared.runs().set_index("run")["accuracy"]
    assert runs["self_consistency, seed 1"] == pytest.approx(fmean(own["votes_1"].values()))


def test_pairs_have_the_differences_on_the_same_problems(folder: Path, compared: evorun.Comparison) -> None:
    pairs = compared.pairs().set_index("run")
    ours, theirs = correct(folder, "votes_0"), correct(folder, "zero_0")
    pair = pairs.loc["self_consistency, seed 0"]
    assert pair["reference"] == "zero_shot, seed 0"
    gained = sum(ours[problem] > theirs[problem] for problem in ours)
    lost = sum(ours[problem] < theirs[problem] for problem in ours)
    assert [pair["higher"], pair["lower"]] == [gained, lost]
    assert pair["difference"] == pytest.approx((gained - lost) / len(ours))
    assert pair["p"] == pytest.approx(binomtest(gained, gained + lost).pvalue if gained + lost else 1.0)


def test_pairs_tell_rows_over_seeds_from_single_seeds_and_runs(folder: Path, compared: evorun.Comparison) -> None:
    kinds = dict(zip(compared.pairs()["run"], compared.pairs()["kind"], strict=True))
    assert kinds == {
        "self_consistency": "over_seeds",
        "self_consistency, seed 0": "seed",
        "self_consistency, seed 1": "seed",
    }
    alone = evorun.compare([folder / "zero_0", folder / "votes_0"]).pairs()
    assert list(alone["kind"]) == ["run"]


def test_a_method_without_generations_has_none(compared: evorun.Comparison) -> None:
    """As in the table, which has a dash: 0.0 would be a generation that it had reached."""
    assert compared.arms()["generation"].isna().all()


def test_low_and_high_are_the_interval_that_goes_with_p(folder: Path, compared: evorun.Comparison) -> None:
    pairs = compared.pairs().set_index("run")
    ends = ["low", "high"]
    for run, source in (("self_consistency", "seeds_and_problems"), ("self_consistency, seed 0", "problems")):
        assert list(pairs.loc[run, ends]) == list(pairs.loc[run, [f"{end}_over_{source}" for end in ends]])
    differences = [
        {problem: ours - theirs[problem] for problem, ours in correct(folder, f"votes_{seed}").items()}
        for seed, theirs in ((seed, correct(folder, f"zero_{seed}")) for seed in (0, 1))
    ]
    expected = crossed_mean(tabulate(differences))
    assert expected is not None
    assert list(pairs.loc["self_consistency", ends]) == pytest.approx(expected.interval())


def test_each_pair_has_a_sentence(compared: evorun.Comparison) -> None:
    assert len(compared.findings) == 1
    assert compared.findings[0].startswith(
        ("No difference in accuracy between ", "self_consistency is ", "zero_shot is ")
    )
    assert compared.findings[0] in compared._repr_html_().replace("&#39;", "'")


def test_frames_are_the_tables_that_a_report_exports(folder: Path, compared: evorun.Comparison) -> None:
    exported = {table.name: table.csv() for table in make_data_tables(compare(sorted(folder.iterdir()), "zero_shot"))}
    assert exported.keys() == {"arms", "runs", "strata", "roles", "pairs", "strata_pairs", "level_pairs"}
    for name, text in exported.items():
        reader = csv.DictReader(io.StringIO(text))
        expected = list(reader)
        frame = getattr(compared, name)()
        assert list(frame.columns) == reader.fieldnames
        assert len(frame) == len(expected)
        for column in frame.columns:
            for cell, written in zip(frame[column], (row[column] for row in expected), strict=True):
                assert str("" if pandas.isna(cell) else cell) == written or float(cell) == float(written)
        other = getattr(compared, name)(format="polars")
        assert isinstance(other, polars.DataFrame)
        assert other.columns == list(frame.columns)
        assert other["run"].to_list() == frame["run"].tolist()


@pytest.mark.nightly
def test_every_column_is_documented(compared: evorun.Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "docs"))
    page = importlib.import_module("reference.frames").frames_page().partition("## Frames of comparisons")[2]
    rows = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    patterns = [row.replace("FIGURE", r"[a-z_]+") for row in rows if not row.startswith("FIGURE")]
    figures = {column for column in compared.arms().columns if column.removesuffix("_low") + "_high" in compared.arms()}
    figures = {column.removesuffix("_low") for column in figures}
    patterns += [row.replace("FIGURE", figure) for row in rows for figure in figures]
    for name in ("arms", "runs", "strata", "roles", "pairs", "strata_pairs", "level_pairs"):
        assert [column for column in getattr(compared, name)().columns if column not in patterns] == []


@pytest.mark.nightly
def test_figures_are_pictures_and_objects(compared: evorun.Comparison, tmp_path: Path) -> None:
    figure = compared.figures["final-accuracy"]
    assert ElementTree.fromstring(figure._repr_svg_()).tag.endswith("}svg")
    assert len(figure.figure.axes) == 1
    figure.save(tmp_path / "final.pdf")
    figure.save(tmp_path / "final.svg")
    assert (tmp_path / "final.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "final.svg").read_text() == figure.svg
    figure.save(tmp_path / "final.png")
    with Image.open(tmp_path / "final.png") as picture:
        inches = figure.figure.get_size_inches()
        assert picture.size == pytest.approx([200 * inch for inch in inches], abs=1)
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    with pytest.raises(ConfigError, match=r"ends in \.svg, \.pdf or \.png"):
        figure.save(tmp_path / "final.jpeg")


def test_a_notebook_shows_the_main_tables_with_their_warnings(compared: evorun.Comparison, tmp_path: Path) -> None:
    shown = compared._repr_html_()
    assert shown.count("<table>") == 3
    assert "Simulated model: no language model ran" in shown
    assert any("Simulated model" in line for line in compared.warnings)
    assert any("McNemar" in line for line in compared.notes)
    assert "self_consistency" in repr(compared)
    assert "<title>" in compared.save(tmp_path / "page.html").read_text()


def test_foreign_names_are_escaped(folder: Path, tmp_path: Path) -> None:
    for name in ("zero_0", "votes_0"):
        copy = Path(shutil.copytree(folder / name, tmp_path / "runs" / name))
        manifest = json.loads((copy / "manifest.json").read_text())
        manifest["method"] = f"<script>alert('{name}')</script>"
        (copy / "manifest.json").write_text(json.dumps(manifest))
    compared = evorun.compare(tmp_path / "runs")
    pictures = [figure.svg for figure in compared.figures.values()]
    for shown in (compared._repr_html_(), *pictures):
        assert "<script" not in shown
    assert "&lt;script&gt;" in compared._repr_html_()


def test_a_run_is_a_reference_and_one_run_is_none(folder: Path) -> None:
    runs = evorun.load(folder)
    assert isinstance(runs, evorun.Runs)
    pairs = evorun.compare(runs.where(seed=1), against=runs.where(seed=1, method="zero_shot")[0]).pairs()
    assert set(pairs["reference"]) == {"zero_shot"}
    with pytest.raises(ConfigError, match="expected two runs or more"):
        evorun.compare(runs[0])
    with pytest.raises(RunDirectoryError, match="expected a run directory"):
        evorun.compare(folder / "none")
