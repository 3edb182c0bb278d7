"""The faster composition equals Hydra's own."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from evorun.cli.compose import register
from evorun.cli.groups import config_folder
from evorun_process import environment

COMMANDS = (
    ["experiment=espl/simulated_study", "method=lyria", "method.generations=77", "hydra.sweeper.variants=[]"],
    ["experiment=espl/simulated_study", "method=lyria", "judge=qwen2_5_7b"],
    ["method=laft", "task=sudoku", "~budget"],
    ["method=mpo", "release=mpo", "hydra/launcher=slurm"],
    ["method=nothing"],
    ["experiment=espl/simulated_study", "method.nothing=1"],
    ["hydra.mode=MULTIRUN"],
    ["+method.samples=1", "hydra.run.dir=run"],
)

BY_HYDRA = """
import json, sys
from unittest import mock
from evorun.cli import compose
with mock.patch.object(compose, "compose_faster"):
    from test_hydra_cache import values
    print(json.dumps([values(words) for words in json.loads(sys.argv[1])]))
"""


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", BY_HYDRA, json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    for words, expected in zip(COMMANDS, json.loads(done.stdout), strict=True):
        assert values(words) == expected, words
        assert values(words) == expected, words


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
