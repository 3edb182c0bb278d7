"""`evorun reselect`: one recorded pool under every selector."""

import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import simulated_run
from evorun.cli.rejudging import reselect
from evorun.cli.verbs import run_verb
from evorun.errors import ConfigError
from evorun.reports import html
from evorun.reports.rejudged import load_rejudging, load_rejudgings, pool_selections
from evorun.runs.journal_reader import read_journal
from evorun.runs.reselected import Selected, summarise
from evorun.runs.schema import ReturnedCandidate, Spent, StepRecord
from evorun.runs.scores import ACCURACY
from evorun.runs.stopped import Course, end_all, summarise_stops
from evorun.runs.studies import load_figures
from evorun.runs.terminal import Terminal

TASK = ("task=mathbench", "task.source=sample", "task.limit=6")
ASKING = ("selectors=swiss,thompson,uniform", "comparisons=12")


@pytest.fixture(scope="module", name="rated")
def _rated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = ("method.samples=8", "method.comparisons=12")
    return simulated_run(tmp_path_factory.mktemp("rated") / "run", "method=v1_infer", *TASK, *sizes).path


@pytest.fixture(scope="module", name="dueled")
def _dueled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = ("method.samples=8", "method.rounds=3", "method.duels=4", "seed=1")
    return simulated_run(tmp_path_factory.mktemp("dueled") / "run", "method=best_of_n", *TASK, *sizes).path


@pytest.fixture(autouse=True)
def _no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "write_report", lambda run: None)  # which takes seconds


def study(run: Path, *words: str) -> Path:
    """Carry out a reselection and return its folder."""
    assert reselect([str(run), *words], Terminal(quiet=True)) == 0
    return max(run.glob("rejudge/*"), key=lambda folder: (folder / "rejudge.json").stat().st_mtime_ns)


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def pools(run: Path) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for candidate in records(run, "candidates"):
        if candidate["answer"] is not None:
            found[candidate["problem"]].append(candidate)
    return found


def choices(folder: Path, selector: str) -> dict[str, dict[str, Any]]:
    return {record["problem"]: record for record in records(folder, "selections") if record["selector"] == selector}


def test_free_selectors_choose_as_an_enumeration_does_and_make_no_call(dueled: Path) -> None:
    folder = study(dueled)
    assert list(read_journal(folder / "journal.sqlite")) == []
    predictions = {record["problem"]: record for record in records(dueled, "predictions")}
    for problem, pool in pools(dueled).items():
        right = [float(candidate["correct"]) for candidate in pool]
        counts = Counter(candidate["answer"] for candidate in pool)
        top = [answer for answer, count in counts.items() if count == max(counts.values())]
        majority = next(candidate for candidate in pool if candidate["answer"] == top[0])
        best = max(pool, key=lambda candidate: candidate["mean"])["id"]
        assert choices(folder, "the run")[problem]["candidate"] == predictions[problem]["candidate"] == best
        assert choices(folder, "best by duels")[problem]["candidate"] == best
        assert choices(folder, "majority")[problem]["candidate"] == majority["id"]
        assert choices(folder, "one at random")[problem]["score"] == pytest.approx(np.mean(right))
        assert choices(folder, "oracle")[problem]["score"] == max(right)
        weights: Counter[str] = Counter()
        for candidate in pool:
            weights[candidate["answer"]] += 1 / (1 + math.exp(-candidate["mean"]))  # type: ignore[assignment]
        voted = max(weights, key=weights.__getitem__)
        chosen = choices(folder, "weighted by duels")[problem]["candidate"]
        assert next(candidate for candidate in pool if candidate["id"] == chosen)["answer"] == voted
        # Two of eight, drawn with replacement: the better one of each draw.
        order = sorted(pool, key=lambda candidate: -candidate["mean"])
        best_of_two = [float(min(a, b, key=order.index)["correct"]) for a in pool for b in pool]
        if len({candidate["mean"] for candidate in pool}) == len(pool):
            assert choices(folder, "best of √N by duels")[problem]["score"] == pytest.approx(np.mean(best_of_two))


def test_recorded_ratings_are_a_selector_beside_the_winners_alone(rated: Path) -> None:
    folder = study(rated)
    names = [figure.group for figure in load_figures(folder)]
    assert "best by ratings" in names
    assert "best by duels" in names
    own = {record["problem"]: record["candidate"] for record in records(rated, "predictions")}
    assert {p: record["candidate"] for p, record in choices(folder, "best by ratings").items()} == own


@pytest.mark.nightly
def test_a_line_says_how_many_candidates_no_judge_met_and_how_they_are_rated(tmp_path: Path) -> None:
    sizes = ("method.samples=8", "method.rounds=1", "method.duels=2")
    runs = [simulated_run(tmp_path / str(s), "method=best_of_n", *TASK, *sizes, f"seed={s}").path for s in (0, 1)]
    folders = [study(run) for run in runs]
    met = [{(r["problem"], r[end]) for r in records(run, "comparisons") for end in ("first", "second")} for run in runs]
    total = [sum(map(len, pools(run).values())) for run in runs]
    missing = [held - len(ends) for held, ends in zip(total, met, strict=True)]
    assert all(missing)
    assert f"Duels: {missing[0]} of {total[0]} candidates were in none." in load_rejudging(folders[0]).note
    pooled = pool_selections(runs, folders).note
    assert f"Duels: {sum(missing)} of {sum(total)} candidates were in none." in pooled


def test_a_pool_without_duels_has_no_rules_by_duels(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", "method=self_consistency", *TASK, "method.samples=4").path
    folder = study(run)
    assert [figure.group for figure in load_figures(folder)] == ["the run", "one at random", "majority", "oracle"]
    assert "Duels" not in load_rejudging(folder).note


def test_selectors_that_ask_pay_for_their_comparisons_once(rated: Path) -> None:
    folder = study(rated, *ASKING)
    asked = Counter(effect.key.split("|")[0].rsplit(" ")[-1] for effect in read_journal(folder / "journal.sqlite"))
    assert asked == {"swiss": 6 * 12, "thompson": 6 * 12, "uniform": 6 * 12}
    for selector in asked:
        assert {record["calls"] for record in choices(folder, selector).values()} == {12}
    assert {record["calls"] for record in choices(folder, "majority").values()} == {0}
    before = (folder / "selections.jsonl").read_bytes()
    assert study(rated, *ASKING) == folder
    assert sum(1 for _ in read_journal(folder / "journal.sqlite")) == 3 * 6 * 12
    assert (folder / "selections.jsonl").read_bytes() == before
    assert json.loads((folder / "cost.json").read_text())["calls"] == 3 * 6 * 12


def test_a_study_that_a_budget_ended_goes_on_to_the_same_choices(dueled: Path) -> None:
    words = ("selectors=swiss", "comparisons=10")
    folder = study(dueled, *words, "budget.calls=35")
    assert len(choices(folder, "swiss")) == 3
    assert "3 opinions out" in json.loads((folder / "rejudge.json").read_text())["ended_early"]
    paid = {effect.key: effect.result for effect in read_journal(folder / "journal.sqlite")}
    assert len(paid) == 30
    assert run_verb("resume", [str(folder)]) == 0  # within the same budget
    assert study(dueled, *words) == folder
    effects = {effect.key: effect.result for effect in read_journal(folder / "journal.sqlite")}
    assert len(effects) == 60
    assert paid.items() <= effects.items()
    assert len(choices(folder, "swiss")) == 6


def test_a_judge_that_knows_the_truth_finds_what_there_is_to_find(dueled: Path) -> None:
    folder = study(dueled, "selectors=swiss", "comparisons=40", "judge=oracle")
    assert {p: record["score"] for p, record in choices(folder, "swiss").items()} == {
        p: record["score"] for p, record in choices(folder, "oracle").items()
    }


@pytest.mark.nightly
def test_the_reports_have_the_table_and_several_runs_are_pooled(rated: Path, dueled: Path, tmp_path: Path) -> None:
    folders = [study(run) for run in (rated, dueled)]
    section = next(section for section in load_rejudgings(rated) if section.title == "choices again: as recorded")
    assert section.tables[0].rows[0][:2] == ["the run", 6]
    pooled = pool_selections([rated, dueled], folders).tables[0]
    rows = {row[0]: row for row in pooled.rows}
    assert (rows["oracle"][1], rows["best by ratings"][1]) == (12, 6)
    assert reselect([str(rated), str(dueled)], Terminal(quiet=True)) == 0
    other = simulated_run(tmp_path / "other", "method=self_consistency", "method.samples=4", "task=arithmetic").path
    with pytest.raises(ConfigError, match=r"^expected runs of one task to pool, got arithmetic, mathbench$"):
        reselect([str(rated), str(other)], Terminal(quiet=True))
    with pytest.raises(ConfigError, match=r"^stop_probability: expected a run of duel_evolve, .* method=self_consis"):
        study(other, "stop_probability=0.9")


def test_a_row_compares_each_run_with_its_own_choices_and_counts_a_shared_problem_once() -> None:
    def chose(problem: str, selector: str, score: float | None, calls: int = 0) -> Selected:
        return Selected(problem=problem, selector=selector, candidate=selector, score=score, calls=calls)

    first = [chose("a", "the run", 0), chose("a", "x", 1, 4), chose("b", "the run", 1), chose("b", "x", 1, 8)]
    second = [chose("a", "the run", 1), chose("a", "x", 0, 6), chose("c", "the run", 1), chose("c", "y", None)]
    own, x, y = summarise([first, second], ACCURACY)
    assert (own.group, own.n, own.problems, own.difference, own.agreement) == ("the run", 4, 3, None, None)
    assert own.now is not None
    assert own.now.value == pytest.approx((0.5 + 1 + 1) / 3)
    assert (x.n, x.problems, x.calls) == (3, 2, 6)
    assert x.now is not None
    assert x.difference is not None
    assert (x.now.value, x.difference.value, x.difference.n) == (0.75, 0.0, 2)  # a: +1 and -1, b: 0
    assert y.now is not None
    assert y.now.value is None


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), r"^expected: evorun reselect RUN_DIR\.\.\. .*; got: nothing$"),
        (("RUN", "task.limit=3"), r"^expected: evorun reselect "),
        (("RUN", "judge=oracle"), r"^judge: expected selectors=swiss,thompson,uniform, or one of them, beside it; "),
        (
            ("RUN", "stop_probability=0.9,1"),
            r"^stop_probability: expected probabilities between 0 and 1, .*, got 0.9,1$",
        ),
        (("RUN", "selectors=elo"), r"^selectors: expected some of swiss, thompson, uniform, got elo$"),
        (("RUN", "selectors=swiss", "comparisons=0"), r"^comparisons: expected a number >= 1, got 0$"),
    ],
)
def test_a_wrong_command_line_is_refused_in_a_line(dueled: Path, words: tuple[str, ...], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        reselect([str(dueled) if word == "RUN" else word for word in words], Terminal(quiet=True))


def test_texts_that_are_never_equal_are_not_voted_on(tmp_path: Path) -> None:
    sizes = ("method.samples=4", "method.rounds=2", "task=billsum", "task.source=sample", "task.limit=2")
    run = simulated_run(tmp_path / "run", "method=best_of_n", *sizes).path
    names = {figure.group for figure in load_figures(study(run))}
    assert names == {"the run", "one at random", "best by duels", "best of √N by duels", "oracle"}


def test_recorded_confidences_vote_as_the_method_that_asked_for_them(tmp_path: Path) -> None:
    sizes = ("method.samples=20", "method.keep=0.1", "engine.confidence_skill=0.9")
    run = simulated_run(tmp_path / "run", "method=deepconf", *TASK, *sizes).path
    folder = study(run)
    own = {record["problem"]: record["candidate"] for record in records(run, "predictions")}
    assert {p: record["candidate"] for p, record in choices(folder, "deepconf").items()} == own
    assert "majority of bests by confidence" in {figure.group for figure in load_figures(folder)}


@pytest.mark.nightly
def test_best_of_n_chooses_by_votes_as_the_same_votes_do_afterwards(dueled: Path, tmp_path: Path) -> None:
    sizes = ("method.samples=8", "method.rounds=3", "method.duels=4", "seed=1")
    folder = study(dueled)
    for choose, selector in (("majority_of_bests", "majority of bests"), ("weighted", "weighted")):
        run = simulated_run(tmp_path / choose, "method=best_of_n", *TASK, *sizes, f"method.choose={choose}").path
        own = {record["problem"]: record["candidate"] for record in records(run, "predictions")}
        assert {p: r["candidate"] for p, r in choices(folder, f"{selector} by duels").items()} == own


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("world", "wins"),
    [
        (("engine.skill=0.45", "engine.judge_skill=0.55", "engine.typical_mistake=0.2"), True),
        (("engine.skill=0.25", "engine.judge_skill=0.9", "engine.typical_mistake=0.7"), False),
    ],
    ids=["weak judge", "typical mistake"],
)
def test_votes_beat_the_best_by_duels_or_lose_to_it(tmp_path: Path, world: tuple[str, ...], wins: bool) -> None:
    sizes = ("method.samples=16", "method.rounds=2", "method.duels=16", "task.limit=40")
    run = simulated_run(tmp_path / "run", "method=best_of_n", *TASK, *sizes, *world).path
    share = {figure.group: figure.now.value for figure in load_figures(study(run)) if figure.now is not None}
    for votes in ("weighted by duels", "majority of bests by duels"):
        gain = (share[votes] or 0) - (share["best by duels"] or 0)
        assert (gain > 0.1) if wins else (gain < -0.05)


STOPS = {
    "best_of_n": ("method.samples=6", "method.rounds=10", "method.duels=4"),
    "duel_evolve": ("method.initial_candidates=4", "method.generations=5", "method.children=2", "method.duels=6"),
    "v1_infer": ("method.samples=6", "method.comparisons=24"),
}


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[] if name == "v1_infer" else pytest.mark.nightly) for name in STOPS],
)
def test_a_recorded_problem_ends_where_a_real_stop_ends_it(tmp_path: Path, method: str) -> None:
    world = (f"method={method}", *STOPS[method], *TASK, "engine.skill=0.5", "engine.judge_skill=0.85")
    whole = simulated_run(tmp_path / "whole", *world).path
    folder = study(whole, "stop_probability=0.99,0.7")
    ends = {end["problem"]: end for end in records(folder, "stops") if end["stop_probability"] == 0.7}
    assert any(end["ended"] for end in ends.values())
    limits: tuple[str, ...] = ("method.stop_probability=0.7",)
    if method == "best_of_n":
        # Saved calls that move to the other problems take them to the same ends.
        limits += (f"budget.calls={sum(end['calls'] for end in ends.values())}", "budget.redistribute=true")
    real = simulated_run(tmp_path / "real", *world, *limits).path
    for prediction in records(real, "predictions"):
        end = ends[prediction["problem"]]
        assert end["calls"] == sum(spent["calls"] for spent in prediction["cost"].values())
        assert (end["candidate"], end["score"]) == (prediction["candidate"], prediction["correct"])
        assert end["step"] == prediction["steps"] - 1
    for problem, last in {step["problem"]: step for step in records(real, "steps")}.items():
        assert (last["extra"]["best_probability"] >= 0.7) == ends[problem]["ended"]
    with pytest.raises(ConfigError, match=r"^stop_probability: expected at most 0\.7, .*, got 0\.9$"):
        study(real, "stop_probability=0.6,0.9")
    [_, table], pooled = load_rejudging(folder).tables, pool_selections([whole, whole], [folder, folder]).tables[1]
    ended = sum(end["ended"] for end in ends.values())
    assert [row[:3] for row in table.rows[:2]] == [["never", 6, None], ["0.7", 6, ended]]
    assert pooled.rows[1][:3] == ["0.7", 12, 2 * ended]


def test_ends_are_compared_with_the_same_calls_spent_evenly() -> None:
    def step(problem: str, number: int, *, correct: bool) -> StepRecord:
        best, cost = ReturnedCandidate(f"c{number}", "1", "1"), {"judge": Spent(10 * (number + 1), 0, 0)}
        return StepRecord(problem, "all", number, best, None, correct, 2, 2, cost, {})

    easy = Course([step("easy", number, correct=True) for number in range(4)], [0.0, 0.95, 0.97, 0.99], 41)
    hard = Course([step("hard", number, correct=number == 3) for number in range(4)], [0.0, 0.5, 0.6, 0.7], 41)
    first, second = end_all([easy, hard], 0.9, ACCURACY)
    assert (first.ended, first.step, first.candidate, first.calls, first.recorded_calls) == (True, 1, "c1", 20, 41)
    assert (second.ended, second.step, second.calls, second.score) == (False, 3, 41, 1.0)
    # 61 calls, spent evenly, are 30.5 each: a twentieth of the way from the hard problem's third step to its fourth.
    assert (first.even_score, second.even_score) == (1.0, pytest.approx(0.05))
    [figures] = summarise_stops([first, second], ACCURACY)
    assert (figures.n, figures.ended, figures.calls, figures.saved) == (2, 1, 30.5, pytest.approx(21 / 82))
    assert (figures.ended_score.value, figures.score.value, figures.difference.value) == (1.0, 1.0, 0.0)
    assert (figures.even_difference.value, figures.even_difference.ci95) == (pytest.approx(0.95 / 2), None)
