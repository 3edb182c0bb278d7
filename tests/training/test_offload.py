"""A trainer that leaves its device between commands: it learns, plays and saves what one that stays does."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
from given_commands import GivenCommands
from safetensors.torch import load_file
from steps import EXACT, random_rows, tiny

from building import make_job, policy_gradient, proximal_policy, training_config
from evorun.errors import ConfigError
from evorun.models.base import Message, Request, Sampling
from evorun.models.config import ModelConfig
from evorun.training.critic import CRITIC
from evorun.training.offload import Offload
from evorun.training.policy_gradient import PolicyGradientTrainer
from evorun.training.proximal_policy import ProximalTrainer
from evorun.training.rollouts import Decoding
from evorun.training.serving import Finished, Serving
from evorun.training.versions import Versions
from evorun.training.wire import Answer, Export, Figures, Generate, Replies, Save, Train

pytestmark = pytest.mark.slow

ASKED = Request(messages=(Message(role="user", content="w1"),), sampling=Sampling(max_tokens=4), logprobs=True)


def carry_out(folder: Path, kind: str, *, offloads: bool) -> list[Answer]:
    """Train, play, save and export in a folder; return the answers."""
    folder.mkdir()
    script = GivenCommands(
        [
            Export(str(folder / "untrained"), "tiny", 0),
            Train(number=1, rows=tuple(random_rows(5, seed=1))),
            Generate(requests=(ASKED,), version=1),
            Generate(requests=(ASKED,), version=0),
            Save(str(folder / "checkpoint")),
            Train(number=2, rows=tuple(random_rows(5, seed=2))),
            Export(str(folder / "former"), "tiny", 1),
            Train(number=3, rows=tuple(random_rows(5, seed=3))),
            Export(str(folder / "trained"), "tiny", 3),
        ]
    )
    told: Any = policy_gradient(steps=3) if kind == "policy gradient" else proximal_policy(steps=3, critic="full")
    training = training_config(**{**EXACT, "learning_rate": 0.05, "offload": offloads})
    job = make_job(folder, folder / "checkpoints", training, told)
    model, tokenizer = tiny()
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    decoding = Decoding(tokenizer, ModelConfig(name="tiny", id="tiny"), 8, 1024)
    serving = Serving(script, decoding, Versions(0), offloads=offloads)  # type: ignore[arg-type]
    make = PolicyGradientTrainer if kind == "policy gradient" else ProximalTrainer
    trainer = make(job, told, model, tokenizer, serving)
    serving.bind(trainer)
    with contextlib.suppress(Finished):
        trainer.train()
        serving.next_training()
    return script.answers


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["policy gradient", "PPO"])
def test_a_trainer_that_leaves_its_device_learns_the_same_bytes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staying = carry_out(tmp_path / "staying", kind, offloads=False)
    leave, moved = Offload.leave, list[int]()

    def leave_for_good(self: Offload) -> None:
        """Leave, and let an engine overwrite the memory of the device."""
        before = [] if self._away else [tensor.data for tensor in self._tensors()]
        leave(self)
        for tensor in before:
            tensor.fill_(float("nan") if tensor.is_floating_point() else 7)
        if before:
            moved.append(sum(tensor.numel() for tensor in before))

    monkeypatch.setattr(Offload, "leave", leave_for_good)
    leaving = carry_out(tmp_path / "leaving", kind, offloads=True)

    def comparable(answers: list[Answer]) -> list[Any]:
        return [
            one.figures
            if isinstance(one, Figures)
            else [reply.completions for reply in one.replies]
            if isinstance(one, Replies)
            else one
            for one in answers
        ]

    assert comparable(leaving) == comparable(staying)
    files = ["untrained/adapter_model", "former/adapter_model", "trained/adapter_model", "checkpoint/adapter_model"]
    for name in [f"{file}.safetensors" for file in files] + [f"checkpoint/{CRITIC}"] * (kind == "PPO"):
        one, other = (load_file(tmp_path / run / name) for run in ("staying", "leaving"))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one), name
    states = [torch.load(tmp_path / run / "checkpoint" / "optimizer.pt")["state"] for run in ("staying", "leaving")]
    moments = sum(value.numel() for state in states[0].values() for value in state.values())
    for key, state in states[0].items():
        assert all(torch.equal(value, states[1][key][name]) for name, value in state.items())
    # Before the first step the optimiser has no moments.
    weights = moved[0]
    assert weights > 0
    assert moved[-1] == weights + moments


def test_with_the_libraries_that_shard_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fsdp.yaml").touch()
    with pytest.raises(ConfigError, match=r"training\.offload: .* got true"):
        training_config(offload=True, accelerate_config=str(tmp_path / "fsdp.yaml"))
