"""Settings of the refinement of rubrics by a meta reward model (MPO, section 2.3 and appendix C)."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from evorun.errors import ConfigError
from evorun.fields import Checked, NonNegativeFloat, OneOf, PositiveInt, require_at_least, require_one_of
from evorun.methods.learning.parts import LearningSettings
from evorun.models.base import Sampling
from evorun.rollouts.monitors import measure
from evorun.tasks.rubrics import MAX_ITEMS

ANALYSE, REFINE, MERGE = "analyse", "refine", "merge"
"""Roles of the meta reward model's calls in its three stages."""
CALIBRATE = "calibrate"
"""Role of the policy's responses for refinement before the first step."""
NEVER = "never"
SCHEDULES = ("fixed", "adaptive", "before", NEVER)
MONITORS = tuple(measure("", "stop"))
TOKENS_PER_WORD = 2
"""Completion tokens allowed per word of the maximum that a prompt states (ours): English takes about 1.3, and tags,
numbers and the end of a sentence need room."""
MIN_TOKENS = 32
"""Minimum token limit of a reply (ours): a number, and the words that a model puts before it."""


@dataclass(kw_only=True)
class RefinementSettings(Checked):
    """Hyperparameters of a rubric's refinement; the methods' YAML files give each default and its source."""

    section = "method"

    refine_schedule: Annotated[str, OneOf(SCHEDULES)]
    """fixed: every `refine_every` batches. adaptive: when rewards collapse or a monitor fires, at least `refine_every`
    batches after the last time. before: `refine_rounds` times before the first step. never: the rubric is fixed."""
    refine_every: PositiveInt
    """Batches between refinements (k)."""
    refine_rounds: PositiveInt
    """Number of refinements before the first step, with the schedule `before`."""
    refine_pool: PositiveInt
    """Responses per such round."""
    refine_samples: PositiveInt
    """Maximum episodes per refinement of a rubric (n)."""
    choose_samples: Annotated[str, OneOf(("random", "thirds", "informative"))]
    """random | thirds: equally many from each third by score | informative: in turn the highest and the lowest score,
    the most points for text that a hacking monitor suspects, the longest and the shortest response."""
    refine_on: Annotated[str, OneOf(("each", "all"))]
    """each: write a rubric per sample, then merge these into one (meta-merging). all: write a single rubric for all
    samples together, as in the authors' released code on MATH; nothing is merged."""
    references: bool
    """Show the meta reward model a problem's reference solution, where the task has one; the regime is then labels."""
    meta_analysis: bool
    """False: refine on samples without an analysis (appendix F)."""
    flag_above: NonNegativeFloat | None
    """Refine only on samples whose score differs from the analysis's score by more than this share of the rubric's
    points (tau of appendix C, equation 2); null: on all."""
    analysis_words: PositiveInt
    """Maximum words of an analysis; the next two are the maxima of a refinement and of a merged rubric."""
    refinement_words: PositiveInt
    merging_words: PositiveInt
    refine_attempts: PositiveInt
    """Maximum attempts to get a readable rubric, or a criterion of one; each retry states what was wrong. If no merged
    rubric is readable, the refinement that spreads the samples' scores most is taken."""
    refine_by: Annotated[str, OneOf(("whole", "item"))]
    """whole | item: write a rubric in one reply; or first ask for the number of criteria, then for one after the other,
    as in the authors' released code."""
    meta_json: bool
    """Hold rubrics to a JSON schema, on engines that enforce one: small models keep to no other format. The levels of a
    criterion are then one point apart."""
    item_words: PositiveInt
    """Maximum words of a criterion, with `refine_by=item`; refinement_words and merging_words then have no effect."""
    most_items: Annotated[int, Meta(ge=1, le=MAX_ITEMS)]
    """Maximum criteria, with `refine_by=item` or `meta_json`."""
    keep_rubric: Annotated[str, OneOf(("newest", "spread", "validated"))]
    """newest: every new rubric replaces the old | spread: it must spread the samples' normalized scores at least as
    much | validated: the reward model compares both on held-out responses and known exploits; see
    `Trial.fault_of_validation`."""
    validation_samples: Annotated[int, Meta(ge=2)]
    """With keep_rubric=validated: held-out episodes of a rubric's first batch, and the number of exploits."""
    collapse_below: NonNegativeFloat
    """Adaptive: refine when the standard deviation of a batch's normalized rewards is below this."""
    monitors_above: dict[str, float]
    """Adaptive: refine when a hacking monitor's mean over the batch is above its threshold, by the monitor's name."""
    sample_chars: PositiveInt | None
    """Maximum characters shown of a prompt, of a response and of a reference solution; null: no limit."""
    meta_prompts: str | None
    """Folder with your own files, which replace analysis.md, refinement.md, ... in `evorun/methods/mpo/prompts`; null:
    none."""
    meta_temperature: NonNegativeFloat
    meta_top_p: Annotated[float, Meta(gt=0, le=1)]
    meta_max_tokens: PositiveInt | None
    """Maximum completion tokens of a call; null: two per word that the reply may have. A model that thinks before it
    answers needs more."""

    analysis_max_tokens: PositiveInt | None
    """Maximum completion tokens of an analysis; `meta_max_tokens`, where set, takes precedence. `item_max_tokens`: the
    same for a criterion with `refine_by=item`."""
    item_max_tokens: PositiveInt | None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, threshold in self.monitors_above.items():
            require_one_of("method.monitors_above", name, MONITORS)
            require_at_least(f"method.monitors_above.{name}", threshold, 0)
        if self.keep_rubric == "validated" and self.refine_schedule == "before":
            raise ConfigError(
                "method.keep_rubric: validated needs training episodes, of which refine_schedule=before has none; "
                "use newest or spread"
            )
        if self.meta_json and self.refine_by == "item":
            raise ConfigError(
                "method.meta_json: has no effect on single criteria; set it to false, or method.refine_by=whole"
            )
        if self.flag_above is not None and self.refine_on == "all":
            raise ConfigError(
                "method.flag_above: chooses among samples that are analysed one by one; leave it null, or set "
                "method.refine_on=each"
            )
        if self.flag_above is not None and not self.meta_analysis:
            raise ConfigError("method.flag_above: has no effect without an analysis that states a score; leave it null")

    @property
    def calls_per_rubric(self) -> int:
        """Maximum model calls to write a rubric."""
        return self.refine_attempts * (1 + self.most_items if self.refine_by == "item" else 1)

    @property
    def max_scores(self) -> int:
        """Maximum scores of a refinement: of each sample by each proposal, and two checks each by two rubrics."""
        compared = {"newest": 0, "spread": self.refine_samples, "validated": 2 * self.validation_samples}
        return self.refine_samples**2 + 4 * compared[self.keep_rubric]

    def meta_sampling(self, words: int, role: str) -> Sampling:
        """Return the sampling parameters of a call whose reply may have `words` words."""
        is_item = self.refine_by == "item" and role != ANALYSE and words == self.item_words
        role_max_tokens = self.analysis_max_tokens if role == ANALYSE else self.item_max_tokens if is_item else None
        max_tokens = self.meta_max_tokens or role_max_tokens or max(MIN_TOKENS, TOKENS_PER_WORD * words)
        return Sampling(temperature=self.meta_temperature, top_p=self.meta_top_p, max_tokens=max_tokens)


@dataclass(kw_only=True)
class RefinedLearningSettings(LearningSettings, RefinementSettings):
    """Hyperparameters of the loop with refinement of rubrics."""

    @property
    def first_refinement(self) -> int | None:
        refined = self.rubric is not None and self.refine_schedule in ("fixed", "adaptive")
        return self.refine_every if refined else None

    @property
    def first_change(self) -> int:
        return self.first_refinement or super().first_change

    @property
    def sees_answers(self) -> bool:
        return super().sees_answers or (self.references and self.rubric is not None)
