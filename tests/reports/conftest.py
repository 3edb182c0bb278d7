"""One browser for all tests of pages: starting it takes longer than most of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from warm_process import no_figures


@pytest.fixture(name="chromium", scope="session")
def _chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import browsing  # skips the tests that ask for it where selenium is not installed

    driver = browsing.start(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def without_figures() -> Iterator[None]:
    """Leave figures out, for tests of a page's words and tables: drawing takes longer than all else."""
    with no_figures():
        yield
