"""The records of a run directory, typed as far as reports read them.

Fields that a report does not use are left out, so that decoding skips them; fields that a method may leave out, or that
an unfinished run does not have yet, carry defaults.
"""

from typing import Any, Literal

import msgspec

CandidateId = str | int
"""Names a candidate within its problem."""

Verdict = Literal["A", "B", "T", "invalid"]


class RoleCost(msgspec.Struct, frozen=True):
    """What one role has cost."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float | None = None
    """Seconds spent in model calls, summed over calls; None where it was not recorded."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


class Belief(msgspec.Struct, frozen=True):
    """The method's own estimate of a candidate's quality."""

    mean: float | None = None
    sd: float | None = None


class ModelInfo(msgspec.Struct, frozen=True):
    """Which model plays a role, and on which engine."""

    name: str = ""
    id: str = ""
    engine: str = ""


class Provenance(msgspec.Struct, frozen=True):
    """Where the problems came from."""

    source: str = "benchmark"
    description: str = ""
    digest: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """manifest.json."""

    status: str
    method: str
    task: str
    started: str | None = None
    ended: str | None = None
    seconds: float | None = None
    command: list[str] = []
    seed: int | None = None
    evorun_version: str | None = None
    git_commit: str | None = None
    hardware: dict[str, Any] = {}
    models: dict[str, ModelInfo] = {}
    regime: str | None = None
    simulated: bool = False
    provenance: Provenance = Provenance()
    config_digest: str | None = None
    error: str | None = None


class Metric(msgspec.Struct, frozen=True):
    """A figure over `n` problems and its 95 % interval."""

    value: float | None
    ci95: tuple[float, float] | None = None
    n: int | None = None


class Results(msgspec.Struct, frozen=True):
    """results.json."""

    metrics: dict[str, Metric] = {}
    by_stratum: dict[str, dict[str, Metric]] = {}
    cost: dict[str, RoleCost] = {}
    counts: dict[str, Any] = {}


class MetricPoint(msgspec.Struct, frozen=True):
    """A line of metrics.jsonl; calls and tokens are means per problem so far."""

    step: int
    name: str
    value: float | None
    ci95: tuple[float, float] | None = None
    n: int | None = None
    calls: float | None = None
    tokens: float | None = None


class StepBest(msgspec.Struct, frozen=True):
    """The best candidate of a step."""

    id: CandidateId | None = None
    answer: str | None = None


class StepRecord(msgspec.Struct, frozen=True):
    """A line of steps.jsonl."""

    problem: str
    step: int
    stratum: str = ""
    best: StepBest | None = None
    belief: Belief | None = None
    correct: bool | None = None
    pool: int | None = None
    cost: dict[str, RoleCost] = {}


class Prediction(msgspec.Struct, frozen=True):
    """A line of predictions.jsonl."""

    problem: str
    stratum: str = ""
    candidate: CandidateId | None = None
    answer: str | None = None
    correct: bool | None = None
    belief: Belief | None = None
    stop: str | None = None
    cost: dict[str, RoleCost] = {}


class CandidateKey(msgspec.Struct, frozen=True):
    """A line of candidates.jsonl without its texts: all that the figures need."""

    problem: str
    id: CandidateId
    answer: str | None = None
    mean: float | None = None
    correct: bool | None = None
    attempts: int = 1


class CandidateRecord(msgspec.Struct, frozen=True):
    """A line of candidates.jsonl."""

    problem: str
    id: CandidateId
    generation: int = 0
    parents: list[CandidateId] = []
    operator: str = ""
    text: str = ""
    answer: str | None = None
    reasoning: str | None = None
    error: str | None = None
    mean: float | None = None
    sd: float | None = None
    survivor: bool | None = None
    correct: bool | None = None
    attempts: int = 1


class DuelKey(msgspec.Struct, frozen=True):
    """A line of comparisons.jsonl without the judge's reasons."""

    problem: str
    step: int
    first: CandidateId
    second: CandidateId
    verdicts: list[Verdict] = []
    outcome: Literal["first", "second"] | None = None


class DuelRecord(DuelKey, frozen=True):
    """A line of comparisons.jsonl; verdict and reason i belong together, the second judged with the order swapped."""

    reasons: list[str | None] = []
