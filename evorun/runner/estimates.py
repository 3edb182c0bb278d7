"""Closed forms of what a run costs: model calls, completion tokens and GPU hours, of the composed configuration.

Nothing runs. No call is repeated, and each completion is as long as its limit, so tokens and hours are upper bounds but
for repeats. docs/guides/costs.md has the formulas.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from evorun.errors import ConfigError
from evorun.methods.islands.paradigms import PARADIGM
from evorun.methods.islands.scratchpad import INSIGHTS, RECOMMEND, SUMMARY
from evorun.methods.islands.settings import IslandsConfig
from evorun.methods.lyria.lyria import LyriaConfig
from evorun.methods.mpo.refinement_settings import TOKENS_PER_WORD
from evorun.methods.search.pdr import PdrConfig
from evorun.methods.search.proposals import MIN_SAMPLES
from evorun.methods.search.squeeze_evolve import SqueezeEvolveConfig, count_groups
from evorun.methods.tree.ab_mcts import AbMcts, AbMctsConfig
from evorun.rollouts.rubric_settings import DIGIT_TOKENS
from evorun.runner import registry
from evorun.runner.gold import MAX_TOKENS as GOLD_TOKENS
from evorun.runner.student import teacher_composition
from evorun.runner.typed import typed
from evorun.runs.budget import BudgetConfig
from evorun.runs.roles import GENERATE, GENERATORS
from evorun.simulation.engine import CHARACTERS_PER_TOKEN
from evorun.training.conversations import count_examples, read_split

PEAK = 989e12
"""FLOP per second of an H100 SXM in bfloat16, by its data sheet."""
DECODING, TRAINING = 0.10, 0.30
"""Assumed shares of the peak: of decoding in large batches, and of training."""
DECODING_BY_TRANSFORMERS = 0.01
"""The same of decoding by transformers (ours): its batches are smaller, and it launches every kernel by itself."""
BILLIONS = {
    "qwen2_1_5b": 1.5,
    "llama3_2_3b": 3.2,
    "phi3_mini_128k": 3.8,
    "gemma3_4b": 4.3,
    "mistral_7b": 7.2,
    "qwen2_5_7b": 7.6,
    "llama3_1_8b": 8.0,
    "gemma3_27b_w4a16": 27.4,
    "qwen2_5_32b": 32.8,
    "qwen2_5_32b_awq": 32.8,
    "qwen2_5_72b_awq": 72.7,
    "deepseek_v3_1": 37.0,  # of 671
    "gpt_oss_120b": 5.1,  # of 117
}
"""Billions of parameters that a token passes, by the models' cards; a model behind an API has no entry."""
SPLITS = {"essay": (26_013, 4_096), "billsum": (18_949, 4_500), "ethics": (13_000, 4_736), "search_qa": (196, 64)}
"""Training and test problems where the configuration gives no sizes: MPO's section 3.2 and appendix K, E-SPL's 4."""
ITEMS = 9
"""Assumed items of a refined rubric: the most in MPO's appendix J.2."""


class Part(NamedTuple):
    """Calls of one role."""

    role: str
    model: str
    calls: float
    max_tokens: int


@dataclass
class Cost:
    """The cost of some runs; `hours` are those of one H100."""

    runs: int = 0
    calls: float = 0.0
    tokens: float = 0.0
    hours: float = 0.0
    unsized: set[str] = field(default_factory=set)
    """Models without an entry in `BILLIONS`, whose calls are not in the hours."""

    def add(self, parts: Sequence[Part]) -> None:
        """Add calls to models."""
        for part in parts:
            self.calls += part.calls
            self.tokens += part.calls * part.max_tokens
            self.hours += hours(2, part.model, part.calls * part.max_tokens, DECODING)
            if part.calls and part.model not in BILLIONS:
                self.unsized.add(part.model)

    def describe_hours(self) -> str:
        """Say the hours of one H100, and of which models they are unknown: of a server's own, or of another size."""
        unknown = f"unknown for {', '.join(sorted(self.unsized))}"
        known = f"{self.hours:,.1f} hours of an H100"
        return known if not self.unsized else f"{known}, {unknown}" if self.hours else f"hours of an H100 {unknown}"


def hours(flop: float, model: str, tokens: float, share: float) -> float:
    """Return hours of one H100 for tokens that take `flop` FLOP per parameter each."""
    return flop * BILLIONS.get(model, 0.0) * 1e9 * tokens / (PEAK * share) / 3600


def name_model(config: Mapping[str, Any], role: str) -> str:
    """Return the name of a role's model, which is the policy's unless another is given."""
    name: str = (config.get(role) or {"name": "policy"})["name"]
    return config["model"]["name"] if name == "policy" else name


def name_generators(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the generators' models in order, by call role: `generate.0`, ..., or `generate` for one."""
    generator = config.get("generator") or {}
    members = generator.get("members") or [generator]
    names = [name_model({**config, "generator": member}, "generator") for member in members]
    return {GENERATE: names[0]} if len(names) == 1 else {f"{GENERATORS}{i}": name for i, name in enumerate(names)}


def count_problems(task: Mapping[str, Any]) -> tuple[int | None, int]:
    """Return the numbers of training and test problems, or of a puzzle's training and evaluation instances.

    Where the configuration gives no sizes, as for files of one's own, None and the limit; without a limit, raises
    ConfigError.
    """
    limit = task.get("limit")
    if task["name"] in SPLITS:
        train, test = SPLITS[task["name"]]
    elif "instances" in task:
        train, test = task["training_instances"], task["instances"]
    elif "test_problems" in task:
        train, test = task["train_problems"], task["test_problems"]
    elif task.get("per_stratum"):  # three strata, and at most as many validation problems
        train, test = 3 * (task["validation_per_stratum"] or task["per_stratum"]), 3 * task["per_stratum"]
    elif "train" in task and "test" in task:
        train, test = (task[split]["draw"] or task[split]["size"] for split in ("train", "test"))
    elif limit is None:
        raise ConfigError(
            f"task={task['name']}: expected a known number of problems, got a task of any size; set task.limit=N"
        )
    else:
        return None, limit
    return train, min(test, limit or test)


def limit_calls(budget: BudgetConfig, problems: int) -> int | None:
    """Return the calls per problem that a budget allows, rounded down; None where it limits none."""
    shares = (budget.calls_per_problem, budget.calls and budget.calls // problems)
    return min((share for share in shares if share is not None), default=None)


def settle_budget(config: Mapping[str, Any], problems: int) -> tuple[dict[str, Any], int | None]:
    """Return a method's settings with numbers where a budget decides, and the budget's calls per problem.

    Raises ConfigError for a setting that only a budget bounds, where there is no limit on calls.
    """
    method, budget = dict(config["method"]), typed(BudgetConfig, config["budget"], "budget")
    limit = limit_calls(budget, problems)
    if budget.generations is not None and "generations" in method:
        own = method["generations"]
        method["generations"] = budget.generations if own is None else min(own, budget.generations)
    if method["name"] == "ttt_discover" and limit is not None:  # it makes whole steps only
        calls = method["states"] * method["group"] * config["task"].get("max_turns", 1)
        method["steps"] = min(method["steps"], limit // calls)
    for key in ("samples", "comparisons", "rounds", "generations", "steps", "drafts", "nodes"):
        if key in method and method[key] is None and not (key == "steps" and "problems_per_step" in method):
            if limit is None:
                raise ConfigError(
                    f"method.{key}: expected a number, or a limit on calls, got null and none; set method.{key}=N or "
                    "budget.calls_per_problem=N"
                )
            if key == "drafts":
                method[key] = typed(PdrConfig, method, "method").fit_drafts(limit)
            elif key == "samples":
                method[key] = max(MIN_SAMPLES, int(method["budget_share"] * limit))
            elif key == "nodes":
                method[key] = max(1, limit // _calls_per_node(config))
            elif method["name"] == "gepa":  # a generation serves all problems, with a call at least
                method[key] = limit * problems
            else:
                method[key] = count_whole_steps(method, limit) if key == "steps" else limit
    return method, limit


def count_whole_steps(method: Mapping[str, Any], limit: int) -> int:
    """Return the steps of a method with populations that fit into `limit` calls per problem; the first one always."""
    first: int = method["population"]
    later: int = method.get("groups", first)
    return 1 + max(0, limit - first) // later


def _calls_per_node(config: Mapping[str, Any]) -> int:
    method = AbMcts(typed(AbMctsConfig, config["method"], "method"))
    return method.calls_per_node(registry.task_config_class(config["task"]["name"]).task_class)


IN_ORDER = ("few_shot", "best_of_n", "v1_infer", "feedback_descent", "duel_evolve")
"""Methods whose calls are counted in the order in which they make them, so that a budget leaves out the last ones."""
AT_MOST = ("ace", "gepa")
"""Methods whose steps are counted with the most calls that each can take, so that a budget ends them no earlier."""
ESTIMATED = ("few_shot", "lyria", "laft", *AT_MOST)
"""Methods whose calls of a role are no bound: few_shot solves examples until it has enough, Lyria's are expected ones,
and where a step takes fewer calls than the most, a budget has room for more steps, with more reflections."""


def count_calls(config: Mapping[str, Any], problems: int | None = None, training: int | None = None) -> list[Part]:
    """Return the calls of a run without those of its students' stages, by role; a limit on calls bounds them.

    problems, training: those of the run, and those that it learns from; None: as many as the configuration states.
    Those of ACE, of GEPA, of E-SPL's reflections and of turns with a tool are their maximum. Raises ConfigError for a
    method or task whose calls or problems have no formula here.
    """
    if problems is None:
        train, test = count_problems(config["task"])
    else:
        test = problems
        train = _find_training(config, problems, training)
    method, limit = settle_budget(config, test)
    if train is None and (method["name"] in ("ace", "gepa") or not method.get("steps", 1)):
        raise ConfigError(
            f"task={config['task']['name']}: expected a known number of training problems for method={method['name']}, "
            "got a task of any size; count the calls of a run with engine=simulated"
        )
    parts = count_unlimited_calls({**config, "method": method}, train or 0, test)
    if limit is None:
        return parts
    left: float = limit * test
    metered = [part for part in parts if part.role != "gold"]  # its opinions count against no budget
    if method["name"] not in IN_ORDER:
        share = min(1.0, left / max(sum(part.calls for part in metered), 1.0))
        return [part._replace(calls=part.calls * (share if part in metered else 1)) for part in parts]
    kept = []
    for part in parts:
        kept.append(part._replace(calls=min(part.calls, left)))
        left -= kept[-1].calls
    return kept


def _find_training(config: Mapping[str, Any], problems: int, training: int | None) -> int | None:
    """Return the number of problems that a run learns from: as given, else as the configuration states."""
    return count_problems({**config["task"], "limit": problems})[0] if training is None else training


class Steps(NamedTuple):
    """The steps (generations, rounds of duels, training steps) of a run."""

    unit: str
    planned: int | None
    """Number of the last step by the settings; None where only a budget ends the run."""
    first: float
    """Calls per problem of step 0, as far as they are counted by steps."""
    each: float
    """Calls per problem of every later step."""

    def reach(self, calls: float) -> float:
        """Return the last step that is complete within this many calls per problem, in fractions of a step."""
        done = max(calls - self.first, 0.0) / self.each if self.each else 0.0
        return done if self.planned is None else min(done, float(self.planned))


_STEP_KEYS = {"generations": "generation", "rounds": "round", "steps": "step"}


def count_steps(config: Mapping[str, Any], problems: int, training: int | None = None) -> Steps | None:
    """Return the steps of a run, from its calls with one and with more of them; None for a method without steps.

    training: as in `count_calls`. A method whose calls are counted as a maximum has its maximum in each step. Raises
    ConfigError as `count_calls`.
    """
    key = next((key for key in _STEP_KEYS if key in config["method"]), None)
    if key is None:
        return None
    train = _find_training(config, problems, training)
    method, _ = settle_budget(config, problems)
    budget, planned = config["budget"], config["method"][key]
    if key == "generations" and (most := budget.get("generations")) is not None:
        planned = most if planned is None else min(planned, most)
    if key == "steps" and planned is None:
        if "problems_per_step" not in method:
            planned = method["steps"]  # whole steps of a population, as many as the budget has room for
        elif train is not None:
            planned = ceil(method["data_epochs"] * train / method["problems_per_step"])
    # Islands ask for advice every few generations, whose calls are spread evenly over all.
    many = 1001 if method["name"] == "islands" else 2
    one, two = (
        sum(
            part.calls
            for part in count_unlimited_calls({**config, "method": {**method, key: n}}, train or 0, problems)
            if part.role != "gold"
        )
        for n in (1, many)
    )
    each = (two - one) / (many - 1)
    return Steps(_STEP_KEYS[key], planned, (one - each) / problems, each / problems)


def count_unlimited_calls(config: Mapping[str, Any], train: int, test: int) -> list[Part]:
    """Return the calls of a run that no budget ends; a role may have several parts."""
    method, policy = config["method"], config["model"]["name"]
    judge = name_model(config, "judge")
    limit = method.get("max_tokens", 0)
    match method["name"]:
        case "zero_shot":
            return [Part("generate", policy, test, limit)]
        case "few_shot":  # an example takes several tries
            worked = method["shots"] * method["tries"]
            return [Part("demonstrate", policy, worked, limit), Part("generate", policy, test, limit)]
        case "self_consistency" | "deepconf":
            return [Part("generate", policy, test * method["samples"], limit)]
        case "rsa":
            return [Part("generate", policy, test * method["population"] * method["steps"], limit)]
        case "islands":  # the most where each try is new and parses
            generations, settings = method["generations"], typed(IslandsConfig, method, "method")
            summaries, notes = settings.max_note_calls(generations)
            advice = {PARADIGM: settings.max_paradigm_calls(generations), SUMMARY: summaries}
            advice |= {INSIGHTS: notes, RECOMMEND: notes}
            adviser = name_model(config, "reflection")
            return [
                Part("generate", policy, test * generations * method["children"], limit),
                *(Part(role, adviser, test * calls, limit) for role, calls in advice.items() if calls),
            ]
        case "ttt_discover":
            played = test * method["steps"] * method["states"] * method["group"] * config["task"].get("max_turns", 1)
            return [Part("rollout", policy, played, limit)]
        case "pdr":
            drafts, distiller = method["drafts"], method["distiller"]
            drawn = Part("generate", policy, test * sum(drafts), limit)
            if distiller == "summary":
                return [drawn, Part("distill", policy, test * (len(drafts) - 1), method["summary_tokens"])]
            rated = sum(drafts[:-1]) if distiller == "top_k" else 0
            return [drawn, Part("fitness", judge, test * rated, method["evaluator_max_tokens"])]
        case "squeeze_evolve":  # the dearest model's first population, then groups by the models' shares
            generators = list(name_generators(config).items())
            cuts = typed(SqueezeEvolveConfig, method, "method").thresholds(len(generators))
            groups = count_groups(method["groups"], cuts)
            groups[0] -= int(method["lite_fraction"] * groups[0])
            steps = test * (method["steps"] - 1)
            later = [
                Part(*generator, steps * number, limit) for generator, number in zip(generators, groups, strict=True)
            ]
            return [Part(*generators[-1], test * method["population"], limit), *later]
        case "ab_mcts":
            nodes, models = test * method["nodes"], name_generators(config)
            evaluated = [Part(role, judge, nodes, method["evaluator_max_tokens"]) for role in ("fitness", "errors")]
            # The scores decide between several models; here each has an equal share.
            responses = [Part(role, name, nodes / len(models), limit) for role, name in models.items()]
            return [*responses, *evaluated[: _calls_per_node(config) - 1]]
        case "best_of_n":
            chosen = (method["choose"], method.get("reward", "duels"))
            free = chosen[0] in ("oracle", "rubric") or chosen[1] != "duels"
            duels = 0 if free else method["rounds"] * method["duels"] * method["orders"]
            drawn = Part("generate", policy, test * method["samples"], limit)
            if "rubric" in chosen:  # of criteria as many as a refined rubric has
                judgments = test * method["samples"] * ITEMS
                return [drawn, Part("score", name_model(config, "reward"), judgments, method["reward_max_tokens"])]
            return [drawn, Part("judge", judge, test * duels, method["judge_max_tokens"])]
        case "v1_infer":
            drawn = Part("generate", policy, test * method["samples"], limit)
            rated = test * method["comparisons"] * method["orders"]
            return [drawn, Part("judge", judge, rated, method["judge_max_tokens"])]
        case "feedback_descent":
            proposed = Part("generate", policy, test, limit)
            return [
                proposed,
                *[proposed, Part("judge", judge, test, method["judge_max_tokens"])] * method["generations"],
            ]
        case "duel_evolve":
            duels = Part("judge", judge, test * method["duels"] * method["orders"], method["judge_max_tokens"])
            first = Part("generate", policy, test * method["initial_candidates"], limit)
            born = Part("generate", policy, test * method["children"], limit)
            return [first, duels, *[born, duels] * method["generations"]]
        case "gepa":  # a minibatch under both prompts, a reflection, and all that a better prompt is chosen by
            reflected_on = round(method["train_share"] * train)
            choosing = test if config["task"]["name"] == "livecodebench" else train - reflected_on
            tried = method["generations"] * (2 * method["minibatch"] + choosing) + choosing
            reflected = Part("reflect", policy, method["generations"], method["reflection_max_tokens"])
            return [Part("evaluate", policy, tried, limit), reflected, Part("answer", policy, test, limit)]
        case "ace":  # the most: each problem is answered wrong until the last reflection
            learned = min(method["epochs"] * train, method["problems"] or method["epochs"] * train)
            attempts, rounds = 1 + method["rounds"] + method["remeasure"], max(method["rounds"], 1)
            evaluations = 1 + ceil(learned / (method["eval_every"] or learned))
            reflection = method["reflection_max_tokens"]
            return [
                Part("generate", policy, learned * attempts, limit),
                Part("reflect", policy, learned * rounds, reflection),
                Part("curate", policy, learned // method["curator_every"], reflection),
                Part("evaluate", policy, evaluations * test * (1 + method["eval_samples"]), method["eval_max_tokens"]),
            ]
        case "lyria" | "laft":  # appendix A
            written = test * typed(LyriaConfig, method, "method").expected_calls()
            scored = written if method["fitness"] == "model" else 0
            return [
                Part("generate", policy, written, limit),
                Part("fitness", judge, scored, method["evaluator_max_tokens"]),
            ]
        case "sft":
            return [count_tuning_calls(method, policy, test, len(measure_conversations(method)))]
        case name if name in registry.METHODS and "problems_per_step" in method:
            return count_learning_calls(config, train, test)
        case name:
            raise ConfigError(
                f"method={name}: expected a method whose calls have a formula (docs/guides/costs.md), got one without; "
                "count the calls of a run with engine=simulated task.limit=2"
            )


def count_learning_calls(config: Mapping[str, Any], train: int, test: int) -> list[Part]:
    """Return the calls of a run that learns from rewards; rubrics have `ITEMS` items once they are refined."""
    method, policy = config["method"], config["model"]["name"]
    reward, meta = name_model(config, "reward"), name_model(config, "meta")
    size, group, turns = method["problems_per_step"], method["group"], config["task"].get("max_turns", 1)
    played = method["steps"] * size if method["steps"] else method["data_epochs"] * train
    steps = ceil(played / size)
    rollouts = played * method.get("prompts", method.get("draws", 1)) * group
    every = method["eval_every"] or steps
    answers = (1 + ceil(steps / every)) * test * (1 + method["eval_samples"])
    parts = [
        Part("rollout", policy, rollouts * turns, method["max_tokens"]),
        Part("evaluate", policy, answers * turns, method["eval_max_tokens"]),
    ]
    if method.get("evolve"):
        crossover = method["crossover_rate"] > 0
        reflections = steps * (size * (group + 1 + method["lessons_first"]) + 1 + crossover)
        parts.append(Part("reflect", policy, reflections, method["reflection_max_tokens"]))
    if method["name"] == "rler":  # at most, and of the problems' own criteria as many as a refined rubric has
        items = method["persistent"] * ITEMS + method["adaptive"] * (method["max_active"] + method["max_new"])
        parts += [
            Part("write_items", meta, played * method["adaptive"], method["write_max_tokens"]),
            Part("score", reward, rollouts * items, method["reward_max_tokens"]),
        ]
    if method["rubric"] is not None:
        parts += count_rubric_calls(method, rollouts, steps, policy, reward, meta, config["task"].get("clusters"))
    if config["task"]["name"] == "essay":
        parts.append(Part("gold", name_model(config, "gold"), answers, GOLD_TOKENS))
    return parts


def count_rubric_calls(
    method: Mapping[str, Any], rollouts: int, steps: int, policy: str, reward: str, meta: str, clusters: int | None
) -> list[Part]:
    """Return the calls for scores by a rubric and for its refinement."""
    refines = method["name"] == "mpo"
    before = refines and method["refine_schedule"] == "before"
    rubrics = 7 * clusters if clusters else 1
    times = method.get("refine_rounds", 0) if before else (steps - 1) // method["refine_every"] if refines else 0
    pooled = times * method["refine_pool"] if before else 0
    items = ITEMS if refines and method["scoring"] == "by_item" else 1
    scored = (rollouts * (1 - method["exact_match_rate"]) + pooled) * items
    parts = [
        Part("rollout", policy, pooled, method["max_tokens"]),
        Part("score", reward, scored * (1 + (method["scoring"] == "plan")), method["reward_max_tokens"]),
        Part("score", reward, scored * method["reward_digits"], DIGIT_TOKENS),
    ]
    if times:
        each, written = method["refine_on"] == "each", 1 + ITEMS if method["refine_by"] == "item" else 1
        looks = method["refine_samples"] if each else 1
        analysed = Part(
            "analyse", meta, times * rubrics * looks * method["meta_analysis"], _meta_tokens(method, "analysis")
        )
        rubric_words = "item" if method["refine_by"] == "item" else "refinement"
        parts += [
            analysed,
            Part("refine", meta, times * rubrics * (looks + each) * written, _meta_tokens(method, rubric_words)),
        ]
    return parts


def _meta_tokens(method: Mapping[str, Any], what: str) -> int:
    tokens: int = method.get(f"{what}_max_tokens") or TOKENS_PER_WORD * method[f"{what}_words"]
    return tokens


def measure_conversations(method: Mapping[str, Any]) -> list[int]:
    """Return the tokens of each conversation that a fine-tuning learns from, cut at `max_length`.

    They are estimated, by `CHARACTERS_PER_TOKEN`. Raises ConfigError and DataError for data that cannot be used.
    """
    if method["data"] is None:
        raise ConfigError("method.data: expected a file of conversations, got null; set method.data=FILE")
    file = Path(method["data"]).expanduser()
    written = file.stat().st_mtime_ns if file.exists() else 0
    characters = _count_characters(file, written, method["limit"], method["held_out"])
    return [min(method["max_length"], ceil(count / CHARACTERS_PER_TOKEN)) for count in characters]


@cache
def _count_characters(file: Path, written: int, limit: int | None, held_out: float) -> list[int]:
    """Return the characters of each conversation: a plan asks several times for those of a file as it was written."""
    split = read_split(file, limit=limit, held_out=held_out)
    return [sum(len(message["content"]) for message in conversation.messages) for conversation in split.train]


def count_tuning_calls(method: Mapping[str, Any], model: str, problems: int, conversations: int) -> Part:
    """Return the calls of a fine-tuning's evaluations: before the first step, after the last, and between them."""
    steps = ceil(count_examples(conversations, method["epochs"]) / method["batch"])
    between = (steps - 1) // method["eval_every"] if method["eval_every"] else 0
    answers = (2 + between) * problems * (1 + method["eval_samples"])
    return Part("evaluate", model, answers, method["eval_max_tokens"])


def count_training_tokens(config: Mapping[str, Any], parts: Sequence[Part]) -> float:
    """Return the tokens that pass forward and backward through weights in a run's updates, and through a critic."""
    method = config["method"]
    if method["name"] == "sft":
        return float(method["epochs"] * sum(measure_conversations(method)))
    if "minibatches" not in method:  # the weights stay
        return 0.0
    tokens = sum(part.calls * part.max_tokens for part in parts if part.role == "rollout")
    passes: int = method.get("epochs", 1) * (2 if "critic" in method else 1)
    return passes * tokens


def count_training_hours(config: Mapping[str, Any], parts: Sequence[Part]) -> float:
    """Return the hours of a run's updates."""
    return hours(6, config["model"]["name"], count_training_tokens(config, parts), TRAINING)


def estimate(configs: Sequence[Mapping[str, Any]]) -> Cost:
    """Return the cost of runs, with that of their students' stages; stages that are equal run once."""
    total = Cost(runs=len(configs))
    teachers, students = set[str](), set[str]()
    for config in configs:
        parts = count_calls(config)
        total.add(parts)
        total.hours += count_training_hours(config, parts)
        if config.get("student"):
            composition = teacher_composition(config)
            taught = count_calls(
                {**composition, "judge": None, "student": None}, composition["task"]["training_instances"]
            )
            if repr(taught) not in teachers:
                total.add(taught)
            teachers.add(repr(taught))
            if config["student"]["name"] not in students:
                share = 0.2 if config["student"]["kind"] == "dpft_top" else 1.0
                tokens = share * sum(part.calls * part.max_tokens for part in taught)
                epochs = config["student"]["tuning"]["epochs"]
                total.hours += epochs * hours(6, config["model"]["name"], tokens, TRAINING)
            students.add(config["student"]["name"])
    return total
