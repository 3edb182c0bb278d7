"""Hyperparameters of rewards by a rubric, part of the configuration of every method that may learn from one."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from evorun.errors import ConfigError
from evorun.fields import Checked, Fraction, NonNegativeFloat, NonNegativeInt, OneOf, PositiveInt
from evorun.models.base import Sampling

SCORINGS = ("whole", "by_item", "plan")
SCALES = ("raw", "normalised", "by_total")
DIGIT_TOKENS = 16
"""Maximum completion tokens of points in digits (ours): more than any points need."""


@dataclass(kw_only=True)
class RubricSettings(Checked):
    """Scoring of responses by a rubric (MPO, section 2.3)."""

    section = "method"

    rubric: str | None
    """The rubric to score by, or to start from: one of the task's by its name (initial, expert, ...), or a FILE; null:
    the task's own grade is the reward."""
    scoring: Annotated[str, OneOf(SCORINGS)]
    """whole: a response is scored by all items in one reply. by_item: each item has its own call. plan: the reward
    model first plans how it will score responses to the problem, then scores by the plan (appendix K.3)."""
    plan_reference: bool
    """Show the problem's reference solution, or its right answer where it has none, to the planner; the run's
    information regime is then `labels`."""
    reward_scale: Annotated[str, OneOf(SCALES)]
    """raw: points as they are. normalised: the mean over items of points by maximum, in [0, 1]. by_total: points by the
    rubric's total, in [0, 1], with the weights that the rubric gives its items."""
    score_attempts: PositiveInt
    """Replies to ask for until one has a score that can be read; without any, an episode is not learned from."""
    exact_match_rate: Fraction
    """Share of the episodes that the task's own grade rewards, all or nothing, in place of the reward model."""
    mode_drawn: Annotated[str, OneOf(("item", "batch"))]
    """item | batch: for which problems, or which batches, the task's own grade rewards is drawn."""
    min_words: NonNegativeInt
    """Words that a response must have besides its boxed answer; with fewer it scores 0, in either mode."""
    rubric_dropout: Annotated[float, Meta(ge=0, le=0.9)]
    """Share of a rubric's items that each batch leaves out, drawn again for each batch; beyond the paper."""
    reward_json: bool
    """Hold the reward model's scores to a JSON schema, on engines that enforce one: small models follow no other
    form."""
    reward_digits: bool
    """Ask for reasons first, and then in a separate call for the points, which the engine restricts to digits: an
    integer from 0 to the item's maximum or, where one call scores all items, to the rubric's."""
    reward_temperature: NonNegativeFloat
    reward_top_p: Annotated[float, Meta(gt=0, le=1)]
    reward_max_tokens: PositiveInt
    """Maximum completion tokens of a score with its reasons, of reasons alone, or of a plan."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rubric is not None and not self.rubric:
            raise ConfigError("method.rubric: expected null, a rubric's name or a FILE, got an empty string")
        if self.reward_json and self.reward_digits:
            raise ConfigError("method.reward_json: has no effect with method.reward_digits=true; set one to false")
        if self.plan_reference and self.scoring != "plan":
            raise ConfigError("method.plan_reference: has no effect, nobody plans; set method.scoring=plan")

    @property
    def first_refinement(self) -> int | None:
        """Number of the step after which the rubric is first refined; None where training steps refine none."""
        return None

    @property
    def points_sampling(self) -> Sampling:
        """The sampling parameters of points in digits."""
        return replace(self.reward_sampling, max_tokens=DIGIT_TOKENS)

    @property
    def reward_sampling(self) -> Sampling:
        """The sampling parameters of the reward model."""
        return Sampling(temperature=self.reward_temperature, top_p=self.reward_top_p, max_tokens=self.reward_max_tokens)
