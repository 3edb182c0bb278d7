"""The responses that are kept: each rule on runs made by hand, then all on real runs, recomputed from the files."""

import io
import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from traces_fixture import Made, calls, lines, make_run

from building import simulated_run
from evorun.cli.exporting import export_traces
from evorun.errors import EvorunError
from evorun.runs.terminal import Terminal


def export(*arguments: str | Path, output: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run the verb and return examples and counts."""
    words = [*map(str, arguments), f"output={output}"]
    assert export_traces(words, Terminal(file=io.StringIO())) == 0
    return lines(output), json.loads(output.with_suffix(".counts.json").read_text())


def exported(tmp_path: Path, responses: list[Made], *options: str, **manifest: Any) -> tuple[set[str], dict[str, int]]:
    """Return the ids that are kept, and what was dropped by reason."""
    run = make_run(tmp_path / "run", responses, **manifest)
    options = options or ("kind=laft",)
    examples, counts = export(run, *options, output=tmp_path / "out.jsonl")
    return {example["candidate"] for example in examples}, counts["total"]["dropped"]


PARENTS = [Made("a", fitness=40.0), Made("b", fitness=60.0)]


def test_children_stay_when_fitter_than_all_they_come_from(tmp_path: Path) -> None:
    children = [
        (Made("above both", "crossover", 61.0, ("a", "b")), True),
        (Made("above both, the other way round", "crossover", 61.0, ("b", "a")), True),
        (Made("as the better one", "crossover", 60.0, ("a", "b")), False),
        (Made("between", "crossover", 50.0, ("b", "a")), False),
        (Made("below both", "crossover", 30.0, ("a", "b")), False),
        (Made("of one with itself", "crossover", 60.5, ("b", "b")), True),
        (Made("better", "mutation", 41.0, ("a",)), True),
        (Made("as before", "mutation", 40.0, ("a",)), False),
        (Made("better by rounding", "mutation", 40.0 + 1e-12, ("a",)), False),
        (Made("a little better", "mutation", 40.0 + 1e-6, ("a",)), True),
        (Made("worthless", "mutation", 0.0, ("b",)), False),
    ]
    ids, dropped = exported(tmp_path, [*PARENTS, *(child for child, _ in children)])
    assert ids == {"a", "b", *(child.id for child, stays in children if stays)}
    assert dropped == {"not_fitter": 6}


def test_symbolic_children_are_dropped_but_count_as_parents(tmp_path: Path) -> None:
    made = [
        *PARENTS,
        Made("x", "external_crossover", 70.0, ("a", "b"), call=False),
        Made("y", "external_mutation", 80.0, ("x",), call=False),
        Made("c", "crossover", 75.0, ("x", "b")),
        Made("d", "crossover", 75.0, ("y", "b")),
        Made("e", "mutation", 81.0, ("y",)),
    ]
    assert exported(tmp_path, made) == ({"a", "b", "c", "e"}, {"symbolic": 2, "not_fitter": 1})


def test_refused_and_cut_texts_are_dropped_and_unreadable_ones_stay(tmp_path: Path) -> None:
    made = [
        Made("a"),
        Made("refused", fitness=0.0, answer=None, finish="rejected", text=""),
        Made("cut", finish="length"),
        Made("unreadable", fitness=0.0, answer=None),
        Made("refused child", "mutation", 0.0, ("a",), answer=None, finish="rejected", text=""),
    ]
    assert exported(tmp_path, made) == ({"a", "unreadable"}, {"refused": 2, "truncated": 1})


def test_unreadable_texts_can_be_dropped_too(tmp_path: Path) -> None:
    ids, dropped = exported(tmp_path, [Made("a"), Made("b", answer=None)], "kind=laft", "parsed_only=true")
    assert (ids, dropped) == ({"a"}, {"unparsable": 1})


def test_what_is_no_response_is_no_example(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", PARENTS)
    prompt = {**PARENTS[0].record(), "problem": "*", "kind": "system_prompt", "call": None}
    with (run / "candidates.jsonl").open("a") as file:
        file.write(json.dumps(prompt) + "\n")
    examples, counts = export(run, "kind=laft", output=tmp_path / "out.jsonl")
    assert {example["problem"] for example in examples} == {"p"}
    assert counts["total"]["found"] == 2


def test_the_same_response_to_the_same_prompt_stays_once_over_all_runs(tmp_path: Path) -> None:
    first = make_run(tmp_path / "1", [Made("a", text="same"), Made("b", text="same"), Made("c", text="other")])
    second = make_run(tmp_path / "2", [Made("a", text="same"), Made("b", text="same", prompt="Another?")])
    examples, counts = export(first, second, "kind=laft", output=tmp_path / "out.jsonl")
    kept = [(Path(one["run"]).name, one["candidate"]) for one in examples]
    assert kept == [("1", "a"), ("1", "c"), ("2", "b")]
    assert [run["responses"]["dropped"] for run in counts["runs"]] == [{"duplicate": 1}, {"duplicate": 1}]


def test_direct_prompting_answers_each_question_once(tmp_path: Path) -> None:
    cut = make_run(tmp_path / "cut", [Made("1", problem="p", prompt="p?", finish="length")], method="zero_shot")
    both = [Made("2", problem="p", prompt="p?"), Made("3", problem="q", prompt="q?")]
    run = make_run(tmp_path / "run", both, method="zero_shot")
    again = [Made("4", problem="p", prompt="p?"), Made("5", problem="p", prompt="p, in other words?")]
    other = make_run(tmp_path / "other", again, method="zero_shot")
    examples, counts = export(cut, run, other, "kind=dpft", output=tmp_path / "out.jsonl")
    assert [one["candidate"] for one in examples] == ["2", "3", "5"]
    assert counts["total"] == {"found": 5, "kept": 3, "dropped": {"truncated": 1, "answered": 1}}
    assert len(export(cut, run, other, "kind=dpft_full", output=tmp_path / "full.jsonl")[0]) == 4


def scored(count: int, task: str, rng: random.Random) -> list[Made]:
    score = [float(rng.choice([0, 10, 55, 100])) for _ in range(count)]
    return [
        Made(f"{i}", problem=f"{task}{i % 7}", prompt=f"{task} {i % 7}?", scores={"penalised_score": score[i]})
        for i in range(count)
    ]


@pytest.mark.parametrize(("top", "share"), [(None, 0.2), ("0.1", 0.1), ("1", 1.0), ("0.001", 0.001)])
def test_the_top_share_is_of_each_task_by_itself(tmp_path: Path, top: str | None, share: float) -> None:
    rng = random.Random(5)
    made = {"sudoku": scored(30, "s", rng), "tsp": scored(50, "t", rng)}
    runs = [make_run(tmp_path / task, some, method="best_of_n", task=task) for task, some in made.items()]
    options = ["kind=dpft_top", *([f"top={top}"] if top else [])]
    examples, counts = export(*runs, *options, output=tmp_path / "out.jsonl")
    turned, _ = export(*runs[::-1], *options, output=tmp_path / "turned.jsonl")
    names = [{(one["task"], one["candidate"]) for one in some} for some in (examples, turned)]
    assert names[0] == names[1], "the order of the runs decides"
    for task, responses in made.items():
        kept = [one.scores["penalised_score"] for one in responses if (task, one.id) in names[0]]
        best = sorted((one.scores["penalised_score"] for one in responses), reverse=True)
        assert sorted(kept, reverse=True) == best[: math.ceil(round(share * len(responses), 6))]
    assert counts["total"]["dropped"].get("below_top", 0) == 80 - len(examples)


def test_ties_at_the_edge_favour_no_problem(tmp_path: Path) -> None:
    made = [
        Made(f"{i}", problem=f"p{i // 100}", prompt=f"{i // 100}?", scores={"penalised_score": 100.0})
        for i in range(500)
    ]
    run = make_run(tmp_path / "run", made, method="best_of_n")
    examples, _ = export(run, "kind=dpft_top", output=tmp_path / "out.jsonl")
    of_problem = Counter(one["problem"] for one in examples)
    assert sum(of_problem.values()) == 100
    assert len(of_problem) == 5
    assert all(8 <= count <= 35 for count in of_problem.values())


def test_the_fitness_of_direct_prompting_is_its_penalised_score(tmp_path: Path) -> None:
    made = [Made("a", fitness=None, scores={"penalised_score": 12.5}), Made("b", fitness=None), Made("c", fitness=3.0)]
    run = make_run(tmp_path / "run", made, method="best_of_n")
    examples, _ = export(run, "kind=dpft_full", output=tmp_path / "out.jsonl")
    assert {one["candidate"]: one["fitness"] for one in examples} == {"a": 12.5, "b": None, "c": 3.0}


# --- real runs ---

SUDOKU = ("task=sudoku", "task.split=training", "task.limit=4", "engine.malformed=0.1", "engine.skill=0.5")
LYRIA = ("method=lyria", *SUDOKU, "method.population=8", "method.generations=3", "method.max_tokens=230")


def run(folder: Path, *arguments: str) -> Path:
    """Carry out a run in this process."""
    finished = simulated_run(folder, *arguments)
    assert finished.outcome.status == "completed", finished.outcome.error
    return folder


@pytest.fixture(scope="module")
def lyria_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("lyria")
    return [run(folder / name, *LYRIA, f"seed={name}") for name in ("0", "1")]


@pytest.fixture(scope="module")
def direct_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("direct")
    oracle = ("method.choose=oracle", "method.batches=2", "method.samples=12", "method.max_tokens=230")
    return [
        run(folder / "best", "method=best_of_n", *SUDOKU, *oracle),
        run(folder / "once", "method=zero_shot", *SUDOKU, "method.retries=0", "method.max_tokens=230", "seed=3"),
    ]


def expected(runs: list[Path], *, children: bool) -> tuple[dict[tuple[str, str, str], dict[str, Any]], Counter[str]]:
    """Go by the files alone: return the records to be kept, by run, problem and id, and what is dropped by reason."""
    kept: dict[tuple[str, str, str], dict[str, Any]] = {}
    seen = set()
    dropped: Counter[str] = Counter()
    for path in runs:
        recorded = calls(path)
        records = lines(path / "candidates.jsonl")
        fitness = {(one["problem"], one["id"]): one["fitness"] for one in records}
        for one in records:
            if one["operator"].startswith("external"):
                dropped["symbolic"] += 1
                continue
            messages, completion = recorded[one["call"]]
            pair = (json.dumps(messages), completion["text"])
            worse = [fitness[one["problem"], name] >= one["fitness"] for name in one["parents"]] if children else []
            if completion["finish_reason"] != "stop":
                dropped["truncated"] += 1
            elif any(worse):
                dropped["not_fitter"] += 1
            elif pair in seen:
                dropped["duplicate"] += 1
            else:
                seen.add(pair)
                kept[path.name, one["problem"], one["id"]] = one
    return kept, dropped


def key(example: dict[str, Any]) -> tuple[str, str, str]:
    return Path(example["run"]).name, example["problem"], example["candidate"]


@pytest.mark.nightly
def test_lyrias_traces_are_those_of_the_paper(lyria_runs: list[Path], tmp_path: Path) -> None:
    examples, counts = export(*lyria_runs, "kind=laft", output=tmp_path / "laft.jsonl")
    kept, dropped = expected(lyria_runs, children=True)
    assert {key(one) for one in examples} == set(kept)
    assert len(examples) == len(kept) == counts["total"]["kept"]
    assert counts["total"]["dropped"] == dropped
    # the runs must put the rules to the test
    assert {"symbolic", "truncated", "not_fitter"} <= set(dropped)
    assert {one["operator"] for one in examples} == {"init", "crossover", "mutation"}
    for one in examples:
        record = kept[key(one)]
        assert one["fitness"] == record["fitness"]
        assert len(one["parents_fitness"]) == {"init": 0, "mutation": 1, "crossover": 2}[one["operator"]]
        assert all(one["fitness"] > parent for parent in one["parents_fitness"])
        assert (one["task"], one["kind"], one["operator"]) == ("sudoku", "laft", record["operator"])


def test_the_chat_is_the_journals_to_the_byte(lyria_runs: list[Path], direct_runs: list[Path], tmp_path: Path) -> None:
    for runs, kind in ((lyria_runs, "laft"), (direct_runs, "dpft_full")):
        examples, _ = export(*runs, f"kind={kind}", output=tmp_path / f"{kind}.jsonl")
        records = {
            (path.name, one["problem"], one["id"]): one for path in runs for one in lines(path / "candidates.jsonl")
        }
        recorded = {path.name: calls(path) for path in runs}
        for one in examples:
            messages, completion = recorded[Path(one["run"]).name][records[key(one)]["call"]]
            assert one["messages"][:-1] == messages
            assert one["messages"][-1] == {"role": "assistant", "content": completion["text"]}
            assert completion["text"] == records[key(one)]["text"]
            assert list(one["messages"][0]) == ["role", "content"]


def test_hostile_texts_survive(tmp_path: Path) -> None:
    from run_fixture import HOSTILE

    texts = [text for text in HOSTILE if "\ud800" not in text] + ["", "\r\n", '"\\', "\U0001f9ec"]
    made = [Made(f"{i}", prompt=text, text=text) for i, text in enumerate(texts)]
    examples, _ = export(make_run(tmp_path / "run", made), "kind=laft", output=tmp_path / "out.jsonl")
    assert [(one["messages"][1]["content"], one["messages"][2]["content"]) for one in examples] == [
        (text, text) for text in texts
    ]


def test_all_of_direct_prompting_and_its_best(direct_runs: list[Path], tmp_path: Path) -> None:
    full, counts = export(*direct_runs, "kind=dpft_full", output=tmp_path / "full.jsonl")
    kept, dropped = expected(direct_runs, children=False)
    assert {key(one) for one in full} == set(kept)
    assert counts["total"]["dropped"] == dropped
    best, counts = export(*direct_runs, "kind=dpft_top", "top=0.3", output=tmp_path / "top.jsonl")
    scores = sorted((one["scores"]["penalised_score"] for one in kept.values()), reverse=True)
    count = math.ceil(0.3 * len(scores))
    assert sorted((one["fitness"] for one in best), reverse=True) == scores[:count]
    assert {key(one) for one in best} <= set(kept)
    assert counts["total"]["dropped"] == {**dropped, "below_top": len(scores) - count}


def test_one_answer_a_question(direct_runs: list[Path], tmp_path: Path) -> None:
    examples, _ = export(direct_runs[1], direct_runs[1], "kind=dpft", output=tmp_path / "out.jsonl")
    kept, _ = expected([direct_runs[1]], children=False)
    assert {key(one) for one in examples} == set(kept)
    assert len({one["problem"] for one in examples}) == len(examples)
    with pytest.raises(EvorunError, match="kind=dpft needs runs of zero_shot, this is one of best_of_n"):
        export(*direct_runs, "kind=dpft", output=tmp_path / "no.jsonl")


def test_the_counts_agree_with_one_another(lyria_runs: list[Path], tmp_path: Path) -> None:
    examples, counts = export(*lyria_runs, "kind=laft", output=tmp_path / "out.jsonl")
    records = [one for path in lyria_runs for one in lines(path / "candidates.jsonl")]
    tallies = [counts["total"], *counts["by_operator"].values(), *(run["responses"] for run in counts["runs"])]
    assert all(one["found"] == one["kept"] + sum(one["dropped"].values()) for one in tallies)
    found = {name: tally["found"] for name, tally in counts["by_operator"].items()}
    assert found == Counter(one["operator"] for one in records)
    kept = {name: tally["kept"] for name, tally in counts["by_operator"].items() if tally["kept"]}
    assert kept == Counter(one["operator"] for one in examples)
    assert sum(run["responses"]["kept"] for run in counts["runs"]) == len(examples)
    assert [(run["split"], run["simulated"]) for run in counts["runs"]] == [("training", True)] * 2
