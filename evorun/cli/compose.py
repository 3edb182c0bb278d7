"""The values of the config groups' YAML files, and the choices without a file, for Hydra to compose."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from evorun.cli.groups import LIKE, choices, config_folder
from evorun.cli.hydra_cache import compose_faster
from evorun.fields import FROM_TASK, WITHOUT_BUDGET
from evorun.plugins import Kind
from evorun.runner import registry
from evorun.runs.budget import LIMITS

if TYPE_CHECKING:
    from evorun.methods.base import Method
from evorun.tracking.choices import plugin_trackers

PARTS = "/method_parts@_here_"
"""Key, in a method's defaults, of the list of settings that several methods share."""


@cache
def yaml_values(group: str, name: str, folder: Path | None = None) -> Mapping[str, Any]:
    """Return the values of a file of `conf/`, over those that it inherits from its group and `method_parts`.

    folder: in place of `conf/`. Return {} if there is no such file.
    """
    file = (folder or config_folder()) / group / f"{name}.yaml"
    values: Any = OmegaConf.to_container(OmegaConf.load(file)) if file.exists() else {}
    inherited: dict[str, Any] = {}
    for default in values.pop("defaults", ()):
        if isinstance(default, str) and default != "_self_":
            inherited |= yaml_values(group, default.removesuffix("@_here_"))
        elif isinstance(default, dict) and PARTS in default:
            for part in default[PARTS]:
                inherited |= yaml_values("method_parts", part)
    return {**inherited, **values}


def default_config(kind: Kind, name: "str | type[Method]", **changes: Any) -> Any:
    """Return the config of a method or task: the values of its YAML, or, if it has none, of its dataclass.

    A plug-in's method that derives from one of evorun's has that one's values beneath its own. name: in place of a
    method's, its class, which no package need offer yet.
    """
    from evorun.runner.typed import typed

    if not isinstance(name, str):
        method, name = name, name.name
    elif kind == "method":
        method = registry.method_class(name)
    if kind == "method" and (parent := registry.parent_method(method)):
        return typed(method.Config, {**yaml_values(kind, parent), **_stated(method), "name": name, **changes}, kind)
    schema = registry.task_config_class(name) if kind == "task" else method.Config
    return typed(schema, {"name": name, **yaml_values(kind, name), **changes}, kind)


def _plugin_node(method: "type[Method]") -> DictConfig:
    """Return the values that a plug-in's dataclass gives its hyperparameters."""
    node: DictConfig = OmegaConf.structured(method.Config)
    for field in dataclasses.fields(method.Config):
        if FROM_TASK in field.metadata:  # the task's value, if it has one, as in evorun's own YAML
            node[field.name] = f"${{{FROM_TASK}:{field.name},{field.default}}}"
        elif WITHOUT_BUDGET in field.metadata:
            node[field.name] = f"${{{WITHOUT_BUDGET}:{field.default}}}"
    return node


def _stated(method: "type[Method]") -> dict[str, Any]:
    """Return these values without those that the dataclass leaves open."""
    values: Any = OmegaConf.to_container(_plugin_node(method))
    return {key: value for key, value in values.items() if value != MISSING}


def register(overrides: Sequence[str] = ()) -> None:
    """Register with Hydra the choices without files: judges, teachers, plug-ins, methods' values under a budget.

    overrides: of the command line. A plug-in that they choose gets no warning: its own run reports the fault.
    """
    compose_faster()
    chosen = {kind: _chosen(kind, overrides) for kind in registry.GROUPS}
    store = ConfigStore.instance()
    for group, of in LIKE.items():
        for name in choices(of):
            _offer(group, of, name)
    # An unusable plug-in stays a choice: the check of the configuration then says why it fails.
    for kind in registry.GROUPS:
        for name in registry.plugins(kind):
            store.store(group=kind, name=name, node={"name": name})
    for name, method in registry.usable_plugins("method", chosen["method"]).items():
        parent = registry.parent_method(method)
        inheriting = {"defaults": [parent, "_self_"], **_stated(method), "name": name}
        store.store(group="method", name=name, node=inheriting if parent else _plugin_node(method))
    for kind in ("task", "engine", "judge"):
        for name, schema in registry.usable_plugins(kind, chosen[kind]).items():
            store.store(group=kind, name=name, node=schema)
    for name in plugin_trackers():
        store.store(group="tracker", name=name, package=f"tracker.{name}", node={})
    for name in choices("budget"):
        _offer_methods(name)


@cache
def _offer_methods(budget: str) -> None:
    """Offer the values that methods have under a budget."""
    for method, values in yaml_values("budget", budget).get("methods", {}).items():
        name = f"{method}_on_{budget}"
        ConfigStore.instance().store(group="method_on_budget", name=name, package="method", node=values)


@cache
def _offer(group: str, of: str, name: str) -> None:
    """Offer a choice of one group in another."""
    node = {"defaults": [{f"/{of}@_here_": name}, "_self_"]}
    ConfigStore.instance().store(group=group, name=name, node=node)


def _chosen(group: str, overrides: Sequence[str]) -> set[str]:
    """Return the names that overrides choose in a group; a sweep may choose several."""
    words = (override.lstrip("+").partition("=") for override in overrides)
    return {name.strip() for key, _, names in words if key == group for name in names.split(",")}


def _from_task(key: str, default: Any, *, _root_: DictConfig) -> Any:
    """Return a value of `task.sampling`, or the method's own default if the task sets none."""
    task = _root_.get("task")
    sampling = task.get("sampling") if isinstance(task, DictConfig) else None
    value = sampling.get(key) if isinstance(sampling, DictConfig) else None
    return default if value is None else value


def _without_budget(default: Any, *, _root_: DictConfig) -> Any:
    """Return a method's own default, or null under a budget, which then decides how much is done."""
    budget = _root_.get("budget")
    limited = isinstance(budget, DictConfig) and any(budget.get(key) is not None for key in LIMITS)
    return None if limited else default


def _of_trainer(key: str, default: Any, *, _parent_: DictConfig) -> Any:
    """Return a value from the YAML of the method that `trainer` names, or the default if it has none."""
    return yaml_values("method", str(_parent_.get("trainer"))).get(key, default)


def _arm() -> str:
    """Return a job's overrides but those that tell draws of one arm apart; empty when Hydra composes no job."""
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return ""
    not_the_arms = ("seed=", "engine.stream=", "evorun.")
    # unresolved: one of them may ask for the arm
    overrides: Any = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    return ",".join(sorted(word for word in overrides if not word.lstrip("+").startswith(not_the_arms)))


# At import: a SLURM job resolves its configuration in a process that composes nothing itself.
OmegaConf.register_new_resolver(FROM_TASK, _from_task, replace=True)
OmegaConf.register_new_resolver(WITHOUT_BUDGET, _without_budget, replace=True)
OmegaConf.register_new_resolver("of_trainer", _of_trainer, replace=True)
OmegaConf.register_new_resolver("arm", _arm, replace=True)
OmegaConf.register_new_resolver("max", max, replace=True)
