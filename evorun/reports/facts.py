"""The facts that a reader must know of a run first: warnings, key figures, what identifies it, and its settings."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from evorun.reports import text
from evorun.reports.overview import Outcome, find_crossover_rate
from evorun.reports.tables import show_figure
from evorun.reports.training import MANY_CUT
from evorun.runs.aggregates import Aggregates
from evorun.runs.budget import LIMITS
from evorun.runs.configs import count_turns, iterate_leaves
from evorun.runs.directory import MANIFEST, identity, load_manifest, name_changed_plugins
from evorun.runs.job_states import look_at_run
from evorun.runs.manifest import Manifest, ModelInRun
from evorun.runs.reading import read_metrics
from evorun.runs.results import REPEATS
from evorun.runs.roles import count_judges
from evorun.runs.stated_studies import find_study

_TASKS_OWN = {"generated": "Generated data", "own": "Own problems"}
"""Labels of problems that belong to the task, which is a benchmark of its own."""
SOURCES = {"sample": "Sample set", "stand_in": "Stand-in data", **_TASKS_OWN}
"""Labels of sources of problems other than the benchmark."""

SIMULATED_LINE = "Simulated model: no language model ran; figures say nothing about any real one."

MANY_REPEATS = 0.2
"""Share of replacements per call from which a report names them (ours)."""
FAR = 0.5
"""Share of the planned steps up to which a search is far from its last (ours)."""

_EQUAL_CALLS = "Equal calls are not equal generations"

_STATUSES = {
    "running": "Unfinished: the run is still going; figures cover its records so far.",
    "interrupted": "Unfinished: the run was interrupted; figures cover its records until then.",
    "failed": "Failed: the run stopped on an error; figures cover its records until then.",
}
_LOST = (
    "Unfinished: no process works on the run any more, as after a kill or a lack of memory; figures cover its records "
    "until then."
)


def note_equal_calls(outcome: Outcome) -> str:
    """Say what a budget of calls means for generations, with advice where no study file states the budget."""
    study = find_study(outcome.manifest.config)
    if study is not None and study.study.budget:
        return f"{_EQUAL_CALLS}; the study states this budget."
    return f"{_EQUAL_CALLS}; budget.generations=N sets the latter."


def describe_early_ends(outcome: Outcome) -> str | None:
    """Say at which step the budget ended problems early; None if it ended none, or was to end them all."""
    cut, planned = outcome.reached.get("budget"), outcome.planned_steps
    if cut is None:
        return None
    told = f"The budget ended {text.count(cut.problems)} of {text.count(len(outcome.predictions))} problems early: "
    if planned is None or cut.fewest >= planned:
        # the budget decides how far the method goes, or cut its last step: only other problems tell that it did
        ended = outcome.reached.get("generations")
        return (
            None if ended is None else f"{told}{outcome.manifest.method} ended {text.count(ended.problems)} by itself."
        )
    span = f" ({text.count(cut.fewest)} to {text.count(cut.most)})" if cut.fewest < cut.most else ""
    settings = outcome.manifest.config.get("method")
    evolves = isinstance(settings, dict) and "generations" in settings
    return f"{told}in {outcome.step_name} {show_figure(cut.mean)}{span} of {text.count(planned)}." + (
        f" {note_equal_calls(outcome)}" if evolves else ""
    )


def describe_repeats(outcomes: Sequence[Outcome]) -> str | None:
    """Say that replaced repeats took many calls of runs that were far from their last generation; None if not.

    Problems that reached their goal went as far as they had to.
    """
    planned = [outcome.planned_steps or 0 for outcome in outcomes]
    ended = [reached for outcome in outcomes for why, reached in outcome.reached.items() if why != "goal"]
    problems = sum(reached.problems for reached in ended)
    calls = sum(outcome.cost["total"].calls for outcome in outcomes if "total" in outcome.cost)
    repeats = sum(outcome.counts.get(REPEATS, 0) for outcome in outcomes)
    if not problems or repeats < MANY_REPEATS * calls:
        return None
    mean = sum(reached.mean * reached.problems for reached in ended) / problems
    if mean > FAR * min(planned):
        return None
    return (
        f"Answers that repeated another one were replaced {text.count(repeats)} times, of {text.count(calls)} calls in "
        f"all, and problems without their goal reached {outcomes[0].step_name} {mean:.2g} of "
        f"{text.count(min(planned))} on average; method.dedup_attempts limits the replacements."
    )


def describe_unevolved(outcome: Outcome) -> str | None:
    """Say that no problem left generation 0, since the budget ended it there; None if any did."""
    planned, settings = outcome.planned_steps, outcome.manifest.config.get("method")
    if "budget" not in outcome.reached or "goal" in outcome.reached:
        return None
    if any(reached.most for reached in outcome.reached.values()):
        return None
    if planned == 0 or not isinstance(settings, dict) or "generations" not in settings:
        return None
    turns, judges = count_turns(outcome.manifest.config.get("task")), count_judges(outcome.manifest.models)
    needed = count_first_generation(settings, turns, judges)
    budget = outcome.manifest.config.get("budget")
    limits = [
        f"{text.count(limit)} {key.replace('_', ' ')}"
        for key in LIMITS
        if isinstance(budget, dict) and (limit := budget.get(key)) is not None
    ]
    return (
        f"Never left generation 0: the budget{' of ' if limits else ''}{' and '.join(limits)} ended before the first "
        "step of evolution"
        + (f"; generation 0 takes up to {text.count(needed)} calls per problem." if needed is not None else ".")
    )


def describe_unjudged(outcome: Outcome) -> str | None:
    """Say that a budget left no call for a duel of any child, so that evolution changed nothing; None otherwise."""
    settings = outcome.manifest.config.get("method")
    if "budget" not in outcome.reached or not isinstance(settings, dict) or not settings.get("children"):
        return None
    if not any(reached.most for reached in outcome.reached.values()):
        return None  # see `describe_unevolved`
    held = [point for point in read_metrics(outcome.run_dir) if point.name == "duels"]
    if not held or any(point.step > 0 and point.value for point in held):
        return None
    keys = ["method.children", "method.duels"]
    keys += ["task.max_turns"] if count_turns(outcome.manifest.config.get("task")) > 1 else []
    return (
        "No child was judged: the budget ended before a duel of generation 1, so that no child could become the "
        f"answer; raise the budget, or lower {' or '.join(keys)}."
    )


class StepSize(NamedTuple):
    """The responses of each step of a method that takes whole steps only."""

    key: str
    """The setting that gives their number."""
    responses: int


UNUSED = 0.1
"""Share of a budget's calls above which a report names those that were left (ours)."""


def describe_unused_calls(outcome: Outcome) -> str | None:
    """Say how many calls a method left that takes its size from the budget, and why; None where they are few."""
    config = outcome.manifest.config
    settings, budget, predictions = config.get("method"), config.get("budget"), outcome.predictions
    if not isinstance(settings, dict) or not isinstance(budget, dict) or not outcome.finished or not predictions:
        return None
    if budget.get("redistribute") or "goal" in outcome.reached or "failed" in outcome.reached:
        return None
    whole, each = budget.get("calls"), budget.get("calls_per_problem")
    limits = [limit for limit in (each, whole and whole // len(predictions)) if isinstance(limit, int)]
    others = [key for key in LIMITS if not key.startswith("calls") and budget.get(key) is not None]
    size, turns = find_step_size(settings), count_turns(config.get("task"))
    if not limits or others or (size is None and (turns == 1 or settings.get("drafts", 0) is not None)):
        return None
    spent = sum(role.calls for prediction in predictions for role in prediction.cost.values()) / len(predictions)
    left = min(limits) - spent
    if left <= UNUSED * min(limits):
        return None
    return (
        f"{text.count(round(left))} of {text.count(min(limits))} calls per problem were left on average: "
        f"{explain_unused_calls(size, turns)}."
    )


def explain_unused_calls(size: StepSize | None, turns: int) -> str:
    """Say why a method in steps of this size, or in single responses, leaves calls, and which settings to lower."""
    keys = ["task.max_turns"] if turns > 1 else []
    if size is None:
        return f"each response reserves all its {turns} turns; lower {keys[0]}"
    each = f", {turns} for each of {size.responses} responses" if turns > 1 else ""
    keys.append(f"method.{size.key}")
    return f"a step reserves {text.count(size.responses * turns)}{each}; lower {' or '.join(keys)}"


def describe_missing_crossovers(outcome: Outcome) -> str | None:
    """Say that a finished run made no crossover though it might have; None otherwise."""
    rate = find_crossover_rate(outcome.manifest.config)
    if not rate or outcome.crossovers != 0 or not outcome.finished:
        return None
    return (
        f"No crossover: the run made none, although method.crossover_rate is {rate:g}. Each step draws whether to make "
        "one, and needs another prompt that did best on a problem; more steps or a higher rate give more."
    )


def describe_cut_texts(outcome: Outcome) -> str | None:
    """Say how many of the texts that were read had run into max_tokens; None if few had."""
    texts, cut = (outcome.counts.get(name, 0) for name in ("texts", "truncated_texts"))
    if not texts or cut < MANY_CUT * texts:
        return None
    return (
        f"Cut at max_tokens: {text.percent(cut / texts)} of the {text.count(texts)} texts read; an answer that would "
        "have followed is lost."
    )


def count_first_generation(settings: Mapping[str, Any], turns: int = 1, judges: int = 1) -> int | None:
    """Return the most calls per problem of generation 0 by a method's settings; None where they do not say.

    turns: of each response. judges: of the panel.
    """
    drawn, duels, orders = (settings.get(key) for key in ("initial_candidates", "duels", "orders"))
    if isinstance(drawn, int) and isinstance(duels, int) and isinstance(orders, int):
        return drawn * turns + duels * orders * judges
    population = settings.get("population")
    return population * turns if isinstance(population, int) else None


def name_first_generation(settings: Mapping[str, Any], turns: int = 1) -> str:
    """Name the settings that decide the calls of generation 0, to be lowered. turns: of each response."""
    keys = ["initial_candidates", "duels"] if isinstance(settings.get("initial_candidates"), int) else ["population"]
    return " or ".join([*(["task.max_turns"] if turns > 1 else []), *(f"method.{key}" for key in keys)])


def find_step_size(settings: Mapping[str, Any]) -> StepSize | None:
    """Return the size of the steps of a population, of which a budget decides the number; None for other methods."""
    if settings.get("steps", 0) is not None or "problems_per_step" in settings:
        return None
    sizes = ((key, settings.get(key)) for key in ("groups", "population"))
    return next((StepSize(key, size) for key, size in sizes if isinstance(size, int)), None)


def name_origins(manifest: Manifest) -> list[str]:
    """Name the sources of figures other than a language model on a benchmark, in a word or two each."""
    source = manifest.provenance.source
    found = {
        "simulated": manifest.simulated,
        "simulated teacher": manifest.simulated_teacher,
        SOURCES.get(source, source).lower(): source != "benchmark",
    }
    return [origin for origin, holds in found.items() if holds]


def mark_origins(shared: Iterable[str], partial: Iterable[str] = ()) -> str:
    """Return the mark of figures with these origins, of all their runs or of some; empty for a benchmark's results.

    A task with problems of its own, or drawn ones, is a benchmark of its own.
    """
    words = [*shared, *(f"partly {origin}" for origin in partial)]
    return ", ".join(word for word in words if not word.endswith(tuple(map(str.lower, _TASKS_OWN.values()))))


def list_origins(manifest: Manifest) -> list[str]:
    """Return the warnings of figures other than a language model's on a benchmark."""
    found = []
    if manifest.simulated:
        found.append(SIMULATED_LINE)
    if manifest.simulated_teacher:
        found.append(
            "Simulated teacher: no language model wrote this model's fine-tuning data; figures say nothing about any "
            "real teacher's student."
        )
    if manifest.provenance.source != "benchmark":
        label = SOURCES.get(manifest.provenance.source, f"Data source '{manifest.provenance.source}'")
        found.append(f"{label}: {manifest.provenance.description}" if manifest.provenance.description else label)
    return found


def is_remark(line: str) -> bool:
    """Tell whether one of a run's warnings names a fact that is nobody's fault: its task has problems of its own."""
    return line.startswith(tuple(_TASKS_OWN.values()))


def list_warnings(outcome: Outcome) -> list[str]:
    """Return the warnings: no real model, data other than the benchmark, an unfinished run, ..."""
    manifest = outcome.manifest
    found = [*list_origins(manifest), *_list_other_grading(outcome)]
    unscored = [p for p in outcome.predictions if outcome.primary.value_in(p) is None]
    if unscored:
        n, name = len(outcome.predictions), text.name_score(outcome.primary)
        found.append(
            f"{len(unscored)} of {n} problems have no {name}, since the task could not score them; means omit them."
        )
    if refused := sum(outcome.refused.values()):
        by_role = ", ".join(f"{role} {text.count(n)}" for role, n in outcome.refused.items())
        found.append(
            f"{text.count(refused)} requests were refused by the engine ({by_role}); the errors of candidates and the "
            "reasons of duels say why."
        )
    found += outcome.divergence
    if (uncrossed := describe_missing_crossovers(outcome)) is not None:
        found.append(uncrossed)
    if (lost := describe_cut_texts(outcome)) is not None:
        found.append(lost)
    found += outcome.hacking.lines if outcome.hacking is not None else []
    if (cut := describe_early_ends(outcome)) is not None:
        found.append(cut)
    found += [
        line for describe in (describe_unjudged, describe_unused_calls) if (line := describe(outcome)) is not None
    ]
    if (repeats := describe_repeats([outcome])) is not None:
        found.append(repeats)
    if manifest.status == "running" and look_at_run(outcome.run_dir, "").state == "lost":
        found.append(_LOST)
    elif manifest.status != "completed":
        found.append(_STATUSES[manifest.status])
    found += [f"Missing: {line}." for line in outcome.missing]
    found += [f"Changed: {line}." for line in outcome.changed]
    if manifest.error:
        found.append(f"{'Error' if manifest.status == 'failed' else 'Interrupted'}: {manifest.error}")
    return found


REPLAY_LINE = "A replay"
"""Begins each warning of a replay."""


def _list_other_grading(outcome: Outcome) -> list[str]:
    """Say how recorded answers were graded anew: by changed code in a replay, by other keys in an extension."""
    found = []
    manifest, recording = outcome.manifest, outcome.recording
    if recording is not None and (recording / MANIFEST).exists():
        changed = ", ".join(name_changed_plugins(load_manifest(recording), manifest))
        found += [f"{REPLAY_LINE} by code that has changed since the recorded run: {changed}."] if changed else []
    if manifest.origin is not None:
        changes = [change for change in manifest.origin.changes if change.startswith("task.")]
        found += [f"An extension with other settings of the task: {'; '.join(changes)}."] if changes else []
    return found


_EXCLUDED = ("hydra", "reported")
"""Parts of a configuration that do not affect the run."""
_METHOD_DEFAULTS = ("task.sampling.", "budget.methods.")
"""Prefixes of keys whose values `method` already includes."""


class Tile(NamedTuple):
    """A key figure at the top of the page."""

    label: str
    value: str
    note: str


def list_tiles(outcome: Outcome, aggregates: Aggregates) -> list[Tile]:
    """Return the run's key figures."""
    total = outcome.cost.get("total")
    failed = sum(p.stop == "failed" for p in outcome.predictions)
    tiles = []
    for score in filter(None, (outcome.primary, outcome.second)):
        if (metric := outcome.metrics.get(score.name)) is not None:
            interval = f"95 % interval {text.value_interval(score, metric.ci95)}; " if metric.ci95 else ""
            note = f"{interval}n = {text.count(metric.n)}"
            note += f"; of {outcome.scored_prompt}" if outcome.scored_prompt else ""
            tiles.append(Tile(text.sentence(text.label(score)), text.value(score, metric.value), note))
    ended = "all ended" if outcome.finished else "so far"
    tiles.append(
        Tile("Problems ended", text.count(len(outcome.predictions)), f"{failed} without result" if failed else ended)
    )
    if total is not None:
        tokens = f"{text.compact(total.prompt_tokens)} prompt, {text.compact(total.completion_tokens)} completion"
        tiles.append(Tile("Model calls", text.count(total.calls), "all roles"))
        tiles.append(Tile("Tokens", text.compact(total.tokens), tokens))
    if outcome.manifest.seconds is not None:
        tiles.append(Tile("Time", text.duration(outcome.manifest.seconds), "wall clock"))
    if aggregates.responses:
        lost, retried = aggregates.unparsable, aggregates.retried
        again = f"{text.count(retried.successes)} retried as unparsable or repeated"
        note = f"{text.count(lost.successes)} of {text.count(lost.n)} candidates; {again}"
        tiles.append(Tile("Unparsable", text.percent(lost.value), note))
    return tiles


def list_facts(manifest: Manifest) -> list[tuple[str, str]]:
    """Return name and value of each recorded fact that identifies the run."""
    hardware = ", ".join(f"{name} {value}" for name, value in manifest.hardware.items() if value)
    isolation = None
    if (sandbox := manifest.sandbox) is not None:
        strength = "full isolation" if sandbox.full else "NOT fully isolated"
        isolation = ": ".join(filter(None, [f"{sandbox.isolation}, {strength}", sandbox.note]))
    stages = {}
    for stage_name, stage in manifest.stages.items():
        trained = [] if stage.model is None else [_describe_model(stage.model)]
        stages[f"Stage ({stage_name})"] = "; ".join([*trained, stage.folder, f"digest {stage.digest}"])
    facts = {
        "Status": manifest.status,
        "Method": manifest.method,
        "Task": manifest.task,
        **{f"Model ({role})": _describe_model(model) for role, model in manifest.models.items()},
        **stages,
        "Data": ": ".join(filter(None, [manifest.provenance.source, manifest.provenance.description])),
        "Information": manifest.regime,
        "Sandbox": isolation,
        "Seed": manifest.seed,
        "Started": manifest.started,
        "Ended": manifest.ended,
        "Command": shlex.join(manifest.command),
        "Version": " ".join(filter(None, [manifest.evorun_version, manifest.git_commit])),
        "Hardware": hardware,
        "GPUs waited": ", ".join(
            f"{text.percent(gpu.waiting)} ({gpu.gpu}: {', '.join(gpu.used_by) or 'unused'})" for gpu in manifest.gpus
        ),
        "Config digest": manifest.config_digest,
        "Data digest": manifest.provenance.digest,
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def _describe_model(model: ModelInRun) -> str:
    simulated = "simulated" in (model.engine, model.replayed_engine)
    if not model.engine or simulated:
        return model.label
    shared = f", shared by {model.shared_by} jobs at once" if model.shared_by else ""
    return f"{model.label} on {model.engine}{shared}"


def list_settings(manifest: Manifest) -> list[tuple[str, str, str]]:
    """Return key, value and effect of every setting of the composed configuration, in its order."""
    deciding = {key for key, _ in iterate_leaves(identity(manifest.config))}
    return [
        (key, _format_value(value), _describe_effect(key, deciding))
        for key, value in iterate_leaves(manifest.config)
        if key.partition(".")[0] not in _EXCLUDED
    ]


def _describe_effect(key: str, deciding: set[str]) -> str:
    if key.startswith(_METHOD_DEFAULTS):
        return "defaults of method"
    return "results" if key in deciding else "execution"


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8")
