"""Builds what tests need: configs out of YAML, methods, tasks, contexts, drivers, runs. Only this file knows how.

Configs have the values of `conf/` beside those that a test names: no default of a dataclass is relied on.
"""

import copy
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from evorun.cli.compose import register, yaml_values
from evorun.cli.groups import config_folder
from evorun.cli.overrides import words
from evorun.cli.plain import plain
from evorun.methods.base import Method
from evorun.methods.context import Context
from evorun.models.config import OTHER_ROLES, EngineConfig, ModelConfig, ServedModel
from evorun.rollouts.calls import Role
from evorun.runner import registry
from evorun.runner.driver import Driver
from evorun.runner.settings import ProgramSettings, RunConfig, check
from evorun.runner.typed import typed
from evorun.runs.budget import BudgetConfig, Meter, divide_budget
from evorun.runs.directory import RunDirectory
from evorun.runs.effects import Traffic
from evorun.runs.progress import Progress
from evorun.runs.scores import ACCURACY
from evorun.tasks.base import Demonstration, LoadedTask, Problem, Provenance, Task, TaskConfig
from evorun.testing.runs import Run, carry_out
from evorun.training.config import TrainingConfig
from evorun.training.objectives import GradientSettings, ProximalSettings
from evorun.training.wire import Job, Objective, PolicyGradient, ProximalPolicy

MODEL_ROLES = ("policy", "reference", *OTHER_ROLES)

# --- configs ---


_register_once = cache(register)  # a quarter of the time of a composition; tests with plug-ins register them themselves


@cache
def composition(*overrides: str) -> DictConfig:
    """Return what a command line is composed to, its references not yet resolved."""
    _register_once()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def composed(*overrides: str) -> dict[str, Any]:
    """Return the configuration that a command line stands for, as plain data."""
    return plain(composition(*(word for override in overrides for word in words(override))))


def _schema(group: str, name: str) -> type:
    if group == "method":
        return registry.method_class(name).Config
    if group == "task":
        return registry.task_config_class(name)
    if group == "engine":
        return registry.engine_config_class(name)
    return {"budget": BudgetConfig, "training": TrainingConfig}[group]


_made: dict[tuple[str, str, str], Any] = {}


def make_config(group: str, name: str, /, **changes: Any) -> Any:
    """Return the typed config of `conf/<group>/<name>.yaml` with other values for some keys."""
    key = (group, name, repr(changes))
    if key not in _made:  # composing and checking take as long as many a test
        _made[key] = typed(_schema(group, name), {"name": name, **yaml_values(group, name), **changes}, group)
    return copy.deepcopy(_made[key])


def task_config(name: str, /, **changes: Any) -> Any:
    """Return the config of a task."""
    return make_config("task", name, **changes)


def training_config(**changes: Any) -> TrainingConfig:
    """Return how weights are trained: an adapter, unless a change says otherwise."""
    made: TrainingConfig = make_config("training", "lora", **changes)
    return made


def make_budget(**limits: int) -> BudgetConfig:
    """Return a budget with these limits and no other."""
    made: BudgetConfig = make_config("budget", "unlimited", **limits)
    return made


def make_run_config(
    method: Method, task: TaskConfig, engine: EngineConfig, judge_engine: EngineConfig, **changes: Any
) -> RunConfig:
    """Return the config of a run with a model `small` and a judge `large`."""
    values: dict[str, Any] = {
        **{"seed": 0, "method": method, "task": task, "budget": make_budget(), "raw": {"seed": 0}},
        **{"model": ModelConfig(name="small", id="small"), "engine": engine},
        "others": {"judge": ServedModel(ModelConfig(name="large", id="large"), judge_engine)},
        "evorun": ProgramSettings(progress="off"),
    }
    return RunConfig(**{**values, **changes})


def simulated_run(folder: Path, *words: str) -> Run:
    """Carry out in this process what the words after `evorun` stand for, on simulated models."""
    return carry_out(check(composed("engine=simulated", "evorun.progress=off", *words)), folder)


# --- methods and tasks ---


def make_method(name: str, /, **changes: Any) -> Any:
    """Return a method with the hyperparameters of its YAML, some of them changed."""
    of_name: Any = registry.method_class(name)
    return of_name(make_config("method", name, **changes))


def load_task(name: str, /, **changes: Any) -> LoadedTask:
    """Return a task of evorun's own with its problems."""
    loaded: LoadedTask = task_config(name, **changes).load()
    return loaded


def toy_task(
    task: Task,
    problems: Sequence[Problem],
    grader: Any,
    validation: Sequence[Demonstration] = (),
    split: str = "",
) -> LoadedTask:
    """Return a toy task with its problems; it has no simulator."""
    return LoadedTask(
        task=task,
        problems=problems,
        grader=grader,
        simulator=None,  # type: ignore[arg-type]
        provenance=Provenance(source="sample", description=split, digest=split),
        validation=validation,
    )


# --- what a method works in ---


class NoTools:
    """For tasks that run no programs."""

    async def test(self, program: Any, suite: Any, *, stop_at_failure: bool) -> Any:
        raise AssertionError("no program should be run")

    async def judge(self, prompt: Any, attempt: int = 0) -> Any:
        raise AssertionError("no judge should be asked")


async def no_journal(key: str, about: bytes, compute: Any, kind: Any, **more: Any) -> Any:
    """Carry an effect out: nothing is remembered."""
    return await compute()


def make_meter(calls: int | None = None) -> Meter:
    """Return a meter for one problem that may make so many calls (None: any number)."""
    return Meter(max_calls=calls)


def make_context(
    task: Task, problem: Problem, policy: Any = None, *, judge: Any = None, meter: Meter | None = None, seed: int = 0
) -> Context:
    """Return the context of one problem; without a judge, the policy judges too."""
    models = {**dict.fromkeys(MODEL_ROLES, policy), "judge": judge or policy}
    roles = dict.fromkeys(("judge", "fitness", "errors"), Role("judge"))
    return Context(
        task=task,
        problem=problem,
        seed=seed,
        meter=meter or Meter(),
        models=models,
        roles=roles,
        remember=no_journal,
        tools=NoTools(),
    )


def no_progress(problems: int = 1) -> Progress:
    """Return a count of progress that nothing shows."""
    return Progress("test", problems, None, Traffic(), ACCURACY)


def make_driver(
    method: Method,
    loaded: LoadedTask,
    directory: RunDirectory,
    model: Any,
    *,
    budget: BudgetConfig | None = None,
    seed: int = 0,
    concurrency: int = 8,
    policy: Any = None,
    training: LoadedTask | None = None,
    others: dict[str, Any] | None = None,
) -> Driver:
    """Return a driver of a method over a task's problems, once the method has checked that it can have them.

    others: models of roles that `model` does not play.
    """
    method.check(type(loaded.task), [example.problem for example in loaded.validation])
    return Driver(
        method=method,
        loaded=loaded,
        models=dict.fromkeys(MODEL_ROLES, model) | (others or {}),
        tools=NoTools(),
        directory=directory,
        seed=seed,
        shares=divide_budget(budget or make_budget(), len(loaded.problems)),
        concurrency=concurrency,
        progress=no_progress(len(loaded.problems)),
        policy=policy,
        redistribute=(budget or make_budget()).redistribute,
        training=training,
    )


def policy_gradient(**changes: Any) -> PolicyGradient:
    """Return what a trainer is told that makes a step a batch."""
    values: dict[str, Any] = {
        **{"loss": "dr_grpo", "steps": 3, "minibatches": 1, "kl": 0.0},
        **{"clip_low": 0.2, "clip_high": 0.2, "temperature": 1.0},
        **changes,
    }
    own = {name: values.pop(name) for name in ("loss", "steps", "temperature")}
    return PolicyGradient(settings=GradientSettings(**values), **own)


def proximal_policy(**changes: Any) -> ProximalPolicy:
    """Return what a trainer is told that makes a step a batch, with a critic."""
    values: dict[str, Any] = {
        **{"steps": 3, "epochs": 1, "minibatches": 1, "kl": 0.05, "kl_estimator": "k1", "gamma": 1.0},
        **{"gae_lambda": 0.95, "clip": 0.2, "value_clip": 0.2, "value_weight": 0.1, "whiten": True},
        **{"score_at": "last", "critic": "head", "popart": None, "reset_critic": False, "temperature": 1.0},
        **{"missing_eos_penalty": None, **changes},
    }
    own = {name: values.pop(name) for name in ("steps", "temperature")}
    return ProximalPolicy(settings=ProximalSettings(**values), **own)


def make_job(model: Path, folder: Path, training: TrainingConfig, objective: Objective, /, **changes: Any) -> Job:
    """Return what a trainer process without a run is told."""
    values: dict[str, Any] = {
        **{"socket": "", "model": ModelConfig(name="tiny", id=str(model), context_length=256), "weights": str(model)},
        **{"training": training, "objective": objective, "seed": 3, "folder": str(folder), "checkpoint": None},
        **{"device": "cpu", "max_batch_size": 32, "prefix_cache_tokens": 32768},
    }
    return Job(**{**values, **changes})
