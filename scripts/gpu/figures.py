"""The figures of a GPU check: how a part reports them, and the table that they make."""

import json
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from evorun.models.devices import query_gpus


class Setting(NamedTuple):
    """The device, size and folder for a part."""

    device: str
    """cuda | cpu."""
    size: str
    """full | tiny."""
    scratch: Path
    """A folder for the part's runs, which the check removes."""
    models: Path
    """A folder for models, which the parts share; the check removes it at its end."""

    @property
    def tiny(self) -> bool:
        """True where the figures mean nothing, and only the way to them is tried."""
        return self.size == "tiny"


def report(what: str, value: float | str | bool, unit: str = "", beside: str = "") -> None:
    """Print a figure for the check to collect. beside: what the same is without evorun, or what it should be."""
    print(json.dumps({"what": what, "value": value, "unit": unit, "beside": beside}), flush=True)


@contextmanager
def attempt(what: str) -> Iterator[None]:
    """Report an error of the block as a figure, so that the rest of a part goes on."""
    try:
        yield
    except Exception as error:
        import traceback

        traceback.print_exc()
        report(what, f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}")


@contextmanager
def peak_memory(process: int | None = None) -> Iterator[Callable[[], float]]:
    """Yield a function that returns the most memory in use since, in GiB: of all GPUs seen, or on a CPU of a process.

    The GPU's own count includes what CUDA takes for itself, and what other processes hold.
    """
    readings: list[float] = [_read_memory(process)]
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(0.1):
            readings.append(_read_memory(process))

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield lambda: max(readings)
    finally:
        ended.set()
        thread.join()


def read_gpu_memory() -> float:
    """Return the memory in use of all GPUs seen, in GiB; 0 without any."""
    return sum(float(line.split()[0]) for line in query_gpus("memory.used") or ()) / 1024


def _read_memory(process: int | None) -> float:
    if query_gpus("memory.used"):
        return read_gpu_memory()
    try:
        status = Path(f"/proc/{process or 'self'}/status").read_text()
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 2**20


def median(values: list[float]) -> float:
    """Return the median without the first value, which holds what is done once."""
    return statistics.median(values[1:] or values)


def to_table(found: Mapping[str, Any]) -> str:
    """Return a Markdown table of the figures, headed by the machine and the date."""
    machine = found["machine"]
    where = machine.get("gpu", "CPU only")
    packages = ", ".join(f"{name} {machine['packages'][name]}" for name in ("torch", "transformers", "trl", "vllm")
                         if machine["packages"].get(name))  # fmt: skip
    lines = [f"{where}, {machine['date']}, {packages}; models of {found['size']} size with random weights.", ""]
    lines += ["| part | what | figure | beside |", "|---|---|---|---|"]
    for part, of_part in found["parts"].items():
        for figure in of_part["figures"]:
            value = figure["value"]
            shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else _format(value)
            cells = (part, figure["what"], f"{shown} {figure['unit']}".strip(), figure["beside"])
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        if "held" in of_part:
            lines.append(f"| {part} | **beside other work** | {of_part['held']} | |")
        if "problem" in of_part:
            last = next((line for line in reversed(of_part["last_lines"]) if line.strip()), "no message")
            said = last.strip().replace("|", "\\|")
            lines.append(f"| {part} | **{of_part['problem']}** | {said} | |")
    return "\n".join(lines) + "\n"


def _format(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
