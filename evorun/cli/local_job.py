"""A job of `hydra/launcher=local`: the process that carries out one composed run, given on standard input."""

import os
import signal
import sys

import msgspec

from evorun.cli import exit_after
from evorun.cli.job_command import GivenJob
from evorun.cli.usage import exit_code


def main() -> None:
    """Carry out the job and exit: 0 when it is complete, 1 after an error, 130 when interrupted."""
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=GivenJob)
    exit_after(lambda: _carry_out(given), debug=given.debug)


def _carry_out(given: GivenJob) -> int:
    from pathlib import Path

    from evorun.cli.naming import remove_unused_run_dir
    from evorun.cli.running import carry_out
    from evorun.runs.terminal import Terminal
    from evorun.sandbox.inside import kernel

    # a launcher that is killed takes its jobs along, in order: nobody would see or stop them
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != given.parent:
        raise KeyboardInterrupt
    folder = Path(given.folder)
    try:
        status = carry_out(given.config, folder, given.command, Terminal(), of_sweep=True)
    finally:
        remove_unused_run_dir(folder)  # if nothing has begun
    return exit_code(status)


if __name__ == "__main__":
    main()
