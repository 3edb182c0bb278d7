"""Runs as objects: their manifests, results and data frames, read from their folders when asked for."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import msgspec

from evorun.api.frames import BoundFrame, Columns, Format, make_columns, make_frame
from evorun.api.html import MAX_ROWS, make_html_table
from evorun.api.rows import (
    CallRow,
    CompletionRow,
    CostRow,
    MetricRow,
    RejudgedRow,
    RunRow,
    make_metric_rows,
    read_calls,
    read_completions,
    read_rejudged,
)
from evorun.api.settings import find_differing, list_settings
from evorun.errors import ConfigError
from evorun.runs.directory import PROBLEMS, load_manifest
from evorun.runs.manifest import Manifest, ModelInRun, Status
from evorun.runs.prices import price_run
from evorun.runs.printable import printable
from evorun.runs.reading import (
    read_candidates,
    read_metrics,
    read_records,
    read_results,
    read_steps_without_texts,
    read_training,
)
from evorun.runs.results import metric_series, training_series
from evorun.runs.schema import (
    CandidateRecord,
    ComparisonRecord,
    Metric,
    MetricPoint,
    PredictionRecord,
    ProblemRecord,
    PromptScore,
    RatingRecord,
    Results,
    RolloutRecord,
    StepRecord,
    TrainingRecord,
)

if TYPE_CHECKING:
    import pandas
    import polars

R = TypeVar("R", bound=msgspec.Struct)


class FrameOf(Generic[R]):
    """A method of runs that returns a data frame: one row for each record, one column for each field."""

    def __init__(self, record: type[R], read: Callable[["Run"], Iterable[R]], source: str) -> None:
        """read: returns a run's records. source: the file that they come from."""
        self.record = record
        self.read = read
        self.source = source

    @overload
    def __get__(self, runs: None, kind: type) -> "FrameOf[R]": ...
    @overload
    def __get__(self, runs: "Frames", kind: type) -> "BoundFrame": ...
    def __get__(self, runs: "Frames | None", kind: type) -> Any:
        return self if runs is None else BoundFrame(lambda: self._make_columns(runs))

    def _make_columns(self, runs: "Frames") -> Columns:
        return make_columns(self.record, ((own, self.read(run)) for own, run in runs.identified()))


def _of_file(record: type[R], name: str) -> FrameOf[R]:
    """Return the frame of a file of records."""
    return FrameOf(record, lambda run: read_records(run.path / name, record), name)


class Frames:
    """The data frames of a run or of several.

    Each is called, as in `run.predictions()`, and takes `format="polars"` for a frame of polars. The default is one of
    pandas. Frames of several runs begin with columns that tell the runs apart: run, method, task, seed, and the model
    and the settings that differ. A frame is read anew at each call.
    """

    problems = _of_file(ProblemRecord, PROBLEMS)
    """The problems, as the method saw them."""
    steps = _of_file(StepRecord, "steps.jsonl")
    """Each problem after each step: best candidate, belief, cost so far."""
    candidates = FrameOf(CandidateRecord, lambda run: read_candidates(run.path), "candidates.jsonl")
    """Every candidate, with its last rating, also where ratings.jsonl has it."""
    duels = _of_file(ComparisonRecord, "comparisons.jsonl")
    """Every duel, with its verdicts."""
    ratings = _of_file(RatingRecord, "ratings.jsonl")
    """Changed ratings of candidates that serve all problems, by step."""
    prompt_scores = _of_file(PromptScore, "prompt_scores.jsonl")
    """Test scores of the system prompts of a step."""
    predictions = _of_file(PredictionRecord, "predictions.jsonl")
    """The answer to each problem that has ended."""
    training = _of_file(TrainingRecord, "training.jsonl")
    """Figures of each training step."""
    rollouts = _of_file(RolloutRecord, "rollouts.jsonl")
    """Episodes of training steps."""
    curves = FrameOf(MetricPoint, lambda run: run.read_curves(), "metrics.jsonl")
    """Scores, diagnostics and figures of training over the steps; of an unfinished run those so far."""
    metrics = FrameOf(
        MetricRow, lambda run: make_metric_rows(run.figures.metrics, run.figures.by_stratum), "results.json"
    )
    """Figures with their intervals, over all problems and by stratum; of an unfinished run those so far."""
    costs = FrameOf(CostRow, lambda run: run.read_costs(), "results.json")
    """Cost by call role; of an unfinished run that so far."""
    calls = FrameOf(CallRow, lambda run: read_calls(run.path), "journal.sqlite")
    """Every model call, without its texts."""
    completions = FrameOf(CompletionRow, lambda run: read_completions(run.path), "journal.sqlite")
    """Every completion of every model call, with its prompt."""

    rejudged = FrameOf(RejudgedRow, lambda run: read_rejudged(run.path), "rejudge/DIGEST/figures.json")
    """Figures of all rejudgings: recorded opinions beside those of another judge, rubric or grader."""

    def identified(self) -> Iterator[tuple[Mapping[str, Any], "Run"]]:
        """Yield each run with the values that tell it from the others."""
        raise NotImplementedError


class Run(Frames):
    """A run in its folder, whether it is completed, running, interrupted or failed.

    Only the manifest is read at first; figures are read once, when asked for. To see what a running one has done since,
    load it again.
    """

    def __init__(self, path: Path) -> None:
        """Read the manifest. Raises RunDirectoryError for a folder without one, or with a malformed one."""
        self.path: Path = path
        self.manifest: Manifest = load_manifest(path)

    @property
    def config(self) -> dict[str, Any]:
        """The composed configuration."""
        return self.manifest.config

    @property
    def status(self) -> Status:
        """`running`, `completed`, `failed` or `interrupted`."""
        return self.manifest.status

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.manifest.method

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.manifest.task

    @property
    def model(self) -> str:
        """Name of the policy as reports have it: `simulated` before that of a model that a simulated one stands for."""
        return self._policy.short if self._policy else ""

    @property
    def _policy_name(self) -> str:
        """Name of the policy's configuration, as in `model=NAME`; empty without a model."""
        return self._policy.name if self._policy else ""

    @property
    def _policy(self) -> ModelInRun | None:
        return self.manifest.models.get("policy") or next(iter(self.manifest.models.values()), None)

    @property
    def seed(self) -> int:
        """Seed of all of the run's random streams."""
        return self.manifest.seed

    @cached_property
    def results(self) -> Results | None:
        """results.json; None while the run has not written it. Raises DataError for a malformed file."""
        return read_results(self.path)

    @cached_property
    def figures(self) -> Results:
        """results.json, or the same over what an unfinished run has recorded so far. Raises DataError."""
        if self.results is not None:
            return self.results
        from evorun.reports.overview import load_outcome

        outcome = load_outcome(self.path, shows_records=False)
        return Results(outcome.metrics, outcome.by_stratum, outcome.cost, outcome.counts)

    @property
    def scores(self) -> dict[str, Metric]:
        """The task's scores by name, the primary one first: mean, 95 % interval and n."""
        names = (score.name for score in self.manifest.scores)
        return {name: self.figures.metrics[name] for name in names if name in self.figures.metrics}

    @property
    def score(self) -> Metric:
        """The primary score; without a value while no problem has ended."""
        return self.figures.metrics.get(self.manifest.scores[0].name, Metric(None, None, 0))

    def identified(self) -> Iterator[tuple[Mapping[str, Any], "Run"]]:
        yield {}, self

    @overload
    def ratings_by_step(self, problem: str, format: Literal["pandas"] = "pandas") -> "pandas.DataFrame": ...
    @overload
    def ratings_by_step(self, problem: str, format: Literal["polars"]) -> "polars.DataFrame": ...
    def ratings_by_step(self, problem: str, format: Format = "pandas") -> Any:
        """Return the ratings of a problem's candidates after each step, by its recorded duels and the method's rating.

        A frame with a row for each step and candidate: `step`, `candidate`, `mean` and `sd`, from the first duel on.
        Those of the last step are the recorded ones. Raises ConfigError for a method whose ratings do not follow from
        duels, RunDirectoryError for a problem that has not ended, and DataError for a malformed record.
        """
        from evorun.runner.recorded_ratings import RatingAtStep, rate_by_step

        ratings = rate_by_step(self.path, self.config, problem)
        return make_frame(make_columns(RatingAtStep, [({}, ratings)]), format)

    def read_curves(self) -> Iterable[MetricPoint]:
        """Return the points of metrics.jsonl, or those of an unfinished run so far."""
        if recorded := read_metrics(self.path):
            return recorded
        series = metric_series(read_steps_without_texts(self.path), self.manifest.scores)
        return [*series, *training_series(read_training(self.path))]

    def read_costs(self) -> Iterator[CostRow]:
        """Yield the cost by role."""
        for role, cost in self.figures.cost.items():
            yield CostRow(
                *(role, cost.calls, cost.prompt_tokens, cost.completion_tokens, cost.seconds),
                *(cost.cached_tokens, cost.price, cost.tool_calls),
            )

    def _make_row(self) -> RunRow:
        manifest, score, total = self.manifest, self.score, self.figures.cost.get("total")
        return RunRow(
            path=str(self.path),
            status=manifest.status,
            started=manifest.started,
            model=self.model,
            regime=manifest.regime,
            simulated=manifest.simulated,
            score=manifest.scores[0].name,
            value=score.value,
            ci95=score.ci95,
            n=score.n,
            calls=total.calls if total else None,
            prompt_tokens=total.prompt_tokens if total else None,
            completion_tokens=total.completion_tokens if total else None,
            tool_calls=total.tool_calls if total else None,
            price=price_run(manifest, total.price if total else None),
            seconds=manifest.seconds,
            error=manifest.error,
        )

    def __repr__(self) -> str:
        about = f"{self.method} on {self.task}, seed {self.seed}, {self.status}"
        return printable(f"<evorun.Run {self.path}: {about}>")

    def _repr_html_(self) -> str:
        rows = [
            ("run", self.path),
            ("method", self.method),
            ("task", self.task),
            ("seed", self.seed),
            ("status", self.status),
            *((name, format_metric(metric)) for name, metric in self.scores.items()),
            *([("error", self.manifest.error)] if self.manifest.error else []),
        ]
        return make_html_table((), rows)


class Runs(Frames, Sequence[Run]):
    """Several runs, in order; a sequence."""

    runs = FrameOf(RunRow, lambda run: [run._make_row()], "manifest.json, results.json")
    """One row for each run: status, primary score with its interval, cost."""

    def __init__(self, members: Sequence[Run], root: Path) -> None:
        """root: the folder that the names of the runs start from."""
        self._members = tuple(members)
        self._root = root

    def __len__(self) -> int:
        return len(self._members)

    @overload
    def __getitem__(self, place: int) -> Run: ...
    @overload
    def __getitem__(self, place: slice) -> "Runs": ...
    def __getitem__(self, place: int | slice) -> "Run | Runs":
        return self._members[place] if isinstance(place, int) else Runs(self._members[place], self._root)

    def where(self, predicate: Callable[[Run], bool] | None = None, /, **settings: Any) -> "Runs":
        """Return the runs that satisfy a function of a run, and have the values of all given settings.

        settings: `method`, `task`, `model`, `seed`, `status`, or a key of the configuration (`**{"task.limit": 6}`),
        each with a value or a list of values. Raises ConfigError for a setting that no run has.
        """
        if "model" in settings:  # also as on a command line
            given = settings.pop("model")
            names = given if isinstance(given, list | tuple | set) else [given]
            found = [run for run in self if run.model in names or run._policy_name in names]
            return Runs(found, self._root).where(predicate, **settings)
        known = [
            {
                **list_settings(run.config),
                "method": run.method,
                "task": run.task,
                "seed": run.seed,
                "status": run.status,
            }
            for run in self
        ]
        for key in settings:
            if known and not any(key in own for own in known):
                raise ConfigError(f"where: expected a setting of these runs, got '{key}', which none of them has")

        def fits(run: Run, own: Mapping[str, Any]) -> bool:
            return all(
                own.get(key) in value if isinstance(value, list | tuple | set | range) else own.get(key) == value
                for key, value in settings.items()
            ) and (predicate is None or predicate(run))

        return Runs([run for run, own in zip(self, known, strict=True) if fits(run, own)], self._root)

    def identified(self) -> Iterator[tuple[Mapping[str, Any], Run]]:
        for run, settings in zip(self, find_differing([run.config for run in self]), strict=True):
            own = {"run": self._name(run), "method": run.method, "task": run.task, "seed": run.seed}
            if "model.name" in settings:
                del settings["model.name"]
                own["model"] = run.model
            yield {**own, **settings}, run

    def _name(self, run: Run) -> str:
        path = run.path.absolute()
        return path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) else str(path)

    def __repr__(self) -> str:
        return printable(f"<evorun.Runs: {len(self)} runs in {self._root}>")

    def _repr_html_(self) -> str:
        rows = [
            (self._name(run), run.method, run.task, run.seed, run.status, format_metric(run.score))
            for run in self[:MAX_ROWS]
        ]
        left = len(self) - len(rows)
        headings = ("run", "method", "task", "seed", "status", "score")
        return make_html_table(headings, rows, f"{len(self)} runs{f', {left} not shown' if left else ''}")


def format_metric(metric: Metric) -> str:
    """Return a figure in words: its value, its interval and n."""
    if metric.value is None:
        return "none yet"
    interval = "" if metric.ci95 is None else f" [{metric.ci95[0]:.4g}, {metric.ci95[1]:.4g}]"
    return f"{metric.value:.4g}{interval}, n={metric.n}"
