"""The manifest of a run: how it was started, with what, and what became of it."""

from typing import Annotated, Any, Literal, Protocol

import msgspec

from evorun.fields import NonNegativeInt
from evorun.runs.depth import refuse_depth
from evorun.runs.prices import GpuPrice, Rate
from evorun.runs.scores import ACCURACY, Score

Status = Literal["running", "completed", "failed", "interrupted"]


class ModelInRun(msgspec.Struct, omit_defaults=True):
    """A model in the manifest."""

    name: str
    id: str
    engine: str
    replayed_engine: str = ""
    """The engine that once gave the replies that are replayed; empty where the model itself answers."""
    shared_by: int = 0
    """Jobs of a sweep that one process served at once, this run's among them; 0 where the run had its own engine."""

    @property
    def short(self) -> str:
        """The name, with "simulated" before it where a simulated model stands in for a real one."""
        if self.name == "random":
            return self.name
        if self.replayed_engine == "simulated":
            return f"replay of simulated {self.name}"
        return f"simulated {self.name}" if self.engine == "simulated" else self.name

    @property
    def kind(self) -> str:
        """The name, or `simulated` alone: which model a simulated one stands in for decides none of its answers."""
        return self.short.removesuffix(f" {self.name}")

    @property
    def label(self) -> str:
        """The name, with the id where they differ, or a note that the model is simulated."""
        if self.replayed_engine == "simulated":
            return f"replay of simulated {self.name}"
        if self.engine == "simulated" and self.name != "random":
            return f"simulated ({self.name}, the configured model, is not loaded)"
        return self.name if self.id in ("", self.name) else f"{self.name} ({self.id})"


class StageInRun(msgspec.Struct, frozen=True):
    """A stage before a run."""

    folder: str
    """Absolute."""
    digest: str
    """Digest of its product (candidates, traces, an adapter or weights); 12 hexadecimal digits."""
    model: ModelInRun | None = None
    """The model that answered or was trained in the stage; None where there is none."""
    simulated: bool = False
    """True when no language model gave its answers."""


class PluginInRun(msgspec.Struct, frozen=True):
    """The installed package whose code is a run's method, task, engine or judge."""

    package: str
    """Name of the distribution; empty where no distribution names itself."""
    version: str
    """Version of the distribution; an editable installation may have changed without a new one."""
    module: str
    """Module of the entry point's class."""
    digest: str
    """SHA-256 of the module's file; of a package, that of the list that `sha256sum` prints of its sorted .py files;
    12 hexadecimal digits."""


class Provenance(msgspec.Struct, frozen=True):
    """The origin of the problems."""

    source: str
    """`benchmark`, `stand_in`, `sample`, `generated` or `own` (the task's own problems)."""
    description: str
    digest: str
    """SHA-256 over the problems and their answers."""


class SandboxInRun(msgspec.Struct, frozen=True):
    """The isolation of programs that a model wrote."""

    isolation: str
    """`bubblewrap`, `namespaces` or `rlimits`."""
    full: bool
    """True when network, files and processes of the host are out of reach."""
    note: str


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The run whose recorded calls this one shares."""

    verb: Literal["fork", "extend"]
    """The command that began the run."""
    run: str
    """Its directory."""
    at: NonNegativeInt | None
    """The first step of its own (fork); None where all recorded calls are shared (extend)."""
    changes: list[str]
    """The settings that differ, as `key: before -> now`."""
    effects: NonNegativeInt
    """Journal entries taken over."""
    calls: NonNegativeInt
    """Model calls among them."""
    updates: NonNegativeInt = 0
    """Updates of the weights taken over: they are made again only where their checkpoint is gone."""
    first_checkpoint: NonNegativeInt = 0
    """The first update whose checkpoint this run may train from: updates up to it had other settings of training. 0: it
    may train from the beginning."""
    ends: list[NonNegativeInt] = []
    """The steps at which runs ended that the recorded run had extended: it may have asked for less there than they."""
    forked_at: NonNegativeInt | None = None
    """Of an extension of a fork, the first step of the fork's own; None for all other runs."""
    used_calls: NonNegativeInt | None = None
    """Those of the calls that the run has asked for: part of its cost, but not paid for again; None until it ends."""

    @property
    def first_own_step(self) -> int | None:
        """The first step with the run's own settings; None where all its steps have them."""
        return self.forked_at if self.at is None else self.at


class SmallerPasses(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the trainer's passes that was reduced after memory had run out."""

    update: int
    """The update in which it ran out, or the last one before."""
    command: str
    """train | generate | evaluate."""
    setting: str
    configured: int
    """The setting's value in the configuration."""
    reduced: int
    """The value from now on, until the configuration changes."""
    reason: str


class Signed(Protocol):
    """A manifest by which a folder can be resumed."""

    evorun_version: str
    config: dict[str, Any]
    state: dict[str, str] | None
    signature: str | None


class GpuInRun(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which a GPU of a run had work."""

    gpu: int
    """Its number among those that the run could use."""
    used_by: list[str]
    """The engines on it and the trainer, by their configuration groups."""
    busy_seconds: float
    """Seconds in which an engine or the trainer on it had something to do."""
    seconds: float
    """Seconds of the run."""

    @property
    def waiting(self) -> float:
        """Share of the run's time in which it had nothing to do."""
        return 1 - self.busy_seconds / self.seconds if self.seconds else 0.0


class Manifest(msgspec.Struct, kw_only=True):
    """manifest.json."""

    status: Status
    started: str
    """ISO 8601 with the zone, like `ended`."""
    ended: str | None = None
    seconds: float | None = None
    resumes: int = 0
    command: list[str]
    seed: int
    evorun_version: str
    git_commit: str | None
    packages: dict[str, str]
    hardware: dict[str, Any]
    method: str
    task: str
    plugins: dict[str, PluginInRun] = {}
    """Origin of what is not evorun's own, under `method`, `task`, `engine`, `judge`, `reward` or
    `grader`; empty where all is."""
    models: dict[str, ModelInRun]
    """By role."""
    origin: Origin | None = None
    """None for a run that began with an empty journal."""
    stages: dict[str, StageInRun] = {}
    """In order; empty until a student has been fine-tuned, and where none is."""
    smaller_passes: list[SmallerPasses] = []
    """In order; empty unless memory ran out in the trainer."""
    prices: dict[str, Rate] = {}
    """Prices of tokens by call role, as known when the run began; `policy` for all roles that are not listed. `unknown`
    where a vendor may bill them at a price that is not known, null where none does; empty where none bills any."""
    gpu_price: GpuPrice | None = None
    """Of one of the GPUs in `hardware`, as known when the run began; null without GPUs or a price for their kind."""
    gpus: list[GpuInRun] = []
    """The time in which each GPU had work; empty without GPUs, and where no plan gave them to engines and trainer."""
    answered_by: dict[str, str] = {}
    """Names of models by the call role that they answer; `policy` for all roles that are not listed. Empty where the
    policy answers all, grading apart."""
    regime: str
    votes: bool = False
    """True where the method says that its answer is the most frequent one among independent responses."""
    simulated: bool
    sandbox: SandboxInRun | None = None
    """None when the run tests no programs."""
    provenance: Provenance
    scores: Annotated[tuple[Score, ...], msgspec.Meta(min_length=1)] = (ACCURACY,)
    """As the task declares them, the primary one first."""
    strata: tuple[str, ...] = ()
    """Strata in the order that the task states for tables and pictures; others follow by name."""
    config: dict[str, Any]
    config_digest: str
    files: dict[str, str] = {}
    """Checksums of a completed run's files, by path; empty until then."""
    state: dict[str, str] | None = None
    """Checksums of the journal, the checkpoints and the artifacts at the end of the last process, by path; None while a
    process works on the run."""
    signature: str | None = None
    """Signature of the configuration and the state by the user who started the run (`evorun.runs.ownership`)."""
    error: str | None = None

    def __post_init__(self) -> None:
        refuse_depth(self.config)
        refuse_depth(self.hardware)

    @property
    def simulated_teacher(self) -> bool:
        """True when the run's model was fine-tuned on texts that no language model wrote."""
        return any(stage.simulated for stage in self.stages.values())
