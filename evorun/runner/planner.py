"""Places engines and the trainer of a run on GPUs: how many copies, over how many GPUs each, and with how much memory.

First choice: each has GPUs of its own, the fewest that hold its model. Those left over go to the one with the most work
per copy. Inference and training on different GPUs are the layout of prime-rl and of TRL's vllm_mode=server. Second
choice, where there are too few GPUs: engines and trainer divide a GPU's memory, as with TRL's vllm_mode=colocate and
verl. Tensor parallelism comes only where one GPU does not hold a model; copies are data parallel. A copy lies on one
node. Where engines are bound to the node of the run's process, the trainer has the others first.

Nothing here knows a model or a configuration: demands say what they need.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from evorun.errors import ConfigError
from evorun.models.devices import Gpu
from evorun.runner.memory import ASLEEP_GIB, CONTEXT_GIB, GpuMemory
from evorun.runs.formats import counted

USABLE = 0.9
"""Share of a GPU's memory that the planner gives away, which is vLLM's default `gpu_memory_utilization`."""


@dataclass(frozen=True)
class Demand:
    """The needs of an engine or the trainer, and its user's decisions."""

    key: str
    """Its configuration group, such as `reward_engine`, or `training`."""
    roles: tuple[str, ...]
    model: str
    needs: Mapping[int, GpuMemory]
    """Memory of each GPU by the number of GPUs of a copy, ascending."""
    work: float = 1.0
    """Seconds of one GPU, for the division of GPUs."""
    trains: bool = False
    here: bool = False
    """True if it runs on the node of the run's process alone."""
    expands: bool = True
    """True where more memory than it needs is useful: vLLM's cache."""
    devices: tuple[int, ...] | None = None
    """The user's GPUs."""
    copies: int | None = None
    """The user's number."""
    allowed_copies: Callable[[int], bool] = field(default=lambda copies: True)
    """Tells whether it can have so many copies."""
    share: float | None = None
    """The user's share of each GPU's memory."""
    sleeps: bool | None = False
    """True if it lends its memory to a trainer; None: where the planner needs it."""
    offloads: bool = False
    """True if a trainer leaves its GPUs between updates where an engine beside it sleeps."""
    context: int | None = None
    """Tokens of its longest sequence, of which its cache holds one; None: it holds something else."""
    advice: str = ""
    """Advice to the user if it fits nowhere."""


class Assignment(NamedTuple):
    """The GPUs of a demand."""

    demand: Demand
    width: int
    """GPUs of each copy."""
    devices: tuple[int, ...]
    """Numbers of its GPUs, a copy after another."""
    share: float
    """Of each GPU's memory."""
    sleeps: bool = False

    @property
    def copies(self) -> int:
        """Number of copies."""
        return len(self.devices) // self.width

    @property
    def memory(self) -> GpuMemory:
        """Memory that it needs on each GPU, in GiB."""
        return self.demand.needs[self.width]


def place(demands: Sequence[Demand], gpus: Sequence[Gpu]) -> list[Assignment]:
    """Return the GPUs of every demand, in their order. Raises ConfigError for what cannot fit, in one line."""
    widths = {demand.key: _narrowest(demand, gpus) for demand in demands}
    for separate, sleep in ((True, False), (False, False), (False, True)):
        placed = _Placement(gpus, bound=any(demand.here for demand in demands), sleep=sleep)
        # The user's GPUs first; then the trainer; then by size.
        order = sorted(
            demands,
            key=lambda demand: (
                demand.devices is None,
                not demand.trains,
                -widths[demand.key] * demand.needs[widths[demand.key]].total,
            ),
        )
        if all(placed.add(demand, widths[demand.key], separate=separate) for demand in order):
            placed.grow()
            placed.tidy()
            found = placed.divide()
            return [found[demand.key] for demand in demands]
    raise ConfigError(_describe_shortage(demands, widths, gpus))


def _narrowest(demand: Demand, gpus: Sequence[Gpu]) -> int:
    """Return the fewest GPUs that hold one copy. Raises ConfigError where none do."""
    if demand.devices is not None and max(demand.devices) >= len(gpus):
        raise ConfigError(f"{demand.key}.devices: expected GPUs 0 to {len(gpus) - 1}, got {list(demand.devices)}")
    there = [gpus[device] for device in demand.devices or range(len(gpus))]
    if demand.here:
        there = [gpu for gpu in there if gpu.node == 0] or there
    largest = max(gpu.memory for gpu in there)
    on_node = max(sum(gpu.node == node for gpu in there) for node in {gpu.node for gpu in there})
    usable = largest * (demand.share or USABLE)
    possible = [
        width
        for width in demand.needs
        if width <= on_node
        and width * (demand.copies or 1) <= len(there)
        and (demand.devices is None or len(there) % width == 0)
    ]
    for width in possible:
        if demand.needs[width].total <= usable:
            return width
    width = max(possible, default=min(demand.needs))
    need = demand.needs[width]
    copies = f"{demand.copies} x " if (demand.copies or 1) > 1 else ""
    raise ConfigError(
        f"{demand.key}: {demand.model} takes {need.total:.1f} GiB of each of {copies}{counted(width, 'GPU')} "
        f"({_describe(need)}), there {'is' if len(there) == 1 else 'are'} {counted(len(there), 'GPU')} with "
        f"{usable:.1f} GiB to use{_advise(demand, width, usable)}"
    )


def count_holders(weights: float, usable: float) -> int:
    """Return the fewest GPUs with so much memory to use, in GiB, that hold the weights together."""
    return ceil(weights / usable)


def _advise(demand: Demand, width: int, usable: float) -> str:
    """Return what would fit, after a semicolon; else nothing. width: the most GPUs that may share a copy here.

    Where the weights alone do not fit, that is other GPUs; else a shorter context, or the demand's own advice.
    """
    need = demand.needs[width]
    if need.weights > usable and not demand.trains:
        weights = width * need.weights
        return (
            f"; its weights alone ({weights:.1f} GiB) fill {count_holders(weights, usable)} such GPUs, and at most "
            f"{width} may share a copy here: take {width} of {ceil(need.weights / USABLE)} GiB or more, or a server "
            f"that has it ({demand.key}=server)"
        )
    if demand.context is None:
        return f"; {demand.advice}" if demand.advice else ""
    room = usable - (need.total - need.cache)
    tokens = int(room / need.cache * demand.context) // 1024 * 1024 if room < need.cache else 0
    return f"; {demand.key}.max_model_len={tokens} fits (now {demand.context})" if tokens > 0 else ""


class _Placement:
    """The GPUs that demands have so far."""

    def __init__(self, gpus: Sequence[Gpu], *, bound: bool, sleep: bool) -> None:
        """bound: some demands are bound to node 0, which the trainer therefore leaves to them where it can."""
        self._gpus = gpus
        self._bound = bound
        self._sleep = sleep
        self._demands: dict[str, Demand] = {}
        self._widths: dict[str, int] = {}
        self._devices: dict[str, list[int]] = {}

    def add(self, demand: Demand, width: int, *, separate: bool) -> bool:
        """Give a demand the GPUs of its copies; return False where there are not enough.

        separate: they must be its own. A user's GPUs are taken as they are, up to their memory.
        """
        devices: list[int] | None
        if demand.devices is not None:
            devices = list(demand.devices)
            if demand.copies is None:
                devices = devices[: len(devices) // width * width]
            if any(self._free(device, demand) < self._need(demand, width, device) for device in devices):
                return False
        else:
            devices = []
            for _ in range(demand.copies or 1):
                copy = self._find(demand, width, devices, separate=separate)
                if copy is None:
                    return False
                devices += copy
        self._demands[demand.key], self._widths[demand.key] = demand, width
        self._devices[demand.key] = devices
        return True

    def grow(self) -> None:
        """Give GPUs that nobody has to the demands with the most work per copy."""
        open_ended = [demand for demand in self._demands.values() if demand.devices is None and demand.copies is None]
        extra = {demand.key: 1 for demand in open_ended}
        while open_ended:
            demand = max(open_ended, key=lambda candidate: candidate.work / extra[candidate.key])
            width, devices = self._widths[demand.key], self._devices[demand.key]
            wanted = extra[demand.key] + 1
            while not demand.allowed_copies(wanted) and wanted <= len(self._gpus):
                wanted += 1
            more = list[int]()
            for _ in range(wanted - extra[demand.key]):
                copy = self._find(demand, width, [*devices, *more], separate=True)
                if copy is None:
                    break
                more += copy
            else:
                devices += more
                extra[demand.key] = wanted
                continue
            open_ended.remove(demand)

    def tidy(self) -> None:
        """Let demands that have equal GPUs of their own have them in a row, in the order of the demands."""
        users = [device for devices in self._devices.values() for device in devices]
        alone = [
            key
            for key, demand in self._demands.items()
            if demand.devices is None and all(users.count(device) == 1 for device in self._devices[key])
        ]
        for node in {gpu.node for gpu in self._gpus}:
            here = {key: [device for device in self._devices[key] if self._gpus[device].node == node] for key in alone}
            pool = sorted(device for devices in here.values() for device in devices)
            if len({self._gpus[device].memory for device in pool}) != 1:
                continue
            for key, devices in here.items():
                others = [device for device in self._devices[key] if device not in devices]
                self._devices[key] = sorted([*others, *pool[: len(devices)]])
                del pool[: len(devices)]

    def divide(self) -> dict[str, Assignment]:
        """Return the assignments, with every GPU's memory divided by need and what is left by work."""
        found = {}
        for key, demand in self._demands.items():
            need = demand.needs[self._widths[key]]
            shares = [self._share(demand, need, device) for device in self._devices[key]]
            found[key] = Assignment(
                demand,
                self._widths[key],
                tuple(self._devices[key]),
                # Rounded down, so that shares never sum to more than there is.
                min(int(share * 1000) / 1000 for share in shares),
                self._lends(demand, self._devices[key]),
            )
        return found

    def _share(self, demand: Demand, need: GpuMemory, device: int) -> float:
        memory = self._gpus[device].memory
        if demand.share is not None:
            return demand.share
        if not demand.expands:
            return self._taken(demand, device) / memory
        there = [other for key, other in self._demands.items() if device in self._devices[key]]
        left = USABLE * memory - sum(self._taken(other, device) for other in there)
        work = sum(other.work for other in there if other.expands and other.share is None)
        return (need.total + max(left, 0.0) * demand.work / work) / memory

    def _need(self, demand: Demand, width: int, device: int) -> float:
        need = demand.needs[width]
        if demand.share is not None:
            given = demand.share * self._gpus[device].memory
            return given if given >= need.total else float("inf")
        if demand.trains and self._sleep:  # between updates
            return CONTEXT_GIB if demand.offloads else need.resident
        return need.total

    def _taken(self, demand: Demand, device: int) -> float:
        return self._need(demand, self._widths[demand.key], device)

    def _free(self, device: int, demand: Demand) -> float:
        """Return the memory of a GPU that is left for a demand."""
        memory = self._gpus[device].memory
        there = [other for key, other in self._demands.items() if device in self._devices[key]]
        usable = (
            memory if demand.share is not None or any(other.share is not None for other in there) else USABLE * memory
        )
        left = usable - sum(self._taken(other, device) for other in there)
        together = [*there, demand]
        trainer = next((other for other in together if other.trains), None)
        if trainer is None or not self._sleep:
            return left
        engines = [engine for engine in together if not engine.trains]
        if any(engine.sleeps is False for engine in engines):  # its memory stays with it during updates
            return 0.0
        during_update = next(iter(trainer.needs.values())).total + ASLEEP_GIB * len(engines)
        return left if during_update <= usable else 0.0

    def _lends(self, demand: Demand, devices: Sequence[int]) -> bool:
        shared = any(other.trains and set(self._devices[key]) & set(devices) for key, other in self._demands.items())
        return bool(demand.sleeps) or (self._sleep and shared and not demand.trains)

    def _find(self, demand: Demand, width: int, own: Sequence[int], *, separate: bool) -> list[int] | None:
        """Return GPUs of one node for a copy of a demand that has `own` already; None where too few have room."""
        taken = {device for key, devices in self._devices.items() for device in devices}
        others = {device for key, devices in self._devices.items() if key != demand.key for device in devices}
        alike = bool(own) and (not separate or not others.isdisjoint(own))
        found: list[list[int]] = []
        for kind in sorted(set(self._gpus), key=lambda gpu: (gpu.node, -gpu.memory)):  # a copy has GPUs of one kind
            if alike and kind.memory != self._gpus[own[0]].memory:
                continue  # one share of the memory holds for all copies
            free = [
                device
                for device, gpu in enumerate(self._gpus)
                if gpu == kind
                and device not in own
                and not (separate and device in taken)
                and self._free(device, demand) >= self._need(demand, width, device)
            ]
            # The emptiest ones, in order of their numbers.
            free.sort(key=lambda device: (-self._free(device, demand), device))
            if len(free) >= width:
                found.append(sorted(free[:width]))
        # A trainer crosses nodes, which its gradients then cross too, only for GPUs that nobody else can use.
        if demand.here or (demand.trains and not self._bound):
            found = [copy for copy in found if self._gpus[copy[0]].node == 0]
        home = {self._gpus[device].node for device in own}

        def rank(copy: list[int]) -> tuple[bool, bool, int]:
            node = self._gpus[copy[0]].node
            crowds = demand.trains and self._bound and node == 0
            return node not in home, crowds, sum(self._gpus[device].node == node for device in taken)

        return min(found, key=rank, default=None)


def _describe_shortage(demands: Sequence[Demand], widths: Mapping[str, int], gpus: Sequence[Gpu]) -> str:
    """Say what is needed and what is there, in one line."""
    parts = []
    for demand in demands:
        width, need = widths[demand.key], demand.needs[widths[demand.key]]
        times = width * (demand.copies or 1)
        parts.append(f"{demand.key} ({demand.model}) {f'{times} x ' if times > 1 else ''}{need.total:.1f} GiB")
    usable = " + ".join(f"{USABLE * gpu.memory:.1f}" for gpu in gpus)
    return (
        f"GPUs: expected room for {', '.join(parts)}, got {usable} GiB to use; take more GPUs, a smaller model, a "
        "shorter max_model_len, or a server for some of it (engine=server)"
    )


def _describe(need: GpuMemory) -> str:
    named = (("weights", need.weights), ("training", need.training), ("cache", need.cache), ("work", need.work))
    return ", ".join(f"{name} {size:.1f}" for name, size in named if size)
