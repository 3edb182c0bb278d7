"""Plans: what runs will cost and could show, before any is paid for."""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from evorun.errors import ConfigError, DataError
from evorun.models.config import ModelConfig, ServedModel
from evorun.models.devices import Gpu
from evorun.models.embedded import is_path
from evorun.models.requirements import require_config
from evorun.runner.call_counts import Part, count_tuning_calls, measure_conversations
from evorun.runner.estimates import (
    ESTIMATED,
    count_calls,
    count_problems,
    count_steps,
    count_training_tokens,
    limit_calls,
)
from evorun.runner.foreseen import list_unreached, predict_unevolved
from evorun.runner.gpu_plans import list_notes, plan_stages
from evorun.runner.memory import estimate_memory
from evorun.runner.plan_records import (
    Plan,
    PlannedArm,
    PlannedMemory,
    PlannedPlacement,
    PlannedRole,
    StageName,
    UncountedCalls,
    add_known,
)
from evorun.runner.planned_differences import plan_difference
from evorun.runner.planned_hours import plan_hours
from evorun.runner.planned_reach import count_all_calls, describe_reach, find_limit, reach_step
from evorun.runner.planned_roles import (
    RoleCalls,
    add_reward_calls,
    count_by_formula,
    count_by_trial,
    find_uncounted,
    plan_roles,
    plan_training,
)
from evorun.runner.planned_stages import PlannedStudent, describe_tuning, list_students
from evorun.runner.pricing import find_rates
from evorun.runner.recorded import Recorded, read_recorded
from evorun.runner.settings import RunConfig, check
from evorun.runner.task_loading import load_task
from evorun.runner.trials import Trial, try_out
from evorun.runs.configs import find_distinguishing_keys
from evorun.runs.directory import identity, iterate_differences
from evorun.runs.prices import find_rate, oldest_date
from evorun.runs.spending import GOLD
from evorun.simulation.engine import SPEED

_NAMED = frozenset({"task", "model", "engine"})
"""Groups whose choices are columns or parts of an arm's name."""
_STREAM = "engine.stream"
_SPEED = tuple(f"engine.{key}" for key in SPEED)


def make_plan(configs: Sequence[Mapping[str, Any]], outputs: Path, gpus: Sequence[Gpu] = ()) -> Plan:
    """Plan runs by their composed configurations; outputs: the folder of earlier runs. gpus: those to place them on.

    Raises ConfigError.
    """
    planner = _Planner(read_recorded(outputs))
    methods = {config["method"]["name"] for config in configs}
    arms = _add_settings(
        [
            *planner.plan_students(configs),
            *((planner.plan_arm(members, methods), members[0]) for members in _group_by_arm(configs)),
        ]
    )
    roles = [role for arm in arms for role in arm.roles]
    unknown = sorted(set[str]().union(*(arm.unpriced_models for arm in arms)))
    billed = [arm for arm in arms if arm.billed]
    oldest = min(
        (day for config in planner.configs if (day := oldest_date(find_rates(config))) is not None), default=None
    )
    return Plan(
        runs=sum(arm.runs for arm in arms),
        calls=sum(arm.calls for arm in arms),
        prompt_tokens=add_known([role.prompt_tokens for role in roles]),
        cached_tokens=add_known([role.cached_tokens for role in roles]),
        completion_tokens=sum(arm.completion_tokens for arm in arms),
        expected_completion_tokens=add_known([arm.expected_completion_tokens for arm in arms]),
        expected_price=None if unknown else add_known([arm.expected_price for arm in billed] or [None]),
        price=None if unknown else add_known([arm.price for arm in billed] or [None]),
        price_unknown=unknown,
        price_date=None if oldest is None else oldest.isoformat(),
        uncounted=sorted({calls for arm in arms for calls in arm.uncounted}),
        hours=add_known([arm.hours for arm in arms if arm.hours_by != "no_model"] or [None]),
        gpu_price=add_known([arm.gpu_price for arm in arms if arm.hours_by != "no_model"] or [None]),
        arms=arms,
        memory=_plan_memory(planner.configs),
        gpus=_plan_gpus(configs, gpus, planner.notes),
        notes=[*planner.notes, *_describe_reply_limits(configs)],
    )


def _describe_reply_limits(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say for each task on which methods' responses have different limits in tokens."""
    by_task: dict[str, dict[int, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for config in configs:
        if (limit := config["method"].get("max_tokens")) is not None:
            by_task[config["task"]["name"]][limit][config["method"]["name"]] = None
    return [
        f"Responses to {task} may be longer for some methods: "
        + "; ".join(f"{', '.join(methods)} {limit:,} tokens" for limit, methods in sorted(by_limit.items()))
        + f". task.sampling.max_tokens={min(by_limit)} is one limit for all."
        for task, by_limit in by_task.items()
        if len(by_limit) > 1
    ]


def _group_by_arm(configs: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the configurations that differ in their seed alone together."""
    by_arm: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for config in configs:
        by_arm[_without_seed(config)].append(config)
    return list(by_arm.values())


def _add_settings(planned: Sequence[tuple[PlannedArm, Mapping[str, Any]]]) -> list[PlannedArm]:
    """Return arms with the settings that tell each from others of its method and student; planned: with configurations.

    Where runs by a method have several students, or one and none, `student=laft` is the first setting.
    """
    alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    students: dict[tuple[Any, ...], set[tuple[str, ...]]] = defaultdict(set)
    for arm, config in planned:
        alike[arm.stage, arm.method, *arm.students].append(identity(config))
        students[arm.stage, arm.method].add(tuple(arm.students))
    settings = {}
    for group, configs in alike.items():
        listed = [_list_settings(config, configs) for config in configs]
        named = zip(listed, find_distinguishing_keys(listed), strict=True)
        # no size of a budget is the usual one, so each arm has its own in its name
        settings[group] = [
            [f"{key}={own[key]}" for key in own if key in keys or key == "budget"] for own, keys in named
        ]
    arms = []
    for arm, _ in planned:
        own = settings[arm.stage, arm.method, *arm.students].pop(0)
        if arm.stage is None and len(students[None, arm.method]) > 1:
            own = [*(f"student={name}" for name in arm.students), *own]
        arms.append(replace(arm, settings=own))
    return arms


def _list_settings(config: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings in which an arm differs from any other one, by key."""
    own = {key: value for other in others for key, value in _list_own(config, other)}
    # what an arm's other settings name, as `${arm:}` does
    return {key: own[key] for key in sorted(own) if key != _STREAM or len(own) == 1}


def _list_own(config: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the settings in which an arm differs from another one.

    Of a group in which another choice was made, that choice alone: `judge=gpt_4o`. Tables name task, model and engine,
    so of these groups it yields settings only where all three choices are the same.
    """
    chosen = {
        key: value["name"]
        for key, value in config.items()
        if isinstance(value, Mapping) and "name" in value and value["name"] != (other.get(key) or {}).get("name")
    }
    named = {"seed", *(_NAMED if chosen.keys() & _NAMED else ())}
    for key, value, _ in iterate_differences(config, other):
        group = key.partition(".")[0]
        if group in chosen:
            key, value = group, chosen[group]
        if group not in named and not key.startswith(_SPEED):
            yield key, value


def _without_seed(config: Mapping[str, Any]) -> str:
    return repr({key: value for key, value in config.items() if key != "seed"})


def _require_weights(config: RunConfig) -> list[str]:
    """Return notes on folders of models that are not here, but may be where the runs will be.

    Raises ConfigError for a model behind an API on an engine that loads weights: its price would seem to be none.
    Raises EngineError for one whose id or config.json is broken.
    """
    notes = []
    own = {"": ServedModel(config.model, config.engine)}
    for role, (model, engine) in {**own, **config.others}.items():
        if model.api and not engine.billed and engine.renders_prompts(model, trains=False):
            role = role.partition(".")[0]  # of a panel's judges
            key = f"{role}_engine" if role else "engine"
            raise ConfigError(
                f"{role or 'model'}={model.name}: a vendor serves it, and has not published weights that {key}="
                f"{engine.name} could load; did you mean {key}=openai or {key}=server?"
            )
        if engine.loads_weights and not model.embedded and not model.api:
            if is_path(model.id) and not Path(model.id).expanduser().exists():
                notes.append(f"Model {model.name}: no folder {model.id} is here; its runs will need one with weights.")
            else:
                require_config(model)
    return notes


class _Planner:
    """Plans arms by the same earlier runs, with one trial for those that ask alike."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._trials: dict[str, Trial | None] = {}
        self._of_teachers: dict[str, Trial | None] = {}
        """By task."""
        self.configs: list[RunConfig] = []
        """Of each arm."""
        self.notes: dict[str, None] = {}

    def plan_arm(self, members: Sequence[Mapping[str, Any]], methods: Collection[str]) -> PlannedArm:
        """Plan the runs of an arm. methods: of all arms, which it may be compared with."""
        config = self._check(members[0])
        problems, training = _count_problems(config)
        calls, trial, step = self._count(config, members[0], problems, training)
        tokens = None
        if config.method.name == "sft":
            method, tokens = config.raw["method"], count_training_tokens(config.raw, [])
            data = f"Fine-tuning: on {len(measure_conversations(method)):,} conversations of {method['data']}"
            self.notes[describe_tuning(config, data, tokens)] = None
        arm = self._make_arm(config, len(members), problems, calls, trial, last_step=step, tuned_tokens=tokens)
        unreached = list_unreached(config, problems, limit_calls(config.budget, problems))
        self.notes |= dict.fromkeys(unreached)
        difference = plan_difference(config, problems, len(members), self._recorded, methods)
        own_limit = find_limit(config.budget, "price", problems)
        return replace(
            arm,
            smallest_difference=difference.size,
            difference_note=difference.note,
            difference_pair=list(difference.pair),
            difference_to=dict(difference.by_method),
            reach=self._describe_reach(config, members[0], problems, training, trial),
            price_limit=None if own_limit is None else own_limit * len(members),
        )

    def _describe_reach(
        self, config: RunConfig, raw: Mapping[str, Any], problems: int, training: int | None, trial: Trial | None
    ) -> str | None:
        """Say what a budget lets one of an arm's runs reach; None where it ends none, or nobody knows."""
        if config.panel or not config.budget.limited:
            return None

        def plan_calls(parts: Sequence[Part], step: float | None) -> list[PlannedRole]:
            counted = add_reward_calls(config, count_by_formula(parts), trial, problems)
            return plan_roles(config, counted, 1, trial, self._recorded, problems, step)

        with contextlib.suppress(ConfigError):
            steps = count_steps(raw, problems, training)
            count = partial(count_calls, problems=problems, training=training)
            return describe_reach(raw, config.budget, problems, steps, plan_calls, count)
        return None

    def plan_students(self, configs: Sequence[Mapping[str, Any]]) -> list[tuple[PlannedArm, Mapping[str, Any]]]:
        """Plan the runs that make the students of these runs; those that differ in their seed alone are an arm.

        Return each arm with the configuration that tells it from others.
        """
        by_teacher: dict[str, list[PlannedStudent]] = defaultdict(list)
        for student in list_students(configs):
            by_teacher[_without_seed(student.teacher)].append(student)
        return [arm for students in by_teacher.values() for arm in self._plan_students(students)]

    def _plan_students(self, students: Sequence[PlannedStudent]) -> Iterator[tuple[PlannedArm, Mapping[str, Any]]]:
        """Plan the runs of students of one teacher."""
        raw = students[0].teacher
        teacher = self._check(raw)
        questions, training = _count_problems(teacher)
        calls, trial, _ = self._count(teacher, raw, questions, training)
        self._of_teachers[teacher.task.name] = trial
        if left := {repr(identity(student.teacher)) for student in students if student.recorded is None}:
            names = list(dict.fromkeys(student.name for student in students))
            yield self._make_arm(teacher, len(left), questions, calls, trial, "teacher", students=names), raw
        for folder in dict.fromkeys(student.recorded for student in students if student.recorded is not None):
            self.notes[f"A teacher's run is complete already and costs nothing: {folder}"] = None
        written = next((role_calls for role_calls in calls if role_calls.role == "generate"), None)
        answered, max_tokens = (0.0, 0.0) if written is None else (written.calls, written.max_tokens)
        by_tuning: dict[str, list[PlannedStudent]] = defaultdict(list)
        for student in students:
            by_tuning[repr((student.name, student.selection, _without_seed(student.tuning)))].append(student)
        for members in by_tuning.values():
            student = members[0]
            tuning = self._check(student.tuning)
            settings = tuning.raw["method"]
            responses = ceil(answered * student.kept_share)
            evaluations = count_by_formula([count_tuning_calls(settings, tuning.model.name, questions, responses)])
            tokens = settings["epochs"] * responses * min(max_tokens, settings["max_length"])
            arm = self._make_arm(
                tuning,
                len(members),
                questions,
                evaluations,
                trial,
                "student",
                tuned_tokens=tokens,
                students=[student.name],
            )
            taught_by = {"student": {**student.selection, "teaching": raw["method"]}, "teacher": raw["model"]}
            yield arm, {**student.tuning, **taught_by}
            data = f"Fine-tuning of student={student.name}: on at most {responses:,} responses of its teacher"
            self.notes[describe_tuning(tuning, data, tokens)] = None

    def _check(self, raw: Mapping[str, Any]) -> RunConfig:
        config = check(raw)
        self.notes |= dict.fromkeys(_require_weights(config))
        self.configs.append(config)
        return config

    def _count(
        self, config: RunConfig, raw: Mapping[str, Any], problems: int, training: int | None
    ) -> tuple[list[RoleCalls], Trial | None, float | None]:
        """Return the calls of one of an arm's runs by role, their trial, if there is any, and the last step they reach.

        The last step is in fractions of one, and None where nobody knows it.
        """
        parts = steps = step = None
        if not config.panel:  # the formulas count one judge
            with contextlib.suppress(ConfigError):
                count = partial(count_calls, problems=problems, training=training)
                parts, steps = count(raw), count_steps(raw, problems, training)
                calls = sum(part.calls for part in parts if part.role != GOLD)
                step = reach_step(config.method.name, steps, calls, count_all_calls(raw, count), problems)
        # simulated models are alike, whatever model they stand for, and seeds hardly differ
        alike = repr({key: value for key, value in raw.items() if key not in ("seed", "model", "engine")})
        if alike not in self._trials:
            each = None if parts is None else 1 if steps is None else steps.each
            self._trials[alike] = try_out(raw, problems, calls_per_step=each)
        trial = self._trials[alike]
        if trial is None and config.student is not None:  # nothing plays a student, whose prompts are its teacher's
            trial = self._of_teachers.get(config.task.name)
        if parts is not None:
            return add_reward_calls(config, count_by_formula(parts), trial, problems), trial, step
        if trial is None:
            raise ConfigError(
                f"method={config.method.name}: expected calls with a formula (docs/guides/costs.md), or a small run on "
                "simulated models, which cannot begin here; evorun doctor says what is missing"
            )
        return count_by_trial(trial, problems), trial, step

    def _make_arm(
        self,
        config: RunConfig,
        runs: int,
        problems: int,
        calls: Sequence[RoleCalls],
        trial: Trial | None,
        stage: StageName | None = None,
        last_step: float | None = None,
        tuned_tokens: float | None = None,
        students: Sequence[str] = (),
    ) -> PlannedArm:
        roles = plan_roles(config, calls, runs, trial, self._recorded, problems, last_step)
        if stage == "teacher":
            roles = [replace(role, model_role=stage) for role in roles]
        if trial is not None and trial.sample and any(role.prompt_by == "trial" for role in roles):
            self.notes[
                f"Prompts of {config.task.name} are those of evorun's sample: its data is not on this machine."
            ] = None
        rates, reward = find_rates(config), config.method.reward_source or ""
        uncounted = [
            UncountedCalls(role=role, reward=reward, billed=find_rate(rates, role) is not None)
            for role in find_uncounted(config, calls)
        ]
        planned = plan_hours(config, roles, runs, self._recorded, tuned_tokens)
        score = config.task.task_class.scores[0]
        return PlannedArm(
            stage=stage,
            students=list(students) if config.student is None else [config.student.name],
            method=config.method.name,
            task=config.task.name,
            model=config.model.name,
            engine=config.engine.choice,
            runs=runs,
            problems=problems,
            roles=roles,
            estimated=config.method.name in ESTIMATED
            or bool(config.raw["method"].get("dedup_attempts"))  # repeats are drawn again, nobody knows how often
            or any(role.calls_by == "trial" for role in roles),
            training=plan_training(config, roles, rates, runs, tuned_tokens),
            uncounted=uncounted,
            hours=planned.hours,
            hours_by=planned.source,
            hours_note=planned.note,
            gpu_price=planned.price,
            gpu_price_note=planned.price_note,
            gpu_price_unknown=planned.price_unknown,
            settings=[],
            smallest_difference=None,
            difference_note="",
            difference_pair=[],
            difference_to={},
            reach=None,
            price_limit=None,
            score=score.name,
            rate=score.rate,
            score_label=score.label,
        )


def _count_problems(config: RunConfig) -> tuple[int, int | None]:
    """Return the numbers of a run's problems and of those that it learns from; None where only settings state them."""
    try:
        loaded = load_task(config.task)
        return len(loaded.problems), len(loaded.training or loaded.validation)
    except DataError:  # not on this machine: the number that the configuration states
        train, test = count_problems(config.raw["task"])
        split = config.task.training_split
        trains = split is not None and config.raw["task"].get("split") == split
        return train if trains and train is not None else test, None


def list_shortfalls(
    configs: Sequence[Mapping[str, Any]], outputs: Path, seeds: int, smallest_effect: float
) -> list[str]:
    """Return a line for each reason why a study's runs may not answer its question; configs: one or more of each arm.

    outputs: see `make_plan`. Raises ConfigError.
    """
    recorded, lines = read_recorded(outputs), dict[str, None]()
    methods = {config["method"]["name"] for config in configs}
    for members in _group_by_arm(configs):
        config = check(members[0])
        problems, _ = _count_problems(config)
        difference = plan_difference(config, problems, seeds, recorded, methods).size
        if (never := predict_unevolved(config, limit_calls(config.budget, problems))) is not None:
            lines[never] = None
        if difference is not None and difference > smallest_effect:
            rate = config.task.task_class.scores[0].rate
            effect = f"{100 * smallest_effect:.1f} points" if rate else f"{smallest_effect:.3g}"
            shown = f"about {100 * difference:.1f} points" if rate else f"about {difference:.3g}"
            lines[
                f"The smallest effect of interest ({effect}) is less than what {problems:,} problems can show "
                f"({'not even 100 points' if rate and difference > 1 else shown}; evorun plan says by which "
                "assumptions). Expect an open answer, or give more problems."
            ] = None
    return list(lines)


def _list_served(config: RunConfig) -> list[ServedModel]:
    return [*config.others.values(), ServedModel(config.model, config.engine)]


def _plan_gpus(
    configs: Sequence[Mapping[str, Any]], gpus: Sequence[Gpu], notes: dict[str, None]
) -> list[PlannedPlacement]:
    """Return each different placement of the runs once; adds notes. Raises ConfigError for what does not fit."""
    found: list[PlannedPlacement] = []
    for members in _group_by_arm(configs) if gpus else ():
        config = check(members[0])
        planned, unknown = plan_stages(config, gpus)
        notes.update(dict.fromkeys([*unknown, *list_notes(planned, gpus)]))
        name = f"{config.method.name} on {config.task.name}"
        known = next((placement for placement in found if placement.parts == planned), None)
        if known is None and planned:
            found.append(PlannedPlacement(arms=[name], parts=planned))
        elif known is not None and name not in known.arms:
            known.arms.append(name)
    return found


def _plan_memory(configs: Sequence[RunConfig]) -> list[PlannedMemory]:
    local: dict[str, ModelConfig] = {}
    for served in (served for config in configs for served in _list_served(config)):
        engine = served.engine
        if not (engine.billed or engine.simulated or engine.replays or engine.knows_truth or served.model.random):
            local.setdefault(served.model.id, served.model)  # a student is its base model under an adapter
    return [estimate_memory(model) for model in local.values()]
