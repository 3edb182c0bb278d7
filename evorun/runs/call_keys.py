"""Keys of effects that belong to a step: `problem|step|role|index|attempt`.

Model calls have such a key in the journal, and so have a step's updates and tools. A problem's id may hold the
separator, so keys are read from their end. Other effects, such as programs, have keys of other forms.
"""

import msgspec


class CallKey(msgspec.Struct, frozen=True):
    """The parts of a key; as a string, the key itself."""

    problem: str
    """Id of the problem, or `*` for an effect that serves all problems."""
    step: int
    role: str
    index: int | str
    """Number of the call among those of its problem, step and role; a digest of its request for one without a place."""
    attempt: int

    def __str__(self) -> str:
        return f"{self.problem}|{self.step}|{self.role}|{self.index}|{self.attempt}"


def parse_call_key(key: str) -> CallKey | None:
    """Return the parts of a key; None for an effect that belongs to no step."""
    parts = key.rsplit("|", 4)
    if len(parts) < 5 or not (parts[1].isdecimal() and parts[4].isdecimal()):
        return None
    problem, step, role, index, attempt = parts
    return CallKey(problem, int(step), role, int(index) if index.isdecimal() else index, int(attempt))


def parse_step(key: str) -> tuple[str, int] | None:
    """Return the problem (or `*`) and the step of a key; None for an effect that has no place in a step."""
    call = parse_call_key(key)
    return None if call is None or isinstance(call.index, str) else (call.problem, call.step)


def read_role(key: str) -> str:
    """Return the call role of a key; a key of another form is its own."""
    call = parse_call_key(key)
    return key if call is None else call.role
