"""The signals that stop a run in order."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from evorun.runner.process import stop_on_signals
from evorun.runs.signals import STOP_SIGNALS, WARNING_SIGNALS


async def _stopped_by(number: signal.Signals) -> None:
    stop_on_signals()
    os.kill(os.getpid(), number)
    await asyncio.wait_for(asyncio.Event().wait(), 60)


@pytest.fixture(name="launcher")
def _launcher() -> Iterator[list[int]]:
    """Install a launcher's own handler; return what it has seen."""
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: seen.append(number))
    yield seen
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("number", [*STOP_SIGNALS, *WARNING_SIGNALS])
def test_a_signal_cancels_the_run_and_a_second_one_has_its_usual_effect(number: signal.Signals) -> None:
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests run under nohup
    before = {one: signal.getsignal(one) for one in (*STOP_SIGNALS, *WARNING_SIGNALS)}
    with pytest.raises(asyncio.CancelledError, match=f"stopped by {number.name}"):
        asyncio.run(_stopped_by(number))
    after = {one: signal.getsignal(one) for one in before}
    signal.signal(signal.SIGHUP, inherited)
    assert after == before


def test_a_warning_beside_a_signal_that_stops_the_run_does_no_harm() -> None:
    async def closes() -> str:
        try:
            await _stopped_by(signal.SIGTERM)
        except asyncio.CancelledError:
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                os.kill(os.getpid(), number)
            await asyncio.sleep(0)
        return "closed"

    assert asyncio.run(closes()) == "closed"


def test_what_nohup_starts_outlives_its_terminal() -> None:
    async def go_on() -> None:
        stop_on_signals()
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asyncio.run(go_on())
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_launcher_keeps_the_signal_that_it_waits_for(launcher: list[int]) -> None:
    async def go_on() -> None:
        stop_on_signals()
        os.kill(os.getpid(), signal.SIGUSR2)
        await asyncio.sleep(0)

    asyncio.run(go_on())
    assert launcher == [signal.SIGUSR2]
