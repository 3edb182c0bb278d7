"""The canonical form of a request, which a journal keeps and recognises it by."""

from typing import Any

import msgspec

from evorun.models.base import Message, Request, Sampling

_ENCODER = msgspec.json.Encoder(order="deterministic")


class RecordedRequest(msgspec.Struct, frozen=True):
    """A request as a journal holds it. Which engine serves the model is not part of it; neither are the hints."""

    model: str
    messages: tuple[Message, ...]
    sampling: Sampling
    seed: int
    json_schema: dict[str, Any] | None


def encode_request(model: str, request: Request) -> bytes:
    """Return the canonical JSON of a request to the model of that name."""
    return _ENCODER.encode(
        RecordedRequest(model, request.messages, request.sampling, request.seed, request.json_schema)
    )
