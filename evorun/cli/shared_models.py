"""Jobs of a sweep that need the same models, and the processes that serve these models to them."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from evorun.cli.given_job import GivenJob
from evorun.errors import ConfigError, EngineError, EvorunError
from evorun.models.config import ServedModel
from evorun.models.devices import VISIBLE, Gpu, find_gpus, visible_gpus
from evorun.models.sharing import SharedModels, key_of
from evorun.runs.paths import display

if TYPE_CHECKING:
    from evorun.runner.settings import RunConfig
    from evorun.runner.shared_plans import SharedEngines

LOG = "model_server.log"
"""File of a sweep's folder with what the processes that serve models print."""
END_S = 60.0
"""Seconds for a process to end when no job is left (ours): vLLM takes a few."""
LAST_LINES = 5
_LONGEST_PATH = 100
"""Bytes of a Unix-domain socket's path; Linux takes 107."""


class JobGroup(NamedTuple):
    """Jobs that need the same models, by number."""

    jobs: list[int]
    models: Sequence[ServedModel]
    """Those that one process can serve to all of them; none: each job loads its own."""
    configs: Sequence["RunConfig"] = ()
    """Of the jobs, which decide the needs of the models."""


def group_jobs(jobs: Mapping[int, GivenJob | None]) -> list[JobGroup]:
    """Return groups of jobs, in the order of their first job.

    jobs: by number; None for one that cannot be composed. Together and without shared models: jobs whose models no
    other job needs, and those that train or are trained for.
    """
    found: dict[frozenset[str], JobGroup] = {}
    for number, given in jobs.items():
        config = _check(given)
        models = {} if config is None else {key_of(served): served for served in _list_models(config)}
        group = found.setdefault(frozenset(models), JobGroup([], list(models.values()), []))
        found[frozenset(models)] = JobGroup(
            [*group.jobs, number], group.models, [*group.configs, *filter(None, [config])]
        )
    alone = [number for group in found.values() if len(group.jobs) == 1 or not group.models for number in group.jobs]
    groups = [group for group in found.values() if len(group.jobs) > 1 and group.models]
    groups += [JobGroup(sorted(alone), ())] if alone else []
    return sorted(groups, key=lambda group: group.jobs[0])


def _check(given: GivenJob | None) -> "RunConfig | None":
    """Return a job's configuration; None where it has none, or changes or makes weights."""
    from evorun.runner.settings import check

    if given is None:
        return None
    try:
        config = check(given.config)
    except EvorunError:  # the job itself says what is wrong
        return None
    return None if config.training is not None or config.student is not None else config


def _list_models(config: "RunConfig") -> list[ServedModel]:
    """Return the models whose weights a job loads, as it would ask for them."""
    models = (ServedModel(config.model, config.engine), *config.others.values())
    return [served for served in models if served.engine.holds_weights]


def gpus_of(group: JobGroup, engines: "SharedEngines") -> int:
    """Return how many GPUs a process with a group's models needs, at least one. Raises ConfigError for too few."""
    planned = engines.count_gpus(find_gpus())
    uses = (served.engine.gpu_use for served in group.models)
    return planned or max((device + 1 for use in uses if use is not None for device in use.devices), default=1)


class ModelServer:
    """A process that serves models, and its end of the pipe that keeps it alive."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        jobs: int,
        environment: Mapping[str, str],
        log: Path,
        placed: Sequence[ServedModel] | None = None,
    ) -> None:
        """Start the process.

        jobs: how many it serves at once. environment: variables beside this process's own. log: file that gets its
        messages. placed: the same models with their GPUs. Raises ConfigError where no socket can be made.
        """
        folder = tempfile.mkdtemp(prefix="evorun_")  # which only this user may enter
        path = os.path.join(folder, "models")
        if len(os.fsencode(path)) > _LONGEST_PATH:
            os.rmdir(folder)
            raise ConfigError(f"TMPDIR: expected a path of at most 70 bytes for sockets, got {tempfile.gettempdir()}")
        self._log, self._said_before = log, log.stat().st_size if log.exists() else 0
        reading, self._held = os.pipe()
        keys = tuple(map(key_of, models))
        given = [
            {"key": key, "model": served.model, "engine": served.engine}
            for key, served in zip(keys, models if placed is None else placed, strict=True)
        ]
        os.write(self._held, msgspec.json.encode(given) + b"\n")
        with socket.socket(socket.AF_UNIX) as listener:
            # Listening already: jobs may connect before the process has started.
            listener.bind(path)
            listener.listen(socket.SOMAXCONN)
            with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666), "ab") as file:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "evorun.cli.model_server", str(listener.fileno())],
                    stdin=reading,
                    stdout=file,
                    stderr=file,
                    env={**os.environ, **environment},
                    pass_fds=[listener.fileno()],
                    start_new_session=True,  # Ctrl-C reaches the launcher, whose jobs end first
                )
        os.close(reading)
        self.shared = SharedModels(path, keys, jobs, display(log), self._held)

    def check(self) -> None:
        """Raise EngineError, with the process's last lines, where it has ended."""
        code = self.process.poll()
        if code is None:
            return
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        with self._log.open("rb") as file:
            file.seek(self._said_before)
            lines = file.read().decode("utf-8", "replace").split("\n")
        last = " | ".join([line.strip() for line in lines if line.strip()][-LAST_LINES:])
        raise EngineError(f"the process that serves this sweep's models {ended}; {self.shared.log} ends with: {last}")

    def end(self) -> None:
        """Let the process end, which it does once no job is left; kill it if it does not."""
        os.close(self._held)
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # vLLM's processes, too
            self.process.wait()
        shutil.rmtree(os.path.dirname(self.shared.path), ignore_errors=True)


def gpus_in(environment: Mapping[str, str]) -> list[Gpu]:
    """Return the GPUs that a process with an environment sees; none where nvidia-smi does not tell their memory."""
    if VISIBLE not in environment:
        return find_gpus()
    known = dict(zip(visible_gpus(), find_gpus(), strict=False))
    return [known[name] for name in environment[VISIBLE].split(",") if name in known]


@contextlib.contextmanager
def serving(
    models: Sequence[ServedModel],
    engines: "SharedEngines",
    places: Sequence[Mapping[str, str]],
    slots: int,
    log: Path,
) -> Iterator[list[ModelServer]]:
    """Serve models while the block runs, from one process for each place.

    engines: the needs of the models. places: environments of the processes. slots: jobs that run at once, which use
    the processes in turn. Raises ConfigError for engines that do not fit.
    """
    users = Counter(slot % len(places) for slot in range(slots))
    servers: list[ModelServer] = []
    try:
        for number, environment in enumerate(places):
            placed = engines.set_places(models, engines.plan(gpus_in(environment)))
            servers.append(ModelServer(models, users[number], environment, log, placed))
        yield servers
    finally:
        for server in servers:
            server.end()
