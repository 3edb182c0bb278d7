"""Answers what OmegaConf asks of each value by the value's type, where that is enough.

A composition asks a hundred thousand times whether a value is missing, refers to another one, or is a structured
config. For nearly all of them, which are plain, OmegaConf imports modules and goes through abstract base classes.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from omegaconf import (
    AnyNode,
    BooleanNode,
    DictConfig,
    EnumNode,
    FloatNode,
    IntegerNode,
    ListConfig,
    StringNode,
    _utils,
    base,
)
from omegaconf._utils import ValueKind

_PLAIN = frozenset({int, float, bool, type(None), dict, list, tuple})
"""Types of values that are there and refer to nothing, and are no structured configs."""
_LEAVES = frozenset({AnyNode, StringNode, IntegerNode, FloatNode, BooleanNode, EnumNode})
_CONTAINERS = frozenset({DictConfig, ListConfig})
_UNSTRUCTURED = _PLAIN | _LEAVES | _CONTAINERS | {str}
"""Types of values that are no structured configs."""


def take_shortcuts() -> None:
    """Make OmegaConf ask this module."""
    for name, make in SHORTCUTS.items():
        _replace(name, make)
    base.Container._invalidate_flags_cache = _forget_flags  # type: ignore[method-assign]
    base.Container._re_parent = _adopt  # type: ignore[method-assign, assignment]


def _replace(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put a function in the place of one of OmegaConf's in all of its modules."""
    own = getattr(_utils, name)
    faster = make(own)
    for module in [module for key, module in sys.modules.items() if key.partition(".")[0] == "omegaconf"]:
        if getattr(module, name, None) is own:
            setattr(module, name, faster)


def _content(value: Any) -> Any:
    """Return what a node holds."""
    kind = type(value)
    if kind in _LEAVES:
        return value._val
    return value.__dict__["_content"] if kind in _CONTAINERS else value


def _is_missing(own: Callable[..., bool]) -> Callable[..., bool]:
    def is_missing(value: Any) -> bool:
        value = _content(value)
        kind = type(value)
        return value == "???" if kind is str else kind not in _PLAIN and own(value)

    return is_missing


def _is_interpolation(own: Callable[..., bool]) -> Callable[..., bool]:
    def is_interpolation(v: Any, strict_interpolation_validation: bool = False) -> bool:
        v = _content(v)
        kind = type(v)
        if kind in _PLAIN or (kind is str and "${" not in v):
            return False
        return own(v, strict_interpolation_validation)

    return is_interpolation


def _kind(own: Callable[..., ValueKind]) -> Callable[..., ValueKind]:
    def get_value_kind(value: Any, strict_interpolation_validation: bool = False) -> ValueKind:
        value = _content(value)
        kind = type(value)
        if kind in _PLAIN or (kind is str and "${" not in value and value != "???"):
            return ValueKind.VALUE
        return own(value, strict_interpolation_validation)

    return get_value_kind


def _is_none(own: Callable[..., bool]) -> Callable[..., bool]:
    def is_none(value: Any, resolve: bool = False, throw_on_resolution_failure: bool = True) -> bool:
        if type(value) is str or type(value) in _PLAIN:
            return value is None
        return own(value, resolve, throw_on_resolution_failure)

    return is_none


def _value(own: Callable[..., Any]) -> Callable[..., Any]:
    def get_value(value: Any) -> Any:
        kind = type(value)
        if kind in _LEAVES:
            return value._val
        return value if kind is str or kind in _PLAIN else own(value)

    return get_value


def _is_structured(own: Callable[..., bool]) -> Callable[..., bool]:
    def is_structured_config(obj: Any) -> bool:
        return type(obj) not in _UNSTRUCTURED and obj is not Any and own(obj)

    return is_structured_config


def _forget_flags(self: base.Container) -> None:
    own = self.__dict__
    if own["_flags_cache"] is not None:
        own["_flags_cache"] = None
        for value in _children(own.get("_content")):
            value._invalidate_flags_cache()


def _adopt(self: base.Container) -> None:
    for value in _children(self.__dict__["_content"]):
        if value is not None:
            value._set_parent(self)
            if isinstance(value, base.Box):
                value._re_parent()


def _children(content: Any) -> Iterable[Any]:
    return content.values() if type(content) is dict else content if type(content) is list else ()


SHORTCUTS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "_is_missing_value": _is_missing,
    "_is_interpolation": _is_interpolation,
    "get_value_kind": _kind,
    "_is_none": _is_none,
    "_get_value": _value,
    "is_structured_config": _is_structured,
}
"""Functions of OmegaConf's, and what makes the faster one of each."""
