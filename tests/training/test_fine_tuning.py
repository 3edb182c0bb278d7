"""The trainer of a fine-tuning, against steps that plain torch makes; commands come as from a run."""

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import msgspec
import pytest
import torch
from given_commands import GivenCommands
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from building import make_config, make_job, policy_gradient, training_config
from evorun.errors import ConfigError, DataError, TrainingError
from evorun.models.base import Message, Request, Sampling
from evorun.models.config import ModelConfig
from evorun.training import fine_tuning, fine_tuning_data
from evorun.training.fine_tuning_data import order_conversations
from evorun.training.rollouts import Decoding
from evorun.training.serving import Finished, Serving
from evorun.training.settings import shared_arguments
from evorun.training.versions import Versions
from evorun.training.weights import load
from evorun.training.wire import (
    Command,
    Evaluate,
    Export,
    FineTuning,
    Generate,
    Replies,
    Save,
    Train,
)
from tiny_llama import write_tiny_llama

CHATS = (
    ("What is 2+3?", "5"),
    ("Name a colour.", "There are many of them, and I like the blue of the sea the most."),
    ("Say yes.", "Yes, yes, yes."),
    ("Who?", "Me"),
    ("A long question about nothing at all, asked again and again and again?", "No."),
    ("Count.", "1 2 3 4 5 6 7 8 9 10 11 12"),
)


@pytest.fixture(name="model", scope="module")
def _model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"))


def write_chats(file: Path, chats: Sequence[tuple[str, str]]) -> Path:
    lines = [
        {
            "line": number,
            "messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}],
        }
        for number, (asked, said) in enumerate(chats, start=1)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


class Tuned:
    """A fine-tuning of the tiny model in a folder of its own."""

    def __init__(self, model: Path, folder: Path, chats: Sequence[tuple[str, str]] = CHATS, **training: Any) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        objective = {key: training.pop(key) for key in ("epochs", "batch", "max_length") if key in training}
        self.job = make_job(
            model,
            folder,
            training_config(**{"rank": 4, "learning_rate": 0.01, "micro_batch": 4, **training}),
            FineTuning(
                train=str(write_chats(folder / "train.jsonl", chats)),
                held_out=str(write_chats(folder / "held_out.jsonl", CHATS)),
                source="chats.jsonl",
                **{"epochs": 3.0, "batch": len(chats), "max_length": 512, **objective},
            ),
            model=ModelConfig(name="tiny", id=str(model)),
            seed=0,
            max_batch_size=2,
            prefix_cache_tokens=0,
        )

    def trainer(self, commands: GivenCommands, checkpoint: Path | None = None) -> tuple[Any, Serving]:
        job = msgspec.structs.replace(self.job, checkpoint=None if checkpoint is None else str(checkpoint))
        weights, tokenizer = load(job)
        serving = Serving(commands, Decoding(tokenizer, job.model, 2, 0), Versions(0))  # type: ignore[arg-type]
        assert isinstance(job.objective, FineTuning)
        trainer = fine_tuning.make_trainer(job, job.objective, weights, tokenizer, serving)
        serving.bind(trainer)
        return trainer, serving

    def obey(self, *commands: Command, checkpoint: Path | None = None) -> list[dict[str, float]]:
        """Carry out the commands as the trainer process does; return the figures."""
        return self.carry_out(*commands, checkpoint=checkpoint).figures

    def carry_out(self, *commands: Command, checkpoint: Path | None = None) -> GivenCommands:
        """Carry out the commands; return them with their answers."""
        given = GivenCommands(commands)
        trainer, serving = self.trainer(given, checkpoint)
        with contextlib.suppress(Finished):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            serving.next_training()
        return given


def steps(first: int, last: int) -> list[Train]:
    return [Train(number=number) for number in range(first, last + 1)]


def read_by_hand(model: Path, chats: Sequence[tuple[str, str]]) -> list[tuple[list[int], int]]:
    """Return each conversation's tokens up to its end of turn, and how many of them are the prompt's."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    read = []
    for asked, said in chats:
        prompt = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n"
        ids = tokenizer(prompt)["input_ids"]
        read.append((ids + tokenizer(f"{said}<|im_end|>")["input_ids"], len(ids)))
    return read


def sum_of_losses(weights: Any, read: Sequence[tuple[list[int], int]]) -> tuple[torch.Tensor, int]:
    """Return the summed loss of all answers' tokens, and how many they are."""
    losses = []
    for ids, prompt in read:
        logits = weights(input_ids=torch.tensor([ids])).logits[0, prompt - 1 : -1]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[prompt:]), reduction="sum"))
    return torch.stack(losses).sum(), sum(len(ids) - prompt for ids, prompt in read)


def test_steps_on_all_weights_are_those_of_plain_torch(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tuned = Tuned(model, tmp_path / "run", weights="full", weight_decay=0.1, max_grad_norm=0.5)
    before, *measured, after = tuned.obey(Evaluate(), *steps(1, 3), Evaluate(), Export(str(out), "base"))
    read = read_by_hand(model, CHATS)
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    decayed = [p for name, p in weights.named_parameters() if "norm" not in name]
    rest = [p for name, p in weights.named_parameters() if "norm" in name]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=0.01,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    losses, norms = [], []
    for _ in range(3):
        total, tokens = sum_of_losses(weights, read)
        loss = total / tokens
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(weights.parameters(), 0.5)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert [one["loss"] for one in measured] == pytest.approx(losses, rel=1e-4)
    assert [one["grad_norm"] for one in measured] == pytest.approx(norms, rel=1e-4)
    assert [one["clipped_gradients"] for one in measured] == [float(norm > 0.5) for norm in norms]
    assert before["held_out_loss"] == pytest.approx(losses[0], rel=1e-4)
    last, tokens = sum_of_losses(weights, read)
    assert after["held_out_loss"] == pytest.approx(last.item() / tokens, rel=1e-4)
    assert after["held_out_loss"] < before["held_out_loss"] - 0.1
    exported = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    for name, weight in weights.named_parameters():
        assert torch.allclose(weight, exported.get_parameter(name), atol=2e-4), name


@pytest.mark.nightly  # test_training_runs.py serves an adapter, and the first test reads the export
async def test_all_weights_are_left_as_a_model_that_an_engine_serves(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = Request(
        messages=(Message(role="user", content="Count."),),
        sampling=Sampling(temperature=0.0, max_tokens=12),
        seed=1,
        token_ids=True,
    )
    first, last = (Generate(requests=(asked,), version=version) for version in (0, 3))
    tuned = Tuned(model, tmp_path / "run", weights="full", learning_rate=0.03)
    given = tuned.carry_out(first, *steps(1, 3), last, Export(str(out), "base"))
    before, after = (answer.replies[0] for answer in given.answers if isinstance(answer, Replies))
    served = await make_config("engine", "transformers", device="cpu").open(ModelConfig(name="tuned", id=str(out)))
    try:
        said = await served.complete(asked)
    finally:
        await served.close()
    assert said.completions == after.completions
    assert said.completions != before.completions
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert not (out / "training_args.bin").exists()


@pytest.mark.nightly
def test_the_size_of_a_pass_changes_nothing_but_rounding(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed conversations do not see each other, and none is predicted from the one before."""
    exact = {"learning_rate": 1.0, "epsilon": 1.0, "max_grad_norm": None}  # steps as long as their gradients

    def tuned(name: str, **size: int) -> tuple[list[dict[str, float]], dict[str, torch.Tensor], list[tuple[int, int]]]:
        shapes: list[tuple[int, int]] = []
        accumulate = fine_tuning.accumulate

        def noting(accelerator: Any, model: Any, passes: Any, *functions: Any) -> Any:
            shapes.extend(tuple(own.inputs["input_ids"].shape) for own in passes)
            return accumulate(accelerator, model, passes, *functions)

        monkeypatch.setattr(fine_tuning, "accumulate", noting)
        out = tmp_path / name / "out"
        run = Tuned(model, tmp_path / name, **exact, **size)
        figures = run.obey(*steps(1, 2), Evaluate(), Export(str(out), "base"))
        monkeypatch.setattr(fine_tuning, "accumulate", accumulate)
        return figures, load_file(out / "adapter_model.safetensors"), shapes

    single, expected, shapes = tuned("single", micro_batch=1)
    assert len(shapes) == 2 * len(CHATS)
    longest, all_tokens = max(tokens for _, tokens in shapes), sum(tokens for _, tokens in shapes)
    for packed in (False, True):
        monkeypatch.setattr(fine_tuning.FineTuner, "_packs", packed)
        few, adapter, shapes = tuned(f"packed {packed}", micro_batch=3, micro_batch_tokens=2 * longest)
        assert max(rows * tokens for rows, tokens in shapes) <= 2 * longest
        assert len(shapes) < 2 * len(CHATS)
        if packed:
            assert sum(tokens for _, tokens in shapes) == all_tokens
        for name, places in {"loss": (0, 1), "grad_norm": (0, 1), "held_out_loss": (2,)}.items():
            for place in places:
                assert few[place][name] == pytest.approx(single[place][name], rel=1e-4)
        for name, value in expected.items():
            torch.testing.assert_close(adapter[name], value, rtol=1e-4, atol=1e-5)


def test_steps_after_a_checkpoint_are_those_of_a_trainer_that_was_not_stopped(model: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"batch": 2, "epochs": 2.0, "micro_batch": 2, "dropout": 0.3, "schedule": "cosine"}
    saved, at_once, resumed = tmp_path / "saved", tmp_path / "at_once", tmp_path / "resumed"
    whole = Tuned(model, tmp_path / "a", **how).obey(*steps(1, 6), Evaluate(), Export(str(at_once), "base"))
    Tuned(model, tmp_path / "b", **how).obey(*steps(1, 4), Evaluate(), Save(str(saved)), *steps(5, 5))
    later = Tuned(model, tmp_path / "c", **how).obey(
        Evaluate(), *steps(5, 6), Evaluate(), Export(str(resumed), "base"), checkpoint=saved
    )
    assert later[1:] == whole[4:]
    one, other = (load_file(folder / "adapter_model.safetensors") for folder in (at_once, resumed))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(weight.any() for name, weight in one.items() if "lora_B" in name)
    assert whole[0] != whole[1]


class Code:
    """Code that a pickle runs where it is read as one."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_code_in_a_checkpoint_is_not_run(model: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    tuned = Tuned(model, tmp_path / "run")
    tuned.obey(*steps(1, 1), Save(str(saved)))
    tuned.obey(checkpoint=saved)
    assert (saved / "optimizer.pt").exists()
    torch.save(Code(tmp_path / "mark"), saved / "optimizer.pt")
    with pytest.raises(UnpicklingError, match="Weights only load failed"):
        tuned.obey(checkpoint=saved)
    assert not (tmp_path / "mark").exists()


def test_weights_that_are_no_numbers_end_it(model: Path, tmp_path: Path) -> None:
    tuned = Tuned(model, tmp_path / "run", learning_rate=1e30, max_grad_norm=None)
    with pytest.raises(TrainingError, match=r"optimiser step 2: expected numbers, got .*training.learning_rate"):
        tuned.obey(*steps(1, 2))


@pytest.mark.nightly
def test_a_fork_goes_on_with_settings_of_its_own_as_plain_torch_does(model: Path, tmp_path: Path) -> None:
    """The moments of the optimiser stay; its rate, decay and betas are not those of the checkpoint."""
    saved, out = tmp_path / "saved", tmp_path / "out"
    Tuned(model, tmp_path / "run", weights="full", weight_decay=0.1).obey(*steps(1, 2), Save(str(saved)))
    fork: dict[str, Any] = {"learning_rate": 0.002, "beta1": 0.5, "epsilon": 1e-3, "schedule": "linear"}
    figures = Tuned(model, tmp_path / "fork", weights="full", weight_decay=0.0, **fork).obey(
        *steps(3, 3), Export(str(out), "base"), checkpoint=saved
    )
    assert figures[0]["learning_rate"] == pytest.approx(0.002 / 3)  # the last of three steps
    read = read_by_hand(model, CHATS)
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    groups = [[p for name, p in weights.named_parameters() if ("norm" in name) == norm] for norm in (False, True)]
    optimizer = torch.optim.AdamW([{"params": group} for group in groups], lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    for step in (1, 2, 3):
        for group, decay in zip(optimizer.param_groups, (0.1, 0.0), strict=True):
            own = {"lr": 0.002 / 3, "betas": (0.5, 0.95), "eps": 1e-3, "weight_decay": 0.0}
            group |= own if step == 3 else {"weight_decay": decay}
        total, tokens = sum_of_losses(weights, read)
        (total / tokens).backward()
        torch.nn.utils.clip_grad_norm_(weights.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    exported = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    for name, weight in weights.named_parameters():
        assert torch.allclose(weight, exported.get_parameter(name), atol=2e-5), name


def test_each_epoch_has_every_conversation_once(model: Path, tmp_path: Path) -> None:
    trainer, _ = Tuned(model, tmp_path / "run", batch=4, epochs=2.5).trainer(GivenCommands([]))
    rows = [tuple(row) for row in trainer.train_dataset["input_ids"]]
    assert len(rows) == 15
    assert len(set(rows[:6])) == len(set(rows[6:12])) == 6
    assert rows[:6] != rows[6:12]
    assert set(Counter(rows).values()) == {2, 3}
    assert [len(batch["input_ids"]) for batch in trainer.get_train_dataloader()] == [4, 4, 4, 3]


def test_what_is_too_long_is_cut_and_dropped_where_no_answer_is_left(model: Path, tmp_path: Path) -> None:
    lengths = [(len(ids), prompt) for ids, prompt in read_by_hand(model, CHATS)]
    longest = max(prompt for _, prompt in lengths)  # the answer to the longest prompt begins one token later
    trainer, _ = Tuned(model, tmp_path / "run", max_length=longest).trainer(GivenCommands([]))
    described = trainer.evaluate()
    cut = sum(prompt < longest < length + 1 for length, prompt in lengths)  # a line break follows the end of turn
    assert cut > 0
    assert (described["conversations"], described["held_out"]) == (5, 5)
    assert (described["cut"], described["dropped"]) == (2 * cut, 2)
    assert max(len(row) for row in trainer.train_dataset["input_ids"]) == longest
    with pytest.raises(DataError, match=r"^chats.jsonl: expected conversations whose answers begin within 5 tokens"):
        Tuned(model, tmp_path / "other", max_length=5).trainer(GivenCommands([]))


def test_a_conversation_that_the_template_refuses_is_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise TrainingError("the chat template refuses it")

    monkeypatch.setattr(fine_tuning_data, "tokenize_example", refuse)
    with pytest.raises(TrainingError, match=r"^chats.jsonl, line 1: the chat template refuses it$"):
        Tuned(model, tmp_path / "run").trainer(GivenCommands([]))


def test_the_settings_of_training_reach_trl_and_peft(model: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"schedule": "constant_with_warmup", "warmup_steps": 3, "beta1": 0.8}
    lora: dict[str, Any] = {"dropout": 0.3, "target_modules": ["q_proj"]}
    trainer, _ = Tuned(model, tmp_path / "run", **how, **lora).trainer(GivenCommands([]))
    told, adapter = trainer.args, trainer.model.peft_config["default"]
    assert (told.lr_scheduler_type, told.warmup_steps, told.adam_beta1) == ("constant_with_warmup", 3, 0.8)
    assert (adapter.lora_dropout, adapter.target_modules) == (0.3, {"q_proj"})


@pytest.mark.parametrize("again", [False, True])
def test_activations_are_computed_again_where_asked_for(model: Path, tmp_path: Path, again: bool) -> None:
    trainer, _ = Tuned(model, tmp_path / "run", gradient_checkpointing=again).trainer(GivenCommands([]))
    assert trainer.args.gradient_checkpointing is again


@pytest.mark.parametrize("gpu", [False, True])
def test_by_themselves_on_a_gpu(gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorun.training.weights.on_gpu", lambda job: gpu)
    told = shared_arguments(make_job(tmp_path, tmp_path, training_config(max_grad_norm=None), policy_gradient()))
    assert told["gradient_checkpointing"] is gpu
    assert told["max_grad_norm"] == 0  # none is shortened


def test_the_order_is_the_seeds() -> None:
    assert order_conversations(0, 20, 1.0) == order_conversations(0, 20, 1.0)
    assert order_conversations(0, 20, 1.0) != order_conversations(1, 20, 1.0)


@pytest.mark.nightly  # that it reaches the adapter is a test of the settings
def test_dropout_is_of_the_steps_alone(model: Path, tmp_path: Path) -> None:
    asked = Request(
        messages=(Message(role="user", content="Count."),), sampling=Sampling(temperature=0.0, max_tokens=24), seed=1
    )
    generate = Generate(requests=(asked,), version=3)
    tuned = Tuned(model, tmp_path / "run", dropout=0.7, learning_rate=0.05)
    given = tuned.carry_out(*steps(1, 3), Evaluate(), Evaluate(), generate, generate)
    assert given.figures[-1] == given.figures[-2]
    first, second = (answer.replies[0] for answer in given.answers if isinstance(answer, Replies))
    assert first.completions == second.completions


def test_an_adapter_names_its_base_model(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    Tuned(model, tmp_path / "run").obey(Export(str(out), "base"))
    assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == "base"


def test_wrong_settings_are_named(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^training.target_modules: the model has no linear layer 'q_porj'; it has "):
        Tuned(model, tmp_path / "run", target_modules=["q_porj"]).trainer(GivenCommands([]))

    monkeypatch.setattr(fine_tuning, "count_processes", lambda: 4)
    with pytest.raises(
        ConfigError, match=r"^method.batch: expected a multiple of training.num_processes \(4\), got 6$"
    ):
        Tuned(model, tmp_path / "run").trainer(GivenCommands([]))
