"""Closed forms of the methods' model calls, by role, of a composed configuration without a limit on calls.

No call is repeated, and each completion is as long as its limit. docs/guides/costs.md has the formulas.
"""

from collections.abc import Mapping
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
from evorun.methods.search.squeeze_evolve import SqueezeEvolveConfig, count_groups
from evorun.methods.tree.ab_mcts import AbMcts, AbMctsConfig
from evorun.rollouts.rubric_settings import DIGIT_TOKENS
from evorun.runner import registry
from evorun.runner.gold import MAX_TOKENS as GOLD_TOKENS
from evorun.runner.typed import typed
from evorun.runs.configs import count_turns
from evorun.runs.roles import GENERATE, GENERATORS
from evorun.simulation.engine import CHARACTERS_PER_TOKEN
from evorun.training.conversations import count_examples, read_split

ITEMS = 9
"""Assumed items of a refined rubric: the most in MPO's appendix J.2."""
RESPONDING = (GENERATE, "demonstrate", "rollout", "evaluate", "answer")
"""Roles whose calls are turns of responses; several generators have roles of their own."""


class Part(NamedTuple):
    """Calls of one role."""

    role: str
    model: str
    calls: float
    max_tokens: int


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


def count_calls_per_node(config: Mapping[str, Any]) -> int:
    """Return the calls that a node of AB-MCTS's tree takes on the task."""
    method = AbMcts(typed(AbMctsConfig, config["method"], "method"))
    return method.calls_per_node(registry.task_config_class(config["task"]["name"]).task_class)


def count_unlimited_calls(config: Mapping[str, Any], train: int, test: int) -> list[Part]:
    """Return the calls of a run that no budget ends, with all turns of each response; a role may have several parts."""
    turns = count_turns(config["task"])
    return [
        part._replace(calls=part.calls * turns) if part.role in RESPONDING or part.role.startswith(GENERATORS) else part
        for part in _count_requests(config, train, test)
    ]


def _count_requests(config: Mapping[str, Any], train: int, test: int) -> list[Part]:
    """Return the responses and the other calls of a run that no budget ends."""
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
            played = test * method["steps"] * method["states"] * method["group"]
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
            return [*responses, *evaluated[: count_calls_per_node(config) - 1]]
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
        case name if "problems_per_step" in method and registry.builtin_method(name) is not None:
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
    size, group = method["problems_per_step"], method["group"]
    played = method["steps"] * size if method["steps"] else method["data_epochs"] * train
    steps = ceil(played / size)
    rollouts = played * method.get("prompts", method.get("draws", 1)) * group
    every = method["eval_every"] or steps
    answers = (1 + ceil(steps / every)) * test * (1 + method["eval_samples"])
    parts = [
        Part("rollout", policy, rollouts, method["max_tokens"]),
        Part("evaluate", policy, answers, method["eval_max_tokens"]),
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
