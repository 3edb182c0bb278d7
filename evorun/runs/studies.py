"""The manifests of studies of runs, and the records of recorded opinions that another judge, rubric or grader gives."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from evorun.runs.candidates import CandidateId
from evorun.runs.depth import refuse_depth
from evorun.runs.files import read_json
from evorun.runs.manifest import ModelInRun, PluginInRun, Status
from evorun.runs.schema import Metric

RESCORED, REJUDGED = "rescore.json", "rejudge.json"
FIGURES = "figures.json"
"""The figures of a rejudging."""


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


Opinions = Literal["duels", "rewards", "grades", "choices"]
"""The opinions that a rejudging gives again: verdicts on duels, rewards of rollouts, grades of candidates, or choices
among them (`evorun reselect`)."""


class RejudgeManifest(StudyManifest, kw_only=True):
    """rejudge.json, in RUN_DIR/rejudge/DIGEST. Its settings: the maximum calls and tokens, and what else was given."""

    kind: Opinions
    models: dict[str, ModelInRun]
    """Those that are asked, by role; none where grades take no model."""
    changes: list[str]
    """The settings that differ from the run's, as `key=value`."""
    plugins: dict[str, PluginInRun] = {}
    """Of grades: the plug-ins whose code gave them (`task`, `grader`)."""
    ended_early: str | None = None
    """Why the budget allowed only some of the opinions; None where all were given."""
    remark: str | None = None
    """The reason why all opinions equal the recorded ones, where the same simulated model gave both; null otherwise."""
    candidates: int | None = None
    """Of choices from a run with duels: the candidates to choose from."""
    without_duel: int | None = None
    """Those of them that were in no duel."""

    @property
    def asked(self) -> str:
        """Source of the opinions: a rubric, selectors, stops, settings other than the run's, the code of grades."""
        given = {"rubric": self.settings.get("rubric")}
        given |= {key: ",".join(map(str, self.settings.get(key, ()))) for key in ("selectors", "stop_probability")}
        code = [
            f"code of {plugin.package or plugin.module} {plugin.version} (digest {plugin.digest})"
            for plugin in self.plugins.values()
        ]
        if self.kind == "grades" and not self.changes and not code:
            code = [f"code of evorun {self.evorun_version}"]
        return ", ".join([*(f"{key}={value}" for key, value in given.items() if value), *self.changes, *code])


class RejudgedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A row of figures.json: a measure of the recorded opinions, and of the new ones on the same texts."""

    by: str
    """The division of which the row is a part: `all`, `order`, `accuracy`, `position`, `length`, `difficulty`,
    `step`, `score`, `stratum`."""
    group: str
    """The part of the division, in words."""
    n: int
    """Duels, judgments, rollouts, problems or candidates with both opinions."""
    problems: int | None = None
    """Different problems that these are of; null in files of earlier versions."""
    recorded: Metric | None = None
    """The measure by the recorded opinions: a share of decided duels, a mean reward, a mean score."""
    now: Metric | None = None
    """The same measure by the new opinions."""
    difference: Metric | None = None
    """Mean of the paired differences, new less recorded."""
    agreement: Metric | None = None
    """The share of equal opinions; of rewards, and of scores other than rates, Spearman's rank correlation."""
    calls: float | None = None
    """Mean calls per problem that a selector's choice took beyond those of the run; null for other opinions."""
    rate: bool = True
    """True where the measure is a share, which readers see as a percentage."""


class RefittedRating(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ratings.jsonl of a rejudging: a candidate's rating by the new verdicts."""

    problem: str
    candidate: CandidateId
    mean: float
    """In logits."""
    sd: float


class RejudgedChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A line of choices.jsonl of a rejudging: the run's choice, and the best candidate by the new verdicts."""

    problem: str
    recorded: CandidateId | None
    now: CandidateId | None
    recorded_score: float | None
    """The primary score, as the run has graded it."""
    score_now: float | None


class RejudgedReward(msgspec.Struct, frozen=True, kw_only=True):
    """A line of rewards.jsonl of a rejudging: a rollout's share of the rubric's points."""

    step: int
    problem: str
    index: int
    recorded: float
    now: float | None
    """None where no readable score was given."""


class RejudgedGrade(msgspec.Struct, frozen=True, kw_only=True):
    """A line of grades.jsonl of a rejudging."""

    problem: str
    candidate: CandidateId | None
    """None: the problem has no candidate."""
    final: bool
    """True for the candidate that the run returned."""
    correct: bool | None
    scores: dict[str, float | None]
    detail: str = ""


def load_rejudge(folder: Path) -> RejudgeManifest:
    """Read the manifest of a rejudging. Raises RunDirectoryError."""
    return read_json(folder / REJUDGED, RejudgeManifest)


def find_rejudgings(run: Path) -> Iterator[tuple[Path, RejudgeManifest]]:
    """Yield the folders of a run's completed rejudgings with their manifests, by name. Raises RunDirectoryError."""
    for file in sorted(run.glob(f"rejudge/*/{REJUDGED}")):
        manifest = load_rejudge(file.parent)
        if manifest.status == "completed":
            yield file.parent, manifest


def load_figures(folder: Path) -> list[RejudgedFigure]:
    """Read the figures of a rejudging. Raises RunDirectoryError."""
    return read_json(folder / FIGURES, list[RejudgedFigure])
