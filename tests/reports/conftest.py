"""Pages with few figures or none: drawing takes longer than all else."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evorun.reports import drawing
from warm_process import leave_blank, no_figures

_SAVE = drawing._save


@pytest.fixture(autouse=True)
def _blank_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures blank, which take longer than all else of a page, but for tests that ask for `drawn_figures`."""
    if "drawn_figures" not in request.fixturenames:
        monkeypatch.setattr(drawing, "_save", leave_blank)


@pytest.fixture
def draw_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what leaves all figures blank but that of a name."""

    def choose(name: str) -> None:
        def save_one(figure: Any, buffer: Any, format: str, settings: Any, metadata: Any) -> None:
            chosen = _SAVE if settings.get("svg.hashsalt") == f"evorun-{name}" else leave_blank
            chosen(figure, buffer, format, settings, metadata)

        monkeypatch.setattr(drawing, "_save", save_one)

    return choose


@pytest.fixture
def without_figures() -> Iterator[None]:
    """Leave figures out, for tests of a page's words and tables: drawing takes longer than all else."""
    with no_figures():
        yield
