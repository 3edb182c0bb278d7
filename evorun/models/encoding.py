"""Encodes a request in the canonical form by which a journal recognises it."""

from typing import Any

import msgspec

from evorun.models.base import Message, Request, Sampling

_ENCODER = msgspec.json.Encoder(order="deterministic")


class RecordedRequest(msgspec.Struct, frozen=True):
    """A request as a journal holds it.

    The engine and the hints are not part of it: a run recorded with one engine can be replayed with another.
    """

    model: str
    messages: tuple[Message, ...]
    sampling: Sampling
    seed: int
    json_schema: dict[str, Any] | None


def encode_request(model: str, request: Request) -> bytes:
    """Return the canonical JSON of a request to the model with this name."""
    return _ENCODER.encode(
        RecordedRequest(model, request.messages, request.sampling, request.seed, request.json_schema)
    )


def encode_question(request: bytes) -> bytes | None:
    """Return what an encoded request asks, whoever answers it and how; None where it is none of a model's.

    The seed is part of it, for it tells calls with the same messages apart.
    """
    try:
        asked = msgspec.json.decode(request, type=RecordedRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # of a tool or a reward
        return None
    return _ENCODER.encode((asked.messages, asked.seed, asked.json_schema))
