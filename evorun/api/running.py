"""Runs and sweeps started from Python: composed as on the command line, and returned as loaded."""

from os import PathLike, fspath
from pathlib import Path
from typing import Any

from evorun.api.loading import load
from evorun.api.overrides import Settings, make_overrides
from evorun.api.process import Done, carry_out
from evorun.api.runs import Run, Runs
from evorun.errors import EvorunError

Folder = str | PathLike[str]


def run(
    *settings: Settings,
    path: Folder | None = None,
    config_dir: Folder | None = None,
    quiet: bool = False,
    **named: Any,
) -> Run:
    """Carry out a run and return it: `evorun.run("task.limit=6", method="zero_shot", task="mathbench")`.

    The run works in a process of its own, so this may be called beside a running event loop and in any thread. A failed
    run keeps its records: the same call with its folder as `path` continues it, as does `resume`.

    Args:
        settings: overrides as on the command line (`"method=zero_shot"`), or mappings (`{"task.limit": 6}`).
        path: the run directory; by default a new one below outputs/. A run that has begun there is continued.
        config_dir: a folder of configuration files of your own (`--config-dir`).
        quiet: show neither progress nor warnings.
        named: settings whose keys are names.

    Raises:
        ConfigError: for a wrong key, type, range or combination; nothing has begun then.
        EvorunError: its subclass for what ended the run, or kept it from beginning.
        KeyboardInterrupt: once an interrupted run has ended in order.
    """
    words = make_overrides(settings, named)
    # an experiment may be a sweep; `sweep` carries out all of it
    single = ["hydra.mode=RUN"] if any(word.startswith("experiment=") for word in words) else []
    place = [] if path is None else make_overrides([{"hydra.run.dir": path}], {})
    done = carry_out([*_options(config_dir), *words, *single, *place], quiet=quiet)
    _raise_first(done)
    return Run(_as_given(done.folders[-1]))


def sweep(
    *settings: Settings,
    path: Folder | None = None,
    config_dir: Folder | None = None,
    quiet: bool = False,
    **named: Any,
) -> Runs:
    """Carry out a sweep and return its runs: `evorun.sweep(method=["zero_shot", "duel_evolve"], seed=range(3))`.

    A list, a tuple or a range has the values to sweep over; a setting that is a list is given as a text
    (`"task.strata=[high]"`). All else is as in `run`. A job that fails does not stop the others; the error comes when
    all have ended.
    """
    words = make_overrides(settings, named, swept=True)
    place = [] if path is None else make_overrides([{"hydra.sweep.dir": path}], {})
    done = carry_out(["-m", *_options(config_dir), *words, *place], quiet=quiet)
    if done.sweep is None or not done.sweep.is_dir():
        _raise_first(done)
        raise EvorunError("expected a sweep's folder, found none: nothing has begun")
    folder = _as_given(done.sweep)
    if done.failures:
        count = f"{len(done.failures)} of its jobs failed, the first with: {done.failures[0]}"
        raise type(done.failures[0])(f"{folder}: {count}; evorun.load({str(folder)!r}) has all that began")
    found = load(folder)
    return found if isinstance(found, Runs) else load([found])


def resume(path: Folder, *settings: Settings, trust: bool = False, quiet: bool = False, **named: Any) -> Run | Runs:
    """Continue a stopped run in its folder and return it; a completed one is returned as it is.

    To resume a folder is to run what it says, with your rights and your keys.

    Args:
        path: the run directory.
        settings: overrides of keys that only decide how the run executes (`"engine.base_urls=[...]"`).
        trust: continue a run that somebody else started or changed; read its configuration first.
        quiet: show neither progress nor warnings.
        named: such settings whose keys are names.

    Raises:
        ConfigError: for a setting that may not change, and for a run of somebody else without `trust`.
        EvorunError: as `run`.
        KeyboardInterrupt: as `run`.
    """
    words = make_overrides(settings, named)
    done = carry_out(["resume", fspath(path), *(["--trust"] if trust else []), *words], quiet=quiet)
    _raise_first(done)
    return load(path)


def _options(config_dir: Folder | None) -> list[str]:
    return [] if config_dir is None else ["--config-dir", fspath(config_dir)]


def _raise_first(done: Done) -> None:
    if done.failures:
        raise done.failures[0]


def _as_given(folder: Path) -> Path:
    """Return a path relative to the current folder where it lies below."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
