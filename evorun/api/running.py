"""Runs and sweeps started from Python: composed as on the command line, and returned as loaded."""

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from evorun.api.loading import Place, load
from evorun.api.overrides import Settings, make_overrides
from evorun.api.process import Done, carry_out
from evorun.api.runs import Run, Runs
from evorun.errors import ConfigError, EvorunError
from evorun.runs.directory import MANIFEST

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
    return _load_last(done)


def sweep(
    *settings: Settings,
    path: Folder | None = None,
    config_dir: Folder | None = None,
    quiet: bool = False,
    **named: Any,
) -> Runs:
    """Carry out a sweep and return its jobs' runs: `evorun.sweep(method=["zero_shot", "rsa"], seed=range(3))`.

    A list, a tuple or a range has the values to sweep over; a setting that is a list is given as a text
    (`"task.strata=[high]"`). All else is as in `run`: the same call with the same `path` continues a sweep, and another
    one adds its jobs to it; `evorun.load(path)` has the jobs of all calls. A job that fails does not stop the others;
    the error comes when all have ended.
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
    found, own = load([folder]), {job.resolve() for job in done.jobs}
    return found.where(lambda run: run.path.resolve() in own)


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
    done = carry_out(["resume", fspath(path), *_trust(trust), *words], quiet=quiet)
    _raise_first(done)
    return load(path)


def replay(
    path: Place, *settings: Settings, output: Folder | None = None, quiet: bool = False, **named: Any
) -> Run | Runs:
    """Repeat a finished run from its journal, without its models, and return the repetition.

    Of a sweep's folder, repeat each finished job, and return the repetitions.

    Args:
        path: the run, its directory, or a sweep's folder.
        settings: overrides of keys that only decide how the run executes.
        output: the folder of the repetition or repetitions; by default a new one.
        quiet: show neither progress nor warnings.
        named: such settings whose keys are names.

    Raises:
        ConfigError: for a setting that may not change.
        EvorunError: as `run`.
        KeyboardInterrupt: as `run`.
    """
    folder = _find_folder(path)
    done = _branch(["replay", folder], make_overrides(settings, named), output, quiet=quiet)
    return _load_last(done) if (Path(folder) / MANIFEST).exists() else load([_as_given(job) for job in done.folders])


def extend(
    path: Place,
    *settings: Settings,
    output: Folder | None = None,
    trust: bool = False,
    quiet: bool = False,
    **named: Any,
) -> Run | Runs:
    """Continue a finished run with more steps, budget or problems: `evorun.extend(run, "method.generations=300")`.

    Of a sweep's folder, continue each finished job, or add jobs: a list, a tuple or a range has the new values of seed,
    method, task, model or judge. Only new calls are paid for, and new training steps. Returns the new run; of a sweep,
    the extended jobs or all jobs.

    Args:
        path: the run, its directory, or a sweep's folder.
        settings: overrides (`"budget.calls=900"`), or mappings.
        output: the folder of the new run or runs.
        trust: extend a run that somebody else started or changed; read its configuration first.
        quiet: show neither progress nor warnings.
        named: settings whose keys are names.

    Raises:
        ConfigError: for a setting that may not change.
        HistoryError: for a change that would alter what is recorded.
        EvorunError: as `run`.
        KeyboardInterrupt: as `run`.
    """
    folder = _find_folder(path)
    of_sweep = not (Path(folder) / MANIFEST).exists()
    words = make_overrides(settings, named, swept=of_sweep)
    done = _branch(["extend", folder, *_trust(trust)], words, output, quiet=quiet)
    if not of_sweep:
        return _load_last(done)
    return load([_as_given(job) for job in done.folders]) if done.sweep is None else load(folder)


def fork(
    path: Place,
    *settings: Settings,
    step: int,
    output: Folder | None = None,
    trust: bool = False,
    quiet: bool = False,
    **named: Any,
) -> Run:
    """Begin a run with other settings that shares the calls of a finished one before a step, and return it.

    `evorun.fork(run, judge="oracle", step=5)` pays for the steps from 5 on. A run that trains goes on from
    its checkpoint before that step, also with other settings of training (`"training.learning_rate=1e-4"`).

    Args:
        path: the run, or its directory.
        settings: overrides of the method, its training, its models, the task or the budget.
        step: the first step that may differ.
        output: the folder of the new run; by default a new one below outputs/.
        trust: fork a run that somebody else started or changed; read its configuration first.
        quiet: show neither progress nor warnings.
        named: settings whose keys are names.

    Raises:
        ConfigError: for a setting that may not change, or a step that is missing or whose weights are gone.
        HistoryError: for a change that reaches an earlier step.
        EvorunError: as `run`.
        KeyboardInterrupt: as `run`.
    """
    words = make_overrides(settings, named)
    begin = ["fork", _find_folder(path), "--at", f"step={step}", *_trust(trust)]
    return _load_last(_branch(begin, words, output, quiet=quiet))


def rejudge(path: Place, *settings: Settings, trust: bool = False, quiet: bool = False, **named: Any) -> Run | Runs:
    """Put a finished run's recorded texts before another judge, rubric or grader, and return the run.

    Of a folder of runs, such as a sweep's, code alone grades again; return its runs.
    `evorun.rejudge(run, judge="oracle").rejudged()` is a frame of all its rejudgings. Only judging is paid for.

    Args:
        path: the run, its directory, or a sweep's folder.
        settings: `"judge=..."`, `"rubric=..."`, `"reward=..."`, `"gold=..."` or `"task.KEY=..."`; `"budget.calls=N"`.
            Without any, the texts are graded by the task's present code and data.
        trust: judge a run that somebody else started or changed; read its configuration first.
        quiet: show neither progress nor warnings.
        named: settings whose keys are names.

    Raises:
        ConfigError: for a setting that may not change, and for a run that has nothing of the kind.
        EvorunError: as `run`.
        KeyboardInterrupt: as `run`; the same call goes on.
    """
    folder = _find_folder(path)
    done = carry_out(["rejudge", folder, *_trust(trust), *make_overrides(settings, named)], quiet=quiet)
    _raise_first(done)
    return load(folder)


def _branch(begin: Sequence[str], words: Sequence[str], output: Folder | None, *, quiet: bool) -> Done:
    """Carry out a verb that begins runs out of others. Raises its first error."""
    place = [] if output is None else make_overrides([{"output": output}], {})
    done = carry_out([*begin, *words, *place], quiet=quiet)
    _raise_first(done)
    return done


def _load_last(done: Done) -> Run:
    return Run(_as_given(done.folders[-1]))


def _find_folder(place: Place) -> str:
    """Return the folder of a run. Raises ConfigError for several runs."""
    if isinstance(place, Runs):
        raise ConfigError(f"expected a run or a folder, got {place!r}; give the sweep's folder")
    return str(place.path) if isinstance(place, Run) else fspath(place)


def _trust(given: bool) -> list[str]:
    return ["--trust"] if given else []


def _options(config_dir: Folder | None) -> list[str]:
    return [] if config_dir is None else ["--config-dir", fspath(config_dir)]


def _raise_first(done: Done) -> None:
    if done.failures:
        raise done.failures[0]


def _as_given(folder: Path) -> Path:
    """Return a path relative to the current folder where it lies below."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
