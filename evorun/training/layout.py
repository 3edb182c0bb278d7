"""The nodes of a trainer: how many processes each has, and on which of its GPUs."""

from typing import NamedTuple

from evorun.errors import ConfigError
from evorun.models.devices import visible_gpus
from evorun.runs.slurm import allocated_nodes
from evorun.training.config import TrainingConfig


class Share(NamedTuple):
    """A node's part of a trainer."""

    node: int
    """Number of the node, from 0: the run's own. In a SLURM job, its place in the list of the job's nodes."""
    processes: int
    devices: tuple[int, ...] | None
    """GPUs of the processes, as the node numbers them; None: any."""


def lay_out(training: TrainingConfig) -> list[Share]:
    """Return the nodes that a trainer uses, with their shares.

    GPUs are numbered through all nodes, which have as many as this one: with 8 on each, GPU 9 is number 1 of node 1.
    Without `devices`, the nodes share the processes equally.

    Raises ConfigError for more nodes than there are, or more than there are processes.
    """
    allocated = len(allocated_nodes())
    nodes = training.nodes or max(allocated, 1)
    if training.nodes is not None and 0 < allocated < training.nodes:
        raise ConfigError(
            f"training.nodes: expected at most the {allocated} nodes of the SLURM job, got {training.nodes}; ask for "
            "more with hydra.launcher.nodes or sbatch --nodes"
        )
    processes = training.processes
    if training.devices is None or training.accelerate_config is not None:
        if training.nodes is not None and nodes > processes:
            raise ConfigError(
                f"training.nodes: expected at most training.num_processes ({processes}), one process per node, got "
                f"{nodes}"
            )
        each, more = divmod(processes, nodes)
        devices = None if training.devices is None else tuple(training.devices)
        counts = [each + (node < more) for node in range(nodes)]
        return [Share(node, count, devices) for node, count in enumerate(counts) if count]
    width = len(visible_gpus())
    if nodes == 1 or not width:
        return [Share(0, processes, tuple(training.devices))]
    if max(training.devices) >= nodes * width:
        raise ConfigError(
            f"training.devices: expected GPUs 0 to {nodes * width - 1} of {nodes} nodes with {width} each, got "
            f"{max(training.devices)}"
        )
    groups = [tuple(device % width for device in training.devices if device // width == node) for node in range(nodes)]
    return [Share(node, len(group), group) for node, group in enumerate(groups) if group]
