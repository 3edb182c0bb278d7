"""The scores under each of several given system prompts (`method=fixed_prompts`), each of which is a step."""

from collections.abc import Mapping, Sequence

from evorun.reports.overview import Outcome
from evorun.reports.run_tables import format_score, list_ends
from evorun.reports.tables import Table, figure_columns, make_data_table, prose_columns, word_columns
from evorun.reports.text import label
from evorun.runs.candidates import CandidateId
from evorun.runs.reading import read_metrics, read_steps_without_texts
from evorun.runs.results import metric_series
from evorun.runs.schema import MetricPoint
from evorun.runs.scores import Score, mean_of_samples

PromptScores = Mapping[CandidateId, Sequence[tuple[Score, MetricPoint]]]
"""By prompt."""

_WORDS = 60
"""Characters of a prompt's beginning (ours)."""


def load_prompt_scores(outcome: Outcome) -> PromptScores:
    """Read the scores under each of several prompts; nothing for fewer than two. Raises DataError.

    The primary score is of one response per problem; the mean over a problem's samples, where it has some, follows.
    """
    if len(outcome.given_prompts) < 2:
        return {}
    # metrics.jsonl is written at the end of a run
    points = read_metrics(outcome.run_dir) or metric_series(
        read_steps_without_texts(outcome.run_dir), outcome.manifest.scores
    )
    at = {(point.step, point.name): point for point in points}
    scores = (outcome.primary, mean_of_samples(outcome.primary))
    return {
        prompt.id: [
            (score, at[prompt.generation, score.name]) for score in scores if (prompt.generation, score.name) in at
        ]
        for prompt in outcome.given_prompts
    }


def make_prompts_table(outcome: Outcome, scores: PromptScores) -> Table:
    """Return a row per prompt, for readers."""
    columns = {score.name: score for known in scores.values() for score, _ in known}
    rows = []
    for prompt in outcome.given_prompts if scores else ():
        points = {score.name: point for score, point in scores[prompt.id]}
        means = [format_score(score, points.get(name)) for name, score in columns.items()]
        rows.append(
            (
                prompt.id,
                _shorten(prompt.text),
                *(cell for mean, interval, _ in means for cell in (mean, interval)),
                next((point.n for point in points.values()), None),
            )
        )
    headings = [heading for score in columns.values() for heading in (label(score), "95 % interval")]
    return Table(
        [*word_columns("prompt"), *prose_columns("first words"), *figure_columns(*headings, "n")],
        list(rows),
        title="each prompt",
    )


def make_prompts_data_table(outcome: Outcome, scores: PromptScores) -> Table:
    """Return a row per prompt and score, for other programs."""
    rows = [
        (prompt.id, prompt.text, score.name, point.value, *list_ends(point.ci95), point.n)
        for prompt in outcome.given_prompts
        for score, point in scores.get(prompt.id, ())
    ]
    return make_data_table("prompts", ("prompt", "text", "score", "mean", "low", "high", "n"), rows)


def _shorten(text: str) -> str:
    words = " ".join(text.split()) or "(the task's own prompt)"
    start = words[:_WORDS]
    return words if len(words) <= _WORDS else f"{start.rpartition(' ')[0] or start} …"
