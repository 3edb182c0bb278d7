"""The follower as the run's process sees it: started with the run, given a bounded time at its end."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO

import msgspec

import evorun
from evorun.models.keys import child_environment
from evorun.runs.paths import display
from evorun.tracking.base import TrackerSettings, visible_variables
from evorun.tracking.choices import tracker_class

log = logging.getLogger("evorun")

_SPARE_S = 10.0
"""Seconds for the follower itself at the end, beside the trackers' own (ours)."""
_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "NETRC")


@contextlib.contextmanager
def followed(run: Path, trackers: Mapping[str, TrackerSettings]) -> Iterator[None]:
    """Feed the trackers from a run directory, which has a manifest, while the block runs; never raise for a tracker."""
    if not trackers:
        yield
        return
    variables = [name for tracker in trackers for name in visible_variables(tracker_class(tracker).variables)]
    environment, root = child_environment([*variables, *_NETWORK]), str(Path(evorun.__file__).parent.parent)
    try:
        process = subprocess.Popen(
            # -P: nothing in the current folder takes the place of a module
            [sys.executable, "-P", "-m", "evorun.tracking.follower", str(run)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "PYTHONPATH": os.pathsep.join([root, *filter(None, [environment.get("PYTHONPATH")])])},
            start_new_session=True,  # Ctrl-C ends the run, whose last points are still sent
            text=True,
        )
    except OSError as error:
        log.warning("trackers get no points: cannot start their process: %s", error)
        yield
        return
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stdout is not None  # noqa: S101
    threading.Thread(target=_pass_on, args=(process.stdout,), daemon=True).start()
    with contextlib.suppress(OSError):  # it ended already
        process.stdin.write(msgspec.json.encode({name: asdict(values) for name, values in trackers.items()}).decode())
        process.stdin.write("\n")
        process.stdin.flush()
    try:
        yield
    finally:
        _end(process, process.stdin, run, max(values.wait_s for values in trackers.values()) + _SPARE_S)


def _pass_on(warnings: IO[str]) -> None:
    for line in warnings:
        log.warning("%s", line.rstrip())


def _end(process: subprocess.Popen[str], pipe: IO[str], run: Path, seconds: float) -> None:
    with contextlib.suppress(OSError):
        pipe.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        log.warning("trackers: not all points are sent; evorun resume %s sends the rest", display(run))
    finally:  # also on a second Ctrl-C
        if process.poll() is None:
            process.kill()
            process.wait()
