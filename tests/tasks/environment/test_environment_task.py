"""`task=environment`: turns, rewards, several calls, sessions that are lost, resumes, and an OpenEnv server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from locks import Lock, LockServer

from building import NoTools, load_task, task_config
from evorun.errors import ConfigError, DataError, ToolError
from evorun.tasks.base import Grade
from evorun.tasks.environment.base import describe_parameters
from evorun.tasks.tool_calls import write_call
from evorun.testing.tasks import check_task
from evorun_process import evorun_here
from killed_runs import check_killed_run

LOCKS = Path(__file__).parent / "locks.py"
LOOK = write_call("look", {})


def turn(steps: Any) -> str:
    return write_call("turn", {"steps": steps})


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Return a file of four locks with their solutions; the last is there twice."""
    given = [{"number": n, "solution": [f"I look. {LOOK}", turn(1), turn(n - 1)]} for n in (3, 4, 5, 6, 6)]
    (path := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, given)))
    return path


class Remembering(NoTools):
    async def remember(self, about: object, compute: Any, kind: type) -> Any:
        return await compute()


def grade(loaded: Any, problem: Any, turns: list[str]) -> Grade:
    response = loaded.task.parse(problem, loaded.task.join_turns(turns))
    found: Grade = asyncio.run(loaded.grade(problem, response, Remembering()))
    return found


async def play(loaded: Any, problem: Any, turns: list[str]) -> list[str | None]:
    """Return the answer to each turn of an episode."""
    answers = [await loaded.task.answer_episode(problem, turns[: n + 1]) for n in range(len(turns))]
    return [answer and answer["content"] for answer in answers]


def load(rows: Path, name: str = "Lock", **settings: Any) -> Any:
    return load_task("environment", environment=f"{LOCKS}:{name}", rows=str(rows), **settings)


def test_turns_are_answered_and_the_episode_is_rewarded(rows: Path) -> None:
    loaded = load(rows, max_turns=4)
    problem = next(p for p in loaded.problems if "number is 5" in p.data["question"])
    turns = [f"{LOOK} and {turn(2)}", turn("far"), turn(3)]
    both, wrong, opened = asyncio.run(play(loaded, problem, turns))
    assert both == '{"dial":0}\n\nstill locked\n\nTurns left: 3.'
    assert wrong is not None
    assert wrong.startswith("error: TypeError:")
    assert wrong.endswith("Turns left: 2.")
    assert opened is None  # the lock is open, so that the episode ends
    assert grade(loaded, problem, turns) == Grade(correct=True, scores={"reward": 1.0})
    assert grade(loaded, problem, turns[:1]).scores == {"reward": 0.5}
    assert grade(loaded, problem, [*[LOOK] * 3, turn(1), turn(4)]).correct is False  # its turns were over before
    assert asyncio.run(play(loaded, problem, ["I give up."])) == [None]
    last = asyncio.run(play(loaded, problem, [LOOK] * 3))[-1]
    assert last is not None
    assert last.endswith("This is your last turn.")


def test_a_model_sees_the_tools_and_their_schemas(rows: Path) -> None:
    loaded = load(rows)
    prompt = loaded.task.generation_prompt(loaded.problems[0]).messages[-1]["content"]
    lines = [json.loads(line) for line in prompt.splitlines() if line.startswith('{"name"')]
    assert [line["name"] for line in lines] == ["look", "turn"]
    assert lines[1]["parameters"] == describe_parameters(Lock().turn)
    assert lines[1]["parameters"]["properties"] == {"steps": {"type": "integer"}}
    assert "solution" not in prompt
    assert "1 repeated ones left out" in loaded.provenance.description


def test_a_row_may_hold_any_character_of_json(tmp_path: Path) -> None:
    (path := tmp_path / "rows.jsonl").write_text('{"number": 3, "prompt": "Open\u2028it."}\n{"number": 4}\n', "utf-8")
    assert any("Open\u2028it." in problem.data["question"] for problem in load(path).problems)


def test_a_lost_session_is_played_again(rows: Path) -> None:
    loaded = load(rows, sessions=2)
    problem = next(p for p in loaded.problems if "number is 6" in p.data["question"])
    turns = [turn(1), LOOK, turn(-1), LOOK]
    alone = [asyncio.run(loaded.task.answer_episode(problem, turns[: n + 1]))["content"] for n in range(4)]
    Lock.made = 0
    assert asyncio.run(play(loaded, problem, turns)) == alone  # each of the former had to play all turns before it
    assert Lock.made == 1

    async def many() -> None:
        # More episodes than environments, interleaved: idle ones are closed and played again.
        episodes = [[turn(n), LOOK, turn(-n), LOOK] for n in range(5)]
        answers = await asyncio.gather(*(play(loaded, problem, episode) for episode in episodes))
        for n, answer in enumerate(answers):
            assert json.loads(answer[1].partition("\n")[0]) == {"dial": n}
            assert json.loads(answer[3].partition("\n")[0]) == {"dial": 0}

    asyncio.run(many())


@pytest.mark.nightly
def test_it_conforms(rows: Path) -> None:
    check_task(task_config("environment", environment=f"{LOCKS}:Lock", rows=str(rows), validation_problems=1))


@pytest.mark.parametrize(
    ("settings", "error", "line"),
    [
        ({}, ConfigError, "task.environment: expected package.module:NAME, or task.url=URL"),
        ({"environment": f"{LOCKS}:Silent"}, ConfigError, r"expected an object with get_reward\(\), got Silent"),
        ({"environment": f"{LOCKS}:Moody"}, ConfigError, "expected the same text after each reset"),
        ({"environment": f"{LOCKS}:absent"}, ConfigError, "cannot be imported: AttributeError"),
        ({"environment": f"{LOCKS}:Lock", "rows": None}, ConfigError, "task.rows: expected a file"),
        ({"environment": f"{LOCKS}:Lock", "rows": None, "problems": 2}, ConfigError, "it failed: TypeError"),
        ({"environment": f"{LOCKS}:Lock", "rows": "absent.jsonl"}, DataError, "expected a file of JSON lines"),
        ({"environment": f"{LOCKS}:Lock", "problems": 2}, ConfigError, "task.problems: expected without task.rows"),
        ({"environment": f"{LOCKS}:Lock", "url": "http://h"}, ConfigError, "task.url: expected without"),
        ({"environment": f"{LOCKS}:Lock", "train_problems": 4}, DataError, "expected more than .* = 4 different"),
        ({"url": "http://127.0.0.1:9"}, ToolError, "the environment does not answer: "),
    ],
)
def test_wrong_settings_are_refused_in_a_line(
    settings: dict[str, Any], error: type[Exception], line: str, rows: Path
) -> None:
    with pytest.raises(error, match=line) as caught:
        load_task("environment", **{"rows": str(rows), **settings})
    assert "\n" not in str(caught.value)


@pytest.mark.nightly
def test_a_run_replays_without_its_environment(rows: Path, tmp_path: Path) -> None:
    task = ["task=environment", f"task.environment={LOCKS}:Lock", f"task.rows={rows}", "method=best_of_n"]
    task += ["method.samples=4", "method.rounds=2", "method.duels=2"]
    done = evorun_here(*task, "engine=simulated", "engine.skill=0.5", "hydra.run.dir=first", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    predictions = [json.loads(line) for line in (tmp_path / "first/predictions.jsonl").read_text().splitlines()]
    assert len(predictions) == 4
    assert any(prediction["correct"] for prediction in predictions)
    Lock.made = 0
    replay = ["engine=replay", f"engine.run={tmp_path / 'first'}", "hydra.run.dir=second"]
    again = evorun_here(*task, *replay, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    for file in ("predictions.jsonl", "steps.jsonl", "candidates.jsonl"):
        assert (tmp_path / "second" / file).read_bytes() == (tmp_path / "first" / file).read_bytes()


@pytest.mark.nightly
def test_a_run_killed_within_an_episode_resumes_to_the_same_bytes(rows: Path, tmp_path: Path) -> None:
    task = ["task=environment", f"task.environment={LOCKS}:Lock", f"task.rows={rows}", "method=best_of_n"]
    task += ["method.samples=4", "method.rounds=2", "method.duels=2", "engine=simulated", "engine.skill=0.9"]
    check_killed_run([*task, "engine.seconds_per_token=0.01"], tmp_path, "tools")


@pytest.mark.nightly
def test_grpo_learns_from_episodes_and_replays(rows: Path, tmp_path: Path) -> None:
    task = ["task=environment", f"task.environment={LOCKS}:Lock", f"task.rows={rows}", "task.train_problems=2"]
    method = ["method=grpo", "method.steps=2", "method.problems_per_step=2", "method.group=4"]
    done = evorun_here(*task, *method, "engine=simulated", "engine.skill=0.8", "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rollouts = [json.loads(line) for line in (tmp_path / "run/rollouts.jsonl").read_text().splitlines()]
    assert {rollout["turns"] for rollout in rollouts} >= {1, 3}
    assert any(rollout["advantage"] for rollout in rollouts)
    # A look at the dial is rewarded, although the lock stays closed.
    assert {(rollout["reward"], rollout["correct"]) for rollout in rollouts} == {(0, False), (0.5, False), (1, True)}
    replayed = evorun_here("replay", "run", cwd=tmp_path)
    assert "the records are the same to the byte" in replayed.stdout, replayed.stdout + replayed.stderr


# --- OpenEnv ---


async def serve(server: LockServer, **settings: Any) -> Any:
    config = task_config("environment", url=server.url, problems=3, timeout=5.0, **settings)
    return await asyncio.to_thread(config.load)


@pytest.mark.parametrize("mcp", [True, False])
def test_an_openenv_server_is_played_over_its_websocket(mcp: bool) -> None:
    async def run() -> None:
        async with LockServer(mcp=mcp) as server:
            loaded = await serve(server)
            problem = next(p for p in loaded.problems if p.id == "2")
            assert problem.data["question"] == "Open the lock: its number is 5."
            act = turn if mcp else lambda steps: write_call("step", {"steps": steps})
            turns = [*([LOOK] if mcp else []), write_call("smash", {}), act(2), act(3)]
            answers = await play(loaded, problem, turns)
            if mcp:
                assert answers.pop(0) == '{"dial":0}\n\nTurns left: 7.'
            assert "error: " in answers[0]
            assert answers[1].startswith("still locked\n\nTurns left:")
            assert answers[2] is None
            response = loaded.task.parse(problem, loaded.task.join_turns(turns))
            found = await loaded.grade(problem, response, Remembering())
            assert found.scores == {"reward": 1.0 if mcp else 0.5}
            assert server.sessions == 0

    asyncio.run(run())


@pytest.mark.nightly
def test_a_broken_connection_is_played_again_and_a_full_server_named() -> None:
    async def run() -> None:
        async with LockServer(mcp=True, capacity=2) as server:
            loaded = await serve(server, sessions=2)
            problem = loaded.problems[0]
            server.breaks = {server.opened + 1}
            answers = await play(loaded, problem, [turn(1), LOOK])
            assert answers[1].startswith('{"dial":1}')
            await asyncio.gather(*(play(loaded, problem, [turn(n), LOOK, turn(7)]) for n in range(-6, 0)))
            assert server.most <= 2
            server.capacity = 0
            with pytest.raises(ToolError, match=r"CAPACITY_REACHED.*; lower task.sessions"):
                await play(loaded, problem, [turn(50)])

    asyncio.run(run())
