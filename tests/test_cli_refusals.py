"""A refused command leaves no folder and says what to do; a path with blanks, for one, is no error."""

import json
from pathlib import Path

import pytest

from evorun.cli.naming import remove_unused_run_dir
from evorun_process import DRY_RUN, evorun_here

SUDOKU = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"


def refused(*arguments: str, cwd: Path) -> list[str]:
    done = evorun_here(*arguments, cwd=cwd)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert all(line.startswith("error: ") for line in lines), done.stderr
    return lines


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "sweep",
    [
        ("task.limit=0", "seed=0,1"),
        ("task.limit=0", "seed=0,1", "hydra.sweep.dir=swéep (2)/of jobs"),
        ("method.generations=1", "hydra.sweeper.variants=[{metod: lyria}]"),  # when the second job is composed
        ("method.generations=1", "hydra.sweeper.variants=[1]"),
        ("seed=range(0,2),5",),
        ("seed=range(0)",),
        ("method=glob(nothing*)",),
        ("seed=0,1", "hydra.sweeper.max_batch_size=0"),
        ("seed=0,1", "hydra.sweeper.params=5"),
        ("seed=0,1", "hydra/launcher=local", "hydra.launcher.jobs=0"),
        ("seed=0,1", "hydra/launcher=local", "hydra.launcher.cores=2"),
        ("seed=0,1", "hydra/launcher=local", "hydra.launcher.share_models=2"),
    ],
)
def test_a_sweep_of_which_no_job_begins_leaves_nothing(tmp_path: Path, sweep: tuple[str, ...]) -> None:
    assert len(refused("-m", *DRY_RUN, *sweep, cwd=tmp_path)) == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_with_anything_in_it_stays(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    refused(*DRY_RUN, "task.limit=0", "hydra.run.dir=run", cwd=tmp_path)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    (tmp_path / "above" / "run").mkdir(parents=True)
    remove_unused_run_dir(tmp_path / "above" / "run")  # not in the working directory: only the run's own
    assert (tmp_path / "above").is_dir()
    assert not (tmp_path / "above" / "run").exists()


@pytest.mark.nightly
def test_paths_with_blanks_and_letters_beyond_ascii(tmp_path: Path) -> None:
    place, name = tmp_path / "dätä (1) = neu", "dätä (1) = neu"
    place.mkdir()
    (place / "sü do.txt").write_text(SUDOKU)
    data, run, replayed = ("task=sudoku", f"task.data={name}/sü do.txt"), f"{name}/läuf", f"{name}/läuf zwei"

    def succeeds(*arguments: str) -> None:
        done = evorun_here(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    succeeds(*data, "method=zero_shot", "engine=simulated", f"hydra.run.dir={run}")
    manifest = json.loads((tmp_path / run / "manifest.json").read_text())
    assert manifest["config"]["task"]["data"] == str(place / "sü do.txt")
    succeeds(*data, "method=zero_shot", "engine=replay", f"engine.run={run}", f"hydra.run.dir={replayed}")
    assert (tmp_path / replayed / "steps.jsonl").read_bytes() == (tmp_path / run / "steps.jsonl").read_bytes()
    succeeds("resume", replayed, f"engine.run={run}")
    succeeds("report", run, replayed, f"--output={name}/é.html")
    assert (place / "é.html").exists()
    [problem] = (tmp_path / run / "problems.jsonl").read_text().splitlines()
    (place / "antwört.jsonl").write_text(json.dumps({"id": json.loads(problem)["problem"], "response": "?"}))
    succeeds("grade", *data, f"responses={name}/antwört.jsonl")
    assert (place / "antwört.graded.jsonl").exists()


@pytest.mark.parametrize("content", ["", "\ufeff\n\n"])
def test_a_file_without_responses_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "none.jsonl").write_text(content)
    [line] = refused("grade", "task=mathbench", "task.source=sample", "responses=none.jsonl", cwd=tmp_path)
    assert line.startswith('error: none.jsonl: expected {"id": "...", "response": "..."} per line, got no line')
    assert [file.name for file in tmp_path.iterdir()] == ["none.jsonl"]
