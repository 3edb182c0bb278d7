"""The time of a step by cause, on a clock that the test sets."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from evorun.models.memory import GIB, vllm_peak
from evorun.runs.reading import read_speed
from evorun.runs.stopwatch import Stopwatch, append_speed


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_second_counts_once_and_rates_are_by_the_time_that_was_busy() -> None:
    clock = Clock()
    stopwatch = Stopwatch(clock)
    clock.now += 1  # nothing is open
    with stopwatch.during("generation"):
        clock.now += 2
        with stopwatch.during("judging"), stopwatch.during("generation"):
            clock.now += 4
        with stopwatch.during("training"):  # the next rollouts go on beside the update
            clock.now += 8
    with stopwatch.during("judging"):
        clock.now += 16
    with stopwatch.during("weight_sync"):
        clock.now += 32
    stopwatch.add(prefilled=280, decoded=140)
    stopwatch.add(trained=50, trained_seconds=5.0)
    stopwatch.note_largest("trainer_memory", 3.0)
    stopwatch.note_largest("trainer_memory", 2.0)
    figures = stopwatch.take()
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    assert 0 < figures.pop("run_memory") <= own
    assert figures == {
        "seconds": 63,
        "training_seconds": 8,
        "weight_sync_seconds": 32,
        "generation_seconds": 6,
        "judging_seconds": 16,
        "other_seconds": 1,
        "prefill_tokens_per_second": 20,
        "decode_tokens_per_second": 10,
        "train_tokens_per_second": 10,
        "trainer_memory": 3,
    }


def test_a_step_without_an_update_has_the_time_of_its_completions_and_a_replayed_one_no_figures() -> None:
    clock = Clock()
    stopwatch = Stopwatch(clock)
    with stopwatch.during("generation"):
        clock.now += 5
    stopwatch.add(prefilled=0, decoded=10)
    figures = stopwatch.take()
    assert figures.pop("run_memory") > 0
    assert figures == {"seconds": 5, "generation_seconds": 5, "decode_tokens_per_second": 2}
    clock.now += 3
    with stopwatch.during("weight_sync"):  # a resume repeats a step: its replies are in the journal
        clock.now += 2
    assert stopwatch.take() == {}
    with stopwatch.during("training"):
        clock.now += 1
    assert stopwatch.take()["seconds"] == 1


def test_the_last_line_of_a_step_with_an_update_counts(tmp_path: Path) -> None:
    append_speed(tmp_path, 1, {"seconds": 1.23456, "training_seconds": 1.0})
    append_speed(tmp_path, 2, {"seconds": 2.0})
    append_speed(tmp_path, 1, {"seconds": 3.0, "training_seconds": 1.0})  # made again by a resumed run
    append_speed(tmp_path, 1, {"seconds": 0.1})  # repeated from the journal while the next rollouts run
    assert read_speed(tmp_path) == {1: {"seconds": 3.0, "training_seconds": 1.0}, 2: {"seconds": 2.0}}
    assert json.loads((tmp_path / "speed.jsonl").read_text().splitlines()[0])["figures"]["seconds"] == 1.235


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("GeForce GT 710", None),
    ],
)
def test_the_peak_of_a_gpu_is_found_by_its_name(name: str, teraflops: int | None) -> None:
    pytest.importorskip("torch")
    from evorun.training.speed import find_peak

    peak = find_peak(name)
    assert (None if peak is None else peak / 1e12) == teraflops


def test_a_trained_weight_takes_6_operations_and_a_frozen_one_4() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    from evorun.training.speed import flops_per_token

    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16, bias=False) for _ in range(3)))
    model[1].weight.requires_grad_(False)
    inputs = torch.ones(5, 16, requires_grad=True)  # as the output of a layer below
    with FlopCounterMode(display=False) as counter:
        model(inputs).sum().backward()
    assert flops_per_token(model) * 5 == counter.get_total_flops()


ENGINE = """
import pathlib, sys
pathlib.Path("/proc/self/comm").write_text(sys.argv[1])
held = b"x" * int(sys.argv[2])
print(len(held), flush=True)
if len(sys.argv) > 3:
    held = None  # a peak that is over
    print("freed", flush=True)
sys.stdin.read()
"""
"""A process with a name and so many bytes."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells other processes' peaks")
def test_the_memory_of_vllms_processes_is_the_sum_of_their_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil")
    assert vllm_peak() is None
    monkeypatch.setitem(sys.modules, "vllm", sys)
    assert vllm_peak() is None
    size = 100 * 2**20
    words = (("VLLM::EngineCore", size), ("VLLM::Worker_TP0", size, "freed"), ("another", size))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ENGINE, *map(str, one)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for one in words
    ]
    try:
        for process, (_, held, *freed) in zip(started, words, strict=True):
            assert process.stdout is not None
            assert process.stdout.readline() == f"{held}\n"
            assert not freed or process.stdout.readline() == "freed\n"
        peak = vllm_peak()
        assert peak is not None
        assert 2 * size < peak < 3 * size  # two of them, with their interpreters
        clock = Clock()
        stopwatch = Stopwatch(clock)
        with stopwatch.during("training"):
            clock.now += 1
        assert stopwatch.take()["vllm_memory"] == pytest.approx(peak / GIB)
    finally:
        for process in started:
            process.communicate("")
