"""Runs loaded in Python: data frames and figures have what plain readers find in the files."""

import importlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pandas
import polars
import pytest

import evorun
from building import simulated_run
from evorun.errors import ConfigError, DataError, JournalError, RunDirectoryError
from evorun.runs.journal_file import Effect
from evorun.runs.journal_reader import read_journal
from evorun_process import environment
from journals import write_journal
from run_fixture import HOSTILE, RunSpec, write_run

SMALL = ("task=mathbench", "task.source=sample", "task.limit=3")
DUELS = ("method=duel_evolve", "method.generations=1", "method.initial_candidates=3", "method.children=2")
ESPL = ("method=espl", "task=dapo_aime25", "task.source=sample", "task.limit=2", "method.steps=1", "method.group=2")
LEARNING = (*ESPL, "method.problems_per_step=2", "method.eval_samples=0")
RUNS = {
    "a/duels": (*DUELS, *SMALL, "method.duels=3"),
    "a/duels_warm": (*DUELS, *SMALL, "method.duels=3", "method.temperature=1.0"),
    "a/zero": ("method=zero_shot", *SMALL),
    "b/zero_1": ("method=zero_shot", *SMALL, "seed=1"),
    "b/learning": LEARNING,
}
FRAMES = sorted(
    {name for kind in evorun.Runs.__mro__ for name, value in vars(kind).items() if type(value).__name__ == "FrameOf"}
)


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    for name, words in RUNS.items():
        simulated_run(folder / name, *words)
    return folder


@pytest.fixture(scope="module", name="documented")
def _documented() -> Mapping[str, list[str]]:
    """Return the columns of each section of the page of data frames."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(Path(__file__).parents[1] / "docs"))
        page = importlib.import_module("reference.frames").frames_page()
    found = {}
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        found[title] = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    return found


@pytest.fixture(name="runs")
def _runs(folder: Path) -> evorun.Runs:
    loaded = evorun.load(folder)
    assert isinstance(loaded, evorun.Runs)
    return loaded


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    file = folder / name
    return (
        [json.loads(line) for line in file.read_text().removesuffix("\n").split("\n") if line] if file.exists() else []
    )


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Return a JSON object as columns, by the rules of the documentation."""
    if name.rpartition(".")[2] == "ci95":
        low, high = value or (None, None)
        above = name.removesuffix("ci95")
        return {f"{above}low": low, f"{above}high": high}
    if not isinstance(value, dict):
        return {name: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flat(inner, f"{name}.{key}" if name else key)
    return found


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a frame without missing values, which each library writes in its own way."""
    records = frame.to_dicts() if isinstance(frame, polars.DataFrame) else frame.to_dict("records")
    return [{key: value for key, value in record.items() if not is_missing(value)} for record in records]


def is_missing(value: Any) -> bool:
    return not isinstance(value, list | tuple) and (value is None or value is pandas.NA or value != value)


def without_nulls(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if value is not None}


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in row.items()}


# --- what is found ---


def test_a_folder_of_folders_is_all_its_runs_and_a_runs_folder_is_one(folder: Path, runs: evorun.Runs) -> None:
    assert [run.path.relative_to(folder).as_posix() for run in runs] == sorted(RUNS)
    one = evorun.load(folder / "a" / "zero")
    assert isinstance(one, evorun.Run)
    assert (one.method, one.task, one.seed, one.status) == ("zero_shot", "mathbench", 0, "completed")
    assert one.manifest.method == json.loads((folder / "a/zero/manifest.json").read_text())["method"]
    assert len(evorun.load([folder / "a", one, folder / "b/zero_1", folder / "b"])) == len(RUNS)


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("nowhere", "empty"):
        with pytest.raises(RunDirectoryError, match=r"^[^\n]*expected a run[^\n]*$"):
            evorun.load(tmp_path / place)
    with pytest.raises(RunDirectoryError, match="empty list"):
        evorun.load([])


def test_runs_are_a_sequence_that_can_be_filtered(runs: evorun.Runs) -> None:
    assert [run.path.name for run in runs.where(method="zero_shot")] == ["zero", "zero_1"]
    assert [run.path.name for run in runs.where(method=["zero_shot", "espl"], seed=[1])] == ["zero_1"]
    assert [run.path.name for run in runs.where(**{"method.temperature": 1.0, "task.limit": 3})] == ["duels_warm"]
    assert [run.path.name for run in runs.where(lambda run: run.score.value is None)] == []
    assert [run.path for run in runs[1:3]] == [runs[1].path, runs[2].path]
    with pytest.raises(ConfigError, match="methd"):
        runs.where(methd="zero_shot")


# --- frames ---


def test_frames_of_files_have_the_values_of_their_lines(folder: Path, runs: evorun.Runs) -> None:
    seen = 0
    for name in FRAMES:
        source = getattr(evorun.Runs, name).source
        if not source.endswith(".jsonl"):
            continue
        frame = getattr(runs, name)()
        expected = [(run, flat(record)) for run in sorted(RUNS) for record in lines(folder / run, source)]
        assert len(frame) == len(expected), name
        identity = identity_of(runs)
        for row, (run, record) in zip(rows_of(frame), expected, strict=True):
            assert row["run"] == run
            own = {key: value for key, value in plain(row).items() if key not in identity}
            left_out = {key: 0 for key in own if key.endswith((".cached_tokens", ".tool_calls"))}  # where it is 0
            assert own == left_out | {
                key: json.dumps(value, separators=(",", ":")) if isinstance(value, list) and "data." in key else value
                for key, value in without_nulls(record).items()
            }, name
            seen += 1
    assert seen > 100


def test_what_serves_all_problems_has_its_last_rating_and_is_a_survivor_only_if_it_is_now(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1, manifest={"method": "espl"}))
    record = {"problem": "*", "kind": "system_prompt", "operator": "reflect", "text": "", "answer": None}
    first = [{**record, "id": name, "generation": 0, "mean": 0.5, "survivor": True} for name in ("0.0", "1.0")]
    last = {"step": 3, "candidate": "0.0", "mean": 0.25, "sd": None, "survivor": False}
    for name, records in (("candidates", first), ("ratings", [{**last, "step": 0, "mean": 0.5}, last])):
        with (run / f"{name}.jsonl").open("a") as file:
            file.writelines(json.dumps(one) + "\n" for one in records)
    frame = evorun.load(run).candidates()
    shown = frame[frame["problem"] == "*"]
    assert list(zip(shown["id"], shown["mean"], shown["survivor"], strict=True)) == [
        ("0.0", 0.25, False),
        ("1.0", 0.5, True),
    ]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", FRAMES)
def test_frames_of_polars_are_those_of_pandas(name: str, runs: evorun.Runs) -> None:
    first, second = getattr(runs, name)(), getattr(runs, name)(format="polars")
    assert isinstance(first, pandas.DataFrame)
    assert isinstance(second, polars.DataFrame)
    assert list(first.columns) == second.columns
    assert list(map(plain, rows_of(first))) == rows_of(second)


@pytest.mark.nightly
@pytest.mark.parametrize("name", FRAMES)
def test_every_column_of_a_frame_is_documented_and_there(
    name: str, runs: evorun.Runs, documented: Mapping[str, list[str]]
) -> None:
    columns = [column for column in getattr(runs, name)().columns if column not in identity_of(runs)]
    rows = documented[f"{name}()"]
    patterns = {row: re.escape(row).replace("NAME", "[^.]+") for row in rows}
    assert [column for column in columns if not any(re.fullmatch(one, column) for one in patterns.values())] == []
    assert [row for row in rows if "NAME" not in row and row not in columns] == []
    known = {*documented["Columns that tell runs apart"], *(one for one in identity_of(runs) if "." in one)}
    assert identity_of(runs) <= known


def identity_of(runs: evorun.Runs) -> set[str]:
    return {key for own, _ in runs.identified() for key in own}


def test_columns_say_which_run_and_what_differs_within_a_method(runs: evorun.Runs) -> None:
    frame = runs.runs()
    assert list(frame.columns[:5]) == ["run", "method", "task", "seed", "method.temperature"]
    warm = frame.set_index("run")["method.temperature"]
    assert warm["a/duels_warm"] == 1.0
    assert warm["a/duels"] == 0.7
    of_two = runs.where(method=["zero_shot", "espl"], seed=0)
    assert of_two[0].config["method"]["max_tokens"] != of_two[1].config["method"]["max_tokens"]
    assert identity_of(of_two) == {"run", "method", "task", "seed", "training.name"}
    assert list(runs[0].candidates().columns[:2]) == ["text", "answer"]  # one run needs none


def test_models_that_differ_are_a_column_named_as_reports_name_them(folder: Path, tmp_path: Path) -> None:
    for name in ("able", "floor"):
        shutil.copytree(folder / "a" / "zero", tmp_path / name)
    file = tmp_path / "floor" / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["config"]["model"]["name"] = manifest["models"]["policy"]["name"] = "random"
    file.write_text(json.dumps(manifest))
    runs = evorun.load(tmp_path)
    assert isinstance(runs, evorun.Runs)
    assert list(runs.predictions().columns[:5]) == ["run", "method", "task", "seed", "model"]
    assert runs.predictions().groupby("model").ngroups == 2
    assert list(runs.runs()["model"]) == ["simulated smollm2_135m", "random"]
    assert [run.path.name for run in runs.where(model="random")] == ["floor"]
    assert [run.path.name for run in runs.where(model="smollm2_135m")] == ["able"]  # as on the command line


def test_figures_and_intervals_are_those_of_results(folder: Path, runs: evorun.Runs) -> None:
    frame = runs.runs().set_index("run")
    metrics, costs = runs.metrics(), runs.costs()
    for name in RUNS:
        results = json.loads((folder / name / "results.json").read_text())
        own, primary = frame.loc[name], results["metrics"][frame.loc[name]["score"]]
        assert [own["value"], own["low"], own["high"], own["n"]] == [primary["value"], *primary["ci95"], primary["n"]]
        total = results["cost"]["total"]
        assert [own["calls"], own["prompt_tokens"]] == [total["calls"], total["prompt_tokens"]]
        for figure in rows_of(metrics[metrics["run"] == name]):
            of = results["by_stratum"][figure["stratum"]] if "stratum" in figure else results["metrics"]
            expected = of[figure["name"]]
            assert [figure.get("value"), figure["n"]] == [expected["value"], expected["n"]]
            assert [figure.get("low"), figure.get("high")] == list(expected["ci95"] or (None, None))
        roles = costs[costs["run"] == name].set_index("role")["completion_tokens"].to_dict()
        assert roles == {role: cost["completion_tokens"] for role, cost in results["cost"].items()}


def blocks(folder: Path, table: str) -> list[Any]:
    """Return a table of a journal by SQLite and zlib alone."""
    with sqlite3.connect(f"file:{folder / 'journal.sqlite'}?mode=ro", uri=True) as database:
        found = database.execute(f"SELECT body FROM {table} ORDER BY first").fetchall()
    database.close()
    return [item for (body,) in found for item in msgspec.msgpack.decode(zlib.decompress(body))]


def test_calls_are_those_of_the_journal(folder: Path) -> None:
    run = evorun.load(folder / "a" / "duels")
    calls, completions = run.calls(), run.completions()
    keys, results, requests = (blocks(folder / "a/duels", table) for table in ("keys", "results", "requests"))
    assert list(calls["call"]) == [key for (key, _), (_, _, usage, _) in zip(keys, requests, strict=True) if usage]
    assert calls["prompt_tokens"].sum() == sum(
        json.loads(usage)["prompt_tokens"] for _, _, usage, _ in requests if usage
    )
    assert list(calls["role"]) == [key.split("|")[2] for key, _ in keys]
    texts = [one["text"] for result in results for one in json.loads(result)["completions"]]
    assert list(completions["text"]) == texts
    assert all(json.loads(prompt)[-1]["role"] == "user" for prompt in completions["prompt"])
    assert set(run.candidates()["call"].dropna()) <= set(calls["call"])


def test_a_journals_other_effects_are_no_calls(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder / "a" / "zero", tmp_path / "effects"))
    call = read_first(copy / "journal.sqlite")
    program = call._replace(key="0|0|tests|0|0", usage=None, result=b'{"passed":1}')
    odd = call._replace(key="a|b|1|judge|0|2")  # problem and number of the step: "a|b", 1
    write_journal(copy / "journal.sqlite", [program, odd, call])
    calls = evorun.load(copy).calls()
    assert calls["call"].tolist() == [odd.key, call.key]
    assert calls.loc[0, ["problem", "step", "role", "index", "attempt"]].tolist() == ["a|b", 1, "judge", 0, 2]
    write_journal(copy / "journal.sqlite", [call._replace(key="a|first|judge|0|2")])
    with pytest.raises(JournalError, match=r"^[^\n]*journal\.sqlite is damaged[^\n]*$"):
        evorun.load(copy).calls()


def read_first(journal: Path) -> Effect:
    return next(iter(read_journal(journal)))


def test_an_unknown_or_missing_library_is_refused(runs: evorun.Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="expected one of pandas, polars, got 'arrow'"):
        runs.runs(format="arrow")  # type: ignore[call-overload]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install polars"):
        runs.runs(format="polars")


# --- unfinished and broken runs ---


def cut(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of a run as a kill leaves it: a torn last line, no results."""
    copy = Path(shutil.copytree(folder / "a" / "duels", tmp_path / "cut"))
    for name in ("results.json", "metrics.jsonl", "aggregates.json"):
        (copy / name).unlink()
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "status": "running", "files": {}}))
    text = (copy / "predictions.jsonl").read_text()
    (copy / "predictions.jsonl").write_text(text[: text.rindex('"stop"')])
    return copy


def test_a_running_run_has_what_is_recorded_so_far(folder: Path, tmp_path: Path) -> None:
    run = evorun.load(cut(folder, tmp_path))
    assert isinstance(run, evorun.Run)
    whole = lines(folder / "a" / "duels", "predictions.jsonl")
    assert (run.status, run.results) == ("running", None)
    assert list(run.predictions()["problem"]) == [one["problem"] for one in whole[:-1]]
    assert run.score.n == len(whole) - 1
    assert run.score.value == sum(one["correct"] for one in whole[:-1]) / (len(whole) - 1)
    recorded = evorun.load(folder / "a" / "duels").curves()
    # what was selected is compared with all candidates, which a problem writes at its end
    recorded = recorded[~recorded["name"].str.startswith("search/")]
    assert run.curves()["name"].tolist() == recorded["name"].tolist()
    assert run.curves()["value"].tolist() == pytest.approx(recorded["value"].tolist(), nan_ok=True)
    assert "none yet" not in run._repr_html_()


def test_a_broken_file_is_named_in_one_line_and_the_others_are_read(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder / "a" / "duels", tmp_path / "broken"))
    (copy / "candidates.jsonl").write_text('{"id": 3}\n')
    (copy / "results.json").write_text("[1")
    (copy / "journal.sqlite").unlink()
    run = evorun.load(copy)
    for read, error, named in (
        (run.candidates, DataError, r"candidates\.jsonl, line 1"),
        (lambda: run.results, DataError, r"results\.json"),
        (run.calls, RunDirectoryError, r"journal\.sqlite"),
    ):
        with pytest.raises(error, match=rf"^[^\n]*{named}[^\n]*$"):
            read()
    assert len(run.duels()) == len(lines(copy, "comparisons.jsonl"))
    (copy / "manifest.json").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"^[^\n]*manifest\.json is malformed[^\n]*$"):
        evorun.load(copy)


# --- folders of somebody else ---


def test_hostile_texts_reach_frames_as_they_are_and_pages_escaped(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>\x1b[31m"
    path = write_run(tmp_path / name, RunSpec(hostile=True, manifest={"method": name, "task": HOSTILE[2]}))
    run = evorun.load(path)
    assert isinstance(run, evorun.Run)
    assert run.candidates()["text"].tolist() == [one["text"] for one in lines(path, "candidates.jsonl")]
    for shown in (run._repr_html_(), evorun.load([path])._repr_html_()):
        assert "<script" not in shown
        assert "<img" not in shown
        assert "&lt;script&gt;" in shown
        assert "\x1b" not in shown + repr(run)


def test_a_link_in_place_of_a_file_shows_nothing_of_what_it_leads_to(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder / "a" / "zero", tmp_path / "linked"))
    secret = tmp_path / "secret"
    secret.write_text("token=hunter2\n")
    for file in ("predictions.jsonl", "results.json", "journal.sqlite"):
        (copy / file).unlink()
        (copy / file).symlink_to(secret)
    run = evorun.load(copy)
    for read in (run.predictions, run.metrics, run.calls):
        with pytest.raises((DataError, RunDirectoryError, JournalError)) as caught:
            read()
        assert "hunter2" not in str(caught.value)
    assert secret.read_text() == "token=hunter2\n"


def test_a_number_that_no_column_holds_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder / "a" / "zero", tmp_path / "large"))
    (record,) = lines(copy, "predictions.jsonl")[:1]
    (copy / "predictions.jsonl").write_text(json.dumps({**record, "steps": 2**63}) + "\n")
    for format in ("pandas", "polars"):
        with pytest.raises(DataError, match=r"^column steps: [^\n]*$"):
            evorun.load(copy).predictions(format=format)  # type: ignore[call-overload]


# --- imports ---


def test_importing_evorun_loads_no_library() -> None:
    heavy = ("torch", "pandas", "polars", "hydra", "omegaconf", "matplotlib", "numpy", "scipy", "rich", "msgspec")
    code = (
        "import sys; before = set(sys.modules); import evorun; dir(evorun)\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert not set(heavy) & set(json.loads(done.stdout.replace("'", '"')))


@pytest.mark.nightly
def test_loading_a_run_loads_no_frames_figures_or_models(folder: Path) -> None:
    heavy = ("torch", "pandas", "polars", "hydra", "matplotlib", "scipy", "transformers")
    code = f"import sys, evorun; evorun.load({str(folder)!r}); print(sorted(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert all(callable(getattr(evorun, name)) for name in evorun.__all__)
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        evorun.laod  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("rating", ["posterior", "elo"])
def test_ratings_by_step_end_at_the_recorded_ones(tmp_path: Path, rating: str) -> None:
    words = ("method.duels=4", "method.generations=3", f"method.rating={rating}", "method.ties=half")
    simulated_run(tmp_path / "run", *DUELS, *SMALL, *words)
    run = evorun.load(tmp_path / "run")
    for problem in run.predictions()["problem"]:
        ratings = run.ratings_by_step(problem)
        assert list(ratings.columns) == ["step", "candidate", "mean", "sd"]
        by_step = {step: own.set_index("candidate")[["mean", "sd"]] for step, own in ratings.groupby("step")}
        recorded = run.candidates().query("problem == @problem").dropna(subset="mean").set_index("id")
        pandas.testing.assert_frame_equal(by_step[3], recorded[["mean", "sd"]], check_names=False, atol=1e-8)
        # the belief in the returned candidate is recorded at each step
        steps = run.steps().query("problem == @problem").dropna(subset="best.id")
        found = [by_step[step].loc[best, "mean"] for step, best in zip(steps["step"], steps["best.id"], strict=True)]
        assert found == pytest.approx(list(steps["belief.mean"]), abs=1e-8)
        assert len(found) == 4


def test_ratings_by_step_need_duels_and_an_ended_problem(runs: evorun.Runs) -> None:
    by_method = {run.method: run for run in runs}
    problem = by_method["duel_evolve"].predictions()["problem"][0]
    with pytest.raises(ConfigError, match="expected ratings that follow from duels, method=zero_shot recorded none"):
        by_method["zero_shot"].ratings_by_step(problem)
    with pytest.raises(RunDirectoryError, match=r"expected the id of a problem that has ended.*got 'nobody'"):
        by_method["duel_evolve"].ratings_by_step("nobody")
