"""A sandbox in each isolation."""

import contextlib
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from evorun.errors import SandboxError
from evorun.sandbox import Sandbox, SandboxConfig
from hostile_programs import LIKE_ANOTHER, ONE_OF_A_KIND
from means import interpreter_for_other_users


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one isolation contain most hostile programs by day, and the others one of each kind."""
    whole = "bubblewrap" if shutil.which("bwrap") else "namespaces"
    for item in items:
        known = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        hostile, isolation = known.get("hostile"), known.get("sandbox")
        if not hostile or isolation is None or hostile.name in ONE_OF_A_KIND:
            continue
        if isolation != whole or hostile.name in LIKE_ANOTHER:
            item.add_marker(pytest.mark.nightly)


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
