"""The command line: Hydra's entry point for runs, and the verbs beside it."""

import os
import sys
from collections.abc import Sequence

from rich.console import Console

from evorun.errors import EvorunError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 when all went well, 1 with one line on an error, 130 when interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # the linear algebra here is small: more BLAS threads only get in each other's way
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # torch's idle threads must not spin: with other work on the cores that made a step ten times slower
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = _dispatch(arguments)
    except EvorunError as error:
        if _wants_traceback(arguments):
            raise
        complain(str(error))
        code = EXIT_FAILED
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # the reader of our output has gone (`evorun list | head`); nothing is left to say, not even at shutdown
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def complain(message: str) -> None:
    """Print one line of error on standard error."""
    line = " ".join(message.split())
    Console(stderr=True).print(f"[bold red]error:[/bold red] {_escape(line)}", highlight=False, soft_wrap=True)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _wants_traceback(arguments: Sequence[str]) -> bool:
    return any(argument.lstrip("+") in ("evorun.debug=true", "evorun.debug=True") for argument in arguments)


def _dispatch(arguments: list[str]) -> int:
    from evorun.cli.verbs import VERBS

    first = arguments[0] if arguments else ""
    if first in VERBS:
        return VERBS[first](arguments[1:])
    if first in ("--version", "-V"):
        import evorun

        print(f"evorun {evorun.__version__}")
        return 0
    if any(argument in ("--help", "-h") for argument in arguments):
        from evorun.cli.help import print_help

        print_help()
        return 0
    from evorun.cli.compose import run_hydra

    return run_hydra(arguments)
