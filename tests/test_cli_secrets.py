"""Secrets on the command line are refused, not shown, and leave nothing on disk."""

import re
from pathlib import Path

import pytest

from evorun.cli.overrides import change
from evorun.errors import ConfigError
from evorun_process import DRY_RUN, evorun_here

SECRET = "hunter2"

TYPED = {
    "a key for its variable": "engine.api_key_env=sk-hunter2",
    "keys for variables": "judge_engine.api_key_env=FINE,sk-hunter2",
    "a key in quotes": "engine.api_key_env='sk-hunter2'",
    "in a URL": "engine.base_urls=[http://me:hunter2@host/v1]",
    "in one of several": "engine.base_urls=[http://one/v1],[https://two/v1,http://me:hunter2@host/v1]",
    "with a slash": "engine.base_urls=[http://me:hun/ter2hunter2@host/v1]",
    "with a fragment": "engine.base_urls=[http://me:hunter2#@host/v1]",
    "without a scheme": "engine.base_urls=[me:hunter2@host/v1]",
    "no list": "engine.base_urls=http://me:hunter2@host/v1",
    "a wrong key": "engine.base_url=[http://me:hunter2@host/v1]",
    "of a proxy": "engine.proxy=http://me:hunter2@proxy:3128",
    "of a variable": "engine.extra_body.user=${oc.env:EVORUN_TEST_SECRET}",
    "of a variable in a value": "engine.extra_body.user='me ${oc.decode:${ oc.env : EVORUN_TEST_SECRET }}'",
    "among a sweep's parameters": "hydra.sweeper.params.seed='${oc.env:EVORUN_TEST_SECRET}'",
}


@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED.keys())
@pytest.mark.parametrize("sweep", [(), ("-m", "seed=1,2")], ids=["run", "sweep"])
def test_a_typed_secret_is_refused_and_stays_nowhere(
    typed: str, sweep: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVORUN_TEST_SECRET", SECRET)
    done = evorun_here(*sweep, *DRY_RUN, typed, cwd=tmp_path)
    assert done.returncode == 1
    assert typed.partition("=")[0] in done.stderr
    assert SECRET not in done.stderr + done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_be_named_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVORUN_TEST_FOLDER", str(tmp_path / "scratch"))
    folder = "hydra.run.dir=${oc.env:EVORUN_TEST_FOLDER}/run"
    done = evorun_here(*DRY_RUN, "task.limit=1", "method.generations=0", folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "scratch" / "run" / "results.json").is_file()


def test_a_variable_in_a_file_is_refused_without_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVORUN_TEST_SECRET", SECRET)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    text = "# @package _global_\nbudget:\n  calls: ${oc.env:EVORUN_TEST_SECRET}\n"
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(text)
    done = evorun_here("--config-dir", "conf", "-m", *DRY_RUN, "experiment=mine", "seed=1,2", cwd=tmp_path)
    assert done.returncode == 1
    assert "budget.calls: expected a value, got ${oc.env:EVORUN_TEST_SECRET}" in done.stderr
    written = [path for path in tmp_path.rglob("*") if "conf" not in path.parts]
    assert SECRET not in "".join(path.name for path in written)
    assert SECRET not in "".join(path.read_text() for path in written if path.is_file())


def test_a_later_job_is_looked_at_without_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVORUN_TEST_SECRET", SECRET)
    (tmp_path / "conf" / "budget").mkdir(parents=True)
    (tmp_path / "conf" / "budget" / "mine.yaml").write_text("name: mine\ncalls: ${oc.env:EVORUN_TEST_SECRET}\n")
    small = ("task.limit=1", "method.generations=0", "hydra.sweep.dir=sweep", "evorun.progress=off")
    done = evorun_here("--config-dir", "conf", "-m", *DRY_RUN, *small, "budget=unlimited,mine", cwd=tmp_path)
    assert "a job of this sweep cannot run (budget=mine): budget.calls: " in done.stderr
    assert SECRET not in done.stderr + done.stdout


@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED.keys())
def test_a_secret_typed_for_a_resume_is_not_shown(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVORUN_TEST_SECRET", SECRET)
    with pytest.raises(ConfigError, match=re.escape(typed.partition("=")[0])) as error:
        change({"engine": {"name": "server"}}, [typed])
    assert SECRET not in str(error.value)
