"""`evorun rejudge`: a run's recorded texts before another judge, rubric or grader."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evorun.cli.options import split_max_price
from evorun.cli.output import print_error
from evorun.cli.overrides import parse, read_key
from evorun.cli.plain import with_absolute_paths
from evorun.cli.trust import TRUST, require_trust, with_changes, with_choices
from evorun.cli.usage import EXIT_FAILED, USAGES, Interrupted
from evorun.errors import ConfigError, EvorunError
from evorun.runs.directory import REPORT, load_manifest
from evorun.runs.folders import run_folders
from evorun.runs.paths import display
from evorun.runs.printable import printable
from evorun.runs.studies import Opinions, load_rejudge
from evorun.runs.sweeps import is_sweep
from evorun.runs.terminal import Terminal

if TYPE_CHECKING:
    from evorun.reports.rejudged import RejudgedSection
    from evorun.runner.rejudging import Rejudging

ROLES: Mapping[str, Opinions] = {"judge": "duels", "reward": "rewards", "gold": "grades"}
"""The models that give opinions, and the opinions that they give."""
SELECTORS, COMPARISONS, STOP = "selectors", "comparisons", "stop_probability"
"""Settings of a reselection beside those of its judge."""
LIMITS = ("budget.calls", "budget.tokens")


def rejudge(arguments: Sequence[str], console: Terminal) -> int:
    """Have a completed run's texts judged, scored or graded again, and print how the opinions compare.

    Raises ConfigError for a wrong command line and for a run that has nothing of the kind.
    """
    given, limit = split_max_price([word for word in arguments if word != TRUST])
    kinds = {kind for word in given[1:] if (kind := _get_kind(word)) is not None}
    if len(given) == 1:
        kinds = {"grades"}  # by the code and the data of the task as they are now
    if not given or len(kinds) != 1 or not all("=" in word for word in given[1:]):
        raise ConfigError(f"expected: {USAGES['rejudge'].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    run, changes = Path(given[0]), [word for word in given[1:] if read_key(word) not in LIMITS]
    runs = run_folders([run]) if run.is_dir() else [run]
    if len(runs) == 1:
        [run] = runs
    else:
        of_code = kinds == {"grades"} and all(read_key(word).startswith("task.") for word in given[1:])
        if not of_code or limit is not None:
            raise ConfigError(
                f"{display(run)}: expected one run; of a sweep, code alone grades again, with task.KEY=VALUE or with "
                "nothing else; rejudge its runs one by one"
            )
        return _grade_each(run, runs, changes, console, trust=TRUST in arguments)
    settings: dict[str, Any] = {
        f"max_{read_key(word).partition('.')[2]}": _read_limit(word) for word in given[1:] if word not in changes
    }
    config, rubric = _make_config(run, changes)
    if len(given) == 1:
        _refuse_opinions(run, config)
    require_trust(run, load_manifest(run), config, console, given=TRUST in arguments)
    settings |= {"rubric": rubric} if rubric is not None else {}
    settings |= {"max_price": limit} if limit is not None else {}
    kind = kinds.pop()
    study = _carry_out(run, config, kind, settings, ["evorun", "rejudge", *arguments], console)
    _show(run, study, kind, console)
    return 0


def _grade_each(folder: Path, runs: Sequence[Path], changes: Sequence[str], console: Terminal, *, trust: bool) -> int:
    """Have code grade the responses of each run in a folder again; print one table of all; return the exit code.

    A run that cannot be graded is left out. Raises ConfigError where none can. The pages of runs are left to `report`.
    """
    from evorun.reports.comparison.graded_again import compare_grades

    console.print(f"rejudge: the responses of {len(runs):,} runs in {display(folder)}", soft_wrap=True)
    silent = Terminal(quiet=True)
    studies: dict[Path, Path] = {}
    refused: list[EvorunError] = []
    for run in runs:
        try:
            config, _ = _make_config(run, changes)
            _refuse_opinions(run, config)
            require_trust(run, load_manifest(run), config, console, given=trust)
            command = ["evorun", "rejudge", str(run), *changes]
            studies[run] = _carry_out(run, config, "grades", {}, command, silent)
        except Interrupted:
            console.print("interrupted; the same command goes on", soft_wrap=True)
            raise
        except EvorunError as error:  # the other runs may succeed
            refused.append(error)
    if not studies:
        raise refused[0]
    _print_section(compare_grades(studies), console)
    for reason in refused:
        print_error(f"left out: {reason}", reason)
    if is_sweep(folder):
        how = shlex.join(["evorun", "extend" if changes else "replay", display(folder), *changes])
        console.print(f"compare the methods by these grades: {how}", soft_wrap=True)
    return EXIT_FAILED if refused else 0


def reselect(arguments: Sequence[str], console: Terminal) -> int:
    """Put every selector on the candidates of completed runs; print how well each chooses, then over all runs.

    Raises ConfigError for a wrong command line and for a run without candidates.
    """
    given, limit = split_max_price([word for word in arguments if word != TRUST])
    runs = [Path(word) for word in given if "=" not in word]
    stops = [word for word in given if read_key(word) == STOP]
    words = [word for word in given if "=" in word and word not in stops]
    own = {key: word for word in words if (key := read_key(word)) in (*LIMITS, SELECTORS, COMPARISONS)}
    changes = [word for word in words if word not in own.values()]
    if not runs or any(read_key(word).partition(".")[0] not in ("judge", "judge_engine") for word in changes):
        raise ConfigError(f"expected: {USAGES['reselect'].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    if SELECTORS not in own and (own or changes):
        raise ConfigError(
            f"{next(iter([*own, *map(read_key, changes)]))}: expected {SELECTORS}=swiss,thompson,uniform, or one of "
            "them, beside it; selectors that ask no judge take no settings"
        )
    settings: dict[str, Any] = {f"max_{key.partition('.')[2]}": _read_limit(own[key]) for key in LIMITS if key in own}
    settings |= {COMPARISONS: _read_limit(own[COMPARISONS])} if COMPARISONS in own else {}
    settings |= {SELECTORS: own[SELECTORS].partition("=")[2].strip("[]").split(",")} if SELECTORS in own else {}
    settings |= {STOP: _read_probabilities(stops[-1])} if stops else {}
    settings |= {"max_price": limit} if limit is not None else {}
    folders = []
    for run in runs:
        manifest = load_manifest(run)
        config = with_choices(run, manifest, changes, ("judge",), ("judge",), "a reselection")
        require_trust(run, manifest, config, console, given=TRUST in arguments)
        command = ["evorun", "reselect", str(run), *(word for word in arguments if word not in map(str, runs))]
        folders.append(_carry_out(run, config, "choices", settings, command, console))
        _show(run, folders[-1], "choices", console)
    if len(folders) > 1:
        from evorun.reports.rejudged import pool_selections

        section = pool_selections(runs, folders)
        _print_tables(section, console)
        console.print(section.note)
    return 0


def resume_rejudge(folder: Path, changes: Sequence[str], console: Terminal, *, trust: bool) -> int:
    """Continue a rejudging, as `evorun resume` does with a run; return the exit code.

    changes, trust: see `resume_tournament`. Raises ConfigError and RunDirectoryError.
    """
    manifest = load_rejudge(folder)
    config = with_changes(folder, manifest, changes)
    require_trust(folder, manifest, config, console, given=trust)
    run = folder.resolve().parents[1]
    command = [*manifest.command, *changes]
    study = _carry_out(run, config, manifest.kind, manifest.settings, command, console, resumed=folder)
    _show(run, study, manifest.kind, console)
    return 0


def report_rejudge(folder: Path, console: Terminal) -> None:
    """Print the figures of a rejudging that has ended. Raises RunDirectoryError."""
    from evorun.reports.rejudged import load_rejudging

    _print_section(load_rejudging(folder), console)


def _print_section(section: "RejudgedSection", console: Terminal) -> None:
    if section.warning:
        console.print(section.warning, style="bold yellow")
    _print_tables(section, console)
    console.print(section.note)


def _print_tables(section: "RejudgedSection", console: Terminal) -> None:
    console.print(section.title)
    for table in section.tables:
        console.print_table(table.to_rich())


def _carry_out(
    run: Path,
    config: Mapping[str, Any],
    kind: Opinions,
    settings: Mapping[str, Any],
    command: Sequence[str],
    console: Terminal,
    resumed: Path | None = None,
) -> Path:
    """Carry out a study and return its folder."""
    from evorun.runner import registry

    with registry.blaming_plugins():
        study = _get_class(kind)(run, config, console, **settings)
        try:
            study.rejudge(command, resumed)
        except KeyboardInterrupt:
            how = f"evorun resume {shlex.quote(display(study.folder))}"
            console.print(f"interrupted; continue with: {how}", soft_wrap=True)
            raise Interrupted from None
    return study.folder


def _show(run: Path, study: Path, kind: Opinions, console: Terminal) -> None:
    """Print the tables of a study and draw the run's page anew."""
    from evorun.reports.html import write_report
    from evorun.reports.rejudged import load_judges

    write_report(run)
    report_rejudge(study, console)
    for section in load_judges(run) if kind == "duels" else []:
        _print_tables(section, console)
    console.print(f"Report: {printable(display(run / REPORT))}", soft_wrap=True)


def _get_class(kind: Opinions) -> "type[Rejudging]":
    if kind == "duels":
        from evorun.runner.rejudged_duels import RejudgedDuels

        return RejudgedDuels
    if kind == "rewards":
        from evorun.runner.rejudged_rewards import RejudgedRewards

        return RejudgedRewards
    if kind == "choices":
        from evorun.runner.reselection import Reselection

        return Reselection
    from evorun.runner.rejudged_grades import RejudgedGrades

    return RejudgedGrades


def _get_kind(word: str) -> Opinions | None:
    """Return what a setting asks to be given again; None for a setting of how that is done."""
    group, _, key = read_key(word).partition(".")
    if group == "rubric":
        return "rewards"
    if group == "task" and key:
        return "grades"
    return ROLES.get(group.removesuffix("_engine"))


def _make_config(run: Path, changes: Sequence[str]) -> tuple[dict[str, Any], str | None]:
    """Return the run's configuration with another judge, reward model, gold judge or task, and the rubric given.

    A model that is chosen anew keeps the recorded engine of its role, unless that is chosen anew, too. Raises
    ConfigError.
    """
    rubric = [word for word in changes if read_key(word) == "rubric"]
    others = [word for word in changes if word not in rubric]
    config = with_choices(run, load_manifest(run), others, tuple(ROLES), (*ROLES, "task"), "a rejudging")
    if not rubric:
        return config, None
    value = parse(rubric[-1]).value()
    if not isinstance(value, str) or not value:
        raise ConfigError(f"rubric: expected a rubric's name or FILE, got {value!r}")
    return config, str(with_absolute_paths({"method": {"rubric": str(value)}})["method"]["rubric"])


def _refuse_opinions(run: Path, config: Mapping[str, Any]) -> None:
    """Raise ConfigError where no code grades the run's responses, but a model, which would be paid for."""
    from evorun.runner import registry
    from evorun.runner.settings import check

    with registry.blaming_plugins():
        task = check(config).task.task_class
    if task.graded_by_opinion:
        raise ConfigError(
            f"{display(run)}: expected a task whose code grades, grades of task={task.name} are a model's opinions; "
            "name the model: gold=MODEL"
        )


def _read_probabilities(word: str) -> list[float]:
    value = word.partition("=")[2]
    try:
        found = [float(part) for part in value.strip("[]").split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < probability < 1 for probability in found):
        raise ConfigError(f"{STOP}: expected probabilities between 0 and 1, such as 0.9,0.95, got {value}")
    return found


def _read_limit(word: str) -> int:
    key, _, value = word.partition("=")
    if not (value.isascii() and value.isdecimal() and 0 < int(value[:12]) < 10**11):
        raise ConfigError(f"{key}: expected a number >= 1, got {value}")
    return int(value)
