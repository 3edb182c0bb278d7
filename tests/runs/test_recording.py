"""The effects of a run that replays another one: its own and the recording's, of one's own runs only."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from evorun.errors import RunDirectoryError
from evorun.runs.directory import MANIFEST, RunDirectory, new_manifest
from evorun.runs.journal import Journal
from evorun.runs.journal_file import JOURNAL, Effect, digest_request
from evorun.runs.manifest import Manifest, Provenance
from evorun.runs.recording import open_effects
from evorun.runs.records import write_json
from evorun.runs.scores import ACCURACY


def manifest(engine: dict[str, Any]) -> Manifest:
    return new_manifest(
        command=["evorun", "engine=server"],
        seed=0,
        method="zero_shot",
        task="aime",
        models={},
        regime="problem_only",
        sandbox=None,
        simulated=True,
        provenance=Provenance("sample", "problems", "0"),
        scores=(ACCURACY,),
        config={"engine": engine},
    )


def write_run(folder: Path, keys: Sequence[str], made: Manifest) -> Path:
    folder.mkdir()

    async def fill() -> None:
        with closing(Journal(folder / JOURNAL)) as journal:
            for key in keys:
                about = f'{{"of":"{key}"}}'.encode()
                await journal.put(Effect(key, digest_request(about), about, key.encode(), None, 0.0))

    asyncio.run(fill())
    write_json(folder / MANIFEST, made)
    return folder


def replay_of(run: Path) -> Manifest:
    return manifest({"name": "replay", "run": str(run)})


def effects(run: Path) -> list[tuple[str, bytes]]:
    with closing(open_effects(run)) as reader:
        reader.check()
        return [(key, reader.effect(number).result) for number, (key, _) in enumerate(reader.index())]


def test_a_replays_effects_are_its_own_and_those_of_what_it_replays(tmp_path: Path) -> None:
    recorded = write_run(tmp_path / "recorded", ["a", "b"], manifest({"name": "server"}))
    first = write_run(tmp_path / "first", [], replay_of(recorded))
    second = write_run(tmp_path / "second", ["c"], replay_of(first))
    assert effects(second) == [("c", b"c"), ("a", b"a"), ("b", b"b")]


def test_nothing_is_read_where_somebody_elses_run_points(tmp_path: Path) -> None:
    recorded = write_run(tmp_path / "recorded", ["a"], manifest({"name": "server"}))
    theirs = replay_of(recorded)
    theirs.signature = "0" * 64
    assert effects(write_run(tmp_path / "theirs", ["c"], theirs)) == [("c", b"c")]


def test_a_run_that_replays_itself_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ["a"], replay_of(tmp_path / "run"))
    with pytest.raises(RunDirectoryError, match="replays itself"):
        open_effects(run)


def test_an_unfinished_replay_does_not_go_on_with_a_model(tmp_path: Path) -> None:
    recorded = write_run(tmp_path / "recorded", ["a"], manifest({"name": "server"}))
    run = write_run(tmp_path / "run", [], replay_of(recorded))
    with closing(RunDirectory(run)) as directory:
        with pytest.raises(RunDirectoryError, match="resume it with engine=replay"):
            directory.begin(manifest({"name": "server"}))
        assert directory.begin(replay_of(recorded))
    assert (run / ".hydra" / "overrides.yaml").read_text() == "- engine=server\n"  # as Hydra leaves them


def test_hydra_reads_the_configuration_that_a_run_leaves(tmp_path: Path) -> None:
    engine = {
        "name": "server",
        "model": "1e3",
        "stop": ["true", "\u00e9: \u2028", "0x10"],
        "timeout": 1e3,
        "seed": None,
    }
    with closing(RunDirectory(tmp_path / "run")) as directory:
        directory.begin(manifest(engine))
    assert OmegaConf.load(tmp_path / "run" / ".hydra" / "config.yaml") == {"engine": engine}
