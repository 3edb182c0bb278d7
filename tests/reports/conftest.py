"""Pages with few figures or none: drawing takes longer than all else."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatch
from typing import Any

import pytest

from evorun.reports import drawing
from warm_process import leave_blank, no_figures

_SAVE = drawing._save
Choose = Callable[..., None]
"""Takes the patterns of figures' names."""
ChooseWithin = Callable[..., AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def _blank_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures blank, which take longer than all else of a page, but for tests that ask for `drawn_figures`.

    Of these, PDF and PNG files are blank but for tests that ask for `drawn_files`.
    """
    if "drawn_figures" not in request.fixturenames:
        monkeypatch.setattr(drawing, "_save", leave_blank)
    elif "drawn_files" not in request.fixturenames:
        monkeypatch.setattr(drawing, "_save", _save_only("*"))


@pytest.fixture
def drawn_files() -> None:
    """Draw PDF and PNG files too."""


def _save_only(*names: str) -> Callable[..., None]:
    def save(figure: Any, buffer: Any, format: str, settings: Any, metadata: Any) -> None:
        name = settings.get("svg.hashsalt", "").removeprefix("evorun-")  # only an SVG has one
        chosen = _SAVE if format == "svg" and any(fnmatch(name, pattern) for pattern in names) else leave_blank
        chosen(figure, buffer, format, settings, metadata)

    return save


@pytest.fixture
def draw_only(monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Return what leaves all figures blank but those of some names, such as `accuracy-*`; all of them without names."""
    return lambda *names: monkeypatch.setattr(drawing, "_save", _save_only(*names))


@pytest.fixture(scope="session")
def drawing_only() -> ChooseWithin:
    """Return what does the same within a `with`, for pages that the tests of a file share."""

    @contextmanager
    def choose(*names: str) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(drawing, "_save", _save_only(*names))
            yield

    return choose


@pytest.fixture
def without_figures() -> Iterator[None]:
    """Leave figures out, for tests of a page's words and tables: drawing takes longer than all else."""
    with no_figures():
        yield
