"""The hours of planned runs and the price of their GPUs: at a recorded speed, else by the formula of estimates."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evorun.models.config import ServedModel
from evorun.runner.call_counts import Part
from evorun.runner.estimates import (
    DECODING,
    DECODING_BY_TRANSFORMERS,
    PEAK,
    TRAINING,
    count_training_tokens,
    find_billions,
    hours,
)
from evorun.runner.plan_records import HoursSource, PlannedRole
from evorun.runner.pricing import find_gpu_price, serve_calls
from evorun.runner.recorded import Recorded
from evorun.runner.settings import RunConfig
from evorun.runs.formats import format_dollars
from evorun.runs.prices import POLICY
from evorun.runs.spending import GOLD

CARD = "H100"
"""The GPU of the formula."""
CARD_GIB = 80
"""Its memory, in round figures."""


class PlannedHours(NamedTuple):
    """The hours of an arm's runs, one after another."""

    hours: float | None
    source: HoursSource
    note: str
    price: float | None = None
    """Dollars for their GPUs."""
    price_note: str = ""
    price_unknown: bool = False
    """True where they are hours of GPUs, and these or the price of one are unknown."""


def plan_hours(
    config: RunConfig, roles: Sequence[PlannedRole], runs: int, recorded: Recorded, tuned_tokens: float | None
) -> PlannedHours:
    """Return the hours of an arm's runs. tuned_tokens: of a fine-tuning, which recorded speeds do not tell."""
    if config.engine.simulated or config.engine.replays:
        measured = "simulated runs tell no rate; one core makes hundreds of calls/s (docs/guides/simulate.md)"
        return PlannedHours(None, "no_model", measured if config.engine.simulated else "replayed runs tell no rate")
    # the ground truth answers without a model: its verdicts cost calls, and no time
    served = serve_calls(config)
    roles = [role for role in roles if not served.get(role.role, served[POLICY]).engine.knows_truth]
    speed = recorded.speed(config.engine.name, config.model.identity) if tuned_tokens is None else None
    about = f"{config.model.name} on engine={config.engine.choice}"
    if speed is None:
        return _plan_by_formula(config, served, roles, runs, tuned_tokens, f"no run of {about} is recorded")
    tokens = sum(
        role.completion_tokens if role.expected_completion_tokens is None else role.expected_completion_tokens
        for role in roles
        if role.role != GOLD
    )
    took = tokens / speed.tokens / 3600
    note = f"{speed.tokens:,.0f} completion tokens/s, as in {speed.runs} runs of {about}"
    return _add_price(config, PlannedHours(took, "recorded", note), speed.gpus, speed.names)


def _plan_by_formula(
    config: RunConfig,
    served: Mapping[str, ServedModel],
    roles: Sequence[PlannedRole],
    runs: int,
    tuned_tokens: float | None,
    reason: str,
) -> PlannedHours:
    """Return the hours of one H100 that writes all completions of models on GPUs, each as long as its limit."""
    written: dict[str, list[tuple[ServedModel, int]]] = defaultdict(list)
    for role in roles:
        model = served.get(role.role, served[POLICY])
        if role.calls and _runs_on_gpus(model):
            written[model.model.name].append((model, role.completion_tokens))
    parts = [Part(role.role, role.model, 1 / runs, role.completion_tokens) for role in roles]
    trains = config.training is not None and config.training.backend != "tinker"
    trained = count_training_tokens(config.raw, parts) if tuned_tokens is None else tuned_tokens
    trained = runs * trained if trains else 0.0
    if not written and not trained:
        return PlannedHours(None, "unknown", reason)
    sizes = {name: find_billions(models[0][0].model) for name, models in written.items()}
    sizes |= {config.model.name: find_billions(config.model)} if trained else {}
    if unsized := sorted(name for name, size in sizes.items() if size is None):
        note = f"{reason}, nor is the config.json of {', '.join(unsized)} here"
        return PlannedHours(None, "unknown", note, price_unknown=True)
    shares = dict.fromkeys(_decoding_share(model) for models in written.values() for model, _ in models)
    took = sum(
        hours(2, sizes[name] or 0.0, tokens, _decoding_share(model))
        for name, models in written.items()
        for model, tokens in models
    )
    took += hours(6, sizes[config.model.name] or 0.0, trained, TRAINING) if trained else 0.0
    assumed = [f"{' or '.join(f'{share:.0%}' for share in shares)} for completions at their limit"] if shares else []
    assumed += [f"{TRAINING:.0%} for updates"] if trained else []
    note = (
        f"by a formula, not measured, since {reason}: one {CARD} at an assumed share of its {PEAK / 1e12:.0f} TFLOP/s, "
        f"{', '.join(assumed)}; prompts and loading are left out"
    )
    return _add_price(config, PlannedHours(took, "formula", note), 1, [CARD])


def _runs_on_gpus(served: ServedModel) -> bool:
    model, engine = served
    return not (engine.billed or engine.simulated or engine.replays or model.random or model.api)


def _decoding_share(served: ServedModel) -> float:
    return DECODING_BY_TRANSFORMERS if served.engine.is_trainer else DECODING


def _add_price(config: RunConfig, planned: PlannedHours, gpus: float, names: Sequence[str]) -> PlannedHours:
    """Return hours with the price of this many GPUs by these names, where it is known."""
    if not gpus or planned.hours is None:
        return planned
    if (price := find_gpu_price(config, names)) is None:
        return planned._replace(price_unknown=True)
    note = f"{format_dollars(price.hour)} per hour of a GPU ({price.date}, prices.gpus)"
    return planned._replace(price=planned.hours * gpus * price.hour, price_note=note)
