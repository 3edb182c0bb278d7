"""The order of the rooms, as scripts/measure_structure.py has it: no circle, no arrow upward, no loose module."""

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def script() -> Any:
    path = ROOT / "scripts" / "measure_structure.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


STRUCTURE = script()


@pytest.fixture(scope="module")
def tree() -> Any:
    return STRUCTURE.Tree(ROOT)


@pytest.mark.nightly
def test_no_files_and_no_rooms_import_each_other(tree: Any) -> None:
    assert STRUCTURE.circles(tree.graph()) == []
    assert STRUCTURE.circles(tree.room_graph()) == []


@pytest.mark.nightly
def test_imports_point_down(tree: Any) -> None:
    assert tree.upward() == []


@pytest.mark.nightly
def test_the_package_holds_rooms_only(tree: Any) -> None:
    assert tree.loose() == []
    assert {module.room for module in tree.modules.values()} <= {*STRUCTURE.ROOMS, *STRUCTURE.GROUND, "__main__"}


@pytest.mark.nightly
def test_heavy_packages_are_loaded_by_engines_and_trainers_only(tree: Any) -> None:
    assert tree.heavy() == []


SECTIONS = ("comparison", "evolution", "rubrics", "tournament")
"""Folders of reports/: what several of them need stands below them all."""


def across_sections(graph: dict[str, set[str]]) -> list[str]:
    """Return the imports from one section of the reports into another, and from below into any but by a page."""

    def section(module: str) -> str:
        parts = module.split(".")
        return parts[2] if parts[1:2] == ["reports"] and len(parts) > 2 and parts[2] in SECTIONS else ""

    return [
        f"{module} -> {other}"
        for module, imported in sorted(graph.items())
        if module.startswith("evorun.reports.") and module != "evorun.reports.html"
        for other in sorted(imported)
        if section(other) and section(other) != section(module)
    ]


@pytest.mark.nightly
def test_sections_of_the_reports_do_not_import_each_other(tree: Any) -> None:
    assert across_sections(tree.graph()) == []


def test_an_import_across_sections_is_found() -> None:
    rubrics, shared = "evorun.reports.rubrics.plots", "evorun.reports.drawing"
    graph = {
        "evorun.reports.evolution.tree": {rubrics, shared, "evorun.reports.evolution.plots"},
        "evorun.reports.html": {rubrics},
        shared: {rubrics},
        "evorun.cli.studies": {rubrics},
    }
    assert across_sections(graph) == [f"{shared} -> {rubrics}", f"evorun.reports.evolution.tree -> {rubrics}"]


CONFIGURED = ("config", "settings", "method", "engine", "engine_config", "method_config", "task_config", "training")
"""Names that a method, or the settings of a part of a run, goes by."""


def probes(tree: ast.AST) -> list[str]:
    """Return the calls that ask of which kind a configuration is, or whether a method or a configuration has a field.

    A configuration's loop over its own fields (`getattr(self, key)`) asks nothing of another one.
    """
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1):
            continue
        kinds = [one for one in ast.walk(node.args[1]) if isinstance(one, ast.Name | ast.Attribute)]
        of_kind = {one.id if isinstance(one, ast.Name) else one.attr for one in kinds} - {"DictConfig"}  # YAML, as read
        subject = node.args[0]
        name = subject.attr if isinstance(subject, ast.Attribute) else getattr(subject, "id", "")
        by_kind = node.func.id == "isinstance" and any(kind.endswith(("Config", "Settings")) for kind in of_kind)
        by_field = node.func.id in ("getattr", "hasattr") and name.strip("_") in CONFIGURED
        if by_kind or by_field:
            found.append(ast.unparse(node))
    return found


@pytest.mark.nightly
def test_no_module_asks_which_configuration_it_has(tree: Any) -> None:
    assert {name: found for name, module in tree.modules.items() if (found := probes(module.tree))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(config.engine, ReplayConfig)",
        "isinstance(engine, VllmConfig | server.ServerConfig)",
        "isinstance(settings, (str, RubricSettings))",
        "getattr(config, 'rubric', None)",
        "getattr(self._method.config, key)",
        "hasattr(method, 'generations')",
    ],
)
def test_a_question_about_a_configuration_is_found(line: str) -> None:
    assert probes(ast.parse(f"if {line}:\n    pass")) == [line]


def test_a_configuration_may_check_its_own_fields() -> None:
    source = "getattr(self, key)\nisinstance(value, str)\ngetattr(model.config.get_text_config(), name)"
    assert probes(ast.parse(source)) == []


def test_what_breaks_the_order_is_found(tmp_path: Path) -> None:
    files = {
        "__init__": "",
        "errors": "",
        "loose": "",
        "models/__init__": "",
        "models/engine": "import torch\nfrom evorun import errors",
        "models/typed": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
        "ratings/__init__": "",
        "ratings/elo": "def rate():\n    from evorun.models import engine",
        "tasks/__init__": "from . import sums",
        "tasks/sums": "import evorun.loose\nimport evorun.models.typed\nfrom .numbers import one",
        "tasks/numbers": "def one():\n    from evorun.tasks.sums import two",
        "reports/__init__": "from evorun.models import engine",
        "reports/plots": "from evorun.ratings.elo import rate",
    }
    for name, text in files.items():
        path = tmp_path / "evorun" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    tree = STRUCTURE.Tree(tmp_path)
    assert STRUCTURE.circles(tree.graph()) == [["evorun.tasks.numbers", "evorun.tasks.sums"]]
    assert STRUCTURE.circles(tree.room_graph()) == []
    assert tree.upward() == ["evorun.ratings.elo -> evorun.models.engine"]
    assert tree.loose() == ["loose"]
    # importing a module imports the folder that it is in
    assert {line.split()[0] for line in tree.heavy()} == {"evorun.reports", "evorun.reports.plots"}
