"""The metrics of a route (Lyria paper, section 3.3) and its errors (section 4.1.1).

Decisions:

- The paper's CR equates r' with "min D(r)", a route with a length. An argmin is meant,
  and there are always several (each route can be travelled backwards): a route is correct when its length
  is the optimum's, up to a relative tolerance of 1e-9 for sums of floats, when it has |V| + 1 entries, and when no city
  is missing. The last condition is in "r' in R" already, but answers need not lie in R.
- A route that leaves cities out can be shorter than the optimum, and by the formula alone its EDM would be negative and
  reward it. EDM is 0 there, and within the tolerance of the optimum too, so that a correct route has exactly 0.
- MC counts cities that are never visited; a repeated one counts only by what it costs. So a route with all cities and a
  detour that costs nothing (twice in the same place, or through a city that lies on the way) would have a PS of 100
  without being correct, and end a search that stops at 100. It is scored as if one city were missing.
- SE has two parts. Here every missing city is an error of its own, in ascending order, and the excess distance comes
  last: a detector that names few errors names first what can be corrected. An excess within the tolerance is no error.
- Both parts are empty for the route with all cities and a detour that costs nothing, though it is wrong. There, and
  only there, the cities that it visits more than once are its errors (ours). So a route has errors exactly when it is
  not correct.
- A text that could not be read has the worst value of each metric: EDM 3, MC |V|, PS 0.

`excess_distance_multiplier_paper` and `penalised_score_paper` are EDM and PS of section 3.3 to the letter. EDM is
negative for a route that is shorter than the optimum since it leaves cities out; PS is 100 for a route with all cities
and a detour that costs nothing. In all other cases they are as above. The paper has no other score of this problem.
"""

from typing import Any

from evorun.tasks.base import Grade
from evorun.tasks.puzzles.puzzle import PENALISED_SCORE, PENALISED_SCORE_PAPER
from evorun.tasks.tsp.routes import DECIMALS, Distances, Route, length, missing, repeated

EXCESS_DISTANCE_MULTIPLIER = "excess_distance_multiplier"
EXCESS_DISTANCE_MULTIPLIER_PAPER = "excess_distance_multiplier_paper"
MISSING_CITIES = "missing_cities"
MISSING, REPEATED, EXCESS = "missing", "repeated", "excess"
"""Kinds of errors: `["missing", city]`, `["repeated", city]` and `["excess", distance]`."""

_SATURATION = 3.0
_TOLERANCE = 1e-9


def measure(distances: Distances, optimum: float, route: Route | None) -> Grade:
    """Return CR, EDM, MC and PS of a route; None: the text could not be read."""
    cities = len(distances)
    if route is None:
        return _grade(False, 0.0, _SATURATION, cities, 0.0, _SATURATION)
    omitted = len(missing(cities, route))
    relative = min(_SATURATION, _excess(distances, optimum, route) / optimum)
    multiplier = max(0.0, relative)
    correct = not omitted and not multiplier and len(route) == cities + 1
    # The detour that costs nothing; see the decisions above.
    omitted_or_detour = omitted if omitted or multiplier or correct else 1
    score = 100 * min(1 - multiplier / _SATURATION, 1 - omitted_or_detour / cities)
    score_paper = 100 * min(1 - relative / _SATURATION, 1 - omitted / cities)
    return _grade(correct, score, multiplier, omitted, score_paper, relative)


def findings(distances: Distances, optimum: float, route: Route) -> tuple[Any, ...]:
    """Return the missing cities and, last, the excess distance to two decimals; without either, repeated cities."""
    omitted = [[MISSING, city] for city in missing(len(distances), route)]
    excess = _excess(distances, optimum, route)
    if excess > 0:
        return (*omitted, [EXCESS, round(excess, DECIMALS)])
    return tuple(omitted or [[REPEATED, city] for city in repeated(route)])


def _excess(distances: Distances, optimum: float, route: Route) -> float:
    """Return the excess of a route's length over the optimum; 0 within the tolerance, negative for a shorter route."""
    excess = length(distances, route) - optimum
    # Floating-point sums of the same edges differ with their order.
    return excess if abs(excess) > _TOLERANCE * optimum else 0.0


def _grade(
    correct: bool, score: float, multiplier: float, omitted: int, score_paper: float, multiplier_paper: float
) -> Grade:
    scores = {
        PENALISED_SCORE: score,
        EXCESS_DISTANCE_MULTIPLIER: multiplier,
        MISSING_CITIES: float(omitted),
        PENALISED_SCORE_PAPER: score_paper,
        EXCESS_DISTANCE_MULTIPLIER_PAPER: multiplier_paper,
    }
    return Grade(correct=correct, scores=scores)
