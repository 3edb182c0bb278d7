"""Fine-tuning data from recorded runs (Lyria paper, sections 5.1 and 5.2). The package reads run directories only."""

from evorun.traces.collection import Traces, collect
from evorun.traces.counts import REASONS, Counts
from evorun.traces.files import counts_file, simulated_runs, write_traces
from evorun.traces.kinds import KINDS, Settings

__all__ = [
    "KINDS",
    "REASONS",
    "Counts",
    "Settings",
    "Traces",
    "collect",
    "counts_file",
    "simulated_runs",
    "write_traces",
]
