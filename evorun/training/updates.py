"""The updates of a run's weights in its journal."""

from collections.abc import Iterable

from evorun.runs.call_keys import CallKey, parse_call_key
from evorun.runs.candidates import SHARED

ROLE = "update"


def update_key(step: int, number: int) -> str:
    """Return the journal key of a step's update. number: of the update, from 1; not each step has one."""
    return str(CallKey(SHARED, step, ROLE, number, 0))


def assess_key(updates: int) -> str:
    """Return the journal key of a fine-tuning's assessment after so many updates, of which each is a step."""
    return str(CallKey(SHARED, updates, "assess", 0, 0))


def find_updates(keys: Iterable[str]) -> dict[int, int]:
    """Return the step of each update among a journal's keys, by the update's number."""
    calls = (parse_call_key(key) for key in keys if f"|{ROLE}|" in key)
    return {
        int(call.index): call.step for call in calls if call is not None and (call.problem, call.role) == (SHARED, ROLE)
    }
