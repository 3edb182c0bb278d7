"""Composed configurations as plain data that means the same in every folder and at any later time."""

import contextlib
import copy
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evorun.cli.compose import register, yaml_values
from evorun.cli.explain import explain
from evorun.cli.groups import LIKE, choices, config_folder
from evorun.cli.overrides import permit_unlisted_key, refuse_wrong_choices
from evorun.cli.study_record import recorded_study
from evorun.errors import ConfigError, EvorunError
from evorun.models.config import OTHER_ROLES
from evorun.runner import registry
from evorun.runner.served import PANEL, SAME_AS_POLICY
from evorun.runs.directory import load_manifest
from evorun.tasks.rubrics import is_rubric_file

PATHS = {
    "method": (
        "data",
        "demonstrations",
        "item_prompts",
        "meta_prompts",
        "operator_prompts",
        "other_roots",
        "prompts",
        "root_principles",
    ),
    "task": ("corpus", "data", "prompts", "rows"),
}
"""Keys, by group, whose texts name a file or a folder."""
FOLDERS_OR_NAMES = {"task": ("embeddings", "prompt_tokenizer", "retriever_model")}
"""Keys, by group, whose texts name a folder where there is one, else something elsewhere, as on the hub."""
FUNCTIONS = {"task": ("environment", "function")}
"""Keys, by group, whose texts name a function of a module or of a file: FILE.py:NAME."""
RUN_PATHS = {"run": ("stages",), "sandbox": ("cache",), "training": ("accelerate_config", "sync_folder")}
"""The same as `PATHS`, of how a run is carried out."""
# By role: the key of the engine that serves it.
_MODELS = {"model": "engine", **{role: f"{role}_engine" for role in OTHER_ROLES}, "teacher": "teacher_engine"}


def composed(overrides: Sequence[str]) -> dict[str, Any]:
    """Compose a run's configuration for a command other than a run. Raises ConfigError."""
    words = [permit_unlisted_key(override) for override in overrides]
    register(words)
    refuse_wrong_choices(words)
    return _with_hydra(lambda: plain(compose("config", overrides=words)))


def composed_launcher(overrides: Sequence[str]) -> dict[str, Any]:
    """Compose the settings of a sweep's launcher, `hydra.launcher`. Raises ConfigError."""
    register(overrides)

    def launcher() -> dict[str, Any]:
        hydra = compose("config", overrides=list(overrides), return_hydra_config=True).hydra
        return dict(OmegaConf.to_container(hydra.launcher, resolve=True))  # type: ignore[arg-type]

    return _with_hydra(launcher)


def _with_hydra(made: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    # Whoever asks may be an application of Hydra's, as evorun is, and there is one such state in a process.
    state = GlobalHydra.instance()
    outer, state.hydra = state.hydra, None
    try:
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            return made()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from error
    finally:
        state.hydra = outer


def plain(composed: DictConfig) -> dict[str, Any]:
    """Return a composed configuration as plain data. Raises ConfigError for a missing value."""
    try:
        config: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(explain(error)) from error
    for group in LIKE:
        values = config.get(group)
        if isinstance(values, dict) and values.get("name") == PANEL and isinstance(values.get("members"), list):
            values["members"] = [_member(group, member) for member in values["members"]]
    return dict(config)


def _member(group: str, given: Any) -> Any:
    """Return the values of a panel's member, given by its name alone or together with some values."""
    given = {"name": given} if isinstance(given, str) else given
    name = given.get("name") if isinstance(given, dict) else None
    offered = [SAME_AS_POLICY, *choices(LIKE[group])]
    if not isinstance(name, str) or name not in offered:
        raise registry.unknown(group, str(name if isinstance(given, dict) else given), offered)
    return {**yaml_values(LIKE[group], name), **given}


def with_absolute_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with absolute paths of files, folders, runs and local models, and with its study."""
    absolute = with_absolute_runs(config)
    if isinstance(absolute.get("study"), str):
        absolute["study"] = recorded_study(absolute["study"])
    _replace(absolute, PATHS)
    method = _get_settings(absolute, "method")
    if isinstance(method.get("rubric"), str) and is_rubric_file(method["rubric"]):
        method["rubric"] = _absolute(method["rubric"])
    for group, keys in FOLDERS_OR_NAMES.items():
        values = _get_settings(absolute, group)
        values |= {key: _absolute(values[key]) for key in keys if _is_folder(values.get(key))}
    for group, names in FUNCTIONS.items():
        values = _get_settings(absolute, group)
        named = {key: values[key] for key in names if isinstance(values.get(key), str)}
        values |= {key: _absolute(text) for key, text in named.items() if text.rpartition(":")[0].endswith(".py")}
    for role, engine_key in _MODELS.items():
        engines = _panel(absolute, engine_key)
        for number, model in enumerate(_panel(absolute, role)):
            engine = engines[number % len(engines)] if engines else None
            if engine is not None and engine.get("name") == "policy":
                engine = absolute.get("engine")
            model |= {"adapter": _absolute(model["adapter"])} if model.get("adapter") else {}
            name = model.get("id")
            # A server's name for its model is no path, even if a folder happens to have that name.
            if _is_folder(name) and not (isinstance(engine, dict) and _is_served_by_name(name, engine)):
                model["id"] = _absolute(name)
    return absolute


def _panel(config: Mapping[str, Any], group: str) -> list[dict[str, Any]]:
    """Return the values of a group, or of the members of a panel."""
    values = config.get(group)
    found = values["members"] if isinstance(values, dict) and isinstance(values.get("members"), list) else [values]
    return [member for member in found if isinstance(member, dict)]


def _is_served_by_name(model: str, engine: Mapping[str, Any]) -> bool:
    """Tell whether the model's id is a server's name for it, here or in the replayed run."""
    if engine.get("name") == "replay" and isinstance(engine.get("run"), str):
        with contextlib.suppress(EvorunError):  # the engine will report a missing run
            return model in {recorded.id for recorded in load_manifest(Path(engine["run"])).models.values()}
    return engine.get("name") in ("server", "tinker")


def with_absolute_runs(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with absolute paths of replayed runs, stages and the trainer; no result changes."""
    absolute = copy.deepcopy(dict(config))
    for group in _MODELS.values():
        for engine in _panel(absolute, group):
            for key in ("run", "url_files"):
                if isinstance(engine.get(key), str) and engine[key]:
                    engine[key] = _absolute(engine[key])
    _replace(absolute, RUN_PATHS)
    if isinstance(absolute.get("prices"), str) and absolute["prices"]:
        absolute["prices"] = _absolute(absolute["prices"])
    trackers = _get_settings(absolute, "tracker")
    _replace(trackers, dict.fromkeys(trackers, ("folder",)))
    return absolute


def _replace(config: dict[str, Any], paths: Mapping[str, Sequence[str]]) -> None:
    """Make the texts under these keys absolute paths."""
    for group, keys in paths.items():
        values = _get_settings(config, group)
        for key in keys:
            given = values.get(key)
            if isinstance(given, str) and given:
                values[key] = _absolute(given)
            elif key == "other_roots" and isinstance(given, list):
                # A text is the path of a root; a list holds a root's principles.
                values[key] = [_absolute(root) if isinstance(root, str) and root else root for root in given]


def _get_settings(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    values = config.get(name)
    return values if isinstance(values, dict) else {}


def _is_folder(name: Any) -> TypeGuard[str]:
    return isinstance(name, str) and bool(name) and Path(name).expanduser().is_dir()


def _absolute(path: str) -> str:
    return os.path.abspath(Path(path).expanduser())
