"""Small faults to put into evorun's modules, one expression each: what `measure_mutants.py` runs tests against.

What cannot matter is no mutant: annotations, docstrings and messages, `__repr__`, decorators, `zip`'s strict.
"""

import ast
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOMS = {
    **{room: (f"{room}/**/*.py",) for room in ("methods", "ratings", "rollouts", "training", "runs")},
    "readers": ("tasks/*.py", "tasks/*/reading.py"),
}
COMPARED = {
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
}
"""Replacements of comparisons: of an order, its boundary, which tests miss more often than the direction."""
COUNTED = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.Mult, ast.Pow: ast.Mult},
}


@dataclass(frozen=True)
class Mutant:
    """A change of one expression, at bytes of a file."""

    room: str
    file: str
    line: int
    scope: str
    operator: str
    before: str
    after: str
    start: int
    end: int
    at_import: bool
    uses: tuple[tuple[int, int], ...] = ()
    """Where functions of the file use a constant of it."""

    @property
    def key(self) -> str:
        """Names the mutant in trees where other lines have moved it."""
        return f"{self.file}:{self.scope}:{self.operator}:{self.before} -> {self.after}"


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the operators that apply to an expression, each with what it makes of it."""
    match node:
        case ast.Compare():
            for place, kind in enumerate(node.ops):
                ops = [*node.ops[:place], COMPARED[type(kind)](), *node.ops[place + 1 :]]
                yield "comparison", ast.Compare(node.left, ops, node.comparators)
        case ast.BinOp() if type(node.op) in COUNTED and not any(map(_is_text, (node.left, node.right))):
            yield "arithmetic", ast.BinOp(node.left, COUNTED[type(node.op)](), node.right)
        case ast.BoolOp(op=ast.And()):
            yield "and/or", ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp(op=ast.Or()):
            yield "and/or", ast.BoolOp(ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield "negation", node.operand
        case ast.Constant(value=bool(value)):
            yield "negation", ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from (("constant", ast.Constant(other)) for other in sorted({value + 1, value - 1, 0} - {value}))
        case ast.IfExp():
            yield "negation", ast.IfExp(node.test, node.orelse, node.body)
        case ast.Call(func=ast.Name(id="max" | "min" as name)):
            other = ast.Name("min" if name == "max" else "max")
            yield "max/min", ast.Call(other, node.args, node.keywords)


def _is_text(node: ast.expr) -> bool:
    """Say whether a sum or a path has a text in it, where another operator would be an error at once."""
    texts = (isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(node))
    return any(texts) or any(isinstance(part, ast.JoinedStr | ast.List) for part in ast.walk(node))


def visit(node: ast.AST, scope: tuple[str, ...] = (), depth: int = 0) -> Iterator[tuple[ast.expr, str, int, Any]]:
    """Yield expressions that may be changed: with the scope, how many functions are around, and the changes.

    Also names that functions load, without changes.
    """
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and depth:
        yield node, ".".join(scope), depth, []
    if isinstance(node, ast.expr) and (found := list(changes(node))):
        yield node, ".".join(scope), depth, found
    if isinstance(node, ast.Return) and node.value and not isinstance(node.value, ast.Constant):
        yield node.value, ".".join(scope), depth, [("return", ast.Constant(None))]
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "pattern"):
            continue
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and field == "body"
        for child in value if isinstance(value, list) else [value]:
            match child:
                case ast.Raise() | ast.JoinedStr() | ast.FunctionDef(name="__repr__") | ast.keyword(arg="strict"):
                    continue
                case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    continue
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    yield from visit(child, (*scope, name), depth + function)
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if not (
                    depth or function
                ):
                    yield from visit(child, (*scope, name), depth)
                case ast.AST():
                    yield from visit(child, scope, depth + function)


def find_sites(tree: Path, room: str, path: Path) -> list[list[Mutant]]:
    """Return the places of a file that can be changed, each with its mutants."""
    source = path.read_bytes()
    begins = [0]
    for text in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(text))
    sites, seen = [], Counter[str]()

    def span(node: ast.expr) -> tuple[int, int]:
        return begins[node.lineno - 1] + node.col_offset, begins[(node.end_lineno or 0) - 1] + (
            node.end_col_offset or 0
        )

    visited = list(visit(ast.parse(source)))
    loads = defaultdict[str, list[tuple[int, int]]](list)
    for node, *_ in visited:
        if isinstance(node, ast.Name):
            loads[node.id].append(span(node))
    for node, scope, depth, found in visited:
        start, end = span(node)
        before, file = source[start:end].decode(), str(path.relative_to(tree))
        site = []
        for operator, changed in found:
            after = "(" + ast.unparse(ast.fix_missing_locations(changed)) + ")"
            mutant = Mutant(
                room,
                file,
                node.lineno,
                scope,
                operator,
                before,
                after,
                start,
                end,
                not depth,
                () if depth else tuple(loads[scope]),
            )
            seen[mutant.key] += 1
            if seen[mutant.key] > 1:
                mutant = replace(mutant, scope=f"{scope}#{seen[mutant.key]}")
            site.append(mutant)
        sites += [site] if site else []
    return sites


def find_files(tree: Path, room: str) -> list[Path]:
    """Return a room's modules."""
    return sorted({path for pattern in ROOMS[room] for path in (tree / "evorun").glob(pattern)})


def draw(tree: Path, rooms: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants, each room's share as its lines, at most one of a place."""
    rng, lines, sites = random.Random(seed), Counter[str](), defaultdict[str, list[list[Mutant]]](list)
    for room in rooms:
        for path in find_files(tree, room):
            lines[room] += len(path.read_text(encoding="utf-8").splitlines())
            sites[room] += find_sites(tree, room, path)
    print(*(f"{room}: {lines[room]} lines, {len(sites[room])} places" for room in rooms), sep="\n", flush=True)
    ends = [round(count * sum(lines[room] for room in rooms[:at]) / lines.total()) for at in range(len(rooms) + 1)]
    shares = {room: end - begin for room, begin, end in zip(rooms, ends, ends[1:], strict=False)}
    sample = [rng.choice(site) for room in rooms for site in rng.sample(sites[room], shares[room])]
    return rng.sample(sample, count)
