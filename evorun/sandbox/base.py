"""The sandbox's inputs and outputs: programs, limits, executions, suites of tests and their verdicts."""

from typing import Literal

import msgspec

End = Literal["completed", "runtime_error", "time_limit", "memory_limit", "output_limit"]
"""The end of one execution. `completed` says nothing about the output."""

Verdict = Literal["accepted", "wrong_answer", "runtime_error", "time_limit", "memory_limit", "output_limit"]
"""The result of one test."""

Check = Literal["lines", "json", "any"]
"""The rule by which an output is compared, see `comparison.same_output`; any: every output is accepted."""


class Program(msgspec.Struct, frozen=True):
    """Python source text, as a model wrote it.

    Without `entry` it is a script: it runs as `__main__`, reads standard input and prints.

    With `entry`, the sandbox calls that callable once. The arguments are the JSON values on the lines of standard
    input. `entry` is "f", or "Class.method" of an instance made without arguments; without such a class, "method" alone
    is tried. The result is returned as JSON, with tuples and iterators as lists. A value that JSON cannot represent (a
    set, for example) is a runtime error.
    """

    source: str
    entry: str | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one execution. CPU time and memory are summed over the program's processes."""

    cpu_seconds: float = 6.0
    """User and system time. 6 s for each test, as in LiveCodeBench's harness."""
    wall_seconds: float | None = None
    """Backstop for programs that sleep; waiting for a core does not count. None: 3 * cpu_seconds + 2 (ours)."""
    memory_mib: int = 1024
    """Address space of each process, and resident memory of all. `ours`."""
    output_kib: int = 8192
    """Standard output, standard error and result together. `ours`."""
    file_mib: int = 16
    """The scratch folder's size, and each file's. `ours`."""
    processes: int = 32
    """Simultaneous processes and threads. `ours`."""
    open_files: int = 64
    """File descriptors of each process. `ours`."""

    def wall_limit(self) -> float:
        """Return the wall-clock limit in force, in seconds."""
        return 3 * self.cpu_seconds + 2 if self.wall_seconds is None else self.wall_seconds


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One program's run on one input."""

    end: End
    stdout: str
    stderr: str
    """The program's standard error; the sandbox adds its own reason as a last line in square brackets."""
    value: str | None
    """JSON of the entry's result; None for a script, or if the entry did not return."""
    exit_code: int | None
    """None: ended by a signal. `SystemExit` with any code counts as 0, as in LiveCodeBench's harness."""
    signal: int | None
    cpu_seconds: float
    wall_seconds: float


class Case(msgspec.Struct, frozen=True):
    """One test: an input and the expected output."""

    stdin: str
    expected: str


class Suite(msgspec.Struct, frozen=True):
    """The tests of a problem, with the limits and the rule of comparison."""

    cases: tuple[Case, ...]
    check: Check
    limits: Limits


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test's verdict, with texts cut to `testing.LONGEST_TEXT` characters."""

    verdict: Verdict
    stdout: str
    stderr: str
    value: str | None
    """Whole where the suite's check is `any`: then its reader decides what it is worth."""
    cpu_seconds: float
