"""Pages with few figures or none: drawing takes longer than all else."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evorun.reports import drawing
from warm_process import leave_blank, no_figures


@pytest.fixture
def blank_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures blank, for tests of which of them a page has."""
    monkeypatch.setattr(drawing, "_save", leave_blank)


@pytest.fixture
def draw_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what leaves all figures blank but that of a name."""
    save = drawing._save

    def choose(name: str) -> None:
        def save_one(figure: Any, buffer: Any, format: str, settings: Any, metadata: Any) -> None:
            chosen = save if settings.get("svg.hashsalt") == f"evorun-{name}" else leave_blank
            chosen(figure, buffer, format, settings, metadata)

        monkeypatch.setattr(drawing, "_save", save_one)

    return choose


@pytest.fixture
def without_figures() -> Iterator[None]:
    """Leave figures out, for tests of a page's words and tables: drawing takes longer than all else."""
    with no_figures():
        yield
