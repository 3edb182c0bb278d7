"""Tournaments between runs: a judge compares their responses in pairs, and the outcomes give ratings.

The judge is asked once per distinct (prompt, first, second), through a journal. A repetition that draws it again, a
resume and a replay find the judgment there.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evorun.errors import ConfigError, DataError, RunDirectoryError
from evorun.models.base import Sampling
from evorun.models.config import ModelConfig, ServedModel
from evorun.runner.pair_judge import JUDGE, PairJudge
from evorun.runner.pairings import Entrant, TournamentSettings, draw_pairings, read_entrants
from evorun.runner.served import (
    SAME_AS_POLICY,
    find_engine_key,
    in_manifest,
    is_judge_by_code,
    open_lazily,
    read_engine,
    read_judge_by_code,
    require_engine,
    served_by,
)
from evorun.runner.task_loading import load_task
from evorun.runner.task_settings import read_sandbox, read_task
from evorun.runner.tournament_records import rated_matches, tournament_results, write_tournament
from evorun.runner.typed import read_name, typed
from evorun.runner.work import Engines, carry_out_study, open_effects
from evorun.runs.budget import BudgetConfig, Meter
from evorun.runs.directory import (
    TOURNAMENT,
    RunDirectory,
    describe_environment,
    list_differences,
    load_manifest,
    refuse_other_version,
)
from evorun.runs.files import reject_links
from evorun.runs.journal_file import JOURNAL
from evorun.runs.ownership import sign
from evorun.runs.paths import display
from evorun.runs.schema import Spent
from evorun.runs.terminal import Terminal
from evorun.runs.tournaments import TournamentManifest, TournamentResults, load_tournament, load_tournament_results
from evorun.sandbox.config import SandboxConfig
from evorun.tasks.base import LoadedTask, TaskConfig
from evorun.tasks.capabilities import SupportsJudging

JUDGE_MAX_TOKENS = 192
"""Default without a setting of the task: a letter and one sentence (ours, as in conf/method/duel_evolve.yaml)."""


@dataclass(frozen=True)
class Tournament:
    """A tournament, ready to be held."""

    config: Mapping[str, Any]
    """See `prepare`."""
    entrants: Sequence[Entrant]
    problems: Sequence[str]
    """Ids of the prompts in common."""
    loaded: LoadedTask
    private_files: Sequence[Path]
    """Of the task, hidden from programs that judge=oracle runs."""
    judge: ServedModel
    sandbox: SandboxConfig
    settings: TournamentSettings
    sampling: Sampling
    """Of each judgment."""
    meter: Meter
    simulated: bool
    identity: dict[str, Any]
    """See `TournamentManifest`."""


def prepare(config: Mapping[str, Any]) -> Tournament:
    """Read the runs, load the task and check that it can be judged. Raises ConfigError or DataError.

    config: `runs` (the folders by name), `tournament` (its settings), `judge`, `judge_engine` and `budget`; `task` and
    `sandbox` are those of the first run.
    """
    settings = typed(TournamentSettings, config["tournament"], "tournament")
    entrants, problems = read_entrants(list(config["runs"]), [Path(folder) for folder in config["runs"].values()])
    task = read_task(config)
    judge = _read_judge(config, task)
    if not issubclass(task.task_class, SupportsJudging):
        raise ConfigError(
            f"task={task.name}: expected a task whose responses a judge can compare, it has no judge_prompt"
        )
    require_engine(judge, config, JUDGE)
    loaded = load_task(task)
    known = {problem.id for problem in loaded.problems}
    missing = next((problem for problem in problems if problem not in known), None)
    if missing is not None:
        raise DataError(
            f"task={task.name}: expected the problems of {entrants[0].name}, '{missing}' is no longer among them; "
            "restore the data that it had"
        )
    simulated = judge.engine.simulated or judge.engine.knows_truth or _replays_a_simulator(judge.engine.recorded)
    simulated |= any(load_manifest(entrant.folder).simulated for entrant in entrants)
    limit = settings.judge_max_tokens or task.sampling.judge_max_tokens or JUDGE_MAX_TOKENS
    sampling = Sampling(temperature=settings.judge_temperature, max_tokens=limit)
    budget = typed(BudgetConfig, config["budget"], "budget")
    return Tournament(
        config=config,
        entrants=entrants,
        problems=problems,
        loaded=loaded,
        private_files=task.private_files,
        judge=judge,
        sandbox=read_sandbox(config, task),
        settings=settings,
        sampling=sampling,
        meter=Meter(budget.calls, budget.tokens),
        simulated=simulated,
        identity={
            "runs": dict(config["runs"]),
            "data": loaded.provenance.digest,
            "judge": judge.engine.judge_identity(judge.model),
            "seed": settings.seed,
            "judge_temperature": sampling.temperature,
            "judge_max_tokens": sampling.max_tokens,
        },
    )


def _read_judge(config: Mapping[str, Any], task: TaskConfig) -> ServedModel:
    """Return the judge on its engine. Raises ConfigError."""
    name = read_name(config, "judge")
    if name == SAME_AS_POLICY:
        raise ConfigError(f"judge: expected a model by name, got {name}: each run has its own")
    if is_judge_by_code(JUDGE, name):
        return read_judge_by_code(config, JUDGE, task)
    return served_by(ServedModel(typed(ModelConfig, config["judge"], "judge"), read_engine(config, "judge_engine")))


def _replays_a_simulator(run: Path | None) -> bool:
    return run is not None and (run / TOURNAMENT).exists() and load_tournament(run).simulated


def hold(tournament: Tournament, folder: Path, command: Sequence[str], console: Terminal) -> TournamentResults:
    """Hold a tournament in a folder, or continue it there; write its results and return them.

    Raises RunDirectoryError for the folder of another tournament, KeyboardInterrupt when it is stopped, and the errors
    that stop a run: EngineError, JournalError, ...
    """
    with contextlib.closing(RunDirectory(folder, key="folder")) as directory:
        manifest = _begin(tournament, folder, command)
        carry_out_study(directory, TOURNAMENT, manifest, lambda: _judge_all(tournament, directory, console))
    return load_tournament_results(folder)


def _begin(tournament: Tournament, folder: Path, command: Sequence[str]) -> TournamentManifest:
    """Return the manifest of a tournament that starts or continues in a folder. Raises RunDirectoryError."""
    reject_links(folder)
    fresh = TournamentManifest(
        **describe_environment(),
        command=list(command),
        task=tournament.loaded.task.name,
        runs=dict(tournament.config["runs"]),
        judge=in_manifest(tournament.judge),
        simulated=tournament.simulated,
        settings={
            **asdict(tournament.settings),
            "calls": tournament.meter.max_calls,
            "tokens": tournament.meter.max_tokens,
        },
        identity=tournament.identity,
        config=dict(tournament.config),
        signature=sign(tournament.config),
    )
    if not (folder / TOURNAMENT).exists():
        if any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise RunDirectoryError(f"{display(folder)}: expected an empty folder or that of this tournament")
        return fresh
    earlier = load_tournament(folder)
    refuse_other_version(folder, earlier.evorun_version)
    changed = list_differences(earlier.identity, fresh.identity)
    if changed:
        raise RunDirectoryError(f"{display(folder)} holds another tournament ({'; '.join(changed)})")
    if not (folder / JOURNAL).exists():
        raise RunDirectoryError(
            f"{display(folder / JOURNAL)} is missing, which held the judgments; restore it, or choose another folder"
        )
    fresh.started = earlier.started
    return fresh


async def _judge_all(tournament: Tournament, directory: RunDirectory, console: Terminal) -> None:
    """Ask for the judgments repetition by repetition, then write matches, judgments and results."""
    settings, loaded, served = tournament.settings, tournament.loaded, tournament.judge
    key = find_engine_key(tournament.config, JUDGE)
    drawn = draw_pairings(settings, len(tournament.entrants), tournament.problems)
    async with open_effects(
        directory,
        tournament.sandbox,
        tournament.private_files,
        lambda tools: Engines({JUDGE: open_lazily(served, served.engine, loaded, tools, key)}),
    ) as effects:
        judge = PairJudge(
            tournament.entrants,
            loaded,
            tournament.problems,
            effects.models[JUDGE],
            directory.journal,
            tournament.meter,
            sampling=tournament.sampling,
            seed=settings.seed,
        )
        complete = 0
        for number, repetition in enumerate(drawn, 1):
            whole = await judge.ask(repetition)
            console.print(
                f"repetition {number} of {len(drawn)}: {len(judge.judged):,} different judgments so far, "
                f"{effects.traffic.replayed:,} of them from the journal",
            )
            if not whole:
                break
            complete += 1
        await effects.finish()
    repetitions = rated_matches(judge, drawn, complete)
    results = tournament_results(tournament.entrants, tournament.problems, settings, judge, repetitions)
    results.cost = Spent(**tournament.meter.total.counts())
    if complete < len(drawn):
        results.ended_early = _ended_early(tournament.meter, len(judge.judged), complete, len(drawn))
    write_tournament(directory.path, tournament.entrants, judge, repetitions, results)


def _ended_early(meter: Meter, judgments: int, complete: int, planned: int) -> str:
    limits = {"calls": meter.max_calls, "tokens": meter.max_tokens}
    budget = " and ".join(f"{limit:,} {unit}" for unit, limit in limits.items() if limit is not None)
    over = f"the {complete} of them that are whole" if complete else "the part of the first that was judged"
    return (
        f"the budget of {budget} ended it in repetition {complete + 1} of {planned}, after {judgments:,} judgments: "
        f"Elo is over {over}; the same command with a larger budget and folder=FOLDER goes on"
    )
