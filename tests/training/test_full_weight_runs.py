"""Trainers and runs that train all weights: which weights answer, what is left, and that a killed run ends the same."""

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from given_commands import GivenCommands
from parity_task import EMBEDDED, NO_TOKENIZER, effects, finished, lines, records, write_model
from test_training_runs import killed

from building import make_job, policy_gradient, training_config
from evorun.models.base import Completion, Message, Request, Sampling
from evorun.runner.prompt_studies import PromptStudies
from evorun.runner.work import Outcome
from evorun.runs.directory import load_manifest
from evorun.runs.terminal import Terminal
from evorun.training.checkpoints import find_former
from evorun.training.wire import Answer, Command, Export, Figures, Generate, Replies, Row, Save, Train

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.slow,
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
]

ASKED = Request(
    messages=(Message(role="user", content="Say something."),),
    sampling=Sampling(max_tokens=12, n=4),
    seed=1,
    token_ids=True,
    logprobs=True,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


class Trainer:
    """Gives commands to a policy-gradient trainer in this process, in the place of a run; takes the answers."""

    def __init__(self, model: Path, folder: Path, **training: Any) -> None:
        told = policy_gradient(steps=9, kl=0.1)
        settings = training_config(weights="full", learning_rate=0.003, **training)
        self.job = make_job(model, folder, settings, told)

    def obey(self, *commands: Command, checkpoint: Path | None = None, updates: int = 0) -> list[Answer]:
        """Return the answers of a trainer that starts from a checkpoint of so many updates."""
        from evorun.training.policy_gradient import PolicyGradientTrainer
        from evorun.training.rollouts import Decoding
        from evorun.training.serving import Finished, Serving
        from evorun.training.versions import Versions
        from evorun.training.weights import load

        given = GivenCommands(commands)
        start = None if checkpoint is None else str(checkpoint)
        job = msgspec.structs.replace(self.job, checkpoint=start)
        weights, tokenizer = load(job)
        serving = Serving(given, Decoding(tokenizer, job.model, 8, 1024), Versions.resumed(updates, start))  # type: ignore[arg-type]
        trainer = PolicyGradientTrainer(job, job.objective, weights, tokenizer, serving)  # type: ignore[arg-type]
        serving.bind(trainer)
        with contextlib.suppress(Finished):
            trainer.train(resume_from_checkpoint=start)
        return given.answers


def ask(version: int | None) -> Generate:
    return Generate(requests=(ASKED,), version=version)


def completions(answer: Answer) -> tuple[Completion, ...]:
    assert isinstance(answer, Replies)
    return answer.replies[0].completions


def learn_from(answer: Answer, number: int) -> Train:
    """Return an update that makes the first completions likelier than the last ones."""
    assert isinstance(answer, Replies)
    [reply] = answer.replies
    prompt = reply.prompt_ids
    assert isinstance(prompt, tuple)
    rows = []
    for place, one in enumerate(reply.completions):
        assert one.token_ids is not None
        assert one.logprobs is not None
        worth = 1.0 if place < 2 else -1.0
        learned = (True,) * len(one.token_ids)
        rows.append(
            Row(
                prompt=prompt,
                tokens=one.token_ids,
                learned=learned,
                reward=worth,
                advantage=worth,
                logprobs=one.logprobs,
            )
        )
    return Train(number=number, rows=tuple(rows))


@pytest.mark.nightly  # test_sending.py has the weights of versions, and a trainer that goes on with them
def test_each_version_answers_by_its_own_weights_and_a_resumed_trainer_goes_on_with_them(
    model: Path, tmp_path: Path
) -> None:
    """Those of the newest update, of the one before, and the untrained ones, which are the reference policy's."""
    [untrained, _] = Trainer(model, tmp_path / "a").obey(ask(0))
    one, two = learn_from(untrained, 1), learn_from(untrained, 2)
    saved, out = tmp_path / "saved", tmp_path / "out"
    _, reference, newest, before, again, _, after, _, _, last, _ = Trainer(model, tmp_path / "b").obey(
        one, ask(None), ask(1), ask(0), ask(1), Save(str(saved)), two, ask(1), Export(str(out), "base", 1), ask(2)
    )
    assert completions(reference) == completions(before) == completions(untrained)
    assert completions(newest) == completions(again)
    assert len({completions(one)[0].logprobs for one in (newest, untrained, last)}) == 3
    assert len(find_former(saved)) == 1

    resumed = Trainer(model, tmp_path / "c").obey(ask(0), ask(None), ask(1), two, ask(2), checkpoint=saved, updates=1)
    assert [completions(own) for own in (*resumed[:3], resumed[4])] == [
        completions(own) for own in (untrained, untrained, newest, last)
    ]
    assert isinstance(after, Figures)
    assert isinstance(resumed[3], Figures)
    assert resumed[3].figures == after.figures
    assert after.figures["kl"] > 0.001
    served = Trainer(out, tmp_path / "d").obey(ask(0))[0]
    assert completions(served) == completions(newest)


@pytest.mark.nightly
def test_in_bfloat16_weights_of_float32_are_trained_and_exported_as_they_compute(model: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    [untrained, _] = Trainer(model, tmp_path / "a", precision="bfloat16").obey(ask(0))
    saved, out = tmp_path / "saved", tmp_path / "out"
    figures, *_ = Trainer(model, tmp_path / "b", precision="bfloat16").obey(
        learn_from(untrained, 1), Save(str(saved)), Export(str(out), "base")
    )
    assert isinstance(figures, Figures)
    assert abs(figures.figures["sampler_kl"]) < 1e-3  # decoded and trained in the same precision
    kept, exported = (AutoModelForCausalLM.from_pretrained(folder, dtype="auto") for folder in (saved, out))
    assert (kept.dtype, exported.dtype) == (torch.float32, torch.bfloat16)
    for name, weight in kept.named_parameters():
        assert torch.equal(weight.bfloat16(), exported.get_parameter(name)), name
    assert (out / "tokenizer.json").exists()


ESPL: dict[str, Any] = {
    "seed": 4,
    "method": {
        **{"name": "espl", "prompts": 2, "group": 2, "crossover_rate": 0.5, "reflection_max_tokens": 12},
        **{"kl": 0.1, "reflect_with": "policy"},
    },
    "training": {"weights": "full", "learning_rate": 0.001},
}


@pytest.mark.nightly  # test_sending.py resumes a trainer, test_training_runs.py a run
def test_a_killed_run_ends_as_if_nothing_had_happened(model: Path, tmp_path: Path) -> None:
    """Killed as its second checkpoint is about to get its name; reflections ask for the weights before an update."""
    run = finished(tmp_path / "undisturbed" / "run", model, **ESPL)
    again = tmp_path / "killed" / "run"
    again.parent.mkdir()
    assert killed(again, model, ESPL, "checkpoint") == {"update-2", "unfinished"}
    finished(again, model, **ESPL)
    assert records(again) == records(run)
    assert effects(again).keys() == effects(run).keys()
    assert "made again" not in (again / "evorun.log").read_text()
    weights = [folder / "artifacts" / "model" / "model.safetensors" for folder in (run, again)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    studies = PromptStudies(run, load_manifest(run).config, Terminal(), lambda *_: Outcome("failed"))
    [(last, left)] = studies._kept().items()
    assert (last, studies._composition(left)["model"]["id"]) == (4, str(weights[0].parent))
    assert all(line["figures"]["kl"] > 0 for line in lines(run / "training.jsonl")[1:] if "kl" in line["figures"])


@pytest.mark.nightly  # test_full_weights.py has PPO's steps, the test above a run
def test_mpo_trains_all_weights_of_policy_and_critic(model: Path, tmp_path: Path) -> None:
    mpo = {
        **{"name": "mpo", "group": 1, "problems_per_step": 4, "epochs": 2, "critic": "full", "refine_every": 1},
        **{"refine_samples": 2, "reward_max_tokens": 6, "meta_max_tokens": 12},
    }
    settings: dict[str, Any] = {"seed": 1, "method": mpo, "training": {"weights": "full", "learning_rate": 0.001}}
    run = finished(tmp_path / "undisturbed", model, **settings)
    again = tmp_path / "killed"
    assert killed(again, model, settings, "checkpoint") == {"update-2", "unfinished"}
    finished(again, model, **settings)
    assert records(again) == records(run)
    assert all({"policy_loss", "value_loss", "kl"} <= line["figures"].keys() for line in lines(run / "training.jsonl"))
