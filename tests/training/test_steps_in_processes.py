"""Training steps in several processes over gloo, and of a trainer that is killed again and again (`forked.py`)."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
import forked
import test_policy_gradient_steps
import test_proximal_steps
import torch
from steps import Stepped

from evorun_process import environment, evorun

# By day, test_sharding.py has the steps of PPO in two processes, and checkpoints are resumed elsewhere.
pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forked")
    imported = {**environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    chosen = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    counts = {item.callspec.params["count"] for item in chosen if hasattr(item, "callspec")}
    done = evorun(str(path), *map(str, sorted(counts)), cwd=path, program=forked.__file__, env=imported)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_several_processes_make_the_steps_of_one(count: int, folder: Path) -> None:
    """Of 20 and of 50 rows, which some of them do not divide: rows of no weight change nothing."""
    one, several = (Stepped(*torch.load(folder / f"policy_gradient-{number}.pt")) for number in (1, count))
    assert len(one.figures) == 2
    test_policy_gradient_steps.assert_the_same(several, one)


def test_2_processes_make_the_steps_on_all_weights_of_one(folder: Path) -> None:
    """Each with a copy of the reference policy, from which the second step's weights diverge."""
    one, two = (Stepped(*torch.load(folder / f"full-{count}.pt")) for count in (1, 2))
    test_policy_gradient_steps.assert_the_same(two, one)
    assert two.figures[1]["kl"] == pytest.approx(one.figures[1]["kl"], rel=1e-4)
    assert one.figures[1]["kl"] > 1e-3


def test_2_processes_make_the_steps_of_ppo_of_one(folder: Path) -> None:
    """Advantages are whitened, and losses averaged, over the rows of both."""
    one, two = (Stepped(*torch.load(folder / f"ppo-{count}.pt")) for count in (1, 2))
    assert len(one.figures) == 8
    test_proximal_steps.assert_the_same(two, one)


def test_a_killed_trainer_of_ppo_ends_with_the_same_weights_to_the_bit(folder: Path) -> None:
    """Killed in a value update, with half of the critic written, and before a checkpoint had its name."""
    through, killed = folder / "through", folder / "killed"
    assert {path.name for path in (killed / "checkpoints").iterdir()} == {"update-2", "update-4"}
    for file in ("adapter_model.safetensors", "critic.safetensors", "former-3.safetensors"):
        last = Path("checkpoints") / f"update-{forked.LAST}" / file
        assert (killed / last).read_bytes() == (through / last).read_bytes(), file
    of_optimiser = [
        torch.load(run / "checkpoints" / f"update-{forked.LAST}" / "optimizer.pt")["state"] for run in (through, killed)
    ]
    assert of_optimiser[0].keys() == of_optimiser[1].keys()
    for index, state in of_optimiser[0].items():
        assert all(torch.equal(value, of_optimiser[1][index][name]) for name, value in state.items())


def test_the_policy_alone_is_exported(folder: Path) -> None:
    from safetensors.torch import load_file

    exported = load_file(folder / "through" / "adapter" / "adapter_model.safetensors")
    assert {name.rpartition("lora_")[2] for name in exported} == {"A.weight", "B.weight"}
    assert any("lm_head" in name for name in exported)
    assert not [name for name in exported if "critic" in name]
    kept = load_file(folder / "through" / "checkpoints" / f"update-{forked.LAST}" / "adapter_model.safetensors")
    assert exported.keys() == kept.keys()
    assert all(torch.equal(value, kept[name]) for name, value in exported.items())
