"""Compares answers with math-verify, in a separate process: `verification.py` starts it, and the kernel ends it.

Reads one JSON array (gold, answer) per line and replies with one JSON object per line. Imports nothing of evorun: it
runs as a file. An algebra system may compute without end on an answer such as a tower of powers. Neither a thread nor,
inside its loops in C, an exception can stop it; a signal that ends the process can.
"""

import contextlib
import json
import logging
import os
import resource
import signal
import sys
from typing import Any

RELATIVE = 1e-5
"""Relative tolerance of numbers (ours)."""


def main() -> None:
    """Serve until the input ends. Arguments: CPU seconds per comparison, MiB of address space of the process."""
    seconds, memory_mib = float(sys.argv[1]), int(sys.argv[2])
    # A library's prints must not end up among the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        import math_verify
    except ImportError as error:
        replies.write(json.dumps({"error": str(error)}) + "\n")
        return
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        reply = compare(math_verify, *json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(json.dumps(reply) + "\n")


def compare(math_verify: Any, gold: str, answer: str) -> dict[str, Any]:
    """Return whether the answer has the gold answer's value, and the reason if they differ other than in value."""
    with contextlib.suppress(Exception):
        expected, stated = (math_verify.parse(f"${text}$", parsing_timeout=None) for text in (gold, answer))
        if not stated:
            return {"equal": False, "detail": "unreadable: math-verify finds no value in the answer"}
        equal = bool(math_verify.verify(expected, stated, timeout_seconds=None))
        return {"equal": equal and _agree_in_first_digits(expected[0], stated[0]), "detail": ""}
    return {"equal": False, "detail": "unreadable: math-verify failed on the answer"}


def _agree_in_first_digits(expected: Any, stated: Any) -> bool:
    """Return whether numbers are equal in their first digits, too: math-verify rounds to six decimal places."""
    with contextlib.suppress(Exception):
        numbers = [complex(value.doit()) for value in (expected, stated)]
        return abs(numbers[0] - numbers[1]) <= RELATIVE * abs(numbers[0])
    return True


if __name__ == "__main__":
    main()
