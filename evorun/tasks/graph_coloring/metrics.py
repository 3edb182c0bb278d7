"""The metrics of section 3.2 of the Lyria paper: CR, CF, SC and PS.

Where the paper leaves a choice, these are ours:

- *Excess colours.* ECC(f') = |F'| - k is meant to count the distinct colours beyond k. But F' is the list of all
  assignments, so |F'| is its length, and every answer to the paper's graphs, even a right one, would have an excess of
  6. Here the excess is the number of distinct colours outside 0 to k - 1. For colours numbered from 0 without gaps that
  is k' - k.
- *The penalised score* uses that excess as k' - k. By the paper's k' alone, the colouring {0, 7} of two colours would
  have PS = 100 and still be wrong, and a search that stops at 100 would end there. Here PS = 100 exactly where CR = 1.
- *PS = 0 where k' >= |V|* is meant for an answer that gives each vertex a separate colour; here it holds only with an
  excess. Three colours on a triangle are right and thus score 100.
- *A graph without edges* has CF = 0: nothing can conflict.
- *An unreadable answer* has CR 0, CF 1, SC 0 and PS 0. A colour out of range does not make an answer unreadable.

`penalised_score_paper` is PS of section 3.2 to the letter, with k' = |{f'(v)}|, whatever the colours' numbers. It is
higher where a colour outside 0 to k - 1 replaces an allowed one (a right colouring in 1 to k has 100), and 0 where
k' >= |V|, even for a right answer. The paper's Score is `score` in every case.

In graphs with many more vertices than colours, the formula makes colours beyond k cheap: each costs 1 / (|V| - k) of
the score and can save more conflicts than that. We keep the paper's formula; CR shows the difference.
"""

from evorun.tasks.base import Grade
from evorun.tasks.graph_coloring.graph import Coloring, Graph, conflicts
from evorun.tasks.puzzles.puzzle import PENALISED_SCORE, PENALISED_SCORE_PAPER

UNREADABLE = Grade(
    correct=False,
    scores={"score": 0.0, PENALISED_SCORE: 0.0, "conflict_ratio": 1.0, PENALISED_SCORE_PAPER: 0.0},
)


def count_excess(coloring: Coloring, k: int) -> int:
    """Return the number of distinct colours outside 0 to k - 1; colours are never negative."""
    return sum(color >= k for color in set(coloring))


def measure(coloring: Coloring, graph: Graph, k: int) -> Grade:
    """Return all metrics of a colouring with non-negative colours."""
    # CF is the share of edges in conflict; CR requires none, and no excess.
    ratio = len(conflicts(coloring, graph.edges)) / len(graph.edges) if graph.edges else 0.0
    score, excess = 100 * (1 - ratio), count_excess(coloring, k)
    # The penalty ratio R: an excess of |V| - k (a separate colour per vertex) leaves nothing.
    max_excess = graph.vertices - k
    penalty_factor = 1.0 if excess == 0 else 1 - excess / max_excess if excess < max_excess else 0.0
    used = len(set(coloring))
    penalty_factor_paper = 0.0 if used >= graph.vertices else 1.0 if used <= k else 1 - (used - k) / max_excess
    scores = {
        "score": score,
        PENALISED_SCORE: score * penalty_factor,
        "conflict_ratio": ratio,
        PENALISED_SCORE_PAPER: score * penalty_factor_paper,
    }
    return Grade(correct=ratio == 0 and excess == 0, scores=scores)
