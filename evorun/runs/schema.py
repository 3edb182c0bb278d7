"""The records of a run directory: the driver writes them; results and reports read them.

Fields are encoded in the order of their declaration. JSON Lines files hold one record per line.
"""

from datetime import date
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from evorun.models.base import FinishReason, Wasted
from evorun.runs.candidates import SHARED, Candidate, CandidateId, Comparison
from evorun.runs.depth import refuse_depth

Stop = Literal["generations", "goal", "budget", "failed"]


class ProblemRecord(msgspec.Struct, frozen=True):
    """A line of problems.jsonl."""

    problem: str
    stratum: str
    data: dict[str, Any]
    """The fields that the prompts show; never an answer."""

    def __post_init__(self) -> None:
        refuse_depth(self.data)


# Omits defaults: of most runs no token is cached, no task has a tool, and no role has a price.
class Spent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cost of model calls in calls and tokens, which, unlike seconds, are equal on every repetition."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Prompt tokens that the vendor had in its cache, among `prompt_tokens`; left out where there are none."""
    tool_calls: int = 0
    """Calls of the task's tools that the model's turns made and got an answer to; left out where there are none."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


class RoleCost(Spent, frozen=True, omit_defaults=True, kw_only=True):
    """The cost of one role in a run."""

    seconds: float | None
    """Total seconds in model calls; None while the run has not ended, and of training."""
    trained_tokens: int = 0
    """Tokens of passes forward and backward at a vendor that trains: of `training` alone, whose `prompt_tokens` are
    those of forward passes. No total of tokens includes them."""
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


STEPS = "steps"
"""Figure of step 0 of a training that knows the number of its steps only once its data is read."""


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
    """A line of speed.jsonl: what the time of a training step went to. A step's last line with an update counts."""

    step: int
    figures: dict[str, float]


class RolloutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A line of rollouts.jsonl: an episode of a training step, or one in which a search tried a prompt."""

    step: int
    problem: str
    """Of the training split; of a search, of the validation split."""
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
