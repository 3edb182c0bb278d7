"""A comparison of runs: its arms, the pairs on the same problems, and the warnings that go with them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from evorun.errors import ConfigError
from evorun.reports import text
from evorun.reports.axes import XAxes, choose_axes
from evorun.reports.comparison.arms import Arm, group_into_arms
from evorun.reports.comparison.groups import make_groups, refer_to_every_arm
from evorun.reports.comparison.judging import describe_judge_sampling
from evorun.reports.comparison.levels import (
    Factorial,
    LevelPair,
    explain_missing_levels,
    find_factorials,
    pair_by_level,
)
from evorun.reports.comparison.names import GRADES, PAPER, join_parts, spell_name
from evorun.reports.comparison.pairs import Pairs, StratumPair, pair_all, pair_by_stratum
from evorun.reports.comparison.reported import (
    ELO_LINE,
    describe_reported_means,
    explain_malformed,
    find_source,
    has_reported_elo,
)
from evorun.reports.comparison.rows import Row, make_row
from evorun.reports.comparison.runs import Run, load_runs
from evorun.reports.comparison.score_ends import describe_scores_at_ends
from evorun.reports.comparison.study import StudyReport, find_control, report_study
from evorun.reports.facts import (
    REPLAY_LINE,
    SIMULATED_LINE,
    describe_early_ends,
    describe_missing_crossovers,
    describe_repeats,
    describe_unevolved,
    list_warnings,
    note_equal_calls,
)
from evorun.reports.figures import chooses_by_votes
from evorun.reports.run_tables import (
    describe_constant_scores,
    describe_repeated_scores,
    find_constant_scores,
    find_repeated_scores,
    is_flat,
)
from evorun.runs.directory import name_plugin
from evorun.runs.manifest import Manifest
from evorun.runs.paths import display
from evorun.runs.scores import Score
from evorun.runs.strata import sort_strata
from evorun.runs.sweeps import describe_unfinished

MAX_BANDS = 7
"""Maximum arms with bands, and with their runs as thin lines: as many as Duel-Evolve's Figure 2 has."""

EVERY_ARM = "all"
"""Given in place of a reference: every two arms are compared."""

_MAX_NAMED = 4
"""Maximum names in a line on many runs (ours)."""


@dataclass(frozen=True)
class _Arms:
    """The common part of a comparison and of each of its panels."""

    arms: Sequence[Arm]
    """By task, the best first: by the primary score, among equals by the second one; random baselines last."""

    @cached_property
    def runs(self) -> list[Run]:
        """All runs, arm by arm."""
        return [run for arm in self.arms for run in arm.runs]

    @property
    def compared_runs(self) -> list[Run]:
        """All runs but the random baselines; these where there are no others."""
        return [run for run in self.runs if not run.is_baseline] or self.runs

    @property
    def origins(self) -> tuple[list[str], list[str]]:
        """The origins (`name_origins`) of all runs but random baselines, and those of some of them only."""
        by_run = [run.origins for run in self.compared_runs]
        found = dict.fromkeys(origin for origins in by_run for origin in origins)
        shared = [origin for origin in found if all(origin in origins for origins in by_run)]
        return shared, [origin for origin in found if origin not in shared]

    @property
    def has_seeds(self) -> bool:
        """True when any arm ran with several seeds."""
        return any(len(arm.runs) > 1 for arm in self.arms)

    @property
    def axes(self) -> XAxes:
        """The horizontal axes that the runs share."""
        points = (point for run in self.compared_runs for curve in run.curves.values() for point in curve)
        # a run with a single step has no say in what steps are called
        longer = [run for run in self.runs if run.outcome.trained or run.generation > 0] or self.runs
        return choose_axes({run.outcome.step_name for run in longer}, points)


@dataclass(frozen=True)
class Panel(_Arms):
    """The arms on one task, which share a figure."""

    task: str

    @property
    def primary(self) -> Score:
        """The task's primary score."""
        return self.arms[0].primary

    @property
    def second(self) -> Score | None:
        """The score that orders runs equal in the primary one."""
        return next((run.outcome.second for run in self.runs if run.outcome.second), None)

    @property
    def has_bands(self) -> bool:
        """True if the arms, baselines aside, are few enough for bands, which would otherwise cover each other."""
        return sum(not arm.is_baseline for arm in self.arms) <= MAX_BANDS

    @property
    def other_scores(self) -> list[Score]:
        """The scores but the primary one, the second one first."""
        others = _deduplicate(score for run in self.runs for score in run.outcome.other_scores)
        return sorted(others, key=lambda score: score != self.second)

    @property
    def drawn_scores(self) -> list[Score]:
        """The other scores of which all runs have curves, the second one first."""
        return [score for score in self.other_scores if all(run.curves.get(score.name) for run in self.runs)]

    def has_reported(self, score: Score) -> bool:
        """Tell whether a paper has figures of the score for any of the arms."""
        return any(run.reported is not None and score.name in run.reported.metrics for run in self.runs)

    def is_flat(self, score: Score) -> bool:
        """Tell whether a score is flat in all runs, so that the table says all."""
        return all(is_flat(score, run.curves.get(score.name, ())) for run in self.runs)


@dataclass(frozen=True)
class ComparedRuns(_Arms):
    """Several runs side by side."""

    pairs: Pairs
    reference_given: bool
    """True when the reference was named, not chosen by its figures."""
    every_two: bool
    """True when every two arms are compared, not each with one reference."""
    warnings: Sequence[str]
    remarks: Sequence[str]
    study: StudyReport | None = None
    """The study file that states the runs, and whether they kept to it."""

    @cached_property
    def rows(self) -> list[Row]:
        """A row for each arm."""
        return [make_row(arm) for arm in self.arms]

    @cached_property
    def omitted_scores(self) -> set[str]:
        """The scores that repeat another one on each problem, or are everywhere the same; tables leave them out."""
        outcomes = [run.outcome for run in self.runs]
        return find_repeated_scores(outcomes).keys() | find_constant_scores(outcomes).keys()

    def shows(self, score: Score) -> bool:
        """Tell whether tables and figures show a score; those left out are shown only beside a paper's."""
        return score.name not in self.omitted_scores or any(panel.has_reported(score) for panel in self.panels)

    @cached_property
    def run_rows(self) -> list[Row]:
        """A row for each run; empty where no arm has several, since each run has its row then."""
        return [make_row(Arm([run])) for run in self.runs] if self.has_seeds else []

    @property
    def panels(self) -> list[Panel]:
        """The arms, task by task."""
        return [Panel([arm for arm in self.arms if arm.task == task], task) for task in self.tasks]

    @property
    def tasks(self) -> list[str]:
        """The tasks, in order."""
        return list(dict.fromkeys(arm.task for arm in self.arms))

    @property
    def step(self) -> str:
        """The word for the steps of all runs."""
        return self.axes["step"].label

    @property
    def tasks_without_baseline(self) -> list[str]:
        """The tasks for which no run shows what random answers score."""
        return [panel.task for panel in self.panels if not any(arm.is_baseline for arm in panel.arms)]

    @property
    def strata(self) -> list[str]:
        """The strata of all runs, in the order that their tasks state."""
        stated = dict.fromkeys(stratum for run in self.runs for stratum in run.manifest.strata)
        return sort_strata((stratum for row in self.rows for stratum in row.by_stratum), list(stated))

    @cached_property
    def strata_pairs(self) -> list[StratumPair]:
        """The main pairs on each stratum's problems alone, stratum by stratum; empty without several strata."""
        return pair_by_stratum(self.pairs, self.strata)

    @cached_property
    def factorials(self) -> list[Factorial]:
        """The tasks whose arms are the full product of methods and the levels of one setting."""
        return find_factorials(self.arms)

    @cached_property
    def level_pairs(self) -> list[LevelPair]:
        """Each method beside the reference's at each of these levels, and the last difference less the first."""
        return pair_by_level(self.factorials, self.pairs)

    @property
    def primaries(self) -> list[Score]:
        """The primary scores of all tasks, mostly one."""
        return _deduplicate(row.primary for row in self.rows)

    @property
    def other_scores(self) -> list[Score]:
        """All other scores, those of the first arms first."""
        primaries = {score.name for score in self.primaries}
        return _deduplicate(score for row in self.rows for score in row.scores if score.name not in primaries)

    @property
    def common_scores(self) -> list[Score]:
        """The other scores that all arms have."""
        names = [{score.name for score in row.scores} for row in self.rows]
        shown = [score for score in self.other_scores if score.name not in self.omitted_scores]
        return [score for score in shown if all(score.name in known for known in names)]

    @property
    def second(self) -> Score | None:
        """The second score, where all tasks that have one have the same."""
        found = _deduplicate(panel.second for panel in self.panels if panel.second is not None)
        return found[0] if len(found) == 1 and found[0] in self.other_scores else None

    @property
    def has_reported(self) -> bool:
        """True when any run's configuration carries a paper's figure that stands beside a run's own."""
        return any(row.has_reported for row in self.rows)

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Source and note of papers' figures, each once."""
        found = (find_source(run.manifest.config) for run in self.runs)
        return list(dict.fromkeys(source for source in found if source is not None))


def find_shared_facts(rows: Sequence[Row]) -> dict[str, str]:
    """Return the facts that all rows share, random baselines aside: they are said once, not in a column."""
    compared = [row for row in rows if not row.is_baseline] or rows
    first = compared[0].facts
    return {name: value for name, value in first.items() if all(row.facts[name] == value for row in compared)}


def compare(
    run_dirs: Iterable[Path],
    against: Path | str | None = None,
    score: str | None = None,
    names: Mapping[str, str] | None = None,
) -> ComparedRuns:
    """Compare two runs or more, each with the reference of its group.

    The reference is the run `against` (its folder, the name of a row, or that of a method or a paper's arm with one row
    per task), in other groups the same method with the same settings; by default the control of the study that the runs
    record, or else it is chosen (see `make_groups`). With `EVERY_ARM`, unless it is such a name, every two arms are
    compared that could be a reference and its run. score: the name of the score that ranks and is tested; by default
    each task's primary one. names: other names of rows or methods, by those that they have without; `against` may be
    one of them.

    Raises RunDirectoryError or DataError for a run that cannot be read, ConfigError when `against` is none of them, or
    every two arms and no two can be compared, a name is no row's or would be that of two, or a run lacks the score.
    """
    loaded = load_runs(run_dirs, score)
    arms = _rename(group_into_arms(loaded), names or {})
    runs = [run for arm in arms for run in arm.runs]
    every_two = against == EVERY_ARM and not _find_named(arms, EVERY_ARM)
    reference = find_control(runs) if against is None or every_two else _find_reference(arms, against)
    # a run's configuration may be hand-made or an older evorun's: it loses its reported figures, not the comparison
    unread = [
        f"{run.name}: reported figures are omitted, since their configuration is malformed: {reason}"
        for run in runs
        if (reason := explain_malformed(run.manifest.config)) is not None
    ]
    incomparable = dict.fromkeys(
        row.incomparable_reason for arm in arms if (row := make_row(arm)).has_reported and row.incomparable_reason
    )
    groups = make_groups(runs, reference)
    of_reference = pairs = pair_all(groups, arms)
    if every_two:
        # what needs one reference, as levels do, keeps the chosen one
        pairs = replace(pair_all(refer_to_every_arm(groups), arms), references=of_reference.references)
        if not pairs.pairs:
            raise ConfigError(
                f"against={EVERY_ARM}: expected two arms or more on the same problems with the same model, got none; "
                "random baselines aside, no two of these can be compared"
            )
    outcomes = [run.outcome for run in runs]
    reported = {name for run in runs if run.reported for name in run.reported.metrics}
    return ComparedRuns(
        arms=arms,
        pairs=pairs,
        reference_given=reference is not None,
        every_two=every_two,
        warnings=[
            *describe_unfinished([run.outcome.run_dir for run in loaded]),
            *_describe_changed_code(arms),
            *_collect_warnings(arms),
            *describe_judge_sampling(arms),
        ],
        remarks=[
            *unread,
            *filter(None, (describe_repeated_scores(outcomes, reported), describe_constant_scores(outcomes, reported))),
            *(f"No difference from reported figures is shown where {reason}." for reason in incomparable),
            *([ELO_LINE] if any(has_reported_elo(run.manifest.config) for run in runs) else []),
            *explain_missing_levels(arms),
            *describe_scores_at_ends(arms),
            *describe_reported_means([(run.manifest, run.outcome.metrics) for run in runs]),
        ],
        study=report_study(arms, of_reference.main_pairs),
    )


def _find_reference(arms: Sequence[Arm], against: Path | str) -> Run:
    """Return the run in a folder, or the first of the row or method of that name. Raises ConfigError."""
    folder, name = Path(against).resolve(), str(against)
    found = [run for arm in arms for run in arm.runs if run.outcome.run_dir.resolve() == folder]
    found = found or _find_named(arms, name)
    if _is_one_method(found):
        return found[0]
    given = display(against) if isinstance(against, Path) else against
    if found:
        alike = [arm for arm in arms if any(run in arm.runs for run in found)]
        # a name without the task serves all tasks
        shorter = {arm.name: join_parts(arm.method_parts) for arm in alike}
        names = [
            shorter[arm.name] if _is_one_method(_find_named(arms, shorter[arm.name])) else arm.name for arm in alike
        ]
        raise ConfigError(f"against: expected one method, got {given}, which is ambiguous: give {_quote(names)}")
    raise ConfigError(
        f"against: expected one of the compared runs, by its folder, or {_quote(arm.name for arm in arms)}, got {given}"
    )


def _quote(names: Iterable[str]) -> str:
    """Return the names to choose from, in quotes: they have commas."""
    return " or ".join(f'"{name}"' for name in dict.fromkeys(names))


def _rename(arms: Sequence[Arm], names: Mapping[str, str]) -> list[Arm]:
    """Return the arms with other names, which keep the task and the seed where these tell runs apart.

    Raises ConfigError for a name that no arm has, or that two arms would have.
    """
    new: dict[int, str] = {}
    for old, name in names.items():
        named = {id(run) for run in _find_named(arms, old)}
        found = [index for index, arm in enumerate(arms) if any(id(run) in named for run in arm.runs)]
        # as with a reference, a name without the task serves all tasks
        if not found or len({arms[index].task for index in found}) < len(found):
            raise ConfigError(f'name: expected one method, got "{old}": give {_quote(arm.name for arm in arms)}')
        new |= dict.fromkeys(found, name)
    renamed = [arm.rename(new[index]) if index in new else arm for index, arm in enumerate(arms)]
    olds: dict[str, set[str]] = defaultdict(set)
    for arm, other in zip(arms, renamed, strict=True):
        olds[other.name].add(arm.name)
    if twice := [name for name, own in olds.items() if len(own) > 1]:
        raise ConfigError(f'name: expected a name of its own for each row, got "{twice[0]}" twice; choose another')
    return renamed


def _find_named(arms: Sequence[Arm], name: str) -> list[Run]:
    """Return the first run of each row, or the runs, of that name."""
    candidates = [
        # before a method's, which its random baseline has, too
        [arm.runs[0] for arm in arms if name in spell_name(arm.parts)],
        [arm.runs[0] for arm in arms if name in spell_name(arm.method_parts) and not arm.is_baseline],
        [arm.runs[0] for arm in arms if PAPER in arm.parts and name in (arm.parts[PAPER], arm.method)],
        [run for arm in arms for run in arm.runs if name in spell_name(run.parts)],
        [arm.runs[0] for arm in arms if arm.runs[0].manifest.method == name and not arm.is_baseline],
    ]
    return next(filter(None, candidates), [])


def _is_one_method(runs: Sequence[Run]) -> bool:
    """Tell whether runs that share a name are one method: of one with several settings, that does not say which."""
    return bool(runs) and len({run.manifest.task for run in runs}) == len(runs)


def _deduplicate(scores: Iterable[Score]) -> list[Score]:
    """Return the scores, the first one of each name."""
    found: dict[str, Score] = {}
    for score in scores:
        found.setdefault(score.name, score)
    return list(found.values())


_PROMPT_ROLES = {"evaluate", "reflect"}
"""The calls of a search for a system prompt."""


def _describe_simulated_order(arms: Sequence[Arm]) -> str:
    """Return the settings that decide the order of simulated methods, with the values of the compared runs."""
    runs = [run for arm in arms for run in arm.runs if run.manifest.simulated and not run.is_baseline]
    manifests = [run.manifest for run in runs]
    causes, keys = list[str](), list[str]()
    if any(run.shows_responses for run in runs):
        causes.append("what parents do to a child (engine.improvement, engine.misleading)")
        keys += ["improvement", "misleading"]
    if any(run.outcome.cost.keys() >= _PROMPT_ROLES for run in runs):
        causes.append("what system prompts do (engine.instruction_gain, engine.principle_gain)")
        keys += ["instruction_gain", "principle_gain"]
    keys.append("skill")
    *before, last = [value for key in keys if (value := _name_engine_values(manifests, key))] or [""]
    line = ""
    if causes:
        line += f" {text.sentence(' or '.join(causes))} can decide the order of methods more than any other setting."
    if last:
        line += f" Here: {' and '.join(filter(None, (', '.join(before), last)))}."
    voting = [manifest for manifest in manifests if chooses_by_votes(manifest)]
    if mistake := _name_engine_values(voting, "typical_mistake"):
        methods = dict.fromkeys(manifest.method for manifest in voting)
        line += (
            f" Votes ({', '.join(methods)}) depend on {mistake}, the share of one wrong answer among a problem's "
            "mistakes (puzzles and programs aside): where it is more frequent than the right one, more votes are worse."
        )
    return line


def _name_engine_values(manifests: Sequence[Manifest], key: str) -> str:
    """Return the values of a setting of runs' engines, as `engine.skill=0.3,0.5`; empty where none has a number."""
    engines = [manifest.config.get("engine") or {} for manifest in manifests]
    found = sorted({engine[key] for engine in engines if isinstance(engine.get(key), int | float)})
    return f"engine.{key}={','.join(f'{value:g}' for value in found)}" if found else ""


def _describe_changed_code(arms: Sequence[Arm]) -> list[str]:
    """Return a warning for each plug-in whose code changed between the runs."""
    holders: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for run in (run for arm in arms for run in arm.runs):
        for kind, plugin in run.manifest.plugins.items():
            holders[kind, name_plugin(run.manifest, kind)][plugin.digest].add(run.name)
    lines = []
    for (kind, name), by_digest in holders.items():
        if len(by_digest) > 1:
            where = "; ".join(f"{digest} in {', '.join(name_runs(arms, runs))}" for digest, runs in by_digest.items())
            lines.append(
                f"The code of {name} changed between these runs, so that their scores do not compare ({where}). evorun "
                "replay grades recorded answers by the present code."
                if kind in GRADES
                else f"The code of {name} changed between these runs: {where}."
            )
    return lines


def _collect_warnings(arms: Sequence[Arm]) -> list[str]:
    """Return the runs' warnings, each once, with the names of the runs that it concerns unless it concerns all."""
    holders: dict[str, set[str]] = defaultdict(set)
    originals = {run.outcome.run_dir.resolve() for arm in arms for run in arm.runs}
    # what a simulated model gains by training is another setting's
    several_searches = len({arm.method for arm in arms if not arm.runs[0].outcome.trained}) > 1
    for arm, run in [(own, member) for own in arms for member in own.runs]:
        early_ends, unevolved = describe_early_ends(run.outcome), describe_unevolved(run.outcome)
        repeats = describe_repeats([run.outcome])
        if unevolved is not None:
            holders[unevolved].add(run.name)
        hacked = run.outcome.hacking.lines if run.outcome.hacking is not None else {}
        for warning in list_warnings(run.outcome):
            line = hacked.get(warning, warning)
            if line == early_ends:  # the generations have a column
                if unevolved is not None:
                    continue
                for member in arm.runs:
                    holders[_describe_cut_searches(arm)].add(member.name)
                continue
            if line == repeats:  # of all seeds together
                if (together := describe_repeats([member.outcome for member in arm.runs])) is None:
                    continue
                for member in arm.runs:
                    holders[together].add(member.name)
                continue
            by_chance = [describe_missing_crossovers(run.outcome), *run.outcome.divergence]
            if run.is_baseline and line in by_chance:  # random answers teach nothing
                continue
            if line == SIMULATED_LINE:
                if run.is_baseline:  # whose name says so
                    continue
                line += _describe_simulated_order(arms) if several_searches else ""
            holders[line].add(run.name)
        if run.recording in originals:
            holders[f"{REPLAY_LINE} of a run that is compared, too: it is no second sample."].add(run.name)
    everyone = {run.name for arm in [arm for arm in arms if not arm.is_baseline] or arms for run in arm.runs}
    return [
        line if runs >= everyone else f"{_name_holders(arms, runs, line)}: {line}" for line, runs in holders.items()
    ]


def _describe_cut_searches(arm: Arm) -> str:
    """Say how many searches of an arm, whose budget ended one at least, the budget ended."""
    outcomes = [run.outcome for run in arm.runs]
    step = outcomes[0].step_name
    cut = sum(outcome.reached["budget"].problems for outcome in outcomes if "budget" in outcome.reached)
    whole = sum(reached.problems for outcome in outcomes for reached in outcome.reached.values())
    line = f"The budget, not the number of {step}s, ended the search"
    line += "." if cut == whole else f" of {cut:,} of {whole:,} problems."
    return f"{line} {note_equal_calls(outcomes[0])}" if step == "generation" else line


def _name_holders(arms: Sequence[Arm], runs: set[str], line: str) -> str:
    """Return the names of the runs that a warning concerns; of many replays, whose names say that, only some."""
    names = name_runs(arms, runs)
    return shorten_names(names) if line.startswith(REPLAY_LINE) else "; ".join(names)


def shorten_names(names: Sequence[str]) -> str:
    """Return names in one text, which leaves some out where they are many."""
    more = len(names) - _MAX_NAMED
    return "; ".join([*names[:_MAX_NAMED], *([f"{more:,} more"] if more > 0 else [])])


def name_runs(arms: Sequence[Arm], runs: set[str]) -> list[str]:
    """Return the names of runs, of an arm with all its runs the arm's."""
    names: list[str] = []
    for arm in arms:
        held = [run.name for run in arm.runs if run.name in runs]
        names += [arm.name] if len(held) == len(arm.runs) else held
    return names
