"""Trainers whose processes share the weights, beside one process that has them all (`sharded.py`)."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import sharded
import steps
import torch
from safetensors.torch import load_file

from building import composed, make_job, policy_gradient, proximal_policy, training_config
from evorun.errors import ConfigError
from evorun.runner.settings import check
from evorun.runner.training_runs import samples_from_other_weights
from evorun.training.reference import Reference
from evorun.training.requirements import require_fitting
from evorun.training.settings import require_several
from evorun.training.weights import adapter
from evorun.training.wire import Figures, Replies
from evorun_process import environment, evorun

pytestmark = pytest.mark.slow

WITHOUT_DEEPSPEED = importlib.util.find_spec("deepspeed") is None
# DeepSpeed's first start compiles its communication for CPUs, for minutes; PPO is refused with zero3.
ZERO3 = [pytest.mark.nightly, pytest.mark.skipif(WITHOUT_DEEPSPEED, reason="needs the package deepspeed")]
CASES = [
    ("critic", "fsdp2"),  # with an adapter, a reference policy and all weights of a critic: it fails first
    *(pytest.param(part, "fsdp2", marks=pytest.mark.nightly) for part in ("adapter", "all", "bfloat16")),
    *(pytest.param(part, "zero3", marks=ZERO3) for part in ("adapter", "all")),
]


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sharded")
    imported = {**environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    chosen = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    of_cases = [item for item in chosen if "kind" in getattr(item, "fixturenames", ())]
    again = ":again" if any("resumed" in item.name for item in of_cases) else ""
    params = [item.callspec.params for item in of_cases]
    cases = {
        f"{param['part']}:{param['kind']}{again}"
        for param in params
        if param["kind"] != "zero3" or not WITHOUT_DEEPSPEED
    }
    done = evorun(str(path), *sorted(cases), cwd=path, program=sharded.__file__, env=imported)
    assert done.returncode == 0, done.stderr
    return path


def answers(folder: Path) -> list[Any]:
    read: list[Any] = torch.load(folder / "answers.pt", weights_only=False)
    return read


def texts(replies: Replies) -> list[str]:
    return [reply.completions[0].text for reply in replies.replies]


@pytest.mark.parametrize(("part", "kind"), CASES)
def test_two_processes_do_the_same_as_one(part: str, kind: str, folder: Path) -> None:
    """Steps with clipped gradients, held-out loss, and completions of each version and of the reference."""
    one, two = (answers(folder / part / name) for name in ("one", kind))
    assert list(map(type, one)) == list(map(type, two))
    for mine, theirs in zip(two, one, strict=True):
        if isinstance(mine, Figures):
            for name, value in theirs.figures.items():
                if name == "token_accuracy":
                    continue  # TRL's mean over passes, whatever their tokens
                rel, absolute = (0.2, 0.05) if part == "bfloat16" else (1e-4, 1e-6)
                assert mine.figures[name] == pytest.approx(value, rel=rel, abs=absolute), name
        elif isinstance(mine, Replies) and part != "bfloat16":  # rounding decides between words
            assert texts(mine) == texts(theirs)
    if part != "all":
        untrained, trained, reference = (texts(answer) for answer in one[1:4])
        assert untrained == reference != trained


@pytest.mark.parametrize(("part", "kind"), CASES)
def test_all_of_the_weights_are_exported(part: str, kind: str, folder: Path) -> None:
    file = "model.safetensors" if part == "all" else "adapter_model.safetensors"
    for name in ("former", "trained"):
        one, two = (load_file(folder / part / own / name / file) for own in ("one", kind))
        assert one.keys() == two.keys()
        for key, value in one.items():
            if part == "bfloat16":
                assert (two[key] - value).norm() <= 0.2 * value.norm(), key  # of gradients of three digits
                continue
            torch.testing.assert_close(two[key], value, rtol=1e-3, atol=1e-4)
    if part == "all":
        untrained = load_file(folder / part / "model" / "model.safetensors")
        assert two.keys() == untrained.keys()
        assert any(not torch.allclose(two[name], value, atol=1e-3) for name, value in untrained.items())


@pytest.mark.nightly  # in two more processes for as long
@pytest.mark.parametrize(("part", "kind"), CASES)
def test_a_resumed_trainer_goes_on_to_the_bit(part: str, kind: str, folder: Path) -> None:
    whole, again = answers(folder / part / kind), answers(folder / part / f"{kind}-again")
    for mine, theirs in zip(again, whole[-len(again) :], strict=True):
        if isinstance(mine, Figures):
            assert mine.figures == theirs.figures
        elif isinstance(mine, Replies):
            assert [reply.completions for reply in mine.replies] == [reply.completions for reply in theirs.replies]
    files = [path for path in (folder / part / kind / "update-2").rglob("*") if path.is_file()]
    # trainer_state.json has times, training_args.bin the folder
    compared = [path for path in files if path.name not in ("trainer_state.json", "training_args.bin")]
    assert any(path.name in ("optimizer.bin", "latest") for path in compared)
    assert any(path.suffix == ".safetensors" for path in compared)
    for path in compared:
        other = folder / part / f"{kind}-again" / "update-2" / path.relative_to(folder / part / kind / "update-2")
        if path.suffix == ".pt" and kind == "zero3":  # zip archives that name their file
            assert_the_same(torch.load(path, weights_only=False), torch.load(other, weights_only=False))
        else:
            assert other.read_bytes() == path.read_bytes(), path.name


def assert_the_same(one: Any, other: Any) -> None:
    """Compare what is nested, tensors to the bit."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert_the_same(value, other[key])
    elif isinstance(one, list | tuple):
        for mine, theirs in zip(one, other, strict=True):
            assert_the_same(mine, theirs)


def test_the_reference_policy_keeps_the_flags_of_trained_weights(tmp_path: Path) -> None:
    """FSDP2 reads them when it gathers weights: without them, the next update in bfloat16 would end in an error."""
    from peft import get_peft_model

    job = make_job(tmp_path, tmp_path, training_config(), policy_gradient())
    policy = get_peft_model(steps.tiny()[0], adapter(job.training, steps.tiny()[0]))
    trained = [name for name, parameter in policy.named_parameters() if parameter.requires_grad]
    with Reference(job).use(policy) as reference:
        assert [name for name, parameter in reference.named_parameters() if parameter.requires_grad] == trained != []


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"shard": "zero2"}, r"^training\.shard: expected"),
        ({"shard": "fsdp2", "num_processes": 1}, r"^training\.num_processes: expected at least 2 with .*fsdp2"),
        ({"shard": "zero3", "accelerate_config": __file__}, r"^training\.shard: expected null .*accelerate_config"),
        ({"shard": "fsdp2", "quantise": "nf4"}, r"^training\.quantise: expected null with training\.shard=fsdp2"),
        ({"weights": "full", "quantise": "nf4"}, r"^training\.quantise: expected null with training\.weights=full"),
    ],
)
def test_what_cannot_be_shared_is_refused_by_name(changes: dict[str, Any], refused: str) -> None:
    with pytest.raises(ConfigError, match=refused):
        training_config(**changes)


def test_several_processes_are_needed() -> None:
    require_several(training_config(shard="fsdp2", num_processes=2))
    require_several(training_config(shard="fsdp2", devices=[0, 1]))
    with pytest.raises(ConfigError, match=r"^training\.shard: expected several processes"):
        require_several(training_config(shard="fsdp2"))


def test_a_run_says_that_its_sampler_has_weights_that_are_not_quantised() -> None:
    words = ("method=grpo", "task=arithmetic", "model=qwen2_5_7b", "training.quantise=nf4")
    [line] = samples_from_other_weights(check(composed(*words, "engine=vllm")))
    assert "training.quantise=nf4" in line
    assert "engine=vllm" in line
    assert samples_from_other_weights(check(composed(*words, "engine=transformers"))) == []
    assert samples_from_other_weights(check(composed(*words[:3], "engine=vllm"))) == []


def test_what_the_objective_cannot_do_is_refused_before_anything_loads(tmp_path: Path) -> None:
    words = ("task=arithmetic", "engine=vllm", "model=qwen2_5_7b")
    for change in ("training.shard=zero3", "training.quantise=int8"):
        check(composed("method=grpo", *words, change))
        with pytest.raises(ConfigError, match=rf"^{change.partition('=')[0]}: .*PPO"):
            check(composed("method=ppo", *words, change))
    check(composed("method=ppo", *words, "training.shard=fsdp2"))
    with pytest.raises(ConfigError, match=r"^method\.critic: expected full or model with training\.shard=fsdp2"):
        check(composed("method=ppo", "method.critic=head", *words, "training.shard=fsdp2"))
    file = tmp_path / "accelerate.yaml"
    file.write_text("distributed_type: FSDP\nfsdp_config: {fsdp_version: 1}")
    with pytest.raises(ConfigError, match=r"^training\.accelerate_config: expected fsdp_version: 2"):
        require_fitting(policy_gradient(), training_config(accelerate_config=str(file)))
    file.write_text("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}")
    require_fitting(policy_gradient(), training_config(accelerate_config=str(file)))
    with pytest.raises(ConfigError, match=r"^training\.quantise: expected null with an accelerate_config that shards"):
        require_fitting(policy_gradient(), training_config(accelerate_config=str(file), quantise="int8"))
    with pytest.raises(ConfigError, match=r"^training\.accelerate_config: expected training\.shard=fsdp2"):
        require_fitting(proximal_policy(), training_config(accelerate_config=str(file)))
    # What it shards stands in a file that this machine does not have: DeepSpeed itself will say so.
    file.write_text("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: missing.json}")
    require_fitting(proximal_policy(), training_config(accelerate_config=str(file)))
