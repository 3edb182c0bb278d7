"""Answers of a task's tools as the journal has them: a list of one per turn, empty after a turn without a tool."""

import msgspec

TOOLS = "-tools"
"""Stands behind the call role in the key of what the tools said to a turn."""


# Omits defaults: the journal has one call per turn without their number.
class ToolAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tools' answers to a turn."""

    role: str
    content: str
    calls: int = 1
    """Tool calls of the turn."""


def count_tool_calls(answers: list[ToolAnswer]) -> int:
    """Return the tool calls of a turn that the model got an answer to."""
    return sum(answer.calls for answer in answers)
