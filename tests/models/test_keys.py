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
    *("PGPASSWORD", "DATABASE_URL", "GH_PAT", "SLURM_JWT", "HTTPS_PROXY", "UNHEARD_OF"),
)
HARMLESS = ("TOKENIZERS_PARALLELISM", "HF_HOME", "CUDA_VISIBLE_DEVICES", "LC_ALL", "SLURM_JOB_ID")


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SECRETS, *HARMLESS):
        monkeypatch.setenv(name, f"value of {name}")
    make_config("engine", "server", api_key_env="MY_JUDGE")  # named as holding a key


def names(environ: Path) -> set[str]:
    return {entry.partition("=")[0] for entry in environ.read_text().split("\0")}


def test_children_are_given_what_they_need_and_what_the_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = child_environment()
    assert kept.keys() & {*SECRETS, *HARMLESS} == {*HARMLESS}
    assert kept["PATH"] == os.environ["PATH"]
    assert child_environment(keep=("HF_TOKEN",)).keys() & {*SECRETS} == {"HF_TOKEN"}
    monkeypatch.setenv("EVORUN_PASS_ENV", "UNHEARD_OF, MY_JUDGE")
    assert child_environment().keys() & {*SECRETS} == {"UNHEARD_OF", "MY_JUDGE"}


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
    monkeypatch.setattr(process, "require_packages", lambda training: None)
    monkeypatch.setattr(process, "command_line", lambda job, file: ["sh", "-c", f"cat /proc/$$/environ > {seen}"])
    job = make_job(tmp_path, tmp_path, training_config(), policy_gradient())
    with pytest.raises(TrainingError, match="ended with exit code 0"):
        await asyncio.wait_for(TrainerProcess.start(job, tmp_path / "log"), 30)
    assert names(seen) & {*SECRETS} == {"HF_TOKEN", "HTTPS_PROXY"}
