"""Untrusted texts (ids, names, messages, completions) made safe to display."""

# tab and line feed stay, since they lay out completions
_CONTROL_PICTURES = {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)}
# they can show a text's end before its beginning ("Trojan Source", CVE-2021-42574)
_BIDI_CONTROLS = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")
_VISIBLE = {**_CONTROL_PICTURES, **_BIDI_CONTROLS, 0x7F: "\u2421", **dict.fromkeys(range(0x80, 0xA0), "\ufffd")}


def printable(text: object) -> str:
    """Return the text without anything that controls a terminal or the layout around it.

    Control characters become visible symbols; direction overrides and lone surrogates become replacement marks.
    """
    # "replace": a lone surrogate, which JSON may carry, cannot be encoded and would end the program at a print
    return str(text).encode("utf-8", "replace").decode("utf-8").translate(_VISIBLE)
