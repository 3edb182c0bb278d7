"""The composition root: builds a run from its configuration and carries it out."""

import asyncio
import logging
import shlex
import time
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial, singledispatch
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evorun.errors import ConfigError, ContradictionError, HistoryError, RunDirectoryError, SandboxError
from evorun.models.base import LanguageModel, Trained
from evorun.models.busy import BusyTime
from evorun.models.config import OTHER_ROLES, EngineConfig, ServedModel
from evorun.models.lazy import LazyModel
from evorun.rollouts.episodes import max_turns_on
from evorun.runner.driver import Driver
from evorun.runner.foreseen import list_settings_warnings
from evorun.runner.gold import GraderTools
from evorun.runner.gpu_plans import GpuTimes, place_run, show_gpus
from evorun.runner.pricing import find_gpu_price, find_rates, name_answering_models, require_prices
from evorun.runner.process import logging_to
from evorun.runner.registry import describe_plugins, name_grading_parts
from evorun.runner.requirements import require_parts
from evorun.runner.served import (
    crowded_gpus,
    find_engine_key,
    in_manifest,
    open_lazily,
)
from evorun.runner.settings import RunConfig, require_useful_lag
from evorun.runner.stages import with_student
from evorun.runner.task_loading import load_task
from evorun.runner.training_runs import (
    open_policy,
    open_simulated,
    require_gradable,
    samples_from_other_weights,
    serving,
    shared_gpus,
    simulating,
    training_problems,
    transfer_of,
)
from evorun.runner.work import Engines, Outcome, carry_out, open_effects
from evorun.runs.budget import Meter, divide_budget
from evorun.runs.directory import (
    MANIFEST,
    PROBLEMS,
    RunDirectory,
    load_manifest,
    name_changed_plugins,
    new_manifest,
)
from evorun.runs.effects import Traffic
from evorun.runs.formats import name_step
from evorun.runs.live import PROGRESS
from evorun.runs.manifest import Manifest, Origin, Provenance, SandboxInRun
from evorun.runs.paths import display
from evorun.runs.progress import Progress, show_progress
from evorun.runs.recording import find_first_own_step
from evorun.runs.records import write_records
from evorun.runs.results import write_results
from evorun.runs.schema import ProblemRecord
from evorun.runs.signals import as_interrupt
from evorun.runs.spending import GOLD
from evorun.runs.stated_studies import find_study, require_score
from evorun.runs.terminal import Terminal
from evorun.sandbox.isolation import isolation_warning, probe
from evorun.simulation.engine import SimulatedConfig
from evorun.tasks.base import GradingTools, LoadedTask
from evorun.tracking.process import followed
from evorun.training.base import TrainedPolicy
from evorun.training.config import TrainingConfig
from evorun.training.policy import Policy

log = logging.getLogger("evorun")


def run_experiment(
    config: RunConfig,
    path: Path,
    command: Sequence[str],
    console: Terminal,
    *,
    redo_calls: bool = False,
    of_sweep: bool = False,
    origin: Origin | None = None,
) -> Outcome:
    """Carry out a run in the directory `path`, or continue it there; leave a complete run unchanged, and say so.

    redo_calls: repeat all calls when the journal is missing. of_sweep: one of many runs, whose caller says how it ends;
    its title stands above lines of progress alone. origin: the run whose recorded calls the new directory's journal
    holds already.

    Raises EvorunError when the run cannot begin (missing data, a directory in use or of another run). After that, the
    manifest and the returned outcome say how the run ended.
    """
    # Whatever fails for a wrong setting or missing data comes before the run directory has a manifest.
    rates = load_manifest(path).prices if (path / MANIFEST).exists() else find_rates(config)
    require_prices(config, rates)
    loaded = load_task(config.task)
    config.method.check(config.task.task_class, [example.problem for example in loaded.validation])
    require_gradable(config.engine, config, loaded)
    training = training_problems(config, loaded)
    fitted = None if training is None else config.method.fit_to(len(training.problems))
    if config.training is not None:
        require_useful_lag(config.method, config.training)
    shares = divide_budget(config.budget, len(loaded.problems), rates)
    _check_budget(shares, loaded)
    study = find_study(config.raw)
    if study is not None:
        require_score(study.study, loaded.task.name, loaded.task.scores[0])
    begins = not (path / MANIFEST).exists()  # a run that has begun may need only its journal
    config, gpus = place_run(config, required=begins)
    if begins:
        require_parts(config)
    manifest = _manifest(config, loaded, command, path)
    manifest.origin, manifest.prices, manifest.answered_by = origin, rates, name_answering_models(config)
    if origin is not None:
        manifest.stages = load_manifest(Path(origin.run)).stages  # its calls were made with that student
    manifest.gpu_price = find_gpu_price(config, manifest.hardware.get("gpus"))
    directory = RunDirectory(path)
    try:
        if not directory.begin(manifest, redo_calls=redo_calls):
            changed = name_changed_plugins(load_manifest(path), manifest)
            if not of_sweep:
                line = f"{display(path)}: this run is complete and its files are unchanged: nothing to do"
                console.print(f"{line}{_advise_by_new_code(path, changed)}", soft_wrap=True)
            elif changed:
                log.warning("the code of %s has changed since this run, which is complete", " and ".join(changed))
            with followed(path, config.trackers):  # one of them may lack points
                return Outcome("completed", already_complete=True)
        with logging_to(path / "evorun.log"), followed(path, config.trackers):
            started, times = time.monotonic(), GpuTimes(gpus, manifest.gpus)

            def begin() -> Coroutine[Any, Any, None]:
                limit = min((share.max_calls for share in shares if share.max_calls is not None), default=None)
                if fitted is not None:
                    log.info(fitted)
                for line in _list_warnings(config, loaded, manifest, limit):
                    log.warning(line)
                if gpus is not None:
                    show_gpus(gpus, console)
                taught = with_student(config, directory, console, run_experiment)
                write_records(
                    path / PROBLEMS,
                    [ProblemRecord(problem.id, problem.stratum, dict(problem.data)) for problem in loaded.problems],
                )
                return _run(taught, loaded, training, shares, directory, console, times, of_sweep=of_sweep)

            outcome = carry_out(begin)
            seconds = time.monotonic() - started
            if isinstance(outcome.error, ContradictionError | HistoryError) and manifest.resumes:
                return Outcome("failed", directory.withdraw(outcome.error))
            if outcome.status != "completed":  # otherwise as in its results
                directory.note_gpus(times.add_up())
            _note_end(directory, outcome, seconds)
            return outcome
    except BaseException as error:
        stop = as_interrupt(error)
        begun = directory.manifest is not None and directory.manifest.status == "running"
        if stop is not None and begun:  # before the work, which notes its own end
            directory.end("interrupted", 0.0, str(stop) or "stopped")
        if stop is None or stop is error:
            raise
        raise stop from error
    finally:
        directory.close()


def _advise_by_new_code(path: Path, changed: Sequence[str]) -> str:
    """Return what to do with a complete run since whose end plug-ins have changed, by name; empty where none has."""
    if not changed:
        return ""
    folder = shlex.quote(display(path))
    grades = any(name.startswith(("task=", "grader=")) for name in changed)
    how = f"grade its texts by the new code: evorun rejudge {folder}; or " if grades else ""
    return f"; the code of {' and '.join(changed)} has changed since: {how}repeat the run by it: evorun replay {folder}"


def _check_budget(shares: Sequence[Meter], loaded: LoadedTask) -> None:
    """Raise ConfigError when a problem's budget has fewer calls than a single response may take."""
    for own, problem in zip(shares, loaded.problems, strict=True):
        turns = max_turns_on(loaded.task, problem)
        if own.max_calls is not None and own.max_calls < turns:
            raise ConfigError(
                f"budget: expected at least {turns} calls per problem, as many as a response with tools may take on "
                f"task={loaded.task.name}, got {own.max_calls}; raise the budget or lower task.limit"
            )


def _note_end(directory: RunDirectory, outcome: Outcome, seconds: float) -> None:
    try:
        try:
            directory.end(outcome.status, seconds, outcome.reason)
        except KeyboardInterrupt:  # the manifest may still say that the run goes on
            directory.end(outcome.status, seconds, outcome.reason)
            raise
    except RunDirectoryError:
        if outcome.status != "failed":  # otherwise the run's own error says more
            raise


def _list_warnings(config: RunConfig, loaded: LoadedTask, manifest: Manifest, limit: int | None) -> list[str]:
    """Return what a user must know of budget, task, models, training and sandbox before the run's results.

    limit: the budget's calls per problem; None without one.
    """
    lines = list_settings_warnings(config, loaded, limit)
    lines += crowded_gpus(ServedModel(config.model, config.engine), config.others)
    lines += [*shared_gpus(config), *samples_from_other_weights(config)]
    if manifest.sandbox is not None and not manifest.sandbox.full:
        lines.append(isolation_warning(manifest.sandbox.isolation, manifest.sandbox.note))
    return lines


async def _run(
    config: RunConfig,
    loaded: LoadedTask,
    training: LoadedTask | None,
    shares: Sequence[Meter],
    directory: RunDirectory,
    console: Terminal,
    times: GpuTimes,
    *,
    of_sweep: bool,
) -> None:
    open_engines = partial(_engines, config, simulating(loaded, training), directory, times.clocks)
    async with open_effects(
        directory, config.sandbox, config.task.private_files, open_engines, config.engine.recorded
    ) as effects:
        progress = Progress(
            f"{config.method.name} on {config.task.name}",
            len(loaded.problems),
            config.method.last_step,
            effects.traffic,
            loaded.task.scores[0],
            about=_about(directory),
            trains=config.method.trains and not config.method.restarts,
            step_name=name_step(config.raw, trained=False),
        )
        gold = effects.models[GOLD]
        tools = GraderTools(effects.tests, gold, config.seed, config.task.sampling.judge_max_tokens)
        driver = Driver(
            method=config.method,
            loaded=loaded,
            models={role: model for role, model in effects.models.items() if role != GOLD},
            tools=tools,
            directory=directory,
            seed=config.seed,
            shares=shares,
            concurrency=config.run.concurrency,
            progress=progress,
            policy=effects.policy,
            redistribute=config.budget.redistribute,
            training=training,
        )
        shown = show_progress(
            progress, console, config.evorun.progress, directory.path / PROGRESS, title_first=not of_sweep
        )
        with shown:
            await driver.run()
            await effects.finish()
            progress.ending = "writing results"
            directory.finish_records([problem.id for problem in loaded.problems])
            gpus = times.add_up()
            directory.note_gpus(gpus)
            await asyncio.to_thread(
                write_results,
                directory.path,
                loaded.task.scores,
                driver.seconds_by_role,
                driver.wasted,
                config.method.last_step,
                tools.spent,
                driver.refused,
                shares[0].rates,
                effects.traffic.sequential,
                name_answering_models(config),
                {times.gpu: times.waiting for times in gpus},
            )
    log.info("%s; %s", progress.title, progress.fields())
    traffic = effects.traffic
    if traffic.replayed and directory.manifest is not None and directory.manifest.resumes:
        about = f"{display(directory.path)}: " if of_sweep else ""
        console.print(f"{about}{_describe_replayed(traffic)}", soft_wrap=True)


def _describe_replayed(traffic: Traffic) -> str:
    if not (traffic.tool_calls or traffic.replayed_tool_calls):
        return f"{traffic.replayed:,} calls came from the journal, {traffic.calls:,} are new"
    return (
        f"{traffic.replayed:,} calls and {traffic.replayed_tool_calls:,} tool calls came from the journal, "
        f"{traffic.calls:,} and {traffic.tool_calls:,} are new"
    )


def _about(directory: RunDirectory) -> dict[str, str]:
    """Return the model, engine and directory of a run for the progress display."""
    assert directory.manifest is not None  # noqa: S101 - the run has begun
    models = directory.manifest.models
    return {
        "model": "; ".join(
            f"{role}: {model.label}" if len(models) > 1 else model.label for role, model in models.items()
        ),
        "engine": ", ".join(dict.fromkeys(model.engine for model in models.values())),
        "run directory": display(directory.path),
    }


def _engines(
    config: RunConfig,
    loaded: LoadedTask,
    directory: RunDirectory,
    gpus: Mapping[int, BusyTime],
    tools: GradingTools,
) -> Engines:
    """Return the engine of each model role, and the trained policy; roles with equal models share an engine."""
    base = open_lazily(ServedModel(config.model, config.engine), serving(config), loaded, tools)
    policy: TrainedPolicy | None = None
    trained: LanguageModel | Trained = base
    reference: LanguageModel = base
    if config.training is not None:
        policy, trained, reference = _policy(config.engine, config, config.training, directory, base, loaded)
    engines: dict[str, LanguageModel | Trained] = {"policy": trained, "reference": reference}
    opened = [(ServedModel(config.model, config.engine), reference)]
    recorded, others = config.engine.recorded, dict(config.others)
    if recorded is not None and find_first_own_step(recorded) is not None:
        # a judge that is code would judge a fork's shared steps anew
        others |= {
            role: served._replace(engine=config.engine) for role, served in others.items() if served.engine.by_code
        }
    for role in (*OTHER_ROLES, *(judge for judge in others if judge not in OTHER_ROLES)):
        served = others.get(role, opened[0][0])
        known = next((engine for other, engine in opened if other == served), None)
        if known is None:
            known = open_lazily(served, served.engine, loaded, tools, find_engine_key(config.raw, role))
            opened.append((served, known))
        engines[role] = known
    engines_here = (*opened, (ServedModel(config.model, config.engine), base))
    for served, engine in engines_here:
        if isinstance(engine, LazyModel):
            engine.gpus = [gpus[device] for device in served.engine.planned_gpus if device in gpus]
    if isinstance(policy, Policy):
        policy.gpus = [gpus[device] for device in policy.training.devices or () if device in gpus]
        for served, engine in {id(engine): (served, engine) for served, engine in engines_here}.values():
            use = served.engine.gpu_use
            if use is not None and use.sleeps and isinstance(engine, LazyModel):
                policy.share_gpu_with(engine)
    own = (role for role in engines if role not in others)
    replayed = {role for role, served in others.items() if served.engine.replays}
    return Engines(engines, policy, replayed.union(own) if config.engine.replays else replayed)


class _Opened(NamedTuple):
    """A policy that is trained, and the models that answer for it."""

    policy: TrainedPolicy
    current: LanguageModel | Trained
    reference: LanguageModel


@singledispatch
def _policy(
    engine: EngineConfig,
    config: RunConfig,
    training: TrainingConfig,
    directory: RunDirectory,
    base: LazyModel,
    loaded: LoadedTask,
) -> _Opened:
    policy = open_policy(config, training, directory)
    # A trainer that holds the weights samples from them; other engines get each step's adapter or weights.
    if engine.is_trainer:
        return _Opened(policy, policy.current, policy.reference)
    if training.weights == "full" and not engine.replays:
        # The engine no longer has the untrained weights of the reference policy; the trainer does.
        return _Opened(policy, policy.replace_weights_of(base, transfer_of(config)), policy.reference)
    return _Opened(policy, policy.serve_via(base), base)


@_policy.register
def _(
    engine: SimulatedConfig,
    config: RunConfig,
    training: TrainingConfig,
    directory: RunDirectory,
    base: LazyModel,
    loaded: LoadedTask,
) -> _Opened:
    policy = open_simulated(engine, config, training, directory, base, loaded)
    return _Opened(policy, policy.current, base)


def _manifest(config: RunConfig, loaded: LoadedTask, command: Sequence[str], path: Path) -> Manifest:
    served = {"policy": ServedModel(config.model, config.engine), **config.others}
    task: Any = config.task
    return new_manifest(
        command=list(command),
        seed=config.seed,
        method=config.method.name,
        task=task.name,
        plugins=describe_plugins(
            method=config.method.name,
            **name_grading_parts(config.task),
            engine=config.engine.name,
            **({"judge": judge.engine.name} if (judge := config.others.get("judge")) else {}),
            reward=config.method.reward_source or "",
        ),
        models={role: in_manifest(model) for role, model in served.items()},
        regime=config.regime,
        votes=config.method.votes,
        sandbox=_sandbox(config, path),
        simulated=any(_is_simulated(engine) for _, engine in served.values()),
        provenance=msgspec.convert(loaded.provenance, Provenance, from_attributes=True),
        scores=loaded.task.scores,
        strata=loaded.task.strata,
        config=config.raw,
    )


def _sandbox(config: RunConfig, path: Path) -> SandboxInRun | None:
    """Return how the sandbox isolates programs; None when the run executes none. Raises SandboxError if it cannot."""
    if not config.task.uses_sandbox or config.engine.replays:
        return None
    # Probe before the run begins: a sandbox that fails closed must not stop it after hours of generation.
    found = probe(config.sandbox, [path, *config.task.private_files])
    if found.isolation == "none":
        raise SandboxError(found.note)
    return SandboxInRun(found.isolation, found.full, found.note)


def _is_simulated(engine: EngineConfig) -> bool:
    # A replay of a simulated run has no real model's text either.
    return engine.simulated if engine.recorded is None else load_manifest(engine.recorded).simulated
