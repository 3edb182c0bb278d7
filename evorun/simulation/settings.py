"""The parameters of the simulated world; `conf/engine/simulated.yaml` has the values of a harder one."""

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from evorun.fields import (
    Checked,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    OneOf,
    PositiveInt,
    require_above,
    require_within,
)
from evorun.simulation.loopholes import KINDS


@dataclass
class World(Checked):
    """The facts of a simulated run, in the order: answers, verdicts, prompts, texts, reviews, training.

    The defaults describe a plain model, whose errors are all independent (ours).
    """

    section = "engine"

    # --- answers ---
    skill: Fraction = 0.4
    """Probability of a right answer from scratch; the mean over problems if they differ. Of a partial score: the mean
    share of the right answer's score."""
    spread: Fraction = 0.0
    """Variation of difficulty between problems. 0: all are alike. Otherwise a problem's probability is drawn from the
    Beta distribution with mean `skill` and this share of the maximum variance."""
    skills: dict[str, float] = field(default_factory=dict)
    """Probabilities of some problems by id, in place of drawn ones (`evorun calibrate` estimates them)."""
    typical_mistake: Fraction = 0.0
    """Share of the most frequent wrong answer among a problem's wrong answers, if answers can coincide. The others are
    equally frequent; a smaller share than theirs counts as theirs."""
    improvement: Fraction = 0.15
    """Added to `skill` if all responses in view are right; otherwise in proportion to their quality. Where programs
    build objects: the share of its parts that a response copies from those in view."""
    misleading: Fraction = 0.0
    """Subtracted from `skill` if all responses in view are wrong; otherwise in proportion to their faults. Where
    programs build objects: probability that a part made anew repeats the mistake of those in view."""
    malformed: Fraction = 0.02
    """Share of completions that cannot be parsed."""
    mean_tokens: PositiveInt = 120
    """Mean length of a completion's reasoning, in words of filler text."""

    # --- confidence in one's own tokens ---
    confidence_skill: Fraction = 0.7
    """Probability that a right response has a higher mean confidence than a wrong one to the same problem. 0.5:
    confidences say nothing; below: they mislead."""

    # --- verdicts on two responses ---
    judge_skill: Fraction = 0.75
    """Probability that a verdict on a right and a wrong response prefers the right one, without position bias; the mean
    over problems if they differ. A decided duel of two verdicts that must agree is right more often."""
    judge_difficulty: Fraction = 0.0
    """Dependence of a judge's errors on difficulty. A problem's `judge_skill` rises by this multiple of the difference
    between its probability of a right answer and `skill`, or falls if that is negative, within [0, 1]."""
    judge_persistence: Fraction = 0.0
    """Share of verdicts on a problem that are all right or all wrong, however often they are repeated. The others are
    independent, so that their errors average out."""
    position_bias: Annotated[float, Meta(ge=-1, le=1)] = 0.1
    """Share of verdicts that name the first response, whatever it is; below 0: the second."""
    tie_rate: Fraction = 0.3
    """Probability of a tie between two responses that are both right or both wrong."""

    # --- system prompts ---
    instruction_gain: Fraction = 0.1
    """Maximum change in `skill` from a system prompt other than the task's. Each prompt has a fixed amount, which may
    be negative."""
    principle_gain: Fraction = 0.03
    """Mean gain in `skill` from a helpful principle, and mean loss from a harmful one; 0: principles do nothing."""
    helpful_principles: Fraction = 0.4
    """Share of principles that help."""
    harmful_principles: Fraction = 0.3
    """Share that harm; the others do nothing."""
    principle_seed: NonNegativeInt | None = None
    """Seed that decides which principles help and harm; null: the run's seed, so that intervals over seeds are over
    such worlds. A number holds one world fixed over all seeds."""
    reflection_skill: Fraction = 0.3
    """Share of edits that know which principles help and which harm; the others are blind."""
    interaction: Annotated[float, Meta(ge=-2, le=1)] = 0.0
    """Dependence of the value of principles on training, where l is the gain from updates as a share of the maximum. 0:
    none. Above 0: the value is multiplied by 1 - interaction (1 - l); at 1, principles do not help untrained weights.
    Below 0: by 1 + interaction l; at -1, principles do not help fully trained weights, and at -2 what helps untrained
    weights harms trained ones as much."""

    # --- texts without a right answer ---
    quality: Fraction = 0.35
    """Probability that a sentence of a response is to the point, before any update."""
    quality_limit: Fraction = 0.7
    """Maximum of that probability, however long the training."""
    loophole_rate: Fraction = 0.03
    """Share of responses that exploit a loophole of the rubric, before any update."""
    loophole_kind: Annotated[str, OneOf((*KINDS, "all"))] = "language"
    """language | length | flattery | format | title: kind of these responses; all: every kind equally often."""
    policy_learning_rate: NonNegativeFloat = 1.0
    """Step size along the gradient with respect to the log-odds, with advantages of standard deviation 1."""

    # --- reviews of such texts ---
    loophole: Fraction = 0.0
    """Share of the points that a loophole earns; 0: there is no loophole."""
    reward_noise: NonNegativeFloat = 0.1
    """Standard deviation of a reward model's error, as a share of the points."""
    meta_skill: Fraction = 0.5
    """Probability, per look, that a meta reward model notices that a response is only an exploit; proportionally lower
    if the response shows it less."""
    meta_harm: Fraction = 0.0
    """Share of merged rubrics with a criterion that rewards the opposite of quality."""

    # --- training ---
    learned: Annotated[float, Meta(ge=-1, le=1)] = 0.0
    """Gain in the probability of a right answer from an earlier run's updates (`artifacts/simulated_policy.json`)."""
    training_gain: Annotated[float, Meta(ge=-1, le=1)] = 0.3
    """Maximum gain in the probability of a right answer from updates of the policy; below 0: maximum loss."""
    training_speed: Fraction = 0.1
    """Share of the remaining `training_gain` that an update adds if half of the completions are right and its gradient
    is exact; of a fine-tuning: share of the distance to the skill that its conversations show. 0: no learning."""
    gradient_noise: NonNegativeFloat = 0.0
    """Number of completions with an advantage, or of conversations, at which an update adds half of that. With n of
    them it adds the share n / (n + gradient_noise), by analogy to the gradient noise scale (McCandlish et al. 2018,
    section 2.2). 0: every gradient is exact."""
    data_skill: Fraction | None = None
    """Skill that conversations show which are about none of the task's problems, so that nobody can grade them; null:
    they are refused."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for problem, chance in self.skills.items():
            require_within(f"engine.skills.{problem}", chance, 0, 1)
        both = round(self.helpful_principles + self.harmful_principles, 9)
        require_within("engine.helpful_principles + engine.harmful_principles", both, 0, 1)
        require_above("engine.quality_limit", self.quality_limit, self.quality)
