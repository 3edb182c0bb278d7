"""A trained model answers with the weights of the version asked for, and afterwards with its newest again."""

from pathlib import Path

import pytest
import torch

from evorun.errors import TrainingError
from evorun.models import Message, Request, Sampling
from evorun.models.config import ModelConfig
from evorun.training.rollouts import Decoding
from evorun.training.versions import Versions
from tiny_llama import write_tiny_llama


class Adapted(torch.nn.Module):
    """One frozen weight, and one trained, as in a model with an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.peft_config = {"default": None}
        self.frozen = torch.nn.Parameter(torch.tensor([1.0]), requires_grad=False)
        self.trained = torch.nn.Parameter(torch.tensor([0.0]))

    def become(self, value: float) -> None:
        with torch.no_grad():
            self.trained.fill_(value)


@pytest.mark.parametrize("count", [1, 2])
def test_the_former_weights_serve_requests_of_the_updates_before(count: int, tmp_path: Path) -> None:
    model, versions = Adapted(), Versions(0, count=count)
    for update in (1, 2, 3, 4):  # after update n the weight is n
        versions.advance(model, update)
        model.become(update)
    versions.save(model, tmp_path)
    for kept in (versions, Versions.resumed(4, str(tmp_path), count)):
        for version in range(4 - count, 5):
            with kept.use(model, version):
                assert (model.trained.item(), model.frozen.item()) == (version, 1.0)
            assert model.trained.item() == 4.0
        with kept.use(model, None):
            assert model.trained.item() == 4.0
        for version in (3 - count, 5):
            refused = pytest.raises(
                TrainingError, match=f"weights of update {4 - count}, .*4, got one for .* {version}"
            )
            with refused, kept.use(model, version):
                pass
    with pytest.raises(TrainingError), Versions.resumed(4, None).use(model, 3):
        pass


def test_fewer_former_weights_are_read_than_a_checkpoint_holds(tmp_path: Path) -> None:
    """A fork may have a smaller lag."""
    model, versions = Adapted(), Versions(0, count=3)
    for update in (1, 2, 3):
        versions.advance(model, update)
    versions.save(model, tmp_path)
    assert [*Versions.resumed(3, str(tmp_path), 1).former] == [2]


@pytest.mark.embedded  # its tokenizer
def test_prompts_cached_for_one_version_do_not_serve_another(tmp_path: Path) -> None:
    """Two former versions answer in turn, as for rollouts of two steps that are under way."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = write_tiny_llama(tmp_path)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    config = ModelConfig(name="tiny", id=str(folder), context_length=2048)
    messages = (Message(role="user", content="Tell me about the sea. " * 20),)
    request = Request(messages=messages, sampling=Sampling(max_tokens=4), seed=1, token_ids=True, logprobs=True)

    def logprobs(decoding: Decoding, version: int) -> tuple[float, ...]:
        with torch.no_grad():
            model.model.layers[0].self_attn.v_proj.weight.fill_(0.1 * version)
        [reply] = decoding.decode(model, [request], version)
        return reply.completions[0].logprobs or ()

    shared = Decoding(tokenizer, config, max_batch_size=4, prefix_cache_tokens=1000)
    alone = [logprobs(Decoding(tokenizer, config, max_batch_size=4, prefix_cache_tokens=0), one) for one in (1, 2)]
    assert alone[0] != alone[1]
    for _ in range(2):
        assert [logprobs(shared, one) for one in (1, 2)] == [pytest.approx(one, abs=1e-5) for one in alone]
