"""Every file under conf/ composes, and says the same as the schema that it fills."""

import dataclasses
import json
from dataclasses import MISSING, dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from building import composed, composition
from evorun.cli.compose import register, yaml_values
from evorun.cli.groups import config_folder
from evorun.errors import ConfigError
from evorun.methods.learning.policy_gradient import Grpo, GrpoConfig
from evorun.methods.search.chain_of_thought import ZeroShot
from evorun.methods.search.proposals import from_task
from evorun.runner import registry
from evorun.runner.settings import check
from evorun.runs.budget import BudgetConfig
from evorun.tasks.arithmetic.arithmetic import Arithmetic
from evorun.tasks.base import SamplingConfig, TaskConfig
from evorun.training.config import TrainingConfig

SCHEMAS: dict[str, Any] = {
    **{f"method/{name}": registry.method_class(name).Config for name in registry.METHODS},
    **{f"task/{name}": registry.task_config_class(name) for name in registry.TASKS},
    "budget/unlimited": BudgetConfig,
    "training/lora": TrainingConfig,
    "training/full": TrainingConfig,
    **{f"engine/{name}": registry.engine_config_class(name) for name in registry.ENGINES},
}

PINNED: Any = json.loads(Path(__file__).with_name("composed_values.json").read_text())
"""`methods`: a method's values; `on_task` and `under_budget`: those that are others there."""


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_yaml_gives_every_value_of_its_schema_once(name: str) -> None:
    """Schemas of methods, tasks and training have no defaults, but for what every task has; others the same."""
    group, _, stem = name.partition("/")
    written = {"name": stem, **yaml_values(group, stem)}
    fields = {one.name: one for one in dataclasses.fields(SCHEMAS[name])}
    assert set(written) == set(fields)
    if name == "engine/simulated":
        return  # studies have a model on which methods differ, plug-ins' tests a plain one
    if group in ("engine", "budget"):
        assert written == dataclasses.asdict(SCHEMAS[name](name=stem))
        return
    with_default = {key for key, one in fields.items() if {one.default, one.default_factory} != {MISSING}}
    assert with_default == ({"description", "sampling", "draw_seed"} if group == "task" else set())
    for key, one in fields.items():
        if dataclasses.is_dataclass(one.type):
            assert set(written[key]) == {inner.name for inner in dataclasses.fields(one.type)}


def test_a_value_that_neither_a_yaml_nor_the_command_line_gives_is_one_line() -> None:
    config = composed("method=few_shot", "engine=simulated")
    del config["method"]["tries"]
    with pytest.raises(ConfigError, match=r"^method\.tries: expected a value, none was given; set method\.tries=V"):
        check(config)


def test_every_method_task_and_engine_has_a_file() -> None:
    for group, names in (("method", registry.METHODS), ("task", registry.TASKS), ("engine", registry.ENGINES)):
        files = {file.stem for file in (config_folder() / group).glob("*.yaml")}
        assert files - {"auto", "openai"} == set(names)  # one of the others, by the machine; a server


def test_the_automatic_engine_is_vllm_only_with_a_gpu_and_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen() -> str:
        return check(composed("engine=auto")).engine.name

    monkeypatch.setenv("PATH", str(tmp_path))
    assert chosen() == "transformers"
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "vllm.py").write_text("")
    assert chosen() == "transformers"
    monkeypatch.syspath_prepend(tmp_path)
    assert chosen() == "vllm"
    assert vars(check(composed("engine=auto", "engine.max_num_seqs=3")).engine)["max_num_seqs"] == 3
    mistyped = r"^engine\.max_num_seq: unknown key; did you mean engine\.max_num_seqs\?.*engine=auto means engine=vllm "
    with pytest.raises(ConfigError, match=mistyped):
        check(composed("engine=auto", "engine.max_num_seq=3"))


@pytest.mark.parametrize("share", [len(registry.TASKS), pytest.param(1, marks=pytest.mark.nightly)], ids=["few", "all"])
def test_every_method_has_its_values_on_every_task(share: int) -> None:
    """The table was written from the values that stood in a file for each pair before tasks owned theirs.

    Composing takes a while: where a pair has no file, the method's composition is given the other task; of such pairs
    one in `share` is looked at, so that each method and each task has some, and by day a seventh of those with a file,
    of every fourth method.
    """
    for row, method in enumerate(registry.METHODS):
        if share > 1 and row % 4:
            continue
        on_arithmetic = composition(f"method={method}", "task=arithmetic").copy()
        for column, task in enumerate(registry.TASKS):
            file = config_folder() / "method_on_task" / f"{'lyria' if method == 'laft' else method}_on_{task}.yaml"
            if (row + column) % (min(share, 7) if file.exists() else share):
                continue
            config = composition(f"method={method}", f"task={task}") if file.exists() else on_arithmetic
            on_arithmetic.task = composition(f"task={task}").task
            expected = {"name": method, **PINNED["methods"][method], **PINNED["on_task"].get(task, {}).get(method, {})}
            assert OmegaConf.to_container(config.method, resolve=True) == expected, (method, task)
            if method == "laft":  # the teacher's is Lyria, as on this task
                lyria = {**PINNED["methods"]["lyria"], **PINNED["on_task"].get(task, {}).get("lyria", {})}
                teaching = OmegaConf.to_container(config.student.teaching, resolve=True)
                assert teaching == {"name": "lyria", **lyria}, task


def test_a_value_of_the_command_line_goes_before_the_tasks_and_those_before_the_methods() -> None:
    def max_tokens(*overrides: str) -> tuple[int, int]:
        method = composed("method=duel_evolve", *overrides)["method"]
        return method["max_tokens"], method["judge_max_tokens"]

    assert max_tokens("task=mathbench") == (1024, 192)
    assert max_tokens("task=mathbench", "task.sampling.max_tokens=77") == (77, 192)
    assert max_tokens("task=livecodebench", "task.sampling.judge_max_tokens=null") == (4096, 192)
    assert max_tokens("task=livecodebench", "task.sampling.max_tokens=77", "method.max_tokens=78") == (78, 384)
    for method in ("espl", "grpo", "ppo"):  # rollouts have the room that the task's answers need; eval_ keys follow
        config = composed(f"method={method}", "task=hmmt", "task.sampling.temperature=0.3")["method"]
        assert (config["max_tokens"], config["eval_max_tokens"], config["temperature"]) == (8192, 8192, 1.0)
    changed = composed("method=duel_evolve", "task=livecodebench", "method.children=7")["method"]
    assert (changed["children"], changed["parents"]) == (7, 5)


@dataclass
class PluginMethodConfig:
    name: str = "own_method"
    max_tokens: int = from_task(300)
    temperature: float = from_task(0.2)
    tries: int = 2


@dataclass
class PluginTaskConfig(TaskConfig):
    task_class = Arithmetic
    name: str = "own_task"
    sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(max_tokens=55, judge_max_tokens=66))


class PluginMethod(ZeroShot):
    Config = PluginMethodConfig


def test_methods_and_tasks_of_plug_ins_share_sampling_values_too(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        kind: {f"own_{kind}": EntryPoint(f"own_{kind}", f"{__name__}:{target}", f"evorun.{kind}s")}
        for kind, target in (("method", "PluginMethod"), ("task", "PluginTaskConfig"))
    }
    monkeypatch.setattr(registry, "plugins", lambda kind: points.get(kind, {}))
    register()

    def values(method: str, task: str, *overrides: str) -> list[Any]:
        config = composed(f"method={method}", f"task={task}", *overrides)["method"]
        return [config.get(key) for key in ("max_tokens", "temperature", "judge_max_tokens")]

    assert values("own_method", "arithmetic") == [300, 0.2, None]
    assert values("own_method", "livecodebench") == [4096, 1.2, None]
    assert values("duel_evolve", "own_task") == [55, 0.7, 66]
    assert values("own_method", "own_task", "task.sampling.temperature=0.4", "method.max_tokens=9") == [9, 0.4, None]
    assert PluginMethodConfig().max_tokens == 300


@dataclass(kw_only=True)
class OwnGrpoConfig(GrpoConfig):
    name: str = "own_grpo"
    word_price: float = 0.001


class OwnGrpo(Grpo):
    name = "own_grpo"
    Config = OwnGrpoConfig


def test_a_method_that_extends_one_of_evoruns_has_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("own_grpo", f"{__name__}:OwnGrpo", "evorun.methods")
    monkeypatch.setattr(registry, "plugins", lambda kind: {"own_grpo": point} if kind == "method" else {})
    register()
    own, base = (composed(f"method={name}", "task=arithmetic") for name in ("own_grpo", "grpo"))
    assert own["method"] == {**base["method"], "name": "own_grpo", "word_price": 0.001}
    assert own["training"] == base["training"]


def test_special_settings_belong_to_a_method_and_a_task() -> None:
    pairs = {f"{method}_on_{task}" for method in registry.METHODS for task in registry.TASKS}
    assert {file.stem for file in (config_folder() / "method_on_task").glob("*.yaml")} <= pairs


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", sorted(file.stem for file in (config_folder() / "budget").glob("*.yaml")))
def test_methods_have_their_sizes_under_every_budget(name: str) -> None:
    sizes = PINNED["under_budget"].get(name, {})
    for method in {**sizes, "gepa": {}, "laft": {}}:
        config = composed(f"method={method}", "task=arithmetic", f"budget={name}")
        assert config["method"] == {"name": method, **PINNED["methods"][method], **sizes.get(method, {})}, method
    check(config)


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", ["duel_evolve", "feedback_descent", "gepa", "islands", "lyria"])
def test_every_method_with_generations_keeps_a_budget_of_them(method: str) -> None:
    def generations(*words: str) -> Any:
        task = "circle_packing" if method == "islands" else "arithmetic"
        return check(composed(f"method={method}", f"task={task}", "method.generations=9", *words)).method.last_step

    assert [generations(f"budget.generations={number}") for number in (0, 4, 12)] == [0, 4, 9]
    assert generations() == 9


def test_no_other_method_has_generations() -> None:
    """The key that budgets limit has this name in every method that loops over generations."""
    having = {name for name, method in registry.methods().items() if "generations" in _names_of(method.Config)}
    assert having == {"duel_evolve", "feedback_descent", "gepa", "islands", "laft", "lyria"}


def _names_of(schema: Any) -> set[str]:
    return {one.name for one in dataclasses.fields(schema)}


@pytest.mark.sample(3)
@pytest.mark.parametrize("size", [(5, 5), (10, 10), (20, 20), (30, 15), (30, 30), (40, 40), (50, 50)])
def test_lyrias_budgets_are_by_generations_as_in_its_paper(size: tuple[int, int]) -> None:
    budget = composed("method=lyria", "task=sudoku", "budget=lyria_{}x{}".format(*size))
    config = check(budget)
    assert (config.method.config.population, config.method.config.generations) == size
    assert config.budget.generations == size[1]
    assert (config.budget.calls, config.budget.calls_per_problem) == (None, None)


def test_a_budgets_sizes_go_before_a_tasks_and_the_command_lines_before_both() -> None:
    arguments = ("method=best_of_n", "task=sudoku", "budget=lyria_5x5")
    assert composed(*arguments)["method"]["samples"] == 23
    assert composed(*arguments, "method.samples=7")["method"]["samples"] == 7


@pytest.mark.sample(1)
@pytest.mark.parametrize("limit", ["calls", "tokens", "calls_per_problem", "tokens_per_problem"])
def test_under_a_budget_it_says_how_many_responses_there_are(limit: str) -> None:
    def sizes(*arguments: str) -> list[int | None]:
        method = composed("engine=simulated", *arguments)["method"]
        return [method[key] for key in ("samples", "rounds") if key in method]

    for task, paper in (("mathbench", 150), ("livecodebench", 200)):
        for method in ("best_of_n", "self_consistency"):
            words = (f"method={method}", f"task={task}")
            assert set(sizes(*words)) == {paper}
            assert set(sizes(*words, f"budget.{limit}=1000")) == {None}
            assert sizes(*words, f"budget.{limit}=1000", "method.samples=7")[0] == 7
    assert sizes("method=best_of_n", "task=tsp", f"budget.{limit}=1000")[0] is None


def test_without_a_budget_the_number_of_responses_must_be_given() -> None:
    words = ("method=self_consistency", "engine=simulated", "method.samples=null")
    with pytest.raises(ConfigError, match=r"^method\.samples: expected a number if no budget is set, got null; "):
        check(composed(*words))
    check(composed(*words, "budget.tokens=1000"))


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", sorted(file.stem for file in (config_folder() / "model").glob("*.yaml")))
def test_every_model_can_generate_and_judge(name: str) -> None:
    local = ["++model.id=x", "++judge.id=x"] if name in ("local", "api") else []
    config = check(composed(f"model={name}", f"judge={name}", *local))
    assert config.model.name == config.others["judge"].model.name == name
