"""The wheel works from any folder, and the package needs no more than it declares."""

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

from evorun.tracking.choices import TRACKERS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHIPPED_DATA = {".css", ".html", ".j2", ".js", ".json", ".jsonl", ".md", ".txt", ".yaml"}


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **environment},  # which would come before the wheel
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--no-build-isolation", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin folder of an environment with the wheel and, through a path file, this environment's packages."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # A plain path entry: unlike a site folder, it does not bring in the editable install of this very checkout.
    (site / "packages_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def sources(folder: str) -> Iterator[Path]:
    return (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@pytest.mark.nightly
def test_the_wheel_holds_every_module_and_data_file_of_the_package(wheel: Path) -> None:
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in sources("evorun")
        if path.suffix in SHIPPED_DATA | {".py"} or path.name == "py.typed"
    }
    assert expected - files_of(wheel) == set()
    assert "evorun/models/config.py" in expected  # the folder's name is one that .gitignore has
    assert "evorun/tasks/prompts/generation.md" in expected
    assert "evorun/cli/templates/task/NAME.py.j2" in expected


@pytest.mark.nightly
def test_the_wheel_holds_the_configuration_inside_the_package(wheel: Path) -> None:
    configs = {f"evorun/{path.relative_to(ROOT).as_posix()}" for path in sources("conf")}
    assert configs - files_of(wheel) == set()
    assert {"evorun/conf/config.yaml", "evorun/conf/hydra/launcher/slurm.yaml"} <= configs


@pytest.mark.nightly
def test_the_wheel_installs_nothing_beside_the_package(wheel: Path) -> None:
    assert {name.split("/")[0] for name in files_of(wheel)} == {"evorun", f"evorun-{version()}.dist-info"}


@pytest.mark.nightly
def test_the_wheel_carries_the_licence(wheel: Path) -> None:
    assert f"evorun-{version()}.dist-info/licenses/LICENSE" in files_of(wheel)


def version() -> str:
    found = re.search(r'__version__ = "(.+)"', (ROOT / "evorun" / "__init__.py").read_text())
    assert found
    return found[1]


def test_the_version_is_the_released_one_or_leads_to_the_next() -> None:
    """So a run of the released version is not resumed by a checkout that records otherwise."""
    _, unreleased, *released = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    last, date = released[0].splitlines()[0].split(" - ")
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {last}\n" in citation
    assert f"\ndate-released: {date}\n" in citation
    if unreleased.strip() == "Unreleased":
        assert version() == last
    else:
        assert Version(version()).is_devrelease
        assert Version(version()) > Version(last)


@pytest.mark.nightly
def test_an_installed_wheel_is_used_instead_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    file = run(installed / "python", "-c", "import evorun; print(evorun.__file__)", cwd=tmp_path)
    assert Path(file.strip()).is_relative_to(installed.parent)


@pytest.mark.nightly
def test_an_installed_wheel_works_from_any_folder(installed: Path, tmp_path: Path) -> None:
    shown = run(installed / "evorun", "list", cwd=tmp_path)
    assert [word for word in ("duel_evolve", "mathbench", "smollm2_135m") if word not in shown] == []


@pytest.mark.nightly
def test_an_installed_wheel_carries_out_a_first_run_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    small = ("task.limit=3", "method.generations=1", "method.initial_candidates=3", "method.children=2")
    shown = run(installed / "evorun", "task.source=sample", "engine=simulated", *small, cwd=tmp_path)
    assert "Simulated model: no language model ran" in shown
    (report,) = tmp_path.glob("outputs/duel_evolve/mathbench/*/report.html")
    results = json.loads((report.parent / "results.json").read_text())
    assert results["counts"]["problems"] == results["metrics"]["accuracy"]["n"] == 3


@pytest.mark.nightly
def test_an_installed_wheel_writes_packages(installed: Path, tmp_path: Path) -> None:
    run(installed / "evorun", "new", "method", "mine", cwd=tmp_path)
    assert "class Mine(PerProblem):" in (tmp_path / "mine" / "mine.py").read_text()


def imported_packages(path: Path) -> set[str]:
    """Return the top-level packages that a file imports, at whatever depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"evorun"}


def distribution_names(requirements: list[str]) -> set[str]:
    return {canonical(re.split(r"[ \[<>=!~;]", requirement, maxsplit=1)[0]) for requirement in requirements}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


PROVIDERS = metadata.packages_distributions()


def providers(package: str) -> set[str]:
    return {canonical(name) for name in PROVIDERS.get(package, [package])}


BASE = distribution_names(PROJECT["dependencies"])
ALL = BASE.union(*map(distribution_names, PROJECT["optional-dependencies"].values())) - {"evorun"}
FOR_RUNS = BASE.union(
    *(
        distribution_names(PROJECT["optional-dependencies"][extra])
        for extra in (
            "bitsandbytes",
            "deepspeed",
            "dense",
            "hub",
            "inspect",
            "polars",
            "reasoning-gym",
            *TRACKERS,
            "tinker",
            "train",
            "transformers",
            "verifiers",
            "vllm",
        )
    )
)


@pytest.mark.nightly
def test_what_a_module_imports_is_declared() -> None:
    used = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in sources("evorun")
        if path.suffix == ".py"
        for name in imported_packages(path)
    }
    assert [(path, name) for path, name in used if not providers(name) & FOR_RUNS] == []
    assert ("evorun/ratings/bradley_terry.py", "scipy") in used


def test_every_choice_can_be_loaded_without_the_extras() -> None:
    of_extras = {"accelerate", "gguf", "huggingface_hub", "llguidance", "sentence_transformers", "tokenizers"}
    of_extras |= {"inspect_ai", "reasoning_gym", "torch", "transformers", "verifiers", "vllm", *TRACKERS}
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({of_extras!r}))\n"  # None there makes an import fail
        "import evorun.cli\n"
        "from evorun.runner import registry\n"
        "for name in registry.ENGINES: registry.engine_config_class(name)\n"
        "for name in registry.METHODS: registry.method_class(name)\n"
        "for name in registry.TASKS: registry.task_config_class(name)\n"
        "from evorun.tracking import choices\n"
        "for name in choices.TRACKERS: choices.tracker_class(name)\n"
    )
    run(sys.executable, "-c", code, cwd=ROOT)


def test_the_constraints_pin_everything_that_the_project_declares() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonical(line.split("==")[0]) for line in lines if line and not line.startswith("#")}
    assert ALL - pinned == set()


def test_the_constraints_satisfy_the_project() -> None:
    from packaging.requirements import Requirement

    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pins = {canonical(line.split("==")[0]): line.split("==")[1] for line in lines if line}
    declared = [*PROJECT["dependencies"], *(r for group in PROJECT["optional-dependencies"].values() for r in group)]
    requirements = [Requirement(text) for text in declared if not text.startswith("evorun")]
    refused = [str(r) for r in requirements if not r.specifier.contains(pins[canonical(r.name)])]
    assert refused == []
