"""The page of the command line: the help of the program and of each verb, as `--help` prints them."""

import contextlib
import io

from evorun.cli.help import print_help
from evorun.cli.usage import EXIT_FAILED, EXIT_INTERRUPTED, USAGES


def command_line_page() -> str:
    """Return the page in Markdown."""
    parts = [
        "# The command line",
        f"\n`evorun` without a verb starts a run. It exits with 0, with {EXIT_FAILED} after an error, and with "
        f"{EXIT_INTERRUPTED} when it is interrupted. Keys of a run are its [settings](settings.md).\n",
        "## evorun\n",
        _block(_print_help()),
    ]
    for verb, usage in USAGES.items():
        parts += [f"## evorun {verb}\n", f"{usage.summary[0].upper()}{usage.summary[1:]}.\n"]
        parts += [_block(f"usage: {usage.synopsis}\n\n{usage.about}\n")]
    return "\n".join(parts)


def _print_help() -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        print_help()
    return printed.getvalue()


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"
