"""The updates of a run's weights in its journal."""

from collections.abc import Iterable

from evorun.runs.candidates import SHARED

ROLE = "update"


def update_key(step: int, number: int) -> str:
    """Return the journal key of a step's update. number: of the update, from 1; not each step has one."""
    return f"{SHARED}|{step}|{ROLE}|{number}|0"


def assess_key(updates: int) -> str:
    """Return the journal key of a fine-tuning's assessment after so many updates, of which each is a step."""
    return f"{SHARED}|{updates}|assess|0|0"


def find_updates(keys: Iterable[str]) -> dict[int, int]:
    """Return the step of each update among a journal's keys, by the update's number."""
    parts = (key.rsplit("|", 4) for key in keys if f"|{ROLE}|" in key)
    return {int(number): int(step) for name, step, role, number, _ in parts if (name, role) == (SHARED, ROLE)}
