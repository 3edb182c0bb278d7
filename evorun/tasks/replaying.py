"""Runs asynchronous code of other packages, and of the user, from code that is not."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a thread of its own, whether or not this one has a running event loop."""
    return _thread().submit(asyncio.run, work).result()


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="replay")
