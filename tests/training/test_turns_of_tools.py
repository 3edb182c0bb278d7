"""Episodes with tools in training: the trainer's tokens are the engine's, and what tools say is not learned."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("trl")
import steps
import torch
from parity_task import EMBEDDED, NO_TOKENIZER
from steps import random_rows, stepped

import token_turns
from building import make_config
from evorun.models.base import Completion, Sampling
from evorun.models.config import ModelConfig
from evorun.training.wire import Row
from forward_pass import plain_model, scorer
from tiny_gpt_oss import between_turns, write_tiny_gpt_oss
from tiny_llama import write_tiny_llama
from token_turns import check_turns

pytestmark = pytest.mark.slow

ONE, OTHER = 98, 99


@pytest.mark.parametrize("masked", [True, False])
def test_labels_change_the_gradient_where_they_are_learned_only(
    masked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a model that reads two tokens as one and writes them as two: they are the same inputs, and other labels."""
    original = steps.tiny

    def reading_alike() -> tuple[Any, Any]:
        model, tokenizer = original()
        with torch.no_grad():
            model.model.embed_tokens.weight[OTHER] = model.model.embed_tokens.weight[ONE]
        return model, tokenizer

    monkeypatch.setattr(steps, "tiny", reading_alike)
    first, second = (stepped(tmp_path, told(random_rows(6, tools=True), token, masked)) for token in (ONE, OTHER))
    same = [torch.equal(value, second.gradients[0][name]) for name, value in first.gradients[0].items()]
    assert any(bool(value.any()) for value in first.gradients[0].values())
    assert all(same) is masked


def told(rows: Sequence[Row], token: int, masked: bool) -> list[Row]:
    """Return the rows with one token in the places of the tools' tokens, which are not learned where masked."""
    return [
        msgspec.structs.replace(
            row,
            tokens=tuple(own if learned else token for own, learned in zip(row.tokens, row.learned, strict=True)),
            learned=row.learned if masked else (True,) * len(row.tokens),
        )
        for row in rows
    ]


@pytest.mark.nightly
@pytest.mark.embedded
@pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER)
@pytest.mark.parametrize(
    ("write", "between"), [(write_tiny_llama, token_turns.between_turns), (write_tiny_gpt_oss, between_turns)]
)
async def test_the_trainer_finds_the_engines_log_probabilities_in_episodes_of_five_turns(
    write: Callable[[Path], Path],
    between: Callable[[Completion, str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers import AutoTokenizer

    folder = write(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    engine = await make_config("engine", "transformers", device="cpu").open(ModelConfig(name="tiny", id=str(folder)))
    sampling = Sampling(temperature=0.7, max_tokens=5)
    score = scorer(plain_model(folder))
    episodes = await check_turns(engine, tokenizer, score, sampling, "A colour", "A fruit", between=between)
    await engine.close()
    rows = [episode.row(1.0, advantage) for episode, advantage in zip(episodes, (0.5, -0.5), strict=True)]
    monkeypatch.setattr(steps, "tiny", lambda: (plain_model(folder), tokenizer))
    found = stepped(tmp_path, rows, temperature=0.7)
    assert found.figures[0]["sampler_kl"] == pytest.approx(0, abs=1e-9)
    others = [msgspec.structs.replace(row, tokens=(*row.tokens[1:], row.tokens[0])) for row in rows]
    assert stepped(tmp_path, others, temperature=0.7).figures[0]["sampler_kl"] > 1e-4
