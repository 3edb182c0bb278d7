"""The Hugging Face hub, asked once whether it answers: its own client tries for a minute before it gives up."""

from evorun.errors import first_line

SECONDS = 10.0
"""To wait for the hub's first answer (ours): far more than a connection takes that works."""


def unreachable(model: str) -> str | None:
    """Return why the hub cannot be asked for a model with this id; None where it can, or need not."""
    from huggingface_hub import constants, get_session, try_to_load_from_cache

    try:
        # With one file of the model in its cache, the client finds the others there too, without the hub.
        cached = try_to_load_from_cache(model, "config.json") is not None
    except ValueError:
        return None  # no id: the client says so, and asks nobody
    if cached or constants.HF_HUB_OFFLINE:
        return None
    try:
        # Any answer will do: what it says of the model is the client's to read.
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception as error:
        return f"the hub at {constants.ENDPOINT} does not answer ({first_line(error)})"
    return None
