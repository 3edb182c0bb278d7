"""The prices that a run is metered by: of the tokens of each call role, and of its GPUs."""

import os
from collections import Counter
from collections.abc import Mapping

from evorun.errors import ConfigError
from evorun.models.config import EngineConfig, ServedModel
from evorun.runner.settings import RunConfig
from evorun.runs.directory import load_manifest
from evorun.runs.prices import POLICY, UNKNOWN, GpuPrice, Rate, TokenPrice
from evorun.runs.spending import GOLD


def find_rates(config: RunConfig) -> dict[str, Rate]:
    """Return the token price of each call role; none at all where no vendor bills any.

    A replayed run has those of the recorded one, so that it ends where that one did.
    """
    if config.engine.recorded is not None:
        return dict(load_manifest(config.engine.recorded).prices)
    models = serve_calls(config)
    if not any(engine.billed for _, engine in models.values()):
        return {}
    return {
        role: _list_prices(config, engine).get(model.id, UNKNOWN) if engine.billed else None
        for role, (model, engine) in models.items()
    }


def _list_prices(config: RunConfig, engine: EngineConfig) -> Mapping[str, TokenPrice]:
    """Return the prices of an engine's vendor by model; of a Tinker server of the user's own, those they gave."""
    if not engine.on_tinker:
        return config.prices.models
    elsewhere = engine.trainer_url or (config.training.base_url if config.training is not None else None)
    return config.prices.models if elsewhere or os.environ.get("TINKER_BASE_URL") else config.prices.tinker


def find_gpu_price(config: RunConfig, gpus: object) -> GpuPrice | None:
    """Return the price of an hour of one of the GPUs that a manifest's `hardware` names."""
    return config.prices.find_gpu(gpus) if isinstance(gpus, list) else None


def require_prices(config: RunConfig, rates: dict[str, Rate]) -> None:
    """Raise ConfigError where the budget limits the price of a run, and a model of it has none."""
    if not config.budget.limits_price:
        return
    if config.training is not None and config.training.backend == "tinker":
        raise ConfigError(
            "budget: expected no limit on the price with training.backend=tinker, which bills trained tokens that no "
            "call meters; limit calls or tokens, and see evorun plan"
        )
    key = "price" if config.budget.price is not None else "price_per_problem"
    if config.engine.recorded is None:
        for role, (model, engine) in serve_calls(config).items():
            if role != GOLD and not isinstance(rates.get(role), TokenPrice):
                known = f"{model.id} has none" if engine.billed else f"engine={engine.name} bills no tokens"
                advice = "give its price with prices=FILE" if engine.billed else "limit calls or tokens"
                raise ConfigError(f"budget.{key}: expected models with a known price, {known} (role {role}); {advice}")
    elif not rates or any(not isinstance(rate, TokenPrice) for role, rate in rates.items() if role != GOLD):
        raise ConfigError(
            f"budget.{key}: expected a recorded run with known prices, {config.engine.recorded} has none; limit calls "
            "or tokens"
        )


def name_answering_models(config: RunConfig) -> dict[str, str]:
    """Return the name of the model that answers each call role; empty where the policy answers all of a method's.

    Different models of one name (`api`) have their ids; those of one id, as simulated ones may be, their call roles.
    """
    answering = serve_calls(config)
    different: dict[str, ServedModel] = {}
    for role, served in answering.items():
        if served not in different.values():
            different[role] = served
    names, ids = (Counter(getattr(served.model, key) for served in different.values()) for key in ("name", "id"))

    def name(served: ServedModel) -> str:
        if names[served.model.name] == 1:
            return served.model.name
        role = next(role for role, other in different.items() if other == served)
        return served.model.id if ids[served.model.id] == 1 else f"{served.model.name} ({role})"

    found = {role: name(served) for role, served in answering.items()}
    return found if len({model for role, model in found.items() if role != GOLD}) > 1 else {}


def serve_calls(config: RunConfig) -> dict[str, ServedModel]:
    """Return the model that answers each call role, and the policy, which answers all others."""
    own = ServedModel(config.model, config.engine)
    several = {role.partition(".")[0] for role in config.others if "." in role}
    roles = {call: played.model for call, played in config.method.active_roles.items()}
    found = (
        {POLICY: own}
        | {call: config.others.get(role, own) for call, role in roles.items() if role not in several}
        | config.panel
        | config.generators
    )
    return {**found, GOLD: config.others.get(GOLD, own)}
