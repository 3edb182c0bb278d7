"""MATH: a contest whose problems have a subject and a level, in clusters that have a rubric each."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace as replace_struct

from evorun.errors import ConfigError, DataError
from evorun.fields import PositiveInt
from evorun.tasks.base import Problem
from evorun.tasks.benchmark import Question
from evorun.tasks.benchmark_files import NotFoundError, Record
from evorun.tasks.math_contest.math_contest import MathContest
from evorun.tasks.math_contest.problems import MathContestConfig, read_level
from evorun.tasks.split_benchmark import SplitData

if TYPE_CHECKING:
    from evorun.tasks.math.clusters import Clusters

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
"""Fields that may hold the subject; the first present field counts (`type`: MATH's own files)."""

_log = logging.getLogger(__name__)


class Math(MathContest):
    """Answers a competition problem in free text that ends in a box; scored under one rubric per cluster."""

    name = "math"
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", *MathContest.prompt_folders)

    def __init__(self, *, clusters: int = 3, **settings: Any) -> None:
        """clusters: number of clusters per subject. settings: see `MathContest`."""
        self._clusters = clusters
        super().__init__(**settings)

    def rubric_keys(self) -> tuple[str, ...]:
        """Return one key per cluster of each subject: 21 with 3 clusters (MPO, section 3.3.3)."""
        return cluster_names(self._clusters)

    def rubric_key(self, problem: Problem) -> str:
        key: str = problem.data["cluster"]
        return key


@dataclass(kw_only=True)
class MathConfig(MathContestConfig):
    """MATH's problems, whose rubrics evolve separately per cluster of a subject (MPO, section 3.3.3, appendix K.3)."""

    task_class: ClassVar[type[MathContest]] = Math

    clusters: PositiveInt
    """Clusters per subject; a problem belongs to the nearest centre of training problems."""
    embeddings: str
    """Embeddings of the problems' texts. tfidf: weighted words; else an encoder of sentence-transformers: a hub id or a
    folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.embeddings:
            raise ConfigError("task.embeddings: expected tfidf or an encoder's hub id or folder, got an empty string")

    def make_task(self, **settings: Any) -> MathContest:
        return super().make_task(clusters=self.clusters, **settings)

    def read_group(self, record: Record, split: str) -> tuple[str, dict[str, Any]]:
        """Return the subject of a record, and its subject, level and cluster in words; None for what it lacks.

        Raises DataError for an unknown subject and a cluster that is not an integer from 1.
        """
        values = record.values
        given = next((values[name] for name in FIELDS if name in values), None)
        subject = re.sub(r"[^a-z]+", "_", str(given).lower().replace("&", "and"))
        if subject not in SUBJECTS:
            raise DataError(f"{record.where}: subject: expected one of {', '.join(SUBJECTS)}, got {given!r:.60}")
        # The clusters that MPO's authors publish with their copy of MATH
        cluster = values.get("cluster_id")
        if cluster is not None and (isinstance(cluster, bool) or not isinstance(cluster, int) or cluster < 1):
            raise DataError(f"{record.where}: cluster_id: expected an integer from 1, got {cluster!r:.60}")
        level = read_level(values)
        return subject, {
            "subject": subject,
            "level": None if level is None else f"level {level}",
            "cluster": None if cluster is None else cluster_name(subject, cluster),
        }

    def find(self, split: str) -> SplitData:
        """Read the problems of a split and find the cluster of each, where the records do not name it."""
        found = super().find(split)
        given = {question.problem.data["cluster"] for question in found.questions}
        if None not in given:
            if unknown := given.difference(cluster_names(self.clusters)):
                raise DataError(
                    f"task.clusters: the records ({found.place}) name the cluster {min(unknown)}; expected cluster_id "
                    f"from 1 to {self.clusters}"
                )
            return found
        training = found.questions
        if split != "train":
            try:
                training = super().find("train").questions
            except NotFoundError as error:
                _log.warning("task=%s: clusters are fitted on the problems themselves: %s", self.name, error)
        fitted = _fit_clusters(frozenset(map(_subject_and_text, training)), self.clusters, self.embeddings)
        return found._replace(questions=_assign_clusters(found.questions, fitted))


def cluster_names(count: int) -> tuple[str, ...]:
    """Return the names of all clusters, `count` per subject."""
    return tuple(cluster_name(subject, number) for subject in SUBJECTS for number in range(1, count + 1))


def cluster_name(subject: str, number: int) -> str:
    """Return the name of a subject's cluster, which is its rubric's key."""
    return f"{subject}/{number}"


def _subject_and_text(question: Question) -> tuple[str, str]:
    data = question.problem.data
    return data["subject"], data["problem"]


@lru_cache(maxsize=2)  # a run reads its splits several times
def _fit_clusters(training: frozenset[tuple[str, str]], count: int, embeddings: str) -> "Mapping[str, Clusters]":
    """Return the clusters of each subject that has training problems."""
    from evorun.tasks.math.clusters import Clusters, Encoded, TfIdf  # takes as long to import as the rest of the task

    texts = {subject: sorted(text for name, text in training if name == subject) for subject in SUBJECTS}
    encoded = None if embeddings == "tfidf" else Encoded(embeddings)
    return {subject: Clusters(found, count, encoded or TfIdf(found)) for subject, found in texts.items() if found}


def _assign_clusters(questions: Sequence[Question], fitted: "Mapping[str, Clusters]") -> list[Question]:
    """Return the questions, in order, with their cluster: the first where the subject has no training problems."""
    numbers: dict[str, int] = {}
    for subject, clusters in fitted.items():
        texts = [text for name, text in map(_subject_and_text, questions) if name == subject]
        if texts:
            numbers.update(zip(texts, clusters.assign(texts), strict=True))
    placed = []
    for question in questions:
        subject, text = _subject_and_text(question)
        data = {**question.problem.data, "cluster": cluster_name(subject, numbers.get(text, 1))}
        placed.append(replace_struct(question, problem=replace_struct(question.problem, data=data)))
    return placed
