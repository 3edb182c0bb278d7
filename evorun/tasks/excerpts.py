"""Excerpts of long texts for prompts: the middle is left out, and a note says so."""


def excerpt(text: str, limit: int | None) -> str:
    """Return the beginning and the end of a text, at most `limit` characters, with a note of the omission between them.

    Words stay whole, except a word that fills its half of the limit. None: the whole text.
    """
    if limit is None or len(text) <= limit:
        return text
    start, end = limit - limit // 2, len(text) - limit // 2
    head, tail = text[:start], text[end:]
    # A word that crosses the cut is dropped, unless nothing else is left.
    if not (text[start - 1].isspace() or text[start].isspace()) and len(head.split()) > 1:
        head = head.rsplit(maxsplit=1)[0]
    if not (text[end - 1].isspace() or text[end : end + 1].isspace()) and len(tail.split()) > 1:
        tail = tail.split(maxsplit=1)[1]
    head, tail = head.rstrip(), tail.lstrip()
    mark = f"[... {len(text) - len(head) - len(tail):,} characters left out ...]"
    return " ".join(part for part in (head, mark, tail) if part)
