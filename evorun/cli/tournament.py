"""`evorun tournament`: Elo and Bradley-Terry ratings of runs compared by a judge, or of a match log."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from evorun.cli.given import given_records
from evorun.cli.naming import free_folder
from evorun.cli.options import add_option, take_flag
from evorun.cli.overrides import parse
from evorun.cli.plain import composed, with_absolute_paths
from evorun.cli.secrets import refuse_typed_secrets
from evorun.cli.trust import TRUST, recorded_config, require_trust, with_changes
from evorun.cli.usage import EXIT_INTERRUPTED, USAGES
from evorun.errors import ConfigError, DataError
from evorun.reports.comparison.names import join_parts, name_parts
from evorun.reports.overview import load_outcome
from evorun.reports.tournament import print_tournament, write_tournament_page
from evorun.runner import registry
from evorun.runner.pairings import TournamentSettings
from evorun.runner.served import in_manifest, is_judge_by_code
from evorun.runner.tournament import hold, prepare
from evorun.runner.typed import typed
from evorun.runs.configs import iterate_leaves
from evorun.runs.directory import load_manifest
from evorun.runs.folders import run_folders
from evorun.runs.outputs import refuse_folder_of_records, refuse_replacing
from evorun.runs.paths import display
from evorun.runs.printable import printable
from evorun.runs.records import write_json
from evorun.runs.terminal import Terminal
from evorun.runs.tournaments import (
    MAX_PLAYERS,
    Games,
    TournamentResults,
    bradley_terry,
    load_tournament,
    load_tournament_results,
    make_results,
)

_SETTINGS = tuple(field.name for field in fields(TournamentSettings))
_OF_LOG = ("matches", "by", "output", "overwrite", "k", "initial", "resamples")
_OWN = (*_SETTINGS, "matches", "by", "output", "overwrite", "folder", "exclude")
_RANDOM_BASELINES = "model=random"
_NOBODY = "none"
_COMPOSED = ("judge", "judge_engine", "budget.calls", "budget.tokens", "evorun.debug")
_FORM = '{"a": "...", "b": "...", "winner": "..." or null}'


class _Words(NamedTuple):
    """The words of a command line, by kind."""

    runs: list[Path]
    own: dict[str, str]
    """Options of the tournament itself, by key."""
    overrides: list[str]
    """Of the judge, its engine and the budget."""
    trust: bool


def tournament(arguments: Sequence[str], console: Terminal) -> int:
    """Hold a tournament, or rate the matches of a log; print the ratings and return the exit code.

    Raises ConfigError for a wrong command line and for runs that cannot meet, DataError for a malformed log.
    """
    words = _sorted(arguments)
    given = {key: parse(f"{key}={words.own[key]}").value() for key in _SETTINGS if key in words.own}
    settings = typed(TournamentSettings, given, "tournament")
    if "matches" in words.own:
        results = _rate_log(words, settings)
        print_tournament(results, console)
    else:
        config = _configuration(words, settings, console)
        held = _hold(config, words.own.get("folder"), ["evorun", "tournament", *arguments], console)
        if held is None:
            return EXIT_INTERRUPTED
        results = held
    if "output" in words.own:
        output = Path(words.own["output"])
        write_json(output, results)
        console.print(f"written: {printable(display(output))}", soft_wrap=True)
    return 0


def resume_tournament(folder: Path, changes: Sequence[str], console: Terminal, *, trust: bool) -> int:
    """Continue the tournament of a folder, as `evorun resume` does with a run; return the exit code.

    changes: KEY=VALUE, of how it is carried out. trust: the user agrees beforehand to what the folder says. Raises
    ConfigError, and RunDirectoryError for a folder of another version of evorun.
    """
    manifest = load_tournament(folder)
    config = with_changes(folder, manifest, changes)
    require_trust(folder, manifest, config, console, given=trust)
    return EXIT_INTERRUPTED if _hold(config, str(folder), [*manifest.command, *changes], console) is None else 0


def report_tournament(folder: Path, console: Terminal) -> None:
    """Print the ratings of a tournament that has ended, and write its page. Raises RunDirectoryError."""
    results, page = load_tournament_results(folder), write_tournament_page(folder)
    print_tournament(results, console, simulated=load_tournament(folder).simulated)
    console.print(f"Report: {printable(display(page))}", soft_wrap=True)


def _sorted(arguments: Sequence[str]) -> _Words:
    words = _Words([], {}, [], TRUST in arguments)
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if argument == TRUST:
            continue
        if equals and key in _OWN:
            if not value:
                raise ConfigError(f"{key}: expected a value, got an empty string")
            add_option(words.own, argument)
        elif equals and (key.partition(".")[0] in _COMPOSED or key in _COMPOSED):
            words.overrides.append(argument)
        elif equals and not Path(argument).exists():  # a folder's name may hold '=', as `seed=0`
            known = ", ".join((*_OWN, *_COMPOSED, "judge.KEY", "judge_engine.KEY"))
            raise ConfigError(f"{key}: unknown option; expected a run directory or one of {known}")
        else:
            words.runs.append(Path(argument))
    refuse_typed_secrets(arguments)
    _check(words, arguments)
    return words


def _check(words: _Words, arguments: Sequence[str]) -> None:
    if "matches" in words.own:
        stray = [*map(str, words.runs), *words.overrides, *(key for key in words.own if key not in _OF_LOG)]
        if stray:
            raise ConfigError(f"{stray[0]}: has no effect on matches=FILE, which are played already; leave it out")
        if words.own.get("by") in ("a", "b", "winner"):
            raise ConfigError(f"by: expected a further key of the matches, got {words.own['by']}")
    elif not words.runs or not any(override.startswith("judge=") for override in words.overrides):
        raise ConfigError(f"expected: {USAGES['tournament'].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    elif "by" in words.own:
        raise ConfigError("by: expected matches=FILE, whose lines it sorts into repetitions")
    overwrite = take_flag(words.own, "overwrite")
    if "output" in words.own:
        output = Path(words.own["output"])
        if output.suffix != ".json":
            raise ConfigError(f"output: expected the name of a .json file, got {output}")
        refuse_folder_of_records("output", output.parent)
        refuse_replacing("output", output, overwrite=overwrite)


# --- matches of a log ---


def _rate_log(words: _Words, settings: TournamentSettings) -> TournamentResults:
    """Rate the players of a log, in the order of its matches; each value of the key `by` is a separate sequence.

    Elo takes all lines. Bradley-Terry takes distinct judgments: repetitions of a tournament draw some of them again,
    which only the key `problem` shows.
    """
    given, by = words.own["matches"], words.own.get("by")
    if given != "-" and "output" in words.own and Path(words.own["output"]).resolve() == Path(given).resolve():
        raise ConfigError(f"output: expected another file than matches={given}, which it would replace")
    columns: list[Any] = [("a", str), ("b", str), ("winner", str | None)]
    columns += [("repetition", Any)] if by is not None else []
    columns += [("problem", Any, None)] if by != "problem" else []
    match: Any = msgspec.defstruct("Match", columns, rename={"repetition": by} if by is not None else None)
    players: dict[str, int] = {}
    sequences: dict[str, list[tuple[int, int, float]]] = {}
    judgments: dict[tuple[int, int, float, str], int] = {}
    prompts: dict[str, int] = {}
    nameless = 0
    for where, record in given_records("matches", None if given == "-" else Path(given), match, _FORM):
        if record.a == record.b:
            raise DataError(f"{where}: expected two players, got a match of '{record.a}' with itself")
        if record.winner not in (record.a, record.b, None):
            raise DataError(f"{where}: expected winner '{record.a}', '{record.b}' or null, got '{record.winner}'")
        score = 0.5 if record.winner is None else float(record.winner == record.a)
        first, second = (players.setdefault(name, len(players)) for name in (record.a, record.b))
        sequences.setdefault(repr(getattr(record, "repetition", None)), []).append((first, second, score))
        problem = getattr(record, "problem", None)
        nameless += problem is None
        prompt = repr(problem)
        judgments[first, second, score, prompt] = prompts.setdefault(prompt, len(prompts))
    if not players:
        raise DataError(f"{given}: expected {_FORM} per line, got no line")
    repetitions = [Games.of(rows) for rows in sequences.values()]
    games, cluster, resamples = Games(*map(np.concatenate, zip(*repetitions, strict=True))), None, settings.resamples
    if not nameless:
        games = Games.of([judgment[:3] for judgment in judgments])
        cluster = np.array(list(judgments.values()), np.int64)
    elif len(repetitions) > 1:
        resamples = 0
    plain = None
    if len(players) <= MAX_PLAYERS:
        plain = bradley_terry(len(players), games, initial=settings.initial, resamples=resamples, cluster=cluster)
    results = make_results(list(players), repetitions, games, k=settings.k, initial=settings.initial, plain=plain)
    if not nameless:
        results.judgments = len(judgments)
    elif resamples < settings.resamples:
        results.no_intervals = (
            "no intervals: without the key problem in every line, a judgment that several repetitions draw cannot be "
            "told from several judgments"
        )
    return results


# --- runs ---


def _configuration(words: _Words, settings: TournamentSettings, console: Terminal) -> dict[str, Any]:
    """Return all that a tournament is held by, as plain data (`evorun.runner.tournament.prepare`)."""
    folders = _entering(run_folders(words.runs), words.own.get("exclude", _RANDOM_BASELINES), console)
    if len(folders) < 2:
        raise ConfigError(f"expected two runs or more, got {len(folders)}")
    manifest, config = recorded_config(folders[0], [])
    require_trust(folders[0], manifest, config, console, given=words.trust)
    names = [join_parts(parts) for parts in name_parts([load_outcome(folder) for folder in folders])]
    return {
        "runs": {name: str(folder.resolve()) for name, folder in zip(names, folders, strict=True)},
        "tournament": asdict(settings),
        **{group: config[group] for group in ("task", "sandbox") if group in config},
        **_composed(words.overrides),
    }


def _hold(
    config: Mapping[str, Any], given: str | None, command: Sequence[str], console: Terminal
) -> TournamentResults | None:
    """Hold a tournament, print its ratings and write its page; return its results, None if it was interrupted.

    given: its folder; None for a new one.
    """
    with registry.blaming_plugins():
        ready = prepare(config)
        folder = Path(given or free_folder(f"outputs/tournaments/{datetime.now():%Y-%m-%d_%H-%M-%S}"))
        console.print(
            f"{len(ready.entrants)} runs on {len(ready.problems)} common prompts of task={ready.loaded.task.name}, "
            f"judged by {in_manifest(ready.judge).short}; folder: {display(folder)}",
            soft_wrap=True,
        )
        try:
            results = hold(ready, folder, command, console)
        except KeyboardInterrupt:
            console.print(f"interrupted; continue with: evorun resume {shlex.quote(display(folder))}", soft_wrap=True)
            return None
    report_tournament(folder, console)
    return results


def _entering(folders: Sequence[Path], exclude: str, console: Terminal) -> list[Path]:
    """Return the runs without an excluded setting, and print the runs left out.

    exclude: KEY=VALUE,... or `none`. The sum of Elo ratings is constant: a random baseline that loses to all would
    raise every other rating, and hide the difference from a paper's. Raises ConfigError.
    """
    excluded: list[tuple[str, Any]] = []
    for word in exclude.split(",") if exclude != _NOBODY else ():
        if "=" not in word:
            raise ConfigError(f"exclude: expected KEY=VALUE,... or {_NOBODY}, got {exclude}")
        excluded.append((word.partition("=")[0], parse(word).value()))
    entering, known = [], set[str]()
    for folder in folders:
        settings = dict(iterate_leaves(load_manifest(folder).config))
        settings |= {key.removesuffix(".name"): value for key, value in settings.items() if key.endswith(".name")}
        known.update(settings)
        if any(key in settings and settings[key] == value for key, value in excluded):
            console.print(
                f"left out: {display(folder)} (exclude={exclude}; exclude={_NOBODY} includes it)",
                soft_wrap=True,
            )
        else:
            entering.append(folder)
    if unknown := [key for key, _ in excluded if key not in known]:
        raise ConfigError(f"exclude: expected keys of the runs' configurations, got {', '.join(unknown)}")
    return entering


def _composed(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of the judge, its engine and the budget."""
    judge = next(override for override in overrides if override.startswith("judge="))
    if judge.startswith(("judge=[", "judge=panel")):
        raise ConfigError(f"{judge}: expected one judge")
    by_code = is_judge_by_code(*judge.split("=", 1))
    own_engine = by_code or any(override.startswith("judge_engine=") for override in overrides)
    config = composed([*([] if own_engine else ["judge_engine=auto"]), *overrides])
    return with_absolute_paths({key: config[key] for key in ("judge", "judge_engine", "budget")})
