"""The command line's overrides and options, checked before Hydra sees them."""

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, QuotedString, ValueType
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evorun.cli.compose import yaml_values
from evorun.cli.explain import explain
from evorun.cli.groups import CHOSEN_GROUPS, ROLES, TYPED_GROUPS, choices
from evorun.cli.quoting import quoted
from evorun.cli.secrets import refuse_typed_secrets
from evorun.errors import ConfigError
from evorun.runner import registry
from evorun.runner.served import PANEL_ROLES
from evorun.runs.directory import TRAINING_EXECUTION_KEYS
from evorun.runs.files import reject_links

# Groups that decide how a run executes but not its results: their keys may change on a resume.
OF_LAUNCHER = ("hydra/launcher=", "hydra.launcher.")
"""Beginnings of the overrides of where a sweep's jobs run."""
MAY_CHANGE = ("engine", *(f"{role}_engine" for role in (*ROLES, "teacher")), "sandbox", "tracker", "run", "evorun")
_LONG_NUMBER = re.compile(r"[0-9][0-9_]{1000}")
MAY_CHANGE_IN_TRAINING = tuple(f"training.{key}" for key in TRAINING_EXECUTION_KEYS)


def permit_unlisted_key(argument: str) -> str:
    """Return KEY=VALUE so that Hydra accepts a key that the chosen YAML does not list, and a value that is a path.

    Hydra would refuse the key without naming others; the later check against the schema suggests the closest key.
    """
    group = re.match(r"([a-z_]+)\.", argument)
    argument = _quoted(argument)
    unlisted = argument.startswith("prices=") or (group and group.group(1) in TYPED_GROUPS and "=" in argument)
    return f"++{argument}" if unlisted else argument


def _quoted(argument: str) -> str:
    """Return KEY=VALUE, with quotes around a value outside Hydra's grammar: letters beyond ASCII, (, =.

    A possible list, mapping or choice of several values stays unchanged.
    """
    key, _, value = argument.partition("=")
    if not re.fullmatch(r"[+~]*[A-Za-z_][\w./@:-]*", key) or value[:1] in ("", "[", "{", "'", '"') or "," in value:
        return argument
    try:
        OverridesParser.create().parse_overrides([argument])
    except (HydraException, OmegaConfBaseException, ValueError):
        return f"{key}={quoted(value)}"
    return argument


def words(argument: str) -> list[str]:
    """Return the overrides that an argument stands for: `judge=[a,b]` is short for a panel with these members."""
    panel = re.fullmatch(rf"((?:{'|'.join(PANEL_ROLES)})(?:_engine)?)=(\[.*)", argument)
    if panel is None:
        return [permit_unlisted_key(argument)]
    group, members = panel.groups()
    value = parse(argument).value()
    panels = value.list if isinstance(value, ChoiceSweep) else [value]
    if not all(isinstance(choice, list) for choice in panels):
        raise ConfigError(
            f"{argument}: expected panels only; sweep single models by themselves, or as hydra.sweeper.variants"
        )
    return [f"{group}=panel", permit_unlisted_key(f"{group}.members={members}")]


def read_key(word: str) -> str:
    """Return the key of KEY=VALUE, without Hydra's `+`."""
    return word.lstrip("+").partition("=")[0]


def as_typed(override: str) -> str:
    """Undo `permit_unlisted_key`."""
    bare = override.removeprefix("++")
    return bare if permit_unlisted_key(bare) == override else override


def check_command_line(arguments: Sequence[str]) -> None:
    """Raise ConfigError for options that Hydra does not know, and for values that it cannot handle."""
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            options = get_args_parser().parse_args(list(arguments))
    except SystemExit as stop:
        if not stop.code:
            raise
        reason = message.getvalue().strip().rpartition("error: ")[2]  # argparse prints its usage first
        raise ConfigError(f"evorun: {reason}; see evorun --help") from stop
    if options.resolve and options.cfg is None:
        raise ConfigError("--resolve: expected --cfg job|hydra|all beside it, which prints the configuration")
    modes = {"--run": options.run, "--multirun": options.multirun, "--cfg": options.cfg, "--info": options.info}
    given = [name for name, value in modes.items() if value]
    if len(given) > 1:
        raise ConfigError(f"expected one of {', '.join(modes)}, got {' and '.join(given)}")
    for argument in arguments:
        if re.fullmatch(r"\+*hydra\.(run|sweep)\.dir=(''|\"\")?", argument):
            raise ConfigError(f"{read_key(argument)}: expected a folder, got an empty string")
        if re.match(r"\+*hydra\.sweep\.dir=", argument) and (sweep := Path(str(parse(argument).value()))).is_dir():
            reject_links(sweep)  # Hydra writes into it before any run begins
        if argument.startswith("="):
            raise ConfigError(f"{argument}: expected KEY=VALUE, got no key")
        if not argument.startswith("-") and "=" in argument:
            parse(argument)
        if re.match(r"\+*budget\.methods\b", argument):
            raise ConfigError(f"{argument}: has no effect, a budget's methods are composed first; set method.KEY=VALUE")
    _refuse_repeated_groups(arguments)
    refuse_wrong_choices(arguments)


def _refuse_repeated_groups(arguments: Sequence[str]) -> None:
    chosen: dict[str, str] = {}
    for argument in arguments:
        group, equals, _ = argument.lstrip("+").partition("=")
        if not equals or not (group in CHOSEN_GROUPS or group.startswith("hydra/")):
            continue
        if group in chosen:
            swept = f"; a sweep over both is -m {chosen[group]},{argument.partition('=')[2]}"
            raise ConfigError(
                f"{group}: expected once, got it twice: {chosen[group]} and {argument}"
                f"{swept if group in CHOSEN_GROUPS else ''}"
            )
        chosen[group] = argument


def refuse_wrong_choices(arguments: Sequence[str]) -> None:
    """Raise ConfigError when a group's choice is not a name (`budget=5`, `task=null`), and for overlong numbers."""
    for argument in arguments:
        _refuse_long_number(argument)
        group, equals, _ = argument.lstrip("+").partition("=")
        if equals and group in CHOSEN_GROUPS:
            value = parse(argument).value()
            for choice in value.list if isinstance(value, ChoiceSweep) else [value]:
                if not isinstance(choice, str | list | QuotedString | Glob):
                    raise registry.unknown(group, "null" if choice is None else str(choice), choices(group))


def parse(argument: str) -> Override:
    """Parse KEY=VALUE. Raises ConfigError when it is not in Hydra's grammar."""
    _refuse_long_number(argument)
    try:
        override = OverridesParser.create().parse_overrides([argument])[0]
        # Only Hydra's loader can expand a glob.
        if override.is_discrete_sweep() and override.value_type != ValueType.GLOB_CHOICE_SWEEP:
            list(override.sweep_string_iterator())  # a range among other values would fail later, without its key
    except HydraException as error:
        raise ConfigError(explain(error)) from error
    except (OmegaConfBaseException, ValueError) as error:
        reason = "" if isinstance(error, OmegaConfBaseException) else f", got: {error}"
        raise ConfigError(
            f"{argument}: expected KEY=VALUE in Hydra's override grammar, a range by itself{reason}"
        ) from error
    values = override.value()
    if isinstance(values, ChoiceSweep) and any(isinstance(value, Glob) for value in values.list):
        raise ConfigError(f"{argument}: expected a glob by itself; write {override.key_or_group}=glob([NAME,NAME,...])")
    return override


def _chosen_trackers(argument: str, value: Any) -> dict[str, Any]:
    """Return the settings of the trackers that an override of the group chooses. Raises ConfigError."""
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{argument}: expected tracker=NAME or tracker=[NAME,NAME]")
    for name in names:
        if name not in choices("tracker"):
            raise registry.unknown("tracker", name, choices("tracker"))
    return {name: dict(yaml_values("tracker", name)) for name in names if name != "none"}


def _refuse_long_number(argument: str) -> None:
    # Python refuses more than 4,300 digits, an error that Hydra does not expect.
    if _LONG_NUMBER.search(argument):
        key, _, value = argument.lstrip("+").partition("=")
        raise ConfigError(f"{key[:60]}: expected a number of at most 1,000 digits, got {value[:20]}...")


def change(
    config: Mapping[str, Any], arguments: Sequence[str], also: Sequence[str] = (), purpose: str = "a resume"
) -> dict[str, Any]:
    """Return a recorded configuration with changes. Raises ConfigError for a key that may not change.

    also: groups whose keys may change beside those that only decide how a run executes.
    purpose: what the changes are for, as errors say it.
    """
    refuse_typed_secrets(arguments)
    changed = OmegaConf.create(dict(config))
    groups = (*also, *MAY_CHANGE)
    for argument in arguments:
        override = parse(_quoted(argument))
        key = override.key_or_group
        if key == "tracker":
            changed[key] = _chosen_trackers(argument, override.value())
            continue
        group, dot, _ = key.partition(".")
        may_change = (group in groups and dot) or key in MAY_CHANGE_IN_TRAINING
        if not may_change or override.is_delete():
            allowed = ", ".join(["tracker=NAME", *(f"{group}.KEY=VALUE" for group in groups), *MAY_CHANGE_IN_TRAINING])
            raise ConfigError(f"{key}: cannot change on {purpose}, which may set {allowed}; start a new run instead")
        if override.is_sweep_override() or "${" in argument:
            raise ConfigError(f"{key}: expected one plain value on {purpose}, got {argument.partition('=')[2]}")
        try:
            OmegaConf.update(changed, key, override.value(), force_add=True)
        except (OmegaConfBaseException, ValueError) as error:  # ValueError: the recorded group is a list
            raise ConfigError(explain(error)) from error
    return dict(OmegaConf.to_container(changed, resolve=False))  # type: ignore[arg-type]
