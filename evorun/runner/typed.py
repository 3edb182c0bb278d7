"""Conversion of composed values to the dataclasses that are their schemas, with errors that name the key."""

import copy
import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException

from evorun.errors import ConfigError
from evorun.runs.budget import BudgetConfig

T = TypeVar("T")


def typed(schema: type[T], values: Mapping[str, Any], key: str) -> T:
    """Return an instance of the dataclass with these values. Raises ConfigError for a wrong key or type."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{key}: expected a group of settings ({key}.KEY=VALUE), got {values!r}")
    refuse_long_numbers(values, key)
    types = get_type_hints(schema)
    fields = {field.name: types[field.name] for field in dataclasses.fields(cast(Any, schema))}
    # Nested groups first, so that an error names their own keys.
    nested: dict[str, Any] = {
        name: typed(cast(type, group), values[name], f"{key}.{name}")
        for name, group in fields.items()
        if dataclasses.is_dataclass(group) and name in values
    }
    exact = _find_exact({name: value for name, value in values.items() if name not in nested}, fields)
    if exact is not None and not _required(cast(Any, schema)) - values.keys():
        return schema(**{**_defaults(cast(Any, schema)), **exact, **nested})
    try:
        merged = OmegaConf.merge(_as_composed(cast(Any, schema)), OmegaConf.create(dict(values)))
        return cast(T, OmegaConf.to_object(merged))
    except MissingMandatoryValue as error:
        full_key = f"{key}.{error.full_key}"
        raise ConfigError(f"{full_key}: expected a value, none was given; set {full_key}=VALUE") from error
    except ConfigKeyError as error:
        given = str(error.full_key)
        if (key, given) == ("task", "instance_seed"):
            raise ConfigError(
                "task.instance_seed: this key is now task.draw_seed, as for every task; set task.draw_seed=N"
            ) from error
        hint = hint_at_key(key, given, list(fields))
        raise ConfigError(f"{key}.{given}: unknown key; {hint}{key} has {', '.join(fields)}") from error
    except OmegaConfBaseException as error:
        given = str(error.full_key)
        leaf = given.partition(".")[0].partition("[")[0]
        name = _name_type(fields[leaf]) if leaf in fields else "another type"
        hint = f"; write {key}.{leaf}=[{values[leaf]}]" if name.startswith("list") and given == leaf else ""
        raise ConfigError(f"{key}.{given}: expected {name}, got {values.get(leaf)!r}{hint}") from error


def _name_type(hint: Any) -> str:
    """Return a type as it is written: `int`, `int | None`, `list[str]`."""
    if type(None) in get_args(hint):
        return " | ".join("None" if member is type(None) else _name_type(member) for member in get_args(hint))
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def _find_exact(values: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return copies of values that have these types; None if OmegaConf has to convert or refuse some.

    It takes ten times as long, and nearly all composed values have their types.
    """
    try:
        if any(map(_is_open, values.values())):
            values = cast(Any, OmegaConf.to_container(OmegaConf.create(dict(values)), resolve=True))
            if any(map(_is_open, values.values())):
                return None
        return {name: copy.deepcopy(msgspec.convert(value, types[name])) for name, value in values.items()}
    except (KeyError, TypeError, OmegaConfBaseException, msgspec.ValidationError):
        return None


def _is_open(value: object) -> bool:
    """Return whether a value refers to another one, or is missing."""
    if isinstance(value, str):
        return value == MISSING or "${" in value
    if isinstance(value, Mapping):
        return any(map(_is_open, value.values()))
    return isinstance(value, list | tuple) and any(map(_is_open, value))


@cache
def _required(schema: type) -> set[str]:
    """Return the names of a dataclass's fields that are to be given."""
    fields = dataclasses.fields(cast(Any, schema))
    return {field.name for field in fields if field.default_factory is dataclasses.MISSING and _has_none(field)}


@cache
def _defaults(schema: type) -> dict[str, Any]:
    """Return the defaults of a dataclass's fields in their types, but for those that each instance makes anew."""
    types = get_type_hints(schema)
    return {
        field.name: float(field.default)
        if types[field.name] in (float, float | None) and isinstance(field.default, int)
        else field.default
        for field in dataclasses.fields(cast(Any, schema))
        if not _has_none(field)
    }


def _has_none(field: dataclasses.Field[Any]) -> bool:
    """Return whether a field has no default value, for Python or for OmegaConf."""
    return field.default is dataclasses.MISSING or _is_open(field.default)


@cache
def _as_composed(schema: type) -> Any:
    """Return a dataclass with its types and defaults, as OmegaConf merges values into a copy of it."""
    return OmegaConf.structured(schema)


def hint_at_key(group: str, key: str, fields: Sequence[str]) -> str:
    """Return a hint at the key that a user may have meant; empty if none of a group's fields is close."""
    if group == "method" and key in {field.name for field in dataclasses.fields(BudgetConfig)}:
        return f"set budget.{key}, which applies to every method that it can limit; "
    close = difflib.get_close_matches(key, fields, n=1)
    return f"did you mean {group}.{close[0]}? " if close else ""


def refuse_long_numbers(value: object, key: str) -> None:
    """Raise ConfigError for an integer of more than 64 bits: records cannot hold it, and some checks fail on it."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            refuse_long_numbers(item, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for item in value:
            refuse_long_numbers(item, key)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{key}: expected a number of at most 18 digits, got one of {value.bit_length()} bits")


def read_name(config: Mapping[str, Any], key: str) -> str:
    """Return the name of a group's choice. Raises ConfigError if there is none."""
    node = config.get(key)
    if not isinstance(node, Mapping) or not isinstance(node.get("name"), str):
        raise ConfigError(f"{key}: expected a name ({key}=NAME), got {node!r}")
    return str(node["name"])
