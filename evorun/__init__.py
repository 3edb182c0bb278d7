"""evorun: one runner for experiments that evolve what language models produce.

The names below are the Python API: `docs/guides/python.md`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evorun.api.comparing import Comparison, compare
    from evorun.api.loading import load
    from evorun.api.running import extend, fork, rejudge, replay, resume, run, sweep
    from evorun.api.runs import Run, Runs

__version__ = "0.3.0.dev0"

__all__ = [
    "Comparison",
    "Run",
    "Runs",
    "compare",
    "extend",
    "fork",
    "load",
    "rejudge",
    "replay",
    "resume",
    "run",
    "sweep",
]

_MODULES = {
    "Comparison": "comparing",
    "compare": "comparing",
    "extend": "running",
    "fork": "running",
    "load": "loading",
    "rejudge": "running",
    "replay": "running",
    "resume": "running",
    "run": "running",
    "sweep": "running",
    "Run": "runs",
    "Runs": "runs",
}
"""The module of `evorun.api` that has each name."""


def __getattr__(name: str) -> Any:
    """Return a name of the Python API, whose module is imported on first use: `import evorun` stays light."""
    if name not in _MODULES:
        raise AttributeError(f"module 'evorun' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"evorun.api.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
