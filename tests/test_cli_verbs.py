"""The verbs: what each accepts, and what a resumed run may change."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from building import load_task
from evorun.cli import main
from evorun.cli.help import GROUPS, HEAD, print_help
from evorun.cli.plain import with_absolute_paths
from evorun.cli.usage import USAGES
from evorun_process import DRY_RUN, SMALL, evorun_here, reopen
from means import interpreter_for_other_users

QUESTION = {"question": "?", "options": ["1", "2", "3", "4"], "answer": "A"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def manifest(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "manifest.json").read_text()))


def complaint(*arguments: str | Path, cwd: Path) -> str:
    done = evorun_here(*arguments, cwd=cwd)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("verb", ["list", "doctor", "resume", "report", "grade", "traces"])
def test_every_verb_has_help(tmp_path: Path, verb: str) -> None:
    done = evorun_here(verb, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: evorun {verb}")


def test_the_command_is_kept_as_typed(finished: Path) -> None:
    assert manifest(finished)["command"] == ["evorun", *DRY_RUN, *SMALL, "hydra.run.dir=run"]


def test_a_run_resumes_from_another_folder(tmp_path: Path) -> None:
    for stage in ("middle", "high", "college"):
        (tmp_path / "data" / stage).mkdir(parents=True)
        lines = [json.dumps({**QUESTION, "question": f"{stage} {i}?"}) for i in range(60)]
        (tmp_path / "data" / stage / "single_choice_en.jsonl").write_text("\n".join(lines) + "\n")
    done = evorun_here("engine=simulated", *SMALL, "task.data=data", "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "elsewhere").mkdir()
    resumed = evorun_here("resume", "../run", cwd=tmp_path / "elsewhere")
    assert resumed.returncode == 0, resumed.stderr


def test_paths_are_made_absolute_and_names_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    config = {
        "task": {"data": "d", "prompts": None},
        "engine": {"name": "vllm"},
        "judge_engine": {"name": "server"},
        "model": {"id": "weights"},
        "judge": {"id": "weights"},
        "seed": 0,
    }
    absolute = with_absolute_paths(config)
    assert absolute["task"] == {"data": str(tmp_path / "d"), "prompts": None}
    assert absolute["model"]["id"] == str(tmp_path / "weights")
    assert absolute["judge"]["id"] == "weights"
    assert with_absolute_paths({**config, "model": {"id": "google/gemma"}})["model"]["id"] == "google/gemma"
    assert with_absolute_paths({**config, "engine": {"name": "replay", "run": "r"}})["engine"]["run"] == os.path.join(
        tmp_path, "r"
    )
    assert config["task"] == {"data": "d", "prompts": None}


def test_a_resume_may_change_how_a_run_is_carried_out(finished: Path, tmp_path: Path) -> None:
    reopen(finished)
    done = evorun_here("resume", finished, "run.concurrency=3", "engine.seconds_per_token=0.0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert manifest(finished)["config"]["run"]["concurrency"] == 3
    assert manifest(finished)["command"][-2:] == ["run.concurrency=3", "engine.seconds_per_token=0.0"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("seed=1", "seed: cannot change on a resume, which may set tracker=NAME, engine.KEY=VALUE"),
        ("method.duels=5", "method.duels: cannot change on a resume"),
        ("training.learning_rate=1", "training.learning_rate: cannot change on a resume"),
        ("training.micro_batch=2", "training: has no effect, method=duel_evolve trains no weights"),
        ("engine=vllm", "engine: cannot change on a resume"),
        ("engine.nonsense=1", "engine.nonsense: unknown key"),
        ("run.concurrency=1,2", "run.concurrency: expected one plain value on a resume"),
        ("engine.base_urls=[1", "engine.base_urls=[1: expected KEY=VALUE"),
        ("nonsense", "expected: evorun resume RUN_DIR|SWEEP_DIR [--trust] [--redo-calls] [KEY=VALUE ...]"),
    ],
)
def test_a_resume_may_change_nothing_else(finished: Path, tmp_path: Path, change: str, expected: str) -> None:
    assert expected in complaint("resume", finished, change, cwd=tmp_path)


def test_another_version_is_named_before_its_configuration_is_read(tmp_path: Path, finished: Path) -> None:
    other = manifest(finished)
    other["evorun_version"] = "0.0.0"
    other["config"]["method"]["from_the_future"] = 1
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(other))
    assert "run was made by evorun 0.0.0" in complaint("resume", "run", cwd=tmp_path)


def test_a_replay_that_strays_is_not_told_to_resume(finished: Path, tmp_path: Path) -> None:
    arguments = [argument for argument in (*DRY_RUN, *SMALL) if not argument.startswith("engine")]
    line = complaint(*arguments, "seed=7", "engine=replay", f"engine.run={finished}", cwd=tmp_path)
    assert "resume" not in line


@pytest.mark.parametrize("form", [["--problem={}"], ["--problem", "{}"]])
def test_a_report_shows_the_named_problem(finished: Path, tmp_path: Path, form: list[str]) -> None:
    (first, *others) = [
        json.loads(line)["problem"] for line in (finished / "predictions.jsonl").read_text().splitlines()
    ]
    done = evorun_here("report", finished, *(word.format(first) for word in form), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (finished / "report.html").read_text()
    assert first in page
    assert f"Whole answers, and the judge's reasons: {finished / 'report.html'}#candidates" in done.stdout
    assert '<section id="candidates">' in page
    assert not any(other in page for other in others)


def test_no_report_is_written_when_one_cannot(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (finished / "report.html").unlink(missing_ok=True)
    for words in ((finished, tmp_path / "empty"), (finished, finished, "--problem=nobody")):
        done = evorun_here("report", *words, cwd=tmp_path)
        assert done.returncode == 1
        *_, refused = done.stderr.splitlines()  # after a line of progress, where there are two runs
        assert refused.startswith("error: ")
    assert not (finished / "report.html").exists()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (b'{"id": "a", "response": "\xff"}\n', "r.jsonl, line 1"),
        (b'{"id": "\xff", "response": ""}\n', "r.jsonl, line 1"),
        (b'{"id": "a", "response": "", "x": ' + b"[" * 5000 + b"\n", "r.jsonl, line 1"),
    ],
)
def test_a_bad_responses_file_names_its_lines(tmp_path: Path, lines: bytes, expected: str) -> None:
    (tmp_path / "r.jsonl").write_bytes(lines)
    assert expected in complaint("grade", "task=mathbench", "task.source=sample", "responses=r.jsonl", cwd=tmp_path)


SAMPLE = ("task=mathbench", "task.source=sample")


def graded(folder: Path, lines: bytes) -> list[dict[str, Any]]:
    (folder / "r.jsonl").write_bytes(lines)
    done = evorun_here("grade", *SAMPLE, "responses=r.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "r.graded.jsonl").read_text().splitlines()]


def drawn_and_held_out() -> tuple[list[str], list[str]]:
    loaded = load_task("mathbench", source="sample")
    return [problem.id for problem in loaded.problems], [example.problem.id for example in loaded.validation]


def test_half_a_character_in_one_response_keeps_none_from_its_grade(tmp_path: Path) -> None:
    first, second, *_ = drawn_and_held_out()[0]
    lone = f'{{"id": "{first}", "response": "half a pair: \\ud800. The answer is A"}}'
    whole = json.dumps({"id": second, "response": "a whole pair: \U0001f600"})
    records = graded(tmp_path, f"{lone}\n{whole}\n".encode())
    assert [record["id"] for record in records] == [first, second]


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path: Path) -> None:
    first, *_ = drawn_and_held_out()[0]
    records = graded(tmp_path, b"\xef\xbb\xbf" + json.dumps({"id": first, "response": "x"}).encode())
    assert [record["id"] for record in records] == [first]


def test_an_id_cannot_steer_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps({"id": "a\x1b[31m\u202e[bold]b", "response": "x"}))
    line = complaint("grade", *SAMPLE, "responses=r.jsonl", cwd=tmp_path)
    assert "'a\u241b[31m\ufffd[bold]b' is not among" in line
    assert not any(ord(character) < 32 for character in line.strip())


def test_an_id_that_was_not_drawn_names_what_decides_the_draw(tmp_path: Path) -> None:
    drawn, held_out = drawn_and_held_out()
    (tmp_path / "r.jsonl").write_text(json.dumps({"id": drawn[-1], "response": "x"}))
    line = complaint("grade", *SAMPLE, "task.per_stratum=3", "responses=r.jsonl", cwd=tmp_path)
    for key in ("task.data", "task.limit", "task.per_stratum", "task.validation_per_stratum", "seed"):
        assert key in line
    (tmp_path / "r.jsonl").write_text(json.dumps({"id": held_out[0], "response": "x"}))
    line = complaint("grade", *SAMPLE, "responses=r.jsonl", cwd=tmp_path)
    assert "is held out for demonstrations; lower task.validation_per_stratum" in line


UNSHIELDED = ("task=livecodebench", "task.source=sample", "sandbox.isolation=rlimits")
NOT_SHIELDED = "no full isolation (rlimits): programs can read "


@pytest.mark.nightly
def test_what_is_not_shielded_is_said_before_responses_are_graded(tmp_path: Path) -> None:
    identity = load_task("livecodebench", source="sample").problems[0].id
    (tmp_path / "r.jsonl").write_text(json.dumps({"id": identity, "response": "no program"}))
    with interpreter_for_other_users():
        done = evorun_here("grade", *UNSHIELDED, "responses=r.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith(f"warning: {NOT_SHIELDED}")


def test_what_is_not_shielded_is_said_before_programs_run(tmp_path: Path) -> None:
    run = ("engine=simulated", "method=zero_shot", "task.limit=1", "hydra.run.dir=run")
    with interpreter_for_other_users():
        done = evorun_here(*UNSHIELDED, *run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith(f"warning: {NOT_SHIELDED}")
    assert NOT_SHIELDED in (tmp_path / "run" / "evorun.log").read_text()


@pytest.mark.parametrize("own_engine", [True, False])
def test_a_served_models_name_is_no_path_in_a_replay_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: Path, own_engine: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    (tmp_path / "run").mkdir()
    recorded = manifest(finished)
    recorded["models"]["policy"] = {"name": "api", "id": "weights", "engine": "server"}
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(recorded))
    config = {
        "engine": {"name": "replay", "run": "run"},
        "judge_engine": {"name": "replay", "run": "run"} if own_engine else {"name": "policy"},
        "model": {"id": "weights"},
        "judge": {"id": "weights"},
    }
    absolute = with_absolute_paths(config)
    assert (absolute["model"]["id"], absolute["judge"]["id"]) == ("weights", "weights")
    recorded["models"]["policy"]["id"] = str(tmp_path / "weights")
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(recorded))
    assert with_absolute_paths(config)["model"]["id"] == str(tmp_path / "weights")


def test_a_grade_never_replaces_its_input(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("")
    (tmp_path / "link").symlink_to("r.jsonl")
    line = complaint("grade", "task=mathbench", "responses=r.jsonl", "output=link", cwd=tmp_path)
    assert "output: expected another file" in line


@pytest.mark.parametrize(
    ("words", "same"), [(["help"], ["--help"]), (["help", "plan"], ["plan", "--help"]), (["help", "x"], ["--help"])]
)
def test_help_is_a_word_too(words: list[str], same: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for arguments in (words, same):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert not ended.value.code
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""


def test_the_help_fits_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_help()
    printed = capsys.readouterr().out
    beyond = [line for line in printed.splitlines() if len(line) > 80]
    assert all(line.startswith("  evorun ") for line in beyond)  # examples to copy
    assert " ".join(HEAD.split()) in " ".join(printed.split())


def test_the_help_lists_every_verb_and_says_what_gold_is_for() -> None:
    assert [verb for verb in USAGES if f"\n       evorun {verb} " not in HEAD] == []
    assert "no method can ask it" in GROUPS["gold"]
