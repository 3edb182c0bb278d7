"""Configuration of MATH: the splits of a contest, and the clusters of its problems."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace as replace_struct

from evorun.errors import ConfigError, DataError, at_least
from evorun.tasks.math.records import SUBJECTS, cluster_name, cluster_names, read_details
from evorun.tasks.math.task import Math
from evorun.tasks.math_contest.config import MathContestConfig
from evorun.tasks.math_contest.files import NotFoundError
from evorun.tasks.math_contest.records import Expected, Question
from evorun.tasks.math_contest.task import MathContest

if TYPE_CHECKING:
    from evorun.tasks.math.clusters import Clusters

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class MathConfig(MathContestConfig):
    """MATH's problems, whose rubrics evolve apart for each cluster of a subject (MPO, section 3.3.3, appendix K.3)."""

    task_class: ClassVar[type[MathContest]] = Math

    clusters: int
    """Clusters of each subject: its problems are told apart by the centre of training problems that is nearest."""
    embeddings: str
    """Of the problems' texts. tfidf: weighted words; else an encoder, as sentence-transformers takes it: a hub id or a
    folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("task.clusters", self.clusters, 1)
        if not self.embeddings:
            raise ConfigError("task.embeddings: expected tfidf or an encoder's hub id or folder, got an empty string")

    def _task(self, **settings: Any) -> MathContest:
        return super()._task(clusters=self.clusters, **settings)

    def _expected(self, split: str) -> Expected:
        return replace(super()._expected(split), details=read_details)

    def _questions(self, split: str) -> tuple[list[Question], str]:
        questions, place = super()._questions(split)
        given = {question.problem.data["cluster"] for question in questions}
        if None not in given:
            if unknown := given.difference(cluster_names(self.clusters)):
                raise DataError(
                    f"task.clusters: the records ({place}) name the cluster {min(unknown)}; expected cluster_id from 1 "
                    f"to {self.clusters}"
                )
            return questions, place
        try:
            training = questions if split == "train" else super()._questions("train")[0]
        except NotFoundError as error:
            _log.warning("task=%s: clusters are fitted on the problems themselves: %s", self.name, error)
            training = questions
        return _clustered(questions, _fitted(frozenset(map(_text, training)), self.clusters, self.embeddings)), place


def _text(question: Question) -> tuple[str, str]:
    data = question.problem.data
    return data["subject"], data["problem"]


@lru_cache(maxsize=2)  # a run reads its splits several times
def _fitted(training: frozenset[tuple[str, str]], count: int, embeddings: str) -> "Mapping[str, Clusters]":
    """Return the clusters of each subject of which there are training problems."""
    from evorun.tasks.math.clusters import Clusters, Encoded, TfIdf  # takes as long to import as the rest of the task

    texts = {subject: sorted(text for one, text in training if one == subject) for subject in SUBJECTS}
    encoded = None if embeddings == "tfidf" else Encoded(embeddings)
    return {subject: Clusters(those, count, encoded or TfIdf(those)) for subject, those in texts.items() if those}


def _clustered(questions: Sequence[Question], fitted: "Mapping[str, Clusters]") -> list[Question]:
    """Return the questions, in order, with their cluster: the first where the subject has no training problems."""
    numbers: dict[str, int] = {}
    for subject, clusters in fitted.items():
        texts = [text for one, text in map(_text, questions) if one == subject]
        if texts:
            numbers.update(zip(texts, clusters.of(texts), strict=True))
    placed = []
    for question in questions:
        subject, text = _text(question)
        data = {**question.problem.data, "cluster": cluster_name(subject, numbers.get(text, 1))}
        placed.append(replace_struct(question, problem=replace_struct(question.problem, data=data)))
    return placed
