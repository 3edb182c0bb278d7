import dataclasses
import json
import random
from pathlib import Path

import msgspec
import pytest

from evorun.errors import DataError, RunDirectoryError
from evorun.reports.browser import MAX_BYTES, MAX_PROBLEMS, load_browser
from evorun.reports.facts import list_warnings
from evorun.reports.overview import Curves, load_curves, load_outcome
from evorun.reports.packing import script_json
from evorun.runs.aggregates import count_aggregates
from evorun.runs.journal_file import Effect
from evorun.runs.reading import read_predictions, read_records, read_steps_without_texts
from evorun.runs.scores import ACCURACY
from journals import write_journal
from run_fixture import RunSpec, write_run


class Row(msgspec.Struct):
    problem: str
    answer: str | None = None


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"manifest\.json"):
        load_outcome(tmp_path)


def test_a_missing_file_holds_nothing(tmp_path: Path) -> None:
    assert list(read_records(tmp_path / "rows.jsonl", Row)) == []


def test_a_torn_last_line_is_left_out_wherever_it_was_cut(tmp_path: Path) -> None:
    whole = b'{"problem":"a","correct":true}\n'
    second = '{"problem":"b","answer":"\u00e9"}\n'.encode()
    path = tmp_path / "rows.jsonl"
    for cut in range(len(second)):
        path.write_bytes(whole + second[:cut])
        assert [p.problem for p in read_records(path, Row)] == ["a"]
    path.write_bytes(whole + second)
    assert [p.problem for p in read_records(path, Row)] == ["a", "b"]


def test_a_malformed_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"problem":"a"}\n{"problem":3}\n{"problem":"c"}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl, line 2: .*str"):
        list(read_records(path, Row))


def test_an_unfinished_run_is_counted_from_its_records(tmp_path: Path) -> None:
    finished = load_outcome(write_run(tmp_path / "a"))
    unfinished = load_outcome(write_run(tmp_path / "b", RunSpec(finished=False)))
    assert finished.finished
    assert not unfinished.finished
    assert unfinished.metrics["accuracy"].value == finished.metrics["accuracy"].value
    assert unfinished.metrics["accuracy"].n == 9
    assert list(unfinished.by_stratum) == list(finished.by_stratum)
    for role in ("generate", "judge", "total"):
        assert unfinished.cost[role].calls == finished.cost[role].calls
        assert unfinished.cost[role].tokens == finished.cost[role].tokens
    assert "Up to the last recorded step" in unfinished.cost_note  # for want of a journal


def test_an_unfinished_run_has_spent_what_its_journal_holds(tmp_path: Path) -> None:
    tokens = '{"prompt_tokens":7,"completion_tokens":2}'

    def call(key: str, error: str | None = None, usage: str | None = tokens) -> Effect:
        return Effect(key, b"0" * 16, b"{}", json.dumps({"completions": [], "error": error}).encode(), usage, 1.0)

    run = write_run(tmp_path / "run", RunSpec(finished=False))
    calls = [call(f"a|b|{step}|judge|{i}|0", "HTTP 400" if i == 1 else None) for step in range(3) for i in range(4)]
    calls += [call("a|b|0|generate|0|0"), call("*|0|gold|0123|0"), call("program", usage=None)]
    write_journal(run / "journal.sqlite", [*calls, call("a|b|0|reward|0|0", usage=None)])
    outcome = load_outcome(run)
    assert {role: spent.calls for role, spent in outcome.cost.items()} == {
        "generate": 1, "judge": 12, "total": 13, "gold": 1
    }  # fmt: skip
    assert outcome.cost["total"].tokens == 13 * 9
    assert (outcome.refused, outcome.cost_note) == ({"judge": 3}, "")
    assert "3 requests were refused by the engine (judge 3)" in " ".join(list_warnings(outcome))


def _curves(run: Path) -> Curves:
    return load_curves(load_outcome(run), read_steps_without_texts(run))


def test_curves_counted_from_steps_are_those_of_metrics(tmp_path: Path) -> None:
    recorded = _curves(write_run(tmp_path / "a"))
    run = write_run(tmp_path / "b", RunSpec(finished=False))
    counted = _curves(run)
    assert counted.from_steps
    assert not recorded.from_steps
    assert counted.series == recorded.series


def test_curves_of_an_unfinished_run_carry_the_last_state_forward(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=4, strata=("S",), generations=2, finished=False))
    records = [json.loads(line) for line in (run / "steps.jsonl").open()]
    begun = [r for r in records if r["problem"] != "problem-003" and (r["problem"], r["step"]) != ("problem-001", 2)]
    (run / "steps.jsonl").write_text("".join(json.dumps(r) + "\n" for r in begun))
    correct = {(r["problem"], r["step"]): r["correct"] for r in begun}
    correct["problem-001", 2] = correct["problem-001", 1]
    points = _curves(run).series["accuracy"]
    assert [p.n for p in points] == [3, 3, 3]
    for point in points:
        assert point.value == sum(right for (_, step), right in correct.items() if step == point.step) / 3


def test_candidates_and_duels_are_counted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=3, candidates=30, duels=11))
    figures = count_aggregates(run, ACCURACY)
    records = [json.loads(line) for line in (run / "candidates.jsonl").open()]
    assert figures.responses == 90
    assert figures.unparsable.successes == sum(r["answer"] is None for r in records)
    (run / "results.json").unlink()  # of a run without them they are counted from its records
    assert load_outcome(run).metrics["decisive_rate"].n == 33


SEED, CHILD = (
    {**{"problem": "*", "kind": "system_prompt", "generation": 0, "operator": "seed", "answer": None}, **more}
    for more in ({"id": "p0", "text": "Be brief.", "mean": 25.0}, {"id": "p1", "text": "Be right.", "parents": ["p0"]})
)


def with_prompts(run: Path) -> Path:
    """Add two system prompts to a run; the first one is rated twice."""
    ratings = [(0, "p0", 25.0, True), (1, "p1", None, True), (2, "p0", 22.0, False)]
    lines = [{"step": s, "candidate": c, "mean": m, "sd": 1.0, "survivor": alive} for s, c, m, alive in ratings]
    with (run / "candidates.jsonl").open("a") as candidates:
        candidates.writelines(json.dumps(record) + "\n" for record in (SEED, CHILD))
    (run / "ratings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_only_responses_are_counted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=3))
    before = count_aggregates(run, ACCURACY)
    assert count_aggregates(with_prompts(run), ACCURACY) == dataclasses.replace(before, shared=2)


def _browser(run: Path, problems: list[str] | None = None):
    figures = count_aggregates(run, ACCURACY)
    return load_browser(
        run, read_predictions(run), read_steps_without_texts(run), figures.by_problem, ACCURACY, problems
    )


def test_the_browser_spreads_over_strata_and_outcomes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=60, candidates=5, duels=5))
    chosen = _browser(run)
    groups = {(p.stratum, p.correct) for p in read_predictions(run)}
    assert len(groups) > 3
    assert len(chosen) == MAX_PROBLEMS
    assert {(p.stratum, p.correct) for p in chosen} == groups


def test_the_browser_takes_named_problems(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=42, candidates=2, duels=2))
    assert [p.id for p in _browser(run, ["problem-041", "problem-007"])] == ["problem-041", "problem-007"]
    with pytest.raises(RunDirectoryError, match="'nowhere'"):
        _browser(run, ["nowhere"])


def test_the_browser_shows_a_problem_that_has_not_ended(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=2, finished=False))
    (run / "predictions.jsonl").unlink()
    assert [(p.id, p.stratum) for p in _browser(run)] == [("problem-000", "COLLEGE"), ("problem-001", "HIGH")]


def test_long_texts_are_cut_to_keep_the_page_small(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=100, duels=5, text_length=60_000))
    (problem,) = _browser(run)
    assert problem.packed.limit == 4000
    assert len(problem.packed.content) <= MAX_BYTES
    text = json.loads(problem.packed.json)["candidates"][0]["text"]
    assert text[4000:].startswith(" … [")


def test_texts_that_share_lines_are_carried_whole_in_a_small_part_of_their_size(tmp_path: Path) -> None:
    # as those of a long run do: before, every text of its report was cut to nothing
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=1, duels=0))
    (record,) = [json.loads(line) for line in (run / "candidates.jsonl").open()]
    text = "".join(random.Random(0).choices("abcdefgh ", k=3_500))
    records = [{**record, "id": f"c{i}", "text": f"{i}\n{text}"} for i in range(2_000)]
    (run / "candidates.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    (problem,) = _browser(run)
    shown = json.loads(problem.packed.json)["candidates"]
    assert [one["text"] for one in shown] == [one["text"] for one in records]
    assert len(problem.packed.content) < len(problem.packed.json) / 20


def test_the_browser_carries_what_the_prompts_showed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1))
    (record,) = [json.loads(line) for line in (run / "problems.jsonl").open()]
    assert json.loads(_browser(run)[0].packed.json)["data"] == record["data"]
    long = {"question": "q" * 5000, "options": ["o" * 5000, 7], "nested": {"text": "n" * 5000}}
    (run / "problems.jsonl").write_text(json.dumps({**record, "data": long}) + "\n")
    shown = json.loads(_browser(run)[0].packed.json)["data"]
    assert shown["options"][1] == 7
    for text in (shown["question"], shown["options"][0], shown["nested"]["text"]):
        assert text[4000:] == " … [1,000 characters cut]"


def test_the_browser_carries_memory_and_feedback_cut_as_texts_are(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=3, duels=0))
    plain, noted, long = [json.loads(line) for line in (run / "candidates.jsonl").open()]
    noted |= {"memory": "n may be 0", "feedback": {"text": "1 of 2 passed", "score": 0.5}}
    long |= {"memory": "m" * 5000, "feedback": {"text": "f" * 5000, "score": 0.0}}
    (run / "candidates.jsonl").write_text("".join(json.dumps(record) + "\n" for record in (plain, noted, long)))
    shown = json.loads(_browser(run)[0].packed.json)["candidates"]
    assert [(c["memory"], c["feedback"]) for c in shown[:2]] == [("", None), (noted["memory"], noted["feedback"])]
    assert shown[2]["memory"][4000:] == shown[2]["feedback"]["text"][4000:] == " … [1,000 characters cut]"


def test_a_run_without_recorded_problems_still_has_a_browser(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1))
    (run / "problems.jsonl").unlink()
    assert json.loads(_browser(run)[0].packed.json)["data"] == {}


def test_links_to_candidates_that_were_never_written_are_dropped(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=12))
    content = (run / "candidates.jsonl").read_bytes().splitlines(keepends=True)
    (run / "candidates.jsonl").write_bytes(b"".join(content[6:]))
    data = json.loads(_browser(run)[0].packed.json)
    assert len(data["candidates"]) == 6
    assert all(0 <= p < 6 for c in data["candidates"] for p in c["parents"])
    assert all(max(first, second) < 6 for _, first, second, *_ in data["duels"])


def test_script_json_is_json_without_markup() -> None:
    rng = random.Random(0)
    text = "".join(rng.choices("<>&/'\"\\!-]script\x00\u2028é", k=5000))
    encoded = script_json({"text": text})
    assert json.loads(encoded) == {"text": text}
    assert not set("<>&\x00") & set(encoded)
