"""Routes and distances as plain values.

A route begins and ends with city 0. Distances are a symmetric matrix with a zero diagonal, rounded to two decimals:
the prompt's numbers count.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from evorun.tasks.puzzles.denials import drop_dismissed
from evorun.tasks.puzzles.lenient import integer_lists, strip_markup

Route = Sequence[int]
"""Cities from 0 to n - 1 in the order of their visits; both ends are 0."""
Distances = Sequence[Sequence[float]]
"""n rows of n numbers."""

DECIMALS = 2
_INTEGER = re.compile(r"[-+]?[0-9]+")
# Separators of a route's numbers as models write them: `1. 0`, `City 0`, `"0"`, `0 -> 3`, `0-3`
_STEPS = re.compile(r"^[ \t]*[0-9]{1,3}[.)][ \t]+(?=[0-9]+[ \t]*$)", re.MULTILINE)
_WORDS = re.compile(r"\b(?:(?:city|node|stop)(?:\b|_)|c(?=[0-9]))|[\"']", re.IGNORECASE)
# Words that continue the trip; "and" alone does not
_MOVES = re.compile(
    r"""
      ^ [ \t]* step [ \t]* [0-9]{1,3} [ \t]* [:.)]
    | \b (?:(?:and [ \t]+)? (?:then|next|finally|lastly),? [ \t]+)?
      (?: (?:start|begin|end|finish)(?:ing|s)? [ \t]+ (?:in|at|from|with) (?=[ \t]+[0-9])
        | (?:(?:and|come|continue|go|head|move|proceed|return|travel)(?:ing|s|es)? [ \t]+)?
          (?:back [ \t]+)? to (?=[ \t]+[0-9])
        | visit (?=[ \t]+[0-9])
      )
    | (?:\band [ \t]+)? \b(?:then|next|finally|lastly) ,? (?=[ \t]+[0-9])
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_HYPHENS = re.compile(r"(?<=[0-9])(?:[ \t]*-?>\s*|[ \t]+[-\u2013\u2014][ \t]+|[-\u2013\u2014]|\),\s*\()(?=[0-9])")


def format_route(route: Iterable[int]) -> str:
    """Return a route as canonical text."""
    return ",".join(map(str, route))


def parse_route(answer: str) -> list[int]:
    """Return the route of an answer in canonical form."""
    return [int(city) for city in answer.split(",")]


def read(block: str, cities: int) -> str:
    """Return the canonical text of a route through some of `cities` cities. Raises ValueError with what is wrong.

    Numbers are separated by commas, blanks or both. A route that omits or repeats cities is
    well-formed; one with more than 4n entries is not, so that no route can grow without bound. In a text of another
    form (brackets, arrows, names of cities, a length behind it) the list counts that is a route through more than half
    of the cities, unless the text holds two different ones.
    """
    try:
        return format_route(_read_requested_form(block, cities))
    except ValueError:
        text = _MOVES.sub(" ", _WORDS.sub(" ", _STEPS.sub("", strip_markup(block))))
        routes = map(_merge_legs, integer_lists(drop_dismissed(_HYPHENS.sub(",", text))))
        found = {format_route(route) for route in routes if _is_route(route, cities)}
        if len(found) != 1:
            raise
        return found.pop()


def _merge_legs(cities: Route) -> Route:
    """Return the cities of a route that is given leg by leg (0-3, 3-7, 7-0); other routes unchanged."""
    joined = len(cities) > 2 and cities[1:-1:2] == cities[2::2]
    return [*cities[::2], cities[-1]] if joined and len(cities) % 2 == 0 else cities


def _is_route(route: Route, cities: int) -> bool:
    visited = set(route)
    return (
        route[0] == route[-1] == 0
        and cities < 2 * len(visited)
        and len(route) <= 4 * cities
        and visited <= set(range(cities))
    )


def _read_requested_form(block: str, cities: int) -> Route:
    entries = block.replace(",", " ").split(None, 4 * cities)
    if len(entries) > 4 * cities:
        raise ValueError(f"expected {cities + 1} cities, got more than {4 * cities}")
    for entry in entries:
        if not _INTEGER.fullmatch(entry):
            raise ValueError(f"expected whole numbers separated by commas, got '{entry[:20]}'")
        # Python refuses to convert numbers of thousands of digits.
        if len(entry) > 9 or not 0 <= int(entry) < cities:
            raise ValueError(f"expected cities from 0 to {cities - 1}, got {entry[:20]}")
    route = [int(entry) for entry in entries]
    if len(route) < 2 or route[0] or route[-1]:
        raise ValueError(f"expected a route that begins and ends with city 0, got '{format_route(route)[:40]}'")
    return route


def length(distances: Distances, route: Route) -> float:
    """Return D(r), the length of a route (section 3.3)."""
    total = 0.0
    previous = route[0]
    for city in route[1:]:
        total += distances[previous][city]
        previous = city
    return total


def missing(cities: int, route: Route) -> list[int]:
    """Return the cities that a route omits, in ascending order (MCS of section 4.1.1)."""
    visited = set(route)
    return [] if len(visited) == cities else [city for city in range(cities) if city not in visited]


def repeated(route: Route) -> list[int]:
    """Return the cities that a route visits more than once, the closing visit apart, in ascending order."""
    return sorted(city for city, visits in Counter(route[:-1]).items() if visits > 1)
