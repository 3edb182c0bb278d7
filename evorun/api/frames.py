"""Records as data frames: the columns that a record comes to, and frames of pandas or polars made of them.

A field within an object has a dot (`best.answer`), as has each key of an object with any keys (`scores.NAME`); an
interval `ci95` is `low` and `high`.
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec

from evorun.errors import ConfigError, DataError, first_line

if TYPE_CHECKING:
    import pandas
    import polars

Format = Literal["pandas", "polars"]
"""The library of a data frame."""
Kind = Literal["string", "integer", "number", "boolean", "list", "nested list", "any"]
"""The type of a column's values; any: inferred from them."""

_KINDS: Mapping[Any, Kind] = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any"}
_EACH = "NAME"
"""Stands for each key of an object."""


class Leaf(NamedTuple):
    """A column, or one for each key of an object, that a record's field comes to."""

    column: str
    """Its name; `NAME` stands for each key."""
    owner: type
    """The record, or the object within it, that has the field."""
    field: str
    kind: Kind
    optional: bool
    """True where a value may be missing."""
    path: tuple[str | int, ...]
    """The attributes that lead to the value, and places in a tuple."""


@cache
def list_leaves(record: type[msgspec.Struct]) -> tuple[Leaf, ...]:
    """Return the columns of a type of records, in the order of its fields."""
    return tuple(_walk(record, "", (), optional=False))


def _walk(owner: type[msgspec.Struct], prefix: str, path: tuple[str | int, ...], *, optional: bool) -> Iterator[Leaf]:
    hints = get_type_hints(owner, include_extras=True)
    for field in msgspec.structs.fields(owner):
        leaf = Leaf(prefix + field.name, owner, field.name, "any", optional, (*path, field.name))
        yield from _find_leaves(hints[field.name], leaf)


def _find_leaves(hint: Any, leaf: Leaf) -> Iterator[Leaf]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from _find_leaves(arguments[0], leaf)
    elif origin in (Union, UnionType):
        (inner,) = (argument for argument in arguments if argument not in (NoneType, msgspec.UnsetType))
        yield from _find_leaves(inner, leaf._replace(optional=True))
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield from _walk(hint, f"{leaf.column}.", leaf.path, optional=leaf.optional)
    elif origin is dict:
        each = leaf._replace(column=f"{leaf.column}.{_EACH}", path=(*leaf.path, _EACH), optional=True)
        yield from _find_leaves(arguments[1], each)
    elif leaf.field == "ci95":
        for place, name in enumerate(("low", "high")):
            column = leaf.column.removesuffix("ci95") + name
            yield leaf._replace(column=column, kind="number", path=(*leaf.path, place))
    elif origin is tuple:
        yield leaf._replace(kind="nested list" if get_origin(arguments[0]) is tuple else "list")
    else:
        yield leaf._replace(kind="string" if origin is Literal else _KINDS[hint])


class Column(NamedTuple):
    """A column's values, None where one is missing."""

    kind: Kind
    optional: bool
    values: list[Any]


Columns = Mapping[str, Column]
"""Columns by name."""


def make_columns(
    record: type[msgspec.Struct], parts: Iterable[tuple[Mapping[str, Any], Iterable[msgspec.Struct]]]
) -> dict[str, Column]:
    """Return the columns of records of one type.

    parts: the records of each run, with the values that identify the run, which are the first columns.
    """
    leaves = list_leaves(record)
    names: dict[str, dict[str, None]] = {
        leaf.column: {} if _EACH in leaf.path else {leaf.column: None} for leaf in leaves
    }
    rows: list[dict[str, Any]] = []
    own: dict[str, list[Any]] = {}
    for identity, records in parts:
        first = len(rows)
        for given in records:
            row = {}
            for leaf in leaves:
                for name, value in _read(given, leaf):
                    row[name] = value
                    names[leaf.column].setdefault(name)
            rows.append(row)
        for name, value in identity.items():
            own.setdefault(name, []).extend([value] * (len(rows) - first))
    columns = {name: infer(values) for name, values in own.items()}
    for leaf in leaves:
        for name in names[leaf.column]:
            values = [row.get(name) for row in rows]
            columns[name] = infer(values) if leaf.kind == "any" else Column(leaf.kind, leaf.optional, values)
    return columns


def _read(record: msgspec.Struct, leaf: Leaf) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each column of a leaf in a record."""
    value: Any = record
    for place, part in enumerate(leaf.path):
        if value is None or value is msgspec.UNSET:
            break
        if part == _EACH:
            rest = leaf._replace(path=leaf.path[place + 1 :])
            for key, inner in value.items():
                yield from _read(inner, rest._replace(column=leaf.column.replace(_EACH, key, 1)))
            return
        value = value[part] if isinstance(part, int) else getattr(value, part)
    if _EACH not in leaf.path:
        yield leaf.column, None if value is msgspec.UNSET else value


def infer(values: list[Any]) -> Column:
    """Return the column of values whose type no record declares; lists, objects and mixed values become JSON texts."""
    known = {type(value) for value in values if value is not None}
    optional = None in values
    if not known:
        return Column("number", optional, values)
    for kinds, kind in (({str}, "string"), ({bool}, "boolean"), ({int}, "integer"), ({int, float}, "number")):
        if known <= kinds:
            return Column(kind, optional, values)  # type: ignore[arg-type]  # one of the kinds
    texts = [None if value is None else msgspec.json.encode(value).decode() for value in values]
    return Column("string", optional, texts)


@overload
def make_frame(columns: Columns, format: Literal["pandas"]) -> "pandas.DataFrame": ...
@overload
def make_frame(columns: Columns, format: Literal["polars"]) -> "polars.DataFrame": ...
def make_frame(columns: Columns, format: Format) -> Any:
    """Return a data frame. Raises ConfigError for a library that is unknown or missing, DataError for other values."""
    if format not in get_args(Format):
        raise ConfigError(f"format: expected one of {', '.join(get_args(Format))}, got '{format}'")
    if importlib.util.find_spec(format) is None:
        raise ConfigError(f"format='{format}': expected the package {format}, found none; pip install {format}")
    make = _make_pandas if format == "pandas" else _make_polars
    made = {}
    for name, column in columns.items():
        try:
            made[name] = make(column)
        except Exception as error:  # whatever a library says of a number beyond 64 bits, or half a character
            raise DataError(f"column {name}: expected values that {format} can hold, {first_line(error)}") from error
    library = importlib.import_module(format)
    return library.DataFrame(made)


class BoundFrame(NamedTuple):
    """A method that returns a data frame: call it."""

    columns: Callable[[], Columns]
    """Reads the frame's columns."""

    @overload
    def __call__(self, format: Literal["pandas"] = "pandas") -> "pandas.DataFrame": ...
    @overload
    def __call__(self, format: Literal["polars"]) -> "polars.DataFrame": ...
    def __call__(self, format: Format = "pandas") -> Any:
        """Return the frame. Raises EvorunError for files that cannot be read."""
        return make_frame(self.columns(), format)


def _make_pandas(column: Column) -> Any:
    import pandas

    missing = column.optional
    dtypes = {"string": "str", "integer": "Int64" if missing else "int64", "number": "float64"}
    dtypes |= {"boolean": "boolean" if missing else "bool"}
    return pandas.Series(column.values, dtype=dtypes.get(column.kind, "object"))


def _make_polars(column: Column) -> Any:
    import polars

    dtypes: dict[str, Any] = {
        "string": polars.String,
        "integer": polars.Int64,
        "number": polars.Float64,
        "boolean": polars.Boolean,
        "list": polars.List(polars.String),
        "nested list": polars.List(polars.List(polars.String)),
    }
    return polars.Series(values=column.values, dtype=dtypes[column.kind])
