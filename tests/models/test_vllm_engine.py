"""The vllm engine: the conformance suite and vLLM's own promises, on the embedded model and vLLM's CPU build.

The classes share one engine, so they run in the order in which they stand; the conformance suite ends by closing it.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import pytest_asyncio

from building import make_config
from evorun.errors import ConfigError, EngineError
from evorun.models import LanguageModel, Message, Reply, Request, Sampling
from evorun.models.base import Wasted
from evorun.models.chat import prompt_token_ids
from evorun.models.config import ModelConfig, ServedModel
from evorun.models.embedded import ensure
from evorun.models.lazy import DIED, LazyModel
from evorun.models.vllm.engine import VllmConfig
from evorun.testing import check_engine
from evorun.testing.engines import ask, decoder
from forward_pass import plain_model, scorer
from shared_process import running
from token_turns import check_turns

needs_vllm = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (make test-vllm)"),
    pytest.mark.asyncio(loop_scope="module"),
]
EMBEDDED = ModelConfig(
    name="smollm2_135m", id="HuggingFaceTB/SmolLM2-135M-Instruct", context_length=8192, dtype="float32", embedded=True
)


def small_engine(**changes: Any) -> VllmConfig:
    """Return a config that starts quickly; its metrics are on, so that tests can look inside."""
    extra = {"disable_log_stats": False} | changes.pop("extra_args", {})
    return make_config(
        "engine", "vllm", max_model_len=2048, max_num_seqs=64, cpu_kv_cache_gib=1.0, extra_args=extra, **changes
    )


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[LanguageModel]:
    model = await small_engine().open(EMBEDDED)
    yield model
    await model.close()


def metric(name: str) -> float:
    """Return the value of one of vLLM's own metrics."""
    from vllm.v1.metrics.reader import get_metrics_snapshot

    (found,) = [m for m in get_metrics_snapshot() if m.name == f"vllm:{name}"]
    return found.value


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (another process's metrics: nothing tells when they change)
            await asyncio.sleep(0.01)


class TestConfig:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("tensor_parallel_size", 0),
            ("gpu_memory_utilization", 0.0),
            ("gpu_memory_utilization", 1.5),
            ("max_num_seqs", 0),
            ("max_model_len", 0),
            ("cpu_kv_cache_gib", 0.0),
            ("seed", -1),
            ("lora_rank", 0),
        ],
    )
    def test_out_of_range_is_refused_by_name(self, key: str, value: float) -> None:
        with pytest.raises(ConfigError, match=f"engine.{key}: expected .* got {value}"):
            make_config("engine", "vllm", **{key: value})

    def test_extra_args_may_not_repeat_a_key(self) -> None:
        with pytest.raises(ConfigError, match=r"engine.extra_args.dtype: .* model.dtype"):
            make_config("engine", "vllm", extra_args={"dtype": "float16"})

    @pytest.mark.parametrize(
        ("given", "passed"), [("awq", None), ("compressed-tensors", None), ("fp8", "fp8"), (None, None)]
    )
    def test_quantisation_of_a_checkpoint_is_left_to_vllm(self, given: str | None, passed: str | None) -> None:
        model = ModelConfig(name="m", id="some/model", quantization=given)
        assert make_config("engine", "vllm").engine_arguments(model, "folder")["quantization"] == passed

    def test_context_is_the_models_unless_given(self) -> None:
        model = ModelConfig(name="m", id="some/model", context_length=5000)
        assert make_config("engine", "vllm").engine_arguments(model, "folder")["max_model_len"] == 5000
        assert (
            make_config("engine", "vllm", max_model_len=700).engine_arguments(model, "folder")["max_model_len"] == 700
        )

    def test_extra_args_win_over_what_the_engine_sets(self) -> None:
        config = make_config("engine", "vllm", extra_args={"enable_prefix_caching": False, "kv_cache_dtype": "fp8"})
        arguments = config.engine_arguments(EMBEDDED, "folder")
        assert arguments["enable_prefix_caching"] is False
        assert arguments["kv_cache_dtype"] == "fp8"

    @pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
    async def test_without_vllm_one_line_says_how_to_get_it(self) -> None:
        with pytest.raises(EngineError, match=r"not installed; run `pip install 'evorun\[vllm\]'`"):
            await make_config("engine", "vllm").open(EMBEDDED)


class TestOpening:
    """Models that cannot be served are refused in one line, before any weights load."""

    pytestmark = needs_vllm

    async def refusal(self, model: ModelConfig, config: VllmConfig | None = None) -> str:
        with pytest.raises((EngineError, ConfigError)) as caught:
            await (config or small_engine()).open(model)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    async def test_folder_missing(self, tmp_path: Path) -> None:
        assert str(tmp_path / "no") in await self.refusal(ModelConfig(name="m", id=str(tmp_path / "no")))

    async def test_folder_is_no_model(self, tmp_path: Path) -> None:
        assert "config.json" in await self.refusal(ModelConfig(name="m", id=str(tmp_path)))

    async def test_weights_missing(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "llama"}')
        assert "expected weights" in await self.refusal(ModelConfig(name="m", id=str(tmp_path)))

    async def test_hub_out_of_reach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import huggingface_hub.constants

        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        message = await self.refusal(ModelConfig(name="m", id="nobody/has-this-model"))
        assert "nobody/has-this-model" in message
        assert "HF_TOKEN" in message

    async def test_api_model(self) -> None:
        assert "engine=server" in await self.refusal(ModelConfig(name="gpt_4o", id="gpt-4o", api=True))

    async def test_tokenizer_without_the_templates_channels(self, tmp_path: Path) -> None:
        from transformers import AutoTokenizer

        from evorun.models.embedded import resolve

        tokenizer = AutoTokenizer.from_pretrained(resolve(EMBEDDED))
        tokenizer.chat_template = "<|start|>assistant<|channel|>analysis"
        tokenizer.save_pretrained(tmp_path)
        (tmp_path / "config.json").write_text('{"model_type": "llama"}')
        (tmp_path / "model.safetensors").touch()
        assert "no token <|start|>" in await self.refusal(ModelConfig(name="m", id=str(tmp_path)))

    async def test_unknown_engine_argument(self) -> None:
        message = await self.refusal(EMBEDDED, small_engine(extra_args={"no_such_argument": 1}))
        assert "engine.extra_args.no_such_argument" in message

    async def test_context_that_does_not_fit(self) -> None:
        config = make_config("engine", "vllm", max_model_len=8192, cpu_kv_cache_gib=0.01)
        assert "lower engine.max_model_len" in await self.refusal(EMBEDDED, config)


class TestServing:
    pytestmark = needs_vllm

    async def test_many_schemas_and_seeds_at_once(self, engine: LanguageModel) -> None:
        schemas = [
            {
                "type": "object",
                "properties": {
                    f"field_{i}": {"enum": [f"yes{i}", f"no{i}"]},
                    "reason": {"type": "string", "maxLength": 20},
                },
                "required": [f"field_{i}", "reason"],
                "additionalProperties": False,
            }
            for i in range(32)
        ]
        requests = [ask("Yes or no?", max_tokens=80, seed=i, json_schema=schema) for i, schema in enumerate(schemas)]
        replies = await asyncio.gather(*(engine.complete(request) for request in requests))
        for schema, reply in zip(schemas, replies, strict=True):
            assert reply.completions[0].finish_reason == "stop"
            jsonschema.validate(json.loads(reply.completions[0].text), schema)

    async def test_batched_seeds_repeat_and_differ(self, engine: LanguageModel) -> None:
        requests = [ask("Tell me a story.", max_tokens=16, seed=seed) for seed in range(8)]

        async def texts() -> list[str]:
            replies = await asyncio.gather(*(engine.complete(request) for request in requests))
            return [reply.completions[0].text for reply in replies]

        first = await texts()
        assert await texts() == first
        assert len(set(first)) == 8

    async def test_completions_of_one_prompt_differ(self, engine: LanguageModel) -> None:
        reply = await engine.complete(ask("Tell me a story.", max_tokens=16, n=4))
        assert len({completion.text for completion in reply.completions}) == 4

    async def test_greedy_completions_are_the_same(self, engine: LanguageModel) -> None:
        reply = await engine.complete(ask("Tell me a story.", max_tokens=6, temperature=0.0, n=3))
        assert len(reply.completions) == 3
        assert len({completion.text for completion in reply.completions}) == 1

    async def test_prompt_is_the_chat_templates(self, engine: LanguageModel) -> None:
        from transformers import AutoTokenizer

        from evorun.models.embedded import resolve

        tokenizer = AutoTokenizer.from_pretrained(resolve(EMBEDDED))
        messages = (Message(role="system", content="Be brief."), Message(role="user", content="Hello 1234."))
        text = (
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello 1234.<|im_end|>\n<|im_start|>assistant\n"
        )
        reply = await engine.complete(Request(messages=messages, sampling=Sampling(max_tokens=2)))
        assert reply.prompt_tokens == len(tokenizer(text, add_special_tokens=False)["input_ids"])

    async def test_other_processes_get_the_same_replies(self, engine: LanguageModel, tmp_path: Path) -> None:
        requests = [
            ask("Name a colour.", max_tokens=8, seed=3, token_ids=True, logprobs=True),
            ask("Name a fruit.", max_tokens=8, temperature=0.0),
            ask("Hello there, friend. " * 2000, max_tokens=2),  # longer than the context
        ]
        async with running(engine, ServedModel(EMBEDDED, small_engine()), tmp_path, closes=False) as process:
            other = await process.open()
            for request in requests:
                own, shared = await engine.complete(request), await other.complete(request)
                assert shared == msgspec.structs.replace(own, seconds=shared.seconds)
            await other.close()

    async def test_context_end_ends_with_length(self, engine: LanguageModel) -> None:
        endless = {"type": "array", "items": {"enum": ["a"]}, "minItems": 500}
        reply = await engine.complete(ask("word " * 2000, max_tokens=500, json_schema=endless))
        assert reply.completions[0].finish_reason == "length"
        assert reply.prompt_tokens + reply.completion_tokens == 2048

    async def test_seeded_prompts_longer_than_a_batch_together(self, engine: LanguageModel) -> None:
        requests = [ask(f"{i} " + "word " * 1800, max_tokens=2, seed=i) for i in range(3)]
        replies = await asyncio.gather(*(engine.complete(request) for request in requests))
        assert [reply.error for reply in replies] == [None] * 3

    async def test_parameters_that_vllm_refuses_are_data(self, engine: LanguageModel) -> None:
        reply = await engine.complete(ask("Hello.", max_tokens=4, top_p=2.0, n=2))
        assert [c.finish_reason for c in reply.completions] == ["rejected", "rejected"]
        assert "top_p" in (reply.error or "")

    async def test_schema_that_vllm_refuses_is_data(self, engine: LanguageModel) -> None:
        reply = await engine.complete(ask("Hello.", max_tokens=4, json_schema={"type": "no such type"}))
        assert reply.completions[0].finish_reason == "rejected"
        assert reply.error

    async def test_cancelling_frees_the_engine(self, engine: LanguageModel) -> None:
        long = ask("Tell me a very long story.", max_tokens=1500, seed=1)
        watcher = asyncio.create_task(engine.complete(long))
        doomed = asyncio.create_task(engine.complete(ask("Count.", max_tokens=1500, n=2, seed=2)))
        try:
            await until(lambda: metric("num_requests_running") == 3)
            doomed.cancel()
            await asyncio.gather(doomed, return_exceptions=True)
            await until(lambda: metric("num_requests_running") == 1)
            assert not watcher.done()
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def test_shared_prefix_is_computed_once(self, engine: LanguageModel) -> None:
        shared = "A shop sells apples, pears and plums at three prices. " * 20
        first = await engine.complete(ask(shared + "How many apples?", max_tokens=2))
        before = metric("prefix_cache_hits")
        await engine.complete(ask(shared + "How many plums?", max_tokens=2))
        assert metric("prefix_cache_hits") - before >= 0.8 * first.prompt_tokens

    async def test_event_loop_stays_free(self, engine: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
        turns: list[int] = []  # of the event loop, while each prompt is tokenized
        turn = 0

        def counted(*arguments: Any, **named: Any) -> list[int]:
            before = turn
            tokens = prompt_token_ids(*arguments, **named)
            turns.append(turn - before)
            return tokens

        async def tick() -> None:
            nonlocal turn
            while True:
                await asyncio.sleep(0.001)
                turn += 1

        monkeypatch.setattr("evorun.models.chat.prompt_token_ids", counted)
        ticker = asyncio.create_task(tick())
        prompts = ["Hello.", "word " * 160_000, "Hello again."]
        await asyncio.gather(*(engine.complete(ask(prompt, max_tokens=4)) for prompt in prompts))
        ticker.cancel()
        assert len(turns) == 3
        assert max(turns) > 3  # tokenizing the longest prompt takes about 0.5 s


class TestConformance:
    pytestmark = needs_vllm

    async def test_five_turns_are_trained_on_as_they_were_drawn(self, engine: LanguageModel) -> None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(ensure())
        await check_turns(engine, tokenizer, scorer(plain_model(ensure())), Sampling(temperature=1.2, max_tokens=4))

    async def test_it_is_an_engine(self, engine: LanguageModel) -> None:
        from transformers import AutoTokenizer

        async def opened() -> LanguageModel:
            return engine

        await check_engine(opened, decoder(AutoTokenizer.from_pretrained(ensure())), scorer(plain_model(ensure())))


class TestDeath:
    pytestmark = needs_vllm

    async def test_engine_process_that_dies_is_started_again_once(self) -> None:
        model = LazyModel(EMBEDDED.identity, partial(small_engine().open, EMBEDDED))

        async def kill_during(call: "asyncio.Task[Reply]") -> None:
            await until(lambda: metric("num_requests_running") == 1)
            engine: Any = model.opened
            (process,) = engine.engine.engine_core.resources.engine_manager.processes
            os.kill(process.pid, signal.SIGKILL)
            assert not call.done()

        await model.complete(ask("Hello.", max_tokens=2))
        running = asyncio.create_task(model.complete(ask("Tell me a story.", max_tokens=300)))
        await kill_during(running)
        reply = await running
        assert reply.completions[0].tokens > 2
        assert reply.wasted == {DIED: Wasted(1, reply.prompt_tokens)}
        running = asyncio.create_task(model.complete(ask("Tell me a story.", max_tokens=1500)))
        await kill_during(running)
        for call in (running, model.complete(ask("Hello.", max_tokens=2))):
            with pytest.raises(EngineError, match="engine process died") as caught:
                await asyncio.wait_for(call, 30)
            assert "\n" not in str(caught.value)
        await model.close()
