"""Every benchmark works, at a size that takes a second: an API that it uses may have changed since it was last run."""

import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "scripts" / "bench"
NAMES = sorted(path.stem for path in BENCH.glob("*.py") if "\ndef measure(" in path.read_text())


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(BENCH)
    names = {path.stem for path in BENCH.glob("*.py")}
    others = {name: sys.modules.pop(name) for name in names & set(sys.modules)}  # plain names: tests have them too
    yield
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(others)


LONGER = ("curves", "lyria", "paper_run", "sandbox", "simulated_espl", "stack", "view")
"""Those that take seconds: `make lint` checks how they call evorun, too."""


@pytest.mark.sample(1)
@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in LONGER else []) for name in NAMES]
)
def test_measures_at_a_tiny_size(name: str) -> None:
    benchmark = importlib.import_module(name)
    rows = benchmark.measure(**benchmark.TINY)
    names = [row.name for row in rows]
    assert names
    assert len(set(names)) == len(names)  # figures of two checkouts are compared by name
    assert all(math.isfinite(row.value) and row.value >= 0 for row in rows if row.unit != "us/call")
    assert all((row.met is None) == (row.target == "") for row in rows)


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(("power", "grows"), [(1.0, False), (1.1, False), (2.0, True)])
def test_a_curve_fails_where_a_cost_per_call_grows(power: float, grows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = importlib.import_module("curves")

    def measured(size: int, problems: int, overrides: dict[str, object]) -> Any:
        calls = 1_000 if "run.concurrency" in overrides else 100 * size
        cost = calls if "run.concurrency" in overrides else calls**power
        return curves.Point(size, calls, 2 + 1e-4 * cost, 1e8 + 1_000 * calls, 1e6 + 100 * calls)

    monkeypatch.setattr(curves, "_measured", measured)
    if grows:
        with pytest.raises(RuntimeError, match="cpu per call against problems"):
            curves.measure()
    else:
        assert all(row.met is not False for row in curves.measure())
