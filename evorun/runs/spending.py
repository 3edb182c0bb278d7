"""A run's spending by its journal: all calls made, even those since its last recorded step."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from evorun.runs.budget import Usage
from evorun.runs.call_keys import parse_call_key
from evorun.runs.journal_reader import decode_result, open_journal
from evorun.runs.tool_answers import TOOLS, ToolAnswer, count_tool_calls

GOLD = "gold"
"""The role of the model that grades, and of its calls: no part of a method, so no total includes them."""

EXPERT = "expert"
"""The rubric by which the gold judge grades."""

TRAINING = "training"
"""Stands beside the call roles for what a vendor bills for updates of weights; it has no calls."""


class Spending(NamedTuple):
    """Calls by role."""

    by_role: Mapping[str, Usage]
    refused: Mapping[str, int]
    """Requests that the engine refused, by role; only where there were any."""


class _Tokens(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class _Refusal(msgspec.Struct):
    error: str | None = None


def read_spending(journal: Path) -> Spending:
    """Sum a journal's model calls by role. Raises RunDirectoryError or JournalError for one that cannot be read."""
    by_role: dict[str, Usage] = defaultdict(Usage)
    with closing(open_journal(journal)) as reader:
        for number, (key, _) in enumerate(reader.index()):
            token_counts, seconds = reader.spent(number)
            call = parse_call_key(key)
            role = "" if call is None else call.role
            if token_counts is None and role.endswith(TOOLS):
                answers = decode_result(reader.result(number), list[ToolAnswer], key, journal)
                by_role[role.removesuffix(TOOLS)].tool_calls += count_tool_calls(answers)
            # programs, rewards and updates in the journal have no tokens
            if token_counts is None or not role:
                continue
            tokens = decode_result(token_counts.encode(), _Tokens, key, journal)
            reply = decode_result(reader.result(number), _Refusal, key, journal)
            refused = int(reply.error is not None)
            usage = Usage(1, tokens.prompt_tokens, tokens.completion_tokens, seconds, refused=refused)
            usage.cached_tokens = tokens.cached_tokens
            by_role[role].add(usage)
    refusals = {role: usage.refused for role, usage in sorted(by_role.items()) if usage.refused}
    return Spending(dict(sorted(by_role.items())), refusals)
