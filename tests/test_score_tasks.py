"""Tasks without right and wrong, as a plug-in, driven as a user would: runs, reports, comparison, grade, resume."""

import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from scipy import stats

import building
from building import composed, simulated_run
from evorun.cli import main
from evorun.errors import ConfigError
from evorun.reports import write_report
from evorun.reports.comparison import ComparedRuns, compare
from evorun.reports.comparison.tables import make_search_table
from evorun.reports.overview import load_curves, load_outcome
from evorun.runner import registry
from evorun.runner.settings import check
from evorun.runs.records import complete_lines
from evorun_process import RECORDS, records
from score_tasks import OUT_OF_SIGHT
from warm_process import no_figures

SMALL = {
    "best_of_n": ("method.samples=4", "method.rounds=2", "method.duels=2"),
    "duel_evolve": (
        *("method.generations=2", "method.initial_candidates=3", "method.children=2"),
        *("method.parents=2", "method.duels=2"),
    ),
}


def _forget_plugins() -> None:
    """Let installed packages be looked for again, and their configs be registered again."""
    registry.plugins.cache_clear()
    building._register_once.cache_clear()


@pytest.fixture(name="work", scope="module")
def _work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the tasks installed and a run of each method on `aim`, and one on `aim_error`."""
    work = tmp_path_factory.mktemp("scores")
    info = work / "site" / "score_tasks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: score_tasks\nVersion: 1.0\n")
    tasks = "aim = score_tasks:AimConfig\naim_error = score_tasks:AimErrorConfig\n"
    (info / "entry_points.txt").write_text(f"[evorun.tasks]\n{tasks}")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(work / "site")
        patch.setenv("COLUMNS", "200")
        patch.chdir(work)
        _forget_plugins()
        for method, task in (("best_of_n", "aim"), ("duel_evolve", "aim"), ("best_of_n", "aim_error")):
            simulated_run(work / f"{method}-{task}", f"method={method}", f"task={task}", *SMALL[method])
        yield work
    _forget_plugins()


class Evorun:
    """Carries out a verb of the command line in this process, as a process takes seconds to start."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> str:
        with pytest.raises(SystemExit) as ending:
            main(arguments)
        printed = self._capsys.readouterr()
        assert ending.value.code == 0, printed.err
        return printed.out + printed.err


@pytest.fixture
def _undrawn() -> Iterator[None]:
    """Leave figures out of pages, where a test reads none: drawing takes longest."""
    with no_figures():
        yield


@pytest.fixture(name="verb")
def _verb(capsys: pytest.CaptureFixture[str]) -> Evorun:
    return Evorun(capsys)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in complete_lines(path)]


def _rows(printed: str) -> list[str]:
    return [" ".join(line.replace("│", " ").split()) for line in printed.splitlines()]


def _visible(page: Path) -> str:
    text = re.sub(r"<(style|script)\b.*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_the_manifest_declares_the_scores_and_records_have_no_right_and_wrong(work: Path) -> None:
    run = work / "duel_evolve-aim"
    declared = json.loads((run / "manifest.json").read_text())["scores"]
    assert [(one["name"], one["low"], one["high"], one["higher_is_better"], one["rate"]) for one in declared] == [
        ("quality", 0, 10, True, False),
        ("digits", 0, None, False, False),
    ]
    for name in ("steps", "candidates", "predictions"):
        assert {line["correct"] for line in _lines(run / f"{name}.jsonl")} == {None}
    predictions, results = _lines(run / "predictions.jsonl"), json.loads((run / "results.json").read_text())
    values = [line["scores"]["quality"] for line in predictions]
    assert list(results["metrics"])[:2] == ["quality", "digits"]
    assert results["metrics"]["quality"]["value"] == pytest.approx(fmean(values))
    assert results["metrics"]["quality"]["n"] == 8
    oracle = stats.bootstrap((values,), np.mean, method="BCa", n_resamples=9_999, rng=np.random.default_rng(0))
    assert results["metrics"]["quality"]["ci95"] == pytest.approx(tuple(oracle.confidence_interval))
    names = [line["name"] for line in _lines(run / "metrics.jsonl") if line["step"] == 0]
    assert names[:4] == ["quality", "quality/even", "quality/odd", "digits"]


@pytest.mark.nightly
@pytest.mark.parametrize("run", ["duel_evolve-aim", "best_of_n-aim_error"])
def test_pages_speak_of_the_score_alone(work: Path, verb: Evorun, run: str) -> None:
    for text in (verb("report", run), _visible(work / run / "report.html")):
        assert not re.search(r"accura|\bright\b|\bwrong\b", text, re.IGNORECASE)
    label = "Quality (scale 0 to 10)" if run.endswith("aim") else "Error (lower is better)"
    assert f"Stratum {label} 95 % interval n" in _visible(work / run / "report.html")


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize(("task", "order"), [("aim", ["even", "odd"]), ("aim_error", ["odd", "even"])])
def test_strata_stand_in_the_order_that_the_task_states_or_by_name(
    work: Path, verb: Evorun, task: str, order: list[str]
) -> None:
    run, names = work / f"best_of_n-{task}", ("odd", "even")
    (work / "strata.jsonl").write_text("".join(f'{{"id": "a{n}", "response": "#### {n}"}}\n' for n in range(8)))
    for printed in (
        verb("report", run.name),
        verb("grade", f"task={task}", "responses=strata.jsonl", "overwrite=true"),
    ):
        firsts = [row.split()[0] for row in _rows(printed) if row.startswith(names)]
        assert firsts[:2] == order
    assert list(load_curves(load_outcome(run), []).series)[1:] == [
        f"{load_outcome(run).primary.name}/{s}" for s in order
    ]
    compared = compare([run])
    assert compared.strata == list(compared.rows[0].by_stratum) == order


@pytest.mark.usefixtures("_undrawn")
def test_runs_are_compared_by_a_paired_bootstrap_and_students_paired_t(work: Path, verb: Evorun) -> None:
    printed = _rows(verb("report", "best_of_n-aim", "duel_evolve-aim"))
    page = _visible(work / "comparison.html")
    assert not re.search(r"accura|McNemar|percentage points|\bright\b", " ".join(printed) + page, re.IGNORECASE)
    assert any(row.startswith("run n difference 95 % interval better worse") for row in printed)
    values = [
        {line["problem"]: line["scores"]["quality"] for line in _lines(work / f"{method}-aim" / "predictions.jsonl")}
        for method in ("best_of_n", "duel_evolve")
    ]
    (pair,) = compare([work / "best_of_n-aim", work / "duel_evolve-aim"], work / "duel_evolve-aim").pairs.pairs
    differences = [values[0][problem] - values[1][problem] for problem in values[0]]
    assert pair.p == pair.p_holm == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert pair.compared.difference == pytest.approx(fmean(differences))
    assert (pair.gained, pair.lost) == (sum(d > 0 for d in differences), sum(d < 0 for d in differences))


def test_where_lower_is_better_the_lowest_leads(work: Path, tmp_path: Path) -> None:
    here = work / "best_of_n-aim_error"
    worse = tmp_path / "worse"
    _copy(here, worse, lambda scores: {"error": scores["error"] + 2})
    manifest = json.loads((worse / "manifest.json").read_text())
    (worse / "manifest.json").write_text(json.dumps({**manifest, "method": "other"}))  # seeds of one method do not pair
    comparison: ComparedRuns = compare([worse, here])
    assert [run.outcome.run_dir for run in comparison.runs] == [here, worse]
    assert comparison.pairs.reference.outcome.run_dir == here
    (pair,) = comparison.pairs.pairs
    assert (pair.compared.difference, pair.gained, pair.lost) == (pytest.approx(2), 0, 8)


@pytest.mark.parametrize(
    ("runs", "score", "best_of"),
    [(("best_of_n-aim", "duel_evolve-aim"), "quality", max), (("best_of_n-aim_error",) * 2, "error", min)],
)
def test_a_comparison_shows_the_best_of_each_pool(work: Path, runs: Sequence[str], score: str, best_of: Any) -> None:
    folders = [work / run for run in runs]
    found = {}
    for folder in folders:
        pools: dict[str, list[float]] = {}
        for candidate in _lines(folder / "candidates.jsonl"):
            if (value := candidate["scores"][score]) is not None:
                pools.setdefault(candidate["problem"], []).append(value)
        found[load_outcome(folder).manifest.method] = fmean(map(best_of, pools.values()))
    rows = compare(folders).rows
    assert {row.method: row.best_of_pool for row in rows} == pytest.approx(found)
    shown = make_search_table(rows)
    assert shown.columns[-1].heading == "best of\npool"


@pytest.mark.usefixtures("_undrawn")
def test_the_judge_agrees_where_the_better_score_wins(work: Path) -> None:
    run = work / "best_of_n-aim_error"
    errors = {(c["problem"], c["id"]): c["scores"]["error"] for c in _lines(run / "candidates.jsonl")}
    agreed = []
    for duel in _lines(run / "comparisons.jsonl"):
        first, second = errors[duel["problem"], duel["first"]], errors[duel["problem"], duel["second"]]
        if duel["outcome"] and first != second:
            agreed.append((duel["outcome"] == "first") == (first < second))
    assert sum(agreed) > len(agreed) / 2  # the simulated judge mostly sees which one is nearer
    share = f"{100 * sum(agreed) / len(agreed):.1f} %"
    assert f"Won by the better one (chance: 50 %) {share}" in _visible(write_report(run))


@pytest.mark.usefixtures("_undrawn")
def test_what_could_not_be_scored_is_counted_and_left_out_of_means(work: Path, verb: Evorun, tmp_path: Path) -> None:
    run = tmp_path / "run"
    _copy(work / "duel_evolve-aim", run, lambda scores: scores, unscored=("a0", "a1", "a2"))
    printed = verb("report", str(run))
    assert "3 of 8 problems have no quality, since the task could not score them; means omit them." in printed
    (overall,) = [row for row in _rows(printed) if row.startswith("all so far") and row.endswith(" 5")][:1]
    kept = [line["scores"]["quality"] for line in _lines(run / "predictions.jsonl") if line["scores"]]
    assert float(overall.split()[3]) == pytest.approx(fmean(kept), rel=1e-2)


def test_responses_are_graded_by_their_scores(work: Path, verb: Evorun) -> None:
    given = {"a0": "#### 3", "a1": "I do not know.", "a2": f"#### {OUT_OF_SIGHT + 1}", "a3": "#### 10"}
    lines = [json.dumps({"id": name, "response": text}) for name, text in given.items()]
    (work / "r.jsonl").write_text("\n".join(lines))
    rows = _rows(verb("grade", "task=aim", "responses=r.jsonl"))
    graded = {line["id"]: (line["correct"], line["scores"].get("quality")) for line in _lines(work / "r.graded.jsonl")}
    assert graded == {"a0": (None, 8.0), "a1": (None, 0.0), "a2": (None, None), "a3": (None, 10.0)}
    assert "a2 \u2013 \u2013" in rows
    assert any(row.startswith("all 4 3 6 ") and row.endswith(" 1") for row in rows)  # scored, mean, unparsable


@pytest.mark.usefixtures("_undrawn")
def test_a_run_that_is_resumed_leaves_the_same_records(work: Path, verb: Evorun) -> None:
    run = work / "best_of_n-aim_error"
    before = records(run)
    for name in RECORDS:
        (run / name).write_bytes(before[name][: len(before[name]) // 2] if name != "metrics.jsonl" else b"")
    (run / "results.json").unlink()
    verb("resume", str(run))
    assert records(run) == before


def test_methods_that_need_right_and_wrong_say_so(work: Path) -> None:
    assert (work / "site").is_dir()  # the tasks are installed
    with pytest.raises(ConfigError, match="task=aim has no right and wrong, by which few_shot chooses its examples"):
        check(composed("method=few_shot", "task=aim", "engine=simulated"))


def _copy(run: Path, to: Path, change: Any, unscored: Sequence[str] = ()) -> None:
    """Copy a run as one that has not written its results, with other scores."""
    to.mkdir()
    for file in ("manifest.json", "problems.jsonl"):
        (to / file).write_bytes((run / file).read_bytes())
    for name in ("steps", "predictions"):
        lines = _lines(run / f"{name}.jsonl")
        for line in lines:
            line["scores"] = {} if line["problem"] in unscored else change(line["scores"])
        (to / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
