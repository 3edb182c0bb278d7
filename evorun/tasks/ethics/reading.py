"""Reading of verdicts: RIGHT or WRONG between tags, once or several times the same."""

import re

VERDICTS = ("RIGHT", "WRONG")

_TAGGED = re.compile(r"<verdict>([^<>]{0,60})</verdict>", re.IGNORECASE)
# What models put around the word for show
_MARKS = " \t\r\n*_`\"'."


def read_verdict(text: str) -> str:
    """Return the verdict of a reply. Raises ValueError with `kind: reason`; kinds: no_verdict, unclear, several."""
    found: set[str] = {stated.strip(_MARKS).upper() for stated in _TAGGED.findall(text)}
    if not found:
        raise ValueError("no_verdict: expected <verdict>RIGHT</verdict> or <verdict>WRONG</verdict>, got neither")
    if unclear := sorted(found.difference(VERDICTS)):
        raise ValueError(f"unclear: expected RIGHT or WRONG as the verdict, got {unclear[0]!r:.70}")
    if len(found) > 1:
        raise ValueError("several: expected one verdict, got RIGHT and WRONG")
    return found.pop()
