"""Playbooks: entries of advice with counters, which a system prompt shows and models only ever add to.

ACE (arXiv 2510.04618), section 3: it grows by additions, since a prompt that is rewritten again and again collapses to
a summary.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from evorun.tasks.json_text import replace_lone_surrogates
from evorun.tasks.tags import escape_tags

SECTIONS = ("strategies", "formulas", "code", "mistakes", "heuristics", "context", "others")
"""The authors' sections, by what they hold."""
TAGS = ("helpful", "harmful", "neutral")
_ID = re.compile(r"\[B(\d{1,5})\]")


class Entry(NamedTuple):
    """A piece of advice."""

    number: int
    """Known to models as B1, B2, ..."""
    section: str
    text: str
    helpful: int = 0
    """Reflections that found it helpful, as `harmful` counts those that found the contrary."""
    harmful: int = 0

    @property
    def line(self) -> str:
        """The entry as prompts show it."""
        return f"[B{self.number}] helpful={self.helpful} harmful={self.harmful} :: {self.text}"


class Playbook(NamedTuple):
    """The entries, in the order in which they were added."""

    entries: tuple[Entry, ...] = ()
    next_number: int = 1

    @property
    def text(self) -> str:
        """The entries by section, as prompts show them; empty without any."""
        by_section = {name: [entry.line for entry in self.entries if entry.section == name] for name in SECTIONS}
        return "\n\n".join("\n".join([f"## {name}", *lines]) for name, lines in by_section.items() if lines)

    def find_cited(self, text: str) -> list[Entry]:
        """Return the entries that a completion names as [B1], [B2], ..."""
        numbers = {int(number) for number in _ID.findall(text)}
        return [entry for entry in self.entries if entry.number in numbers]

    def tag(self, tags: Mapping[int, str]) -> "Playbook":
        """Return the playbook with its counters after a reflection. tags: by number of entry."""
        return self._replace(
            entries=tuple(
                entry._replace(
                    helpful=entry.helpful + (tags.get(entry.number) == "helpful"),
                    harmful=entry.harmful + (tags.get(entry.number) == "harmful"),
                )
                for entry in self.entries
            )
        )

    def add(self, additions: Iterable[Any], limits: "Limits") -> tuple["Playbook", Counter[str]]:
        """Return the playbook with a curator's additions, and the number of those refused, by reason.

        additions: objects with `section` and `text`, as a model wrote them.
        """
        playbook, refused = self, Counter[str]()
        for place, addition in enumerate(additions):
            text = _clean(addition.get("text")) if isinstance(addition, dict) else ""
            section = str(addition.get("section")).strip().lower() if isinstance(addition, dict) else ""
            if place >= limits.additions:
                refused["too_many"] += 1
            elif not text:
                refused["empty_text"] += 1
            elif len(text) > limits.entry_chars:
                refused["too_long"] += 1
            elif any(entry.text == text for entry in playbook.entries):
                refused["duplicate"] += 1
            elif len(playbook.text) + len(text) > limits.playbook_chars:
                refused["full"] += 1
            else:
                entry = Entry(playbook.next_number, section if section in SECTIONS else "others", text)
                playbook = Playbook((*playbook.entries, entry), playbook.next_number + 1)
        return playbook, refused

    def merge_similar(self, threshold: float) -> "Playbook":
        """Return the playbook in which each entry has taken in the later ones of its section that say nearly the same.

        threshold: cosine of the counts of their words from which two say the same. Counters add up; the earlier text
        stays.
        """
        kept: list[Entry] = []
        for entry in self.entries:
            for place, earlier in enumerate(kept):
                if earlier.section == entry.section and similarity(earlier.text, entry.text) >= threshold:
                    helpful, harmful = earlier.helpful + entry.helpful, earlier.harmful + entry.harmful
                    kept[place] = earlier._replace(helpful=helpful, harmful=harmful)
                    break
            else:
                kept.append(entry)
        return self._replace(entries=tuple(kept))


class Limits(NamedTuple):
    """Limits on what a curator may write (ours, but for the size of the playbook)."""

    additions: int
    """Of one reply."""
    entry_chars: int
    playbook_chars: int


def similarity(first: str, second: str) -> float:
    """Return the cosine of the counts of two texts' words, in [0, 1]."""
    left, right = (Counter(re.findall(r"\w+", text.lower())) for text in (first, second))
    product = sum(count * right[word] for word, count in left.items())
    lengths = math.prod(sum(count**2 for count in counts.values()) for counts in (left, right))
    return product / math.sqrt(lengths) if lengths else 0.0


def read_tags(entries: Any, shown: Sequence[Entry]) -> dict[int, str]:
    """Return the tags of a reflection by number of entry: of entries that it was shown, the last tag of each."""
    numbers = {entry.number for entry in shown}
    found = {}
    for tagged in entries if isinstance(entries, list) else ():
        name, tag = (tagged.get("id"), tagged.get("tag")) if isinstance(tagged, dict) else (None, None)
        digits = str(name).strip(" []").upper().removeprefix("B")
        if tag in TAGS and digits.isdecimal() and len(digits) < 6 and int(digits) in numbers:
            found[int(digits)] = str(tag)
    return found


def _clean(text: Any) -> str:
    """Return a model's text as one line without tags, and without ids that would look like another entry's."""
    if not isinstance(text, str):
        return ""
    return " ".join(escape_tags(_ID.sub("", replace_lone_surrogates(text))).split())
