"""The manifests of studies of runs: tournaments between runs, and a run's responses scored by each of its rubrics."""

from pathlib import Path
from typing import Any

import msgspec

from evorun.runs.files import read_json
from evorun.runs.schema import ModelInRun, Status, refuse_depth

RESCORED = "rescore.json"


class StudyManifest(msgspec.Struct, kw_only=True):
    """A study's settings and its status."""

    status: Status
    started: str
    """ISO 8601 with the zone, like `ended`."""
    ended: str | None = None
    command: list[str]
    evorun_version: str
    git_commit: str | None
    packages: dict[str, str]
    hardware: dict[str, Any]
    simulated: bool
    """True where no language model judges, or none wrote the responses."""
    settings: dict[str, Any]
    identity: dict[str, Any]
    """Everything that must stay the same to continue it."""
    config: dict[str, Any]
    """All that the study is carried out by, as plain data: what a resume continues from."""
    state: dict[str, str] | None = None
    """As a run's, like `signature`."""
    signature: str | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        refuse_depth(self.config)


class RescoreManifest(StudyManifest, kw_only=True):
    """rescore.json, in RUN_DIR/rescore/DIGEST. Its settings: answers, every and the maximum calls."""

    reward: ModelInRun


def load_rescore(folder: Path) -> RescoreManifest:
    """Read the manifest of a study by rubrics. Raises RunDirectoryError."""
    return read_json(folder / RESCORED, RescoreManifest)
