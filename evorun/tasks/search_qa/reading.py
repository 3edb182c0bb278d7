"""Reading of search calls in the model's turns."""

import msgspec

from evorun.tasks.json_text import replace_lone_surrogates
from evorun.tasks.tool_calls import CLOSING, OPENING

MAX_CALL_CHARS = 4_000
"""Longest search call that is read (ours)."""
MAX_QUERY_CHARS = 300
"""Longest query (ours; the benchmarks' own questions have at most about 600 characters, most of them under 100)."""
TOOL = "search"


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw


class _Arguments(msgspec.Struct):
    query_list: list[str]


def read_call(text: str, max_queries: int) -> tuple[str, ...] | None:
    """Return the queries of a turn's search call; None for a turn without a tag.

    Raises ValueError with `kind: reason` for a call that cannot be carried out.
    """
    text = replace_lone_surrogates(text)
    openings, closings = text.count(OPENING), text.count(CLOSING)
    if not openings and not closings:
        return None
    if openings > 1 or closings > 1:
        raise ValueError("several_calls: expected one call a turn; put all queries into its query_list")
    start, end = text.find(OPENING), text.find(CLOSING)
    if start < 0 or end < start:
        raise ValueError("unclosed: expected the tag tool_call to be opened before the call and closed behind it")
    body = text[start + len(OPENING) : end].strip()
    if len(body) > MAX_CALL_CHARS:
        raise ValueError(f"too_long: expected a call of at most {MAX_CALL_CHARS} characters, got {len(body)}")
    try:
        call = msgspec.json.decode(body, type=_Call)
        if call.name != TOOL:
            raise ValueError(f"unknown_tool: expected the name {TOOL}, got {call.name!r:.60}")
        queries = msgspec.json.decode(call.arguments, type=_Arguments).query_list
    except msgspec.ValidationError as error:
        raise ValueError(f"wrong_arguments: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"bad_json: {error}") from error
    if not 1 <= len(queries) <= max_queries:
        raise ValueError(f"queries: expected 1 to {max_queries} in query_list, got {len(queries)}")
    if any(not query.strip() or len(query) > MAX_QUERY_CHARS for query in queries):
        raise ValueError(f"query: expected texts of 1 to {MAX_QUERY_CHARS} characters in query_list")
    return tuple(replace_lone_surrogates(" ".join(query.split())) for query in queries)
