"""A sandbox in each isolation."""

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from evorun.errors import SandboxError
from evorun.sandbox import Sandbox, SandboxConfig
from means import interpreter_for_other_users


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["bubblewrap", "namespaces", "rlimits"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """Open a sandbox of one slot; tests are skipped for an isolation that does not work here."""
    with interpreter_for_other_users() if request.param == "rlimits" else contextlib.nullcontext():
        try:
            opened = await Sandbox.open(SandboxConfig(isolation=request.param, slots=1))
        except SandboxError as error:
            pytest.skip(str(error))
        yield opened
        await opened.close()
