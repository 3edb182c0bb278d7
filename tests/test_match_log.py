"""`evorun tournament matches=FILE`: ratings of matches that were played elsewhere."""

import json
import os
import statistics
from pathlib import Path
from typing import Any

import evalica
import numpy as np
import pytest

from evorun.runs.tournaments import Games, bradley_terry
from evorun_process import evorun_here

TEST_DATA = Path(os.environ.get("EVORUN_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
PAIRS = TEST_DATA / "essay" / "judged_pairs.jsonl"


def log(folder: Path, *matches: Any, end: str = "\n") -> Path:
    """Write a log of matches: (a, b, winner, further keys), or lines as they are."""
    lines = [
        one
        if isinstance(one, str)
        else json.dumps(dict(zip(("a", "b", "winner"), one[:3], strict=True)) | dict(*one[3:]))
        for one in matches
    ]
    (folder / "log.jsonl").write_text("\n".join(lines) + end)
    return folder / "log.jsonl"


def rated(folder: Path, *words: str) -> dict[str, Any]:
    done = evorun_here(
        "tournament", "matches=log.jsonl", "output=elo.json", "overwrite=true", "resamples=20", *words, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "elo.json").read_text())
    return found


def test_matches_count_in_the_order_given_and_ratings_are_in_full_precision(tmp_path: Path) -> None:
    # test_elo.py works the sequence out by hand
    matches = [("x", "y", "x"), ("y", "z", None, {"judge": "m", "repetition": 3}), ("z", "x", "x")]
    file = log(tmp_path, matches[0], "", "  ", *matches[1:], end="")
    found = rated(tmp_path)
    assert found["elo"] == pytest.approx(
        {"x": 1003.9884209309151, "y": 998.0115127982992, "z": 998.0000662707856}, abs=1e-9
    )
    assert list(found["elo"]) == ["x", "y", "z"]
    assert found["sd"] == {"x": None, "y": None, "z": None}
    log(tmp_path, *matches[::-1])
    assert rated(tmp_path)["elo"] != found["elo"]
    file.write_text("\ufeff" + file.read_text())  # as Windows editors save it
    rated(tmp_path)


@pytest.mark.skipif(not PAIRS.exists(), reason="needs the judged pairs of essays; set EVORUN_TEST_DATA")
def test_ratings_of_published_votes_are_evalicas(tmp_path: Path) -> None:
    votes = [json.loads(line) for line in PAIRS.read_text().splitlines()]
    matches = []
    for one in votes:
        policies = one["first_policy"], one["second_policy"]
        first, second = (one["votes"].get(side, 0) for side in ("first", "second"))
        matches.append((*policies, None if first == second else policies[first < second], {"id": one["id"]}))
    log(tmp_path, *matches)
    found = rated(tmp_path, "k=16", "initial=1500")
    winners = {"a": evalica.Winner.X, "b": evalica.Winner.Y, "-": evalica.Winner.Draw}
    named = ["-" if winner is None else "a" if winner == a else "b" for a, _, winner, _ in matches]
    oracle = evalica.elo(
        [a for a, _, _, _ in matches],
        [b for _, b, _, _ in matches],
        [winners[one] for one in named],
        k=16,
        initial=1500,
    )
    assert found["elo"] == pytest.approx(oracle.scores.to_dict(), abs=1e-8)
    assert found["matches"] == len(votes)


def test_repetitions_are_sequences_of_their_own_with_mean_and_sd(tmp_path: Path) -> None:
    log(
        tmp_path,
        ("x", "y", "x", {"run": 1}),
        ("x", "y", "x", {"run": "1"}),
        ("y", "x", "x", {"run": 1}),
        ("x", "y", None, {"run": 2}),
    )
    found = rated(tmp_path, "by=run", "k=100")
    # 1: 50 points, then k (1 - E(100 points ahead)) more; "1" is another value than 1: 50 points; 2: a tie
    once = 50 + 100 * (1 - 1 / (1 + 10 ** (-100 / 400)))
    assert found["elo"]["x"] == pytest.approx(1000 + statistics.mean([once, 50, 0]))
    assert found["sd"]["x"] == pytest.approx(statistics.stdev([once, 50, 0]))
    assert found["repetitions"] == 3


def test_repetitions_whose_judgments_cannot_be_told_apart_have_no_intervals(tmp_path: Path) -> None:
    rows = [("x", "y", "x"), ("x", "y", "y"), ("y", "x", "x"), ("x", "y", "x")]
    log(tmp_path, *((*row, {"run": number % 2}) for number, row in enumerate(rows * 4)))
    found = rated(tmp_path, "by=run")
    assert [one["bradley_terry"]["low"] for one in found["players"]] == [None, None]
    assert "without the key problem in every line" in found["no_intervals"]
    log(tmp_path, *((*row, {"run": number % 2, "problem": number % 4}) for number, row in enumerate(rows * 4)))
    found = rated(tmp_path, "by=run")
    assert (found["matches"], found["judgments"], found["no_intervals"]) == (16, 4, None)
    assert found["players"][0]["bradley_terry"]["low"] is not None
    # three of four, each once: ln 3 on Elo's scale
    ahead = [one["bradley_terry"]["value"] for one in found["players"]]
    assert abs(ahead[0] - ahead[1]) == pytest.approx(400 * np.log10(3), rel=0.01)


def test_equal_matches_of_a_long_log_are_counted_and_weigh_as_much(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(4, size=300)
    games = Games(first, (first + rng.integers(1, 4, size=300)) % 4, rng.choice([0, 0.5, 1], 300, p=[0.2, 0.1, 0.7]))
    counted = bradley_terry(4, games, initial=1000, resamples=400).ratings
    single = bradley_terry(4, games, initial=1000, resamples=400, cluster=np.arange(300)).ratings
    for one, other in zip(counted, single, strict=True):
        assert one.value == pytest.approx(other.value)
        assert one.low is not None
        assert one.high is not None
        assert [one.low, one.high] == pytest.approx([other.low, other.high], abs=8)
        assert one.low < one.value < one.high
    assert sum(one.value for one in counted) == pytest.approx(4000)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([("x", "y", "x"), ("x", "x", "x")], "log.jsonl, line 2: expected two players, got a match of 'x' with itself"),
        (["", ("x", "y", "z")], "log.jsonl, line 2: expected winner 'x', 'y' or null, got 'z'"),
        (['{"a": "x", "b": "y"}'], 'line 1: expected {"a": "...", "b": "...", "winner": "..." or null}, got a record'),
        (['{"a": "x", "winner": null}'], "line 1: expected"),
        ([("x", 2, None)], "line 1: expected"),
        ([("x", "y", True)], "line 1: expected"),
        ([("x", "y", "x"), '{"a": "x", "b": '], "line 2: expected"),
        (['["x", "y", null]'], "line 1: expected"),
        ([""], "got no line"),
    ],
)
def test_a_line_that_is_no_match_is_named(tmp_path: Path, lines: list[Any], said: str) -> None:
    log(tmp_path, *lines)
    done = evorun_here("tournament", "matches=log.jsonl", "output=elo.json", cwd=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "elo.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["matches=nowhere.jsonl"], "cannot read matches=nowhere.jsonl"),
        (["matches=log.jsonl", "k=-1"], "k: expected a number"),
        (["matches=log.jsonl", "k=four"], "k: expected float"),
        (["matches=log.jsonl", "judge=random"], "judge=random: has no effect on matches=FILE"),
        (["matches=log.jsonl", "repetitions=2"], "repetitions: has no effect on matches=FILE"),
        (["matches=log.jsonl", "by=winner"], "by: expected a further key"),
        (["matches=log.jsonl", "output=log.jsonl"], "output: expected the name of a .json file"),
        (["matches=log.jsonl", "matches=log.jsonl"], "matches: expected once"),
        (["matches=log.jsonl", "match=3"], "match: unknown option"),
    ],
)
def test_wrong_command_lines_are_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    log(tmp_path, ("x", "y", "x"))
    done = evorun_here("tournament", *words, cwd=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
