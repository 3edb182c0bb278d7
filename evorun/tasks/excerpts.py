"""Long texts in prompts: what is left out is out of the middle, and the text says so."""


def excerpt(text: str, limit: int | None) -> str:
    """Return at most `limit` characters of a text, its beginning and its end, and how many are left out between them.

    Words stay whole, except one that fills its half of the limit. None: the whole text.
    """
    if limit is None or len(text) <= limit:
        return text
    start, end = limit - limit // 2, len(text) - limit // 2
    head, tail = text[:start], text[end:]
    # A word that goes on beyond the cut goes as a whole, where it is not all that there is.
    if not (text[start - 1].isspace() or text[start].isspace()) and len(head.split()) > 1:
        head = head.rsplit(maxsplit=1)[0]
    if not (text[end - 1].isspace() or text[end : end + 1].isspace()) and len(tail.split()) > 1:
        tail = tail.split(maxsplit=1)[1]
    head, tail = head.rstrip(), tail.lstrip()
    mark = f"[... {len(text) - len(head) - len(tail):,} characters left out ...]"
    return " ".join(part for part in (head, mark, tail) if part)
