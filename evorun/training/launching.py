"""Command and environment of the trainer's processes."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from evorun.models.devices import device_environment
from evorun.models.keys import child_environment
from evorun.training.wire import Job

WORKER = "evorun.training.worker"

HUB_VARIABLES = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
"""Environment variables that the trainer needs to download weights; proxies may need passwords."""

_NO_TELEMETRY = {"HF_HUB_DISABLE_TELEMETRY": "1"}
"""Keeps TRL's trainers from reporting their use to the hub.

Their thread looks the hub's address up, which reads the environment, while accelerate clears and restores it; now and
then, that ended the process with a segmentation fault.
"""


class Place(NamedTuple):
    """The place of a node in a trainer on several nodes."""

    rank: int
    """Number of the node."""
    nodes: int
    processes: int
    """Number of its processes."""
    address: str
    """Where the first node waits for the others, with its port."""
    port: int


def environment(devices: Sequence[int] | None) -> dict[str, str]:
    """Return the environment of processes that may use these GPUs of their node; None: all."""
    return child_environment(keep=HUB_VARIABLES) | _NO_TELEMETRY | device_environment("training.devices", devices)


def open_log(job: Job) -> IO[bytes]:
    """Open the file for the output of what starts the trainer, to append to it."""
    return Path(job.log).open("ab")


def command_line(job: Job, file: Path, place: Place | None = None) -> list[str]:
    """Return the command that starts the trainer process or processes on the job in `file`, or those of a node."""
    training, worker = job.training, ["-m", WORKER, str(file)]
    if training.processes == 1 and training.accelerate_config is None:
        return [sys.executable, *worker]
    several = place is not None and place.nodes > 1
    launch = [sys.executable, "-m", "accelerate.commands.launch"]
    if place is not None and several:
        # accelerate divides their number by the nodes, and torchrun adds up what each node has.
        launch += ["--num_processes", str(place.processes * place.nodes)]
        launch += ["--num_machines", str(place.nodes), "--machine_rank", str(place.rank)]
        launch += ["--main_process_ip", place.address, "--main_process_port", str(place.port)]
        if training.start_timeout is not None:
            launch += ["--rdzv_backend", "static", "--rdzv_conf", f"timeout={max(1, round(training.start_timeout))}"]
    else:
        launch += ["--num_processes", str(training.processes)]
    if training.accelerate_config is not None:
        return [*launch, "--config_file", str(Path(training.accelerate_config).expanduser()), *worker]
    launch += ["--multi_gpu"]  # means several processes, on CPUs too: with --cpu accelerate starts one
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    if not several:
        launch += ["--num_machines", "1"]
        launch += ["--main_process_port", "0"]  # any free port, so that several runs can train on one machine
    return [*launch, *worker]
