"""The arms of E-SPL's figures are comparable: the same rollouts, the same samples, the same prompt to start from."""

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from building import composed, simulated_run
from evorun.cli.compose import register
from evorun.cli.groups import config_folder
from evorun.cli.sweeper import jobs_of_sweep, make_overrides
from evorun.runs.journal_reader import read_journal

SAMPLING = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 15_000}
"""Of the authors' code and its README's commands: on contests, of rollouts, evaluations and reflections."""


def arms(figure: str, task: str | None = None) -> list[list[str]]:
    """Return the overrides of each job of a figure's sweep on a task, but for the floor's."""
    register()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        hydra: Any = compose("config", overrides=[f"experiment=espl/{figure}"], return_hydra_config=True).hydra
    sweep: Any = OmegaConf.to_container(OmegaConf.create(hydra.sweeper))
    parser = OverridesParser.create()
    jobs = jobs_of_sweep(parser.parse_overrides(make_overrides(sweep["params"])), sweep["variants"], parser)
    jobs = [job for job in jobs if "model=random" not in job]
    return [[f"experiment=espl/{figure}", *job] for job in jobs if task is None or f"task={task}" in job]


@pytest.mark.nightly
@pytest.mark.parametrize("figure", ["figure11", "figure12", "figure13", "figure14", "figure15"])
def test_every_arm_plays_as_many_rollouts_and_is_tested_by_as_many_samples(figure: str) -> None:
    for job in arms(figure, None if figure == "figure13" else "hmmt"):
        method = composed(*job)["method"]
        # Self-reflection has a population of one (section 4.1).
        prompts = 3 if method["name"] == "espl_self_reflection" else method.get("prompts") or method["draws"]
        assert (method["problems_per_step"] * method["group"] * prompts, method["eval_samples"]) == (150, 10), job
        assert method.get("baseline", "draw") == "draw"  # advantages within each five
        if figure != "figure13":  # the authors' code has no agentic search
            assert {key: method[key] for key in SAMPLING} == SAMPLING
            assert {key: method[f"eval_{key}"] for key in SAMPLING} == SAMPLING
            if "evolve" in method:
                assert {key: method[f"reflection_{key}"] for key in SAMPLING} == SAMPLING
                assert method["rollout_chars"] >= 4 * SAMPLING["max_tokens"]  # appendix A.2: whole rollouts


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("figure", "count"),
    [("figure11", 6), ("figure12", 3), ("figure13", 3), ("figure14", 3)],
)
def test_every_arm_begins_with_the_same_figure(figure: str, count: int, tmp_path: Path) -> None:
    """Before the first step each arm answers the same requests: of the same weights, under one root prompt."""
    small = (
        "task.source=sample",
        "task.limit=3",
        "method.steps=1",
        "method.problems_per_step=1",
        "method.max_tokens=9",
    )
    begun = []
    for number, job in enumerate(arms(figure, None if figure == "figure13" else "hmmt")):
        run = simulated_run(
            tmp_path / str(number), *job, *small, "model.quantization=null", "engine.mean_tokens=3"
        ).path
        first = [one for one in read_journal(run / "journal.sqlite") if one.key.split("|")[1:3] == ["0", "evaluate"]]
        steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
        requests: dict[str, Any] = {one.key: json.loads(one.request) for one in first}
        asked = {key: {**one, "model": None} for key, one in requests.items()}  # its name has a step where it trains
        begun.append((asked, {one["problem"]: one["scores"] for one in steps if one["step"] == 0}))
    assert len(begun) == count
    first_turns = [key for key in begun[0][0] if key.endswith("|0")]
    assert len(first_turns) == 3 * 11  # the greedy answer and ten samples of each problem
    assert all(one == begun[0] for one in begun)
