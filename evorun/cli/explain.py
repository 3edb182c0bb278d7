"""Explanations of Hydra's and OmegaConf's errors, in one line that says what to write instead."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import OverrideParseException
from omegaconf.errors import InterpolationKeyError, MissingMandatoryValue, OmegaConfBaseException

from evorun.cli.compose import yaml_values
from evorun.cli.groups import CHOSEN_GROUPS, choices
from evorun.cli.usage import USAGES
from evorun.runner import registry

TOP_LEVEL = (*CHOSEN_GROUPS, "sandbox", "seed", "run", "evorun", "hydra")
"""The keys that a command line may begin with."""


def explain(error: Exception) -> str:
    """Explain an error of Hydra or OmegaConf in one line."""
    # Recognise errors by their texts: neither library has types or fields that tell these cases apart.
    text = str(error)
    missing = re.search(r"Could not find '([\w/]+)/([^/']*)'", text)
    if missing:
        group, name = missing.groups()
        if not group.startswith("hydra/"):
            group, _, name = f"{group}/{name}".partition("/")  # Hydra takes experiment=FOLDER/NAME for a nested group
        found = re.findall(r"^\t(\w+)$", text, re.MULTILINE)  # in --config-dir, too
        if group.startswith("hydra/"):
            return str(registry.unknown(group, name, found))
        known = choices(group)
        taken = {one.partition("/")[0] for one in known} | _list_stored(group)
        own = [choice for choice in found if choice not in taken]
        hint = "; one of your own needs --config-dir FOLDER" if group == "experiment" and not own else ""
        return f"{registry.unknown(group, name, known, own)}{hint}"
    unlisted = re.search(r"Could not load '(\w+)/([^']*)'", text)  # one of a list of choices
    if unlisted and unlisted.group(1) in CHOSEN_GROUPS:
        group, name = unlisted.groups()
        return str(registry.unknown(group, name, choices(group)))
    stray = re.search(r"Could not override '([^'.]+)([^']*)'", text)
    if stray:
        return _stray(*stray.groups())
    if re.search("training appears more than once|Multiple values for training", text):
        return (
            "student: expected none with a method that trains weights itself; set student=none or another method; or, "
            "where +training=NAME was given, leave out the +"
        )
    doubled = re.search(r"Multiple values for (\w+)|'\+\+(\w+)=|(\w+) appears more than once", text)
    if doubled:
        group = next(filter(None, doubled.groups()))
        return f"{group}: a new choice replaces the present one; write {group}=NAME, without +"
    ambiguous = re.search(r"Ambiguous value for argument '\+*([^=']+)=(.*)'", text)
    if ambiguous:
        key, values = ambiguous.groups()
        return (
            f"{key}={values}: several values make a sweep, one run per value: add -m; quote a value that has commas: "
            f"'{key}=\"{values}\"'; write a list as {key}=[{values}]"
        )
    swept = re.search(r"Sweep parameters '\+*(.*)' requires", text)
    if swept:
        return f"{swept.group(1)}: several values make a sweep, one run per value: add -m"
    if isinstance(error, OverrideParseException):
        given, reason = error.override.lstrip("+"), text.splitlines()[0]
        if "=" in given:
            return f"{given}: expected KEY=VALUE in Hydra's override grammar, got {reason}; quote the value"
        if given in USAGES:
            return f"{given}: expected the verb as the first word, got others before it; write evorun {given} ..."
        # A bare word is most often a mistyped verb, or a choice without its group.
        offers = [*USAGES, *(f"{group}={name}" for group in CHOSEN_GROUPS for name in choices(group))]
        words = {offer.rpartition("=")[2]: offer for offer in reversed(offers)}
        close = difflib.get_close_matches(given, words, n=1)
        hint = f"did you mean {words[close[0]]}? " if close else ""
        return f"{given}: {hint}expected a verb ({', '.join(USAGES)}), GROUP=CHOICE or KEY=VALUE; see evorun --help"
    appended = re.search(r"Could not append to config. An item is already at '([^']*)'", text)
    if appended:
        return f"{appended.group(1)}: has a value already; write {appended.group(1)}=VALUE, without +"
    merged = re.search(r"Error merging override \+*(.*)", text)
    if merged:
        return f"{merged.group(1)}: expected a value that its key takes, got: {str(error.__cause__).splitlines()[0]}"
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key}: expected a value, none was given; set {error.full_key}=VALUE"
    absent = re.search(r"Interpolation key '(\w+)\.name' not found", text)
    if isinstance(error, InterpolationKeyError) and absent:
        return f"{absent.group(1)}: expected a choice by name; set {absent.group(1)}=NAME"
    unchosen = re.search(r"'\S+_on_\$\{(task|budget)\}', possible interpolation keys: (.*)", text)
    if unchosen:
        group = next(key for key in ("method", unchosen.group(1)) if key not in unchosen.group(2).split(", "))
        return f"{group}: expected a choice by name; set {group}=NAME"
    reference = re.search(r"Interpolation key '(.*?)' not found|Unsupported interpolation type (\w+)", text)
    if isinstance(error, OmegaConfBaseException) and reference:
        wanted = reference.group(1) or f"{reference.group(2)}:..."
        return f"{error.full_key}: expected a value, got ${{{wanted}}}, which refers to nothing; write the value out"
    cause = error.__cause__
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return f"{first} ({str(cause).splitlines()[0]})" if cause is not None and str(cause) else first


def advise_on_experiment(text: str) -> str:
    """Return a job's error, as `advise_on_setter`."""
    job = HydraConfig.get()
    experiment = job.runtime.choices.get("experiment")
    return advise_on_setter(text, experiment, job.overrides.task) if experiment else text


def advise_on_setter(text: str, experiment: str, overrides: Sequence[str]) -> str:
    """Return an error about a key, with the experiment that set it, and how to take it away where it is unknown.

    overrides: of the command line. One about a key among them stays as it is.
    """
    about = re.match(r"([\w.]+): (unknown key; )?", text)
    given = dict(word.lstrip("+").partition("=")[::2] for word in overrides)
    if about is None or given.get(about.group(1), "null") != "null":  # mistyped on the command line
        return text
    key = about.group(1)
    if about.group(2):
        return f"{text}; if experiment={experiment} sets it, take it away with '~{key}'"
    own: Any = yaml_values("experiment", experiment)
    for part in key.split("."):
        own = own.get(part) if isinstance(own, Mapping) else None
    return text if own is None else f"{text}; experiment={experiment} sets it, {key}=VALUE replaces that"


def _list_stored(group: str) -> set[str]:
    """Return the choices that are registered with Hydra rather than found in files: judges, plug-ins."""
    try:
        return {name.removesuffix(".yaml") for name in ConfigStore.instance().list(group)}
    except OSError:  # none
        return set()


def _stray(key: str, rest: str) -> str:
    """Return the line for an unknown key, given as its part before the first dot and the rest."""
    if key in ("teacher", "teacher_engine"):
        return f"{key}: expected a student that it teaches, got none; set student=laft, or leave it out"
    if key in ("reflection", "reflection_engine"):
        return f"{key}: has no effect, only method=gepa has a model that reflects; leave it out"
    if key == "training":
        return f"{key}: expected a method that trains weights (method=grpo) or a student, got neither; leave it out"
    if key == "output":
        return (
            f"{key}: expected hydra.run.dir=FOLDER for the folder of a run, or hydra.sweep.dir=FOLDER for a sweep's; "
            "other verbs, such as evorun replay, take output="
        )
    if key == "hydra":
        return f"{key}{rest}: Hydra has no such key; evorun --cfg hydra shows its keys"
    close = difflib.get_close_matches(key, TOP_LEVEL, n=1)
    hint = f"did you mean {close[0]}{rest}? " if close else ""
    return f"{key}{rest}: unknown key; {hint}the top level has {', '.join(TOP_LEVEL)}"
