"""The overrides that tell the jobs of a sweep apart, and the few that suffice where these are too many to read."""

from collections.abc import Sequence

MAX_LENGTH = 100
"""Characters of overrides in a line on a job, beyond which those that suffice stand for all that differ (ours)."""

_FIRST = ("student", "model", "method", "task")
"""Keys whose choice best stands for others that come with it."""
_NO_SETTING = "study"


def list_differing(jobs: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return each job's overrides without those that all jobs have."""
    common = set.intersection(*map(set, jobs)) if jobs else set()
    return [[word for word in job if word not in common] for job in jobs]


def list_sufficient(jobs: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return each job's differing overrides; of those that always come together one alone, such as `student=laft`."""
    having: dict[str, list[int]] = {}
    for number, job in enumerate(jobs):
        for word in dict.fromkeys(job):
            having.setdefault(word, []).append(number)
    together: dict[tuple[int, ...], list[str]] = {}
    for word, numbers in having.items():
        together.setdefault(tuple(numbers), []).append(word)
    kept = {min(words, key=_rank) for words in together.values()} | {word for word in having if _key(word) == "seed"}
    return [[word for word in job if word in kept] for job in list_differing(jobs)]


def join_overrides(jobs: Sequence[Sequence[str]]) -> list[str]:
    """Return a line of each job's differing overrides, or of those that suffice where one would be too long."""
    lines = [" ".join(words) for words in list_differing(jobs)]
    if any(len(line) > MAX_LENGTH for line in lines):
        return [" ".join(words) for words in list_sufficient(jobs)]
    return lines


def _key(word: str) -> str:
    return word.lstrip("+").partition("=")[0]


def _rank(word: str) -> tuple[int, bool]:
    key = _key(word)
    return _FIRST.index(key) if key in _FIRST else len(_FIRST), "." in key or "/" in key or key == _NO_SETTING
