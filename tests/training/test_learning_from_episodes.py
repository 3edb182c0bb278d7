"""A model that calls tools, since it was fine-tuned on recorded episodes, learns from episodes of its own.

The rows are checked against the environment's rules, a template with TRL's marks, and a plain forward pass.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from parity_task import EMBEDDED, NO_TOKENIZER

from evorun.models.base import Sampling
from evorun.tasks.tool_calls import write_call
from evorun.training.policy import Policy
from evorun.training.wire import Row
from evorun_process import evorun_here
from forward_pass import plain_model, scorer
from killed_runs import check_killed_run
from tiny_llama import write_tiny_llama

# test_turns_of_tools.py has five turns of a scripted task by day, test_environment_task.py a simulated policy.
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.slow,
    pytest.mark.embedded,
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
]

LOCKS = Path(__file__).parents[1] / "tasks/environment/locks.py"
MARKED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
)
"""The model's chat template with the marks that TRL masks by."""
SHORT = {
    "generation.md": "{{ question }}\n{{ answer_format }}",
    "answer_format.md": "Call <tool_call>{{ '{}' }}</tool_call>",
    "system.md": "Act.",
}


def evorun(*words: str, cwd: Path) -> None:
    done = evorun_here(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("episodes")


@pytest.fixture(scope="module")
def task(folder: Path) -> list[str]:
    """Words for six locks, each of which opens at the second turn of its solution."""
    (folder / "prompts").mkdir()
    for name, text in SHORT.items():
        (folder / "prompts" / name).write_text(text)
    rows = [{"number": n, "solution": [write_call("look", {}), write_call("turn", {"steps": n})]} for n in range(2, 8)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return ["task=environment", f"task.environment={LOCKS}:Lock", f"task.rows={folder / 'rows.jsonl'}",
            f"task.prompts={folder / 'prompts'}", "task.max_turns=3"]  # fmt: skip


@pytest.fixture(scope="module")
def model(folder: Path, task: Sequence[str]) -> Path:
    """Return a model fine-tuned, with all its weights, on the episodes of a simulated one."""
    evorun(*task, "method=zero_shot", "engine=simulated", "engine.skill=1", "hydra.run.dir=simulated", cwd=folder)
    evorun("traces", "simulated", "kind=dpft", "output=traces.jsonl", cwd=folder)
    write_tiny_llama(folder / "untrained", hidden_size=64, initializer_range=0.1)
    evorun(*task, "method=sft", "method.data=traces.jsonl", "method.held_out=0", "method.epochs=50", "method.batch=6",
           "method.eval_samples=1", "method.eval_every=100", "method.eval_max_tokens=2", "task.limit=1",
           *engine(folder / "untrained"), "training=full", "training.learning_rate=5e-3", "hydra.run.dir=tuned",
           cwd=folder)  # fmt: skip
    return folder / "tuned/artifacts/model"


def engine(model: Path) -> list[str]:
    return ["model=local", f"model.id={model}", "model.context_length=2048", "engine=transformers"]


@pytest.fixture(scope="module")
def learning(task: Sequence[str], model: Path) -> list[str]:
    return [*task, "task.train_problems=4", "task.limit=1", "method=grpo", "method.steps=2",
            "method.problems_per_step=2", "method.group=6", "method.max_tokens=48", "method.eval_samples=1",
            "training.learning_rate=1e-3", *engine(model)]  # fmt: skip


@pytest.fixture(scope="module")
def learned(folder: Path, learning: Sequence[str]) -> list[Sequence[Row]]:
    """Return the rows of each update of a run, which is left as `whole`."""
    batches: list[Sequence[Row]] = []
    update = Policy.update

    async def note(self: Policy, step: int, rows: Sequence[Row], **options: Any) -> Any:
        batches.append(rows)
        return await update(self, step, rows, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Policy, "update", note)
        evorun(*learning, "hydra.run.dir=whole", cwd=folder)
    return batches


def test_it_learns_its_own_tokens_by_the_environments_rewards(
    folder: Path, model: Path, learned: Sequence[Sequence[Row]]
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    score, rewards = scorer(plain_model(model)), []
    for row in learned[0]:
        messages = [
            {"role": role, "content": text}
            for role, text in re.findall(
                r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|$)", tokenizer.decode([*row.prompt, *row.tokens]), re.DOTALL
            )
        ]
        said = [message["content"] for message in messages if message["role"] == "assistant"]
        marked = tokenizer.apply_chat_template(
            messages, chat_template=MARKED, return_dict=True, return_assistant_tokens_mask=True
        )
        own = [token for token, is_own in zip(row.tokens, row.learned, strict=True) if is_own]
        expected = [t for t, is_own in zip(marked["input_ids"], marked["assistant_masks"], strict=True) if is_own]
        # A turn that was cut short has no end; the mark gives it one.
        assert tokenizer.decode(expected).startswith(tokenizer.decode(own))
        assert len(said) == tokenizer.decode(expected).count("<|im_end|>")
        assert score_turns(messages) == row.reward
        plain = score(row.prompt, row.tokens, Sampling(temperature=1.0))
        for is_own, logprob, right in zip(row.learned, row.logprobs, plain, strict=True):
            assert logprob == (pytest.approx(right, abs=1e-3) if is_own else 0.0)
        rewards.append(row.reward)
    assert max(rewards) == 1.0  # it opened a lock, which takes the right number
    assert len(set(rewards)) > 1
    for group in (slice(0, 6), slice(6, 12)):
        mean = sum(rewards[group]) / 6
        assert [row.advantage for row in learned[0][group]] == pytest.approx([one - mean for one in rewards[group]])
    training = [json.loads(line)["figures"] for line in (folder / "whole/training.jsonl").read_text().splitlines()]
    assert all(figures["grad_norm"] > 0 for figures in training)
    assert training[0]["sampler_kl"] == pytest.approx(0, abs=1e-6)


def score_turns(messages: Sequence[dict[str, str]]) -> float:
    """Return the reward of an episode: half for a look at the dial, half for a dial that stands at the number."""
    number = int(re.findall(r"its number is (\d+)", messages[1]["content"])[0])
    looked, dial = False, 0
    for message in messages[2:]:
        for call in re.findall(r"<tool_call>((?:(?!<tool_call>).)*?)</tool_call>", message["content"]):
            try:
                read = json.loads(call)
                looked |= read["name"] == "look" and read["arguments"] == {}
                dial += read["arguments"]["steps"] if read["name"] == "turn" else 0
            except (ValueError, KeyError, TypeError):
                continue
            if dial == number:
                return 0.5 + 0.5 * looked
    return 0.5 * looked


@pytest.mark.usefixtures("learned")
def test_killed_within_an_episode_it_ends_as_if_nothing_had_happened(folder: Path, learning: Sequence[str]) -> None:
    check_killed_run(learning, folder, "|rollout-tools|")
    for name in ("rollouts.jsonl", "training.jsonl"):
        assert (folder / "killed" / name).read_bytes() == (folder / "whole" / name).read_bytes()
