"""The parts of a plan: arms with their roles, and the memory of models."""

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

N = TypeVar("N", int, float)

StageName = Literal["teacher", "student"]

Source = Literal["formula", "trial", "recorded", "unknown"]

HoursSource = Literal["recorded", "formula", "unknown", "no_model"]


class PlannedRole(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a role in an arm's runs together."""

    role: str
    """Of the calls: `generate`, `judge`, ..."""
    model_role: str
    """Role of the model that answers: `policy`, `judge`, `reward`, `meta`, ...; of a student's teacher `teacher`."""
    model: str
    """Its name; `simulated` where no model answers."""
    calls: int
    calls_by: Source
    """`formula`: docs/guides/costs.md; `trial`: a small run on simulated models, scaled by problems."""
    prompt_tokens: int | None
    prompt_by: Source
    """`recorded`: the mean of earlier runs of this method, task and model; `trial`: of a small simulated run."""
    cached_tokens: int | None
    """Prompt tokens among these that the vendor had in its cache, as in earlier runs; null where none are recorded."""
    completion_tokens: int
    """Upper bound: each completion as long as it may be."""
    expected_completion_tokens: int | None
    """At the mean length in earlier runs of this method, task and model; null where none are recorded."""
    price: float | None
    """Dollars, with the upper bound of completions; null where no vendor bills the role, or the price or the prompt
    tokens are unknown."""
    expected_price: float | None
    """Dollars, with the expected completions; null where they or `price` are unknown."""
    billed: bool
    """True where a vendor may bill the tokens."""


class UncountedCalls(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Calls whose number is not known: those that a plug-in's reward declares, and did not make in a trial."""

    role: str
    reward: str
    """The reward's name (`method.reward_source`)."""
    billed: bool
    """True where a vendor may bill the tokens."""


class PlannedTraining(msgspec.Struct, frozen=True, kw_only=True):
    """The updates of an arm's runs together, at a vendor that trains."""

    model: str
    trained_tokens: int | None
    """Upper bound, with each completion as long as it may be; null where it is unknown."""
    price: float | None
    """Dollars; null where the tokens or the price are unknown."""
    expected_price: float | None
    """Dollars, at the mean length of completions in earlier runs; null where that is unknown."""


class PlannedArm(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that differ in their seed only."""

    stage: StageName | None
    """`teacher` and `student` are the runs that make a student; null for those that were asked for."""
    students: list[str]
    """Of a stage, the students that it serves; else the one that is the model of the runs, if there is one."""
    method: str
    task: str
    model: str
    engine: str
    """As a user chooses it."""
    settings: list[str]
    """Settings that tell it from other arms of its method and student, as `method.samples=4`."""
    runs: int
    problems: int
    roles: list[PlannedRole]
    estimated: bool
    """True where a role may have more calls than counted, apart from retries."""
    training: PlannedTraining | None
    """None where no vendor trains."""
    uncounted: list[UncountedCalls]
    hours: float | None
    """Hours of its runs, one after another; null where they are unknown."""
    hours_by: HoursSource
    """`recorded`: wall-clock hours at the speed of earlier runs; `formula`: those of one H100, by docs/guides/costs.md;
    `no_model`: simulated or replayed."""
    hours_note: str
    gpu_price: float | None
    """Dollars for the GPUs in these hours; null where these or the price are unknown."""
    gpu_price_note: str
    gpu_price_unknown: bool
    """True where its runs are on GPUs, and their hours or the price of one are unknown."""
    smallest_difference: float | None
    """Smallest difference in the primary score to another arm that the runs show with power .8, two-sided at .05."""
    difference_note: str
    difference_pair: list[str]
    """The two methods whose recorded runs give it; empty where it is no pair's."""
    difference_to: dict[str, float]
    """The smallest difference to each other planned method with recorded runs; without others, to any."""
    reach: str | None
    """The share of the calls and the step that a budget lets the runs reach; null where none ends them."""
    price_limit: float | None
    """Dollars that the budget lets its runs spend; null where it limits no price."""
    score: str
    """Name of the primary score."""
    rate: bool
    score_label: str | msgspec.UnsetType = msgspec.UNSET
    """Its label in tables, where that is not its name."""

    @property
    def calls(self) -> int:
        """Calls of all roles."""
        return sum(role.calls for role in self.roles)

    @property
    def prompt_tokens(self) -> int | None:
        """Prompt tokens of all roles; None where those of one are unknown."""
        return add_known([role.prompt_tokens for role in self.roles])

    @property
    def completion_tokens(self) -> int:
        """Completion tokens of all roles."""
        return sum(role.completion_tokens for role in self.roles)

    @property
    def price(self) -> float | None:
        """Price in dollars; None where it is unknown, or no vendor bills any role."""
        return add_known([part.price for part in self._billed_parts] or [None])

    @property
    def expected_completion_tokens(self) -> int | None:
        """Expected completion tokens of all roles; None where those of one are unknown."""
        return add_known([role.expected_completion_tokens for role in self.roles])

    @property
    def expected_price(self) -> float | None:
        """Expected price in dollars; None where it is unknown, or no vendor bills any role."""
        return add_known([part.expected_price for part in self._billed_parts] or [None])

    @property
    def unpriced_models(self) -> set[str]:
        """The models whose part of the price is unknown."""
        return {part.model for part in self._billed_parts if part.price is None}

    @property
    def _billed_parts(self) -> list[PlannedRole | PlannedTraining]:
        roles: list[PlannedRole | PlannedTraining] = [role for role in self.roles if role.billed and role.calls]
        return roles if self.training is None else [*roles, self.training]

    @property
    def billed(self) -> bool:
        """True where a vendor may bill the tokens of any role."""
        return any(role.billed for role in self.roles)


class PlannedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a model that this machine serves, in GiB; None where it is unknown."""

    model: str
    weights_gib: float | None
    cache_gib_per_1000_tokens: float | None
    """Of keys and values for one sequence."""
    cache_gib_per_context: float | None
    """The same of a whole context, where layers with sliding attention keep their window alone."""
    context_length: int


class PlannedGpus(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of an engine or of the trainer; sizes in GiB of each of them."""

    stage: str
    """Of a student's making; empty for the run itself."""
    key: str
    """Configuration group of the engine, or `training`."""
    roles: list[str]
    model: str
    gpus: list[int]
    nodes: list[int]
    copies: int
    """Data-parallel copies of the engine, or processes of the trainer."""
    gpus_per_copy: int
    weights_gib: float
    training_gib: float
    """Trained weights, gradients, the optimiser, a critic."""
    cache_gib: float
    """Keys and values that it needs at least."""
    work_gib: float
    """Activations, logits, CUDA's context."""
    share: float
    """Share of each GPU's memory that it may take."""
    sleeps: bool
    """True where it lends its memory to the trainer during updates."""


class PlannedPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of engines and trainer of some runs."""

    arms: list[str]
    """The runs' methods and tasks."""
    parts: list[PlannedGpus]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of runs, and the differences that they could show; `evorun plan --json` prints it."""

    runs: int
    """Runs, with those that make students."""
    calls: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int
    """Upper bound: each completion as long as it may be."""
    expected_completion_tokens: int | None
    price: float | None
    """Dollars, with the upper bound of completions; null where it is unknown, or no vendor bills tokens."""
    expected_price: float | None
    """Dollars, with the expected completions; null where none are recorded, or `price` is unknown."""
    price_unknown: list[str]
    """Models whose tokens a vendor may bill at a price that is not known."""
    price_date: str | None
    """Date of the oldest price."""
    uncounted: list[UncountedCalls]
    """Calls that are in no figure."""
    hours: float | None
    """Of the arms by models; null where those of one are unknown."""
    gpu_price: float | None
    """Dollars for GPUs in these hours; null where that of an arm is unknown."""
    arms: list[PlannedArm]
    memory: list[PlannedMemory]
    gpus: list[PlannedPlacement]
    """Each different placement of the runs; empty without GPUs."""
    notes: list[str]


def add_known(values: Sequence[N | None]) -> N | None:
    """Return the sum; None where one of the values is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
