"""Jobs side by side that ask one process for their models: loaded once, gone with the last job, the same records."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from building import composed, make_config
from evorun.cli.given_job import GivenJob
from evorun.cli.local_launcher import divide_machine
from evorun.cli.shared_models import JobGroup, ModelServer, group_jobs
from evorun.errors import ConfigError, EngineError
from evorun.models.config import ModelConfig, ServedModel
from evorun.models.devices import read_inventory
from evorun.models.sharing import SharedModel
from evorun.runner.gpu_plans import record, show_numbers
from evorun.runner.settings import check
from evorun.runner.shared_plans import SharedEngines
from evorun.runs.manifest import ModelInRun
from evorun.runs.prices import gpu_seconds
from evorun.testing.engines import ask
from evorun_process import environment, evorun_here, records
from journals import effects_in
from tiny_llama import write_talking_llama

WORDS = ("method=zero_shot", "task=arithmetic", "task.limit=3", "task.sampling.max_tokens=60", "engine=transformers")
ALONE = ("engine.max_batch_size=1", "engine.prefix_cache_tokens=0")
"""No text then depends on the rounding of others in its batch."""
LOCAL = ("hydra/launcher=local", "hydra.launcher.jobs=2")
SHARED = (*LOCAL, "hydra.launcher.share_models=true", "hydra.sweep.dir=shared")


def processes_of(folder: Path) -> list[int]:
    """Return the processes with the environment of a program that was started for a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"STARTED_FOR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 300
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.embedded
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_launcher_that_is_stopped_leaves_no_process_and_a_run_of_its_own_goes_on(
    number: signal.Signals, tmp_path: Path
) -> None:
    model = write_talking_llama(tmp_path / "model")
    words = (*WORDS, *ALONE, "model=local", f"model.id={model}", "model.dtype=float32")
    process = subprocess.Popen(
        [sys.executable, "-m", "evorun", "-m", "seed=0,1", *words, *SHARED],
        cwd=tmp_path,
        env={**environment(), "STARTED_FOR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    sweep = tmp_path / "shared"
    until(lambda: process.poll() is not None or any(effects_in(one) for one in sweep.glob("*/journal.sqlite")))
    process.send_signal(number)
    process.wait(timeout=300)
    until(lambda: not processes_of(tmp_path))
    assert (sweep / "model_server.log").read_text().splitlines()[:1] == [f"loading {model} with engine=transformers"]
    assert (sweep / "model_server.log").read_text().count("loading") == 1
    manifests = [json.loads(path.read_text()) for path in sweep.glob("*/manifest.json")]
    assert {manifest["models"]["policy"]["shared_by"] for manifest in manifests} == {2}
    assert {manifest["status"] for manifest in manifests} <= {"completed", "interrupted"}
    recorded = {journal: effects_in(journal) for journal in sweep.glob("*/journal.sqlite")}
    resumed = evorun_here("resume", "shared", "hydra/launcher=basic", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert {path: effects_in(path) >= count for path, count in recorded.items()} == dict.fromkeys(recorded, True)
    job = max(recorded, key=lambda path: recorded[path]).parent
    seed = json.loads((job / "manifest.json").read_text())["seed"]
    own = evorun_here(*words, f"seed={seed}", "hydra.run.dir=own", cwd=tmp_path)
    assert own.returncode == 0, own.stderr
    assert records(job) == records(tmp_path / "own")
    assert effects_in(job / "journal.sqlite") == effects_in(tmp_path / "own" / "journal.sqlite")


def given(*overrides: str) -> GivenJob:
    return GivenJob(config=composed(*overrides), folder="job", command=[], debug=False)


BASIC = ("task=arithmetic", "engine=transformers")


def test_jobs_are_grouped_by_the_models_that_they_need() -> None:
    jobs = {
        0: given("method=zero_shot", *BASIC),
        1: given("method=zero_shot", "task=arithmetic", "engine=simulated"),
        2: given("method=duel_evolve", *BASIC, "judge=local", "judge.id=other"),
        3: given("method=best_of_n", *BASIC, "seed=3"),
        4: given("method=grpo", *BASIC),
        5: None,
        6: given("method=zero_shot", *BASIC, "engine.max_batch_size=7"),
        7: given("method=best_of_n", *BASIC, "judge=local", "judge.id=other"),
    }
    groups = group_jobs(jobs)
    assert [group.jobs for group in groups] == [[0, 3], [1, 4, 5, 6], [2, 7]]
    assert [[served.model.id for served in group.models] for group in groups] == [
        ["HuggingFaceTB/SmolLM2-135M-Instruct"],
        [],
        ["HuggingFaceTB/SmolLM2-135M-Instruct", "other"],
    ]


def served_by(**engine: object) -> list[ServedModel]:
    return [ServedModel(ModelConfig(name="m", id="m"), make_config("engine", "vllm", **engine))]


def places(jobs: int | None, count: int, models: Sequence[ServedModel]) -> tuple[list[str], list[str]]:
    """Return the GPUs of each job that runs at once, and of each process that serves models."""
    of_jobs, of_servers = divide_machine(jobs, JobGroup(list(range(count)), models), SharedEngines((), ()))
    return [one["CUDA_VISIBLE_DEVICES"] for one in of_jobs], [one["CUDA_VISIBLE_DEVICES"] for one in of_servers]


def test_as_many_processes_serve_models_as_the_gpus_suffice_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert places(None, 9, served_by()) == (["4", "5", "6", "7", "4", "5"], ["4", "5", "6", "7"])
    assert places(3, 9, served_by(tensor_parallel_size=2)) == (["4,6", "5,7", "4,6"], ["4,6", "5,7"])
    assert places(8, 3, served_by(devices=[3])) == (["4,5,6,7"] * 3, ["4,5,6,7"])
    assert places(1, 3, served_by(tensor_parallel_size=8)) == (["4,5,6,7"], ["4,5,6,7"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    shares, [server] = divide_machine(3, JobGroup([0, 1, 2], served_by()), SharedEngines((), ()))
    assert len(shares) == 3
    assert server == {"OMP_NUM_THREADS": "6"}


SEVEN_B = ("task=arithmetic", "engine=vllm", "model=qwen2_5_7b")
OTHER_JUDGE = (*SEVEN_B, "judge=qwen2_1_5b", "judge_engine=vllm")
AS_JUDGE = ("task=arithmetic", "engine=vllm", "model=qwen2_1_5b", "judge=qwen2_5_7b", "judge_engine=vllm")

PLACES: dict[tuple[tuple[tuple[str, ...], ...], str], tuple[int, list[str]]] = {
    # a method without a judge, and one that judges with the policy
    ((("method=zero_shot", *SEVEN_B), ("method=duel_evolve", *SEVEN_B)), "8x80"): (
        1,
        ["qwen2_5_7b: policy,judge on 0, 14.2 GiB, 90%"],
    ),
    ((("method=duel_evolve", *OTHER_JUDGE), ("method=best_of_n", *OTHER_JUDGE)), "1x80"): (
        1,
        ["qwen2_5_7b: policy on 0, 14.2 GiB, 69%", "qwen2_1_5b: judge on 0, 2.9 GiB, 21%"],
    ),
    ((("method=duel_evolve", *OTHER_JUDGE), ("method=best_of_n", *OTHER_JUDGE)), "2x24"): (
        2,
        ["qwen2_5_7b: policy on 0, 14.2 GiB, 90%", "qwen2_1_5b: judge on 1, 2.9 GiB, 90%"],
    ),
    # each is the other's judge
    ((("method=duel_evolve", *OTHER_JUDGE), ("method=duel_evolve", *AS_JUDGE)), "2x80"): (
        1,
        ["qwen2_5_7b: policy,judge on 0, 14.2 GiB, 72%", "qwen2_1_5b: judge,policy on 0, 2.9 GiB, 18%"],
    ),
}


@pytest.mark.parametrize(("jobs", "gpus"), PLACES)
def test_an_engine_of_several_runs_has_one_place(jobs: tuple[tuple[str, ...], ...], gpus: str) -> None:
    configs = [check(composed(*words)) for words in jobs]
    there = read_inventory(gpus)
    engines = SharedEngines(configs, there)
    count = engines.count_gpus(there)
    assert count is not None
    plan = engines.plan(there[:count])
    assert plan is not None
    lines = [
        f"{one.model}: {','.join(one.roles)} on {show_numbers(one.gpus)}, {one.weights_gib:.1f} GiB, {one.share:.0%}"
        for one in record(plan)
    ]
    assert (count, lines) == PLACES[jobs, gpus]
    models = group_jobs({number: given(*words) for number, words in enumerate(jobs)})[0].models
    shares = [served.engine.gpu_memory_utilization for served in engines.set_places(models, plan)]  # type: ignore[attr-defined]
    assert shares == [pytest.approx(one.share) for one in record(plan)]


def test_engines_that_fit_on_no_gpu_are_refused() -> None:
    small = read_inventory("1x24")
    with pytest.raises(ConfigError, match=r"^GPUs: expected room for engine .*judge_engine"):
        SharedEngines([check(composed("method=duel_evolve", *OTHER_JUDGE))], small).count_gpus(small)


@pytest.mark.nightly
async def test_a_process_serves_until_nobody_holds_it(tmp_path: Path) -> None:
    # an engine that fails at once, and imports nothing heavy
    model = ServedModel(
        ModelConfig(name="m", id="m"), make_config("engine", "server", base_urls=["http://127.0.0.1:9"])
    )
    server = ModelServer([model], 2, {}, tmp_path / "model_server.log")
    job = os.dup(server.shared.held)
    run = await SharedModel(model, server.shared).open()
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9 unreachable"):
        await run.complete(ask("Hello."))
    server.process.terminate()  # as when a container stops: jobs that stop in order still need it
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9 unreachable"):
        await run.complete(ask("Hello."))
    await run.close()
    server.check()
    os.close(job)
    server.end()
    assert server.process.returncode == 0
    assert not os.path.exists(server.shared.path)  # noqa: ASYNC240 (a look)


def test_a_process_that_has_ended_is_named_with_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "model_server.log"
    log.write_text("of an earlier sweep\n")
    server = ModelServer(served_by(), 2, {}, log)
    folder = Path(server.shared.path).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    server.check()
    with log.open("a") as file:
        file.write("\nCUDA out of memory\n")
    server.process.kill()
    server.process.wait(timeout=60)
    with pytest.raises(
        EngineError, match=r"was killed by SIGKILL; .*model_server\.log ends with: .*out of memory"
    ) as said:
        server.check()
    assert "earlier" not in str(said.value)
    server.end()
    assert not folder.exists()


def test_jobs_that_share_a_process_have_equal_parts_of_its_gpu_seconds() -> None:
    models = {"policy": ModelInRun("m", "m", "vllm", shared_by=4), "judge": ModelInRun("j", "j", "server")}
    run = SimpleNamespace(seconds=60.0, hardware={"gpus": ["A", "B"]}, models=models, prices={}, gpu_price=None)
    assert gpu_seconds(run) == 60 * 2 / 4
    models["policy"] = ModelInRun("m", "m", "vllm")
    assert gpu_seconds(run) == 60 * 2
