"""The faster composition equals Hydra's own."""

import copy
import json
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import omegaconf.basecontainer
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import (
    MISSING,
    AnyNode,
    BooleanNode,
    BytesNode,
    DictConfig,
    EnumNode,
    FloatNode,
    IntegerNode,
    ListConfig,
    OmegaConf,
    PathNode,
    StringNode,
    UnionNode,
)

from evorun.cli.compose import register
from evorun.cli.groups import config_folder
from evorun.cli.omegaconf_shortcuts import SHORTCUTS
from evorun_process import environment

FEW = (
    ["experiment=espl/simulated_study", "method=lyria", "method.generations=77", "hydra.sweeper.variants=[]"],
    ["method=nothing"],
)
OTHERS = (
    ["method=laft", "task=sudoku", "~budget"],
    ["experiment=espl/simulated_study", "method=lyria", "judge=qwen2_5_7b"],
    ["method=mpo", "release=mpo", "hydra/launcher=slurm"],
    ["experiment=espl/simulated_study", "method.nothing=1"],
    ["hydra.mode=MULTIRUN"],
    ["+method.samples=1", "hydra.run.dir=run"],
)

BY_HYDRA = """
import json, sys
from unittest import mock
from evorun.cli import compose
with mock.patch.object(compose, "compose_faster"):
    from test_hydra_cache import answers, values
    print(json.dumps([[values(words) for words in json.loads(sys.argv[1])], answers()]))
"""


class _Mark(StrEnum):
    MISSING = "???"
    TEXT = "a"


@dataclass
class _Structured:
    number: int = 1
    either: int | str = "a"
    mark: _Mark = _Mark.TEXT
    open: Any = MISSING


def _examples() -> list[Any]:
    """Return values of all kinds that OmegaConf has, missing and referring ones among them."""
    texts = ["", "a", "???", "${a}", "a${b}", r"\${a}", "${", _Mark.MISSING, _Mark.TEXT]
    plain = [*texts, 1, 1.5, True, None, b"a", Path("a"), {}, {"a": 1}, [], [1], (1,)]
    types = [Any, int, str, dict, dict[str, int], list[int], _Mark, _Structured]
    leaves = [AnyNode(value) for value in (1, None, "a", "???", "${a}", "a${b}")]
    typed = [IntegerNode(1), IntegerNode("???"), StringNode("${a}"), StringNode(None), BooleanNode(True)]
    typed += [FloatNode(1.5), EnumNode(_Mark, _Mark.TEXT), EnumNode(_Mark, "???"), BytesNode(b"a"), PathNode("a")]
    unions = [UnionNode(content, int | str) for content in (1, "a", "???", "${a}", None)]
    containers = [of(content) for of in (DictConfig, ListConfig) for content in (None, "???", "${a}")]
    containers += [DictConfig({}), ListConfig([]), OmegaConf.structured(_Structured)]
    return [*plain, *types, *leaves, *typed, *unions, *containers, _Structured()]


def answers() -> list[Any]:
    """Return what OmegaConf says of all kinds of values, and what becomes of flags and parents."""

    def answer(name: str, *given: Any) -> str:
        try:
            return repr(getattr(omegaconf._utils, name)(*given))
        except Exception as error:
            return type(error).__name__

    said: list[Any] = [[answer(name, value) for value in _examples()] for name in SHORTCUTS]
    said += [[answer(name, value, True) for value in _examples()] for name in ("_is_interpolation", "get_value_kind")]
    root = OmegaConf.create({"a": {"b": [{"c": 1}]}, "s": _Structured})
    for flag in (None, True, False, None):
        OmegaConf.set_readonly(root, flag)
        said.append([OmegaConf.is_readonly(root.a.b[0]), OmegaConf.is_readonly(root.s)])
    root.merge_with({"a": {"b": [{"c": 2}], "d": {"e": {}}}, "s": {"either": 2}})
    nodes = [root.a, root.a.b, root.a.b[0], root.a.d.e, root.s, root.s._get_node("either"), root.a.b[0]._get_node("c")]
    said.append([node._get_full_key(None) for node in nodes])
    for node in nodes:
        node._set_parent(None)
    root._re_parent()
    return [*said, [node._get_root() is root for node in nodes]]


def ask_hydra(commands: tuple[list[str], ...], cwd: Path) -> Any:
    """Return the compositions and answers of a process that has Hydra and OmegaConf as they are."""
    command = [sys.executable, "-c", BY_HYDRA, json.dumps(commands)]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module", name="by_hydra")
def _by_hydra(tmp_path_factory: pytest.TempPathFactory) -> Any:
    cwd = tmp_path_factory.mktemp("cwd")
    return cwd, *ask_hydra(FEW, cwd)


def values(words: list[str]) -> Any:
    """Return the mode and all that Hydra composes, references unresolved, or how it refuses."""
    register()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        chosen = GlobalHydra.instance().hydra.get_mode("config", words)  # type: ignore[union-attr]
        mode = chosen and chosen.name
        try:
            composed = compose("config", overrides=words, return_hydra_config=True)
        except Exception as error:
            return [mode, str(error).partition("\n")[0]]  # then come all choices, those of earlier tests, too
    with_flags = [OmegaConf.is_struct(composed), OmegaConf.is_readonly(composed.hydra)]
    return [mode, OmegaConf.to_yaml(composed), *with_flags]


def test_a_composition_is_hydras_own_and_leaves_nothing_to_the_next(
    by_hydra: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cwd, of_commands, _ = by_hydra
    monkeypatch.chdir(cwd)
    compare(FEW, of_commands)


@pytest.mark.nightly
def test_other_compositions_are_hydras_own_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compare(OTHERS, ask_hydra(OTHERS, tmp_path)[0])


def compare(commands: tuple[list[str], ...], by_hydra: list[Any]) -> None:
    for words, expected in zip(commands, by_hydra, strict=True):
        assert values(words) == expected, words
        assert values(words) == expected, words


def test_what_omegaconf_says_of_values_is_its_own(by_hydra: Any) -> None:
    register()
    for name in SHORTCUTS:
        assert getattr(omegaconf.basecontainer, name, None) is getattr(omegaconf._utils, name), name
        assert getattr(omegaconf._utils, name).__module__ == "evorun.cli.omegaconf_shortcuts"
    *_, expected = by_hydra
    assert answers() == expected


def test_hydras_own_files_are_merged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    merged = []
    merge = DictConfig.merge_with
    monkeypatch.setattr(DictConfig, "merge_with", lambda self, more: merged.append(more) or merge(self, more))
    counts = []
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        for benchmark in ("math500", "aime"):
            merged.clear()
            compose("config", overrides=["method=lyria", f"task={benchmark}"])
            counts.append(sum("hydra" in more for more in merged))
    assert counts[1] == 1  # conf/config.yaml


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    found = []
    for text in ("a: 1\n", "a: 2\n", "a: 2\nb: {c: 3}\n"):
        file.unlink(missing_ok=True)
        file.write_text(text)
        with initialize_config_dir(str(tmp_path), version_base="1.3"):
            found.append(compose("config"))
    assert found == [{"a": 1}, {"a": 2}, {"a": 2, "b": {"c": 3}}]


def test_a_choice_that_changes_is_merged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that comes, changes and goes; a stored choice that another one replaces; values beside the choices."""
    monkeypatch.setattr(ConfigStore.instance(), "repo", dict(ConfigStore.instance().repo))

    def composed(*words: str) -> Any:
        with initialize_config_dir(str(tmp_path), version_base="1.3"):
            return OmegaConf.to_container(compose("config", overrides=list(words)))

    (tmp_path / "config.yaml").write_text("defaults: [_self_, optional of_files: x, of_store: y]\na: 1\n")
    chosen = tmp_path / "of_files" / "x.yaml"
    chosen.parent.mkdir()
    ConfigStore.instance().store(group="of_store", name="y", node={"b": 1})
    assert composed() == {"a": 1, "of_store": {"b": 1}}
    chosen.write_text("c: 1")
    assert composed("a=2") == {"a": 2, "of_files": {"c": 1}, "of_store": {"b": 1}}
    chosen.write_text("c: 22")
    assert composed("of_files.c=3", "a=4") == {"a": 4, "of_files": {"c": 3}, "of_store": {"b": 1}}
    assert composed() == {"a": 1, "of_files": {"c": 22}, "of_store": {"b": 1}}
    ConfigStore.instance().store(group="of_store", name="y", node={"b": 2})
    assert composed() == {"a": 1, "of_files": {"c": 22}, "of_store": {"b": 2}}
    chosen.unlink()
    assert composed("of_store.b=5") == {"a": 1, "of_store": {"b": 5}}


def test_a_choice_may_refer_to_another_one_by_name_or_by_its_place(tmp_path: Path) -> None:
    register()
    for reference in ("${a}", "${defaults[0].a}"):
        (tmp_path / "config.yaml").write_text(f"defaults: [a: x, b: '{reference}', _self_]")
        for group in ("a", "b"):
            (tmp_path / group).mkdir(exist_ok=True)
            (tmp_path / group / "x.yaml").write_text("c: 1")
        with initialize_config_dir(str(tmp_path), version_base="1.3"):
            assert compose("config") == {"a": {"c": 1}, "b": {"c": 1}}


@pytest.mark.parametrize("value", [1, lambda: None], ids=["a pickle", "without one"])
def test_a_copy_has_the_parent_and_flags_of_what_it_copies(value: object) -> None:
    register()
    values = {"group": {"key": value, "same": "${other}", "inner": {"a": 1}}, "other": 2}
    root = OmegaConf.create(values, flags={"allow_objects": True})
    OmegaConf.set_readonly(root.group, True)
    OmegaConf.set_struct(root.group.inner, True)
    copied = copy.deepcopy(root.group)
    assert copied == root.group
    assert (copied.same, copied._get_parent()) == (2, root)
    assert [OmegaConf.is_readonly(copied), OmegaConf.is_struct(copied.inner)] == [True, True]
    OmegaConf.set_readonly(copied, False)
    copied.key = 3
    assert OmegaConf.is_readonly(root.group)
    assert root.group.key is value
