"""The two files of an export: the examples, and their counts. Nothing replaces either without being asked to."""

from pathlib import Path

import msgspec

from evorun.runs.outputs import refuse_replacing
from evorun.runs.records import write_atomically
from evorun.traces.collection import Traces
from evorun.traces.counts import Counts


def counts_file(output: Path) -> Path:
    """Return the path of an export's counts."""
    return output.with_suffix(".counts.json")


def write_traces(traces: Traces, output: Path, *, overwrite: bool) -> None:
    """Write both files, each atomically, the examples last.

    Raises ConfigError when a file exists with another content and `overwrite` is false, RunDirectoryError when one
    cannot be written.
    """
    contents = {
        counts_file(output): msgspec.json.format(msgspec.json.encode(traces.counts), indent=2) + b"\n",
        output: b"".join(line + b"\n" for line in traces.examples),
    }
    for path, content in contents.items():
        refuse_replacing("output", path, overwrite=overwrite, content=content)
    for path, content in contents.items():
        write_atomically(path, content)


def simulated_runs(examples: Path) -> list[str]:
    """Return the simulated runs among the sources of an export; none for a file that is no export."""
    file = counts_file(examples)
    if not file.is_file():  # a pipe would block
        return []
    try:
        counts = msgspec.json.decode(file.read_bytes(), type=Counts)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return []
    return [run.run for run in counts.runs if run.simulated]
