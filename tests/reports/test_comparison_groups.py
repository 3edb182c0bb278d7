"""Sweeps: each run beside the reference of its own task, problems, model and seed, and what is pooled over seeds."""

import csv
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison_fixture import BENCHMARK, write_method
from scipy import stats

from evorun.errors import ConfigError
from evorun.reports.comparison import ComparedRuns, compare
from evorun.reports.comparison.notes import (
    intervals_note,
    narrower_notes,
    pairs_heading,
    pairs_note,
    seed_share_notes,
    unpaired_lines,
)
from evorun.reports.comparison.paired import adjust_by_holm
from evorun.reports.comparison.pairs import Pair
from evorun.reports.comparison.tables import make_data_tables
from evorun.runs.crossed import crossed_mean

GOOD = [True] * 8 + [False] * 2
FAIR = [True] * 5 + [False] * 4 + [True]
POOR = [True] * 3 + [False] * 7


def _digest(letters: str) -> dict[str, str]:
    return {**BENCHMARK, "digest": letters * 32}


def _write(
    folder: Path,
    method: str,
    correct: Sequence[bool] | Mapping[str, bool],
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
    student: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    config = {"method": {"name": method, **(settings or {})}, "seed": seed, "task": {"name": more.get("task", "")}}
    if student is not None:
        config["student"] = student
    if engine is not None:
        config["engine"] = {"name": "simulated", **engine}
        more["simulated"] = True
    target = folder / str(len(list(folder.iterdir())))
    return write_method(target, correct, method=method, seed=seed, config=config, **more)


def _pairs(comparison: ComparedRuns) -> dict[str, str]:
    return {pair.name: pair.reference for pair in comparison.pairs.pairs}


def _reasons(comparison: ComparedRuns) -> dict[str, str]:
    return {unpaired.run.name: unpaired.reason for unpaired in comparison.pairs.unpaired}


@pytest.fixture(name="sweep")
def _sweep(tmp_path: Path) -> list[Path]:
    """Two tasks, two simulated models, three methods; on tsp with skill 0.9 gepa is the best of all."""
    outcomes = {"lyria": GOOD, "gepa": FAIR, "zero_shot": POOR}
    return [
        _write(
            tmp_path, method, [True] * 10 if (method, task, skill) == ("gepa", "tsp", 0.9) else outcomes[method],
            task=task, engine={"skill": skill}, provenance=_digest("ab" if task == "tsp" else "cd"),
        )
        for task, skill, method in itertools.product(("tsp", "sudoku"), (0.5, 0.9), outcomes)
    ]  # fmt: skip


def test_each_run_of_a_sweep_meets_the_reference_method_in_its_own_group(sweep: list[Path]) -> None:
    comparison = compare(sweep)
    assert _pairs(comparison) == {
        f"{method}, {task}, engine.skill={skill}": f"lyria, {task}, engine.skill={skill}"
        for task, skill, method in itertools.product(("tsp", "sudoku"), (0.5, 0.9), ("gepa", "zero_shot"))
    }
    assert _reasons(comparison) == {}
    by_name = {pair.name: pair.compared.difference for pair in comparison.pairs.pairs}
    assert by_name["gepa, tsp, engine.skill=0.9"] == pytest.approx(0.2)
    assert by_name["gepa, sudoku, engine.skill=0.9"] == pytest.approx(-0.2)


def test_holm_counts_all_groups_together(sweep: list[Path]) -> None:
    pairs = compare(sweep).pairs.pairs
    assert len(pairs) == 8
    discordant = [(pair.gained, pair.gained + pair.lost) for pair in pairs]
    assert [pair.p for pair in pairs] == [stats.binomtest(*counts).pvalue if counts[1] else 1 for counts in discordant]
    assert [pair.p_holm for pair in pairs] == adjust_by_holm([pair.p or 0 for pair in pairs])


def test_a_named_reference_stands_for_its_method_in_all_groups(sweep: list[Path]) -> None:
    comparison = compare(sweep, against=sweep[2])
    assert comparison.pairs.reference.name == "zero_shot, tsp, engine.skill=0.5"
    assert _pairs(comparison)["lyria, sudoku, engine.skill=0.9"] == "zero_shot, sudoku, engine.skill=0.9"
    assert len(_pairs(comparison)) == 8


def test_speed_does_not_make_another_simulated_model(tmp_path: Path) -> None:
    runs = [
        _write(tmp_path, "lyria", GOOD, engine={"skill": 0.5, "slots": 4, "seconds_per_token": 0.1}),
        _write(tmp_path, "gepa", FAIR, engine={"skill": 0.5, "slots": None, "seconds_per_token": 0.0}),
        _write(tmp_path, "gepa", FAIR, engine={"skill": 0.5, "slots": 9}, seed=1),
    ]
    comparison = compare(runs)
    assert _reasons(comparison) == {"gepa, seed 1": "the reference has no finished run with seed 1"}
    assert len(comparison.pairs.pairs) == 1
    assert [(arm.name, len(arm.runs)) for arm in comparison.arms] == [("lyria", 1), ("gepa", 2)]


def test_a_run_without_a_partner_is_compared_with_the_reference_of_its_task_and_seed(tmp_path: Path) -> None:
    full, control = {"improvement": 0.6}, {"improvement": 0}
    runs = [
        _write(tmp_path, method, right, task=task, engine=engine, seed=seed)
        for task in ("tsp", "sudoku")
        for seed in (0, 1)
        for method, right, engine in (("best_of_n", FAIR, full), ("lyria", POOR, full), ("lyria", POOR, control))
    ]
    model = "another simulated model: improvement 0, not 0.6"
    named = [f"lyria, {task}, engine.improvement=0, seed {seed}" for task in ("tsp", "sudoku") for seed in (0, 1)]
    assert _reasons(compare(runs)) == dict.fromkeys(named, model)
    # also where the control is itself a reference, since it alone has its model
    alone = [_write(tmp_path, "lyria", GOOD, task="tsp", engine=control, seed=seed) for seed in (2, 3)]
    others = [_write(tmp_path, "best_of_n", POOR, task="tsp", engine=full, seed=seed) for seed in (2, 3)]
    lyria = [_write(tmp_path, "lyria", FAIR, task="tsp", engine=full, seed=seed) for seed in (2, 3)]
    comparison = compare([*alone, *others, *lyria])
    assert comparison.pairs.reference.name == "lyria, engine.improvement=0.6, seed 2"
    assert _reasons(comparison) == {f"lyria, engine.improvement=0, seed {seed}": model for seed in (2, 3)}


def test_another_stream_of_random_numbers_is_another_draw_from_the_same_model(tmp_path: Path) -> None:
    runs = [
        _write(tmp_path, method, right, engine={"skill": 0.5, "stream": method})
        for method, right in (("espl", GOOD), ("grpo", FAIR))
    ]
    comparison = compare(runs)
    assert _reasons(comparison) == {}
    assert _pairs(comparison) == {"grpo": "espl"}


def test_settings_are_part_of_a_named_reference(tmp_path: Path) -> None:
    runs = [
        _write(tmp_path, "lyria", GOOD, task="tsp", settings={"population": 10}),
        _write(tmp_path, "lyria", FAIR, task="tsp", settings={"population": 30}),
        _write(tmp_path, "lyria", GOOD, task="sudoku", settings={"population": 30}),
        _write(tmp_path, "gepa", POOR, task="sudoku"),
    ]
    comparison = compare(runs, against=runs[0])
    assert _pairs(comparison) == {"lyria, tsp, method.population=30": "lyria, tsp, method.population=10"}
    assert set(_reasons(comparison).values()) == {"another task: sudoku, not tsp"}
    assert _pairs(compare(runs, against=runs[1])) == {
        "lyria, tsp, method.population=10": "lyria, tsp, method.population=30",
        "gepa": "lyria, sudoku",
    }


def test_a_method_whose_defaults_follow_the_task_is_the_same_method(tmp_path: Path) -> None:
    runs = [
        _write(tmp_path, "duel_evolve", GOOD, task="mathbench", settings={"children": 10}),
        _write(tmp_path, "gepa", POOR, task="mathbench"),
        _write(tmp_path, "duel_evolve", FAIR, task="livecodebench", settings={"children": 40}),
        _write(tmp_path, "gepa", POOR, task="livecodebench"),
    ]
    expected = {
        "gepa, mathbench": "duel_evolve, mathbench",
        "gepa, livecodebench": "duel_evolve, livecodebench",
    }
    assert _pairs(compare(runs)) == expected
    assert _pairs(compare(runs, against=runs[0])) == expected


def test_groups_that_lack_the_reference_method_get_one_of_their_own_unless_it_was_named(tmp_path: Path) -> None:
    runs = [
        *(_write(tmp_path, "lyria", GOOD, task=task) for task in ("tsp", "sudoku")),
        *(_write(tmp_path, "gepa", POOR, task=task) for task in ("tsp", "sudoku")),
        _write(tmp_path, "best_of_n", [True] * 10, task="mathbench"),
        _write(tmp_path, "zero_shot", POOR, task="mathbench"),
    ]
    pairs = _pairs(compare(runs))
    assert pairs == {"gepa, tsp": "lyria, tsp", "gepa, sudoku": "lyria, sudoku", "zero_shot": "best_of_n"}
    named = compare(runs, against=runs[0])
    assert _pairs(named) == {name: pairs[name] for name in ("gepa, tsp", "gepa, sudoku")}
    assert _reasons(named) == dict.fromkeys(("best_of_n", "zero_shot"), "another task: mathbench, not tsp")


def test_other_problems_are_another_group(tmp_path: Path) -> None:
    runs = [
        _write(tmp_path, "lyria", GOOD),
        _write(tmp_path, "gepa", FAIR),
        _write(tmp_path, "zero_shot", {f"p{i}": True for i in range(7)}, provenance=_digest("cd")),
    ]
    comparison = compare(runs)
    assert _pairs(comparison) == {"gepa": "lyria"}
    assert _reasons(comparison) == {"zero_shot": "other problems: 7 vs 10, 7 in common"}


OURS = [[True, True, False, False, True, True], [True, False, False, True, True, True]]
THEIRS = [[False, True, False, False, False, True], [False, False, True, False, True, False]]


def _seeded(tmp_path: Path, **more: Any) -> list[Path]:
    runs = []
    for seed in range(2):
        runs.append(_write(tmp_path, "lyria", OURS[seed], seed=seed, scores=_scores(OURS[seed], seed), **more))
        runs.append(_write(tmp_path, "gepa", THEIRS[seed], seed=seed, scores=_scores(THEIRS[seed], seed), **more))
    return runs


def _scores(outcomes: Sequence[bool], seed: int) -> dict[str, list[float]]:
    return {"penalised_score": [100.0 * right - 7 * index * seed for index, right in enumerate(outcomes)]}


def _pooled(comparison: ComparedRuns) -> Pair:
    (pooled,) = comparison.pairs.pooled
    return pooled


def test_seeds_are_paired_within_themselves_and_pooled(tmp_path: Path) -> None:
    comparison = compare(_seeded(tmp_path))
    assert _pairs(comparison) == {f"gepa, seed {seed}": f"lyria, seed {seed}" for seed in range(2)}
    pooled = _pooled(comparison)
    assert (pooled.name, pooled.reference) == ("gepa", "lyria")
    assert (pooled.compared.n, pooled.gained, pooled.lost) == (12, 1, 5)
    assert pooled.compared.difference == pytest.approx(np.mean(THEIRS) - np.mean(OURS))
    assert len(comparison.pairs.all_pairs) == 3


def test_single_seeds_do_not_count_against_the_pooled_p(tmp_path: Path) -> None:
    """Two pools, and of each two seeds: Holm's rule for two p-values is their smaller one doubled, at most the other's,
    in either table."""
    runs = [*_seeded(tmp_path), *(_write(tmp_path, "zero_shot", [False] * 6, seed=seed) for seed in range(2))]
    comparison = compare(runs)
    low, high = sorted(comparison.pairs.pooled, key=lambda pair: pair.p or 0)
    assert low.p is not None
    assert high.p is not None
    assert (low.p_holm, high.p_holm) == (min(1, 2 * low.p), min(1, max(2 * low.p, high.p)))
    assert low.p_holm != low.p
    smallest, *_, largest = sorted(comparison.pairs.seed_pairs, key=lambda pair: pair.p or 0)
    assert smallest.p is not None
    assert (smallest.p_holm, largest.p_holm) == (min(1, 4 * smallest.p), 1)
    assert "adjusted for the 2 main comparisons and, separately, for the 4 made seed by seed." in pairs_note(comparison)


def test_the_pooled_p_goes_with_the_interval_over_seeds_and_problems(tmp_path: Path) -> None:
    pooled = _pooled(compare(_seeded(tmp_path)))
    assert pooled.compared.crossed is not None
    assert pooled.p is not None
    ends = pooled.compared.crossed.interval(1 - pooled.p)
    assert min(map(abs, ends)) == pytest.approx(0, abs=1e-9)
    assert pooled.p != pytest.approx(stats.binomtest(1, 6).pvalue)  # which would take the seeds for independent


def _share_of_seeds(ours: Sequence[Sequence[bool]], theirs: Sequence[Sequence[bool]]) -> float:
    """Return the seeds' share in the variance of the mean difference, by variance components from sums of squares."""
    seeds, problems = range(len(ours)), range(len(ours[0]))
    a, b = len(seeds), len(problems)
    d = {(s, i): float(ours[s][i]) - float(theirs[s][i]) for s in seeds for i in problems}
    mean = sum(d.values()) / (a * b)
    of_seed = [sum(d[s, i] for i in problems) / b - mean for s in seeds]
    of_problem = [sum(d[s, i] for s in seeds) / a - mean for i in problems]
    between_seeds = b * sum(effect**2 for effect in of_seed) / (a - 1)
    between_problems = a * sum(effect**2 for effect in of_problem) / (b - 1)
    rest = sum((d[s, i] - mean - of_seed[s] - of_problem[i]) ** 2 for s, i in d) / ((a - 1) * (b - 1))
    seed, problem = (between_seeds - rest) / b, (between_problems - rest) / a
    # all that more seeds reduce, beside all that more problems reduce: the rest is in both
    by_seeds, by_problems = seed / a + rest / (a * b), problem / b + rest / (a * b)
    return by_seeds / (by_seeds + by_problems)


def test_pairs_have_the_share_of_seeds_in_the_variance_of_their_difference(tmp_path: Path) -> None:
    outcomes = {"lyria": [*OURS, [True] * 4 + [False] * 2], "gepa": [*THEIRS, [False] * 6]}
    outcomes["zero_shot"] = [[False] * 6, [True] + [False] * 5, [False] * 3 + [True] * 3]
    runs = [_write(tmp_path, method, of[seed], seed=seed) for method, of in outcomes.items() for seed in range(3)]
    comparison = compare(runs)
    shares = {pair.name: pair.compared.seed_share for pair in comparison.pairs.pooled}
    expected = {name: _share_of_seeds(outcomes[name], outcomes["lyria"]) for name in ("gepa", "zero_shot")}
    assert shares == pytest.approx(expected)
    rows = csv.DictReader(next(t for t in make_data_tables(comparison) if t.name == "pairs").csv().splitlines())
    in_file = {row["run"]: row["seed_share"] for row in rows}
    assert {name: float(in_file[name]) for name in expected} == pytest.approx(expected)
    assert in_file["gepa, seed 0"] == ""
    low, high = sorted(expected.values())
    note = " ".join(seed_share_notes(comparison))
    assert (
        "of the variance behind the arms' intervals of accuracy, problems the rest. Behind differences in acc" in note
    )
    assert f"they make up {100 * low:.1f} to {100 * high:.1f} %: " in note
    advice = {(True, True): "so more seeds", (False, False): "so more problems"}.get(
        (low > 0.5, high > 0.5), "above one"
    )
    assert f" %: {advice} " in note
    assert note in intervals_note(comparison)


def test_a_note_says_why_intervals_over_both_are_narrower_than_over_seeds_alone(tmp_path: Path) -> None:
    apart = [[i % 4 < 2 or i < right for i in range(12)] for right in (12, 6, 1)]  # seeds differ by much
    alike = [[i % 3 == 0 or i < right for i in range(12)] for right in (1, 4, 3)]
    runs = {
        method: [_write(tmp_path, method, correct, seed=seed) for seed, correct in enumerate(of)]
        for method, of in (("lyria", apart), ("gepa", alike))
    }
    values = np.array(apart, dtype=float), np.array(alike, dtype=float)
    widths = []
    for table in (*values, values[1] - values[0]):
        both, seeds = crossed_mean(table), stats.t.interval(0.95, 2, table.mean(), stats.sem(table.mean(axis=1)))
        assert both is not None
        widths.append(np.ptp(both.interval()) < np.ptp(seeds))
    assert widths == [True, False, True]
    comparison = compare([*runs["lyria"], *runs["gepa"]])
    (note,) = narrower_notes(comparison)
    assert "than that over seeds alone (here of 1 arm and 1 difference): Student's factor for 3 seeds is larger" in note
    assert note in intervals_note(comparison)
    assert narrower_notes(compare(runs["gepa"])) == []


def test_the_pooled_interval_draws_whole_problems(tmp_path: Path) -> None:
    each = (np.array(THEIRS, dtype=float) - np.array(OURS, dtype=float)).mean(axis=0)
    draws = each[np.array(list(itertools.product(range(6), repeat=6)))].mean(axis=1)
    tail = stats.norm.cdf(math.sqrt(6 / 5) * stats.t.ppf(0.025, 5))  # expanded percentiles
    pooled = _pooled(compare(_seeded(tmp_path)))
    assert pooled.compared.ci95 == pytest.approx(tuple(np.quantile(draws, [tail, 1 - tail])), abs=0.09)
    (score,) = pooled.others.values()
    scores = [[_scores(of[seed], seed)["penalised_score"] for seed in range(2)] for of in (THEIRS, OURS)]
    differences = np.array(scores[0]) - np.array(scores[1])
    assert (score.n, score.difference) == (12, pytest.approx(differences.mean()))
    assert (score.higher, score.lower) == ((differences > 0).sum(), (differences < 0).sum())
    draws = differences.mean(axis=0)[np.array(list(itertools.product(range(6), repeat=6)))].mean(axis=1)
    assert score.ci95 == pytest.approx(tuple(np.quantile(draws, [tail, 1 - tail])), abs=9)


def test_seeds_that_draw_their_own_problems_are_pooled_too(tmp_path: Path) -> None:
    runs = []
    for seed in range(2):
        ids = {f"p{i + 3 * seed}": i for i in range(6)}  # three problems are in both draws
        for method, outcomes in (("lyria", OURS), ("gepa", THEIRS)):
            correct = {problem: outcomes[seed][i] for problem, i in ids.items()}
            runs.append(_write(tmp_path, method, correct, seed=seed, provenance=_digest(f"a{seed}")))
    pooled = _pooled(compare(runs))
    assert pooled.compared.n == 12
    assert pooled.compared.crossed is not None
    assert (pooled.compared.crossed.seeds, pooled.compared.crossed.problems) == (2, 9)


def test_pairs_share_the_seed_or_are_left_out(tmp_path: Path) -> None:
    """Seed 2 lacks the reference's end, seed 7 the reference; gepa has begun seed 1 a second time."""
    runs = [
        *_seeded(tmp_path),
        _write(tmp_path, "lyria", OURS[0], seed=2, ended=4),
        _write(tmp_path, "gepa", THEIRS[0], seed=2),
        _write(tmp_path, "gepa", POOR[:6], seed=7),
        _write(tmp_path, "gepa", THEIRS[1], seed=1, ended=5),
    ]
    for against in (None, runs[0]):
        comparison = compare(runs, against)
        assert _reasons(comparison) == {
            "lyria, seed 2": "method and settings are the reference's, with another seed",
            "gepa, seed 2": "the reference has no finished run with seed 2",
            "gepa, seed 7": "the reference has no finished run with seed 7",
        }
        pooled = _pooled(comparison)
        assert (pooled.name, pooled.compared.n, pooled.p_holm) == ("gepa", 12, pooled.p)
        assert comparison.pairs.main_pairs == [pooled]
    first, second = (_write(tmp_path, method, FAIR, seed=seed) for method, seed in (("lyria", 3), ("gepa", 4)))
    (single,) = compare([first, second]).pairs.pairs
    assert single.remark.startswith("seed ")  # single runs are paired all the same


def test_seeds_of_one_method_alone_have_nothing_to_be_paired_with(tmp_path: Path) -> None:
    runs = [_write(tmp_path, "lyria", OURS[seed], seed=seed) for seed in range(2)]
    comparison = compare(runs)
    assert comparison.pairs.all_pairs == []
    assert _reasons(comparison) == {}  # there is nothing that any could be compared with


def test_pairs_are_made_problem_by_problem_in_whatever_order_runs_ended_them(tmp_path: Path) -> None:
    ours = {f"p{i}": i % 3 == 0 for i in range(10)}
    theirs = {f"p{i}": i in (3, 6, 7) for i in reversed(range(10))}
    our_scores = [float(i) for i in range(10)]
    their_scores = [i + 1.0 if i == 3 else i - 1.0 for i in range(10)]
    runs = [
        _write(tmp_path, "lyria", ours, ended=8, scores={"score": our_scores}),  # p0 to p7
        _write(tmp_path, "gepa", theirs, ended=7, scores={"score": their_scores[::-1]}),  # p9 to p3
    ]
    (pair,) = compare(runs, against=runs[1]).pairs.pairs
    common = range(3, 8)
    kinds = [(ours[f"p{i}"], theirs[f"p{i}"]) for i in common]
    assert (pair.gained, pair.lost) == (kinds.count((True, False)), kinds.count((False, True)))
    (score,) = pair.others.values()
    assert (score.n, score.higher, score.lower, score.difference) == (5, 4, 1, pytest.approx(3 / 5))
    assert pair.remark == "the 5 problems that ended in both"


def test_students_of_all_seeds_are_an_arm_beside_the_model_that_they_were_made_of(tmp_path: Path) -> None:
    def model(name: str, adapter: str = "") -> dict[str, Any]:
        return {"models": {"policy": {"name": name, "id": f"meta/llama{adapter}", "engine": "vllm"}}}

    written = [
        *(_write(tmp_path, "lyria", POOR, seed=seed, **model("llama")) for seed in range(2)),
        *(
            _write(
                tmp_path, "lyria", outcomes, seed=seed, student={"name": name},
                **model(f"llama-{name}", f"+adapter:{name}{seed}"),
            )
            for name, outcomes in (("laft", GOOD), ("dpft", FAIR))
            for seed in range(2)
        ),
        _write(tmp_path, "lyria", GOOD, **{"models": {"policy": {"name": "gpt", "id": "gpt", "engine": "server"}}}),
    ]  # fmt: skip
    comparison = compare(written)
    assert {arm.name: len(arm.runs) for arm in comparison.arms} == {
        "lyria, llama": 2, "lyria, llama-laft": 2, "lyria, llama-dpft": 2, "lyria, gpt": 1
    }  # fmt: skip
    pooled = {pair.name: pair.reference for pair in comparison.pairs.pooled}
    assert pooled == {"lyria, llama-laft": "lyria, llama", "lyria, llama-dpft": "lyria, llama"}
    assert pairs_heading(comparison).endswith("on the same problems with the same base model")


BEST = [True] * 9 + [False]


def test_the_chosen_reference_is_the_best_method_whatever_the_numbers_of_seeds(tmp_path: Path) -> None:
    runs = [
        _write(tmp_path, "duel_evolve", BEST, seed=0),
        _write(tmp_path, "duel_evolve", GOOD, seed=1),
        _write(tmp_path, "gepa", POOR, seed=0),
        _write(tmp_path, "zero_shot", FAIR, seed=0),
        _write(tmp_path, "zero_shot", GOOD, seed=1),
        _write(tmp_path, "zero_shot", FAIR, seed=2),
    ]
    comparison = compare(runs)
    assert {reference.manifest.method for reference in comparison.pairs.references} == {"duel_evolve"}
    assert {pair.name: pair.compared.n for pair in comparison.pairs.pooled} == {"zero_shot": 20}
    note = pairs_note(comparison)
    assert "the method that most others can be paired with, of these the one whose mean of accuracy is highest" in note
    single = compare([runs[0], runs[2]])
    assert "The reference is the run with the highest accuracy" in pairs_note(single)


def test_runs_that_are_paired_with_nothing_do_not_decide_on_the_reference_and_are_all_named(tmp_path: Path) -> None:
    runs = [
        *(_write(tmp_path, "espl", FAIR, seed=seed, task="tsp") for seed in range(2)),
        *(_write(tmp_path, "grpo", GOOD, seed=seed, task="tsp") for seed in range(2)),
        *(_write(tmp_path, "espl", [True] * 10, seed=seed, task="sudoku") for seed in range(3)),
    ]
    comparison = compare(runs)
    assert comparison.pairs.reference.name == "grpo, seed 0"
    assert _pairs(comparison) == {f"espl, tsp, seed {seed}": f"grpo, seed {seed}" for seed in range(2)}
    line = "3 runs are not paired: another task: sudoku, not tsp (espl, sudoku)"
    assert unpaired_lines(comparison) == [line]
    named = compare(runs, against=runs[-1])
    assert _pairs(named) == {f"grpo, seed {seed}": f"espl, tsp, seed {seed}" for seed in range(2)}
    assert unpaired_lines(named) == [line]


def test_every_two_arms_are_compared_on_request_with_holms_adjustment_over_all(tmp_path: Path) -> None:
    outcomes = {"lyria": OURS, "gepa": THEIRS, "zero_shot": [[False] * 6, [True] + [False] * 5], "rsa": [[True] * 6]}
    runs = {
        method: [_write(tmp_path, method, of[seed], seed=seed, task="tsp") for seed in range(len(of))]
        for method, of in outcomes.items()
    }
    elsewhere = [_write(tmp_path, method, FAIR, task="sudoku") for method in ("lyria", "gepa")]
    everything = [*itertools.chain(*runs.values()), *elsewhere]
    comparison = compare(everything, against="all")
    pairs = comparison.pairs.main_pairs
    (other,) = [pair for pair in pairs if "sudoku" in pair.name]
    assert {other.name, other.reference} == {"lyria, sudoku", "gepa, sudoku"}
    named = {(p.name.partition(",")[0], p.reference.partition(",")[0]): p for p in pairs if p is not other}
    assert len(named) == len(pairs) - 1 == 6
    assert {frozenset(names) for names in named} == set(map(frozenset, itertools.combinations(outcomes, 2)))
    for (method, reference), pair in named.items():
        alone = compare([*runs[method], *runs[reference]], against=reference).pairs.main_pairs
        assert (pair.compared, pair.p) == (alone[0].compared, alone[0].p)
    assert [pair.p_holm for pair in pairs] == adjust_by_holm([pair.p or 0 for pair in pairs])
    assert {pair.comparisons for pair in pairs} == {7}
    assert len(comparison.pairs.seed_pairs) == 2 * 3  # of those of two arms with both seeds
    default = compare(everything)
    assert comparison.pairs.reference.name == default.pairs.reference.name
    assert {(pair.name, pair.reference) for pair in default.pairs.main_pairs} <= {(p.name, p.reference) for p in pairs}
    assert pairs_heading(comparison) == "Between every two arms, on the same problems with the same model"
    with pytest.raises(ConfigError, match=r"^against=all: expected two arms or more on the same problems"):
        compare([runs["lyria"][0], elsewhere[1]], against="all")


def test_runs_graded_by_other_code_of_a_plug_in_are_neither_paired_nor_averaged(tmp_path: Path) -> None:
    def write(name: str, method: str, seed: int, digest: str) -> Path:
        plugins = {"task": {"package": "mine", "version": "1", "module": "mine", "digest": digest}}
        return write_method(tmp_path / name, GOOD, method=method, seed=seed, task="mine", plugins=plugins)

    runs = [
        *(write(f"old{seed}", "gepa", seed, "1" * 12) for seed in range(2)),
        write("new", "gepa", 2, "2" * 12),
        write("other", "lyria", 0, "2" * 12),
    ]
    comparison = compare(runs)
    arms = {arm.name: sorted(run.manifest.seed for run in arm.runs) for arm in comparison.arms}
    assert arms == {"gepa, task.code=111111111111": [0, 1], "gepa, task.code=222222222222": [2], "lyria": [0]}
    assert [(pair.name, pair.reference) for pair in comparison.pairs.pairs] == [
        ("lyria", "gepa, task.code=222222222222")
    ]
    (warning,) = comparison.warnings
    assert warning.startswith("The code of task=mine changed between these runs, so that their scores do not compare (")
    assert "222222222222 in gepa, task.code=222222222222, lyria" in warning
    assert _reasons(compare([runs[0], runs[3]])) == {"lyria": "graded by other code"}
    assert compare(runs[2:]).warnings == []
