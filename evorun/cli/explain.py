"""Errors of Hydra and OmegaConf, in one line that says what to write instead."""

import difflib
import re

from hydra.errors import OverrideParseException
from omegaconf.errors import InterpolationKeyError, MissingMandatoryValue

from evorun.cli.compose import CHOSEN_GROUPS, RUN_GROUPS, choices
from evorun.cli.usage import USAGES
from evorun.runner import registry


def explain(error: Exception) -> str:
    """Return in one line what Hydra or OmegaConf found wrong."""
    # Recognised by their texts: neither library gives its errors types or fields that tell these cases apart.
    text = str(error)
    missing = re.search(r"Could not find '([\w/]+)/([^/']*)'", text)
    if missing:
        group, name = missing.groups()
        if not group.startswith("hydra/"):
            group, _, name = f"{group}/{name}".partition("/")  # Hydra takes experiment=FOLDER/NAME for a nested group
        offered = re.findall(r"^\t(\w+)$", text, re.MULTILINE) if group.startswith("hydra/") else choices(group)
        return str(registry.unknown(group, name, offered))
    stray = re.search(r"Could not override '([^'.]+)'", text)
    if stray and stray.group(1) in ("teacher", "teacher_engine"):
        return f"{stray.group(1)}: expected a student that it teaches, got none; set student=laft, or leave it out"
    if stray and stray.group(1) in ("reflection", "reflection_engine"):
        return f"{stray.group(1)}: has no effect, only method=gepa has a model that reflects; leave it out"
    if stray:
        known = ", ".join((*RUN_GROUPS, "sandbox", "seed", "experiment", "run", "evorun", "hydra"))
        return f"{stray.group(1)}: unknown key; the top level has {known}"
    if "training appears more than once" in text:
        return "student: expected none with a method that trains weights itself; set student=none or another method"
    if isinstance(error, OverrideParseException):
        given, reason = error.override.lstrip("+"), text.splitlines()[0]
        if "=" in given:
            return f"{given}: expected KEY=VALUE in Hydra's override grammar, got {reason}; quote the value"
        # A word alone is most often a mistyped verb, or a choice without its group.
        offers = [*USAGES, *(f"{group}={name}" for group in CHOSEN_GROUPS for name in choices(group))]
        words = {offer.rpartition("=")[2]: offer for offer in reversed(offers)}
        close = difflib.get_close_matches(given, words, n=1)
        hint = f"did you mean {words[close[0]]}? " if close else ""
        return f"{given}: {hint}expected a verb ({', '.join(USAGES)}), GROUP=CHOICE or KEY=VALUE; see evorun --help"
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key}: expected a value, none was given; set {error.full_key}=VALUE"
    absent = re.search(r"Interpolation key '(\w+)\.name' not found", text)
    if isinstance(error, InterpolationKeyError) and absent:
        return f"{absent.group(1)}: expected a choice by name; set {absent.group(1)}=NAME"
    unchosen = re.search(r"'\S+_on_\$\{(task|budget)\}', possible interpolation keys: (.*)", text)
    if unchosen:
        group = next(key for key in ("method", unchosen.group(1)) if key not in unchosen.group(2).split(", "))
        return f"{group}: expected a choice by name; set {group}=NAME"
    cause = error.__cause__
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return f"{first} ({str(cause).splitlines()[0]})" if cause is not None and str(cause) else first
