"""The GPUs of a process that serves the models of several runs: each engine has one place, whatever asks it."""

import dataclasses
import logging
from collections.abc import Sequence

from evorun.errors import ConfigError
from evorun.models.config import ServedModel
from evorun.models.devices import Gpu
from evorun.models.sharing import key_of
from evorun.runner.gpu_demands import UnknownSizes, group_by_engine, list_demands
from evorun.runner.gpu_plans import GpuPlan, set_place
from evorun.runner.planner import Demand, place
from evorun.runner.settings import RunConfig

log = logging.getLogger("evorun")


class SharedEngines:
    """The needs of the engines that runs share, by their models and settings."""

    def __init__(self, configs: Sequence[RunConfig], gpus: Sequence[Gpu], *, download: bool = False) -> None:
        """Read the needs of runs that do not train; models of unknown size leave all without a plan, with a warning.

        gpus: the most that a process may have. download: see `list_demands`.
        """
        self._demands: dict[str, Demand] = {}
        try:
            for config in configs if gpus else ():
                engines = {key: served for served, key, _ in group_by_engine(config)}
                for demand in list_demands(config, gpus, download=download):
                    self._add(key_of(engines[demand.key]), demand)
        except UnknownSizes as unknown:
            log.warning("GPUs are not planned: no config.json of %s is here; set engine.devices yourself", unknown)
            self._demands = {}

    def _add(self, engine: str, demand: Demand) -> None:
        known = self._demands.get(engine)
        if known is not None:
            larger = max(known, demand, key=lambda either: either.needs[min(either.needs)].total)
            roles = tuple(dict.fromkeys([*known.roles, *demand.roles]))
            demand = dataclasses.replace(larger, key=known.key, roles=roles, work=known.work + demand.work)
        elif demand.key in (other.key for other in self._demands.values()):  # another run's, of another model
            demand = dataclasses.replace(demand, key=f"{demand.key} of {demand.model}")
        self._demands[engine] = demand

    def count_gpus(self, gpus: Sequence[Gpu]) -> int | None:
        """Return the fewest GPUs that hold all engines; None without a plan. Raises ConfigError if all are too few."""
        if not self._demands:
            return None
        for count in range(1, len(gpus)):
            try:
                place(list(self._demands.values()), gpus[:count])
            except ConfigError:
                continue
            return count
        place(list(self._demands.values()), gpus)
        return len(gpus)

    def plan(self, gpus: Sequence[Gpu]) -> GpuPlan | None:
        """Return the places of all engines on a process's GPUs; None without a plan. Raises ConfigError."""
        return GpuPlan(gpus, place(list(self._demands.values()), gpus)) if self._demands else None

    def set_places(self, models: Sequence[ServedModel], plan: GpuPlan | None) -> list[ServedModel]:
        """Return models with their places in the settings of their engines."""
        if plan is None:
            return list(models)
        found = {assignment.demand.key: assignment for assignment in plan.assignments}
        places = {engine: found[demand.key] for engine, demand in self._demands.items()}
        return [
            served
            if (on := places.get(key_of(served))) is None
            else served._replace(engine=set_place(served.engine, on))
            for served in models
        ]
