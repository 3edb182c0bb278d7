"""Fine-tuning on Tinker's API beside TRL's, and runs of it, with Tinker's own package and a server in this process."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from given_commands import GivenCommands
from parity_task import (
    EMBEDDED,
    NO_TOKENIZER,
    adapter_of,
    lines,
    records,
    same_tensors,
    write_model,
)

from building import make_config, make_job, training_config
from evorun.errors import DataError, TrainingError
from evorun.models.config import ModelConfig
from evorun.models.requirements import find_missing_packages
from evorun.training.checkpoints import Checkpoints
from evorun.training.trainers import start_trainer
from evorun.training.wire import Evaluate, Export, Figures, FineTuning, Save, Train
from evorun_process import evorun_here

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.slow,
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
    pytest.mark.skipif(bool(find_missing_packages(["tinker"])), reason="needs the package tinker"),
]

EXACT: dict[str, Any] = {
    "rank": 4,
    "alpha": 32.0,
    "epsilon": 1.0,
    "learning_rate": 0.05,
    "schedule": "linear",
    "max_grad_norm": None,
}
"""Adam with so large an epsilon does not blow rounding up."""
SAID = ("a b c", "Yes, yes, yes.", "No.", "1 2 3 4 5 6 7 8 9", "Many of them, and I like the last one most.")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Any]:
    import tinker_server

    with pytest.MonkeyPatch.context() as environ, tinker_server.serving(model) as serving:
        environ.setenv("TINKER_API_KEY", tinker_server.KEY)
        yield serving


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of conversations, some with two answers."""
    file = tmp_path_factory.mktemp("chats") / "chats.jsonl"
    turns = [
        [{"role": "user", "content": f"Question {number}?"}, {"role": "assistant", "content": said}]
        + ([{"role": "user", "content": "And?"}, {"role": "assistant", "content": "So."}] if number % 2 else [])
        for number, said in enumerate(SAID)
    ]
    file.write_text("".join(json.dumps({"line": n, "messages": one}) + "\n" for n, one in enumerate(turns, start=1)))
    return file


def objective(chats: Path, **changes: Any) -> FineTuning:
    values: dict[str, Any] = {"train": str(chats), "held_out": str(chats), "source": "chats.jsonl"}
    return FineTuning(**{**values, "epochs": 2.0, "batch": 3, "max_length": 90, **changes})


def job_for(server: Any, folder: Path, told: FineTuning, **changes: Any) -> Any:
    training = {**EXACT, "base_url": server.url, "target_modules": ["all-linear"], "hang_timeout": 60.0}
    return make_job(Path(server.name), folder, make_config("training", "tinker", **training), told, **changes)


def figures(answer: Any) -> dict[str, float]:
    assert isinstance(answer, Figures)
    return answer.figures


@pytest.mark.nightly
async def test_steps_are_those_of_trl_and_a_checkpoint_restores_them(
    model: Path, server: Any, chats: Path, tmp_path: Path
) -> None:
    """Four steps over two epochs, of three and of one conversation; the last ones also from a checkpoint."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from evorun.training.fine_tuning import make_trainer
    from evorun.training.rollouts import Decoding
    from evorun.training.serving import Finished, Serving
    from evorun.training.versions import Versions

    told = objective(chats)
    here = make_job(model, tmp_path, training_config(**EXACT, micro_batch=2), told)
    commands = [Evaluate(), *(Train(number=number) for number in (1, 2, 3, 4)), Evaluate()]
    given, tokenizer = GivenCommands([*commands, Export(str(tmp_path / "trl"), "base")]), None
    tokenizer = AutoTokenizer.from_pretrained(model)
    serving = Serving(given, Decoding(tokenizer, here.model, 2, 0), Versions(0))  # type: ignore[arg-type]
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    trl = make_trainer(here, told, network, tokenizer, serving)
    serving.bind(trl)
    first = {name: one.detach().clone() for name, one in trl.model.named_parameters() if one.requires_grad}
    with contextlib.suppress(Finished):
        trl.train()
        serving.next_training()

    server.initial = first
    trainer = await start_trainer(job_for(server, tmp_path, told), tmp_path / "log")
    answers = []
    for place, command in enumerate(commands):
        answers.append(figures(await trainer.ask(command)))
        if place == 2:
            await trainer.ask(Save(str(tmp_path / "saved")))
    await trainer.ask(Export(str(tmp_path / "tinker"), "base"))
    await trainer.close()
    for own, expected in zip(answers, given.figures, strict=True):
        for name in own.keys() - {"trained_tokens", "scored_tokens"}:  # by which the server bills
            assert own[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6), name
    assert answers[0]["cut"] > 0
    assert answers[-1]["held_out_loss"] < answers[0]["held_out_loss"] - 0.01
    assert {"loss", "grad_norm", "learning_rate", "clipped_gradients"} <= answers[1].keys()
    trained, wanted = adapter_of(tmp_path / "tinker"), adapter_of(tmp_path / "trl")
    start = {name.replace(".default.", "."): one for name, one in first.items()}
    assert trained.keys() == wanted.keys() == start.keys()
    for name, one in wanted.items():
        assert float((trained[name] - one).norm()) <= 1e-3 * float((one - start[name]).norm()), name

    again = job_for(server, tmp_path, told, checkpoint=str(tmp_path / "saved"), updates=2)
    resumed = await start_trainer(again, tmp_path / "log")
    assert [figures(await resumed.ask(command)) for command in commands[3:]] == answers[3:]
    await resumed.close()


async def test_data_that_teach_nothing_are_refused_before_a_server_is_asked(
    server: Any, chats: Path, tmp_path: Path
) -> None:
    asked = len(server.seen)
    with pytest.raises(DataError, match=r"^chats.jsonl: expected conversations whose answers begin within 5 tokens"):
        await start_trainer(job_for(server, tmp_path, objective(chats, max_length=5)), tmp_path / "log")
    assert len(server.seen) == asked


LAFT = (
    *("experiment=laft/tiny", "engine=tinker", "training=tinker", "model=local", "model.context_length=2048"),
    *("task.training_instances=2", "method.max_tokens=8", "method.population=2", "method.generations=1"),
    *("student.teaching.population=4", "student.teaching.generations=1", "student.tuning.limit=6"),
    *("student.tuning.batch=2", "student.tuning.eval_max_tokens=8", "student.tuning.epochs=2"),
    *("student.tuning.held_out=0.2", "student.tuning.eval_every=2", "training.rank=4", "training.save_every=1"),
    *("training.learning_rate=0.01", "training.target_modules=[all-linear]", "evorun.progress=off"),
)


def started(folder: Path, server: Any, *more: str) -> Any:
    words = [*LAFT, f"model.id={server.name}", f"training.base_url={server.url}", f"engine.base_url={server.url}"]
    folder.mkdir(exist_ok=True)
    return evorun_here(*words, "hydra.run.dir=run", *more, cwd=folder)


def student(folder: Path) -> Path:
    [found] = (folder / "outputs" / "stages").glob("student_*")
    return found


@pytest.fixture(scope="module")
def prices(server: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    price = "{prompt: 1.0, completion: 3.0, train: 7.0, date: 2026-01-02, source: a contract}"
    file = tmp_path_factory.mktemp("prices") / "prices.yaml"
    file.write_text(f"models: {{{server.name}: {price}}}")
    return f"prices={file}"


@pytest.fixture(scope="module")
def whole(server: Any, prices: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing has disturbed."""
    server.initial = None
    server.billed |= {"trained": 0, "scored": 0}
    done = started(folder := tmp_path_factory.mktemp("whole"), server, prices)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.nightly
def test_laft_learns_and_repeats(server: Any, whole: Path) -> None:
    tuned = student(whole)
    training = [line["figures"] for line in lines(tuned / "training.jsonl")]
    assert training[0]["held_out"] > 0
    assert training[-1]["held_out_loss"] < training[0]["held_out_loss"]
    cost = json.loads((tuned / "results.json").read_text())["cost"]
    trained, scored = cost["training"]["trained_tokens"], cost["training"]["prompt_tokens"]
    assert {"trained": trained, "scored": scored} == server.billed
    assert min(trained, scored) > 0
    sampled = sum(spent["price"] for role, spent in cost.items() if role not in ("training", "total"))
    assert cost["training"]["price"] == pytest.approx((7 * trained + scored) / 1e6)
    assert cost["total"]["price"] == pytest.approx(sampled + cost["training"]["price"])
    learned = json.loads((tuned / "artifacts" / "adapter" / "tinker.json").read_text())["sampler"]
    assert server.sampled[-1] == learned  # by the run itself, after its stages
    assert "+adapter:" in json.loads((whole / "run" / "manifest.json").read_text())["models"]["policy"]["id"]
    asked = len(server.seen)
    done = evorun_here("replay", "run", cwd=whole)
    assert done.returncode == 0, done.stderr
    assert len(server.seen) == asked


@pytest.mark.nightly  # the first test goes on from a checkpoint
def test_laft_resumes(server: Any, prices: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fine-tuning stops where its second checkpoint is complete on the server and not yet on this disk."""
    server.initial = None
    tuned, again = student(whole), tmp_path / "again"
    training = [line["figures"] for line in lines(tuned / "training.jsonl")]
    seal = Checkpoints.seal

    def fail(self: Checkpoints, update: int) -> None:
        if update == 2:
            raise TrainingError("the power is gone")
        seal(self, update)

    steps = len(server.steps)
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "seal", fail)
        assert "the power is gone" in started(again, server, prices).stderr
    done = evorun_here("resume", "run", cwd=again)
    assert done.returncode == 0, done.stderr
    assert len(server.steps) - steps == training[0]["steps"] + 1  # the second again, from the first one's checkpoint
    assert records(student(again)) == records(tuned)
    assert records(again / "run") == records(whole / "run")
    assert same_tensors(*(adapter_of(student(folder) / "artifacts/adapter") for folder in (again, whole)))


def test_a_student_is_known_by_its_address_where_a_server_exports_no_weights(tmp_path: Path) -> None:
    (tmp_path / "tinker.json").write_text('{"sampler": "tinker://a/sampler_weights/update-1"}')
    first = ModelConfig(name="tiny", id="tiny", adapter=str(tmp_path)).identity
    (tmp_path / "tinker.json").write_text('{"sampler": "tinker://a/sampler_weights/update-2"}')
    assert first != ModelConfig(name="tiny", id="tiny", adapter=str(tmp_path)).identity
    assert first.startswith("tiny+adapter:")
