"""Subject, level and cluster of a record of MATH, in any of its published forms."""

import re
from collections.abc import Mapping
from typing import Any

from evorun.errors import DataError
from evorun.tasks.math_contest.records import read_level

SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
FIELDS = ("subject", "type")
"""Fields that may hold the subject; the first one that is there counts (`type`: MATH's own files)."""


def read_details(record: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """Return the subject of a record, and its subject, level and cluster in words; None for what it does not give.

    where: `FILE:LINE`. Raises DataError for an unknown subject and a cluster that is no number from 1.
    """
    said = next((record[name] for name in FIELDS if name in record), None)
    subject = re.sub(r"[^a-z]+", "_", str(said).lower().replace("&", "and"))
    if subject not in SUBJECTS:
        raise DataError(f"{where}: subject: expected one of {', '.join(SUBJECTS)}, got {said!r:.60}")
    # The clusters that MPO's authors publish with their copy of MATH
    cluster = record.get("cluster_id")
    if cluster is not None and (isinstance(cluster, bool) or not isinstance(cluster, int) or cluster < 1):
        raise DataError(f"{where}: cluster_id: expected an integer from 1, got {cluster!r:.60}")
    level = read_level(record)
    return subject, {
        "subject": subject,
        "level": None if level is None else f"level {level}",
        "cluster": None if cluster is None else cluster_name(subject, cluster),
    }


def cluster_names(count: int) -> tuple[str, ...]:
    """Return the names of all clusters, so many of each subject."""
    return tuple(cluster_name(subject, number) for subject in SUBJECTS for number in range(1, count + 1))


def cluster_name(subject: str, number: int) -> str:
    """Return the name of a subject's cluster, which is its rubric's key."""
    return f"{subject}/{number}"
