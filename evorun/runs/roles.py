"""Call roles that records, methods and reports name alike."""

GENERATE = "generate"
"""The call role of a response."""
GENERATORS = f"{GENERATE}."
"""How the call roles of several generators begin: their numbers follow, in the user's order."""
