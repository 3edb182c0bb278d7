"""Call roles that records, methods and reports name alike."""

GENERATE = "generate"
"""The call role of a response."""
GENERATORS = f"{GENERATE}."
"""The beginning of the call roles of several generators: their numbers follow, in the user's order."""
