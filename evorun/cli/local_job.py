"""A job of `hydra/launcher=local`: the process that carries out one composed run, given on standard input."""

import os
import signal
import sys

import msgspec

from evorun.cli import exit_after, output
from evorun.cli.given_job import GivenJob
from evorun.cli.usage import exit_code
from evorun.errors import EvorunError, find_kind


def main() -> None:
    """Carry out the job and exit: 0 when it is complete, 1 after an error, 130 when interrupted.

    The first argument is the id of the launcher's process; the second shows in lists of processes what this is.
    """
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=GivenJob)
    launcher = int(sys.argv[1])
    output.on_error = _print_with_kind
    exit_after(lambda: _carry_out_below(launcher, given), debug=given.debug)


def _print_with_kind(message: str, cause: BaseException | None) -> None:
    """Print an error with its class, for the launcher."""
    output.say(f"error {EvorunError.__name__ if cause is None else find_kind(cause)}", message, "bold red")


def carry_out_job(given: GivenJob) -> int:
    """Carry out a job in this process and return its exit code. Raises KeyboardInterrupt when interrupted."""
    from pathlib import Path

    from evorun.cli.naming import remove_unused_run_dir
    from evorun.cli.running import carry_out
    from evorun.runs.terminal import Terminal

    folder = Path(given.folder)
    try:
        status = carry_out(given.config, folder, given.command, Terminal(), of_sweep=True)
    finally:
        remove_unused_run_dir(folder)  # if nothing has begun
    return exit_code(status)


def _carry_out_below(launcher: int, given: GivenJob) -> int:
    from evorun.models.sharing import use
    from evorun.sandbox.inside import kernel

    # a launcher that is killed takes its jobs along, in order: nobody would see or stop them
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != launcher:
        raise KeyboardInterrupt
    if given.shared is not None:
        os.set_inheritable(given.shared.held, False)  # a program that outlives the job must not keep the models
        use(given.shared)
    return carry_out_job(given)


if __name__ == "__main__":
    main()
