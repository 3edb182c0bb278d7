"""`evorun plan`: what a run, a sweep or an experiment will cost and could show, before it is paid for."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from evorun.cli import slurm_launcher
from evorun.cli.composed_jobs import compose_jobs, compose_launcher, compose_runs, describe_variants_on_top
from evorun.cli.explain import advise_on_setter
from evorun.cli.options import MAX_PRICE, split_gpus, split_max_price
from evorun.cli.output import JSON, print_json
from evorun.errors import ConfigError
from evorun.models.devices import Gpu, find_gpus, read_inventory
from evorun.reports import text
from evorun.reports.tables import Cell, Table, figure_columns, word_columns
from evorun.runner.gpu_plans import make_gpu_table
from evorun.runner.plan_records import Plan, PlannedArm, PlannedMemory, PlannedRole, UncountedCalls, add_known
from evorun.runner.planned_differences import OF_EARLIER_RUNS
from evorun.runner.planned_hours import CARD, CARD_GIB
from evorun.runner.planner import USABLE, count_holders
from evorun.runner.plans import list_shortfalls, make_plan
from evorun.runs.formats import counted
from evorun.runs.scores import Score
from evorun.runs.stated_studies import StatedStudy, record_study
from evorun.runs.terminal import Terminal

_log = logging.getLogger(__name__)

OUTPUTS = Path("outputs")
"""Folder of earlier runs."""
_COMPLETION = "completion\n(limit)"


def plan(arguments: Sequence[str], console: Terminal) -> int:
    """Print the plan of the runs that the arguments stand for. Raises ConfigError, also for one beyond its price."""
    words, limit = split_max_price([word for word in arguments if word != JSON])
    words, inventory = split_gpus(words)
    gpus = find_gpus() if inventory is None else read_inventory(inventory)
    study = _read_study(words)
    configs = compose_jobs(words if study is None else compose_runs(study))
    try:
        made = make_plan(configs, OUTPUTS, gpus)
    except ConfigError as error:
        raise ConfigError(_advise(str(error), words)) from error
    if study is None and (on_top := describe_variants_on_top(words)) is not None:
        made = replace(made, notes=[f"{on_top}.", *made.notes])
    submission = _describe_submission(words, len(configs))
    if JSON in arguments:
        print_json(msgspec.to_builtins(replace(made, notes=[*made.notes, *submission])))
    else:
        print_plan(made, console, gpus)
        for line in submission:
            console.print(line, soft_wrap=True)  # a command to copy
        if study is not None:
            warn_of_study(study, configs, console)
    if limit is not None:
        refuse_price(made, limit)
    return 0


def _describe_submission(words: Sequence[str], jobs: int) -> list[str]:
    """Return a line with the command that submits the jobs to SLURM, where the words say so. Raises ConfigError."""
    if not any(word.startswith(("hydra/launcher=", "experiment=")) for word in words):
        return []
    settings = compose_launcher(words)
    if settings["_target_"] != slurm_launcher.TARGET:
        return []
    return [f"SLURM: {counted(jobs, 'job')} as one array: {slurm_launcher.describe_submission(settings, jobs)}"]


def _advise(text: str, words: Sequence[str]) -> str:
    """Return an error of planned runs, as `advise_on_setter`."""
    experiment = next((word.partition("=")[2] for word in words if word.startswith("experiment=")), None)
    return text if experiment is None else advise_on_setter(text, experiment, words)


def _read_study(arguments: Sequence[str]) -> StatedStudy | None:
    """Return the study of `plan FILE.yaml`; None for other arguments. Raises ConfigError."""
    given = next((word.partition("=")[2] for word in arguments if word.startswith("study=")), None)
    if given is not None:
        raise ConfigError(f"study={given}: expected a study file by itself; did you mean evorun plan {given}?")
    if not arguments or not arguments[0].endswith((".yaml", ".yml")) or "=" in arguments[0]:
        return None
    if len(arguments) > 1:
        raise ConfigError(f"{arguments[1]}: expected nothing after {arguments[0]}, which states all that has a price")
    return record_study(Path(arguments[0])).study


def warn_of_study(study: StatedStudy, configs: Sequence[Mapping[str, Any]], console: Terminal) -> None:
    """Say why a study's runs may not answer its question, if they may not; configs: see `list_shortfalls`.

    Raises ConfigError.
    """
    for line in list_shortfalls(configs, OUTPUTS, len(study.seeds), study.smallest_effect):
        console.print(line)


def require_max_price(configs: Sequence[Mapping[str, Any]], limit: float) -> None:
    """Raise ConfigError where runs with these configurations may cost more than a limit in dollars."""
    refuse_price(make_plan(configs, OUTPUTS), limit)


def refuse_price(made: Plan, limit: float) -> None:
    """Raise ConfigError where a plan's price, of tokens and GPUs together, is above the limit in dollars, or unknown.

    An unknown price of GPUs is a warning, since many users pay for none.
    """
    most = text.dollars(limit)
    if billed := [calls for calls in made.uncounted if calls.billed]:
        raise ConfigError(
            f"{MAX_PRICE}: expected at most {most}, {_describe_uncounted(billed[0])} cannot be counted; limit what the "
            "run itself may cost: budget.price"
        )
    if made.price is None and any(arm.billed for arm in made.arms):
        unknown = ", ".join(made.price_unknown)
        raise ConfigError(f"{MAX_PRICE}: expected at most {most}, the price of {unknown} is unknown; see prices=FILE")
    of_tokens = _limit_price(made)
    of_gpus = sum(arm.gpu_price or 0.0 for arm in made.arms)
    if of_tokens + of_gpus > limit:
        parts = f" ({text.dollars(of_tokens)} for tokens, {text.dollars(of_gpus)} for GPUs)"
        of_parts = parts if of_tokens and of_gpus else " for GPUs" if of_gpus else ""
        expected = (
            f", {text.dollars(made.expected_price)} of tokens expected" if made.expected_price is not None else ""
        )
        advice = "give your price of GPUs: prices=FILE" if of_gpus else "set budget.price"
        raise ConfigError(
            f"{MAX_PRICE}: expected at most {most}, the plan says {text.dollars(of_tokens + of_gpus)}{of_parts} where "
            f"each completion is as long as its limit{expected}; raise it, lower task.limit, or {advice}"
        )
    if unpriced := sorted({arm.model for arm in made.arms if arm.gpu_price_unknown}):
        _log.warning(
            "%s counts no price of GPUs for %s: %s; see prices=FILE, and evorun plan",
            MAX_PRICE,
            ", ".join(unpriced),
            "their hours or the price of an hour are unknown",
        )


def _limit_price(made: Plan) -> float:
    """Return the upper bound of a plan's price in dollars, which budgets of its arms may lower."""
    prices = [(arm.price or 0.0, arm.price_limit) for arm in made.arms]
    return sum(price if most is None else min(price, most) for price, most in prices)


def print_plan(made: Plan, console: Terminal, gpus: Sequence[Gpu] = ()) -> None:
    """Print a plan as tables and lines. gpus: those that it places the runs on."""
    console.print_table(_make_table(made).to_rich())
    roles = _make_role_table(made)
    if len(roles.rows) > 1:
        console.print()
        console.print_table(roles.to_rich())
    for placement in made.gpus:
        console.print()
        of = ", ".join(placement.arms) if len(made.gpus) > 1 else ""
        console.print_table(make_gpu_table(placement.parts, gpus, of).to_rich())
    lines = [
        _describe_tokens(made),
        *(
            f"In no figure: {_describe_uncounted(calls)}, since a small simulated run made none."
            for calls in made.uncounted
        ),
        *_describe_training(made),
        *_describe_price(made),
        *dict.fromkeys(_describe_reach(arm, made) for arm in made.arms if arm.reach is not None),
        *_describe_hours(made),
        *(_describe_memory(model) for model in made.memory),
        *_describe_differences([arm for arm in made.arms if arm.stage is None and arm.model != "random"]),
        *made.notes,
    ]
    if any(OF_EARLIER_RUNS in line for line in lines):
        lines.append(f"Earlier runs are read below {OUTPUTS}/ of the folder in which evorun plan is called.")
    for line in lines:
        console.print(line)


def _make_table(made: Plan) -> Table:
    billed = any(arm.billed for arm in made.arms)
    timed = any(arm.hours is not None for arm in made.arms)
    table = Table(
        [
            *word_columns("arm"),
            *figure_columns("runs", "problems", format=text.count),
            *figure_columns("calls", "prompt", _COMPLETION, format=_compact),
            *(figure_columns("price", format=text.dollars) if billed else []),
            *figure_columns(*_name_expected(made), format=_compact),
            *(figure_columns("hours", format=_show_hours) if timed else []),
        ],
        title="plan: runs of each arm together, tokens of prompts and completions",
        total=len(made.arms) if len(made.arms) > 1 else None,
    )
    for arm, name in zip(made.arms, _name_arms(made.arms), strict=True):
        price = ("unknown" if arm.price is None else arm.price) if arm.billed else None
        row: list[Cell] = [name, arm.runs, arm.problems, arm.calls, arm.prompt_tokens, arm.completion_tokens]
        row += [price] if billed else []
        row += _list_expected(made, arm.expected_completion_tokens)
        table.rows.append([*row, *([arm.hours] if timed else [])])
    if len(made.arms) > 1:
        price = "unknown" if made.price is None else made.price
        row = ["total", made.runs, None, made.calls, made.prompt_tokens, made.completion_tokens]
        expected = _list_expected(made, made.expected_completion_tokens)
        table.rows.append([*row, *([price] if billed else []), *expected, *([_total_hours(made)] if timed else [])])
    return table


def _name_arms(arms: Sequence[PlannedArm]) -> list[str]:
    """Return a name for each arm: what differs between arms that were asked for, and its own settings.

    A stage is named by the students that it serves, with its task and model where these differ between such stages.
    """
    stand_ins = {arm.model for arm in arms if arm.stage is None and _stands_in(arm)}
    parts = [
        {
            "method": arm.method,
            "task": arm.task,
            "model": "simulated" if _stands_in(arm) and len(stand_ins) == 1 else _name_model(arm),
            "engine": arm.engine,
        }
        for arm in arms
    ]
    names = []
    for arm, own in zip(arms, parts, strict=True):
        alike = [
            others
            for other, others in zip(arms, parts, strict=True)
            if other.stage == arm.stage and (arm.stage is None or other.students == arm.students)
        ]
        varying = [word for part, word in own.items() if len({others[part] for others in alike}) > 1]
        settings = [setting.removeprefix("method.") for setting in arm.settings]
        names.append(", ".join([*_name_stage(arm), *varying, *settings]) or arm.method)
    return names


def _name_stage(arm: PlannedArm) -> list[str]:
    """Return what an arm is for the students that it serves; nothing for one that was asked for."""
    students = ", ".join(arm.students)
    return [] if arm.stage is None else [f"teacher of {students}" if arm.stage == "teacher" else f"student {students}"]


def _name_model(arm: PlannedArm) -> str:
    """Return the name of an arm's model, without that of a student that its settings name."""
    student = next((name for name in arm.students if f"student={name}" in arm.settings), None)
    return arm.model if student is None else arm.model.removesuffix(f"-{student}")


def _stands_in(arm: PlannedArm) -> bool:
    """Return whether a simulated model answers in place of the arm's model, whose name then decides no answer."""
    return arm.engine == "simulated" and arm.model != "random"


def _name_expected(made: Plan) -> list[str]:
    """Return the heading of the expected completion tokens, where earlier runs tell any."""
    known = any(role.expected_completion_tokens is not None for arm in made.arms for role in arm.roles)
    return ["expected completion"] if known else []


def _list_expected(made: Plan, tokens: int | None) -> list[Cell]:
    return [tokens for _ in _name_expected(made)]


def _make_role_table(made: Plan) -> Table:
    """Return calls, tokens and price by the role of the model that answers, all arms together."""
    billed = any(arm.billed for arm in made.arms)
    by_role: dict[tuple[str, str], list[PlannedRole]] = {}
    for role in (role for arm in made.arms for role in arm.roles):
        by_role.setdefault((role.model_role, role.model), []).append(role)
    table = Table(
        [
            *word_columns("role", "model"),
            *figure_columns("calls", "prompt", _COMPLETION, format=_compact),
            *(figure_columns("price", format=text.dollars) if billed else []),
            *figure_columns(*_name_expected(made), format=_compact),
        ],
        title="plan by role: all arms together",
    )
    for (name, model), roles in by_role.items():
        prompt = add_known([role.prompt_tokens for role in roles])
        counts: list[Cell] = [sum(role.calls for role in roles), prompt, sum(role.completion_tokens for role in roles)]
        price = add_known([role.price for role in roles if role.billed])
        of_role: Cell = ("unknown" if price is None else price) if any(role.billed for role in roles) else None
        expected = _list_expected(made, add_known([role.expected_completion_tokens for role in roles]))
        table.rows.append([name, model, *counts, *([of_role] if billed else []), *expected])
    return table


def _compact(value: float | None) -> str:
    return f"{value / 1e9:,.3g}\u00a0G" if value is not None and value >= 1e9 else text.compact(value)


def _describe_tokens(made: Plan) -> str:
    roles = [role for arm in made.arms for role in arm.roles]
    by = {
        "Calls": (
            "calls_by",
            {"formula": _describe_calls(made), "trial": "about, by a small simulated run, scaled by problems"},
        ),
        "prompts": (
            "prompt_by",
            {
                "recorded": "as in earlier runs",
                "trial": "by step, as in a small simulated run",
                "unknown": "unknown",
            },
        ),
    }
    parts = [
        f"{name}: {'; others '.join(dict.fromkeys(words[getattr(role, field)] for role in roles))}"
        for name, (field, words) in by.items()
    ]
    expected = "; expected: as long as in earlier runs" if _name_expected(made) else ""
    return f"{'; '.join([*parts, 'completions: each as long as its limit, far more than most take'])}{expected}."


def _describe_calls(made: Plan) -> str:
    """Say how far the calls of formulas are a bound: repeats of texts that do not parse come on top of them."""
    formulas = {arm.method: arm.estimated for arm in made.arms if any(role.calls_by == "formula" for role in arm.roles)}
    estimated = [method for method, about in formulas.items() if about]
    said = "about, by formula" if len(estimated) == len(formulas) else "by formula, at most"
    about = f" (of {', '.join(estimated)} about)" if 0 < len(estimated) < len(formulas) else ""
    return f"{said}{about}, and retries (method.retries) of texts that do not parse"


def _describe_reach(arm: PlannedArm, made: Plan) -> str:
    asked = [other for other in made.arms if other.stage is None]
    task = [arm.task] if len({other.task for other in asked}) > 1 else []
    settings = [setting.removeprefix("method.") for setting in arm.settings]
    return f"{', '.join([arm.method, *task, *settings]) if len(asked) > 1 else 'Budget'}: {arm.reach}."


def _describe_uncounted(calls: UncountedCalls) -> str:
    return f"calls as {calls.role} of method.reward_source={calls.reward}"


def _describe_training(made: Plan) -> list[str]:
    """Return a line on the tokens of updates that a vendor bills."""
    training = [arm for arm in made.arms if arm.training is not None]
    updates = [arm.training for arm in training if arm.training is not None]
    if not updates:
        return []
    if (tokens := add_known([training.trained_tokens for training in updates])) is None:
        return ["Trained tokens: unknown, since those of prompts are."]
    price = add_known([training.price for training in updates])
    of_price = "" if price is None else f", {text.dollars(price)} of the price"
    if any(arm.method == "sft" for arm in training):  # by the characters of its conversations
        return [f"Trained tokens: about {_compact(tokens)}{of_price}."]
    return [f"Trained tokens: at most {_compact(tokens)}, each rollout with its prompt once{of_price}."]


def _describe_price(made: Plan) -> list[str]:
    if not any(arm.billed for arm in made.arms):
        return ["Price: no vendor bills these engines by tokens."]
    if made.price_unknown:
        untold = any(arm.training is not None and arm.training.trained_tokens is None for arm in made.arms)
        advice = "" if untold else "; give it with prices=FILE"
        return [f"Price: unknown for {', '.join(made.price_unknown)}{advice}."]
    expected = f", {text.dollars(made.expected_price)} expected" if made.expected_price is not None else ""
    most = "about" if any(arm.estimated for arm in made.arms if arm.billed) else "at most"
    bound = f"{most} {text.dollars(made.price)} without retries{expected}, by prices of {made.price_date} and later"
    limited = _limit_price(made)
    budget = f"; budget.price ends runs at about {text.dollars(limited)}" if limited < (made.price or 0.0) else ""
    return [f"Price: {bound}{budget}."]


def _describe_hours(made: Plan) -> list[str]:
    """Return a line for each source of hours, of its arms together, with the price of their GPUs."""
    by_note: dict[str, list[PlannedArm]] = {}
    for arm in made.arms:
        by_note.setdefault(arm.hours_note, []).append(arm)
    lines, prices = list[str](), list[float]()
    names = dict(zip(map(id, made.arms), _name_arms(made.arms), strict=True))
    for note, arms in by_note.items():
        hours = add_known([arm.hours for arm in arms])
        about = "unknown" if hours is None else f"about {_show_hours(hours)}"
        first, *others = dict.fromkeys(names[id(arm)] for arm in arms)
        named = "; ".join([first, *(others if len(others) == 1 else [f"{len(others)} more"] if others else [])])
        of = f" of {named}" if len(by_note) > 1 else ""
        lines.append(f"Hours{of}: {about}, {note}.")
        price = add_known([arm.gpu_price for arm in arms])
        if price is not None:
            prices.append(price)
            lines.append(f"Price of GPUs: about {text.dollars(price)} in these hours, at {arms[0].gpu_price_note}.")
    if len(prices) > 1:
        lines.append(f"Price of GPUs together: about {text.dollars(sum(prices))}.")
    return lines


def _total_hours(made: Plan) -> Cell:
    """Return the hours of all arms; where those of some are unknown, that of the others, and which are left out."""
    names = zip(made.arms, _name_arms(made.arms), strict=True)
    unknown = [name for arm, name in names if arm.hours is None and arm.hours_by != "no_model"]
    known = [arm.hours for arm in made.arms if arm.hours is not None]
    if not unknown or not known:
        return made.hours
    return f"{_show_hours(sum(known))} without {_name_few(unknown)}"


def _name_few(arms: Sequence[str]) -> str:
    """Return the name of a single arm, else the number of arms."""
    return arms[0] if len(arms) == 1 else f"{len(arms)} arms"


def _show_hours(hours: Cell) -> str:
    if isinstance(hours, str):
        return hours
    return text.duration(None if hours is None else 3600 * hours)


def _describe_memory(memory: PlannedMemory) -> str:
    weights = "weights unknown" if memory.weights_gib is None else f"weights {memory.weights_gib:.1f} GiB"
    cache = "keys and values unknown, since no config.json of it is here"
    if memory.cache_gib_per_1000_tokens is not None:
        whole = memory.cache_gib_per_context
        cache = f"keys and values {memory.cache_gib_per_1000_tokens:.2f} GiB per 1,000 tokens"
        cache += f" ({whole:.1f} GiB for a context of {memory.context_length:,})"
    usable, parts = USABLE * CARD_GIB, ""
    if memory.weights_gib is not None and memory.weights_gib > usable:
        number = count_holders(memory.weights_gib, usable)
        parts = f"; {number} {CARD} of {CARD_GIB} GB or more for the weights alone"
    return f"Memory of {memory.model}: {weights}, {cache}{parts}."


def _describe_differences(arms: Sequence[PlannedArm]) -> list[str]:
    """Return a line for each task, score, and number of problems and seeds: the difference by pairs of the methods."""
    alike: dict[tuple[str, str, int, int], list[PlannedArm]] = {}
    for arm in arms:
        alike.setdefault((arm.task, arm.score, arm.problems, arm.runs), []).append(arm)
    lines = []
    for (task, score, problems, runs), members in alike.items():
        name = text.name_score(Score(score, label=members[0].score_label))
        about = f"Smallest difference in {name} on {task}, {problems:,} problems x {counted(runs, 'seed')}"
        known = [arm for arm in members if arm.smallest_difference is not None]
        if not known:
            lines.append(f"{about}: unknown, {members[0].difference_note}.")
            continue
        known.sort(key=lambda arm: (bool(arm.difference_pair), arm.smallest_difference or 0.0))
        of_pairs = {
            tuple(sorted((arm.method, other))): size for arm in members for other, size in arm.difference_to.items()
        }
        by_size = sorted(of_pairs, key=lambda pair: of_pairs[pair])
        ends = [(of_pairs[pair], pair) for pair in dict.fromkeys((by_size[0], by_size[-1]))] if by_size else []
        sizes = ends or [(arm.smallest_difference or 0.0, ()) for arm in (known[0], known[-1])]
        size = " to ".join(dict.fromkeys(_describe_size(members[0].rate, *of_pair) for of_pair in sizes))
        lines.append(f"{about}: {size} (paired test at .05, power .8; {known[-1].difference_note}).")
    return lines


def _describe_size(rate: bool, size: float, pair: Sequence[str]) -> str:
    if rate and size > 1:
        return "none, not even 100 points"
    said = f"{100 * size:.1f} points" if rate else f"{size:.3g}"
    return f"{said} between {' and '.join(pair)}" if pair else said
