"""`evorun new` refuses what would not work, in one line; tests/test_examples.py runs what it writes."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from hatchling.build import build_editable

from evorun.cli.completion import complete
from evorun_process import evorun_here

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "expected: evorun new task|method|reward NAME [kind=score|duels|dataset]; got: nothing"),
        (("task",), "expected: evorun new task|method|reward NAME [kind=score|duels|dataset]; got: task"),
        (
            ("engine", "mine"),
            "expected: evorun new task|method|reward NAME [kind=score|duels|dataset]; got: engine mine",
        ),
        (("task", "mine", "yours"), "yours: expected kind=score, or nothing, after the name of a task"),
        (("task", "mine", "kind=duels"), "kind=duels: expected kind=score, or nothing, after the name of a task"),
        (
            ("method", "mine", "kind=duel"),
            "kind=duel: expected kind=duels or kind=dataset, or nothing, after the name of a method",
        ),
        (("reward", "mine", "kind=duels"), "kind=duels: expected nothing after the name of a reward"),
        (("task", "my-task"), "my-task: expected a name in lower-case letters, digits and underscores"),
        (("method", "../mine"), "../mine: expected a name in lower-case letters, digits and underscores"),
        (("method", "Mine"), "Mine: expected a name in lower-case letters, digits and underscores"),
        (("method", "größe"), "größe: expected a name in lower-case letters, digits and underscores"),
        (("method", "_mine"), "_mine: expected a name in lower-case letters, digits and underscores"),
        (("method", "lambda"), "lambda: expected a name in lower-case letters, digits and underscores"),
        (("task", "sudoku"), "sudoku: there is a task of this name already (evorun list tasks); choose another"),
        (("method", "gepa"), "gepa: there is a method of this name already (evorun list methods); choose another"),
        (("task", "json"), "json: there is a Python module of this name already; choose another, such as my_json"),
    ],
)
def test_a_bad_name_is_one_line_and_writes_nothing(tmp_path: Path, arguments: tuple[str, ...], expected: str) -> None:
    done = evorun_here("new", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {expected}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("task", "mine"), ("task", "mine", "kind=score"), ("method", "mine")])
def test_a_package_compares_two_and_all_on_the_models_of_the_guide(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert evorun_here("new", *words, cwd=tmp_path).returncode == 0
    readme = (tmp_path / "mine" / "README.md").read_text()
    sweeps = re.findall(r"^    evorun --config-dir .*", readme, re.MULTILINE)
    settings = {frozenset(re.findall(r"engine\.\w+=\S+", sweep)) for sweep in sweeps}
    assert settings == {
        frozenset(),
        frozenset({"engine.improvement=0", "engine.misleading=0"}),
        frozenset({"engine.misleading=0.3"}),
        frozenset({"engine.skill=0.57", "engine.spread=0.5"}),
    }
    assert "\n    evorun report outputs/equal_calls --against=all\n" in readme


@pytest.mark.parametrize("kind", ["task", "method", "reward"])
def test_an_editable_install_needs_hatchling_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert evorun_here("new", kind, "mine", cwd=tmp_path).returncode == 0
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setitem(sys.modules, "editables", None)  # the environment of `make setup` has none
    with ZipFile(tmp_path / build_editable(str(tmp_path))) as wheel:
        [path] = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".pth")]
    assert Path(path) == tmp_path / "mine"


def test_the_packages_of_examples_have_what_a_written_one_has(tmp_path: Path) -> None:
    assert evorun_here("new", "method", "mine", cwd=tmp_path).returncode == 0
    written = _read_build(tmp_path / "mine")
    files = sorted(EXAMPLES.glob("*/pyproject.toml"))
    assert len(files) > 1
    for file in files:
        assert _read_build(file.parent) == written, file


def _read_build(package: Path) -> list[Any]:
    """Return how a package is built and installed, its own names left out."""
    settings = tomllib.loads((package / "pyproject.toml").read_text())
    project, build = settings["project"], settings["tool"]["hatch"]["build"]
    alike = [project.get(key) for key in ("dependencies", "readme", "requires-python")]
    return [settings["build-system"], *alike, build.get("dev-mode-dirs")]


def test_the_shell_completes_its_kinds() -> None:
    assert complete("evorun new ") == ["kind=dataset", "kind=duels", "kind=score", "method", "reward", "task"]


def test_files_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    done = evorun_here("new", "task", "mine", cwd=tmp_path)
    assert done.returncode == 0  # an empty folder
    assert "a score and no right and wrong instead, remove it: evorun new task mine kind=score\n" in done.stdout
    module = tmp_path / "mine" / "mine.py"
    module.write_text("my work")
    for name in ("mine", "file"):
        (tmp_path / "file").write_text("my notes")
        done = evorun_here("new", "method", name, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {name}: expected no such file and no such folder, or an empty one;")
        assert done.stderr.endswith("choose another name, or remove it\n")
    assert (module.read_text(), (tmp_path / "file").read_text()) == ("my work", "my notes")
