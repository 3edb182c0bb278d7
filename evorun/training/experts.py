"""The targets of an adapter on a sparse model: its linear layers, its experts and, if named, its routers.

PEFT gives each expert of a stacked parameter an adapter (`target_parameters`). PEFT 0.21.2 also guesses such targets by
the type of a model (`_convert_peft_config_moe`). With `all-linear`, it includes the router, and leaves out gpt-oss's
experts. It takes `gate_proj`, `up_proj` and `down_proj` for experts alone, so that shared experts and dense layers get
no adapter, in training as in loading. Therefore all targets are named here, in a form that it does not convert.

Imports torch: only the trainer process and a check before a run import this module.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from evorun.errors import ConfigError
from evorun.models.experts import JOINED, find_experts, find_routers

ALL_LINEAR = "all-linear"
HALVES = (("gate_proj", "up_proj"), ("w1", "w3"))
"""Names of the two projections that transformers joins in an expert: Qwen's and DeepSeek's, and Mixtral's."""
RENAMED = {"w2": "down_proj"}
GUESSED = frozenset({"gate", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"})
"""Names that PEFT takes for those of experts and routers, whatever the module."""


class Targets(NamedTuple):
    """Modules and parameters that PEFT adapts, by the ends of their names."""

    modules: list[str]
    parameters: list[str]

    @property
    def experts(self) -> list[str]:
        """The parameters that stack the weights of experts."""
        return [name for name in self.parameters if not name.endswith(".weight")]

    @property
    def layers(self) -> set[str]:
        """The last components of the names of all layers; experts are `experts`."""
        return {name.rpartition(".")[2] for name in (*self.modules, *map(_owner, self.parameters))}

    @property
    def joined(self) -> list[str]:
        """The parameters that join two projections: they get twice the rank, as much as an adapter of each."""
        return [name for name in self.parameters if name.endswith(f".{JOINED}")]


def find_targets(model: Any, names: Sequence[str]) -> Targets | None:
    """Return what an adapter changes of a sparse model, of which no weights are needed; None for a dense model.

    Raises ConfigError when a name stands for one half of a parameter that joins two.
    """
    experts, routers = find_experts(model), find_routers(model)
    if not experts:
        return None
    wanted = _rename(experts, names)
    output = model.get_output_embeddings()
    linear = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not output and name not in routers
    ]
    outputs = [name for name, module in model.named_modules() if module is output]
    every = ALL_LINEAR in names
    layers = [name for name in linear if every or is_named(name, wanted)]
    layers += [name for name in outputs if is_named(name, wanted)]
    stacked = [name for name in experts if every or is_named(name, wanted) or is_named(_owner(name), wanted)]
    weights = [f"{name}.weight" for name in routers if is_named(name, wanted)]
    weights += [f"{name}.weight" for name in layers if name.rpartition(".")[2] in GUESSED]
    modules = [name for name in layers if name.rpartition(".")[2] not in GUESSED]
    return Targets(_shorten(modules), _shorten([*stacked, *weights]))


def former_names(model: Any) -> list[str]:
    """Return the names of experts as wholes, and of their projections before transformers stacked them."""
    experts = find_experts(model)
    former = [name for halves in HALVES for name in halves if any(JOINED in expert for expert in experts)]
    return [f"{owner}.{name}" for owner in map(_owner, experts) for name in (*former, *RENAMED)] + [
        _owner(name) for name in experts
    ]


def is_named(name: str, targets: Iterable[str]) -> bool:
    """Return whether a target is the whole name, or its last components."""
    return any(name == target or name.endswith(f".{target}") for target in targets)


def _rename(experts: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names with those that an expert's projections had before they were joined."""
    wanted = [*names, *(RENAMED[name] for name in names if name in RENAMED)]
    if not any(name.endswith(f".{JOINED}") for name in experts):
        return wanted
    for halves in HALVES:
        given = [name for name in halves if name in names]
        if len(given) == len(halves):
            wanted.append(JOINED)
        elif given:
            raise ConfigError(
                f"training.target_modules: expected {' and '.join(halves)} together, which each expert joins in "
                f"{JOINED}, got {given[0]} alone"
            )
    return wanted


def _owner(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _shorten(names: Iterable[str]) -> list[str]:
    """Return the ends of names after the number of their layer: each once, sorted."""
    short = set()
    for name in names:
        parts = name.split(".")
        numbers = [index for index, part in enumerate(parts) if part.isdigit()]
        short.add(".".join(parts[numbers[-1] + 1 :] if numbers else parts))
    return sorted(short)
