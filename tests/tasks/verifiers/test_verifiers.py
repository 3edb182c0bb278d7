"""`task=verifiers`: prompts and rewards beside those of verifiers' own rollouts of the same texts, and refusals."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from building import load_task, task_config
from evorun.errors import ConfigError, DataError
from evorun.models.base import Request
from evorun.simulation.skill import Skill
from evorun.tasks.base import Grade, Prompt
from evorun.testing.tasks import check_task
from evorun_process import evorun_here
from killed_runs import check_killed_run

pytest.importorskip("verifiers.v1")  # this folder has the same name
pytestmark = pytest.mark.bridges

HERE = Path(__file__).parent
TEXTS = (
    *("42", "I add them.\n\nANSWER: 42", "ANSWER: 17 or so", "<answer>Paris</answer>", "  xzyx \n", "crash 62"),
    *("It is zyx.", "Rome. " * 1000, "<answer>\nMadrid\n</answer> I think", "{x} ANSWER: C"),
)
CASES: dict[str, dict[str, Any]] = {
    "sums": {},
    "capitals": {"answer": "capital"},
    "spelling": {"first": 3, "arguments": {"letters": "xyz", "task": {"partial": 0.5}}, "right_from": 0.5},
}


@pytest.fixture(autouse=True, scope="module")
def tasksets() -> Iterator[None]:
    sys.path.insert(0, str(HERE))
    yield
    sys.path.remove(str(HERE))


def load(name: str, **settings: Any) -> Any:
    return load_task("verifiers", id=f"{name}_taskset", **settings)


class Unrecorded:
    async def remember(self, about: object, compute: Any, kind: type) -> Any:
        return await compute()


class Judge(Unrecorded):
    """Answers as a judge that always says the same."""

    def __init__(self, verdict: str) -> None:
        self.verdict = verdict
        self.asked: list[tuple[Prompt, int]] = []

    async def judge(self, prompt: Prompt, attempt: int = 0) -> str:
        self.asked.append((prompt, attempt))
        return self.verdict


def grade(loaded: Any, problem: Any, text: str) -> Grade:
    tools: Any = Unrecorded()
    found: Grade = asyncio.run(loaded.grade(problem, loaded.task.parse(problem, text), tools))
    return found


def make_completion(text: str) -> dict[str, Any]:
    """Return what a chat-completions server answers with a text."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


async def roll_out(
    name: str, settings: dict[str, Any], texts: Sequence[str] = TEXTS, verdict: str = ""
) -> list[tuple[str, Any, list[tuple[str, str]]]]:
    """Return verifiers' own traces: for each task and text, the text, the trace, and the prompt that it sent.

    verdict: what judges say.
    """
    import verifiers.v1 as vf

    asked: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        given = await request.json()
        if is_policy := given["model"] == "m":
            asked.append(given)
        return web.json_response(make_completion(saying[0] if is_policy else verdict))

    application = web.Application()
    application.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [(host, port)] = [address[:2] for address in runner.addresses]
    config = vf.AgentConfig(
        harness={"id": "one_request_harness"},
        runtime=vf.SubprocessConfig(),
        model="m",
        client=vf.EvalClientConfig(base_url=f"http://{host}:{port}/v1", api_key_var="NO_KEY"),
    )
    given = {"id": f"{name}_taskset", **settings.get("arguments", {})}
    for judge in given.get("task", {}).get("judges", ()):
        judge["base_url"] = f"http://{host}:{port}/v1"
    taskset = vf.load_taskset(vf.taskset_config_type(given["id"]).model_validate(given)).take(settings.get("first", 4))
    traces = []
    async with vf.Agent(config) as agent:
        for task in taskset:
            for text in texts:
                saying = [text]
                trace = await agent.run(task)
                shown = [(message["role"], message["content"]) for message in asked.pop()["messages"]]
                traces.append((text, trace, shown))
    await runner.cleanup()
    return traces


@pytest.mark.parametrize("name", CASES)
def test_rewards_and_prompts_are_those_of_rollouts_of_verifiers(name: str) -> None:
    loaded = load(name, **CASES[name])
    problems = {problem.id: problem for problem in loaded.problems}
    traces = asyncio.run(roll_out(name, CASES[name]))
    for text, trace, shown in traces:
        problem = problems[str(trace.task.data.idx)]
        ours = [(message["role"], message["content"]) for message in loaded.task.generation_prompt(problem).messages]
        assert ours == shown
        found = grade(loaded, problem, text)
        if trace.errors:
            assert "a reward's fault" in trace.errors[-1].message
            assert "a reward's fault" in found.detail
            assert found.correct is False
            continue
        assert found.scores == {"reward": trace.reward}, (problem.id, text)
        assert found.correct == (trace.reward >= CASES[name].get("right_from", 1.0))
        for part, reward in trace.rewards.items():
            assert f"{part} {reward.score:.4g}" in found.detail
    assert len(traces) == len(problems) * len(TEXTS)
    # The texts tell rewards apart.
    assert len({trace.reward for _, trace, _ in traces}) > 2
    assert any(trace.errors for _, trace, _ in traces) == (name == "sums")


@pytest.mark.parametrize("name", ["sums", "capitals"])
def test_tasks_conform(name: str) -> None:
    check_task(task_config("verifiers", id=f"{name}_taskset", **CASES[name]))


def test_answers_are_those_that_the_rewards_find_right() -> None:
    assert load("capitals", answer="capital").answers == {"0": "Paris", "1": "Rome", "2": "Madrid"}
    assert load("capitals").answers == {}  # no field of that name
    assert load("spelling", first=3).answers == {}
    wrong = load("capitals", answer="continent")
    assert wrong.answers == {}


def test_votes_compare_what_stands_in_the_answers_place() -> None:
    capitals, sums = load("capitals", answer="capital"), load("sums")
    for text in ("It is\n<answer>\nRome \n</answer>", "<answer>Paris</answer> no, <answer>Rome</answer>"):
        assert capitals.task.parse(capitals.problems[0], text).answer == "Rome"
    assert capitals.task.parse(capitals.problems[0], "Rome\n").answer == "Rome"
    assert sums.task.parse(sums.problems[0], "ANSWER: 4\nANSWER: 5 \nor so").answer == "5"


def test_rows_are_drawn_apart_and_repeats_left_out() -> None:
    loaded = load("sums", validation_problems=1, train_problems=1, stratum="kind")
    parts = [loaded.problems, [example.problem for example in loaded.validation], loaded.training]
    assert [len(part) for part in parts] == [2, 1, 1]
    assert {problem.stratum for problem in loaded.problems} == {"sum"}
    assert "1 repeated ones left out" in loaded.provenance.description
    with pytest.raises(DataError, match=r"expected more than .* = 4 different problems"):
        load("sums", validation_problems=4)


def test_nothing_but_the_reference_holds_the_answers() -> None:
    loaded = load("capitals", answer="capital")
    assert "Paris" not in repr([problem.data for problem in loaded.problems])
    assert not hasattr(loaded.task._source.scorer._task, "data")


REFUSALS = {
    "runtime": "expected rewards of the reply alone, got some that need a runtime: checked",
    "container": "expected tasks without a container, got Container",
    "setup": "expected tasks without a runtime, got Setup.setup",
    "tools": "expected tasks without tools, got toolsets of Tools",
    "shared_tools": "expected a taskset without tools, got toolsets",
    "noreward": "expected tasks with rewards, got none of NoReward",
    "judged": "expected rewards that ask no model, got one that asks the judge reference",
    "attribute": "got the attribute secret",
    "image": "got data with image",
    "no_prompt": "expected a prompt that ends in a user's message",
    "picture": "expected messages of text alone",
    "held": "expected data that JSON can hold",
    "broken": "its tasks cannot be read: OSError: no file",
    "no_tasks": "expected tasks, got none",
}


@pytest.mark.parametrize("why", REFUSALS)
def test_what_needs_more_than_a_reply_is_refused_in_a_line(why: str) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        load("refused", arguments={"why": why})
    assert REFUSALS[why] in str(caught.value)
    assert "\n" not in str(caught.value)


JUDGE = {"task": {"judges": [{"id": "reference"}]}}


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"id": None}, "task.id: expected the id of an installed taskset"),
        ({"id": "no_such_taskset"}, "cannot be loaded: ModuleNotFoundError"),
        ({"id": "one_request_harness"}, "cannot be loaded: TypeError"),
        ({"id": "spelling_taskset"}, "got one without end; set task.first=N"),
        ({"id": "spelling_taskset", "first": 1, "arguments": {"partial": 1}}, "cannot be loaded: ValidationError"),
        ({"id": "sums_taskset", "answer": "absent"}, "expected data with absent, got agent_user"),
        ({"id": "sums_taskset", "reply": "ANSWER"}, "task.reply: expected a text with {answer}"),
        ({"id": "sums_taskset", "arguments": JUDGE}, None),
        ({"id": "capitals_taskset", "arguments": JUDGE}, "expected rewards that ask no model, got the judge reference"),
    ],
)
def test_wrong_settings_are_refused_in_a_line(settings: dict[str, Any], line: str | None) -> None:
    if line is None:  # its tasks ignore their settings, the judge too
        assert load_task("verifiers", **settings).problems
        return
    with pytest.raises(ConfigError, match=line) as caught:
        load_task("verifiers", **settings)
    assert "\n" not in str(caught.value)


def test_simulated_models_answer_by_their_skill() -> None:
    loaded = load("capitals", answer="capital")
    problem = loaded.problems[0]
    prompt = loaded.task.generation_prompt(problem)
    request = Request(messages=prompt.messages, hints=prompt.hints)
    for skill in (0, 1):
        simulator = loaded.simulator.with_skill(Skill(skill=skill, malformed=0, spread=0))
        replies = [simulator.respond(request, np.random.default_rng(n)) for n in range(10)]
        assert {grade(loaded, problem, reply).correct for reply in replies} == {bool(skill)}
    with pytest.raises(ConfigError, match="has no right answer to give to 3 of 3"):
        load("spelling", first=3).simulator.with_skill(Skill(skill=1))


def test_a_run_is_carried_out_and_read_again_from_its_journal(tmp_path: Path) -> None:
    task = ["task=verifiers", "task.id=sums_taskset", "method=duel_evolve", "method.max_pool=8"]

    def succeed(*settings: str) -> None:
        done = evorun_here(*task, *settings, "budget.calls_per_problem=12", cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    succeed("engine=simulated", "engine.skill=0.6", "hydra.run.dir=first")
    results = json.loads((tmp_path / "first/results.json").read_text())
    assert results["metrics"]["accuracy"]["n"] == 4
    succeed("engine=replay", f"engine.run={tmp_path / 'first'}", "hydra.run.dir=second")
    for file in ("predictions.jsonl", "steps.jsonl"):
        assert (tmp_path / "second" / file).read_bytes() == (tmp_path / "first" / file).read_bytes()


def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    task = ["task=verifiers", "task.id=sums_taskset", "method=duel_evolve", "method.max_pool=8"]
    task += ["budget.calls_per_problem=30", "engine=simulated", "engine.seconds_per_token=0.006"]
    check_killed_run(task, tmp_path, "grade|", modules=HERE)


def test_training_learns_from_the_rewards_and_not_from_right_or_wrong(tmp_path: Path) -> None:
    task = ["task=verifiers", "task.id=sums_taskset", "task.train_problems=2", "task.limit=1"]
    method = ["method=grpo", "method.steps=2", "method.problems_per_step=1", "method.group=8", "engine.skill=0.5"]
    done = evorun_here(*task, *method, "engine=simulated", "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rollouts = [json.loads(line) for line in (tmp_path / "run/rollouts.jsonl").read_text().splitlines()]
    assert {(rollout["reward"], rollout["correct"]) for rollout in rollouts} == {(0.25, False), (1, True)}
    replayed = evorun_here("replay", "run", cwd=tmp_path)
    assert "the records are the same to the byte" in replayed.stdout, replayed.stdout + replayed.stderr


# --- judges ---


@pytest.mark.parametrize("verdict", ["yes", "no", "neither"])
def test_the_gold_judge_answers_as_verifiers_own_judge_is_asked(verdict: str) -> None:
    judge = {"id": "reference", "answer_field": "capital", "weight": 2.0, "api_key_var": "NO_KEY"}
    given: dict[str, Any] = {"arguments": {"task": {"judges": [judge]}}}
    loaded = load("capitals", answer="capital", model_graded=True, right_from=2.5, **given)
    traces = asyncio.run(roll_out("capitals", given, ("<answer>Paris</answer>", "Rome."), verdict))
    problems = {problem.id: problem for problem in loaded.problems}
    for text, trace, _ in traces:
        tools = Judge(verdict)
        response = loaded.task.parse(problems[str(trace.task.data.idx)], text)
        found = asyncio.run(loaded.grade(problems[str(trace.task.data.idx)], response, tools))
        [call] = trace.info["judge_calls"]
        [(prompt, attempt)] = tools.asked
        assert [(m["role"], m["content"]) for m in prompt.messages] == [
            (m["role"], m["content"]) for m in call["request"]["messages"]
        ]
        assert attempt == 0
        if verdict == "neither":  # verifiers ends such a rollout with an error; it has no reward here either
            assert not trace.ok
            assert found.correct is None
            assert found.detail.startswith("unscored: the reply of the judge reference cannot be read")
        else:
            assert found.scores == {"reward": trace.reward}
            assert found.correct is (trace.reward >= 2.5)


def test_a_reward_that_asks_a_judge_is_answered_too_and_one_must_ask() -> None:
    loaded = load("refused", arguments={"why": "judged"}, model_graded=True)
    tools = Judge("anything")
    problem = loaded.problems[0]
    found = asyncio.run(loaded.grade(problem, loaded.task.parse(problem, "42"), tools))
    assert found.scores == {"reward": 2.0}
    assert tools.asked[0][0].messages[0]["content"] == "Is it right?"
    with pytest.raises(ConfigError, match="expected rewards that ask a judge, got some that ask none"):
        load("sums", model_graded=True)


def test_a_judged_run_is_carried_out_and_read_again_from_its_journal(tmp_path: Path) -> None:
    judges = "task.arguments={task:{judges:[{id:reference,answer_field:capital}]}}"
    task = ["task=verifiers", "task.id=capitals_taskset", "task.answer=capital", "task.model_graded=true", judges]
    task += ["method=best_of_n", "method.samples=3", "task.right_from=1"]
    done = evorun_here(*task, "engine=simulated", "engine.skill=0.7", "hydra.run.dir=first", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rewards = [json.loads(line)["scores"]["reward"] for line in (tmp_path / "first/predictions.jsonl").open()]
    assert len(set(rewards)) > 1
    again = evorun_here("replay", "first", cwd=tmp_path)
    assert "the records are the same to the byte" in again.stdout, again.stdout + again.stderr


# --- evorun's tasks as tasksets ---


def test_an_exported_task_is_graded_in_verifiers_as_in_evorun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("export", "task=arithmetic", "task.limit=4", "format=verifiers", "output=exported_taskset")
    done = evorun_here(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = evorun_here(*words, cwd=tmp_path)
    assert "overwrite=true" in again.stderr
    monkeypatch.syspath_prepend(str(tmp_path / "exported_taskset"))
    loaded: Any = load_task("arithmetic", limit=4)
    right = [loaded.task.write(problem, loaded.answers[problem.id]) for problem in loaded.problems]
    traces = asyncio.run(roll_out("exported", {}, [*right, "none"]))
    problems = {problem.id: problem for problem in loaded.problems}
    for text, trace, shown in traces:
        problem = problems[trace.task.data.id]
        prompt = loaded.task.generation_prompt(problem)
        assert shown == [(message["role"], message["content"]) for message in prompt.messages]
        assert trace.ok
        assert trace.reward == float(bool(grade(loaded, problem, text).correct))
        assert set(trace.task.data.model_dump(exclude_defaults=True)) == {
            "idx",
            "id",
            "prompt",
            "system_prompt",
            "problem",
        }
    assert sum(trace.reward for _, trace, _ in traces) == len(problems)
    # evorun runs it too, inside its own process, and finds the problems to train on.
    training = load_task("verifiers", id="exported_taskset", first=9, arguments={"task": {"training": True}})
    tested = [loaded.task.generation_prompt(problem).messages[-1]["content"] for problem in loaded.problems]
    assert len(training.problems) == 9
    assert not {problem.data["messages"][-1][1] for problem in training.problems} & set(tested)


@pytest.mark.nightly  # the rollouts of the test above are those of `vf-eval`; this one is of its command
def test_vf_eval_runs_an_exported_task(tmp_path: Path) -> None:
    words = ("export", "task=arithmetic", "task.limit=3", "format=verifiers", "output=expressions")
    assert evorun_here(*words, cwd=tmp_path).returncode == 0
    loaded: Any = load_task("arithmetic", limit=3)
    right = loaded.task.write(loaded.problems[0], loaded.answers[loaded.problems[0].id])
    where = os.pathsep.join((str(tmp_path / "expressions"), str(HERE), os.environ.get("PYTHONPATH", "")))

    async def evaluate() -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response(make_completion(right))

        application = web.Application()
        application.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        client = ("--env.agent.client.type", "eval", "--env.agent.client.base-url", url)
        harness = ("--env.agent.harness.id", "one_request_harness", "--env.agent.runtime.type", "subprocess")
        process = await asyncio.create_subprocess_exec(
            *(str(Path(sys.executable).with_name("vf-eval")), "expressions", "-m", "m", "--no-push", "-o", "found"),
            *(*client, "--env.agent.client.api-key-var", "NO_KEY", *harness),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": where, "NO_KEY": "none"},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 0
        await runner.cleanup()

    asyncio.run(evaluate())
    [path] = (tmp_path / "found").rglob("traces.jsonl")
    rewards = [json.loads(line)["traces"][0]["rewards"]["grade"]["score"] for line in path.read_text().splitlines()]
    assert sorted(rewards) == [0, 0, 1]


def test_evorun_runs_an_exported_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = evorun_here("export", "task=tsp", "task.limit=2", "format=verifiers", "output=routes", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    monkeypatch.syspath_prepend(str(tmp_path / "routes"))
    settings = ("task=verifiers", "task.id=routes", "method=best_of_n", "method.samples=2", "model=random")
    done = evorun_here(*settings, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("task=arithmetic", "output=My-Task"), "expected a folder whose name is that of a Python package"),
        (("task=arithmetic", "output=x", "method=espl"), "method: has no effect with format=verifiers"),
        (("output=x",), "task: expected a value with format=verifiers"),
        (("some/run", "output=x"), "expected task=NAME and its settings in place of runs, got some/run"),
        (("task=essay", "task.source=sample", "output=x"), "expected a task of one turn with ground truth"),
        (("task=search_qa", "task.source=sample", "output=x"), "expected a task of one turn with ground truth"),
    ],
)
def test_exports_that_cannot_be_are_refused_in_a_line(
    words: Sequence[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evorun.cli.export import export_runs
    from evorun.runs.terminal import Terminal

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        export_runs([*words, "format=verifiers"], Terminal())
    assert line in str(caught.value)
    assert list(tmp_path.iterdir()) == []
