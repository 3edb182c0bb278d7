"""`evorun tournament RUN...`: runs whose final responses a judge compares in pairs."""

import json
import shutil
import signal
import statistics
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import evalica
import numpy as np
import pytest
from scipy.optimize import minimize

from evorun_process import evorun_here, start
from journals import effects_in

SKILLS = {"good": 0.9, "fair": 0.5, "poor": 0.1}
PLAYED = {"matches_per_repetition": "120", "repetitions": "3", "resamples": "60"}
MODEL = ("judge=smollm2_135m", "judge_engine=simulated")
JUDGE = (*MODEL, "judge_engine.malformed=0.5", "judge_engine.tie_rate=0")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def records(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("matches.jsonl", "judgments.jsonl", "results.json")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of three skills on the same sums, and some that do not fit them."""
    folder = tmp_path_factory.mktemp("runs")
    common = ("method=zero_shot", "task=arithmetic", "engine=simulated", "evorun.progress=off", "engine.mean_tokens=8")
    made = {
        name: ("task.limit=24", f"engine.skill={skill}", "engine.malformed=0", f"seed={seed}")
        for seed, (name, skill) in enumerate(SKILLS.items())
    }
    made["mute"] = ("task.limit=30", "engine.malformed=1")
    made["floor"] = ("task.limit=24", "model=random")
    # their own reports take most of their time
    with mock.patch("evorun.reports.html.write_report"), mock.patch("evorun.reports.summary.print_summary"):
        for name, words in made.items():
            done = evorun_here(*common, *words, f"hydra.run.dir={name}", cwd=folder)
            assert done.returncode == 0, done.stderr
    for name, file, old, new in (
        ("others", "problems.jsonl", '"data":{', '"data":{"more":1,'),
        ("sudoku", "manifest.json", '"task": "arithmetic"', '"task": "sudoku"'),
        ("unfinished", "manifest.json", '"completed"', '"interrupted"'),
    ):
        shutil.copytree(folder / "good", folder / name)
        text = (folder / name / file).read_text()
        assert old in text
        (folder / name / file).write_text(text.replace(old, new))
    return folder


def played(*words: str) -> list[str]:
    """Return words with the settings of a small tournament, where they set no others."""
    given = {word.partition("=")[0] for word in words}
    return [*words, *(f"{key}={value}" for key, value in PLAYED.items() if key not in given)]


def held(folder: Path, cwd: Path, *words: str, entrants: tuple[str, ...] = tuple(SKILLS)) -> dict[str, Any]:
    done = evorun_here("tournament", *entrants, *played(*words), f"folder={folder}", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return results(folder)


@pytest.fixture(scope="module")
def judged(runs: Path) -> Path:
    """A tournament that the ground truth judges."""
    held(runs / "judged", runs, "judge=oracle")
    return runs / "judged"


def skill_of(name: str) -> float:
    return float(name.partition("engine.skill=")[2].split()[0])


def test_a_judge_that_prefers_the_truth_ranks_the_runs_by_their_skill(judged: Path) -> None:
    found = results(judged)
    assert [skill_of(one["name"]) for one in found["players"]] == [0.9, 0.5, 0.1]
    ratings = [one["bradley_terry"] for one in found["players"]]
    assert ratings[0]["value"] > ratings[1]["value"] > ratings[2]["high"]
    assert ratings[0]["low"] > ratings[2]["high"]
    assert found["prompts"] == 24
    assert found["invalid"] == {}
    assert found["order_agreement"]["value"] == 1


def test_elo_is_that_of_the_recorded_matches_and_a_log_of_them_rates_the_same(judged: Path) -> None:
    found, matches = results(judged), lines(judged / "matches.jsonl")
    by_repetition = []
    for repetition in (1, 2, 3):
        own = [one for one in matches if one["repetition"] == repetition]
        assert len(own) == 120
        winner = {one: evalica.Winner.X if one else evalica.Winner.Y for one in (True, False)}
        outcome = [evalica.Winner.Draw if one["winner"] is None else winner[one["winner"] == one["a"]] for one in own]
        by_repetition.append(
            evalica.elo([one["a"] for one in own], [one["b"] for one in own], outcome, initial=1000, k=4).scores
        )
    for name, elo in found["elo"].items():
        values = [one[name] for one in by_repetition]
        assert elo == pytest.approx(statistics.mean(values))
        assert found["sd"][name] == pytest.approx(statistics.stdev(values))
    words = ("matches=judged/matches.jsonl", "by=repetition", "output=again.json", "resamples=60")
    assert evorun_here("tournament", *words, cwd=judged.parent).returncode == 0
    again = json.loads((judged.parent / "again.json").read_text())
    assert (again["elo"], again["sd"]) == (found["elo"], found["sd"])
    assert again["judgments"] == found["judgments"]
    for one, other in zip(again["players"], found["players"], strict=True):
        assert [one[name] for name in ("wins", "ties", "losses")] == [
            other[name] for name in ("wins", "ties", "losses")
        ]
        rating, held = one["bradley_terry"], other["bradley_terry"]
        assert rating["value"] == pytest.approx(held["value"])
        # other draws of the same prompts
        assert (rating["high"] - rating["low"]) / (held["high"] - held["low"]) == pytest.approx(1, abs=0.4)


def test_each_order_of_each_pair_is_asked_for_once_and_drawn_evenly(judged: Path) -> None:
    matches, judgments = lines(judged / "matches.jsonl"), lines(judged / "judgments.jsonl")
    asked = [(one["problem"], one["a"], one["b"]) for one in judgments]
    assert len(asked) == len(set(asked)) == effects_in(judged / "journal.sqlite") == results(judged)["judgments"]
    winners: dict[Any, set[Any]] = {}
    for one in matches:
        winners.setdefault((one["problem"], one["a"], one["b"]), set()).add(one["winner"])
    assert set(winners) == set(asked)
    assert all(len(found) == 1 for found in winners.values())
    # 360 matches: each of 6 ordered pairs 60 times, each of 24 prompts 15 times, about
    for count, expected in (
        (Counter(pair[1:] for pair in map(ordered, matches)), 60),
        (Counter(map(problem, matches)), 15),
    ):
        assert sum((n - expected) ** 2 / expected for n in count.values()) < 2.5 * len(count)


def ordered(match: dict[str, Any]) -> tuple[str, str, str]:
    return match["problem"], match["a"], match["b"]


def problem(match: dict[str, Any]) -> str:
    return str(match["problem"])


@pytest.mark.nightly
def test_a_judge_that_tosses_a_coin_ranks_nobody(runs: Path, tmp_path: Path) -> None:
    found = held(tmp_path / "coin", runs, "judge=random", "matches_per_repetition=400")
    lows, highs = ([one["bradley_terry"][end] for one in found["players"]] for end in ("low", "high"))
    assert max(lows) < min(highs)
    low, high = found["first_shown"]["ci95"]
    assert low < 0.5 < high
    assert 0.3 < found["order_agreement"]["value"] < 0.7


def test_a_judge_that_sees_the_order_alone_is_told_and_rates_all_alike(runs: Path, tmp_path: Path) -> None:
    words = ("judge_engine.position_bias=1", "judge_engine.malformed=0")
    found = held(tmp_path / "biased", runs, *MODEL, *words, "matches_per_repetition=2000")
    assert found["first_shown"]["value"] == 1
    assert found["order_agreement"]["value"] == 0
    # every pair has been judged in both orders by now: each has won one and lost one
    assert found["judgments"] == 24 * 6
    assert [one["bradley_terry"]["value"] for one in found["players"]] == pytest.approx([1000] * 3, abs=1e-6)


@pytest.fixture(scope="module")
def half(runs: Path) -> Path:
    """A tournament whose judge is hard to read."""
    held(runs / "half", runs, *JUDGE)
    return runs / "half"


def test_invalid_judgments_are_counted_and_no_ties(half: Path) -> None:
    found, judgments = results(half), lines(half / "judgments.jsonl")
    unreadable = [one for one in judgments if one["verdict"] == "invalid"]
    assert found["invalid"] == {"unreadable": len(unreadable)}
    assert 0.3 < len(unreadable) / len(judgments) < 0.7
    assert all(one["ties"] == 0 for one in found["players"])
    assert len(lines(half / "matches.jsonl")) == found["matches"] < 360


def test_ratings_at_equal_length_are_those_of_a_logistic_regression(runs: Path, judged: Path) -> None:
    found = results(judged)
    names = [one["name"] for one in found["players"]]
    texts = {}
    for name in names:
        run = next(folder for folder, skill in SKILLS.items() if skill == skill_of(name))
        texts |= {(name, one["problem"]): one["text"] for one in lines(runs / run / "candidates.jsonl")}
    rows = lines(judged / "judgments.jsonl")
    score = np.array([{"A": 1, "T": 0.5, "B": 0}[one["verdict"]] for one in rows])
    words = [[len(texts[one[side], one["problem"]].split()) for side in "ab"] for one in rows]
    longer = np.log2([a / b for a, b in words])
    design = np.zeros((len(rows), 4))
    for row, one in zip(design, rows, strict=True):
        row[names.index(one["a"])] += 1
        row[names.index(one["b"])] -= 1
    design[:, 3] = longer

    def loss(beta: Any) -> Any:
        z = design @ beta
        return np.sum(score * np.logaddexp(0, -z) + (1 - score) * np.logaddexp(0, z)) + beta @ beta / 200

    beta = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-7}).x * 400 / np.log(10)
    assert [one["equal_length"]["value"] for one in found["players"]] == pytest.approx(
        1000 + beta[:3] - beta[:3].mean(), abs=0.1
    )
    assert found["length_effect"]["value"] == pytest.approx(beta[3], abs=0.1)
    assert len(set(longer)) > 2


@pytest.mark.nightly
def test_the_budget_ends_it_early_and_a_larger_one_goes_on(runs: Path, tmp_path: Path, judged: Path) -> None:
    folder, whole = tmp_path / "short", results(judged)
    found = held(folder, runs, "judge=oracle", "budget.calls=30")
    assert found["judgments"] == found["cost"]["calls"] == 30
    assert "the budget of 30 calls ended it in repetition 1 of 3" in found["ended_early"]
    assert 30 <= found["matches"] < 120
    found = held(folder, runs, "judge=oracle", "budget.calls=100")
    assert "the budget of 100 calls ended it in repetition 2 of 3" in found["ended_early"]
    assert found["matches"] == 120
    assert found["elo"] == {one["name"]: one["elo_by_repetition"][0] for one in whole["players"]}
    assert held(folder, runs, "judge=oracle")["ended_early"] is None
    assert records(folder) == records(judged)
    assert effects_in(folder / "journal.sqlite") == whole["judgments"]


def test_it_replays_without_the_judge(runs: Path, tmp_path: Path, half: Path) -> None:
    again = tmp_path / "again"
    held(again, runs, "judge=smollm2_135m", "judge_engine=replay", f"judge_engine.run={half}")
    assert records(again) == records(half)
    assert json.loads((again / "tournament.json").read_text())["simulated"] is True


@pytest.mark.nightly
def test_killed_it_resumes_to_the_same_bytes(runs: Path, tmp_path: Path, half: Path) -> None:
    words = (*JUDGE, "judge_engine.slots=1", "judge_engine.seconds_per_token=0.003")
    folder = tmp_path / "killed"
    process = start("tournament", *SKILLS, *played(*words), f"folder={folder}", cwd=runs)
    while process.poll() is None and effects_in(folder / "journal.sqlite") < 20:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert 20 <= effects_in(folder / "journal.sqlite") < results(half)["judgments"]
    assert json.loads((folder / "tournament.json").read_text())["status"] == "running"
    # from another folder, and faster: the folder itself says what it is held by
    words = ("judge_engine.slots=8", "judge_engine.seconds_per_token=0")
    done = evorun_here("resume", str(folder), *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert records(folder) == records(half)


def test_a_stopped_tournament_says_how_it_goes_on(runs: Path, tmp_path: Path, half: Path) -> None:
    words = (*JUDGE, "judge_engine.slots=1", "judge_engine.seconds_per_token=0.003")
    folder = tmp_path / "stopped"
    process = start("tournament", *SKILLS, *played(*words), f"folder={folder}", cwd=runs, stdout=subprocess.PIPE)
    while process.poll() is None and effects_in(folder / "journal.sqlite") < 20:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130
    assert f"interrupted; continue with: evorun resume {folder}" in said.decode()
    manifest = json.loads((folder / "tournament.json").read_text())
    assert (manifest["status"], manifest["error"]) == ("interrupted", "stopped by SIGINT")
    for change, why in (
        ("tournament.seed=1", "tournament.seed: cannot change on a resume"),
        ("judge_engine.skill=0.1", "holds another tournament (judge"),
    ):
        assert why in evorun_here("resume", str(folder), change, cwd=tmp_path).stderr
    assert evorun_here("resume", str(folder), "judge_engine.seconds_per_token=0", cwd=tmp_path).returncode == 0
    assert records(folder) == records(half)


def test_a_tournament_is_reported_again_and_one_that_somebody_else_left_is_not_resumed(
    judged: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "judged"
    shutil.copytree(judged, folder)
    (folder / "report.html").unlink()
    done = evorun_here("report", str(folder), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Bradley-" in done.stdout
    assert (folder / "report.html").read_text() == (judged / "report.html").read_text()
    assert evorun_here("resume", str(folder), cwd=tmp_path).returncode == 0
    text = (folder / "tournament.json").read_text()
    (folder / "tournament.json").write_text(text.replace('"name": "oracle"', '"name": "gpt_4o"'))
    done = evorun_here("resume", str(folder), cwd=tmp_path)
    assert done.returncode == 1
    assert "read config in its tournament.json, then add --trust" in done.stderr


def test_a_run_without_responses_loses_unasked_and_prompts_in_common_are_played(runs: Path, tmp_path: Path) -> None:
    found = held(tmp_path / "mute", runs, "judge=oracle", entrants=("good", "mute"))
    assert found["prompts"] == 24  # of 30
    assert found["judgments"] == 0
    last = found["players"][1]
    assert "malformed" in last["name"]
    assert (last["wins"], last["ties"], last["unanswered"], last["words"]) == (0, 0, 24, None)
    assert found["forfeits"] == last["losses"] == 48
    assert all(one["forfeit"] for one in lines(tmp_path / "mute" / "matches.jsonl"))


@pytest.mark.nightly
def test_a_floor_stays_out_unless_asked_for_since_it_raises_everybody_elses_rating(runs: Path, tmp_path: Path) -> None:
    without = held(tmp_path / "without", runs, "judge=oracle", entrants=("good", "poor"))
    words = ("tournament", "good", "floor", "poor", *played("judge=oracle"))
    done = evorun_here(*words, f"folder={tmp_path / 'default'}", cwd=runs)
    assert "left out: floor (exclude=model=random; exclude=none includes it)" in done.stdout
    found = results(tmp_path / "default")
    assert (found["elo"], found["matches"]) == (without["elo"], without["matches"])
    everybody = held(tmp_path / "all", runs, "judge=oracle", "exclude=none", entrants=("good", "floor", "poor"))
    floor = next(name for name in everybody["elo"] if "baseline" in name)
    others = [elo for name, elo in everybody["elo"].items() if name != floor]
    assert everybody["elo"][floor] < 1000
    assert (
        statistics.mean(others) > 1000 + (1000 - everybody["elo"][floor]) / 2.01
    )  # the sum of Elo's points is constant
    less = held(
        tmp_path / "less",
        runs,
        "judge=oracle",
        "exclude=engine.skill=0.9,engine.skill=0.5",
        entrants=(*SKILLS, "floor"),
    )
    assert len(less["elo"]) == 2
    assert sum("baseline" in name for name in less["elo"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected: evorun tournament RUN_DIR... judge=MODEL"),
        (["good", "floor", "judge=oracle"], "expected two runs or more, got 1"),
        (["good", "fair", "judge=oracle", "exclude=random"], "exclude: expected KEY=VALUE,... or none, got random"),
        (
            ["good", "fair", "judge=oracle", "exclude=modle=random"],
            "exclude: expected keys of the runs' configurations",
        ),
        (["good", "fair"], "expected: evorun tournament RUN_DIR... judge=MODEL"),
        (["good", "judge=oracle"], "expected two runs or more, got 1"),
        (["good", "nowhere", "judge=oracle"], "expected a run directory, found none at nowhere"),
        (["good", "sudoku", "judge=oracle"], "expected runs of one task, got "),
        (["good", "unfinished", "judge=oracle"], "unfinished: expected a completed run, its status is interrupted"),
        (["good", "others", "judge=oracle"], "expected runs on the same problems, but problem 'test_0000' differs"),
        (["good", "fair", "judge=policy"], "judge: expected a model by name, got policy"),
        (["good", "fair", "judge=[random,gpt_4o]"], "expected one judge"),
        (["good", "fair", "judge=oracle", "judge_engine=simulated"], "judge_engine: has no effect with judge=oracle"),
        (["good", "fair", "judge=nobody"], "judge=nobody: unknown judge"),
        (["good", "fair", "judge=random", "judge_engine=nothing"], "judge_engine=nothing: unknown"),
        (["good", "fair", "judge=oracle", "repetitions=0"], "repetitions: expected a number >= 1, got 0"),
        (["good", "fair", "judge=oracle", "task.limit=3"], "task.limit: unknown option"),
        (["good", "fair", "judge=oracle", "by=problem"], "by: expected matches=FILE"),
        (["good", "fair", "judge=gpt_4o", "judge_engine=server", "judge_engine.api_key_env=sk-123"], "api_key_env"),
        (["good", "fair", "judge=oracle", "folder=good"], "expected an empty folder or that of this tournament"),
        (["good", "poor", "judge=oracle", "folder=judged"], "judged holds another tournament (runs."),
        (["good", "fair", "poor", "judge=oracle", "seed=1", "folder=judged"], "(seed: 0 in the directory, 1 now)"),
    ],
)
def test_what_cannot_be_played_is_one_line(runs: Path, judged: Path, words: list[str], said: str) -> None:
    before = records(judged)
    done = evorun_here("tournament", *words, cwd=runs)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert records(judged) == before
    assert not (runs / "outputs").exists()
