"""The symbolic operators on routes (Lyria paper, sections 4.1.6 and 4.1.7).

Decisions:

- Psi cuts both parents at the same index k, drawn from 1 to |V| - 1, and the child is closed with city 0. Parents need
  not have |V| + 1 entries: the child has the first k of one (all of it, when it is shorter) and what the other has
  after its first k (nothing, when it is shorter), the closing city apart.
- Omega as written replaces every occurrence of a duplicated city, and so loses that city. Its purpose ("becomes a
  route without missing cities") requires replacing only the extra occurrences: all but the first, which for city 0 is
  the start. The closing city is not one of them. The first min(|Y|, |M|) of them, in the route's order, get cities of
  M.
- phi is any injection, so it is drawn at random: another attempt at an earlier child can then differ.
- M holds the missing cities that the detector reported, of which `max_errors` may have cut some off. So a route whose
  only error is a repeated city (see `metrics`) stays as it is: Omega drops none.
- "SE(c) = (0, 0)", at which Psi returns c, means a fitness of 100 here (see `task`). Without a limit on the errors both
  agree; with a limit of 0, or a detector that sees nothing, the errors of wrong routes are empty too.
"""

from collections.abc import Sequence

import numpy as np

from evorun.tasks.tsp.routes import Route


def crossover(first: Route, second: Route, cities: int, rng: np.random.Generator) -> list[int]:
    """Return Psi(c1, c2, k): the beginning of one route and the rest of the other. cities: |V|, at least 2."""
    # The same index in both parents, also where their lengths differ.
    k = int(rng.integers(1, cities))
    return [*first[:-1][:k], *second[:-1][k:], 0]


def mutate(route: Route, missing: Sequence[int], rng: np.random.Generator) -> list[int]:
    """Return Omega(c): extra occurrences of cities replaced by missing ones."""
    seen: set[int] = set()
    extra = []  # indices of cities that the route has visited before, the closing one apart
    for index, city in enumerate(route[:-1]):
        if city in seen:
            extra.append(index)
        seen.add(city)
    child = list(route)
    for index, chosen in zip(extra[: len(missing)], rng.permutation(len(missing)).tolist(), strict=False):
        child[index] = missing[chosen]
    return child
