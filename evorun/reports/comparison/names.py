"""Names that tell the runs of a comparison apart: by method and, where that is not enough, by further aspects."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evorun.errors import ConfigError
from evorun.models.config import OTHER_ROLES
from evorun.reports.comparison.reported import find_paper_name
from evorun.reports.overview import Outcome
from evorun.runs.configs import find_distinguishing_keys
from evorun.runs.directory import ENGINES, SIMULATED, identity
from evorun.runs.manifest import Manifest, ModelInRun
from evorun.runs.paths import display
from evorun.simulation.engine import SPEED

PAPER = "paper"
METHOD = "method"
SEED = "seed"
TASK = "task"
BASELINE = "baseline"
SETTINGS = "settings"

BASELINE_LABEL = "random baseline"
RANDOM = "random"
"""The model that draws its answers at random, whatever the engine."""

POLICY = "policy"
"""The role of the model that writes the answers, and of all roles that have no model of their own."""

_NOT_SETTINGS = ("method=", "task=", "model=", "engine=", "seed=", "hydra", "evorun.", "run.", "output=")
"""Beginnings of overrides that are aspects of their own, or change no answer."""

_ADAPTER = "+adapter:"
"""Precedes the digest of an adapter in a model's id (`ModelConfig.identity`)."""

GRADES = ("task", "grader")
"""Kinds of plug-ins whose code decides what an answer scores."""

_FORK = "fork"
"""Key of a set-up beside its settings: where the run left another one."""

_MODELS = tuple(f"{role}." for role in ("model", *OTHER_ROLES))
"""Beginnings of a fork's changes that choose models."""

_MAX_DIFFERENCES = 4
_MAX_VALUE_LENGTH = 24


def read_names(given: Sequence[str]) -> dict[str, str]:
    """Return new names by old ones from words such as `OLD=NEW`; an old name may hold an equals sign, a new one not.

    Raises ConfigError for a word without both.
    """
    names = {}
    for word in given:
        old, _, new = word.rpartition("=")
        if not old.strip() or not new.strip():
            raise ConfigError(f'name: expected "OLD=NEW", the name of a row and another one, got "{word}"')
        names[old.strip()] = new.strip()
    return names


def name_parts(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """Return each run's name in parts, by aspect: the method, and as many others as tell it from all other runs.

    Random baselines always carry their label. An experiment's name of an arm is a further part, and comes first.
    """
    parts = [
        {
            METHOD: outcome.manifest.method,
            **({BASELINE: BASELINE_LABEL} if is_random_baseline(outcome.manifest) else {}),
        }
        for outcome in outcomes
    ]
    # in the order in which a reader asks; the folder last, for it is unique and says least
    aspects: dict[str, Callable[[list[Outcome]], list[str]]] = {
        TASK: lambda runs: [run.manifest.task for run in runs],
        "model": lambda runs: _tell_models_apart([run.manifest for run in runs]),
        "engine": lambda runs: [format_engine(run.manifest) for run in runs],
        SETTINGS: lambda runs: _describe_settings([run.manifest for run in runs]),
        SEED: lambda runs: [f"seed {run.manifest.seed}" for run in runs],
        "folder": lambda runs: [display(run.run_dir) for run in runs],
    }
    for aspect, describe in aspects.items():
        namesakes: dict[str, list[int]] = defaultdict(list)
        for index, name in enumerate(parts):
            # the label tells a random baseline apart; its task is named where that of the method's other runs is
            namesakes[join_parts(drop_parts(name, BASELINE) if aspect == TASK else name)].append(index)
        for members in namesakes.values():
            words = describe([outcomes[index] for index in members])
            if len(set(words)) > 1:
                for index, word in zip(members, words, strict=True):
                    parts[index].update({aspect: word} if word else {})
    papers = [_find_paper_name(outcome.manifest) for outcome in outcomes]
    return [name if paper is None else {PAPER: paper, **name} for paper, name in zip(papers, parts, strict=True)]


def _find_paper_name(manifest: Manifest) -> str | None:
    if is_random_baseline(manifest):  # which no paper has
        return None
    return find_paper_name(manifest.config, manifest.method, manifest.task, get_policy(manifest).name)


def join_parts(parts: Mapping[str, str]) -> str:
    """Return the name that consists of the parts, a paper's name with the others in parentheses behind it."""
    others = ", ".join(drop_parts(parts, PAPER).values())
    if PAPER not in parts:
        return others
    return f"{parts[PAPER]} ({others})" if others else parts[PAPER]


def spell_name(parts: Mapping[str, str]) -> set[str]:
    """Return the name that consists of the parts, with and without a paper's name."""
    return {join_parts(parts), join_parts(drop_parts(parts, PAPER))}


def find_shared_parts(parts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the parts that all the names have."""
    return {aspect: word for aspect, word in parts[0].items() if all(other.get(aspect) == word for other in parts[1:])}


def drop_parts(parts: Mapping[str, str], *aspects: str) -> dict[str, str]:
    """Return the parts of a name but for some aspects."""
    return {aspect: word for aspect, word in parts.items() if aspect not in aspects}


def is_random_baseline(manifest: Manifest) -> bool:
    """Tell whether a run's model answers at random, which shows what a method and its verifier score alone."""
    return manifest.simulated and get_policy(manifest).name == RANDOM


def is_student(manifest: Manifest) -> bool:
    """Tell whether stages before the run fine-tuned its model."""
    return bool(manifest.config.get("student"))


def is_fork(manifest: Manifest) -> bool:
    """Tell whether the run's first steps are those of another run."""
    return manifest.origin is not None and manifest.origin.first_own_step is not None


def name_models(manifests: Sequence[Manifest]) -> list[str]:
    """Name the models of runs; those that simulated ones stand in for only where they tell runs apart."""
    kinds, names = ([format_model(manifest, named=named) for manifest in manifests] for named in (False, True))
    return kinds if len(set(kinds)) == len(set(names)) else names


def _tell_models_apart(manifests: Sequence[Manifest]) -> list[str]:
    """Name the models of runs; of runs with one policy and other models beside it, the roles that differ.

    Where all are simulated, which each comparison says on top, these have the names that they stand in for alone. A
    role that other runs give to a model of its own is the policy's.
    """
    policies = {get_policy(manifest).id for manifest in manifests}
    others = [
        {role: model for role, model in manifest.models.items() if model.id not in policies} for manifest in manifests
    ]
    roles = list(dict.fromkeys(role for own in others for role in own))
    # members of a panel (`judge.0`) are no roles that a policy or another model could have in their place
    has_panels = any("." in role for role in roles) and any(own.keys() != others[0].keys() for own in others)
    if len(policies) > 1 or not roles or has_panels or any(map(is_fork, manifests)):
        return name_models(manifests)
    are_simulated = {model.engine for manifest in manifests for model in manifest.models.values()} == {SIMULATED}
    names = [
        {role: POLICY if role not in own else own[role].name if are_simulated else own[role].short for role in roles}
        for own in others
    ]
    differing = [role for role in roles if len({own[role] for own in names}) > 1]
    words = [", ".join(f"{role} {own[role]}" for role in differing) for own in names]
    return words if len(set(words)) == len(set(name_models(manifests))) else name_models(manifests)


def format_model(manifest: Manifest, *, named: bool = True) -> str:
    """Name the run's model, and those of other roles where they differ from it; of a fork by models, its first step.

    named: with the names of models that simulated ones stand in for.
    """
    model, origin = get_policy(manifest), manifest.origin
    others = {role: other for role, other in manifest.models.items() if other.id != model.id}
    own, *theirs = ((each.short if named else each.kind) for each in (model, *others.values()))
    words = [own, *(f"({role}: {name})" for role, name in zip(others, theirs, strict=True))]
    if origin is not None and origin.at is not None and any(change.startswith(_MODELS) for change in origin.changes):
        words.append(f"from step {origin.at}")
    return " ".join(words).strip()


def format_engine(manifest: Manifest) -> str:
    """Name the engines that serve the run's models."""
    return ", ".join(dict.fromkeys(model.engine for model in manifest.models.values()))


def get_policy(manifest: Manifest) -> ModelInRun:
    """Return the run's policy; without one, its first model."""
    models = manifest.models
    return models.get(POLICY) or next(iter(models.values()), ModelInRun("", "", ""))


def get_base_model(manifest: Manifest) -> str:
    """Return the id of the run's policy without an adapter, which a student has and its base model has not."""
    return drop_adapter(get_policy(manifest).id)


def drop_adapter(model_id: str) -> str:
    """Return a model's id without that of an adapter."""
    return model_id.partition(_ADAPTER)[0]


def explain_other_model(ours: Manifest, theirs: Manifest) -> str | None:
    """Return why two runs have different models and so no pair; None where they have the same."""
    if ours.simulated != theirs.simulated or get_base_model(ours) != get_base_model(theirs):
        names = ["a simulated one" if manifest.simulated else get_policy(manifest).name for manifest in (ours, theirs)]
        if names[0] == names[1]:
            names = [get_policy(manifest).name for manifest in (ours, theirs)]
        return f"another model: {names[0]}, not {names[1]}"
    our_model, their_model = get_simulated_settings(ours) or {}, get_simulated_settings(theirs) or {}
    keys = [key for key in {**our_model, **their_model} if our_model.get(key) != their_model.get(key)]
    settings = ", ".join(f"{key} {our_model.get(key)}, not {their_model.get(key)}" for key in keys)
    return f"another simulated model: {settings}" if settings else None


def get_grading_code(manifest: Manifest) -> dict[str, str]:
    """Return the digests of the plug-ins that grade a run's answers, by kind; empty where evorun itself does."""
    return {kind: plugin.digest for kind, plugin in manifest.plugins.items() if kind in GRADES}


def get_setup(manifest: Manifest) -> dict[str, Any]:
    """Return what two runs must share to differ by chance alone: all settings that decide results but the seed.

    The code of plug-ins is part of it (`task.code`). A fork had other settings before its first own step, so it shares
    its set-up with forks at that step alone.
    """
    setup = {
        key: _select_answer_settings(value) if key in ENGINES else value
        for key, value in identity(manifest.config).items()
        if key != SEED
    }
    setup |= {f"{kind}.code": plugin.digest for kind, plugin in manifest.plugins.items()}
    origin = manifest.origin
    step = None if origin is None else origin.first_own_step
    return setup if origin is None or step is None else {**setup, _FORK: [step, origin.changes]}


def get_simulated_settings(manifest: Manifest) -> dict[str, Any] | None:
    """Return the settings of a simulated model, which make it the model that it is; None for a real one."""
    engine = manifest.config.get("engine")
    if not manifest.simulated:
        return None
    if not isinstance(engine, Mapping) or engine.get("name") != SIMULATED:
        return {}
    # another stream of random numbers is, as another seed, another draw from the same model
    return {key: value for key, value in _select_answer_settings(engine).items() if key != "stream"}


def _select_answer_settings(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a simulated model that decide its answers."""
    return {key: value for key, value in engine.items() if key not in SPEED}


def read_typed_settings(manifest: Manifest) -> dict[str, str]:
    """Return the settings of a run's command, as typed: `judge=oracle` is one of them and a dozen of its set-up."""
    return {
        key: value
        for key, equals, value in (override.lstrip("+").partition("=") for override in manifest.command[1:])
        if equals and not f"{key}=".startswith(_NOT_SETTINGS)
    }


def drop_setting(parts: Mapping[str, str], key: str, value: str) -> dict[str, str]:
    """Return the parts of a name without a setting of that value."""
    kept = parts.get(SETTINGS, "").replace(_format_settings([key], {key: value}), "")
    settings = " ".join(kept.split())
    return {**drop_parts(parts, SETTINGS), **({SETTINGS: settings} if settings else {})}


def _describe_settings(manifests: Sequence[Manifest]) -> list[str]:
    """Describe runs by the overrides in which they differ; if these do not tell them apart, by the settings.

    The words of a fork or an extension name another run, so those are described by their settings.
    """
    setups = [get_setup(manifest) for manifest in manifests]
    typed = [read_typed_settings(manifest) for manifest in manifests]
    by_overrides = [
        _format_settings(
            [key for key, value in overrides.items() if any(other.get(key) != value for other in typed)], overrides
        )
        for overrides in typed
    ]
    pairs = set(zip(by_overrides, map(repr, setups), strict=True))
    one_to_one = len(pairs) == len(set(by_overrides)) == len(set(map(repr, setups)))
    if one_to_one and all(manifest.origin is None for manifest in manifests):
        return by_overrides
    forks = [setup.pop(_FORK, None) for setup in setups]
    settings = [dict(_leaves(setup)) for setup in setups]
    differences = map(_format_settings, find_distinguishing_keys(settings), settings)
    return [
        words if fork is None else f"{words} from step {fork[0]}".lstrip()
        for words, fork in zip(differences, forks, strict=True)
    ]


def _format_settings(keys: Sequence[str], settings: Mapping[str, Any]) -> str:
    # a run with one value where others have a group, or a group where they have a value, lacks no key
    keys = [key for key in keys if key in settings or not any(_is_part(key, own) for own in settings)]
    shown = [
        f"{key}={str(settings[key])[:_MAX_VALUE_LENGTH]}" if key in settings else f"without {key}"
        for key in keys[:_MAX_DIFFERENCES]
    ]
    return " ".join([*shown, *([f"{len(keys) - len(shown)} more"] if len(keys) > len(shown) else [])])


def _is_part(key: str, other: str) -> bool:
    return key.startswith(f"{other}.") or other.startswith(f"{key}.")


def _leaves(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in config.items():
        found += _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
    return found
