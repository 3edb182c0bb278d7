"""Symbolic operators on programs: ECO and EMO on their syntax trees, as section 6 of the Lyria paper proposes.

The paper only names them, so their design is ours:

- Crossover replaces a function (or method) of the first program by the second's of the same name, with the parameters
  and decorators for which its body was written. If no function of the same name differs, a top-level function that the
  first program lacks is added to it, for a later operator to use. Imports, functions, classes and constants that the
  new function reads, and that the first program lacks, are added, too.
- Mutation makes one change: to a number (plus one, minus one, doubled, 0), a comparison, an arithmetic operator, or a
  bound of a `range` (plus one, minus one).
- Reported errors guide the choice if they name a location. Among test failures only a runtime error does: its traceback
  ends in a line of the program (a finding is that line, or None). Then mutation changes the function with that line, or
  the code outside functions. Crossover replaces a function of the first program that has an error, if the second's has
  none (as for graphs, whose conflicting vertices come from the parent without a conflict there). Without such lines all
  locations are equally likely, since a wrong output does not say where it comes from.
- "No errors", for which the paper's operators return the parent, means a fitness of 100. If a program could not be
  read or is not Python, crossover returns the other parent, and mutation the program itself.
- A child's source is generated from its tree, without comments and layout. The parent replaces it if Python would not
  parse the source into the same tree, or if it is too long.
"""

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from evorun.runs.candidates import Response
from evorun.tasks.capabilities import Individual
from evorun.tasks.livecodebench.programs import parse
from evorun.tasks.livecodebench.reading import MAX_SOURCE_BYTES

_RIGHT = 100.0
# Longer integers are not changed, so that no number grows without bound
_MAX_BITS = 256

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Change = Callable[[], None]
T = TypeVar("T")

_ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_COMPARISONS: tuple[tuple[type[ast.cmpop], ...], ...] = (_ORDERINGS, (ast.Is, ast.IsNot), (ast.In, ast.NotIn))
_ARITHMETIC: tuple[type[ast.operator], ...] = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
# Operands with which `*`, `+` and `%` are not arithmetic
_SEQUENCES = (ast.List, ast.Tuple, ast.ListComp, ast.JoinedStr)


def crossover(first: Individual, second: Individual, rng: np.random.Generator, max_chars: int) -> Response:
    """Return the first program with a function of the second, or a parent's response; never raises.

    max_chars: maximum length of a child, unless its first parent is already longer.
    """
    first_tree, second_tree = _tree(first), _tree(second)
    if first_tree is None or second_tree is None:
        return first.response if second_tree is None else second.response
    for parent in (first, second):
        if parent.fitness >= _RIGHT:
            return parent.response
    return _child(
        first_tree,
        lambda: _cross(first_tree, second_tree, _lines(first), _lines(second), rng),
        first.response,
        max_chars,
    )


def mutate(individual: Individual, rng: np.random.Generator, max_chars: int) -> Response:
    """Return the program with one change, or the individual's response; never raises. max_chars: see `crossover`."""
    tree = _tree(individual)
    if tree is None or individual.fitness >= _RIGHT:
        return individual.response
    return _child(tree, lambda: _mutate(tree, _lines(individual), rng), individual.response, max_chars)


def _tree(individual: Individual) -> ast.Module | None:
    return None if individual.response.answer is None else parse(individual.response.answer)


def _lines(individual: Individual) -> list[int]:
    return [finding for finding in individual.errors.findings if isinstance(finding, int)]


def _child(tree: ast.Module, change: Callable[[], bool], parent: Response, max_chars: int) -> Response:
    """Change the tree in place and return it as a response, or the parent's response without a valid change."""
    try:
        # Unparsed source does not always parse into the same tree (nested f-strings, huge numbers).
        source = ast.unparse(tree) if change() else None
        reparsed = None if source is None else parse(source)
        if source is None or reparsed is None or ast.dump(reparsed) != ast.dump(tree):
            return parent
    # ast.unparse raises ValueError for nodes without source text, such as some f-strings
    except (RecursionError, ValueError, MemoryError):
        return parent
    if len(source) > max(max_chars, len(parent.answer or "")) or len(source.encode()) > MAX_SOURCE_BYTES:
        return parent
    return Response(text=f"```python\n{source}\n```", answer=source, memory=parent.memory)


def _pick(options: Sequence[T], rng: np.random.Generator) -> T:
    return options[int(rng.integers(len(options)))]


# --- crossover ---


class _Place(NamedTuple):
    """A function, and its position in the body that holds it."""

    body: list[ast.stmt]
    at: int
    node: _Function


def _cross(
    receiver: ast.Module, donor: ast.Module, lines: Sequence[int], donor_lines: Sequence[int], rng: np.random.Generator
) -> bool:
    """Put a function of the donor into the receiver; return whether there was one."""
    receiver_places, donor_places = _places(receiver), _places(donor)
    different = [
        n
        for n in receiver_places
        if n in donor_places and ast.dump(receiver_places[n].node) != ast.dump(donor_places[n].node)
    ]
    bound = {name for statement in receiver.body for name in _bound_names(statement)}
    top = _after_imports(receiver)
    if different:
        # A function with an error, where the donor's function of the same name has none.
        failing = [
            n
            for n in different
            if _within(lines, receiver_places[n].node) and not _within(donor_lines, donor_places[n].node)
        ]
        name = _pick(failing or different, rng)
        receiver_places[name].body[receiver_places[name].at] = donor_places[name].node
        receiver.body[top:top] = _find_dependencies(donor_places[name].node, donor, bound)
        return True
    lacking = [s for s in donor.body if isinstance(s, _Function) and s.name not in bound]
    if not lacking:
        return False
    function = _pick(lacking, rng)
    receiver.body[top:top] = [*_find_dependencies(function, donor, bound | {function.name}), function]
    return True


def _places(tree: ast.Module) -> dict[str, _Place]:
    """Return functions by name and methods by `Class.method`; the last of the same name counts."""
    owners = [("", tree.body), *((f"{s.name}.", s.body) for s in tree.body if isinstance(s, ast.ClassDef))]
    return {
        f"{prefix}{node.name}": _Place(body, at, node)
        for prefix, body in owners
        for at, node in enumerate(body)
        if isinstance(node, _Function)
    }


def _within(lines: Sequence[int], node: _Function) -> bool:
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in lines)


def _after_imports(tree: ast.Module) -> int:
    """Return the index of the first statement that is neither an import nor the module's docstring."""
    for index, statement in enumerate(tree.body):
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not isinstance(statement, ast.Import | ast.ImportFrom) and not is_text:
            return index
    return len(tree.body)


def _find_dependencies(function: _Function, donor: ast.Module, bound: set[str]) -> list[ast.stmt]:
    """Return, in order, the donor's definitions that a function needs, directly or not, and that are not in `bound`."""
    definitions = {name: s for s in donor.body if _defines(s) for name in _bound_names(s)}
    needed: dict[int, ast.stmt] = {}
    pending: list[ast.stmt] = [function]
    while pending:
        for node in ast.walk(pending.pop()):
            if not isinstance(node, ast.Name) or node.id in bound or node.id not in definitions:
                continue
            definition = definitions[node.id]
            if id(definition) not in needed and definition is not function:
                needed[id(definition)] = definition
                pending.append(definition)
    return [statement for statement in donor.body if id(statement) in needed]


def _defines(statement: ast.stmt) -> bool:
    """Return whether a statement only defines a name: an import, a function, a class or a constant."""
    if isinstance(statement, ast.Assign):
        return not any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(statement.value))
    if isinstance(statement, ast.ImportFrom):
        return statement.module != "__future__"
    return isinstance(statement, ast.Import | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds in its module, without those inside a function or class."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


# --- mutation ---


class _Site(NamedTuple):
    """A location in a program with its possible changes."""

    line: int
    changes: list[_Change]


def _mutate(tree: ast.Module, lines: Sequence[int], rng: np.random.Generator) -> bool:
    """Make one change; return whether there was one to make."""
    sites = [site for site in _sites(tree) if site.changes]
    if not sites:
        return False
    function_by_line = _innermost_functions(tree)
    # None stands for the code outside functions, where errors can occur, too.
    failing = {function_by_line.get(line) for line in lines}
    suspects = [site for site in sites if function_by_line.get(site.line) in failing]
    _pick(_pick(suspects or sites, rng).changes, rng)()
    return True


def _innermost_functions(tree: ast.Module) -> dict[int, int]:
    """Return the first line of the innermost function around each line that is in one."""
    functions = sorted((node for node in ast.walk(tree) if isinstance(node, _Function)), key=lambda node: node.lineno)
    # Inner functions come later and override the outer ones' lines.
    return {
        line: node.lineno for node in functions for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _sites(tree: ast.Module) -> Iterator[_Site]:
    for parent in ast.walk(tree):
        for slot in _slots(parent):
            # A negative number is a single site, its negation, without its digits.
            negated = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub)
            value = None if negated else _value(slot.node)
            if value is not None:
                yield _Site(slot.line, [slot.change(_number(other)) for other in _other_numbers(value)])
        if isinstance(parent, ast.Compare):
            yield from (_Site(parent.lineno, _other_comparisons(parent, i)) for i in range(len(parent.ops)))
        elif isinstance(parent, ast.BinOp | ast.AugAssign):
            yield _Site(parent.lineno, _other_operators(parent))
        elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "range":
            for slot in filter(_is_bound, _slots(parent)):
                steps = [ast.BinOp(slot.node, sign, ast.Constant(1)) for sign in (ast.Add(), ast.Sub())]  # type: ignore[arg-type]
                yield _Site(parent.lineno, [slot.change(step) for step in steps])


class _Slot(NamedTuple):
    """A node's position in its parent."""

    parent: ast.AST
    field: str
    at: int | None
    node: ast.AST

    @property
    def line(self) -> int:
        """The first line of the node."""
        return int(getattr(self.node, "lineno", 0))

    def change(self, new: ast.expr) -> _Change:
        """Return a function that replaces the node by another."""

        def put() -> None:
            if self.at is None:
                setattr(self.parent, self.field, new)
            else:
                getattr(self.parent, self.field)[self.at] = new

        return put


def _slots(parent: ast.AST) -> Iterator[_Slot]:
    for field, value in ast.iter_fields(parent):
        if isinstance(value, ast.AST):
            yield _Slot(parent, field, None, value)
        elif isinstance(value, list):
            yield from (_Slot(parent, field, i, node) for i, node in enumerate(value) if isinstance(node, ast.AST))


def _value(node: ast.AST) -> int | float | None:
    """Return the number that a node denotes, with its sign; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand) if isinstance(node.operand, ast.Constant) else None
        return None if value is None else -value
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool) or not isinstance(node.value, int | float):
        return None
    return node.value


def _other_numbers(value: int | float) -> list[int | float]:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return []
    others = (value + 1, value - 1, value * 2, type(value)(0))
    return list(dict.fromkeys(other for other in others if other != value and math.isfinite(other)))


def _number(value: int | float) -> ast.expr:
    """Return a number's node; a negative number is a negation, as Python parses it."""
    return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if value < 0 else ast.Constant(value)


def _other_comparisons(node: ast.Compare, index: int) -> list[_Change]:
    family = next((family for family in _COMPARISONS if isinstance(node.ops[index], family)), ())
    return [
        lambda kind=kind: node.ops.__setitem__(index, kind())  # type: ignore[misc]
        for kind in family
        if not isinstance(node.ops[index], kind)
    ]


def _other_operators(node: ast.BinOp | ast.AugAssign) -> list[_Change]:
    operands = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    if not isinstance(node.op, _ARITHMETIC) or any(map(_is_sequence, operands)):
        return []
    return [
        lambda kind=kind: setattr(node, "op", kind())  # type: ignore[misc]
        for kind in _ARITHMETIC
        if not isinstance(node.op, kind)
    ]


def _is_sequence(node: ast.expr) -> bool:
    return isinstance(node, _SEQUENCES) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_bound(slot: _Slot) -> bool:
    """Return whether a range's argument is a start or a stop without a number that could be changed."""
    if slot.field != "args" or slot.at is None or slot.at > 1 or isinstance(slot.node, ast.Starred):
        return False
    number = slot.node.right if isinstance(slot.node, ast.BinOp) else slot.node
    return _value(number) is None
