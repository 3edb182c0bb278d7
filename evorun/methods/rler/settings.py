"""Settings of rewards by the criteria of single problems."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from evorun.errors import ConfigError
from evorun.fields import NonNegativeFloat, PositiveInt
from evorun.models.base import Sampling
from evorun.rollouts.rubric_settings import RubricSettings


@dataclass(kw_only=True)
class ItemSettings(RubricSettings):
    """Hyperparameters; `conf/method/rler.yaml` gives each default and its source."""

    persistent: bool
    """Judge by the criteria in a problem's data, where it has any."""
    adaptive: bool
    """Let a model write further criteria (meta=MODEL); false: those of the data alone, as in rubrics as rewards."""
    max_new: Annotated[int, Meta(ge=1, le=8)]
    """Most criteria that are written at once for a problem."""
    max_active: Annotated[int, Meta(ge=1, le=8)]
    """Most written criteria of a problem that stay active after a step."""
    write_attempts: PositiveInt
    """Replies to ask for until criteria can be read; without any, the step goes on with those that there are."""
    items_json: bool
    """Hold criteria to a JSON schema, on engines that enforce one."""
    shown_chars: PositiveInt | None
    """Maximum characters shown of a prompt and of each response; null: no limit."""
    item_prompts: str | None
    """Folder with your own items.md, which replaces that in `evorun/methods/rler/prompts`; null: none."""
    write_temperature: NonNegativeFloat
    write_top_p: Annotated[float, Meta(gt=0, le=1)]
    write_max_tokens: PositiveInt
    """Maximum completion tokens of a reply with criteria."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.persistent or self.adaptive):
            raise ConfigError("method.persistent, method.adaptive: expected at least one of them true, got neither")
        fixed = {
            **{"rubric": None, "scoring": "whole", "exact_match_rate": 0.0, "reward_digits": False},
            **{"rubric_dropout": 0.0, "min_words": 0, "reward_scale": "raw"},
        }
        for name, value in fixed.items():
            if getattr(self, name) != value:
                raise ConfigError(
                    f"method.{name}: has no effect with method=rler, whose criteria are judged one by one; leave it "
                    f"{'null' if value is None else value}"
                )

    @property
    def write_sampling(self) -> Sampling:
        """The sampling parameters of the model that writes criteria."""
        return Sampling(temperature=self.write_temperature, top_p=self.write_top_p, max_tokens=self.write_max_tokens)
