"""`evorun study FILE`: what a study file may say, the sweep that it states, and the record before the first job."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from building import composed
from evorun.cli.composed_jobs import compose_jobs, compose_runs
from evorun.cli.overrides import parse
from evorun.cli.planning import plan
from evorun.cli.stated_study import compose_sweep, start_study
from evorun.errors import ConfigError
from evorun.runner import plans
from evorun.runner.plans import make_plan
from evorun.runner.settings import check
from evorun.runs.stated_studies import find_study, record_study
from evorun.runs.sweeps import is_own_sweep, read_sweep
from evorun.runs.terminal import Terminal
from evorun_process import evorun_here

FILE = Path(__file__).parents[1] / "examples" / "study" / "study.yaml"
SMALL = """
question: Is a vote better?
methods: [{method: self_consistency, method.samples: 2}]
control: {method: self_consistency, method.samples: 1}
task: mathbench
score: accuracy
budget: {calls: 20}
seeds: [3]
smallest_effect: 0.1
stopping_rule: Two runs.
settings: {engine: simulated, task.source: sample, task.limit: 2, evorun.progress: "off"}
"""


def _write(folder: Path, text: str = SMALL) -> Path:
    file = folder / "study.yaml"
    file.write_text(text)
    return file


def test_the_example_is_a_control_and_variants_of_it() -> None:
    words = compose_sweep(record_study(FILE).study, FILE)
    assert {"-m", "method=zero_shot", "seed=0,1,2", "budget.calls_per_problem=8", "task.limit=60"} <= set(words)
    assert "hydra.sweeper.variants=[{method:self_consistency}]" in words
    assert words[-1] == f"study={FILE}"


def test_texts_of_a_file_are_values_and_no_overrides(tmp_path: Path) -> None:
    text = SMALL.replace("engine: simulated", "engine: simulated, model.id: 'a,b=[c] ${x}', task.name: 'null'")
    study = record_study(_write(tmp_path, text)).study
    given = {word.partition("=")[0]: word for word in compose_sweep(study, tmp_path / "it's, here.yaml")[1:]}
    assert parse(given["model.id"]).value() == "a,b=[c] ${x}"
    assert parse(given["task.name"]).value() == "null"
    assert parse(given["study"]).value() == str(tmp_path / "it's, here.yaml")


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("seeds: [3]", "seeds: [3, 3]", "expected each seed once"),
        ("seeds: [3]", "seeds: []", "length >= 1"),
        ("smallest_effect: 0.1", "smallest_effect: 0", "> 0"),
        ("stopping_rule: Two runs.", "", "expected the key stopping_rule, got none; write stopping_rule: "),
        ("score: accuracy", "scores: accuracy", "scores"),
        ("method.samples: 2", "method.samples: 1", "differ from each other and from the control"),
        ("control: {method: self_consistency, method.samples: 1}", "control: zero_shot", "all with the same keys"),
        ("question: Is", "question: [", "study.yaml"),
        ("seeds: [3]", "seeds: 3", r"seeds: expected a list; write seeds: \[\.\.\.\]"),
        (
            "task: mathbench",
            "task: [mathbench, aime]",
            "task: expected one value, got a list; .* file for each",
        ),
        ("budget: {calls: 20}", "budget: {calls: [20, 40]}", "budget.calls: .* write calls: 20, and a study file for"),
        ("settings: {", "settings: {seed: [0, 1], ", r"settings.seed: .* write seeds: \[0, 1\] at the top"),
        ("method.samples: 1}", "seed: 1}", r"control.seed: .* write seeds: \[1\] at the top"),
        ("method.samples: 1}", "method.samples: [1, 4]}", "control.method.samples: .* and the others under methods"),
        (
            "settings: {",
            "settings: {model: [a, b], ",
            r"settings.model: .* write model: a here for all of them, or {method: NAME, model: \[a, b\]} under methods",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(tmp_path: Path, before: str, after: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        record_study(_write(tmp_path, SMALL.replace(before, after)))


def test_a_list_among_a_methods_settings_is_a_method_with_each_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "try_out", lambda *_, **__: None)
    file = _write(tmp_path, SMALL.replace("samples: 2", "samples: [2, 4], method.temperature: [0.5, 1]"))
    control = "control: {method: self_consistency, method.samples: 1"
    file.write_text(file.read_text().replace(control, f"{control}, method.temperature: 1"))
    settings = [(arm["method.samples"], arm["method.temperature"]) for arm in record_study(file).study.arms]
    assert settings == [(1, 1), (2, 0.5), (2, 1), (4, 0.5), (4, 1)]
    planned = compose_jobs(compose_runs(record_study(file).study))
    assert [(job["method"]["samples"], job["method"]["temperature"]) for job in planned] == settings
    named = [arm.settings for arm in make_plan(planned, tmp_path / "none").arms]
    assert named == [[f"method.samples={samples}", f"method.temperature={heat}"] for samples, heat in settings]


@pytest.mark.parametrize("word", ["method.samples=8", "task.limit=9", "seed=4", "experiment=quickstart"])
def test_the_command_line_changes_nothing_that_the_file_states(tmp_path: Path, word: str) -> None:
    with pytest.raises(ConfigError, match="the study file states all that decides their results"):
        start_study([str(_write(tmp_path)), word], Terminal())


def test_a_file_that_is_not_there_and_a_wrong_command_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot read the study file"):
        start_study(["nowhere.yaml"], Terminal())
    with pytest.raises(ConfigError, match=r"expected: evorun study FILE\.yaml"):
        start_study([], Terminal())


def test_the_arms_of_a_study_are_planned_by_itself_and_refused_above_a_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _write(tmp_path, SMALL.replace("engine: simulated", "engine: openai, model: gpt_4o_mini"))
    plan([str(file), "--json"], Terminal())
    made = json.loads(capsys.readouterr().out)
    assert [(arm["method"], arm["runs"], arm["problems"]) for arm in made["arms"]] == [("self_consistency", 1, 2)] * 2
    assert made["calls"] == 2 * 1 + 2 * 2
    with pytest.raises(ConfigError, match=r"--max-price: expected at most \$0\.000001, the plan says"):
        start_study([str(file), "--max-price=0.000001", f"hydra.sweep.dir={tmp_path / 'sweep'}"], Terminal())
    assert not (tmp_path / "sweep").exists()
    with pytest.raises(ConfigError, match=f"did you mean evorun plan {file}"):
        plan([f"study={file}"], Terminal())


def test_a_run_of_a_malformed_study_is_refused() -> None:
    config = composed("method=zero_shot", "task=mathbench", "engine=simulated")
    with pytest.raises(ConfigError, match="study: expected a study file"):
        check({**config, "study": {"file": 3}})


@pytest.fixture(name="started", scope="module")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    done = evorun_here("study", _write(folder), "hydra.sweep.dir=sweep", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Is a vote better? 2 methods x 1 seed on mathbench: 2 runs." in done.stdout
    assert (
        "The smallest effect of interest (10.0 points) is less than what 2 problems can show (not even" in done.stdout
    )
    return folder


def _manifests(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("sweep/*/manifest.json"))]


def test_the_sweep_and_its_runs_record_the_file_before_they_start(started: Path) -> None:
    sweep, content = read_sweep(started / "sweep"), (started / "study.yaml").read_bytes()
    assert is_own_sweep(sweep)
    assert sweep.study is not None
    assert sweep.study.digest == hashlib.sha256(content).hexdigest()
    assert sweep.study.study.smallest_effect == 0.1
    runs = _manifests(started)
    assert [find_study(run["config"]) for run in runs] == [sweep.study] * 2
    assert sweep.study.recorded <= min(run["started"] for run in runs)
    assert {run["config"]["method"]["samples"] for run in runs} == {1, 2}
    assert all("study" not in path.parent.name for path in started.glob("sweep/*/manifest.json"))


def test_the_report_says_that_the_runs_kept_to_the_file(started: Path) -> None:
    document = json.loads(evorun_here("report", "sweep", "--json", cwd=started).stdout)["comparison"]
    assert document["study"]["deviations"] == []
    assert len(document["study"]["answers"]) == len(document["findings"]) == 1
    assert document["pairs"][0]["comparisons"] == 1
    said = " ".join(evorun_here("report", "sweep", cwd=started).stdout.split())
    assert "Study: Is a vote better? Its file was recorded at " in said
    assert "The runs kept to it: " in said
    assert said.count(document["findings"][0]) == 1


@pytest.mark.nightly
def test_another_start_keeps_the_first_record_and_refuses_a_changed_file(started: Path) -> None:
    first, file = read_sweep(started / "sweep").study, started / "study.yaml"
    assert evorun_here("study", file, "hydra.sweep.dir=sweep", cwd=started).returncode == 0
    assert read_sweep(started / "sweep").study == first
    file.write_text(SMALL.replace("smallest_effect: 0.1", "smallest_effect: 0.3"))
    done = evorun_here("study", file, "hydra.sweep.dir=sweep", cwd=started)
    assert done.returncode == 1
    assert "the file has changed since sweep was started" in done.stderr
    assert read_sweep(started / "sweep").study == first


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("score: accuracy", "score: f1", "expected score: accuracy, the primary score of task=mathbench, got f1"),
        (
            "smallest_effect: 0.1",
            "smallest_effect: 10",
            "smallest_effect: expected below 1 for accuracy, a share of responses, got 10; did you mean 0.1, that",
        ),
    ],
)
def test_a_study_of_another_score_or_unit_begins_nothing(tmp_path: Path, before: str, after: str, reason: str) -> None:
    done = evorun_here("study", _write(tmp_path, SMALL.replace(before, after)), "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert done.returncode == 1
    assert f"study: {reason}" in done.stderr
    assert not list(tmp_path.glob("sweep/*/manifest.json"))
