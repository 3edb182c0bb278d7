"""The GPUs of the papers' set-ups on three inventories, what a run does with its plan, and what it refuses."""

import io
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from building import composed
from evorun.cli import planning
from evorun.errors import ConfigError, EngineError
from evorun.models import Completion, Reply, Request
from evorun.models.busy import BusyTime
from evorun.models.devices import VISIBLE, read_inventory
from evorun.models.transformers.engine import TransformersConfig
from evorun.models.vllm.engine import VllmConfig
from evorun.reports.facts import list_facts
from evorun.runner import gpu_plans
from evorun.runner.experiment import run_experiment
from evorun.runner.gpu_plans import GpuTimes, apply, place_run, plan_gpus, plan_stages, show_numbers
from evorun.runner.settings import RunConfig, check
from evorun.runs.directory import load_manifest
from evorun.runs.manifest import GpuInRun
from evorun.runs.reading import read_results
from evorun.runs.schema import Results
from evorun.runs.terminal import Terminal
from evorun.testing.runs import COMPLETED

ESPL = ("experiment=espl/figure11", "model=qwen2_5_7b", "engine=vllm", "method=espl")
MPO = ("experiment=mpo/essay", "method=mpo", "reward_engine=vllm", "meta_engine=vllm")
FULL = ("method=grpo", "task=arithmetic", "engine=transformers", "model=qwen2_1_5b", "training=full_policy_gradient")
ZERO_SHOT = ("method=zero_shot", "task=arithmetic", "engine=transformers", "model=qwen2_1_5b")
LAFT = ("experiment=laft/tsp", "student=laft", "method=lyria", "engine=vllm", "teacher_engine=vllm")


@cache
def config(*words: str) -> RunConfig:
    return check(composed(*words))


def rows(words: tuple[str, ...], gpus: str) -> list[str]:
    """Return a line for each engine and trainer: stage, roles, GPUs, copies x GPUs of each, GiB, share."""
    planned, _ = plan_stages(config(*words), read_inventory(gpus))
    return [
        f"{one.stage or 'run'}: {','.join(one.roles)} on {show_numbers(one.gpus)}, {one.copies} x {one.gpus_per_copy}, "
        f"{one.weights_gib:.1f} + {one.training_gib + one.cache_gib + one.work_gib:.1f} GiB, {one.share:.0%}"
        + (" sleeps" if one.sleeps else "")
        for one in planned
    ]


GOLDEN: dict[tuple[tuple[str, ...], str], list[str]] = {
    (ESPL, "1x80"): [
        "run: policy,reference on 0, 1 x 1, 14.2 + 5.1 GiB, 55%",
        "run: trainer on 0, 1 x 1, 14.2 + 13.9 GiB, 35%",
    ],
    (ESPL, "8x80"): [
        "run: policy,reference on 3-7, 5 x 1, 14.2 + 5.1 GiB, 90%",
        "run: trainer on 0-2, 3 x 1, 14.2 + 14.2 GiB, 35%",
    ],
    (ESPL, "2x8x80"): [
        "run: policy,reference on 6-15, 10 x 1, 14.2 + 5.1 GiB, 90%",
        "run: trainer on 0-5, 6 x 1, 14.2 + 14.2 GiB, 35%",
    ],
    (MPO, "2x80"): [
        "run: reward on 0, 1 x 1, 18.0 + 11.4 GiB, 43% sleeps",
        "run: meta on 1, 1 x 1, 38.7 + 13.6 GiB, 90%",
        "run: trainer,policy,gold on 0, 1 x 1, 2.9 + 41.6 GiB, 47%",
    ],
    (MPO, "8x80"): [
        "run: reward on 3-7, 5 x 1, 18.0 + 11.4 GiB, 90%",
        "run: meta on 2, 1 x 1, 38.7 + 13.6 GiB, 90%",
        "run: trainer,policy,gold on 0-1, 2 x 1, 2.9 + 41.6 GiB, 56%",
    ],
    (MPO, "2x8x80"): [
        "run: reward on 2-7,10-15, 12 x 1, 18.0 + 11.4 GiB, 90%",
        "run: meta on 8-9, 2 x 1, 38.7 + 13.6 GiB, 90%",
        "run: trainer,policy,gold on 0-1, 2 x 1, 2.9 + 41.6 GiB, 56%",
    ],
    (ZERO_SHOT, "1x80"): ["run: policy on 0, 1 x 1, 2.9 + 5.1 GiB, 10%"],
    # 16 bytes for each of 1.54 billion parameters, and 2 for the reference policy's copy
    (FULL, "1x80"): ["run: trainer,policy on 0, 1 x 1, 0.0 + 33.6 GiB, 42%"],
    ((*FULL, "method.kl=0.01"), "1x80"): ["run: trainer,policy on 0, 1 x 1, 0.0 + 36.4 GiB, 46%"],
    ((*FULL, "method.kl=0.01", "training.reference=cpu"), "1x80"): [
        "run: trainer,policy on 0, 1 x 1, 0.0 + 33.6 GiB, 42%"
    ],
    ((*MPO, "training=full_ppo", "method.critic=full"), "8x80"): [
        "run: reward on 3-7, 5 x 1, 18.0 + 11.4 GiB, 90%",
        "run: meta on 2, 1 x 1, 38.7 + 13.6 GiB, 90%",
        "run: trainer,policy,gold on 0-1, 2 x 1, 0.0 + 71.7 GiB, 90%",
    ],
    (LAFT, "8x80"): [
        "teacher: policy,judge on 0-7, 4 x 2, 30.5 + 7.0 GiB, 90%",
        "student: policy on 4-7, 4 x 1, 6.0 + 16.7 GiB, 90%",
        "student: trainer on 0-3, 4 x 1, 6.0 + 9.8 GiB, 20%",
        "run: policy,judge on 0-7, 8 x 1, 6.0 + 16.5 GiB, 90%",
    ],
    (LAFT, "2x8x80"): [
        "teacher: policy,judge on 0-15, 8 x 2, 30.5 + 7.0 GiB, 90%",
        "student: policy on 8-15, 8 x 1, 6.0 + 16.7 GiB, 90%",
        "student: trainer on 0-7, 8 x 1, 6.0 + 9.8 GiB, 20%",
        "run: policy,judge on 0-15, 16 x 1, 6.0 + 16.5 GiB, 90%",
    ],
}


@pytest.mark.sample(7)
@pytest.mark.parametrize(("words", "gpus"), GOLDEN, ids=lambda value: value if isinstance(value, str) else value[0])
def test_the_papers_set_ups_have_these_gpus(words: tuple[str, ...], gpus: str) -> None:
    assert rows(words, gpus) == GOLDEN[words, gpus]


GRPO = ("method=grpo", "task=arithmetic", "engine=vllm")


@pytest.mark.parametrize(
    ("words", "gpus", "line"),
    [
        (
            ESPL,
            "1x24",
            "^training: qwen2_5_7b takes 28.1 GiB of each of 1 GPU .*; no smaller batch fits: lower method.",
        ),
        (
            (*GRPO, "model=gpt_oss_120b", "training.quantise=nf4"),
            "8x80",
            r"; weights and optimiser alone do not fit: try training.shard=fsdp2 over \d such GPUs or more without ",
        ),
        (
            MPO,
            "1x24",
            "^reward_engine: qwen2_5_32b_awq takes 29.4 GiB of each of 1 GPU .weights 18.0, cache 8.0, work ",
        ),
        (MPO, "1x80", "^GPUs: expected room for reward_engine .* 29.4 GiB, meta_engine .*, training .*, got 72.0 GiB "),
        (
            (*ESPL, "engine.tensor_parallel_size=8"),
            "8x80",
            "expected a number that divides qwen2_5_7b's 28 attention he",
        ),
        (LAFT, "1x24", "^in stage teacher .*: engine: qwen2_5_32b takes 72.4 GiB of each of 1 GPU"),
        (LAFT, "1x80", "^in stage teacher .* there is 1 GPU with 72.0 GiB to use; engine.max_model_len=30720 fits"),
        (
            (*GRPO, "model=qwen2_5_7b", "engine=transformers"),
            "1x24",
            "; training.micro_batch=2 training.micro_batch_tokens=4096 engine.max_batch_size=8 would fit$",
        ),
        ((*FULL, "method.kl=0.01"), "1x40", "^training: .*; training.reference=cpu would fit$"),
        (
            (*ZERO_SHOT[:-1], "model=qwen2_5_72b"),
            "2x24",
            r"; its weights alone \(135.4 GiB\) fill 7 such GPUs, and at most 2 may share a copy here: take 2 of 76 "
            r"GiB or more, or a server that has it \(engine=server\)$",
        ),
        (
            (*ZERO_SHOT[:2], "engine=vllm", "model=deepseek_v3_1", "model.quantization=null"),
            "4x8x80",
            r"; its weights alone \(1249.9 GiB\) fill 18 such GPUs, and at most 8 may share a copy here: take 8 ",
        ),
    ],
)
def test_what_cannot_fit_is_refused_with_what_would(words: tuple[str, ...], gpus: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line) as error:
        rows(words, gpus)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ((*LAFT, "teacher_engine.max_model_len=30720"), "1x80"),
        (
            (
                *(*GRPO, "model=qwen2_5_7b", "engine=transformers", "training.micro_batch=2"),
                *("training.micro_batch_tokens=4096", "engine.max_batch_size=8"),
            ),
            "1x24",
        ),
        ((*FULL, "method.kl=0.01", "training.reference=cpu"), "1x40"),
        ((*ZERO_SHOT[:-1], "model=qwen2_5_72b", "engine.max_batch_size=1"), "2x96"),
    ],
)
def test_what_a_refusal_says_would_fit_does(words: tuple[str, ...], gpus: str) -> None:
    assert rows(words, gpus)


def placed(*words: str, gpus: str = "8x80") -> RunConfig:
    one = config(*words)
    plan = plan_gpus(one, read_inventory(gpus))
    assert plan is not None
    return apply(one, plan)


def test_a_run_takes_its_plan() -> None:
    one = placed(*ESPL)
    assert isinstance(one.engine, VllmConfig)
    assert (one.engine.devices, one.engine.copies, one.engine.memory_share) == ([3, 4, 5, 6, 7], 5, 0.9)
    assert one.engine.engine_arguments(one.model, "m")["data_parallel_size"] == 5
    assert one.training is not None
    assert (one.training.devices, one.training.processes) == ([0, 1, 2], 3)
    assert one.raw == config(*ESPL).raw  # it is the same run, and may go on elsewhere
    crowded = placed(*MPO, gpus="2x80").others["reward"].engine
    assert isinstance(crowded, VllmConfig)
    assert crowded.gpu_use.sleeps
    assert crowded.gpu_use.share < 0.5


def test_a_trainer_leaves_the_gpu_to_an_engine_that_sleeps_during_its_updates() -> None:
    policy = (*GRPO, "model=qwen2_5_7b")
    assert rows((*policy, "training.offload=false"), "1x48") == [
        "run: policy on 0, 1 x 1, 14.2 + 5.1 GiB, 55% sleeps",
        "run: trainer on 0, 1 x 1, 14.2 + 13.5 GiB, 35%",
    ]
    assert rows(policy, "1x48") == [
        "run: policy on 0, 1 x 1, 14.2 + 5.1 GiB, 87% sleeps",
        "run: trainer on 0, 1 x 1, 14.2 + 13.5 GiB, 3%",  # CUDA's context
    ]
    assert [
        one.training and one.training.offload
        for one in (
            placed(*policy, gpus="1x40"),
            placed(*policy, gpus="1x80"),  # holds both at once
            placed(*policy, gpus="2x40"),
            placed(*policy, "training.offload=true"),
            placed(*policy, "engine=transformers", gpus="1x48"),  # the trainer answers itself
        )
    ] == [True, False, False, True, False]
    with pytest.raises(ConfigError, match="expected room for"):
        placed(*policy, "training.offload=false", gpus="1x40")


def test_roles_that_share_an_engine_still_do() -> None:
    alike = placed(*MPO, "meta=qwen2_5_32b_awq")
    assert alike.others["meta"] == alike.others["reward"]
    own = placed(*GRPO, "model=qwen2_5_7b", "judge=qwen2_5_7b", "judge_engine=vllm")
    assert own.others["judge"].engine == own.engine


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("engine.devices=[6,7]", lambda one: one.engine.devices == [6, 7]),
        ("engine.tensor_parallel_size=4", lambda one: one.engine.tensor_parallel_size == 4),
        ("engine.replicas=2", lambda one: (one.engine.copies, len(one.engine.devices)) == (2, 2)),
        ("engine.gpu_memory_utilization=0.5", lambda one: one.engine.memory_share == 0.5),
        ("engine.sleep=true", lambda one: one.engine.gpu_use.sleeps),
        ("training.num_processes=2", lambda one: len(one.training.devices) == one.training.processes == 2),
        ("training.devices=[5,0]", lambda one: one.training.devices == [5, 0]),
    ],
)
def test_a_users_key_goes_before_and_all_other_gpus_are_used(key: str, found: Any) -> None:
    one = placed(*GRPO, "model=qwen2_5_7b", key)
    assert found(one)
    assert one.training is not None
    assert isinstance(one.engine, VllmConfig)
    taken = [*(one.engine.devices or ()), *(one.training.devices or ())]
    free = 8 - len(set(taken))
    # both have a key only where their numbers are given
    assert free == (0 if ("devices" not in key and "sleep" not in key) or key.startswith("engine.devices") else free)
    assert len(set(taken)) == len(taken)


def test_an_accelerate_file_divides_the_trainers_memory_in_its_own_way(tmp_path: Path) -> None:
    file = tmp_path / "fsdp.yaml"
    file.write_text("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n")
    words = (*GRPO, "model=qwen2_5_72b", f"training.accelerate_config={file}", "training.num_processes=4")
    one = placed(*words)
    assert one.training == config(*words).training
    assert one.engine.gpu_use is not None
    assert list(one.engine.gpu_use.devices) == [4, 5, 6, 7]


def test_quantised_and_shared_weights_take_less_of_a_gpu() -> None:
    """By hand: 6.525e9 weights of linear layers of 7B at 4.127 bits, 1.09e9 others at 16, are 5.16 GiB."""
    own = ("method=grpo", "task=arithmetic", "engine=transformers", "model=qwen2_5_7b")
    small = ("engine.max_batch_size=8", "engine.prefix_cache_tokens=8192", "training.micro_batch_tokens=2048")
    assert rows((*own, *small), "1x24") == ["run: trainer,policy on 0, 1 x 1, 14.2 + 7.3 GiB, 90%"]
    assert rows((*own, *small, "training.quantise=nf4"), "1x24") == [
        "run: trainer,policy on 0, 1 x 1, 5.2 + 7.3 GiB, 52%"
    ]
    # PPO's critic copies them but for the embeddings, with as many bits per weight
    ppo = (*own, *small, "method=ppo", "method.critic=model")
    wide, rounded = (
        plan_stages(config(*ppo, *more), read_inventory("1x80"))[0][0] for more in ((), ("training.quantise=nf4",))
    )
    assert wide.training_gib - rounded.training_gib == pytest.approx(6.525e9 * (16 - 4.127) / 8 / 2**30, rel=0.002)
    # 61.0 GiB of weights do not fit beside a pass; the fewest processes whose parts do are 2
    large = (*GRPO, "model=qwen2_5_32b", "engine.max_model_len=8192")
    with pytest.raises(ConfigError, match=r"88\.4 GiB .* try training\.quantise=nf4, training\.shard=fsdp2"):
        rows(large, "8x80")
    assert rows((*large, "training.shard=fsdp2"), "8x80") == [
        "run: policy on 2-7, 6 x 1, 61.0 + 6.4 GiB, 90%",
        "run: trainer on 0-1, 2 x 1, 30.5 + 29.2 GiB, 75%",
    ]
    with pytest.raises(ConfigError, match=r"^training\.shard: expected at least 2 GPUs .*, got 1; "):
        rows((*large, "training.shard=fsdp2"), "1x80")


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, mib: int) -> None:
    """Put a driver's tool on the path that reports GPUs."""
    tool = folder / "nvidia-smi"
    lines = "\n".join(f"{index}, GPU-{index}, {mib} MiB" for index in range(count))
    numbers = "\n".join(map(str, range(count)))
    tool.write_text(f"#!/bin/sh\ncase $1 in *=index) echo '{numbers}';; *memory*) echo '{lines}';; esac\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv(VISIBLE, raising=False)


def test_a_run_is_placed_on_the_gpus_that_it_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = config(*GRPO, "model=qwen2_5_7b")
    assert place_run(one, required=True) == (one, None)  # without a GPU all stays as it was
    nvidia_smi(tmp_path, monkeypatch, 4, 81559)
    found, plan = place_run(one, required=True)
    assert plan is not None
    assert len(plan.gpus) == 4
    assert found.engine != one.engine
    monkeypatch.setenv(VISIBLE, "2")
    with pytest.raises(ConfigError, match=r"^engine: qwen2_5_72b takes 150.6 GiB"):
        place_run(config(*GRPO, "model=qwen2_5_72b"), required=True)
    assert place_run(config(*MPO), required=False) == (config(*MPO), None)  # its journal may be all that it needs
    monkeypatch.setenv(VISIBLE, "MIG-7")
    assert place_run(one, required=True) == (one, None)


class Fixed:
    """Answers every request alike."""

    name = "m"

    async def complete(self, request: Request) -> Reply:
        done = Completion(text="The answer is (A).", finish_reason="stop", tokens=5)
        return Reply(completions=(done,) * request.sampling.n, prompt_tokens=7, seconds=0.0)

    async def close(self) -> None:
        pass


def test_a_resumed_run_shows_its_plan_and_how_long_each_gpu_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = iter(
        (None, None, EngineError("m: out of order"), None)
    )  # at the third of three requests, which the resume repeats

    class Stopped(Fixed):
        async def complete(self, request: Request) -> Reply:
            if (stop := next(stops)) is not None:
                raise stop
            return await super().complete(request)

    async def opened(engine: TransformersConfig, model: Any) -> Stopped:
        assert engine.devices == [0]
        return Stopped()

    monkeypatch.setattr(TransformersConfig, "open", opened)
    ticks = count(0.0, 0.001)  # a tick per block, as each ends before the next one begins
    monkeypatch.setattr(gpu_plans, "BusyTime", lambda clock: BusyTime(lambda: next(ticks)))
    nvidia_smi(tmp_path, monkeypatch, 2, 24564)
    words = ("method=zero_shot", "task=mathbench", "task.source=sample", "task.limit=3", "engine=transformers")
    own = config(*words, "evorun.progress=off", "run.concurrency=1")
    shown = Terminal(file=io.StringIO(), width=100)
    run = tmp_path / "run"
    assert run_experiment(own, run, [], shown).status == "failed"
    assert "GPUs: 2 x 23.99 GiB" in shown.file.getvalue()  # type: ignore[attr-defined]
    assert "Nothing runs on GPU 1." in shown.file.getvalue()  # type: ignore[attr-defined]
    assert [one.busy_seconds for one in load_manifest(run).gpus] == [0.003, 0.0]
    assert run_experiment(own, run, [], shown) == COMPLETED
    used, unused = load_manifest(run).gpus
    assert (used.gpu, used.used_by, used.busy_seconds) == (0, ["engine"], 0.004)
    assert (unused.gpu, unused.used_by, unused.busy_seconds) == (1, [], 0.0)
    assert cast("Results", read_results(run)).gpu_waiting == {0: pytest.approx(used.waiting, abs=1e-4), 1: 1.0}
    facts = dict(list_facts(load_manifest(run)))
    assert facts["GPUs waited"].endswith("% (0: engine), 100.0 % (1: unused)")


def test_times_of_a_resumed_run_add_up() -> None:
    plan = plan_gpus(
        config("method=zero_shot", "task=mathbench", "engine=vllm", "model=qwen2_5_7b"), read_inventory("1x24")
    )
    known: list[GpuInRun] = []
    for busy, ends in ((30.0, 40.0), (30.0, 80.0)):
        times = GpuTimes(plan, known, iter((0.0, 0.0, busy, ends)).__next__)
        times.clocks[0].begin()
        times.clocks[0].end()
        known = times.add_up()
    assert known == [GpuInRun(gpu=0, used_by=["engine"], busy_seconds=60.0, seconds=120.0)]
    assert known[0].waiting == 0.5


def test_nothing_is_placed_of_simulated_runs_and_models_elsewhere() -> None:
    gpus = read_inventory("8x80")
    for words in (
        ("method=grpo", "task=arithmetic", "engine=simulated"),
        ("method=zero_shot", "task=mathbench", "engine=openai", "model=gpt_4o"),
        ("method=zero_shot", "task=mathbench", "model=random"),
    ):
        assert plan_gpus(config(*words), gpus) is None
    only = plan_gpus(
        config("method=duel_evolve", "task=mathbench", "engine=openai", "model=gpt_4o", "judge=gemma3_4b"), gpus
    )
    assert only is None  # the judge is on the same server
    mixed = ("method=duel_evolve", "task=mathbench", "engine=openai", "model=gpt_4o", "judge=gemma3_4b")
    (judge,) = rows((*mixed, "judge_engine=vllm"), "8x80")
    assert judge.startswith("run: judge on 0-7, 8 x 1")


def test_a_model_of_unknown_size_is_said(tmp_path: Path) -> None:
    words = ("method=zero_shot", "task=mathbench", "engine=vllm", "model=local", f"model.id={tmp_path}")
    planned, notes = plan_stages(config(*words), read_inventory("1x24"))
    assert planned == []
    assert notes == ["GPUs: not planned, no config.json of local is here; model.id=FOLDER names one."]


def test_evorun_plan_shows_the_gpus(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")  # or sentences in a pipe are not wrapped
    words = ["method=zero_shot", "task=mathbench", "task.source=sample", "task.limit=2", "engine=vllm"]
    planning.plan([*words, "model=qwen2_5_72b_awq", "--gpus=3x80"], Terminal(width=80))
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "GPUs: 3 x 80 GiB" in said
    assert next(line for line in said.splitlines() if "qwen2_5_72b_awq   " in line).split() == (
        ["policy", "qwen2_5_72b_awq", "0-2", "3", "38.7", "13.6", "90%"]
    )
    planning.plan([*words, "model=qwen2_5_7b"], Terminal(width=80))
    assert "GiB; what each" not in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"^engine: qwen2_5_32b takes"):
        planning.plan([*words, "model=qwen2_5_32b", "--gpus", "1x24"], Terminal())
    with pytest.raises(ConfigError, match="--gpus: expected once"):
        planning.plan([*words, "--gpus=1x24", "--gpus=1x80"], Terminal())
