"""The command line: Hydra's entry point for runs, and the verbs beside it."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from evorun.cli.usage import EXIT_FAILED, EXIT_INTERRUPTED, Interrupted
from evorun.errors import EvorunError, as_installation_error


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 when all went well, 1 with one line on an error, 130 when interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Read the arguments themselves: the error may be that they compose no configuration.
    debug = any(argument.lstrip("+") in ("evorun.debug=true", "evorun.debug=True") for argument in arguments)
    exit_after(lambda: _dispatch(arguments), debug=debug)


def exit_after(action: Callable[[], int], *, debug: bool) -> NoReturn:
    """Carry out what a process is for and exit as `main` does; debug: errors show their traceback."""
    # Imports are inside, so that an interrupt during them is caught as well.
    try:
        from evorun.cli.output import print_error, show_warnings, stdout_error, sturdy_streams
        from evorun.runs.signals import interrupt_on_signals

        # The matrices here are small: more BLAS threads would only slow each other down.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # torch's idle threads must not spin: with other work on the cores, that made a training step ten times slower.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        show_warnings()
        with interrupt_on_signals(), sturdy_streams() as output:
            code = _guarded(action, debug=debug)
            problem = stdout_error(output)
            if problem is not None:
                print_error(problem)
                code = code or EXIT_FAILED
    except Interrupted:
        code = EXIT_INTERRUPTED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _guarded(action: Callable[[], int], *, debug: bool) -> int:
    from evorun.cli.output import print_error
    from evorun.runs.signals import as_interrupt

    try:
        return action()
    except Exception as error:
        if (stop := as_interrupt(error)) is not None:
            raise stop from error
        known = error if isinstance(error, EvorunError) else _as_foreign_fault(error)
        if known is None or debug:
            raise
        print_error(str(known), known)
        return EXIT_FAILED


def _as_foreign_fault(error: Exception) -> EvorunError | None:
    """Return the error for an exception of a plug-in or of a broken installation; None for any other."""
    broken = as_installation_error(error)
    try:
        from evorun.runner.registry import fault_of_plugin

        return fault_of_plugin(error) or broken
    except ImportError:  # a broken installation fails here as well
        return broken


def _dispatch(arguments: list[str]) -> int:
    from evorun.cli.usage import USAGES

    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    asks_for_help = any(argument in ("--help", "-h") for argument in arguments)
    first = arguments[0] if arguments else ""
    if first in USAGES:
        if asks_for_help:
            print(f"usage: {USAGES[first].synopsis}\n\n{USAGES[first].about}")
            return 0
        from evorun.cli.verbs import run_verb

        return run_verb(first, arguments[1:])
    if first in ("--version", "-V"):
        import evorun

        print(f"evorun {evorun.__version__}")
        return 0
    if asks_for_help:
        from evorun.cli.help import print_help

        print_help()
        return 0
    if first in ("-sc", "--shell-completion") and arguments[1:2] != [] and arguments[1].startswith("query="):
        from evorun.cli.completion import print_choices

        print_choices(arguments[1])
        return 0
    from evorun.cli.launch import run_hydra
    from evorun.cli.options import split_max_price

    arguments, limit = split_max_price(arguments)
    if limit is not None:
        from evorun.cli.composed_jobs import compose_jobs
        from evorun.cli.planning import require_max_price

        require_max_price(compose_jobs(arguments), limit)
    return run_hydra(arguments)
