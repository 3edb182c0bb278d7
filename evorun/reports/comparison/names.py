"""Names that tell the runs of a comparison apart: by method and, where that is not enough, by further aspects."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evorun.reports.overview import Outcome
from evorun.runs.directory import ENGINES, SIMULATED, identity
from evorun.runs.paths import display
from evorun.runs.schema import Manifest, ModelInRun
from evorun.simulation.engine import SPEED

SEED = "seed"
TASK = "task"
FLOOR = "floor"

FLOOR_LABEL = "floor (random answers)"
RANDOM = "random"
"""The model that draws its answers at random, whatever the engine."""

_NOT_SETTINGS = ("method=", "task=", "model=", "engine=", "seed=", "hydra", "evorun.", "run.")
"""Beginnings of overrides that are aspects of their own, or change no answer."""

_MAX_DIFFERENCES = 4
_LONGEST_VALUE = 24


def name_parts(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """Return each run's name in parts, by aspect: no more of them than tell it from all others, the method first.

    Floor runs carry their label besides, needed or not.
    """
    parts = [
        {"method": outcome.manifest.method, **({FLOOR: FLOOR_LABEL} if is_floor(outcome.manifest) else {})}
        for outcome in outcomes
    ]
    # in the order in which a reader asks; the folder last, for it is unique and says least
    aspects: dict[str, Callable[[list[Outcome]], list[str]]] = {
        TASK: lambda runs: [run.manifest.task for run in runs],
        "model": lambda runs: [format_model(run.manifest) for run in runs],
        "engine": lambda runs: [format_engine(run.manifest) for run in runs],
        "settings": lambda runs: _settings([run.manifest for run in runs]),
        SEED: lambda runs: [f"seed {run.manifest.seed}" for run in runs],
        "folder": lambda runs: [display(run.run_dir) for run in runs],
    }
    for aspect, words_of in aspects.items():
        namesakes: dict[str, list[int]] = defaultdict(list)
        for index, named in enumerate(parts):
            # a floor is told by its label, and named by its task where its method's other runs are
            namesakes[joined(without(named, FLOOR) if aspect == TASK else named)].append(index)
        for members in namesakes.values():
            words = words_of([outcomes[index] for index in members])
            if len(set(words)) > 1:
                for index, word in zip(members, words, strict=True):
                    parts[index].update({aspect: word} if word else {})
    return parts


def joined(parts: Mapping[str, str]) -> str:
    """Return the name that consists of the parts."""
    return ", ".join(parts.values())


def shared(parts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the parts that all the names have."""
    return {aspect: word for aspect, word in parts[0].items() if all(other.get(aspect) == word for other in parts[1:])}


def without(parts: Mapping[str, str], *aspects: str) -> dict[str, str]:
    """Return the parts of a name but for some aspects."""
    return {aspect: word for aspect, word in parts.items() if aspect not in aspects}


def is_floor(manifest: Manifest) -> bool:
    """Return True for a run whose model answers at random: what a method and its verifier score by themselves."""
    return manifest.simulated and policy(manifest).name == RANDOM


def format_model(manifest: Manifest) -> str:
    """Name the run's model, and those of other roles where they differ from it."""
    model = policy(manifest)
    others = {role: other for role, other in manifest.models.items() if other.id != model.id}
    return " ".join([model.short, *(f"({role}: {other.short})" for role, other in others.items())]).strip()


def format_engine(manifest: Manifest) -> str:
    """Name the engines that serve the run's models."""
    return ", ".join(dict.fromkeys(model.engine for model in manifest.models.values()))


def policy(manifest: Manifest) -> ModelInRun:
    """Return the run's policy; without one, its first model."""
    models = manifest.models
    return models.get("policy") or next(iter(models.values()), ModelInRun("", "", ""))


def setup(manifest: Manifest) -> dict[str, Any]:
    """Return the settings that two runs must share to differ by chance alone: all that decide results but the seed."""
    return {
        key: _answers(value) if key in ENGINES else value
        for key, value in identity(manifest.config).items()
        if key != SEED
    }


def simulated_model(manifest: Manifest) -> dict[str, Any] | None:
    """Return the settings of a simulated model, which make it the model that it is; None for a real one."""
    engine = manifest.config.get("engine")
    if not manifest.simulated:
        return None
    if not isinstance(engine, Mapping) or engine.get("name") != SIMULATED:
        return {}
    # another stream of random numbers is, as another seed, another draw from the same model
    return {key: value for key, value in _answers(engine).items() if key != "stream"}


def _answers(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a simulated model that decide its answers."""
    return {key: value for key, value in engine.items() if key not in SPEED}


def _settings(manifests: Sequence[Manifest]) -> list[str]:
    """Tell runs apart by the overrides that differ; where these do not tell, by the settings that do."""
    setups = [setup(manifest) for manifest in manifests]
    # as typed: `judge=oracle` is one override and a dozen settings
    typed = [
        {
            key: value
            for key, _, value in (override.lstrip("+").partition("=") for override in manifest.command[1:])
            if not f"{key}=".startswith(_NOT_SETTINGS)
        }
        for manifest in manifests
    ]
    by_overrides = [
        _words([key for key, value in overrides.items() if any(other.get(key) != value for other in typed)], overrides)
        for overrides in typed
    ]
    pairs = set(zip(by_overrides, map(repr, setups), strict=True))
    one_to_one = len(pairs) == len(set(by_overrides)) == len(set(map(repr, setups)))
    return by_overrides if one_to_one else _differences([dict(_leaves(of)) for of in setups])


def _differences(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings in which runs differ; where they are many, those that differ from what most runs have."""
    # repr: values may be lists, and 1 must differ from True
    values = {
        key: [repr(of.get(key)) for of in settings] for key in dict.fromkeys(key for of in settings for key in of)
    }
    common = {key: Counter(found).most_common(1)[0][0] for key, found in values.items() if len(set(found)) > 1}
    if len(common) <= 2:
        return [_words(list(common), of) for of in settings]
    return [
        _words([key for key in common if values[key][index] != common[key]], of) for index, of in enumerate(settings)
    ]


def _words(keys: Sequence[str], settings: Mapping[str, Any]) -> str:
    told = [f"{key}={str(settings.get(key))[:_LONGEST_VALUE]}" for key in keys[:_MAX_DIFFERENCES]]
    return " ".join([*told, *([f"{len(keys) - len(told)} more"] if len(keys) > len(told) else [])])


def _leaves(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in config.items():
        found += _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
    return found
