"""The replay of a run whose model was under an adapter, on a machine that does not have the adapter."""

from pathlib import Path

import msgspec
import pytest

from building import make_config
from evorun.errors import EngineError
from evorun.models import Completion, Reply, Request
from evorun.models.config import EngineConfig, ModelConfig
from evorun.runs.directory import MANIFEST
from evorun.runs.effects import JournaledModel, Traffic
from evorun.runs.journal import Journal
from evorun.runs.journal_file import JOURNAL
from evorun.runs.manifest import Manifest, ModelInRun, Provenance
from evorun.runs.replay import ReplayConfig

REQUEST = Request(messages=({"role": "user", "content": "?"},))
GONE = ModelConfig(name="m", id="m", adapter="/no/such/adapter")


class Engine:
    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: Request) -> Reply:
        done = Completion(text=f"said by {self.name}", finish_reason="stop", tokens=1)
        return Reply(completions=(done,), prompt_tokens=1, seconds=0.5)

    async def close(self) -> None:
        return


async def record(folder: Path, **roles: str) -> ReplayConfig:
    """Record a run in which each role's model answers `REQUEST`; roles: the names of their models."""
    journal = Journal(folder / JOURNAL)
    for role, name in roles.items():
        await JournaledModel(Engine(name), journal, Traffic()).complete(role, REQUEST)
    journal.close()
    manifest = Manifest(
        status="completed",
        started="2026-01-01T00:00:00+00:00",
        command=[],
        seed=0,
        evorun_version="0",
        git_commit=None,
        packages={},
        hardware={},
        method="best_of_n",
        task="aime",
        models={role: ModelInRun("m", name, "transformers") for role, name in roles.items()},
        regime="problem_only",
        simulated=False,
        provenance=Provenance("sample", "", ""),
        config={},
        config_digest="",
    )
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return make_config("engine", "replay", run=str(folder))


async def test_the_recording_knows_the_adapter(tmp_path: Path) -> None:
    replay = await record(tmp_path, policy="m+adapter:0123456789ab", judge="m", other="n+adapter:ba9876543210")
    assert replay.journal_name(GONE) == "m+adapter:0123456789ab"
    assert replay.journal_name(ModelConfig(name="m", id="m")) == "m"
    for model, name in ((GONE, "m+adapter:0123456789ab"), (ModelConfig(name="m", id="m"), "m")):
        replayed = await replay.open(model)
        assert (await replayed.complete(REQUEST)).completions[0].text == f"said by {name}"
        await replayed.close()


async def test_of_two_adapters_of_one_model_the_files_must_tell(tmp_path: Path) -> None:
    replay = await record(tmp_path, policy="m+adapter:0123456789ab", judge="m+adapter:ba9876543210")
    with pytest.raises(EngineError, match="/no/such/adapter"):
        replay.journal_name(GONE)


def test_other_engines_go_by_the_files() -> None:
    with pytest.raises(EngineError, match="/no/such/adapter"):
        EngineConfig(name="any").journal_name(GONE)
