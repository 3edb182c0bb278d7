"""A comparison of runs: its order, names, pairs, refusals, means over seeds and reported figures."""

import csv
import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison_fixture import BENCHMARK, edit_manifest, write_bred, write_method
from scipy import stats

from evorun.errors import ConfigError, DataError, RunDirectoryError
from evorun.reports.comparison import ComparedRuns, choose_folder, compare
from evorun.reports.comparison.names import format_model, name_models, read_names
from evorun.reports.comparison.notes import (
    ceiling_lines,
    cost_note,
    describe_equal_answers,
    few_seeds_lines,
    intervals_note,
    list_cautions,
    pairs_note,
    shared_steps_lines,
    unpaired_lines,
    width_notes,
)
from evorun.reports.comparison.paired import PairedScores
from evorun.reports.comparison.pairs import Pair
from evorun.reports.comparison.reported import find_reported
from evorun.reports.comparison.rows import Row
from evorun.reports.comparison.tables import make_data_tables, make_main_table, make_pairs_table
from evorun.reports.facts import SIMULATED_LINE
from evorun.runs.crossed import crossed_mean, tabulate
from evorun.runs.directory import load_manifest
from evorun.runs.folders import run_folders
from evorun.runs.manifest import ModelInRun
from evorun.runs.ownership import sign

GOOD = [True] * 8 + [False] * 2
FAIR = [True] * 5 + [False] * 4 + [True]
POOR = [True] * 3 + [False] * 7


@pytest.fixture(name="three")
def _three(tmp_path: Path) -> list[Path]:
    return [
        write_method(tmp_path / "poor", POOR),
        write_method(tmp_path / "good", GOOD, method="duel_evolve", steps=4, calls={"generate": 2, "judge": 3}),
        write_method(tmp_path / "fair", FAIR, method="gepa", calls={"reflect": 1, "evaluate": 4}, regime="labels"),
    ]


def _names(comparison: ComparedRuns) -> list[str]:
    return [run.name for run in comparison.runs]


def _reasons(comparison: ComparedRuns) -> dict[str, str]:
    return {unpaired.run.name: unpaired.reason for unpaired in comparison.pairs.unpaired}


def _subtract_reported(row: Row) -> float | None:
    name = row.primary.name
    return row.subtract_reported(row.get_metric(name).value, row.get_reported(name))


def test_runs_are_ordered_by_accuracy_and_the_best_is_the_reference(three: list[Path]) -> None:
    comparison = compare(three)
    assert _names(comparison) == ["duel_evolve", "gepa", "zero_shot"]
    assert [row.get_metric("accuracy").value for row in comparison.rows] == [0.8, 0.6, 0.3]
    assert comparison.pairs.reference.name == "duel_evolve"
    assert not comparison.reference_given


def test_pairs_count_problem_by_problem(three: list[Path]) -> None:
    gepa, zero_shot = compare(three).pairs.pairs
    assert (gepa.compared.n, gepa.gained, gepa.lost) == (10, 1, 3)
    assert gepa.p == pytest.approx(2 * (1 + 4) / 16)  # at most one of four
    assert (zero_shot.gained, zero_shot.lost) == (0, 5)
    assert zero_shot.p == pytest.approx(2 / 32)
    assert zero_shot.p_holm == pytest.approx(2 * 2 / 32)
    assert gepa.p_holm == pytest.approx(10 / 16)
    assert gepa.remark == "labels, not problem_only"
    assert zero_shot.remark == ""


def test_a_method_can_be_named_as_the_reference(three: list[Path]) -> None:
    comparison = compare(three, against="gepa")
    assert comparison.reference_given
    assert {pair.name: pair.reference for pair in comparison.pairs.pairs} == {
        "duel_evolve": "gepa",
        "zero_shot": "gepa",
    }
    with pytest.raises(ConfigError, match=r'or "duel_evolve" or "gepa" or "zero_shot", got lyria$'):
        compare(three, against="lyria")


def test_an_ambiguous_reference_is_called_so_with_the_names_that_are_not(tmp_path: Path) -> None:
    def write(task: str, population: int) -> Path:
        config = {"method": {"name": "gepa", "population": population}, "seed": 0}
        return write_method(tmp_path / f"{task}_{population}", GOOD, method="gepa", task=task, config=config)

    runs = [write(task, population) for task in ("tsp", "sudoku") for population in (1, 2)]
    with pytest.raises(ConfigError) as caught:
        compare(runs, against="gepa")
    names = "gepa, method.population=1", "gepa, method.population=2"
    alike = f'"{names[0]}" or "{names[1]}"'
    assert str(caught.value) == f"against: expected one method, got gepa, which is ambiguous: give {alike}"
    for name in names:
        assert len(compare(runs, against=name).pairs.pairs) == 2


def test_rows_have_the_names_that_are_given_and_a_reference_is_one_of_them(tmp_path: Path) -> None:
    def write(rating: str, seed: int) -> Path:
        config = {"method": {"name": "duel_evolve", "rating": rating}, "seed": seed}
        return write_method(tmp_path / f"{rating}{seed}", GOOD, method="duel_evolve", config=config, seed=seed)

    runs = [write(rating, seed) for rating in ("win_rate", "posterior") for seed in (0, 1)]
    given = ["duel_evolve, method.rating=win_rate=Win rate", "duel_evolve, method.rating=posterior=Ours"]
    comparison = compare(runs, against="Ours", names=read_names(given))
    assert {arm.name for arm in comparison.arms} == {"Win rate", "Ours"}
    assert {arm.label for arm in comparison.arms} == {"Win rate", "Ours"}
    assert {run.name for run in comparison.runs if run.manifest.seed} == {"Win rate, seed 1", "Ours, seed 1"}
    assert {(pair.name, pair.reference) for pair in comparison.pairs.main_pairs} == {("Win rate", "Ours")}
    with pytest.raises(ConfigError, match=r'expected one method, got "duel_evolve": give "duel_evolve, method'):
        compare(runs, names={"duel_evolve": "Ours"})
    with pytest.raises(ConfigError, match=r'expected a name of its own for each row, got "A" twice'):
        compare(runs, names=dict.fromkeys([word.rpartition("=")[0] for word in given], "A"))
    with pytest.raises(ConfigError, match=r'expected "OLD=NEW", the name of a row and another one, got "Ours"'):
        read_names(["Ours"])


def test_the_reference_can_be_named(three: list[Path]) -> None:
    comparison = compare(three, against=three[2].parent / "poor" / ".." / "fair")
    assert comparison.reference_given
    assert comparison.pairs.reference.name == "gepa"
    assert {pair.name: pair.compared.difference for pair in comparison.pairs.pairs} == {
        "duel_evolve": pytest.approx(0.2),
        "zero_shot": pytest.approx(-0.3),
    }
    with pytest.raises(ConfigError, match=r"expected one of the compared runs.*fair$"):
        compare(three[:2], against=three[2])


def test_cost_is_a_problems_by_any_role(three: list[Path]) -> None:
    duel_evolve, gepa, _ = compare(three).rows
    assert {role: cost.calls for role, cost in duel_evolve.cost.items()} == {"generate": 8, "judge": 12, "total": 20}
    assert {role: cost.calls for role, cost in gepa.cost.items()} == {"evaluate": 4, "reflect": 1, "total": 5}
    assert gepa.cost["total"].prompt_tokens == 500
    assert gepa.cost["total"].tokens == 550


@pytest.mark.parametrize(
    ("other", "correct", "reason"),
    [
        ({"task": "livecodebench"}, GOOD, "another task: livecodebench, not mathbench"),
        (
            {"models": {"policy": {"name": "gemma3_4b", "id": "google/gemma-3-4b-it", "engine": "vllm"}}},
            GOOD,
            "another model: gemma3_4b, not smollm2_135m",
        ),
        ({"simulated": True}, GOOD, "another model: a simulated one, not smollm2_135m"),
        (
            {"provenance": {**BENCHMARK, "digest": "cd" * 32}},
            {f"q{i}": True for i in range(9)},
            "other problems: 9 vs 10, 0 in common",
        ),
        (
            {"provenance": {**BENCHMARK, "digest": "cd" * 32}},
            {f"p{i}": True for i in range(7)},
            "other problems: 7 vs 10, 7 in common",
        ),
    ],
)
def test_runs_of_another_kind_are_shown_but_not_paired(
    tmp_path: Path, other: dict[str, Any], correct: Any, reason: str
) -> None:
    runs = [write_method(tmp_path / "a", GOOD), write_method(tmp_path / "b", correct, method="gepa", **other)]
    comparison = compare(runs, against=runs[0])
    assert _reasons(comparison) == {"gepa": reason}
    assert comparison.pairs.pairs == []
    assert len(comparison.rows) == 2


def test_simulated_models_of_different_skill_are_different_models(tmp_path: Path) -> None:
    def simulated(name: str, skill: float) -> Path:
        config = {"engine": {"name": "simulated", "skill": skill}}
        return write_method(tmp_path / name, GOOD, method=name, simulated=True, config=config)

    weak, strong, same = simulated("weak", 0.4), simulated("strong", 0.5), simulated("same", 0.4)
    comparison = compare([weak, strong, same], against=weak)
    assert _reasons(comparison) == {"strong": "another simulated model: skill 0.5, not 0.4"}
    assert [pair.name for pair in comparison.pairs.pairs] == ["same"]


def test_runs_of_one_policy_are_named_by_the_other_models_that_differ(tmp_path: Path) -> None:
    def named(engines: str, *metas: str) -> list[str]:
        runs = []
        for at, meta in enumerate(metas):
            models = {"policy": "small", "reward": "large", "meta": meta}
            served = {role: {"name": name, "id": name, "engine": engines} for role, name in models.items()}
            folder = tmp_path / f"{engines}-{at}-{meta}"
            runs.append(write_method(folder, GOOD, method="mpo", simulated=engines == "simulated", models=served))
        return [run.name for run in compare(runs).runs]

    assert sorted(named("simulated", "large", "huge")) == ["mpo, meta huge", "mpo, meta large"]
    assert sorted(named("vllm", "large", "huge")) == ["mpo, meta huge", "mpo, meta large"]
    assert sorted(named("vllm", "small", "huge")) == ["mpo, meta huge", "mpo, meta policy"]


def test_a_judge_of_its_own_does_not_name_a_simulated_policy_by_a_model_that_never_ran(tmp_path: Path) -> None:
    policy = {"name": "smollm2_135m", "id": "smollm2", "engine": "simulated"}
    coin = {"name": "random", "id": "random", "engine": "simulated"}
    runs = [
        write_method(tmp_path / name, GOOD, method=method, simulated=True, models={"policy": policy, **judge})
        for name, method, judge in (
            ("a", "two_stage", {}),
            ("b", "two_stage", {"judge": coin}),
            ("c", "best_of_n", {}),
        )
    ]
    comparison = compare(runs)
    assert sorted(_names(comparison)) == ["best_of_n", "two_stage, judge policy", "two_stage, judge random"]
    table = make_main_table(comparison, comparison.rows, [], [])
    model = [column.heading for column in table.columns].index("model")
    assert {row[0]: row[model] for row in table.rows} == {
        "best_of_n": "simulated",
        "two_stage, judge policy": "simulated",
        "two_stage, judge random": "simulated (judge: random)",
    }


def test_a_simulated_model_is_not_headed_by_a_real_ones_name(tmp_path: Path) -> None:
    simulated = ModelInRun("gemma3_4b", "google/gemma-3-4b-it", "simulated")
    manifest = load_manifest(write_method(tmp_path / "run", GOOD, simulated=True))
    manifest.models = {"policy": simulated, "judge": ModelInRun("gpt_4o", "gpt-4o", "server")}
    assert format_model(manifest) == "simulated gemma3_4b (judge: gpt_4o)"
    assert simulated.label == "simulated (gemma3_4b, the configured model, is not loaded)"
    other = load_manifest(write_method(tmp_path / "other", GOOD, simulated=True))
    other.models = {**manifest.models, "policy": ModelInRun("smollm2_135m", "smollm2", "simulated")}
    assert name_models([manifest, manifest]) == ["simulated (judge: gpt_4o)"] * 2
    assert name_models([manifest, other]) == [
        f"simulated {name} (judge: gpt_4o)" for name in ("gemma3_4b", "smollm2_135m")
    ]
    manifest.models = {"policy": ModelInRun("random", "random", "simulated")}
    assert format_model(manifest) == "random"
    assert manifest.models["policy"].label == "random"
    manifest.models = {"policy": ModelInRun("gemma3_4b", "google/gemma-3-4b-it", "replay", "simulated")}
    assert format_model(manifest) == "replay of simulated gemma3_4b"
    manifest.models["policy"].replayed_engine = "vllm"
    assert format_model(manifest) == "gemma3_4b"


def test_a_replay_of_a_compared_run_is_no_second_sample(tmp_path: Path) -> None:
    first, other = write_method(tmp_path / "first", GOOD), write_method(tmp_path / "other", FAIR, method="other")
    config = {**load_manifest(first).config, "engine": {"name": "replay", "run": str(first)}}
    again = write_method(tmp_path / "again", GOOD, config=config)
    said = "A replay of a run that is compared, too: it is no second sample."
    comparison = compare([first, other, again])
    names = {run.outcome.run_dir.name: run.name for run in comparison.runs}
    assert f"{names['again']}: {said}" in comparison.warnings
    assert [pair.name for pair in comparison.pairs.main_pairs] == [names["other"]]
    assert _reasons(comparison) == {names["again"]: "a replay of a run that is compared, too"}
    assert not any(said in line for line in compare([other, again]).warnings)


def test_a_replay_by_a_changed_grader_is_compared_and_says_so(tmp_path: Path) -> None:
    """Its answers are the recorded ones; what they score is not."""

    def plugins(digest: str) -> dict[str, Any]:
        return {"task": {"package": "mine", "version": "1", "module": "mine", "digest": digest}}

    first = [write_method(tmp_path / m, GOOD, method=m, task="mine", plugins=plugins("1" * 12)) for m in ("a", "b")]
    again = []
    for run, outcomes in zip(first, (GOOD, POOR), strict=True):
        config = {"method": {"name": run.name}, "seed": 0, "engine": {"name": "replay", "run": str(run)}}
        given: dict[str, Any] = {"method": run.name, "task": "mine", "config": config, "plugins": plugins("2" * 12)}
        again.append(write_method(tmp_path / f"{run.name}_again", outcomes, **given))
    said = "A replay by code that has changed since the recorded run: task=mine."
    assert compare(again).warnings == [said]
    both = compare([*first, *again])
    assert sum(said in line for line in both.warnings) == 1
    assert len(both.pairs.pairs) == 2  # within each version of the grader
    extension = {"verb": "extend", "run": str(first[0]), "at": None, "effects": 1, "calls": 1}
    edit_manifest(first[0], origin={**extension, "changes": ["task.strict: None -> True", "budget.calls: 1 -> 2"]})
    said = "An extension with other settings of the task: task.strict: None -> True."
    assert any(line.endswith(said) for line in compare(first).warnings)


def test_many_replays_beside_their_runs_are_two_lines(tmp_path: Path) -> None:
    runs = []
    for method in "abcdef":
        for seed in (0, 1):
            own = {"method": {"name": method}, "seed": seed}
            run = write_method(tmp_path / f"{method}{seed}", GOOD, method=method, seed=seed, config=own)
            config = {**own, "engine": {"name": "replay", "run": str(run)}}
            again = tmp_path / f"{method}{seed}_again"
            runs += [run, write_method(again, GOOD, method=method, seed=seed, config=config)]
    comparison = compare(runs)
    (line,) = unpaired_lines(comparison)
    assert line.startswith("12 runs are not paired: a replay of a run that is compared, too (")
    assert line.endswith("; 8 more)")
    (line,) = [line for line in comparison.warnings if "no second sample" in line]
    assert "; 8 more: A replay of a run" in line


def test_replays_of_other_simulated_models_are_not_paired_and_have_their_settings(tmp_path: Path) -> None:
    again = []
    for method, skill in (("a", 0.4), ("a", 0.9), ("b", 0.4)):
        name = f"{method}{skill}"
        own = {"method": {"name": method}, "seed": 0}
        model = {"name": "simulated", "skill": skill, "improvement": 0.2}
        run = write_method(tmp_path / name, FAIR, method=method, simulated=True, config={**own, "engine": model})
        config = {**own, "engine": {"name": "replay", "run": str(run)}}
        replay = tmp_path / f"{name}_again"
        write_method(replay, GOOD if skill == 0.9 else FAIR, method=method, simulated=True, config=config)
        edit_manifest(replay, signature=sign(config))  # somebody else's recording is not looked for
        again.append(replay)
    comparison = compare(again)
    assert any("Here: engine.skill=0.4,0.9." in line for line in comparison.warnings)
    assert sorted(_names(comparison)) == ["a, engine.skill=0.4", "a, engine.skill=0.9", "b"]
    assert [{pair.name, pair.reference} for pair in comparison.pairs.pairs] == [{"a, engine.skill=0.4", "b"}]


def test_an_unfinished_run_is_paired_on_what_both_have_ended_and_says_so(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / "done", FAIR),
        write_method(tmp_path / "begun", GOOD, method="duel_evolve", ended=7, steps=3),
    ]
    comparison = compare(runs)
    assert comparison.pairs.reference.name == "zero_shot"  # a run without its end is no reference
    (pair,) = comparison.pairs.pairs
    assert pair.compared.n == 7
    assert (pair.gained, pair.lost) == (2, 0)
    assert pair.remark == "the 7 problems that ended in both"
    row = comparison.rows[0]
    assert (row.name, row.n, row.facts["caveats"]) == ("duel_evolve", "7 of 10", "so far")
    assert row.cost["total"].calls == 3
    assert [point.n for point in comparison.runs[0].curves["accuracy"]] == [7, 7, 7]


def test_a_run_that_has_ended_nothing_has_no_pair(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / "done", FAIR), write_method(tmp_path / "new", GOOD, method="gepa", ended=0)]
    comparison = compare(runs)
    assert _names(comparison) == ["zero_shot", "gepa"]
    assert _reasons(comparison) == {"gepa": "no problem has ended in both yet"}


@pytest.mark.parametrize(("other", "first"), [("zero_shot", "What"), ("duel_evolve", "What parents do to a child")])
def test_simulated_searches_for_prompts_are_decided_by_what_prompts_do(tmp_path: Path, other: str, first: str) -> None:
    engine = {"improvement": 0.6, "misleading": 0.05, "instruction_gain": 0.4, "principle_gain": 0.0, "skill": 0.35}
    runs = [
        write_method(tmp_path / "a", GOOD, method="climb", simulated=True, calls={"evaluate": 3, "reflect": 1}),
        write_method(tmp_path / "b", FAIR, method=other, simulated=True),
    ]
    for run in runs:
        edit_manifest(run, config={**load_manifest(run).config, "engine": engine})
    write_bred(runs[0], "system_prompt")
    if other == "duel_evolve":
        write_bred(runs[1])
    line = compare(runs).warnings[0]
    cause = "hat system prompts do (engine.instruction_gain, engine.principle_gain) can decide the order of methods"
    assert f"real one. {first}" in line
    assert cause in line
    assert ("engine.improvement" in line) == (other == "duel_evolve")
    assert "engine.instruction_gain=0.4, engine.principle_gain=0 and engine.skill=0.35." in line


def test_parents_decide_nothing_where_no_method_shows_the_model_earlier_responses(tmp_path: Path) -> None:
    engine = {"improvement": 0.6, "misleading": 0.05, "skill": 0.35}
    runs = [
        write_method(tmp_path / method, GOOD, method=method, simulated=True) for method in ("best_of_n", "tournament")
    ]
    for run in runs:
        edit_manifest(run, config={**load_manifest(run).config, "engine": engine})
    line = "Simulated model: no language model ran; figures say nothing about any real one."
    write_bred(runs[0], call=None)  # by a program
    assert compare(runs).warnings[0] == f"{line} Here: engine.skill=0.35."
    write_bred(runs[0])
    assert compare(runs).warnings[0].startswith(f"{line} What parents do to a child (engine.improvement, ")


def test_warnings_name_the_runs_that_they_are_about(tmp_path: Path) -> None:
    sample = {**BENCHMARK, "source": "sample", "description": "generated problems"}
    runs = [
        write_method(tmp_path / "a", GOOD, simulated=True, provenance=sample),
        write_method(tmp_path / "b", FAIR, method="gepa", provenance=sample),
    ]
    engines = ({"improvement": 0.6, "misleading": 0.05, "skill": 0.35}, {"name": "server"})
    for run, engine in zip(runs, engines, strict=True):
        edit_manifest(run, config={**load_manifest(run).config, "engine": engine})
    write_bred(runs[0])
    comparison = compare(runs)
    assert comparison.warnings == [
        "zero_shot: Simulated model: no language model ran; figures say nothing about any real one. "
        "What parents do to a child (engine.improvement, engine.misleading) can decide the order of methods more than "
        "any other setting. Here: engine.improvement=0.6, engine.misleading=0.05 and engine.skill=0.35.",
        "Sample set: generated problems",
    ]
    assert [row.facts["caveats"] for row in comparison.rows] == ["simulated, sample set", "sample set"]
    assert "Equal calls are not equal tokens." in cost_note(comparison)
    voting = {"method": {"name": "self_consistency"}, "engine": {**engines[0], "typical_mistake": 0.7}}
    edit_manifest(runs[0], method="self_consistency", config={"seed": 0, **voting})
    _, _, told = compare(runs).warnings[0].partition("engine.skill=0.35. ")
    assert told == (
        "Votes (self_consistency) depend on engine.typical_mistake=0.7, the share of one wrong answer among a "
        "problem's mistakes (puzzles and programs aside): where it is more frequent than the right one, more votes "
        "are worse."
    )
    # a method of one's own says so itself
    voting["method"] = {"name": "two_stage"}
    for votes, expected in ((True, told.replace("self_consistency", "two_stage")), (False, "")):
        edit_manifest(runs[0], method="two_stage", config={"seed": 0, **voting}, votes=votes)
        assert compare(runs).warnings[0].partition("engine.skill=0.35. ")[2] == expected
    edit_manifest(runs[0], method="zero_shot", config={"method": {"name": "zero_shot"}, "seed": 0})
    (runs[1] / "training.jsonl").write_text('{"step":1,"calls":1,"tokens":1,"figures":{"loss":0.5},"problem":"*"}\n')
    assert compare(runs).warnings[0] == f"zero_shot: {SIMULATED_LINE}"  # which decides nothing where one is trained
    alone = compare(runs[:1])
    assert alone.warnings == [SIMULATED_LINE, "Sample set: generated problems"]
    assert "equal tokens" not in cost_note(alone)


def test_judges_that_sample_differently_on_a_task_are_named_with_both_values(tmp_path: Path) -> None:
    def run(name: str, temperature: float, task: str, **settings: Any) -> Path:
        method = {"name": name, "judge_temperature": temperature, "judge_max_tokens": 192, **settings}
        folder = tmp_path / f"{name}_{task}_{temperature}"
        return write_method(folder, GOOD, method=name, task=task, config={"method": method, "seed": 0})

    alike = [run("duel_evolve", 0.7, "mathbench"), run("best_of_n", 0.7, "mathbench"), run("lyria", 0.0, "sudoku")]
    alike += [run("duel_evolve", 0.2, "sudoku"), run("best_of_n", 0.0, "sudoku", choose="oracle")]
    assert [line for line in compare(alike[:3]).warnings if "judge" in line] == []
    (line,) = [line for line in compare(alike).warnings if "judge" in line]
    assert "method.judge_temperature is 0.0 (lyria), 0.2 (duel_evolve, sudoku). " in line


def test_names_tell_runs_apart_by_what_differs(tmp_path: Path) -> None:
    def run(name: str, **config: Any) -> Path:
        seed = config.pop("seed", 0)
        return write_method(
            tmp_path / name, GOOD, method="gepa", seed=seed, config={"method": {"name": "gepa", **config}, "seed": seed}
        )

    runs = [run("a", budget=5), run("b", budget=9), run("c", budget=9, seed=1), write_method(tmp_path / "d", GOOD)]
    assert _names(compare(runs)) == [
        "gepa, method.budget=5",
        "gepa, method.budget=9, seed 0",
        "gepa, method.budget=9, seed 1",
        "zero_shot",
    ]
    again = [run("e", budget=5), runs[0]]
    assert [name.rpartition("/")[2] for name in _names(compare(again))] == ["e", "a"]


def test_a_papers_name_stands_before_what_ran(tmp_path: Path) -> None:
    names = [
        {"name": "Evolution + RL", "method": "espl"},
        {"name": "Mutation + RL", "method": "espl", "overrides": {"method.crossover_rate": 0}},
    ]

    def run(name: str, method: str = "espl", **given: Any) -> Path:
        config = {"method": {"name": method, "crossover_rate": given.pop("rate", 1)}, "seed": given.get("seed", 0)}
        config["reported"] = {"source": "A paper", "names": names}
        return write_method(tmp_path / name, GOOD, method=method, config=config, **given)

    random = {"policy": {"name": "random", "id": "random", "engine": "simulated"}}
    runs = [run("a"), run("b", seed=1), run("c", rate=0), run("d", "grpo"), run("e", models=random, simulated=True)]
    comparison = compare(runs, against="Mutation + RL")
    whole, mutation = (
        f"{name} (espl, method.crossover_rate={rate})" for name, rate in (("Evolution + RL", 1), ("Mutation + RL", 0))
    )
    assert {arm.name for arm in comparison.arms} == {whole, mutation, "grpo", "espl, random baseline"}
    assert comparison.pairs.reference.name == mutation
    for name in (mutation, "espl, method.crossover_rate=0"):
        assert compare(runs, against=name).pairs.reference.name == mutation
    assert f"{whole[:-1]}, seed 1)" in _names(comparison)
    drawn = {arm.name: arm.label for arm in comparison.arms}
    assert (drawn[whole], drawn[mutation], drawn["grpo"]) == ("Evolution + RL (espl)", "Mutation + RL (espl)", "grpo")
    two_of_a_name = compare([*runs, run("f", rate=2)])
    assert {arm.label for arm in two_of_a_name.arms} >= {whole, whole.replace("=1", "=2"), "Mutation + RL (espl)"}
    arms = make_data_tables(comparison)[0]
    column = arms.headings.index("name_in_paper")
    assert {row[0]: row[column] for row in arms.rows} == {
        whole: "Evolution + RL", mutation: "Mutation + RL", "grpo": None, "espl, random baseline": None
    }  # fmt: skip


def test_an_arm_is_the_mean_over_its_seeds_with_students_interval(tmp_path: Path) -> None:
    outcomes = [
        [True, True, False, False, True, False],
        [True, False, False, False, True, False],
        [True] * 4 + [False] * 2,
    ]
    runs = [write_method(tmp_path / str(seed), outcomes[seed], seed=seed) for seed in range(3)]
    runs.append(write_method(tmp_path / "alone", [True] * 6, method="gepa"))
    comparison = compare(runs)
    alone, mean = comparison.rows
    assert (alone.name, alone.n, alone.get_metric("accuracy")) == (
        "gepa",
        "6",
        comparison.runs[0].get_metric("accuracy"),
    )
    assert (mean.name, mean.n, mean.facts["seed"]) == ("zero_shot", "3 x 6", "0, 1, 2")
    shares = np.mean(outcomes, axis=1)
    interval = stats.t.interval(0.95, 2, shares.mean(), stats.sem(shares))
    assert mean.get_metric("accuracy").value == pytest.approx(shares.mean())
    assert mean.get_metric("accuracy").ci95 == pytest.approx((interval[0], min(interval[1], 1)))
    middle = np.array(outcomes)[:, 2::3].mean(axis=1)
    assert mean.by_stratum["middle"].value == pytest.approx(middle.mean())
    # of the variance between seeds and between problems, by sums of squares
    table = np.array(outcomes, dtype=float)
    of_seeds, of_problems = (table.mean(axis=axis).var(ddof=1) / n for axis, n in ((1, 3), (0, 6)))
    assert mean.seed_share == pytest.approx(of_seeds / (of_seeds + of_problems))
    assert alone.seed_share is None
    note = intervals_note(comparison)
    share = (
        f"Seeds make up {100 * mean.seed_share:.1f} % of the variance behind the arms' intervals of accuracy, problems "
    )
    assert share in note
    assert "cut there" not in note
    cut = dataclasses.replace(mean, two_way_ci95={"accuracy": (0.2, 1.0)})
    assert "Intervals over seeds and problems that would go beyond 100.0 % are cut there." in width_notes([alone, cut])
    assert [row.name for row in comparison.run_rows] == ["gepa", *(f"zero_shot, seed {seed}" for seed in range(3))]


def _of_seeds(tmp_path: Path, right: Sequence[int], method: str = "zero_shot") -> list[Path]:
    return [
        write_method(tmp_path / f"{method}{seed}", [i < n for i in range(10)], seed=seed, method=method)
        for seed, n in enumerate(right)
    ]


@pytest.mark.parametrize(
    ("right", "interval"),
    [
        pytest.param((10, 8, 9), (0.9 - 4.3026527 * 0.1 / 3**0.5, 1), id="cut_at_the_range"),
        pytest.param((10, 1, 5), None, id="the_whole_range"),
        pytest.param((8, 7), None, id="two_seeds"),
    ],
)
def test_an_interval_over_seeds_says_something_or_is_not_there(
    tmp_path: Path, right: Sequence[int], interval: tuple[float, float] | None
) -> None:
    (mean,) = compare(_of_seeds(tmp_path, right)).rows
    assert mean.get_metric("accuracy").ci95 == (interval if interval is None else pytest.approx(interval))


def test_few_seeds_and_single_trainings_are_said_in_a_sentence(tmp_path: Path) -> None:
    trained = write_method(tmp_path / "grpo", GOOD, method="grpo")
    (trained / "training.jsonl").write_text('{"step":1,"calls":1,"tokens":1,"figures":{"loss":0.5},"problem":"*"}\n')
    runs = [*_of_seeds(tmp_path, (8, 7, 6)), *_of_seeds(tmp_path, (5, 4, 3, 2, 3), "lyria"), trained]
    few, once = few_seeds_lines(compare(runs))
    assert few.startswith("Fewer than 5 seeds (zero_shot: 3): ")
    assert once.startswith("Trained with one seed (grpo): intervals are over test problems")
    alike = [*_of_seeds(tmp_path / "a", (8, 7, 6)), *_of_seeds(tmp_path / "b", (5, 4, 3), "lyria")]
    (line,) = few_seeds_lines(compare(alike))
    assert line.startswith("Fewer than 5 seeds (all have 3): ")  # two dozen names would fill a page
    assert ceiling_lines(compare(alike)) == []
    full = [*_of_seeds(tmp_path / "c", (10, 10, 10)), *alike[3:]]
    comparison = compare(full)
    (line,) = ceiling_lines(comparison)
    assert line.startswith("At the ceiling (zero_shot): accuracy is 100.0 % on every problem, the best possible. ")
    assert line.endswith(" Harder problems could.")
    for run in comparison.runs:
        run.manifest.simulated = True
    assert ceiling_lines(comparison)[0].endswith(" lower engine.skill or engine.improvement.")


def test_arms_with_the_same_answers_to_all_problems_are_named_in_one_line(tmp_path: Path) -> None:
    same = [
        write_method(tmp_path / f"{seed}_{method}", GOOD, seed=seed, method=method)
        for seed in range(2)
        for method in ("ppo", "mpo")
    ]
    other = [
        write_method(tmp_path / f"{seed}_grpo", [not one for one in GOOD], seed=seed, method="grpo") for seed in (0, 1)
    ]
    comparison = compare([*same, *other])
    (line,) = describe_equal_answers(comparison.arms)
    assert re.match(r"Same answers \((mpo; ppo|ppo; mpo)\): to every problem, with each seed\. ", line)
    assert line in list_cautions(comparison)


def test_five_seeds_have_intervals_over_seeds_and_problems_too(tmp_path: Path) -> None:
    runs = [*_of_seeds(tmp_path, (9, 8, 9, 7, 8)), *_of_seeds(tmp_path, (5, 4, 3, 2, 3), "lyria")]
    comparison = compare(runs)
    grid = make_pairs_table(comparison.pairs.main_pairs)
    sources = ("over seeds", "over problems", "over seeds\nand problems")
    assert grid.headings[3:6] == [f"95 % interval\n{source}" for source in sources]
    assert "95 % interval\nover seeds" in grid.headings
    (pair,) = comparison.pairs.pooled
    differences = np.array([5, 4, 3, 2, 3]) / 10 - np.array([9, 8, 9, 7, 8]) / 10
    expected = stats.t.interval(0.95, 4, differences.mean(), stats.sem(differences))
    assert pair.compared.seeds_ci95 == pytest.approx(expected)
    low, high = pair.compared.two_way_ci95 or (0, 0)
    of_problems = pair.compared.ci95 or (0, 0)
    assert low < of_problems[0] < of_problems[1] < high + 1e-9
    (row, _) = comparison.rows
    values = np.array([[i < n for i in range(10)] for n in (9, 8, 9, 7, 8)], dtype=float)
    by_problem = [{f"p{i}": value for i, value in enumerate(of_seed)} for of_seed in values]
    crossed = crossed_mean(tabulate(by_problem))
    assert crossed is not None
    assert row.two_way_ci95["accuracy"] == (crossed.interval()[0], 1)
    of_seeds = stats.t.interval(0.95, 4, values.mean(), stats.sem(values.mean(axis=1)))[0]
    (arm, _) = csv.DictReader(make_data_tables(comparison)[0].csv().splitlines())
    ends = [float(arm[f"accuracy_{end}"]) for end in ("low", "high", "low_over_seeds")]
    assert ends == pytest.approx([crossed.interval()[0], 1, of_seeds])
    assert "5 x 10" in grid.shown()[0]
    assert "This interval goes with the test; the others do not decide." in pairs_note(comparison)
    assert "the reference of its group" not in pairs_note(comparison)  # there is one, with several seeds


def test_a_difference_that_is_the_same_with_each_seed_is_remarked_on(tmp_path: Path) -> None:
    runs = [*_of_seeds(tmp_path, (9, 8, 9)), *_of_seeds(tmp_path, (5, 4, 3), "lyria")]
    missing, lacking = "There is none below 3 seeds, where all seeds differ by the same", "contains no variance between"
    assert missing in pairs_note(compare(runs))
    assert lacking not in pairs_note(compare(runs))
    comparison = compare([*runs, *_of_seeds(tmp_path, (7, 6, 7), "gepa")])
    alike, other = sorted(comparison.pairs.pooled, key=lambda pair: pair.name)
    assert (alike.remark, other.remark) == ("all seeds differ by the same amount", "")
    assert alike.compared.seeds_ci95 is None
    assert alike.compared.two_way_ci95 is not None
    assert lacking in pairs_note(comparison)


def test_the_head_of_an_interval_says_what_it_is_over_where_all_rows_agree(tmp_path: Path) -> None:
    several = _of_seeds(tmp_path, (9, 8, 9))
    comparison = compare([*several, write_method(tmp_path / "single", GOOD, method="lyria")])
    heads = {
        "95 % interval\nover problems": comparison.run_rows,
        "95 % interval\nover seeds\nand problems": [row for row in comparison.rows if row.seeds == 3],
        "95 % interval": comparison.rows,
    }
    for head, rows in heads.items():
        assert head in make_main_table(comparison, rows, [], []).headings


def test_a_mean_over_seeds_and_problems_has_no_interval_of_the_whole_range(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / str(seed), [True, False], seed=seed) for seed in range(5)]
    (row,) = compare(runs).rows
    assert row.two_way_ci95 == {}


def test_seeds_that_agree_have_no_interval(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / str(seed), [True] * 10, seed=seed) for seed in range(3)]
    (mean,) = compare(runs).rows
    assert (mean.get_metric("accuracy").value, mean.get_metric("accuracy").ci95) == (1, None)


def test_seeds_of_other_set_ups_and_unfinished_runs_are_arms_of_their_own(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / "a", GOOD, seed=0, config={"method": {"children": 4}, "seed": 0}),
        write_method(tmp_path / "b", GOOD, seed=1, config={"method": {"children": 8}, "seed": 1}),
        write_method(tmp_path / "c", GOOD, seed=2, ended=5, config={"method": {"children": 4}, "seed": 2}),
    ]
    comparison = compare(runs)
    assert [len(arm.runs) for arm in comparison.arms] == [1, 1, 1]
    assert comparison.run_rows == []


def test_a_run_and_its_copy_are_no_two_draws(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / name, GOOD) for name in "ab"]
    assert [len(arm.runs) for arm in compare(runs).arms] == [1, 1]
    runs.append(write_method(tmp_path / "c", GOOD, seed=1))
    arms = compare(runs).arms
    assert sorted(len(arm.runs) for arm in arms) == [1, 2]
    assert len({arm.name for arm in arms}) == 2


def _typed(folder: Path, *overrides: str, seed: int = 0, **settings: Any) -> Path:
    config = {
        "method": {"name": "lyria", "orders": 2, "ties": "none", "width": 1.0, "elo": False, **settings},
        "seed": seed,
    }
    command = ["evorun", "method=lyria", f"seed={seed}", "experiment=ablations", *overrides]
    target = folder / "_".join([*overrides, str(seed)]).replace("/", "-")
    return write_method(target, GOOD, method="lyria", seed=seed, config=config, command=command)


@pytest.mark.parametrize("seeds", [1, 2])
def test_ablations_are_named_by_the_overrides_that_differ(tmp_path: Path, seeds: int) -> None:
    runs = [
        _typed(tmp_path, *overrides, seed=seed, **settings)
        for seed in range(seeds)
        for overrides, settings in (
            ((), {}),
            (("method.orders=1",), {"orders": 1}),
            (("+method.ties=half",), {"ties": "half"}),
            (("method.width=0", "method.elo=true"), {"width": 0, "elo": True}),
            (("judge=oracle",), {"orders": 1, "ties": "half", "width": 3, "elo": True}),
        )
    ]
    assert {arm.name for arm in compare(runs).arms} == {
        "lyria",
        "lyria, method.orders=1",
        "lyria, method.ties=half",
        "lyria, method.width=0 method.elo=true",
        "lyria, judge=oracle",
    }


def test_ablations_are_named_by_their_settings_where_overrides_do_not_tell(tmp_path: Path) -> None:
    runs = [
        _typed(tmp_path, *overrides, **settings)
        for overrides, settings in (
            (("method.orders=2",), {}),  # typed, and yet the default
            (("a=1",), {}),
            (("a=2",), {"orders": 1}),
            (("a=3",), {"ties": "half"}),
            (("a=4",), {"width": 3.0}),
        )
    ]
    names = {name.partition(", /")[0] for name in _names(compare(runs))}
    assert names == {"lyria", "lyria, method.orders=1", "lyria, method.ties=half", "lyria, method.width=3.0"}


def test_a_run_made_before_a_key_was_added_is_named_as_without_it(tmp_path: Path) -> None:
    runs = [_typed(tmp_path, f"run.name={name}") for name in ("older", "newer")]
    for run, task, judge in zip(runs, ({}, {"strict": True}), (None, {"name": "oracle"}), strict=True):
        edit_manifest(run, config={"method": {"name": "lyria"}, "task": task, "judge": judge, "seed": 0})
    assert set(_names(compare(runs))) == {"lyria, without task.strict", "lyria, task.strict=True judge.name=oracle"}


def test_a_fork_is_named_by_the_settings_that_it_changed_and_its_first_step(tmp_path: Path) -> None:
    def fork(name: str, at: int | None, **settings: Any) -> Path:
        verb = "extend" if at is None else "fork"
        run = _typed(tmp_path, f"run.name={name}", **settings)
        origin = {"verb": verb, "run": "/r", "at": at, "changes": [str(settings)], "effects": 1, "calls": 1}
        edit_manifest(run, origin=origin, command=["evorun", verb, "/r", "--at", f"step={at}", f"output={name}"])
        return run

    runs = [_typed(tmp_path, "method.orders=2"), fork("a", 20, width=2.0), fork("b", 30, width=2.0)]
    expected = {
        "lyria, method.width=1.0",
        "lyria, method.width=2.0 from step 20",
        "lyria, method.width=2.0 from step 30",
    }
    assert set(_names(compare(runs))) == expected
    # one setting, begun at different steps, is no draw of one arm
    assert all(len(arm.runs) == 1 for arm in compare(runs).arms)
    longer = fork("c", None, width=3.0)
    assert set(_names(compare([runs[0], longer]))) == {"lyria, method.width=1.0", "lyria, method.width=3.0"}


def test_a_better_fork_is_compared_with_its_source_and_their_shared_steps_are_said(tmp_path: Path) -> None:
    source = write_method(tmp_path / "source", POOR, method="lyria")
    origin = {"verb": "fork", "run": str(source), "at": 20, "changes": ["method.width: 1"], "effects": 1, "calls": 1}
    settings = {"method": {"name": "lyria", "width": 2.0}, "seed": 0}
    fork = write_method(tmp_path / "fork", GOOD, method="lyria", config=settings, origin=origin)
    compared = compare([source, fork])
    assert compared.pairs.reference.manifest.origin is None
    (line,) = shared_steps_lines(compared)
    assert line.endswith("they share all calls before step 20.")
    assert shared_steps_lines(compare([fork])) == []
    trained = {**origin, "updates": 19}
    for name, changed, said in (
        ("trained", trained, "they share all calls and updates of the weights before step 20."),
        ("longer", {**trained, "verb": "extend", "at": None}, "it goes on from its calls and updates of the weights."),
    ):
        other = write_method(tmp_path / name, GOOD, method="lyria", config=settings, origin=changed)
        assert shared_steps_lines(compare([source, other]))[0].endswith(said)


def test_a_reference_that_no_score_has_chosen_is_not_said_to_be_favoured(tmp_path: Path) -> None:
    source = write_method(tmp_path / "source", POOR, method="lyria")
    origin = {"verb": "fork", "run": str(source), "at": 20, "changes": ["method.width: 1"], "effects": 1, "calls": 1}
    settings = {"method": {"name": "lyria", "width": 2.0}, "seed": 0}
    fork = write_method(tmp_path / "fork", GOOD, method="lyria", config=settings, origin=origin)
    elsewhere = write_method(
        tmp_path / "two",
        GOOD,
        method="lyria",
        config={"method": {"width": 3.0}},
        origin={**origin, "run": "/elsewhere"},
    )
    other = write_method(tmp_path / "other", POOR, method="gepa")

    def said(*runs: Path) -> str:
        note = pairs_note(compare(runs))
        return note[note.index("The reference is ") + len("The reference is ") : note.index("; --against")]

    assert said(source, fork) == "the run that the other is a fork of"
    assert said(source, fork, elsewhere) == "the only run that is no fork"
    chosen = "of the runs that are no forks, the one with the highest accuracy"
    assert said(source, fork, other).startswith(chosen)
    assert said(source, fork, other).endswith("chosen on these problems, which favours it")
    assert said(source, other).startswith("the run with the highest accuracy")
    unfinished = write_method(tmp_path / "unfinished", GOOD, method="gepa", ended=8)
    assert said(source, unfinished) == "the only finished run"


REPORTED = {
    "source": "A paper, Figure 2",
    "note": "with its\n own model",
    "rows": [
        {"method": "duel_evolve", "accuracy": 0.94, "by_stratum": {"MIDDLE": 0.98}},
        {"method": "gepa", "accuracy": 1},
    ],
}


def test_measured_stands_beside_reported(tmp_path: Path) -> None:
    config = {"reported": REPORTED}
    runs = [
        write_method(tmp_path / "a", GOOD, method="duel_evolve", config=config),
        write_method(tmp_path / "b", FAIR, method="zero_shot", config=config),
    ]
    comparison = compare(runs)
    duel_evolve, zero_shot = comparison.rows
    assert duel_evolve.reported is not None
    assert duel_evolve.get_reported("accuracy") == 0.94
    assert _subtract_reported(duel_evolve) == pytest.approx(0.8 - 0.94)
    assert duel_evolve.reported.get_stratum("middle") == 0.98
    assert zero_shot.reported is None
    assert _subtract_reported(zero_shot) is None
    assert comparison.sources == [("A paper, Figure 2", "with its own model")]
    assert make_main_table(comparison, comparison.rows, [], []).headings[-2:] == ["reported", "difference"]


def test_reported_figures_stand_beside_no_single_seed_and_without_differences_that_nobody_may_take(
    tmp_path: Path,
) -> None:
    runs = [
        write_method(
            tmp_path / str(seed), GOOD, method="duel_evolve", seed=seed, simulated=True,
            config={"reported": REPORTED, "method": {"name": "duel_evolve"}, "seed": seed},
        )
        for seed in range(2)
    ]  # fmt: skip
    comparison = compare(runs)
    of_arms, of_runs = (
        make_main_table(comparison, rows, [], []).headings for rows in (comparison.rows, comparison.run_rows)
    )
    assert of_arms[-1] == "reported"
    assert "reported" not in of_runs


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ({"simulated": True}, "no language model ran: a simulated one is not what the paper measured"),
        (
            {"stages": {"teacher": {"folder": "t", "digest": "d", "simulated": True}}},
            "no language model taught it: a simulated teacher's student is not what the paper measured",
        ),
        (
            {"provenance": {**BENCHMARK, "source": "sample"}},
            "the problems are the sample set, not those that the paper measured on",
        ),
        (
            {"provenance": {**BENCHMARK, "source": "stand_in"}},
            "the problems are stand-in data, not those that the paper measured on",
        ),
    ],
)
def test_what_no_paper_measured_shows_no_difference_and_says_why_once(
    tmp_path: Path, manifest: dict[str, Any], reason: str
) -> None:
    config = {"reported": REPORTED}
    runs = [
        write_method(tmp_path / name, GOOD, method=name, config=config, **manifest)
        for name in ("duel_evolve", "gepa", "zero_shot")
    ]
    comparison = compare(runs)
    row = comparison.rows[0]
    assert row.reported is not None
    assert row.get_reported("accuracy") == 0.94
    assert _subtract_reported(row) is None
    assert row.subtract_reported(0.5, row.reported.get_stratum("middle")) is None
    assert comparison.remarks == [f"No difference from reported figures is shown where {reason}."]


def test_generated_problems_are_the_papers_own_kind(tmp_path: Path) -> None:
    generated = {**BENCHMARK, "source": "generated"}
    runs = [
        write_method(tmp_path / name, GOOD, method=name, config={"reported": REPORTED}, provenance=generated)
        for name in ("duel_evolve", "zero_shot")
    ]
    comparison = compare(runs)
    assert _subtract_reported(comparison.rows[0]) == pytest.approx(0.8 - 0.94)
    assert comparison.remarks == []


ROWS = [
    {"method": "lyria", "accuracy": 0.1},
    {"method": "lyria", "task": "sudoku", "accuracy": 0.2},
    {"method": "lyria", "model": "qwen", "accuracy": 0.3},
    {"method": "lyria", "task": "sudoku", "model": "qwen", "accuracy": 0.4, "metrics": {"penalised_score": 61}},
    {"method": "other", "task": "sudoku", "model": "qwen", "accuracy": 0.5},
]


@pytest.mark.parametrize(
    ("task", "model", "accuracy"),
    [
        ("sudoku", "qwen", 0.4),
        ("sudoku", "mistral", 0.2),
        ("tsp", "qwen", 0.3),
        ("tsp", "mistral", 0.1),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_the_most_specific_row_that_fits_is_shown(task: str, model: str, accuracy: float, order: int) -> None:
    figures = find_reported({"reported": {"source": "x", "rows": ROWS[::order]}}, "lyria", task, model)
    assert figures is not None
    assert figures.metrics == {"accuracy": accuracy, **({"penalised_score": 61.0} if accuracy == 0.4 else {})}


def test_a_row_for_another_method_task_or_model_is_not_shown() -> None:
    rows = [{"method": "lyria", "task": "sudoku"}, {"method": "lyria", "model": "qwen"}]
    config = {"reported": {"source": "x", "rows": rows}}
    assert find_reported(config, "lyria", "tsp", "mistral") is None
    assert find_reported(config, "gepa", "sudoku", "qwen") is None
    assert find_reported({}, "lyria", "sudoku", "qwen") is None
    assert find_reported({"reported": None}, "lyria", "sudoku", "qwen") is None


def test_what_a_paper_says_in_words_is_shown_without_figures(tmp_path: Path) -> None:
    config = {"reported": {"source": "A paper", "note": "It  grows.", "rows": [{"method": "other", "accuracy": 1}]}}
    comparison = compare([write_method(tmp_path / name, GOOD, method=name, config=config) for name in "ab"])
    assert comparison.sources == [("A paper", "It grows.")]
    assert not comparison.has_reported
    words_only = {"reported": {"source": "A paper", "note": "It grows."}}
    runs = [write_method(tmp_path / f"words{name}", GOOD, method=name, config=words_only) for name in "ab"]
    assert compare(runs).sources == [("A paper", "It grows.")]


@pytest.mark.parametrize(
    "reported",
    ["94 %", [], {3: 4}, {"source": "x", "accuracy": {"zero_shot": 0.9}}, {"source": "x", "rows": [{"method": 3}]}],
)
def test_malformed_figures_of_a_run_are_left_out_with_a_remark(tmp_path: Path, reported: Any) -> None:
    runs = [write_method(tmp_path / name, GOOD, seed=i) for i, name in enumerate("ab")]
    edit_manifest(runs[0], config={"method": {"name": "zero_shot"}, "reported": reported})
    comparison = compare(runs)
    assert not comparison.has_reported
    (remark,) = comparison.remarks
    assert remark.startswith(
        "zero_shot, seed 0: reported figures are omitted, since their configuration is malformed: "
    )


def test_a_sweeps_folder_stands_for_its_runs(three: list[Path], tmp_path: Path) -> None:
    (tmp_path / "multirun.yaml").write_text("")
    (tmp_path / "not_a_run").mkdir()
    assert run_folders([tmp_path]) == sorted(three)
    assert run_folders([tmp_path / "multirun.yaml", *three]) == three  # SWEEP/* names it too
    assert run_folders([three[1], tmp_path, three[1] / ".." / "good"]) == [three[1], three[2], three[0]]
    assert run_folders([tmp_path / "not_a_run"]) == [tmp_path / "not_a_run"]  # for its reader to refuse
    with pytest.raises(RunDirectoryError, match="none at"):
        run_folders([tmp_path / "nowhere"])


def test_a_folder_of_sweeps_stands_for_their_runs(
    three: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = tmp_path / "a_sweep"
    (sweep / "slurm").mkdir(parents=True)
    (sweep / "sweep.json").write_text("{}")
    jobs = [write_method(sweep / f"job_{number}", GOOD, seed=number) for number in (1, 0)]
    write_method(tmp_path / "no_sweep" / "part", GOOD)
    assert run_folders([tmp_path]) == [*sorted(jobs), *sorted(three)]
    [left_out] = [record.getMessage() for record in caplog.records]
    assert "no_sweep is left out" in left_out


def test_what_a_sweeps_folder_holds_beside_readable_runs_is_named(
    three: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hydra").mkdir()
    (tmp_path / "figures").mkdir()  # as `--export` makes one, which is no mistake
    (tmp_path / "figures" / "captions.csv").touch()
    (three[1] / "manifest.json").write_text('{"status": 3}')
    assert run_folders([tmp_path]) == sorted([three[0], three[2]])
    malformed, missing = (record.getMessage() for record in caplog.records)
    assert "good/manifest.json is malformed" in malformed
    assert missing.endswith("empty is left out: it holds no manifest.json")
    with pytest.raises(RunDirectoryError, match="malformed"):  # a run that is named itself is not left out
        compare([three[0], *run_folders([three[1]])])


def test_a_folder_of_malformed_runs_only_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "manifest.json").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"a/manifest\.json is malformed"):
        compare(run_folders([tmp_path]))


def test_the_page_goes_where_all_runs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [tmp_path / "x" / "a" / "1", tmp_path / "x" / "b", tmp_path / "x" / "b" / "inner"]
    for run in runs:
        run.mkdir(parents=True)
    assert choose_folder(runs) == tmp_path / "x"
    assert choose_folder(runs[:1]) == tmp_path / "x" / "a"
    assert choose_folder([Path("/usr"), tmp_path]) == tmp_path  # never in the root
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert choose_folder(runs) == tmp_path


def test_a_malformed_record_of_one_run_is_named(three: list[Path]) -> None:
    (three[1] / "predictions.jsonl").write_text('{"problem": 3}\n')
    with pytest.raises(DataError, match=r"good.*predictions\.jsonl, line 1"):
        compare(three)


SCORES = {
    "good": [100.0, 90.0, 80.0, 95.0, 85.0, 70.0, 99.0, 100.0, 60.0, 75.0],
    "poor": [50.0, 40.0, 80.0, 35.0, 25.0, 70.0, 19.0, 20.0, 65.0, 45.0],
}
NONE_RIGHT = [False] * 10


PUZZLE = [
    *({"name": "accuracy", "low": 0, "high": 1, "rate": True}, {"name": "penalised_score", "low": 0, "high": 100}),
    {"name": "missing_cities", "low": 0, "higher_is_better": False},
]


def _other(pair: Pair, name: str) -> PairedScores:
    return {score.name: compared for score, compared in pair.others.items()}[name]


def _drawn(comparison: ComparedRuns) -> list[str]:
    (panel,) = comparison.panels
    return [score.name for score in panel.drawn_scores]


def _scored(folder: Path, method: str, scores: list[float], **more: Any) -> Path:
    both: dict[str, list[float]] = {"penalised_score": scores, "missing_cities": [i % 3 for i in range(10)]}
    return write_method(folder, NONE_RIGHT, method=method, scores=both, declared=PUZZLE, **more)


def test_scores_are_means_and_rank_runs_that_are_equally_accurate(tmp_path: Path) -> None:
    runs = [_scored(tmp_path / "a", "best_of_n", SCORES["poor"]), _scored(tmp_path / "b", "lyria", SCORES["good"])]
    comparison = compare(runs)
    assert _names(comparison) == ["lyria", "best_of_n"]
    assert comparison.pairs.reference.name == "lyria"
    assert [score.name for score in comparison.other_scores] == ["penalised_score", "missing_cities"]
    lyria, best_of_n = comparison.rows
    assert lyria.get_metric("penalised_score").value == pytest.approx(85.4)
    assert best_of_n.get_metric("missing_cities").value == pytest.approx(0.9)


def test_scores_are_paired_on_the_same_problems(tmp_path: Path) -> None:
    runs = [_scored(tmp_path / "a", "best_of_n", SCORES["poor"]), _scored(tmp_path / "b", "lyria", SCORES["good"])]
    (pair,) = compare(runs).pairs.pairs
    compared = _other(pair, "penalised_score")
    assert (compared.n, compared.higher, compared.lower) == (10, 1, 7)
    assert compared.difference == pytest.approx(44.9 - 85.4)
    assert compared.ci95 is not None
    assert compared.ci95[0] < 44.9 - 85.4 < compared.ci95[1] < 0
    assert _other(pair, "missing_cities").difference == 0
    assert pair.p == 1


def test_another_score_than_the_primary_one_ranks_and_is_tested(tmp_path: Path) -> None:
    right = [True, *NONE_RIGHT[1:]]
    both = {"penalised_score": SCORES["poor"], "missing_cities": [0.0] * 10}
    accurate = write_method(tmp_path / "a", right, method="best_of_n", scores=both, declared=PUZZLE)
    runs = [accurate, _scored(tmp_path / "b", "lyria", SCORES["good"])]
    assert _names(compare(runs)) == ["best_of_n", "lyria"]
    comparison = compare(runs, score="penalised_score")
    assert _names(comparison) == ["lyria", "best_of_n"]
    (pair,) = comparison.pairs.pairs
    assert (pair.primary.name, pair.reference) == ("penalised_score", "lyria")
    assert pair.p == pytest.approx(stats.ttest_rel(SCORES["poor"], SCORES["good"]).pvalue)
    assert _other(pair, "accuracy").difference == pytest.approx(0.1)
    assert {"accuracy", "penalised_score"} <= comparison.runs[0].curves.keys()
    begun = _scored(tmp_path / "c", "gepa", SCORES["good"], ended=0)  # has recorded no score yet
    assert "gepa" in _names(compare([*runs, begun], score="penalised_score"))
    with pytest.raises(ConfigError, match=r"^score: expected a score of all runs, got speed; .*has accuracy, pen"):
        compare(runs, score="speed")


def test_an_unfinished_runs_scores_are_paired_on_what_both_have_ended(tmp_path: Path) -> None:
    runs = [
        _scored(tmp_path / "a", "best_of_n", SCORES["poor"], ended=4, steps=2),
        _scored(tmp_path / "b", "lyria", SCORES["good"]),
    ]
    comparison = compare(runs)
    (pair,) = comparison.pairs.pairs
    assert _other(pair, "penalised_score").n == 4
    assert _other(pair, "penalised_score").difference == pytest.approx((205 - 365) / 4)
    (turned,) = compare(runs, against=runs[0]).pairs.pairs
    assert _other(turned, "penalised_score").difference == pytest.approx((365 - 205) / 4)
    assert comparison.rows[1].get_metric("penalised_score").value == pytest.approx(205 / 4)
    assert [point.value for point in comparison.runs[1].curves["penalised_score"]] == [205 / 8, 205 / 4]


def test_curves_are_of_the_scores_that_all_runs_have(tmp_path: Path) -> None:
    with_scores = [_scored(tmp_path / name, name, scores, steps=3) for name, scores in SCORES.items()]
    assert _drawn(compare(with_scores)) == ["penalised_score", "missing_cities"]
    other = write_method(tmp_path / "other", NONE_RIGHT, scores={"missing_cities": [1.0] * 10})
    assert _drawn(compare([*with_scores, other])) == ["missing_cities"]
    plain = write_method(tmp_path / "plain", NONE_RIGHT, method="gepa")
    comparison = compare([*with_scores, plain])
    assert _drawn(comparison) == []
    assert [score.name for score in comparison.rows[-1].scores] == ["accuracy"]
    assert comparison.pairs.pairs[-1].others == {}


def test_scores_over_seeds_have_students_interval_too(tmp_path: Path) -> None:
    values = [[100.0, 20.0, 60.0, 0.0, 80.0, 35.0], [90.0, 40.0, 60.0, 10.0, 100.0, 5.0], [50.0] * 6]
    runs = [
        write_method(tmp_path / str(seed), [False] * 6, seed=seed, scores={"penalised_score": values[seed]})
        for seed in range(3)
    ]
    (row,) = compare(runs).rows
    score, means = row.get_metric("penalised_score"), np.mean(values, axis=1)
    assert score.value == pytest.approx(means.mean())
    assert row.trials["penalised_score"] == "3 x 6"
    # the fixture declares no range, so that nothing is cut
    assert score.ci95 == pytest.approx(stats.t.interval(0.95, 2, means.mean(), stats.sem(means)))


def test_a_papers_scores_stand_beside_the_measured_ones(tmp_path: Path) -> None:
    rows = [{"method": "lyria", "task": "tsp", "model": "smollm2_135m", "metrics": {"penalised_score": 95}}]
    config = {"reported": {"source": "x", "rows": rows}}
    runs = [
        _scored(tmp_path / "a", "lyria", SCORES["good"], task="tsp", config=config),
        _scored(tmp_path / "b", "lyria", SCORES["poor"], task="sudoku", config=config),
    ]
    tsp, sudoku = compare(runs).rows
    assert tsp.get_reported("penalised_score") == 95
    assert tsp.get_reported("missing_cities") is None
    assert _subtract_reported(tsp) is None
    assert sudoku.reported is None
