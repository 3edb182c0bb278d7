"""Measures how a tree of evorun is built: circles, arrows that point upward, loose modules, sizes, what a task costs.

    python scripts/measure_structure.py [TREE]

TREE is a checkout, of any commit; the default is this one. Modules that lie loose in the package's root count as rooms
of their own. Imports inside functions and for type checkers count as arrows too.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOMS = (
    *("ratings", "models", "simulation", "sandbox", "runs", "tasks", "traces", "training", "rollouts"),
    *("methods", "reports", "tracking", "exports", "viewer", "runner", "cli", "api", "testing"),
)
"""Ground floor first."""
GROUND = ("errors", "fields", "plugins", "__init__")
"""Modules in the root that every room may import; `__main__` is above all."""

HEAVY = frozenset({"torch", "transformers", "vllm", "trl", "peft", "accelerate", "datasets"})

PAIRS = ("method_on_task", "method_on_budget")

_POINTLESS = re.compile(r"(What|How|Whether|Which|Where|When)\b")
_DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|ruff|mypy|!)")

Graph = Mapping[str, set[str]]


@dataclass
class Module:
    """A Python file and what it says of itself."""

    name: str
    path: Path

    @cached_property
    def source(self) -> str:
        """The file's text."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The text, parsed."""
        return ast.parse(self.source)

    @property
    def lines(self) -> int:
        """All lines, empty ones too."""
        return len(self.source.splitlines())

    @property
    def room(self) -> str:
        """The folder below the package, or the module's own name where it lies loose."""
        return f"{self.name}.__init__".split(".")[1]

    @property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Functions and methods, nested ones too."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    @property
    def comments(self) -> int:
        """Comments for readers, on lines of their own or behind code."""
        tokens = tokenize.generate_tokens(io.StringIO(self.source).readline)
        return sum(token.type == tokenize.COMMENT and not _DIRECTIVE.match(token.string) for token in tokens)

    @property
    def docstrings(self) -> list[str]:
        """Docstrings, those of attributes too."""
        return [
            node.value.value.strip()
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ]

    def imports(self, at_import: bool = False) -> Iterator[tuple[str, str | None]]:
        """Yield (module, name) for each import; `at_import`: only what importing the module itself carries out."""
        for node in _at_import(self.tree) if at_import else ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, None) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((self._absolute(node), alias.name) for alias in node.names)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]
        return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        checks_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not checks_types and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _at_import(child)


class Tree:
    """A checkout's modules and the arrows between them."""

    def __init__(self, root: Path) -> None:
        """Find all modules. Raises FileNotFoundError where there is no package."""
        self.root = root
        self.package = root / "evorun"
        if not (self.package / "__init__.py").is_file():
            raise FileNotFoundError(f"expected a checkout with evorun/__init__.py, found none in {root}")
        self.modules = {}
        self._graphs: dict[bool, dict[str, set[str]]] = {}
        for path in sorted(self.package.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = Module(name, path)

    def graph(self, at_import: bool = False) -> dict[str, set[str]]:
        """Return the modules of the package that each module imports."""
        if at_import not in self._graphs:
            self._graphs[at_import] = self._read_graph(at_import)
        return {name: set(targets) for name, targets in self._graphs[at_import].items()}

    def _read_graph(self, at_import: bool) -> dict[str, set[str]]:
        found = {}
        for name, module in self.modules.items():
            targets = {
                f"{source}.{what}" if f"{source}.{what}" in self.modules else source
                for source, what in module.imports(at_import)
            }
            found[name] = (targets & self.modules.keys()) - {name}
        # the root's names are those of the room above all, loaded on first use: it imports them for type checkers alone
        root = self.package.name
        found[root] = {target for target in found[root] if not target.startswith(f"{root}.api.")}
        return found

    def room_graph(self) -> dict[str, set[str]]:
        """Return the rooms that each room imports."""
        found: dict[str, set[str]] = {module.room: set() for module in self.modules.values()}
        for name, targets in self.graph().items():
            room = self.modules[name].room
            found[room] |= {self.modules[target].room for target in targets} - {room}
        return found

    def upward(self) -> list[str]:
        """Return the imports of a room from one above it; loose modules that no design has a place for have none."""
        rank = dict.fromkeys(GROUND, -1) | {room: place for place, room in enumerate((*ROOMS, "__main__"))}
        return [
            f"{name} -> {target}"
            for name, targets in self.graph().items()
            for target in sorted(targets)
            if rank.get(self.modules[name].room, len(rank)) < rank.get(self.modules[target].room, -1)
        ]

    def loose(self) -> list[str]:
        """Return the modules in the package's root, but for errors and __main__."""
        return sorted(path.stem for path in self.package.glob("*.py") if path.stem not in (*GROUND, "__main__"))

    def heavy(self) -> list[str]:
        """Return modules outside models/ and training/ that load a heavy package when imported, by whatever way."""
        loaded = {
            name: {source.partition(".")[0] for source, _ in module.imports(at_import=True)} & HEAVY
            for name, module in self.modules.items()
        }
        graph = self.graph(at_import=True)
        for name, targets in graph.items():
            targets.update(self.modules.keys() & {target.rpartition(".")[0] for target in (name, *targets)})
        return [
            f"{name} loads {', '.join(sorted(loaded[reached]))} through {reached}"
            for name, module in self.modules.items()
            if module.room not in ("models", "training")
            for reached in sorted(closure(graph, [name]))
            if loaded[reached]
        ]

    def families(self) -> dict[str, list[str]]:
        """Return the names on the command line of the tasks of each family: its module or folder in tasks/."""
        for module in self.modules.values():
            for node in ast.walk(module.tree) if module.name.endswith("registry") else ():
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TASKS":
                    families = defaultdict(list)
                    for name, target in ast.literal_eval(node.value).items():
                        families[".".join(target.partition(":")[0].split(".")[:3])].append(name)
                    return dict(families)
        return {}


def closure(graph: Graph, start: Sequence[str]) -> set[str]:
    """Return all that can be reached, the start included."""
    reached, waiting = set(start), list(start)
    while waiting:
        new = graph[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def circles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components of more than one member."""
    reach = {name: closure(graph, [name]) for name in graph}
    components = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in graph}
    return sorted(list(component) for component in components if len(component) > 1)


def sizes(modules: Sequence[Module]) -> tuple[int, int, int, int, int]:
    """Return files, lines, functions, longest function's lines, comments."""
    functions = [function for module in modules for function in module.functions]
    longest = max(
        (function.end_lineno - function.lineno + 1 for function in functions if function.end_lineno), default=0
    )
    comments = sum(module.comments for module in modules)
    return len(modules), sum(module.lines for module in modules), len(functions), longest, comments


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")


def print_order(tree: Tree) -> None:
    """Print circles, arrows upward, loose modules and heavy imports."""
    kinds = {
        "circles among files": [" - ".join(circle) for circle in circles(tree.graph())],
        "circles among rooms": [" - ".join(circle) for circle in circles(tree.room_graph())],
        "arrows upward": tree.upward(),
        "loose modules": tree.loose(),
        "heavy imports outside engines and trainers": tree.heavy(),
    }
    table("Order", ("what", "number", "which"), [(k, len(v), "; ".join(v)) for k, v in kinds.items()])


def print_sizes(tree: Tree) -> None:
    """Print lines, functions and comments of each room, and of the package with and without its new rooms."""
    rooms = {module.room for module in tree.modules.values()}
    order = [*(room for room in (*ROOMS, *sorted(rooms - {*ROOMS})) if room in rooms)]
    every = list(tree.modules.values())
    parts = {room: [module for module in every if module.room == room] for room in order}
    parts["all but rollouts and testing"] = [module for module in every if module.room not in ("rollouts", "testing")]
    parts["all"] = every
    rows = []
    for name, modules in parts.items():
        files, lines, functions, longest, comments = sizes(modules)
        share, density = functions / max(1, lines) * 1000, comments / max(1, lines) * 100
        rows.append((name, files, lines, functions, f"{share:.0f}", longest, comments, f"{density:.1f}"))
    head = ("room", "files", "lines", "functions", "per 1,000 lines", "longest", "comments", "per 100 lines")
    table("Sizes", head, rows)


def print_words(tree: Tree) -> None:
    """Print counts of docstrings, prompt files, tests and pair files."""
    docstrings = [text for module in tree.modules.values() for text in module.docstrings]
    sentences = Counter(re.split(r"(?<=\.)\s", text, maxsplit=1)[0] for text in docstrings)
    sentence, times = sentences.most_common(1)[0]
    tests = [
        node.name
        for path in (tree.root / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    rows = [
        ("prompt files", len(list(tree.package.rglob("*.md")))),
        ("docstrings", len(docstrings)),
        (
            "docstrings that begin with What, How, Whether, ...",
            sum(bool(_POINTLESS.match(docstring)) for docstring in docstrings),
        ),
        (f"most repeated first sentence of a docstring: {sentence}", times),
        ("test functions", len(tests)),
        *((f"files in conf/{group}", len(list((tree.root / "conf" / group).glob("*.yaml")))) for group in PAIRS),
    ]
    table("Counts", ("what", "number"), rows)


def print_tasks(tree: Tree) -> None:
    """Print what each task family costs; what several families use is in none of their `only its own` lines."""
    graph, families = tree.graph(), tree.families()
    tasks = {name: {t for t in graph[name] if t.startswith("evorun.tasks.")} for name in graph}
    within = {family: [name for name in tree.modules if f"{name}.".startswith(f"{family}.")] for family in families}
    reached = {family: closure(tasks, names) for family, names in within.items()}
    rows = []
    for family, names in families.items():
        modules = [tree.modules[name] for name in within[family]]
        others = set().union(*(reached[other] for other in families if other != family))
        only = sum(tree.modules[name].lines for name in reached[family] - others)
        folder = tree.root.joinpath(*family.split("."))
        prompts = list(folder.rglob("*.md"))
        configs = [tree.root / "conf" / "task" / f"{name}.yaml" for name in names]
        configs += [path for name in names for path in tree.root.glob(f"conf/method_on_task/*_on_{name}.yaml")]
        short = family.rsplit(".", 1)[-1]
        tests = [*tree.root.glob(f"tests/tasks/{short}/**/*.py"), *tree.root.glob(f"tests/tasks/test_{short}*.py")]
        files = [*(module.path for module in modules), *prompts, *configs, *tests]
        row = [short, sum(module.lines for module in modules), len(modules), only, len(prompts), _lines(prompts)]
        rows.append((*row, len(configs), _lines(configs), len(tests), _lines(tests), len(files), _lines(files)))
    head = ["family", "Python lines", "Python files", "lines only it uses", "prompt files", "prompt lines"]
    head += ["config files", "config lines", "test files", "test lines", "all files", "all lines"]
    table("What a task family costs", head, rows)


def _lines(paths: Sequence[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths if path.is_file())


if __name__ == "__main__":
    checkout = Tree(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
    print(f"# {checkout.root.resolve().name}")
    print_order(checkout)
    print_sizes(checkout)
    print_words(checkout)
    print_tasks(checkout)
