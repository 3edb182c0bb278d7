"""The GPUs of a run: planned before anything loads, shown as a table, and put into its configuration."""

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from functools import singledispatch
from itertools import groupby
from typing import NamedTuple

import msgspec

from evorun.errors import ConfigError
from evorun.models.busy import BusyTime
from evorun.models.config import EngineConfig, ServedModel
from evorun.models.devices import Gpu, find_gpus
from evorun.models.transformers.engine import TransformersConfig
from evorun.models.vllm.engine import VllmConfig
from evorun.reports.tables import Cell, Table, figure_columns, word_columns
from evorun.runner.gpu_demands import TRAINER, UnknownSizes, list_demands
from evorun.runner.plan_records import PlannedGpus
from evorun.runner.planner import Assignment, place
from evorun.runner.requirements import student_stages
from evorun.runner.settings import RunConfig
from evorun.runner.student import in_stage
from evorun.runs.manifest import GpuInRun
from evorun.runs.slurm import allocated_nodes
from evorun.runs.terminal import Terminal

log = logging.getLogger("evorun")


class GpuPlan(NamedTuple):
    """The assignments of a run's engines and trainer to GPUs."""

    gpus: Sequence[Gpu]
    assignments: Sequence[Assignment]


def plan_gpus(
    config: RunConfig, gpus: Sequence[Gpu], *, engines_here: bool = False, download: bool = False
) -> GpuPlan | None:
    """Plan a run's GPUs; None without any, or with nothing to place.

    engines_here: engines get GPUs of the first node alone, where the run starts them. download: see `list_demands`.
    Raises ConfigError in one line for what cannot fit, and UnknownSizes.
    """
    if not gpus:
        return None
    demands = list_demands(config, gpus, download=download)
    if engines_here:
        demands = [dataclasses.replace(demand, here=not demand.trains) for demand in demands]
    return GpuPlan(gpus, place(demands, gpus)) if demands else None


def plan_stages(config: RunConfig, gpus: Sequence[Gpu]) -> tuple[list[PlannedGpus], list[str]]:
    """Return the planned GPUs of a run and of its student's stages, and notes about what could not be planned.

    Raises ConfigError in one line for what cannot fit.
    """
    planned, notes = list[PlannedGpus](), list[str]()
    for stage, part in {**student_stages(config), "": config}.items():
        try:
            plan = plan_gpus(part, gpus)
        except UnknownSizes as unknown:
            notes.append(f"GPUs: not planned, no config.json of {unknown} is here; model.id=FOLDER names one.")
            continue
        except ConfigError as error:
            if not stage:
                raise
            raise in_stage(stage, error) from error
        planned += [] if plan is None else record(plan, stage)
    return planned, notes


def record(plan: GpuPlan, stage: str = "") -> list[PlannedGpus]:
    """Return the records of a plan's assignments. stage: of a student's making."""
    return [
        PlannedGpus(
            stage=stage,
            key=assignment.demand.key,
            roles=list(assignment.demand.roles),
            model=assignment.demand.model,
            gpus=list(assignment.devices),
            nodes=sorted({plan.gpus[device].node for device in assignment.devices}),
            copies=assignment.copies,
            gpus_per_copy=assignment.width,
            weights_gib=assignment.memory.weights,
            training_gib=assignment.memory.training,
            cache_gib=assignment.memory.cache,
            work_gib=assignment.memory.work,
            share=assignment.share,
            sleeps=assignment.sleeps,
        )
        for assignment in plan.assignments
    ]


def make_gpu_table(planned: Sequence[PlannedGpus], gpus: Sequence[Gpu], of: str = "") -> Table:
    """Return the table of planned GPUs; sizes are GiB of each GPU. of: the runs that have them."""
    staged = any(engine.stage for engine in planned)
    table = Table(
        [
            *(word_columns("stage") if staged else []),
            *word_columns("for", "model", "GPUs", "copies"),
            *figure_columns("weights", "other", format="{:.1f}".format),
            *figure_columns("share", format="{:.0%}".format),
        ],
        title=f"GPUs{of and f' of {of}'}: {describe_gpus(gpus)}; GiB that each must hold, and the share that is taken",
        caption="copies x GPUs of each; other: optimiser, cache of one context, activations",
        grouped=1 if staged else 0,
    )
    for engine in planned:
        copies = str(engine.copies) if engine.gpus_per_copy == 1 else f"{engine.copies} x {engine.gpus_per_copy}"
        roles = ", ".join(engine.roles) + (" (sleeps)" if engine.sleeps else "")
        other = engine.training_gib + engine.cache_gib + engine.work_gib
        cells: list[Cell] = [
            roles,
            engine.model,
            show_numbers(engine.gpus),
            copies,
            engine.weights_gib,
            other,
            engine.share,
        ]
        table.rows.append([engine.stage or "run", *cells] if staged else cells)
    return table


def list_notes(planned: Sequence[PlannedGpus], gpus: Sequence[Gpu]) -> list[str]:
    """Return what a user must do or know beside the table: GPUs that nobody has, and those of other nodes."""
    lines = []
    for stage, members in groupby(planned, key=lambda engine: engine.stage):
        group = list(members)
        used = {gpu for engine in group for gpu in engine.gpus}
        idle = [number for number in range(len(gpus)) if number not in used]
        about = f" in stage {stage}" if stage else ""
        if idle:
            lines.append(f"Nothing runs on GPU {show_numbers(idle)}{about}.")
        lines += [
            f"{engine.key}{about}: evorun starts vLLM on its own node alone; on the others run vllm serve, and set "
            f"{engine.key}=server {engine.key}.base_urls=[URL,...]."
            for engine in group
            if engine.nodes != [0] and engine.key != TRAINER
        ]
        lines += [
            f"{engine.key}{about}: srun starts it on node {show_numbers(engine.nodes)} of the SLURM job; without "
            "SLURM, the run says what to start there."
            for engine in group
            if engine.nodes != [0] and engine.key == TRAINER
        ]
    return lines


def describe_gpus(gpus: Sequence[Gpu]) -> str:
    """Return GPUs in words, such as `2 nodes of 8 x 80 GiB`."""
    nodes = max(gpu.node for gpu in gpus) + 1
    first = [gpu.memory for gpu in gpus if gpu.node == 0]
    kinds = [f"{len(list(same))} x {memory:.4g} GiB" for memory, same in groupby(first)]
    return f"{nodes} nodes of {', '.join(kinds)}" if nodes > 1 else ", ".join(kinds)


def show_numbers(numbers: Sequence[int]) -> str:
    """Return numbers with runs of neighbours shortened: `0-3,6`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def place_run(config: RunConfig, *, required: bool) -> tuple[RunConfig, GpuPlan | None]:
    """Return a run's configuration with its engines and trainer on this machine's GPUs, and the plan, if there is one.

    required: raise ConfigError in one line for what cannot fit; else such a run keeps its own settings.
    """
    try:
        plan = plan_gpus(config, find_job_gpus(config), engines_here=True, download=True)
    except UnknownSizes as unknown:
        log.warning("GPUs are not planned: no config.json of %s is here; set engine.devices yourself", unknown)
        return config, None
    except ConfigError:
        if required:
            raise
        return config, None
    return (config, None) if plan is None else (apply(config, plan), plan)


def find_job_gpus(config: RunConfig) -> list[Gpu]:
    """Return the GPUs that a run may use: this machine's, and those of the other nodes that its trainer may use.

    The nodes of a job have equally many GPUs of one kind: only this machine's are looked at.
    """
    training = config.training
    nodes = (training.nodes if training is not None else None) or max(len(allocated_nodes()), 1)
    return [Gpu(gpu.memory, node) for node in range(nodes) for gpu in find_gpus()]


def show_gpus(plan: GpuPlan, console: Terminal) -> None:
    """Print a plan's table and notes, and log them."""
    planned = record(plan)
    console.print_table(make_gpu_table(planned, plan.gpus).to_rich())
    for engine in planned:
        log.info("GPUs: %s", msgspec.json.encode(engine).decode())
    for line in list_notes(planned, plan.gpus):
        log.info(line)
        console.print(line, soft_wrap=True)


class GpuTimes:
    """The time in which each GPU of a plan has work, with that of the run's earlier processes."""

    def __init__(
        self, plan: GpuPlan | None, earlier: Sequence[GpuInRun], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin to measure; without a plan there is nothing to measure. earlier: what the manifest has of them."""
        self._users = [] if plan is None else [(given.demand.key, given.devices) for given in plan.assignments]
        self._earlier = {record.gpu: record for record in earlier}
        self._clock, self._started = clock, clock()
        self.clocks = {} if plan is None else {device: BusyTime(clock) for device in range(len(plan.gpus))}
        """By the GPU's number."""

    def add_up(self) -> list[GpuInRun]:
        """Return the run's time so far, and that of its GPUs, in their order."""
        seconds = self._clock() - self._started
        known = dict(self._earlier)
        for device, busy in self.clocks.items():
            users = [key for key, devices in self._users if device in devices]
            before = known.get(device, GpuInRun(gpu=device, used_by=[], busy_seconds=0.0, seconds=0.0))
            known[device] = GpuInRun(
                gpu=device,
                used_by=list(dict.fromkeys([*before.used_by, *users])),
                busy_seconds=round(before.busy_seconds + busy.seconds, 3),
                seconds=round(before.seconds + seconds, 3),
            )
        return [known[device] for device in sorted(known)]


def apply(config: RunConfig, plan: GpuPlan) -> RunConfig:
    """Return the configuration with the planned GPUs in the settings of engines and trainer."""
    by_key = {assignment.demand.key: assignment for assignment in plan.assignments}
    placed: dict[str, ServedModel] = {}
    for role, served in {"": ServedModel(config.model, config.engine), **config.others}.items():
        key = f"{role}_engine" if role else "engine"
        alike = next((other for other in ("", *config.others) if _served(config, other) == served), role)
        found = by_key.get(f"{alike}_engine" if alike else "engine", by_key.get(key))
        placed[role] = served if found is None else served._replace(engine=set_place(served.engine, found))
    training, trainer = config.training, by_key.get(TRAINER)
    if training is not None and trainer is not None and training.accelerate_config is None:
        beside_sleepers = any(
            assignment.sleeps and not set(assignment.devices).isdisjoint(trainer.devices)
            for assignment in by_key.values()
        )
        training = dataclasses.replace(
            training,
            devices=list(trainer.devices),
            num_processes=trainer.copies,
            offload=trainer.demand.offloads and beside_sleepers if training.offload is None else training.offload,
        )
    own = placed.pop("")
    return dataclasses.replace(config, engine=own.engine, others=placed, training=training)


def _served(config: RunConfig, role: str) -> ServedModel:
    return config.others[role] if role else ServedModel(config.model, config.engine)


@singledispatch
def set_place(engine: EngineConfig, on: Assignment) -> EngineConfig:
    """Return an engine's settings with its GPUs."""
    return engine


@set_place.register
def _(engine: VllmConfig, on: Assignment) -> EngineConfig:
    return dataclasses.replace(
        engine,
        devices=list(on.devices),
        tensor_parallel_size=on.width // engine.pipeline_size,
        replicas=on.copies,
        gpu_memory_utilization=on.share,
        sleep=on.sleeps,
    )


@set_place.register
def _(engine: TransformersConfig, on: Assignment) -> EngineConfig:
    return dataclasses.replace(engine, devices=list(on.devices))
