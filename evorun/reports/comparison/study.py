"""The study file that states the runs of a comparison: their deviations from it, and their answers to it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evorun.reports import text
from evorun.reports.comparison.arms import Arm, group_into_arms
from evorun.reports.comparison.findings import describe_finding
from evorun.reports.comparison.groups import make_groups
from evorun.reports.comparison.paired import adjust_by_holm
from evorun.reports.comparison.pairs import Pair, pair_all
from evorun.reports.comparison.reported import has_values
from evorun.reports.comparison.runs import Run
from evorun.runs.crossed import LEVEL
from evorun.runs.scores import Score
from evorun.runs.stated_studies import RecordedStudy, StatedStudy, find_study

_EXECUTION = ("hydra", "evorun.", "run.", "engine.", "sandbox.", "tracker", "study=", "seed=")
"""Beginnings of overrides that change no result, or are compared by themselves."""


@dataclass(frozen=True)
class StudyReport:
    """A study beside the runs of a comparison."""

    recorded: RecordedStudy
    score: Score
    """The primary score of the runs."""
    deviations: Sequence[str]
    """Deviations of the runs from the file, a line each; empty where they kept to it."""
    answers: Sequence[str]
    """The result of each method against the control over the stated runs, a line each."""
    answers_over_all: Sequence[str] = ()
    """The same with the runs that were added; empty where none was."""
    added_seeds: Sequence[int] = ()
    """Seeds of the study's methods that it does not state."""

    @property
    def lines(self) -> list[str]:
        """The study in sentences: question, record, deviations and answers."""
        study = self.recorded.study
        effect = f"{text.size(self.score, study.smallest_effect)} in {text.name_score(self.score)}"
        kept = "The runs kept to it: methods, seeds, budget, settings and primary score are as stated; none is missing."
        if self.deviations:
            kept = f"The runs did not keep to it: {'; '.join(self.deviations)}."
        return [
            f"Study: {study.question}",
            f"Its file was recorded at {self.recorded.recorded} (SHA-256 {self.recorded.digest[:12]}). {kept}",
            f"Smallest effect of interest: {effect}.",
            f"Stopping rule, as stated: {study.stopping_rule}",
            *(f"{self._label}: {answer}" for answer in self.answers),
            *(f"With the added runs, which the file does not state: {answer}" for answer in self.answers_over_all),
        ]

    @property
    def _label(self) -> str:
        seeds = self.recorded.study.seeds
        over = f" over the stated seed{'s' if len(seeds) > 1 else ''} ({', '.join(map(str, seeds))})"
        by_others = [line for line in self.deviations if not line.endswith(_ADDED)]
        return f"Answer{over if self.added_seeds else ''}{', despite the deviations' if by_others else ''}"


_ADDED = " was added"


def find_control(runs: Sequence[Run]) -> Run | None:
    """Return the control's run of the lowest stated seed, else of the lowest seed; None without a study or control."""
    recorded = _find_recorded(runs)
    if recorded is None:
        return None
    study = recorded.study
    controls = [run for run in runs if not run.is_baseline and _is_arm(study.arms[0], run)]
    return min(controls, key=lambda run: (run.manifest.seed not in study.seeds, run.manifest.seed), default=None)


def report_study(arms: Sequence[Arm], pairs: Sequence[Pair]) -> StudyReport | None:
    """Return the report on the study that most of the runs record; None where none does.

    pairs: over seeds, each with the name of its arm.
    """
    runs = [run for arm in arms for run in arm.runs]
    recorded = _find_recorded(runs)
    if recorded is None:
        return None
    study = recorded.study
    over_all = describe_answers(study, _find_compared(study, arms, pairs))
    stated = [run for run in runs if run.is_baseline or _find_arm(study, run) is not None]
    as_stated = [run for run in stated if run.is_baseline or run.manifest.seed in study.seeds]
    answers = over_all
    if len(as_stated) < len(runs):
        stated_arms = group_into_arms(as_stated)
        stated_pairs = pair_all(make_groups(as_stated, find_control(as_stated)), stated_arms) if as_stated else None
        answers = describe_answers(
            study, {} if stated_pairs is None else _find_compared(study, stated_arms, stated_pairs.main_pairs)
        )
    seeds = {run.manifest.seed for run in stated if not run.is_baseline} - {*study.seeds}
    return StudyReport(
        recorded,
        runs[0].primary,
        _list_deviations(recorded, runs),
        answers,
        answers_over_all=over_all if answers != over_all else (),
        added_seeds=sorted(seeds),
    )


def _find_compared(study: StatedStudy, arms: Sequence[Arm], pairs: Sequence[Pair]) -> dict[int, Pair]:
    """Return the pair of each of the study's methods, by its place in the study file."""
    by_name = {pair.name: pair for pair in pairs}
    compared: dict[int, Pair] = {}
    for number, stated in enumerate(study.arms[1:]):
        names = [
            arm.name for arm in arms if not arm.is_baseline and _is_arm(stated, arm.runs[0]) and arm.name in by_name
        ]
        if names:
            compared[number] = by_name[names[0]]
    return compared


def _find_arm(study: StatedStudy, run: Run) -> int | None:
    """Return the place of a run's method among the study's arms; None where the study does not state it."""
    if run.is_baseline or run.manifest.task != study.task:
        return None
    return next((at for at, arm in enumerate(study.arms) if _is_arm(arm, run)), None)


def _find_recorded(runs: Sequence[Run]) -> RecordedStudy | None:
    found = [recorded for run in runs if (recorded := find_study(run.manifest.config)) is not None]
    digests = Counter(recorded.digest for recorded in found)
    # of one file, the first record: a later one would be less strict
    return min(
        (recorded for recorded in found if recorded.digest == digests.most_common(1)[0][0]),
        key=lambda recorded: _read_time(recorded.recorded),
        default=None,
    )


def _read_time(written: str) -> float:
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:  # a manifest of somebody else's
        return float("inf")


def _is_arm(stated: Mapping[str, Any], run: Run) -> bool:
    return has_values(run.manifest.config, stated)


def _list_deviations(recorded: RecordedStudy, runs: Sequence[Run]) -> list[str]:
    study = recorded.study
    wanted = {(number, seed) for number in range(len(study.arms)) for seed in study.seeds}
    found: Counter[tuple[int, int]] = Counter()
    lines = []
    for run in runs:
        manifest = run.manifest
        number = _find_arm(study, run)
        own = find_study(manifest.config)
        if number is None or (number, manifest.seed) not in wanted:
            lines.append(f"{run.name}{_ADDED}")
            continue
        found[number, manifest.seed] += 1
        if own is None or own.digest != recorded.digest:
            lines.append(f"{run.name} was not started as a part of the study")
        if _read_time(manifest.started) < _read_time(recorded.recorded):
            lines.append(f"{run.name} was started before the file was recorded")
        if not run.outcome.finished:
            lines.append(f"{run.name} is not completed")
        if run.primary.name != study.score:
            lines.append(f"{run.name} has the primary score {run.primary.name}, not {study.score}")
        lines += [
            f"{run.name} has another {key} than {value}"
            for key, value in study.common.items()
            if not has_values(manifest.config, {key: value})
        ]
        stated = {*study.common, *study.arms[0]}
        lines += [
            f"{run.name} was started with {word}, which is not stated"
            for word in manifest.command[1:]
            if "=" in word
            and not word.startswith("-")
            and not word.lstrip("+").startswith(_EXECUTION)
            and word.lstrip("+").partition("=")[0] not in stated
        ]
    lines += [
        f"{_name(study.arms[number])}, seed {seed}, ran {times} times"
        for (number, seed), times in found.items()
        if times > 1
    ]
    lines += [f"{_name(study.arms[number])}, seed {seed}, is missing" for number, seed in sorted(wanted - found.keys())]
    return lines


def _name(arm: Mapping[str, Any]) -> str:
    return ", ".join([str(arm["method"]), *(f"{key}={value}" for key, value in arm.items() if key != "method")])


def describe_answers(study: StatedStudy, compared: Mapping[int, Pair]) -> list[str]:
    """Return what each method's pair answers; tests of equivalence have Holm's adjustment over the study's methods.

    compared: by the place of the method in the study file.
    """
    tests = {number: p for number, pair in compared.items() if (p := _test_equivalence(pair, study)) is not None}
    adjusted = dict(zip(tests, adjust_by_holm(list(tests.values())), strict=True))
    return [
        f"{describe_finding(compared[number])} {_judge(compared[number], study, adjusted.get(number))}"
        if number in compared
        else f"{_name(arm)} could not be compared with the control."
        for number, arm in enumerate(study.arms[1:])
    ]


def _test_equivalence(pair: Pair, study: StatedStudy) -> float | None:
    """Return the p of two one-sided tests that the difference is within the smallest effect, on either side of 0.

    Source: D. J. Schuirmann (1987), "A comparison of the two one-sided tests procedure and the power approach".
    """
    crossed, bound = pair.compared.crossed, study.smallest_effect
    if crossed is None:
        return None
    return max(crossed.p_above(-bound), 1 - crossed.p_above(bound))


def _judge(pair: Pair, study: StatedStudy, equivalence: float | None) -> str:
    """Say what a pair answers at the smallest effect of interest."""
    score, bound = pair.primary, study.smallest_effect
    within = f"the smallest effect of interest ({text.size(score, bound)})"
    equivalent = equivalence is not None and equivalence < LEVEL
    tests = "" if equivalence is None else f" (two one-sided tests, {text.p_equation(equivalence)})"
    if pair.is_shown and pair.ci95 is not None:
        better = (pair.compared.difference > 0) == score.higher_is_better
        word = "better" if better else "worse"
        if min(map(abs, pair.ci95)) >= bound:
            return f"It is {word} by at least {within}."
        if equivalent:
            return f"It is {word}, by less than {within}{tests}."
        return f"It is {word}; whether by {within} is not settled."
    if equivalent:
        return f"The two are equivalent within {within}{tests}."
    return f"The question stays open: equivalence within {within} is not shown either{tests}."
