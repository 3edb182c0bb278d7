"""The symbolic operators: ECO and EMO for Sudoku (Lyria paper, sections 4.1.6 and 4.1.7).

Decisions:

- Algorithm 1 hands the operators the errors that the detector reported, at most `max_errors` of them, so they
  see only those: a position that was not reported counts as right.
- "SE(c) is empty", at which both operators return c, means a fitness of 100 here: without a limit on the errors both
  agree, but with a limit of 0, or a detector that sees nothing, the list is empty for wrong answers too.
- The paper confines errors to the removed positions. Either operator restores the given number at a reported
  position that the puzzle gives; a position that still has it is not mutated.
- Where a parent's answer could not be read there is nothing to combine: crossover returns the other parent (the first
  where neither could be read), mutation the same response.
"""

from collections.abc import Callable, Sequence

import numpy as np

from evorun.runs.candidates import Response
from evorun.tasks.capabilities import Individual
from evorun.tasks.sudoku.grid import Board, join_cells, read_cells

Respond = Callable[[str], Response]
"""Makes a response from an answer."""
_RIGHT = 100.0


def crossover(board: Board, first: Individual, second: Individual, respond: Respond) -> Response:
    """Return the second parent with the first's numbers where only the second has an error."""
    if first.response.answer is None or second.response.answer is None:
        return first.response if second.response.answer is None else second.response
    if first.fitness >= _RIGHT:
        return first.response
    if second.fitness >= _RIGHT:
        return second.response
    cells, better = list(read_cells(second.response.answer)), read_cells(first.response.answer)
    wrong = set(_positions(board, first))
    for cell in _positions(board, second):
        if cell in board.givens:
            cells[cell] = board.givens[cell]
        # The first parent's number counts only where it was not reported.
        elif cell not in wrong:
            cells[cell] = better[cell]
    return _child(board, cells, (second.response, first.response), respond)


def mutate(board: Board, individual: Individual, rng: np.random.Generator, respond: Respond) -> Response:
    """Return the individual with a random number at one of its error positions."""
    response = individual.response
    if response.answer is None or individual.fitness >= _RIGHT:
        return response
    cells = list(read_cells(response.answer))
    positions = [cell for cell in _positions(board, individual) if cells[cell] != board.givens.get(cell)]
    if not positions:
        return response
    cell = positions[int(rng.integers(len(positions)))]
    cells[cell] = board.givens.get(cell) or str(1 + int(rng.integers(board.layout.size)))
    return _child(board, cells, (response,), respond)


def _positions(board: Board, individual: Individual) -> list[int]:
    """Return the reported cells, each once."""
    size = board.layout.size
    return list(dict.fromkeys(i * size + j for i, j, _ in individual.errors.findings))


def _child(board: Board, cells: Sequence[str], parents: Sequence[Response], respond: Respond) -> Response:
    """Return a child's response: the parent's where both have the same answer."""
    answer = join_cells(cells, board.layout.size)
    return next((parent for parent in parents if parent.answer == answer), None) or respond(answer)
