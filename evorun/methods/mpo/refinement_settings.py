"""Refinement of a rubric by a meta reward model (MPO, section 2.3 and appendix C)."""

from dataclasses import dataclass

from evorun.errors import ConfigError, above, at_least, one_of, within
from evorun.methods.learning.parts import LearningSettings
from evorun.models.base import Sampling
from evorun.rollouts.monitors import measure
from evorun.tasks.rubrics import MAX_ITEMS

ANALYSE, REFINE, MERGE = "analyse", "refine", "merge"
"""Roles of the meta reward model's calls: of its three stages, in this order."""
CALIBRATE = "calibrate"
"""Role of the policy's responses that a rubric is refined on before the first step."""
NEVER = "never"
SCHEDULES = ("fixed", "adaptive", "before", NEVER)
MONITORS = tuple(measure("", "stop"))
TOKENS_PER_WORD = 2
"""Completion tokens allowed for each word that a prompt asks for at most. `ours`: English takes about 1.3, and tags,
numbers and a sentence's end need room."""
LEAST_TOKENS = 32
"""Completion tokens that any reply may have. `ours`: a number, and the words that a model puts before it."""


@dataclass(kw_only=True)
class RefinementSettings:
    """Hyperparameters of a rubric's refinement; the methods' YAML files give each default and its source."""

    refine_schedule: str
    """fixed: every `refine_every` batches. adaptive: when rewards collapse or a monitor fires, at least `refine_every`
    batches after the last time. before: `refine_rounds` times before the first step, then never. never: it stays."""
    refine_every: int
    """Batches between refinements (k)."""
    refine_rounds: int
    """Refinements before the first step, of the schedule `before`."""
    refine_pool: int
    """Responses that each of these rounds is tried on."""
    refine_samples: int
    """Episodes of a rubric that a refinement looks at, at most (n)."""
    choose_samples: str
    """random | thirds: as many from each third by score | informative: in turn the highest and the lowest score, the
    most points for what a hacking monitor suspects, the longest and the shortest response."""
    refine_on: str
    """each: a rubric is written in view of each sample, and then one in the place of these (meta-merging). all: one is
    written in view of all samples together, as the authors' released code has it on MATH; nothing is merged."""
    references: bool
    """Show the meta reward model a problem's reference solution, where the task has one; the regime is then labels."""
    meta_analysis: bool
    """False: samples are refined on without an analysis before (appendix F)."""
    flag_above: float | None
    """Refine only on samples whose score is further than this share of the rubric's points from the score that the
    analysis states (tau of appendix C, equation 2); null: on all."""
    analysis_words: int
    """Words of an analysis at most; so are the next two, of what they name."""
    refinement_words: int
    merging_words: int
    refine_attempts: int
    """Times that a rubric, or a criterion of it, is asked for until it can be read; the model is told what was wrong.
    Where no merged rubric can be read after so many, the refinement that spreads the samples' scores most is taken."""
    refine_by: str
    """whole | item: a rubric is written in one reply; or its criteria are counted first, and then written one by one,
    as the authors' released code has it."""
    meta_json: bool
    """Hold rubrics to a JSON schema, on engines that enforce one: small models keep to no other form. The levels of a
    criterion are then a point apart."""
    item_words: int
    """Words of a criterion at most, with `refine_by=item`; refinement_words and merging_words then have no effect."""
    most_items: int
    """Criteria at most, with `refine_by=item` or `meta_json`."""
    keep_rubric: str
    """newest | spread: a new rubric must spread the normalised scores of the samples at least as much as the old |
    validated: the reward model scores held-out responses and known exploits by both; see `Trial.fault_of_validation`.
    """
    validation_samples: int
    """Of keep_rubric=validated: episodes of a rubric's first batch that no refinement sees, and as many exploits."""
    collapse_below: float
    """Adaptive: refine when the standard deviation of a batch's normalised rewards is below this."""
    monitors_above: dict[str, float]
    """Adaptive: refine when a hacking monitor's mean over the batch is above its threshold, by the monitor's name."""
    sample_chars: int | None
    """Characters shown of a prompt, a response and a reference solution at most, each; null: all of it."""
    meta_prompts: str | None
    """Folder with files of your own in the place of analysis.md, refinement.md, ... in `evorun/methods/mpo/prompts`;
    null: none."""
    meta_temperature: float
    meta_top_p: float
    meta_max_tokens: int | None
    """Completion tokens of a call at most; null: two for each word that it may have. A model that thinks before it
    answers needs more."""

    analysis_max_tokens: int | None
    """Completion tokens of an analysis, and of a criterion with `refine_by=item`; where null, and over both,
    `meta_max_tokens`."""
    item_max_tokens: int | None

    def __post_init__(self) -> None:
        one_of("method.refine_schedule", self.refine_schedule, SCHEDULES)
        one_of("method.choose_samples", self.choose_samples, ("random", "thirds", "informative"))
        one_of("method.refine_on", self.refine_on, ("each", "all"))
        one_of("method.refine_by", self.refine_by, ("whole", "item"))
        one_of("method.keep_rubric", self.keep_rubric, ("newest", "spread", "validated"))
        for key in ("refine_every", "refine_rounds", "refine_pool", "refine_samples", "refine_attempts"):
            at_least(f"method.{key}", getattr(self, key), 1)
        at_least("method.validation_samples", self.validation_samples, 2)
        for key in ("analysis_words", "refinement_words", "merging_words", "item_words"):
            at_least(f"method.{key}", getattr(self, key), 1)
        for key in ("sample_chars", "meta_max_tokens", "analysis_max_tokens", "item_max_tokens"):
            at_least(f"method.{key}", getattr(self, key), 1)
        within("method.most_items", self.most_items, 1, MAX_ITEMS)
        for key in ("collapse_below", "flag_above", "meta_temperature"):
            at_least(f"method.{key}", getattr(self, key), 0)
        for name, threshold in self.monitors_above.items():
            one_of("method.monitors_above", name, MONITORS)
            at_least(f"method.monitors_above.{name}", threshold, 0)
        above("method.meta_top_p", self.meta_top_p, 0)
        within("method.meta_top_p", self.meta_top_p, 0, 1)
        if self.keep_rubric == "validated" and self.refine_schedule == "before":
            raise ConfigError(
                "method.keep_rubric: validated needs episodes of training, which refine_schedule=before comes before; "
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
        """Model calls that a rubric takes to write, at most."""
        return self.refine_attempts * (1 + self.most_items if self.refine_by == "item" else 1)

    def meta_sampling(self, words: int, role: str) -> Sampling:
        """Return the sampling parameters of a call of a role whose reply may have so many words."""
        is_item = self.refine_by == "item" and role != ANALYSE and words == self.item_words
        own = self.analysis_max_tokens if role == ANALYSE else self.item_max_tokens if is_item else None
        most = self.meta_max_tokens or own or max(LEAST_TOKENS, TOKENS_PER_WORD * words)
        return Sampling(temperature=self.meta_temperature, top_p=self.meta_top_p, max_tokens=most)


@dataclass(kw_only=True)
class RefinedLearningSettings(LearningSettings, RefinementSettings):
    """Hyperparameters of the loop where a rubric may be refined."""

    def __post_init__(self) -> None:
        LearningSettings.__post_init__(self)
        RefinementSettings.__post_init__(self)

    @property
    def sees_answers(self) -> bool:
        return super().sees_answers or (self.references and self.rubric is not None)
