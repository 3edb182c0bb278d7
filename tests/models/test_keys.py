"""API keys stay out of the environment of child processes."""

import asyncio
import os
from pathlib import Path

import pytest

from building import make_config, make_job, policy_gradient, training_config
from evorun.errors import TrainingError
from evorun.models.keys import child_environment
from evorun.runs import environment
from evorun.tasks.math_contest.verification import Verifier
from evorun.training import process
from evorun.training.process import TrainerProcess

SECRETS = (
    *("OPENAI_API_KEY", "ANTHROPIC_APIKEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
    *("GITHUB_TOKEN", "WANDB_API_KEY", "DB_PASSWORD", "GOOGLE_APPLICATION_CREDENTIALS", "MY_JUDGE"),
)
HARMLESS = ("PATH_TO_MONKEY", "TOKENIZERS_PARALLELISM", "KEYBOARD", "HF_HOME")


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SECRETS, *HARMLESS):
        monkeypatch.setenv(name, f"value of {name}")
    make_config("engine", "server", api_key_env="MY_JUDGE")  # named as holding a key


def names(environ: Path) -> set[str]:
    return {entry.partition("=")[0] for entry in environ.read_text().split("\0")}


def test_what_is_named_or_sounds_like_a_secret_is_left_out() -> None:
    kept = child_environment()
    assert kept.keys() & {*SECRETS, *HARMLESS} == {*HARMLESS}
    assert kept["PATH"] == os.environ["PATH"]
    assert child_environment(keep=("HF_TOKEN",)).keys() & {*SECRETS} == {"HF_TOKEN"}


async def test_the_process_that_compares_answers_has_no_keys() -> None:
    verifier = Verifier()
    assert (await verifier.compare("1/2", "0.5")).equal
    assert verifier._worker is not None
    seen = names(Path(f"/proc/{verifier._worker._process.pid}/environ"))
    verifier.close()
    assert "PATH" in seen
    assert not seen & {*SECRETS}


def test_tools_that_describe_the_machine_have_no_keys() -> None:
    assert environment._output(["env"]) is not None
    seen = {line.partition("=")[0] for line in str(environment._output(["env"])).splitlines()}
    assert not seen & {*SECRETS}


async def test_the_trainer_has_no_keys_but_the_hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "environ"
    monkeypatch.setattr(process, "require_packages", lambda: None)
    monkeypatch.setattr(process, "command_line", lambda job, file: ["sh", "-c", f"cat /proc/$$/environ > {seen}"])
    job = make_job(tmp_path, tmp_path, training_config(), policy_gradient())
    with pytest.raises(TrainingError, match="ended with exit code 0"):
        await asyncio.wait_for(TrainerProcess.start(job, tmp_path / "log"), 30)
    assert names(seen) & {*SECRETS} == {"HF_TOKEN"}
