"""Placement of engines and trainer on GPUs: what holds for any demands, and single decisions."""

import dataclasses
import random
from typing import Any

import pytest

from evorun.errors import ConfigError
from evorun.models.devices import Gpu, read_inventory
from evorun.runner.memory import ASLEEP_GIB, CONTEXT_GIB, GpuMemory
from evorun.runner.planner import USABLE, Assignment, Demand, place


def engine(key: str, gib: float, **more: Any) -> Demand:
    """An engine whose weights of so many GiB are divided among the GPUs of a copy."""
    needs = {width: GpuMemory(gib / width, work=1.0) for width in (1, 2, 4, 8)}
    return Demand(key=key, roles=(key,), model=f"model of {key}", **{"needs": needs, "sleeps": None, **more})


def trainer(resident: float, peak: float, **more: Any) -> Demand:
    need = GpuMemory(resident - 1.5, work=1.5 + peak - resident)
    return Demand(key="training", roles=("trainer",), model="m", needs={1: need}, trains=True, expands=False, **more)


def on(*demands: Demand, gpus: str = "8x80") -> dict[str, Assignment]:
    return {one.demand.key: one for one in place(demands, read_inventory(gpus))}


def seen(found: dict[str, Assignment]) -> dict[str, tuple[int, ...]]:
    return {key: one.devices for key, one in found.items()}


def check_memory(found: list[Assignment], gpus: list[Gpu]) -> None:
    """Check every GPU by its own count: while all answer, and during an update, when engines that lend are asleep."""
    for device, gpu in enumerate(gpus):
        there = [one for one in found if device in one.devices]
        lends = [one for one in there if one.sleeps]
        awake = sum(one.share * gpu.memory for one in there)
        assert awake <= gpu.memory + 1e-9
        for one in there:
            if one.demand.trains:
                between = CONTEXT_GIB if one.demand.offloads else one.memory.resident
                resident = between if lends else one.memory.total
                assert one.share * gpu.memory <= resident + 1e-9
                staying = sum(other.share * gpu.memory for other in there if not other.sleeps and other is not one)
                assert one.memory.total + staying + ASLEEP_GIB * len(lends) <= gpu.memory + 1e-9
            else:
                assert one.share * gpu.memory >= one.memory.total - gpu.memory / 1000 - 1e-9


def random_case(number: int) -> tuple[list[Demand], list[Gpu]]:
    draw = random.Random(number)
    nodes, count = draw.choice([(1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (2, 8)])
    gpus = [Gpu(draw.choice([24.0, 48.0, 80.0]), node) for node in range(nodes) for _ in range(count)]
    demands = []
    for key in draw.sample(["engine", "judge_engine", "reward_engine", "meta_engine"], draw.randint(1, 4)):
        more: dict[str, Any] = {"work": draw.uniform(0.1, 10), "sleeps": draw.choice([None, None, False])}
        if draw.random() < 0.2:
            more["copies"] = draw.randint(1, 2)
        if draw.random() < 0.2:
            more["devices"] = tuple(draw.sample(range(len(gpus)), 1))
            more.pop("copies", None)
        if draw.random() < 0.2:
            more["share"] = draw.choice([0.3, 0.45, 0.9])
        demands.append(engine(key, draw.uniform(1, 90), **more))
    if draw.random() < 0.5:
        resident = draw.uniform(3, 40)
        peak, offloads = resident + draw.uniform(0, 20), draw.random() < 0.5
        demands.append(trainer(resident, peak, work=draw.uniform(0.1, 10), offloads=offloads))
    return demands, gpus


def test_no_gpu_is_overfull_everyone_is_placed_and_users_keys_hold_for_any_demands() -> None:
    placed = 0
    for number in range(400):
        demands, gpus = random_case(number)
        try:
            found = place(demands, gpus)
        except ConfigError:
            continue
        placed += 1
        assert [one.demand for one in found] == demands
        check_memory(found, gpus)
        for one in found:
            assert len(set(one.devices)) == len(one.devices) == one.copies * one.width
            assert one.copies >= 1
            assert one.demand.devices in (None, one.devices)
            assert one.demand.copies in (None, one.copies)
            assert one.demand.share in (None, one.share) or one.share == pytest.approx(one.demand.share, abs=1e-3)
            for start in range(0, len(one.devices), one.width):
                assert len({gpus[device].node for device in one.devices[start : start + one.width]}) == 1
            assert not one.demand.trains or {gpus[device].node for device in one.devices} == {0}
    assert placed > 150  # otherwise nothing was tested


def test_engines_that_a_run_starts_are_on_its_node_and_its_trainer_has_the_other_one() -> None:
    bound = [engine("engine", 14, work=3.0, here=True), trainer(10, 20, work=4.0)]
    assert seen(on(*bound, gpus="2x4x80")) == {"engine": (1, 2, 3), "training": (0, 4, 5, 6, 7)}
    assert seen(on(*bound, gpus="2x1x80")) == {"engine": (0,), "training": (1,)}
    few = [bound[0], trainer(10, 20, work=4.0, copies=2)]
    assert seen(on(*few, gpus="2x4x80")) == {"engine": (0, 1, 2, 3), "training": (4, 5)}
    large = [engine("engine", 30, copies=3, here=True)]
    with pytest.raises(ConfigError, match=r"3 x 1 GPU"):
        on(*large, gpus="2x2x80")


def test_whoever_has_the_most_work_gets_the_gpus_that_are_left() -> None:
    found = on(engine("engine", 14, work=3.3), engine("judge_engine", 30, work=0.9), trainer(10, 20, work=2.0))
    assert seen(found) == {"engine": (4, 5, 6, 7), "judge_engine": (3,), "training": (0, 1, 2)}
    assert {one.share for one in found.values()} == {USABLE, 0.25}


@pytest.mark.parametrize(("gib", "width", "copies"), [(60, 1, 8), (72, 2, 4), (150, 4, 2), (500, 8, 1)])
def test_a_model_is_split_where_one_gpu_does_not_hold_it(gib: float, width: int, copies: int) -> None:
    found = on(engine("engine", gib))["engine"]
    assert (found.width, found.copies) == (width, copies)


def test_copies_that_a_batch_does_not_divide_among_are_skipped() -> None:
    parts = trainer(10, 20, work=100.0, allowed_copies=lambda copies: 12 % copies == 0)
    found = on(parts, engine("engine", 14, work=1.0))
    assert (found["training"].copies, found["engine"].copies) == (6, 2)


def test_on_too_few_gpus_shares_are_by_need_and_then_by_work() -> None:
    found = on(engine("engine", 19, work=3.0), engine("reward_engine", 9, work=1.0), gpus="1x80")
    # 72 GiB to give: 20 and 10 are needed, the rest goes 3 to 1
    assert found["engine"].share == pytest.approx((20 + 42 * 0.75) / 80, abs=2e-3)
    assert found["reward_engine"].share == pytest.approx((10 + 42 * 0.25) / 80, abs=2e-3)


def test_an_engine_sleeps_only_where_an_update_needs_its_memory() -> None:
    assert not on(engine("engine", 20), trainer(10, 40), gpus="1x80")["engine"].sleeps
    tight = (engine("engine", 40), trainer(20, 60))
    found = on(*tight, gpus="1x80")
    assert found["engine"].sleeps
    assert found["training"].share == 0.25
    assert not on(*tight, gpus="2x80")["engine"].sleeps
    with pytest.raises(ConfigError, match="expected room for"):  # a sleeping engine keeps some of the GPU
        on(engine("engine", 20), trainer(20, 71), gpus="1x80")
    with pytest.raises(ConfigError, match="expected room for"):
        on(dataclasses.replace(tight[0], sleeps=False), tight[1], gpus="1x80")


def test_a_trainer_that_leaves_its_gpu_keeps_no_memory_from_a_sleeping_engine() -> None:
    staying, leaving = (trainer(40, 60, offloads=offloads) for offloads in (False, True))
    with pytest.raises(ConfigError, match="expected room for"):
        on(engine("engine", 40), staying, gpus="1x80")
    found = on(engine("engine", 40), leaving, gpus="1x80")
    assert found["engine"].sleeps
    assert found["training"].share == pytest.approx(CONTEXT_GIB / 80, abs=1e-3)
    assert found["engine"].share == pytest.approx(0.9 - CONTEXT_GIB / 80, abs=1e-3)


@pytest.mark.parametrize(
    ("demands", "gpus", "line"),
    [
        (
            [engine("engine", 200)],
            "2x80",
            r"engine: model of engine takes 101.0 GiB of each of 2 GPUs \(weights 100.0, ",
        ),
        ([engine("engine", 20, share=0.2)], "1x80", "there is 1 GPU with 16.0 GiB to use"),
        ([engine("engine", 20, devices=(8,))], "8x80", r"engine.devices: expected GPUs 0 to 7, got \[8\]"),
        ([engine("engine", 60), engine("judge_engine", 40)], "1x80", r"room for engine \(.*\) 61.0 GiB, judge_engine"),
        ([engine("engine", 20, copies=3)], "2x80", "takes 21.0 GiB of each of 3 x 1 GPU"),
        (
            [engine("engine", 100, devices=(0, 1, 2))],
            "8x80",
            "engine: model of engine takes 101.0 GiB of each of 1 GPU",
        ),
    ],
)
def test_what_cannot_fit_is_refused_in_a_line(demands: list[Demand], gpus: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line) as error:
        on(*demands, gpus=gpus)
    assert "\n" not in str(error.value)


def test_a_context_that_would_fit_is_named() -> None:
    needs = {1: GpuMemory(20, cache=64, work=2)}
    with pytest.raises(ConfigError, match=r"; engine.max_model_len=25600 fits \(now 32768\)$"):
        on(engine("engine", 0, needs=needs, context=32768), gpus="1x80")


@pytest.mark.parametrize(
    "given", ["8", "8x", "x80", "0x80", "8x0", "1x2x3x4", "-1x80", "8x80GB", "", "8xnan", "9999x9999x1"]
)
def test_an_inventory_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"--gpus: expected COUNTxGIB or NODESxCOUNTxGIB, such as 8x80 or 2x8x80"):
        read_inventory(given)


def test_an_inventory_has_nodes() -> None:
    assert read_inventory("2x1x23.99") == [Gpu(23.99, 0), Gpu(23.99, 1)]
