"""Call roles that records, methods and reports name alike."""

from collections.abc import Iterable

GENERATE = "generate"
"""The call role of a response."""
GENERATORS = f"{GENERATE}."
"""The beginning of the call roles of several generators: their numbers follow, in the user's order."""
PANEL = "judge."
"""The beginning of the call roles of a panel's judges: their numbers follow, in the user's order."""


def count_judges(roles: Iterable[str]) -> int:
    """Return how many judges each duel asks: those of the panel among a run's roles, or one."""
    return sum(role.startswith(PANEL) for role in roles) or 1
