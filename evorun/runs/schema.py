"""The records of a run directory: the driver writes them; results and reports read them.

Fields are encoded in the order of their declaration. JSON Lines files hold one record per line.
"""

import sys
from datetime import date
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from evorun.fields import NonNegativeInt
from evorun.models.base import FinishReason, Wasted
from evorun.runs.candidates import SHARED, Candidate, CandidateId, Comparison
from evorun.runs.prices import GpuPrice, Rate
from evorun.runs.scores import ACCURACY, Score

Status = Literal["running", "completed", "failed", "interrupted"]
Stop = Literal["generations", "budget", "failed"]


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
    """`benchmark`, `stand_in`, `sample` or `generated`."""
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
    simulated: bool
    sandbox: SandboxInRun | None = None
    """None when the run tests no programs."""
    provenance: Provenance
    scores: Annotated[tuple[Score, ...], msgspec.Meta(min_length=1)] = (ACCURACY,)
    """As the task declares them, the primary one first."""
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


Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""Neither infinite nor NaN."""


Setting = str | bool | int | Finite | None


class ReportedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of a paper's table."""

    method: str
    task: str | None = None
    """None: any task; so with `model`."""
    model: str | None = None
    overrides: dict[str, Setting] = {}
    """Values that a run's configuration must have, by key (`method.max_errors: 3`; for a group its choice, `judge:
    gpt_4o_mini`), so that a sweep's jobs can share one list of rows."""
    accuracy: Fraction | None = None
    metrics: dict[str, Finite] = {}
    """Means of scores by name, on the scale of `Grade.scores`; also `elo` and `relative_run_time`."""
    sd: dict[str, Finite] = {}
    """Standard deviations over repetitions, by metric."""
    by_stratum: dict[str, Fraction] = {}
    """Accuracy by stratum."""
    steps: dict[str, tuple[tuple[int, Finite], ...]] = {}
    """Training figures by name, as (step, value) pairs."""
    among: dict[str, Setting] = {}
    """For an Elo rating of a run in several tournaments: settings of the other methods' runs in this tournament."""


class ReportedMean(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A paper's figure over several runs: a mean over tasks, or the difference between two settings' means."""

    method: str
    tasks: tuple[str, ...]
    model: str | None = None
    overrides: dict[str, Setting] = {}
    less: dict[str, Setting] | None = None
    """The overrides of the runs whose mean is subtracted; None: nothing is subtracted."""
    metrics: dict[str, Finite]


class Reported(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The config's `reported`: a paper's figures for an experiment, which tables show beside the measured ones."""

    source: str
    note: str = ""
    rows: tuple[ReportedRow, ...] = ()
    """Empty where the paper gives its outcome only in words, quoted in `note`."""
    means: tuple[ReportedMean, ...] = ()


MAX_DEPTH = 32
"""Maximum nesting of values (ours): configurations and problems have a few levels; code that walks them recurses."""


def refuse_depth(value: Any) -> None:
    """Raise ValueError for lists and dictionaries nested more than `MAX_DEPTH` deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        groups = [node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list)]
        level = [value for group in groups for value in group]
    if level:
        raise ValueError(f"expected at most {MAX_DEPTH} levels of lists and objects")


class ProblemRecord(msgspec.Struct, frozen=True):
    """A line of problems.jsonl."""

    problem: str
    stratum: str
    data: dict[str, Any]
    """The fields that the prompts show; never an answer."""

    def __post_init__(self) -> None:
        refuse_depth(self.data)


# Omits defaults: of most runs no token is cached, and no role has a price.
class Spent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cost of model calls in calls and tokens, which, unlike seconds, are equal on every repetition."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Prompt tokens that the vendor had in its cache, among `prompt_tokens`; left out where there are none."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


class RoleCost(Spent, frozen=True, omit_defaults=True, kw_only=True):
    """The cost of one role in a run."""

    seconds: float | None
    """Total seconds in model calls; None while the run has not ended."""
    price: float | None = None
    """Price of the tokens in dollars; left out where no vendor bills them, or the price is unknown."""


class Belief(msgspec.Struct, frozen=True):
    """The method's estimate of a candidate's quality; null for a value that is not finite."""

    mean: float | None
    sd: float | None


class ReturnedCandidate(msgspec.Struct, frozen=True):
    """The candidate that a method would return after a step."""

    id: CandidateId
    answer: str | None
    text: str


class StepRecord(msgspec.Struct, frozen=True):
    """A line of steps.jsonl."""

    problem: str
    stratum: str
    step: int
    best: ReturnedCandidate | None
    """None while the problem has no candidate that parses."""
    belief: Belief | None
    correct: bool | None
    """None without a candidate, or where the task has no right and wrong."""
    pool: int
    """Candidates that the method still considers."""
    candidates: int
    cost: dict[str, Spent]
    """By role, of this problem so far."""
    extra: dict[str, float]
    """Diagnostics of this step, by name."""
    scores: dict[str, float | None] = {}
    """The grader's scores of the best candidate, or of no answer while there is no candidate. None: no finite value."""


class CandidateRecord(Candidate, frozen=True, kw_only=True):
    """A line of candidates.jsonl, with the belief after the last step.

    A candidate that serves all problems is written when it appears, with the belief of that step; ratings.jsonl has
    the later ones. For a problem's own candidates, earlier beliefs are not recorded: all of them after every step
    would be quadratic in size.
    """

    problem: str
    """`*` for one that serves all problems."""
    correct: bool | None = None
    """None for what is not graded, or where the task has no right and wrong."""
    scores: dict[str, float | None] = msgspec.field(default_factory=dict)
    """The task's grader's scores."""

    def without_grades(self) -> Candidate:
        """Return the plain candidate: it can be hashed, so that tasks can remember what they have rendered of it."""
        return Candidate(**{name: getattr(self, name) for name in Candidate.__struct_fields__})


class RatingRecord(msgspec.Struct, frozen=True):
    """A line of ratings.jsonl: a changed belief in a candidate that serves all problems."""

    step: int
    candidate: CandidateId
    mean: float | None
    sd: float | None
    survivor: bool
    problem: str = SHARED


class ComparisonRecord(Comparison, frozen=True, kw_only=True):
    """A line of comparisons.jsonl."""

    problem: str
    step: int


class PredictionRecord(msgspec.Struct, frozen=True):
    """A line of predictions.jsonl: the end of a problem."""

    problem: str
    stratum: str
    candidate: CandidateId | None
    answer: str | None
    correct: bool | None
    scores: dict[str, float | None]
    """Without a candidate, the scores of a response without an answer."""
    belief: Belief | None
    candidates: int
    steps: int
    stop: Stop
    cost: dict[str, Spent]


class Metric(msgspec.Struct, frozen=True):
    """A figure over `n` trials and its 95 % interval."""

    value: float | None
    ci95: tuple[float, float] | None
    n: int


class TrainingRecord(msgspec.Struct, frozen=True):
    """A line of training.jsonl: the figures of a training step."""

    step: int
    calls: int
    """Calls of the run up to this step, over all roles; so are `tokens`."""
    tokens: int
    figures: dict[str, float]
    problem: str = SHARED
    """Training works on all problems together."""


class SpeedRecord(msgspec.Struct, frozen=True):
    """A line of speed.jsonl: what the time of a training step went to. The last line of a step counts."""

    step: int
    figures: dict[str, float]


class RolloutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A line of rollouts.jsonl: an episode of a training step."""

    step: int
    problem: str
    """Of the training split."""
    candidate: CandidateId | None
    """The system prompt that it was played under; None for a fixed one, or none."""
    index: int
    """Of the episode in its step."""
    call: str
    """Key of its last turn's call, in the run's journal."""
    version: int | UnsetType = UNSET
    """Number of updates of the weights that drew the tokens of all its turns; unset under frozen weights."""
    reward: float | None
    """None where a request was refused, or the task could not score the response."""
    penalised_reward: float | UnsetType = UNSET
    """The reward less the penalty for a missing end of sequence, as used for learning; unset without a penalty."""
    advantage: float | UnsetType | None = UNSET
    """The advantage of its tokens, or their mean where each token has its own (PPO). None: nothing was learned from it.
    Unset: the trainer, which alone knows it, has not reported it."""
    advantage_sd: float | UnsetType = UNSET
    """Standard deviation over its tokens; unset where they all have the same advantage."""
    correct: bool | None
    finish_reason: FinishReason
    """Of its last turn."""
    prompt_tokens: int
    """Tokens of all turns together, as billed; so are `completion_tokens`."""
    completion_tokens: int
    turns: int
    """Turns of the model."""
    rubric: CandidateId | UnsetType = UNSET
    """The rubric that scored it; this and the next fields are unset, and left out, where the task's grade is the
    reward."""
    raw: float | UnsetType = UNSET
    """Points from the reward model; unset also where none could be read, or another rule decided."""
    normalised: float | UnsetType = UNSET
    """The mean over the rubric's items of points divided by the item's maximum."""
    maximum: float | UnsetType = UNSET
    """Maximum points of the rubric, of which `raw` is a part."""
    unscored: str | UnsetType = UNSET
    """The kind of failure by which a reward model's reply gave no reward."""


class PromptScore(msgspec.Struct, frozen=True, kw_only=True):
    """A line of prompt_scores.jsonl, and a cell of artifacts/transplant.json: a prompt's score on the test problems."""

    step: int
    """The step after which the weights, and the rating to compare with, were taken."""
    candidate: CandidateId
    score: float
    """Mean of the task's primary score."""
    low: float | None = None
    """Lower end of the 95 % interval, where one was computed; `high` is the upper."""
    high: float | None = None
    n: int
    """Test problems."""


class RubricScore(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of artifacts/rubric_scores.json: one rubric's score of one evaluation's responses (MPO, figure 5b)."""

    rubric: CandidateId
    refined: int
    """The step after which it was made."""
    step: int
    """Of the evaluation."""
    score: float | None
    """Mean share of the rubric's points; None where no score could be read."""
    low: float | None
    """Lower end of the 95 % interval; `high` is the upper. None: no interval could be computed."""
    high: float | None
    n: int
    """Responses that could be scored."""
    unscored: int
    """Responses that could not be scored."""


class PrincipleEffect(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of artifacts/delete_one.json: the effect of one principle of the final system prompt."""

    principle: str
    """Its text."""
    effect: float
    """Mean of the task's primary score with the whole prompt, less that without this principle."""
    low: float | None
    """Lower end of the 95 % interval; `high` is the upper. None: no interval could be computed."""
    high: float | None
    n: int
    """Test problems, each answered both ways."""


class MetricPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of metrics.jsonl."""

    step: int
    name: str
    value: float | None
    ci95: tuple[float, float] | None
    n: int
    calls: float
    """Mean calls per problem behind the figure up to this step, over all roles; so are `tokens`."""
    tokens: float
    price: float | None = None
    """Mean price per problem in dollars, up to this step; left out where it is unknown or no vendor bills tokens."""
    sequential_tokens: float | None = None
    """Completion tokens one after another up to this step, the mean over problems: of calls issued together, only the
    longest counts. Left out where no journal holds the calls."""


class Reached(msgspec.Struct, frozen=True):
    """The last steps of a number of problems: generations, or rounds of a method without generations."""

    problems: int
    fewest: int
    mean: float
    most: int


class Results(msgspec.Struct, frozen=True):
    """results.json."""

    metrics: dict[str, Metric]
    by_stratum: dict[str, dict[str, Metric]]
    cost: dict[str, RoleCost]
    """By role; `total` is the sum without the gold judge, whose cost is under `gold`."""
    counts: dict[str, int]
    cost_by_model: dict[str, RoleCost] = {}
    """By the name of the model that answered, without the gold judge; empty where the policy answered all."""
    wasted: dict[str, Wasted] = {}
    """Attempts of model calls that gave no answer, by kind (`http_500`, `timed_out`, ...); not part of `cost`."""
    planned_steps: int | None = None
    """Last step of the method's own schedule; None where it is not known beforehand."""
    reached: dict[Stop, Reached] = {}
    """The last steps of problems, by what ended them."""
    refused: dict[str, int] = {}
    """Requests that the engine refused, by role, where there were any."""
    price_date: date | None = None
    """Date of the oldest price that `cost` is computed with; null where no price is known."""
    gpu_waiting: dict[int, float] = {}
    """Share of the run's time in which a GPU had nothing to do, by its number; empty without planned GPUs."""
