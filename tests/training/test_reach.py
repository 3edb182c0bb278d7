"""The bound on what an adapter can change, against Adam itself, and the warning on both of its sides."""

from dataclasses import replace

import pytest

from building import composed, make_config, policy_gradient, proximal_policy, training_config
from evorun.reports.training import find_negligible_training
from evorun.runner.settings import check
from evorun.runner.training_runs import trains_too_little
from evorun.runs.schema import TrainingRecord
from evorun.training.reach import MIN_REACH, describe_short_reach, reach
from evorun.training.wire import FineTuning

INPUTS, STEPS = 600, 20


@pytest.mark.parametrize("rate", [1e-6, 1e-4])
@pytest.mark.parametrize(("rank", "alpha"), [(32, 64.0), (64, 128.0)])
def test_gradients_that_agree_move_an_output_by_the_bound_and_no_others_further(
    rank: int, alpha: float, rate: float
) -> None:
    """A layer under PEFT's adapter, whose outputs are pushed up at one input, or at another one each step.

    At the small rate what A starts with moves them, at the large one its change.
    """
    torch = pytest.importorskip("torch")
    peft = pytest.importorskip("peft")
    moved = []
    for inputs_of_step in ([0] * STEPS, range(STEPS)):
        torch.manual_seed(0)
        inputs = torch.randn(STEPS, INPUTS)
        base = torch.nn.Sequential(torch.nn.Linear(INPUTS, 5, bias=False))
        layer = peft.get_peft_model(base, peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=["0"]))
        adam = torch.optim.AdamW((one for one in layer.parameters() if one.requires_grad), lr=rate, weight_decay=0)
        start = layer(inputs).detach()
        for index in inputs_of_step:
            adam.zero_grad()
            (-layer(inputs[index]).sum()).backward()
            adam.step()
        moved.append(float((layer(inputs).detach() - start)[0].mean()))
    bound = reach(training_config(rank=rank, alpha=alpha, learning_rate=rate), STEPS, INPUTS)
    assert moved[0] == pytest.approx(bound, rel=0.25)
    assert moved[1] < 0.7 * bound


def test_a_line_says_so_where_the_policy_stays_what_it_is() -> None:
    """The rate that all weights have with an adapter's small scale, in few steps; the same in as many as MPO makes."""
    all_weights = training_config(alpha=32.0, learning_rate=3e-6)
    few, many = proximal_policy(steps=10, epochs=4), proximal_policy(steps=400, epochs=4)
    line = describe_short_reach(all_weights, few)
    assert line is not None
    assert "\n" not in line
    assert line.startswith("training.learning_rate=3e-06: in 40 steps of the optimiser, with training.alpha=32, ")
    assert describe_short_reach(all_weights, many) is None
    assert describe_short_reach(make_config("training", "ppo"), few) is None
    assert describe_short_reach(all_weights, policy_gradient(steps=10, minibatches=4)) == line
    tuning = FineTuning(train="", held_out=None, source="", epochs=1, batch=1, max_length=1)
    assert describe_short_reach(all_weights, tuning) is None


def test_the_rate_that_the_line_names_is_where_it_ends() -> None:
    for changes in ({}, {"schedule": "linear"}, {"alpha": 4.0}):
        training = training_config(**{"alpha": 32.0, "learning_rate": 1e-8, **changes})
        objective = policy_gradient(steps=100)
        line = describe_short_reach(training, objective)
        assert line is not None
        named = float(line.partition("hardly changes; ")[2].partition(" ")[0])
        assert reach(replace(training, learning_rate=named), 100) == pytest.approx(MIN_REACH, rel=0.2)
        assert describe_short_reach(replace(training, learning_rate=1.2 * named), objective) is None
        assert describe_short_reach(replace(training, learning_rate=0.8 * named), objective) is not None


def test_a_run_says_it_before_it_trains_weights() -> None:
    words = ("method=ppo", "task=arithmetic", "method.steps=5", "training.learning_rate=3e-6")
    [line] = trains_too_little(check(composed(*words, "engine=transformers")))
    assert line.startswith("training.learning_rate=3e-06: in 20 steps of the optimiser")
    assert trains_too_little(check(composed(*words, "engine=transformers", "method.steps=400"))) == []
    assert trains_too_little(check(composed(*words, "engine=simulated"))) == []
    assert trains_too_little(check(composed("method=zero_shot", "task=arithmetic"))) == []


def test_a_report_says_the_same_of_the_steps_that_were_made() -> None:
    records = [TrainingRecord(step=step, calls=0, tokens=0, figures={"learning_rate": 1e-5}) for step in (1, 2)]
    method = {"name": "mpo", "trainer": "ppo", "epochs": 4, "minibatches": 2}
    config = {"training": {"weights": "lora", "alpha": 32.0}, "method": method}
    [line] = find_negligible_training(config, records)
    assert line.startswith("Hardly trained: in 2 training steps")
    assert f"by {reach(training_config(alpha=32.0, learning_rate=1e-5), 16):.1g} of" in line
    assert find_negligible_training(config, records * 4) == []
    assert find_negligible_training({**config, "method": {**method, "trainer": "grpo"}}, records * 4) != []
    assert find_negligible_training({**config, "training": {"weights": "full", "alpha": 32.0}}, records) == []
    assert find_negligible_training({"method": method}, records) == find_negligible_training(config, []) == []
