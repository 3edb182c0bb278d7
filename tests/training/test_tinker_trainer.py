"""The trainer on Tinker's API beside TRL's, with Tinker's own package and a server in this process."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from parity_task import EMBEDDED, NO_TOKENIZER, adapter_of, write_model

from building import make_config, make_job, policy_gradient, training_config
from evorun.errors import EngineError, EvorunError, TrainingError
from evorun.models.base import Request, Sampling
from evorun.models.config import ModelConfig
from evorun.models.requirements import find_missing_packages
from evorun.testing import engines as suite
from evorun.training.trainers import Trainer, start_trainer
from evorun.training.wire import Done, Export, Figures, Finish, Generate, Replies, Row, Save, Train
from tiny_llama import write_talking_llama

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
    pytest.mark.skipif(bool(find_missing_packages(["tinker"])), reason="needs the package tinker"),
]

EXACT: dict[str, Any] = {"rank": 4, "alpha": 32.0, "epsilon": 1.0, "learning_rate": 0.02, "schedule": "linear"}
"""Adam with so large an epsilon does not blow rounding up."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny", layers=2)


@pytest.fixture
def server(model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import tinker_server

    monkeypatch.setenv("TINKER_API_KEY", tinker_server.KEY)
    with tinker_server.serving(model) as serving:
        yield serving


def job_for(server: Any, folder: Path, /, training: dict[str, Any] | None = None, **objective: Any) -> Any:
    settings: dict[str, Any] = {"base_url": server.url, "rank": 4, "target_modules": ["all-linear"]}
    settings |= {"hang_timeout": 60.0, **(training or {})}
    made = make_config("training", "tinker", **settings)
    return make_job(Path(server.name), folder, made, policy_gradient(**objective))


def rows(count: int, seed: int) -> tuple[Row, ...]:
    """Return rows of many lengths whose sampler was far from the policy, and in which tools have turns."""
    rng = np.random.default_rng(seed)

    def row() -> Row:
        prompt, tokens = (tuple(rng.integers(20, 2000, rng.integers(2, most)).tolist()) for most in (12, 20))
        learned = tuple(index % 3 != 1 for index in range(len(tokens)))
        logprobs = tuple(float(rng.normal(-7, 2)) if one else 0.0 for one in learned)
        worth = float(rng.normal())
        return Row(prompt=prompt, tokens=tokens, learned=learned, reward=worth, advantage=worth, logprobs=logprobs)

    return tuple(row() for _ in range(count))


CASES = {
    "dr_grpo": {"loss": "dr_grpo", "clip_low": 0.2, "clip_high": 0.3},
    "cispo": {"loss": "cispo", "clip_low": 0.0, "clip_high": 4.0},
}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param("dr_grpo", marks=pytest.mark.nightly), "cispo"])
async def test_updates_are_those_of_trl(case: str, model: Path, server: Any, tmp_path: Path) -> None:
    """Two updates of two steps each: later ones also depend on Adam's state, the schedule and earlier weights."""
    import torch
    from steps import Batches, named, watched
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from evorun.training.policy_gradient import PolicyGradientTrainer

    batches, objective = [rows(6, seed=1), rows(7, seed=2)], {"steps": 2, "minibatches": 2, **CASES[case]}
    told, own = policy_gradient(**objective), training_config(**EXACT, max_grad_norm=None)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    here = make_job(model, tmp_path / "trl", own, told)
    trl = PolicyGradientTrainer(here, told, network, AutoTokenizer.from_pretrained(model), Batches(batches))  # type: ignore[arg-type]
    server.initial = {name: one.detach().clone() for name, one in trl.model.named_parameters() if one.requires_grad}
    expected = watched(trl)

    trainer = await start_trainer(job_for(server, tmp_path, EXACT, **objective), tmp_path / "log")
    updates = [await trainer.ask(Train(number=number, rows=batch)) for number, batch in enumerate(batches, start=1)]
    await trainer.ask(Export(str(tmp_path / "adapter"), "base", 2))
    await trainer.close()
    trained = adapter_of(tmp_path / "adapter")
    first = {named(name): one for name, one in server.initial.items()}
    assert trained.keys() == expected.adapter.keys()
    for name, one in trained.items():
        moved, wanted = one - first[name], expected.adapter[name] - first[name]
        assert float((moved - wanted).norm()) <= 1e-3 * float(wanted.norm()), name
        assert float(wanted.norm()) > 0
    for index, update in enumerate(updates):
        assert isinstance(update, Figures)
        logged = expected.figures[2 * index : 2 * index + 2]
        for name in ("loss", "clip_ratio", "sampler_kl", "learning_rate", "grad_norm"):
            mean = sum(entry[name] for entry in logged) / 2
            assert update.figures[name] == pytest.approx(mean, rel=1e-3, abs=1e-6), name
    assert updates[0].figures["clip_ratio"] > 0.02  # type: ignore[union-attr]


@pytest.mark.nightly
@pytest.mark.slow
async def test_a_divergence_has_the_gradient_of_trl_where_the_sampler_is_the_policy(
    model: Path, server: Any, tmp_path: Path
) -> None:
    import torch
    from steps import Batches, named, watched
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from evorun.training.policy_gradient import PolicyGradientTrainer

    changes = {"loss": "dr_grpo", "steps": 1, "kl": 0.7}
    told, own = policy_gradient(**changes), training_config(**EXACT, max_grad_norm=None)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    here = make_job(model, tmp_path / "trl", own, told)
    trl = PolicyGradientTrainer(here, told, network, AutoTokenizer.from_pretrained(model), Batches([]))  # type: ignore[arg-type]
    trl._serving = Batches([scored := sampled_by(trl.model, rows(5, seed=1))])  # type: ignore[assignment]
    server.initial = {name: one.detach().clone() for name, one in trl.model.named_parameters() if one.requires_grad}
    expected = watched(trl)

    trainer = await start_trainer(job_for(server, tmp_path, EXACT, **changes), tmp_path / "log")
    update = await trainer.ask(Train(number=1, rows=scored))
    await trainer.ask(Export(str(tmp_path / "adapter"), "base", 1))
    await trainer.close()
    first = {named(name): one for name, one in server.initial.items()}
    for name, one in adapter_of(tmp_path / "adapter").items():
        moved, wanted = one - first[name], expected.adapter[name] - first[name]
        assert float((moved - wanted).norm()) <= 1e-3 * float(wanted.norm()), name
    assert isinstance(update, Figures)
    assert update.figures["kl"] == pytest.approx(expected.figures[0]["kl"], rel=1e-3)
    assert update.figures["kl"] > 0.01


def sampled_by(network: Any, given: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return rows with the log-probabilities of an adapter that is made to differ from the base model."""
    import msgspec
    import torch

    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.03 * torch.randn(parameter.shape, generator=generator))
        scored = []
        for row in given:
            ids = torch.tensor([[*row.prompt, *row.tokens]])
            chances = network(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
            own = chances[len(row.prompt) - 1 :].tolist()
            logprobs = tuple(value if is_learned else 0.0 for value, is_learned in zip(own, row.learned, strict=True))
            scored.append(msgspec.structs.replace(row, logprobs=logprobs))
    return tuple(scored)


ASKED = Request(
    messages=({"role": "user", "content": "Say a word."},),
    sampling=Sampling(max_tokens=6, n=2),
    seed=3,
    token_ids=True,
    logprobs=True,
)


def timeless(answer: Any) -> Any:
    """Return an update's figures without its speed."""
    assert isinstance(answer, Figures)
    return answer.figures


async def said(trainer: Trainer, version: int | None) -> list[Any]:
    answer = await trainer.ask(Generate(requests=(ASKED,), version=version))
    assert isinstance(answer, Replies)
    return [completion.token_ids for completion in answer.replies[0].completions]


@pytest.mark.nightly
async def test_messages_are_answered_and_a_checkpoint_restores_all(server: Any, tmp_path: Path) -> None:
    changes = {"learning_rate": 0.05, "schedule": "constant_with_warmup", "warmup_steps": 2}
    job = job_for(server, tmp_path, changes, minibatches=2)
    trainer = await start_trainer(job, tmp_path / "log")
    untrained = await said(trainer, 0)
    assert untrained == await said(trainer, None)  # an adapter begins with no effect
    await trainer.ask(Train(number=1, rows=rows(4, seed=1)))
    await trainer.ask(Train(number=2, rows=rows(4, seed=2)))
    assert await trainer.ask(Save(str(tmp_path / "saved"))) == Done()
    spoken = [await said(trainer, version) for version in (1, 2)]
    assert len({str(one) for one in (untrained, *spoken)}) == 3
    with pytest.raises(TrainingError, match="weights of update 2, got one for update 0"):
        await said(trainer, 0)
    third = timeless(await trainer.ask(Train(number=3, rows=rows(4, seed=3))))
    assert await trainer.ask(Finish()) == Done()
    with pytest.raises(TrainingError, match="has ended"):
        await said(trainer, 3)
    await trainer.close()

    saved = {"checkpoint": str(tmp_path / "saved"), "updates": 2}
    again = make_job(Path(server.name), tmp_path, job.training, job.objective, **saved)
    resumed = await start_trainer(again, tmp_path / "log")
    assert [await said(resumed, version) for version in (1, 2)] == spoken
    assert timeless(await resumed.ask(Train(number=3, rows=rows(4, seed=3)))) == third
    await resumed.close()
    assert [step["learning_rate"] for step in server.steps] == [0.0, 0.025, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05]


@pytest.mark.nightly
async def test_a_server_that_falls_silent_is_a_line(server: Any, tmp_path: Path) -> None:
    trainer = await start_trainer(job := job_for(server, tmp_path), tmp_path / "log")
    job.training.hang_timeout = 0.5  # not at the start: a busy machine may take any time for that
    server.until["optim_step"] = len(server.steps)
    said = "train 1: the server has not answered in time; `evorun resume RUN_DIR` goes on from the last checkpoint"
    with pytest.raises(EvorunError, match=re.escape(said)):
        await trainer.ask(Train(number=1, rows=rows(4, seed=1)))
    await trainer.close()


async def refusal(server: Any, folder: Path, **changes: Any) -> str:
    """Return the line with which a trainer does not start."""
    job = job_for(server, folder)
    job = make_job(Path(changes.pop("model", server.name)), folder, job.training, job.objective, **changes)
    with pytest.raises(EvorunError) as refused:
        await start_trainer(job, folder / "log")
    assert len(str(refused.value).splitlines()) == 1
    assert "tml-" not in str(refused.value)
    return str(refused.value)


async def test_what_keeps_a_trainer_from_starting(
    server: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"has no model '/elsewhere'; it has {model}" in await refusal(server, tmp_path, model="/elsewhere")
    (tmp_path / "gone").mkdir()
    assert "expected tinker.json" in await refusal(server, tmp_path, checkpoint=str(tmp_path / "gone"))
    gone = {"state": "tinker://a/weights/b", "snapshots": {}, "optimiser_steps": 1}
    (tmp_path / "gone" / "tinker.json").write_text(json.dumps(gone))
    said = await refusal(server, tmp_path, checkpoint=str(tmp_path / "gone"))
    assert "cannot restore tinker://a/weights/b: Request failed: no checkpoint at tinker://a/weights/b" in said
    job = job_for(server, tmp_path, {"base_url": "http://127.0.0.1:9"})
    with pytest.raises(EngineError, match=r"no server answers at http://127.0.0.1:9 .*correct training.base_url"):
        await start_trainer(job, tmp_path / "log")
    monkeypatch.setenv("TINKER_API_KEY", "tml-another-key")
    assert re.search("Invalid API key.*check the key in TINKER_API_KEY", await refusal(server, tmp_path))
    monkeypatch.setenv("TINKER_API_KEY", "")
    assert "expected a key that begins with" in await_error(start_trainer(job_for(server, tmp_path), tmp_path / "log"))


def await_error(starting: Any) -> str:
    """Return the error of a coroutine that ends at once."""
    try:
        starting.send(None)
    except EngineError as error:
        return str(error)
    raise AssertionError


@pytest.mark.nightly
async def test_it_is_an_engine_but_for_schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite of all engines, without what the API lacks: schemas, and log-probabilities beside temperature 1."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import tinker_server
    from forward_pass import scorer

    model = write_talking_llama(tmp_path / "talking")
    config = ModelConfig(name="tiny", id=str(model), context_length=2048)
    weights = AutoModelForCausalLM.from_pretrained(model)
    monkeypatch.setenv("TINKER_API_KEY", tinker_server.KEY)
    with tinker_server.serving(model) as server:
        engine = await make_config("engine", "tinker", base_url=server.url).open(config)
        with suite.refusing_blocked_loops():
            await suite._check_odd_texts(engine)
            await suite._check_usage(engine)
            checks = await suite._TokenChecks.of(
                engine, suite.decoder(AutoTokenizer.from_pretrained(model)), scorer(weights)
            )
            assert checks.logprobs
            for check in (suite._check_token_ids_change_nothing, suite._check_next_turn_keeps_tokens):
                await check(engine, checks)
            await suite._check_stop_strings(engine, checks)
            for sampling in (Sampling(max_tokens=9, n=3), Sampling(temperature=0, max_tokens=9)):
                request = Request(messages=ASKED.messages, sampling=sampling, token_ids=True, logprobs=True)
                checks.check(request, await engine.complete(request))
            cooler = Request(messages=ASKED.messages, sampling=Sampling(temperature=0.7), logprobs=True)
            assert "log-probabilities" in str((await engine.complete(cooler)).error)
            await suite._check_refusals(engine)
            await suite._check_cancelling(engine)
        await engine.close()
        await engine.close()


async def test_an_engine_samples_and_counts(server: Any, model: Path) -> None:
    config = ModelConfig(name="tiny", id=str(model), context_length=64)
    served = await make_config("engine", "tinker", base_url=server.url).open(config)
    try:
        reply = await served.complete(ASKED)
        assert [len(one.token_ids or ()) for one in reply.completions] == [one.tokens for one in reply.completions]
        assert all(len(one.logprobs or ()) == one.tokens for one in reply.completions)
        greedy = Request(messages=ASKED.messages, sampling=Sampling(temperature=0, max_tokens=4, n=3))
        alike = (await served.complete(greedy)).completions
        assert len(alike) == 3
        assert len({one.text for one in alike}) == 1
        [long] = (await served.complete(Request(messages=({"role": "user", "content": "word " * 80},)))).completions
        assert long.finish_reason == "rejected"
        server.refused["asample"] = lambda: web.json_response({"detail": "a filtered prompt"}, status=422)
        reply = await served.complete(ASKED)
        assert reply.completions[0].finish_reason == "rejected"
        assert "a filtered prompt" in str(reply.error)
        server.refused["asample"] = lambda: web.json_response({"detail": "no access"}, status=403)
        with pytest.raises(EngineError, match=r"no access.*check the key in TINKER_API_KEY"):
            await served.complete(ASKED)
        with pytest.raises(EngineError, match="takes no adapters from elsewhere"):
            await served.with_adapter(model, "tiny@1")
    finally:
        await served.close()
    with pytest.raises(EngineError, match="closed"):
        await served.complete(ASKED)
    assert server.seen[-1].endswith("/finish")


@pytest.mark.nightly
async def test_weights_that_cannot_be_downloaded_leave_their_address(
    server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From a server without exports, and from one that names a file outside the folder."""
    trainer = await start_trainer(job_for(server, tmp_path), tmp_path / "log")
    server.exports = False
    await trainer.ask(Export(str(tmp_path / "first"), "base"))
    server.exports = True

    async def outside(request: web.Request) -> web.Response:
        return web.json_response(
            {"urls": {"../escaped": f"{server.url}/files/tiny/config.json"}, "expires": "2030-01-01T00:00:00Z"}
        )

    server.urls = outside
    await trainer.ask(Export(str(tmp_path / "second"), "base"))
    await trainer.close()
    for folder in ("first", "second"):
        assert [file.name for file in (tmp_path / folder).iterdir()] == ["tinker.json"]
        assert json.loads((tmp_path / folder / "tinker.json").read_text())["sampler"] in server.snapshots
    assert not (tmp_path / "escaped").exists()
    assert caplog.text.count("only their address is left") == 2
