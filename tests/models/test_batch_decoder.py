"""The batch decoder as a trainer uses it: between two steps it forgets, and its memory is the step's."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

from evorun.models.base import Message, Reply, Request, Sampling
from evorun.models.config import ModelConfig
from tiny_llama import write_tiny_llama

pytestmark = pytest.mark.embedded

PROMPTS = ("Name a colour.", "What is wide, what is deep and what is neither of the two?", "2 + 2?")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, ModelConfig]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = write_tiny_llama(tmp_path_factory.mktemp("tiny"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    return model, AutoTokenizer.from_pretrained(folder), ModelConfig(name="tiny", id=str(folder))


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def greedy(decoder: Any) -> list[str]:
    """Answer the prompts, two completions each."""
    import torch

    from evorun.models.transformers.batch_decoder import Ticket

    replies: dict[str, Reply] = {}
    for text in PROMPTS:
        request = Request(
            messages=(Message(role="user", content=text),), sampling=Sampling(temperature=0, max_tokens=6, n=2)
        )
        decoder.submit(Ticket(request, lambda reply, text=text: replies.__setitem__(text, reply)))
    with torch.no_grad():
        while decoder.busy:
            decoder.step()
    return [completion.text for text in PROMPTS for completion in replies[text].completions]


def decoder_of(weights: tuple[Any, Any, ModelConfig]) -> Any:
    from evorun.models.transformers.batch_decoder import BatchDecoder

    return BatchDecoder(*weights, max_batch_size=4, prefix_cache_tokens=1000)


@pytest.mark.usefixtures("without_collector")
def test_what_is_forgotten_is_freed_at_once(weights: tuple[Any, Any, ModelConfig]) -> None:
    decoder = decoder_of(weights)
    greedy(decoder)
    [buffer, *_] = [weakref.ref(layer.keys) for layer in decoder._cache.layers]
    [prompt, *_] = [weakref.ref(prefix.logits) for prefix in decoder._prefixes._prefixes.values()]
    assert None not in (buffer(), prompt())
    decoder.forget()
    assert (buffer(), prompt()) == (None, None)


def test_answers_are_the_same_after_forgetting(weights: tuple[Any, Any, ModelConfig]) -> None:
    decoder = decoder_of(weights)
    first = greedy(decoder)
    decoder.forget()
    assert greedy(decoder) == first
    assert first[::2] == first[1::2]


def test_a_prompt_that_a_stored_one_begins_with_gets_logits_of_its_own(weights: tuple[Any, Any, ModelConfig]) -> None:
    import torch

    from evorun.models.transformers.kv_cache import PrefixStore

    model, tokenizer, _ = weights
    ids = tuple(tokenizer(PROMPTS[1])["input_ids"])
    shorter = ids[:5]
    store, device = PrefixStore(max_tokens=1000), torch.device("cpu")
    with torch.no_grad():
        store.prefill(model, ids, device)
        shared = store.prefill(model, shorter, device)
        expected = model(input_ids=torch.tensor([shorter])).logits[:, -1]
    torch.testing.assert_close(shared.logits, expected)


def test_log_probabilities_are_those_of_the_distribution_drawn_from(weights: tuple[Any, Any, ModelConfig]) -> None:
    """Against the model on the whole sequence: of the likeliest tokens that make up top_p, each one's share."""
    import torch

    from evorun.models.transformers.batch_decoder import Ticket

    samplings = (Sampling(temperature=0.7, top_p=0.6, max_tokens=6, n=3), Sampling(temperature=0, max_tokens=6))
    decoder, replies = decoder_of(weights), list[Reply]()
    for sampling in samplings:
        asked = (Message(role="user", content=PROMPTS[0]),)
        decoder.submit(
            Ticket(Request(messages=asked, sampling=sampling, token_ids=True, logprobs=True), replies.append)
        )
    with torch.no_grad():
        while decoder.busy:
            decoder.step()
        for reply in replies:
            drawn = len(reply.completions) > 1
            for completion in reply.completions:
                ids = completion.token_ids or ()
                prompt = reply.prompt_ids or ()
                logits = weights[0](input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
                expected = []
                for token, row in zip(ids, logits.double() / (0.7 if drawn else 1.0), strict=True):
                    shares = row.softmax(-1)
                    largest = shares.sort(descending=True).values.cumsum(-1).tolist()
                    kept = next(mass for mass in largest if mass >= 0.6) if drawn else 1.0
                    expected.append((shares[token] / kept).log().item())
                assert completion.logprobs == pytest.approx(expected, abs=1e-3)
