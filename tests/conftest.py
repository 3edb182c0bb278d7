"""What the tests of processes share."""

from collections.abc import Callable

import psutil
import pytest


@pytest.fixture
def below() -> Callable[[], list[psutil.Process]]:
    """Say which processes below this one were started since the test began: earlier tests may have left some, such as
    multiprocessing's resource tracker, which ends with the interpreter."""
    earlier = frozenset(psutil.Process().children(recursive=True))
    return lambda: [process for process in psutil.Process().children(recursive=True) if process not in earlier]
