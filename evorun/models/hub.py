"""Checks once whether the Hugging Face hub answers: its client retries for a minute before it gives up."""

from evorun.errors import first_line

SECONDS = 10.0
"""Timeout for the hub's first answer (ours): far longer than a working connection needs."""


def explain_unreachable(model: str) -> str | None:
    """Return the reason why the hub is unreachable for a model with this id; None if it is reachable or not needed."""
    from huggingface_hub import constants, get_session, try_to_load_from_cache

    try:
        # If one of the model's files is in the cache, the client also finds the others there, without the hub.
        cached = try_to_load_from_cache(model, "config.json") is not None
    except ValueError:
        return None  # an invalid id: the client reports it without asking the hub
    if cached or constants.HF_HUB_OFFLINE:
        return None
    try:
        # Any answer will do: the client reads what it says about the model.
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception as error:
        return f"the hub at {constants.ENDPOINT} does not answer ({first_line(error)})"
    return None
