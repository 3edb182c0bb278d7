"""Runs beside the study file that states them: deviations from it, and answers at the smallest effect of interest."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from comparison_fixture import edit_manifest, write_method
from pylatexenc.latex2text import LatexNodes2Text
from scipy import stats

from evorun.exports.latex import comparison_tables
from evorun.reports.comparison import compare
from evorun.reports.comparison.paired import compare_pooled_scores, compare_rates, count_paired_outcomes
from evorun.reports.comparison.pairs import Pair
from evorun.reports.comparison.study import StudyReport, describe_answers
from evorun.reports.facts import note_equal_calls
from evorun.reports.overview import load_outcome
from evorun.runs.directory import load_manifest
from evorun.runs.scores import ACCURACY
from evorun.runs.stated_studies import RecordedStudy, StatedStudy

STATED = StatedStudy(
    question="Does gepa beat zero_shot?",
    methods=("gepa",),
    control="zero_shot",
    task="mathbench",
    score="accuracy",
    budget={"calls": 40},
    seeds=(0, 1),
    smallest_effect=0.1,
    stopping_rule="Four runs.",
    settings={"engine": "simulated"},
)
RECORDED = RecordedStudy(file="/study.yaml", digest="ab" * 32, recorded="2026-01-01T10:00:00+00:00", study=STATED)


def _write(folder: Path, method: str, seed: int, right: int = 5, **manifest: Any) -> Path:
    settings = manifest.pop("settings", {})
    config = {
        "method": {"name": method},
        "seed": seed,
        "task": {"name": "mathbench"},
        "engine": {"name": "simulated"},
        "budget": {"name": "unlimited", "calls": 40},
        "study": msgspec.to_builtins(RECORDED),
        **settings,
    }
    given = {"started": "2026-01-01T10:00:01+00:00", "seed": seed, "config": config, "task": "mathbench"}
    given |= {"command": ["evorun", f"method={method}", "budget.calls=40", "engine=simulated"], **manifest}
    return write_method(folder / f"{method}{seed}", [i < right for i in range(10)], method=method, **given)


def _four(folder: Path) -> list[Path]:
    return [_write(folder, method, seed, 4 + seed) for method in ("gepa", "zero_shot") for seed in (0, 1)]


def _report(runs: Sequence[Path]) -> StudyReport:
    report = compare(runs).study
    assert report is not None
    return report


def test_runs_that_kept_to_the_file_are_said_to_and_the_control_is_the_reference(tmp_path: Path) -> None:
    runs = _four(tmp_path)
    report = _report(runs)
    assert report.deviations == []
    assert compare(runs).pairs.reference.manifest.method == "zero_shot"
    question, record, effect, rule, answer = report.lines
    assert effect == "Smallest effect of interest: 10.0 pp in accuracy."
    assert question == "Study: Does gepa beat zero_shot?"
    assert "recorded at 2026-01-01T10:00:00+00:00 (SHA-256 abababababab). The runs kept to it: " in record
    assert rule == "Stopping rule, as stated: Four runs."
    assert answer.startswith("Answer: No difference in accuracy between gepa and zero_shot is shown")


@pytest.mark.parametrize(
    ("change", "deviation"),
    [
        ({"started": "2026-01-01T09:59:59+00:00"}, "was started before the file was recorded"),
        ({"settings": {"budget": {"name": "unlimited", "calls": 50}}}, "has another budget.calls than 40"),
        ({"settings": {"engine": {"name": "vllm"}}}, "has another engine than simulated"),
        ({"settings": {"study": None}}, "was not started as a part of the study"),
        (
            {"command": ["evorun", "method=gepa", "seed=1", "++method.children=8", "run.concurrency=2"]},
            "was started with ++method.children=8, which is not stated",
        ),
        ({"scores": [{"name": "distance"}, {"name": "accuracy", "rate": True}]}, "has the primary score distance"),
    ],
)
def test_a_run_that_did_not_keep_to_the_file_is_named_with_the_reason(
    tmp_path: Path, change: Mapping[str, Any], deviation: str
) -> None:
    runs = _four(tmp_path)
    if "scores" in change:
        edit_manifest(runs[1], **change)
    else:
        runs[1] = _write(tmp_path / "changed", "gepa", 1, **change)
    deviations = _report(runs).deviations
    assert len(deviations) == 1
    assert deviations[0].startswith("gepa")
    assert deviation in deviations[0]
    assert any(line.startswith("Answer, despite the deviations: ") for line in _report(runs).lines)


def test_runs_that_are_missing_added_doubled_or_unfinished_are_named(tmp_path: Path) -> None:
    runs = _four(tmp_path)
    assert _report(runs[1:]).deviations == ["gepa, seed 0, is missing"]
    (added,) = _report([*runs, _write(tmp_path, "gepa", 7)]).deviations
    assert added.endswith("was added")
    assert "gepa, seed 0, ran 2 times" in _report([*runs, _write(tmp_path / "again", "gepa", 0)]).deviations
    edit_manifest(runs[0], status="interrupted")
    (runs[0] / "results.json").unlink()
    assert any("is not completed" in line for line in _report(runs).deviations)


def test_added_seeds_leave_the_answer_over_the_stated_ones_as_it_was(tmp_path: Path) -> None:
    runs = _four(tmp_path)
    *_, stated = _report(runs).lines
    added = [_write(tmp_path, "gepa", 7, 10), _write(tmp_path, "zero_shot", 7, 0)]
    report = _report([*runs, *added])
    *_, answer, beside = report.lines
    assert answer == stated.replace("Answer:", "Answer over the stated seeds (0, 1):")
    assert "3 seeds x 10 shared problems" in beside
    assert beside.startswith("With the added runs, which the file does not state: ")
    with_another = _report([*runs, _write(tmp_path, "duel_evolve", 0, 9)])
    assert with_another.lines[4] == stated  # a further comparison would have changed Holm's adjustment


def test_a_malformed_study_of_a_foreign_run_is_none(tmp_path: Path) -> None:
    runs = [
        _write(tmp_path, method, 0, settings={"study": {"file": 3}}, started="yesterday")
        for method in ("gepa", "zero_shot")
    ]
    assert compare(runs).study is None
    assert load_manifest(runs[0]).config["study"] == {"file": 3}


def _pair(gained: float, lost: float, problems: int, seeds: int = 4, comparisons: int = 1) -> Pair:
    draws = np.random.default_rng(0).random((seeds, problems))
    table = [{str(i): float(u < gained) - float(u > 1 - lost) for i, u in enumerate(row)} for row in draws]
    compared = compare_pooled_scores(table, 1.0)
    assert compared.crossed is not None
    p = compared.crossed.p_differs()
    return Pair("gepa", "zero_shot", ACCURACY, compared, p, p, comparisons, {}, "")


@pytest.mark.parametrize(
    ("pair", "answer"),
    [
        (_pair(0.5, 0.05, 200), "It is better by at least the smallest effect of interest (10.0 pp)."),
        (_pair(0.05, 0.5, 200), "It is worse by at least the smallest effect of interest (10.0 pp)."),
        (_pair(0.3, 0.18, 400), "It is better; whether by the smallest effect of interest (10.0 pp) is not settled."),
        (_pair(0.07, 0.02, 500), "It is better, by less than the smallest effect of interest (10.0 pp)"),
        (_pair(0.05, 0.05, 400), "The two are equivalent within the smallest effect of interest (10.0 pp)"),
        (_pair(0.4, 0.35, 20), "The question stays open: equivalence within the smallest effect of interest (10.0 pp)"),
    ],
)
def test_the_answer_is_what_the_tests_show_at_the_smallest_effect(pair: Pair, answer: str) -> None:
    (said,) = describe_answers(STATED, {0: pair})
    assert answer in said


def test_equivalence_is_two_one_sided_tests() -> None:
    ours, theirs = [True] * 50 + [False] * 50, [True] * 40 + [False] * 53 + [True] * 7
    counts = count_paired_outcomes(ours, theirs)
    pair = replace(_pair(0.1, 0.1, 20), compared=compare_rates(counts), p=1.0, p_holm=1.0)
    differences = np.array(ours, dtype=float) - np.array(theirs, dtype=float)
    below, above = (
        stats.ttest_1samp(differences, bound, alternative=side).pvalue
        for bound, side in ((0.1, "less"), (-0.1, "greater"))
    )
    (said,) = describe_answers(STATED, {0: pair})
    assert min(below, above) < max(below, above) < 0.05
    assert f"(two one-sided tests, p = {max(below, above):.3f})" in said


def test_equivalence_is_adjusted_for_the_methods_of_the_study() -> None:
    pair = _pair(0.1, 0.1, 400)
    crossed = pair.compared.crossed
    assert crossed is not None
    bound = abs(crossed.mean) + crossed.quantile(0.965) * crossed.standard_error  # p = .035
    two = msgspec.structs.replace(STATED, methods=("gepa", "lyria"), smallest_effect=bound)
    assert "are equivalent" in describe_answers(msgspec.structs.replace(two, methods=("gepa",)), {0: pair})[0]
    said = describe_answers(two, {0: pair, 1: pair})
    assert all("The question stays open" in answer for answer in said)
    assert describe_answers(two, {0: pair})[1] == "lyria could not be compared with the control."


def test_the_latex_tables_begin_with_the_study_in_the_text(tmp_path: Path) -> None:
    document = "\n".join(
        line for line in comparison_tables(compare(_four(tmp_path))).splitlines() if not line.startswith("%")
    )
    typeset = str(LatexNodes2Text().latex_to_text(document[: document.index(r"\begin{table}")]))
    for said in (STATED.question, RECORDED.digest, "Smallest effect of interest: 10.0 pp", "Answer: ", "equivalence"):
        assert said in typeset


def test_a_budget_that_the_study_states_is_a_fact_without_advice(tmp_path: Path) -> None:
    runs = [_write(tmp_path, "lyria", 0, settings={"study": None}), _write(tmp_path, "lyria", 1)]
    advice = [note_equal_calls(load_outcome(run)) for run in runs]
    assert ["budget.generations=N" in line for line in advice] == [True, False]
    assert "the study states this budget" in advice[1]
