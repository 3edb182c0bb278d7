"""Sweeps: a folder for each job, and an end that tells how its jobs ended."""

import functools
import itertools
import json
import logging
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evorun.cli.composed_jobs import compose_jobs, describe_variants_on_top
from evorun.cli.job_folders import Job, choose_folders
from evorun.cli.naming import LONGEST, job_name
from evorun.cli.sweep_keys import drop_inapplicable_keys
from evorun.errors import ConfigError
from evorun.runs.job_states import look_at
from evorun.runs.sweeps import JobInSweep, job_names
from evorun_process import DRY_RUN, SMALL, evorun, evorun_here, start
from token_server import write_byte_tokenizer

KEYS = st.sampled_from(["seed", "method.c", "task.c", "method.c.d", "model", "model.id", "engine@x", "method.c_d"])
VALUES = st.text(alphabet="aA01._-/[], =", max_size=50)
JOBS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4).map(lambda job: [f"{k}={v}" for k, v in job.items()])


@given(JOBS, JOBS)
@example(["model.id=a/b"], ["model.id=a-b"])
@example(["method.limit=1"], ["task.limit=1"])
@example(["x=" + "a" * 60], ["x=" + "a" * 61])
@example(["a=1_b-2"], ["a=1", "b=2"])
@example(["seed=-1"], ["seed=1"])
@example(["~seed"], ["seed="])
def test_different_jobs_never_share_a_folder(one: list[str], other: list[str]) -> None:
    assert (job_name(one) == job_name(other)) == (sorted(one) == sorted(other))
    assert len(job_name(one)) <= LONGEST
    assert re.fullmatch(r"[A-Za-z0-9._-]+", job_name(one))


def test_names_are_plain_where_they_can_be_and_stable() -> None:
    assert job_name(["seed=1", "task=mathbench", "++budget.calls=8", "evorun.debug=true"]) == "budget.calls-8_seed-1"
    assert job_name(["model=gemma3_4b"]) == "model-gemma3-4b_bbc91cc9"
    assert job_name(["task=mathbench"]) == "run"


def test_a_folder_names_what_tells_its_job_from_the_others() -> None:
    typed = [("method=rsa", "task.limit=3", f"method.k={k}", f"seed={seed}") for k in (2, 3) for seed in (0, 1)]
    jobs = [Job("rsa_tsp", words, job_name(words)) for words in typed]
    names = ["rsa_tsp_k-2_seed-0", "rsa_tsp_k-2_seed-1", "rsa_tsp_k-3_seed-0", "rsa_tsp_k-3_seed-1"]
    assert choose_folders(jobs) == names
    assert choose_folders(jobs[:1]) == ["rsa_tsp_seed-0"]  # where nothing differs, a seed stays
    alike = [Job("rsa_tsp", [f"model.id=a{sign}b"], f"full{sign}") for sign in "/:"]
    assert choose_folders(alike) == ["full/", "full:"]


def test_the_folder_of_a_job_with_many_keys_of_its_own_is_named_by_one_that_stands_for_all() -> None:
    shared = ["engine=transformers", "method.max_tokens=64"]
    student = [f"student.teaching.key_{number}=12345678" for number in range(12)]
    own = (["student=none"], ["teacher_engine=simulated", *student, "student=laft", "student.tuning.epochs=1"])
    words = [[*shared, *arm, *epochs, f"seed={seed}"] for arm in own for epochs in ([], ["++x=1"]) for seed in (0, 1)]
    jobs = [Job("zero_shot_sudoku", given, job_name(given)) for given in words]
    assert choose_folders(jobs) == [
        f"zero_shot_sudoku_student-{student}{other}_seed-{seed}"
        for student in ("none", "laft")
        for other in ("", "_x-1")
        for seed in (0, 1)
    ]
    named = job_names([JobInSweep(f"job_{number}", tuple(given)) for number, given in enumerate(words)])
    assert named[4:6] == ["student=laft seed=0", "student=laft seed=1"]  # in the lines of evorun status
    swept = [[f"student.teaching.key_{key}={key + job}" + "8" * 30 for key in range(9)] for job in range(2)]
    crossed = [[*both, "b=1"] for both in itertools.product(*zip(*swept, strict=True))][:9]
    cut = choose_folders([Job("zero_shot_sudoku", given, job_name(given)) for given in crossed])
    assert len(set(cut)) == len(cut)
    assert all(name.startswith("zero_shot_sudoku_key_5-") and len(name) <= LONGEST for name in cut)


def test_a_job_keeps_the_folder_that_it_had_and_another_one_does_not_get_it() -> None:
    first = Job("rsa_tsp", ["task.limit=3", "seed=0"], "full_a")
    earlier = [JobInSweep("rsa_tsp_seed-0", tuple(first.overrides))]
    beside = [Job("rsa_tsp", ["task.limit=3", "method.k=2", "seed=0"], "full_b"), first]
    assert choose_folders(beside, earlier) == ["rsa_tsp_k-2_seed-0", "rsa_tsp_seed-0"]
    other = Job("rsa_tsp", ["task.limit=4", "seed=0"], "full_c")
    assert choose_folders([other], earlier) == ["rsa_tsp_limit-4_seed-0"]
    unlike = [JobInSweep("rsa_tsp_limit-4_seed-0", ("task.limit=5", "seed=0"))]  # as another sweep named it
    assert choose_folders([other], unlike) == ["full_c"]
    faster = Job("rsa_tsp", ["task.limit=3", "seed=0", "engine.concurrency=2"], "full_d")
    assert choose_folders([faster], earlier) == ["rsa_tsp_seed-0"]  # a resume may set it, so it is the same job


@pytest.mark.nightly  # test_sweep_jobs.py interrupts a sweep, test_cli_signals.py one between its jobs
def test_an_interrupt_stops_the_sweep(tmp_path: Path) -> None:
    sweep = ("-m", *DRY_RUN, *SMALL, "engine.seconds_per_token=0.01", "seed=0,1,2", "hydra.sweep.dir=sweep")
    process = start(*sweep, cwd=tmp_path)
    while process.poll() is None and not list(tmp_path.glob("sweep/*/candidates.jsonl")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    (manifest,) = tmp_path.glob("sweep/*/manifest.json")
    assert json.loads(manifest.read_text())["status"] == "interrupted"


@pytest.mark.nightly  # test_sweep_jobs.py has a job that fails beside others
def test_a_job_in_another_process_that_fails_fails_the_sweep_and_no_other_job(tmp_path: Path) -> None:
    launcher = ("hydra/launcher=submitit_local", "hydra.sweep.dir=sweep")
    done = evorun("-m", *DRY_RUN, *SMALL, "method.duels=-1,2", *launcher, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert len(list(tmp_path.glob("sweep/*/results.json"))) == 1


def test_default_folders_are_never_shared(tmp_path: Path) -> None:
    sizes = (*DRY_RUN, "task.limit=1", "method.generations=0")
    clock = "hydra.run.dir=${evorun_free:outputs/now}"
    (tmp_path / "outputs" / "now").mkdir(parents=True)
    for _ in range(2):
        assert evorun_here(*sizes, clock, cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in (tmp_path / "outputs").iterdir()) == ["now", "now_1", "now_2"]


def test_the_default_folders_are_chosen_free() -> None:
    import yaml

    from evorun.cli.groups import config_folder

    defaults = yaml.safe_load((config_folder() / "config.yaml").read_text())["hydra"]
    for kind in ("run", "sweep"):
        assert defaults[kind]["dir"].startswith("${evorun_free:")


def test_a_sweep_that_cannot_be_written_names_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = evorun_here("-m", *DRY_RUN, "hydra.sweep.dir=file/sweep", cwd=tmp_path)
    assert done.returncode == 1
    assert "hydra.sweep.dir=FOLDER" in done.stderr


def jobs_of(tmp_path: Path, *arguments: str) -> list[str]:
    """Run the sweep at the smallest size and return what its jobs were given, in the order of the jobs."""
    from evorun.cli import launch

    asked: list[str] = []

    def note(config: object, folder: Path, command: list[str], terminal: object, **_: object) -> str:
        asked.append(" ".join(sorted(argument for argument in command[1:] if argument.startswith(("method", "model")))))
        return "completed"

    with mock.patch("evorun.cli.running.carry_out", note), mock.patch.object(launch, "show_warnings"):
        done = evorun_here(*arguments, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "sweep").iterdir())) == 3 + len(asked)  # multirun.yaml, sweep.json, .lock
    return asked


def test_an_arm_that_cannot_run_is_named_before_the_first_one_begins(tmp_path: Path) -> None:
    """A chat template without a tool's turn: the server that answers renders by itself, the trainer could not."""
    template = "{% for m in messages if m.role != 'tool' %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    folder = write_byte_tokenizer(tmp_path / "model", template=template)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()

    def begin(*_: object, **__: object) -> str:
        print("begun", file=sys.stderr)
        return "completed"

    task, model = ("task=search_qa", "task.source=sample"), ("model=local", f"model.id={folder}", "engine=server")
    words = ("-m", "method=zero_shot,grpo,rloo", *task, *model, "seed=0,1", "hydra.sweep.dir=sweep")
    with mock.patch("evorun.cli.running.carry_out", begin):
        done, again = evorun_here(*words, cwd=tmp_path), evorun_here(*words, cwd=tmp_path)
    said = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in said] == ["error", *["begun"] * 6]  # a line for all seeds and both
    assert said[0].startswith("error: a job of this sweep cannot run (method=grpo; method=rloo): ")
    assert "its chat template takes no messages of the role tool" in said[0]
    assert again.stderr.splitlines() == ["begun"] * 6  # what has begun needs no more than its journal


@pytest.mark.parametrize("budgets", ["50", pytest.param("50,80", marks=pytest.mark.nightly)])
def test_what_a_sweep_will_not_reach_is_said_once(budgets: str, tmp_path: Path) -> None:
    small = ("method=duel_evolve", "task=arithmetic", "engine=simulated", f"budget.calls_per_problem={budgets}")
    line = (
        "method=duel_evolve may never leave generation 0, which takes up to 60 calls per problem: the budget has 50; "
        "raise it, or lower method.initial_candidates or method.duels."
    )
    with mock.patch("evorun.cli.running.carry_out", return_value="completed") as carried_out:
        done = evorun_here("-m", *small, "seed=0,1", "hydra.sweep.dir=sweep", cwd=tmp_path)
    told = line if budgets == "50" else f"budget.calls_per_problem=50: {line}"
    assert done.stderr.splitlines() == [f"warning: {told}"]
    assert carried_out.call_count == 2 * len(budgets.split(","))


@pytest.mark.nightly
def test_all_warnings_by_settings_precede_the_jobs_of_a_sweep(tmp_path: Path) -> None:
    small = ("task=mathbench", "task.source=sample", "engine=simulated", "engine.skill=0.6", "engine.improvement=0.5")
    words = ("-m", "method=rsa,zero_shot", "budget.calls_per_problem=30", "judge=oracle", *small)
    with mock.patch("evorun.cli.running.carry_out", return_value="completed"):
        lines = evorun_here(*words, "hydra.sweep.dir=sweep", cwd=tmp_path).stderr.splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "warning: method=rsa: method.population=16 leaves no step of aggregation within 30 calls per problem",
        "warning: method=rsa leaves 14 of 30 calls per problem: a step reserves 16; lower method.population.",
        "warning: method=rsa: judge: has no effect",
        "warning: method=rsa: engine.skill=0.6 and engine.improvement=0.5 add up to 1.1",
        "warning: method=zero_shot: judge: has no effect",
    ]


def test_jobs_that_are_added_to_a_sweep_are_checked_before_any_begins(tmp_path: Path) -> None:
    small = ("task=mathbench", "task.source=sample", "engine=simulated", "budget.calls_per_problem=30")
    told = []
    with mock.patch("evorun.cli.running.carry_out", return_value="completed") as carried_out:
        for methods in ("zero_shot", "zero_shot,rsa", "zero_shot,rsa"):
            done = evorun_here("-m", f"method={methods}", *small, "hydra.sweep.dir=sweep", cwd=tmp_path)
            told.append([line.partition(" leaves")[0] for line in done.stderr.splitlines()])
    assert told == [[], ["warning: method=rsa: method.population=16", "warning: method=rsa"], []]
    assert carried_out.call_count == 5


def test_a_key_on_the_command_line_takes_the_place_of_the_swept_one(tmp_path: Path) -> None:
    experiment = ("experiment=lyria/errors", "task=sudoku", "engine=simulated")
    floor = "method.max_errors=3 model=random"
    assert jobs_of(tmp_path, *experiment, "method.max_errors=3") == ["method.max_errors=3", floor]


def test_variants_repeat_the_whole_sweep_and_no_job_runs_twice(tmp_path: Path) -> None:
    # the last one gives a job that the first product has too
    variants = "hydra.sweeper.variants=[{method.choose: judge}, {model: qwen2_5_7b}, {method.samples: '4,6'}]"
    asked = jobs_of(
        tmp_path, "-m", *DRY_RUN[1:], "model=smollm2_135m", "method=best_of_n", "method.samples=4,8", variants
    )
    assert asked == [
        "method.samples=4 method=best_of_n model=smollm2_135m",
        "method.samples=8 method=best_of_n model=smollm2_135m",
        "method.choose=judge method.samples=4 method=best_of_n model=smollm2_135m",
        "method.choose=judge method.samples=8 method=best_of_n model=smollm2_135m",
        "method.samples=4 method=best_of_n model=qwen2_5_7b",
        "method.samples=8 method=best_of_n model=qwen2_5_7b",
        "method.samples=6 method=best_of_n model=smollm2_135m",
    ]


def test_null_takes_an_experiments_variants_away(tmp_path: Path) -> None:
    words = ("experiment=lyria/errors", "task=sudoku", "method.max_errors=3", "engine=simulated")
    assert jobs_of(tmp_path, *words, "hydra.sweeper.variants=null") == ["method.max_errors=3"]
    assert len(compose_jobs([*words, "hydra.sweeper.variants=null"])) == 1


@pytest.mark.nightly
def test_variants_that_choose_the_methods_are_the_whole_sweep(tmp_path: Path) -> None:
    given = ("-m", *DRY_RUN[1:], "seed=0,1")
    variants = "hydra.sweeper.variants=[{method: best_of_n, method.samples: 4}, {method: zero_shot}]"
    alone = ["method.samples=4 method=best_of_n"] * 2 + ["method=zero_shot"] * 2
    assert jobs_of(tmp_path, *given, variants) == alone
    of_default = "hydra.sweeper.variants=[{method: zero_shot}, {model: qwen2_5_7b}]"
    (tmp_path / "other").mkdir()
    assert jobs_of(tmp_path / "other", *given[:-1], of_default) == ["", "method=zero_shot", "model=qwen2_5_7b"]


def test_the_job_without_variants_that_cannot_run_is_named(tmp_path: Path) -> None:
    words = ("-m", *DRY_RUN[1:], "method=best_of_n", "model=local", "hydra.sweep.dir=sweep")
    with mock.patch("evorun.cli.running.carry_out", return_value="completed"):
        done = evorun_here(*words, "hydra.sweeper.variants=[{model.id: org/name}]", cwd=tmp_path)
    assert "error: a job of this sweep cannot run (method=best_of_n, without variants): model.id: " in done.stderr


WITH_VARIANTS = ("experiment=espl/figure12", "engine=simulated", "task=hmmt", "task.source=sample")
ON_TOP = (
    "task=hmmt method=espl,grpo: on top come variants of experiment=espl/figure12 that set this themselves, "
    "{method: grpo, method.draws: 3, method.task_instruction: True}; {method: espl, task: beyond_aime, "
    "method.crossover_rate: 0.0}; hydra.sweeper.variants=null leaves all variants out, random baselines too"
)
OWN_VARIANTS = "hydra.sweeper.variants=[{method: grpo, method.draws: 3}]"


def test_variants_on_top_of_what_was_typed_are_described() -> None:
    assert describe_variants_on_top([*WITH_VARIANTS, "method=espl,grpo"]) == ON_TOP
    assert describe_variants_on_top([*WITH_VARIANTS, "method=espl", OWN_VARIANTS]) is None
    alone = [*WITH_VARIANTS[:2], "model=qwen2_5_7b"]
    assert describe_variants_on_top(alone) is None  # a random baseline is on top of each


@pytest.mark.nightly
def test_variants_on_top_of_what_was_typed_are_told(tmp_path: Path) -> None:
    with mock.patch("evorun.cli.running.carry_out", return_value="completed"):
        told = evorun_here(*WITH_VARIANTS, "method=espl,grpo", "hydra.sweep.dir=typed", cwd=tmp_path).stdout
        not_told = evorun_here(
            *WITH_VARIANTS, "method=espl", OWN_VARIANTS, "hydra.sweep.dir=chosen", cwd=tmp_path
        ).stdout
    assert ON_TOP in told
    assert "on top" not in not_told


def test_keys_of_a_student_go_to_the_jobs_with_one(caplog: pytest.LogCaptureFixture) -> None:
    of_student = ["teacher=gpt_4o", "++teacher_engine.skill=0.3", "++student.tuning.epochs=1", "training=lora"]
    arms = (["student=none", "method=zero_shot"], ["student=laft", "method=zero_shot"], ["method=zero_shot"])
    kept = drop_inapplicable_keys([[*arm, *of_student, "seed=1"] for arm in arms] + [["method=laft", *of_student]])
    untaught, taught = [[*arm, "seed=1"] for arm in arms], [*arms[1], *of_student, "seed=1"]
    assert kept == [untaught[0], taught, untaught[2], ["method=laft", *of_student]]
    keys = ("teacher", "teacher_engine.skill", "student.tuning.epochs", "training")
    says = "only jobs with a student have this key; the others run without it"
    assert caplog.messages == [f"{key}: {says}" for key in keys]
    alone = [["student=none", *of_student]]
    assert drop_inapplicable_keys(alone) == alone  # an error of its own
    trains = [["method=grpo", "student=none", "training=lora"], ["method=laft", "training=lora"]]
    assert drop_inapplicable_keys(trains) == trains


def test_a_key_goes_to_the_jobs_whose_choice_has_it_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    methods = (["method=zero_shot", "method=duel_evolve"], ["++method.generations=1", "++method.generations=2"])
    jobs = [[*both, "++task.limit=3"] for both in itertools.product(*methods)]
    kept = drop_inapplicable_keys(jobs)
    assert kept == [["method=zero_shot", "++task.limit=3"]] * 2 + jobs[2:]
    expected = "method.generations: only duel_evolve has this key; the jobs of zero_shot run without it"
    assert caplog.messages == [expected]
    with pytest.raises(ConfigError, match=r"method.generations: unknown key of zero_shot, sft; set budget.generations"):
        drop_inapplicable_keys([[f"method={name}", "method.generations=1"] for name in ("zero_shot", "sft")])
    with pytest.raises(ConfigError, match=r"^method.qqq: unknown key of zero_shot, sft; leave it out$"):
        drop_inapplicable_keys([[f"method={name}", "method.qqq=1"] for name in ("zero_shot", "sft")])
    caplog.clear()
    drop_inapplicable_keys(
        [[f"method={name}", "method.samples=3"] for name in ("zero_shot", "self_consistency", "best_of_n")]
    )
    one_alone = "for one of them alone, give hydra.sweeper.variants=[{method: best_of_n, method.samples: ...}]"
    assert caplog.messages == [
        "method.samples: only self_consistency, best_of_n have this key; the jobs of zero_shot run without it; "
        f"{one_alone}"
    ]
    # of a single method, its own check says which keys there are
    assert drop_inapplicable_keys([["method=zero_shot", "method.x=1"]]) == [["method=zero_shot", "method.x=1"]]
    [sudoku, arithmetic] = drop_inapplicable_keys(
        [[f"task={name}", "task.test_problems=3"] for name in ("sudoku", "arithmetic")]
    )
    assert (sudoku, arithmetic) == (["task=sudoku"], ["task=arithmetic", "task.test_problems=3"])


def test_a_glob_stands_for_the_choices_that_it_fits(tmp_path: Path) -> None:
    assert jobs_of(tmp_path, "-m", *DRY_RUN[1:], "method=glob(zero*)") == ["method=zero_shot"]


def test_jobs_that_differ_in_a_left_out_key_alone_are_one(tmp_path: Path) -> None:
    assert jobs_of(tmp_path, "-m", *DRY_RUN[1:], "method=zero_shot,duel_evolve", "method.generations=1,2") == [
        "method=zero_shot",
        "method.generations=1 method=duel_evolve",
        "method.generations=2 method=duel_evolve",
    ]


def test_an_interrupted_sweep_says_how_each_job_is_and_what_goes_on(tmp_path: Path) -> None:
    sweep = ("-m", *DRY_RUN[1:], "method=zero_shot", "seed=0,1,2,3", "hydra.sweep.dir=a sweep")
    ends = iter(["completed", "failed", "interrupted"])

    def end(config: object, folder: Path, command: list[str], terminal: object, **_: object) -> str:
        status = next(ends)
        (folder / "manifest.json").write_text(
            json.dumps({"status": status, "error": "a\nb" if status[0] == "f" else ""})
        )
        (folder / "report.html").touch()
        return status

    with mock.patch("evorun.cli.running.carry_out", end):
        done = evorun_here(*sweep, cwd=tmp_path)
    assert done.returncode == 130
    rows = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("seed=")]
    states = ("done", "failed", "interrupted", "waiting")
    assert rows == [[f"seed={number}", state] for number, state in enumerate(states)]
    assert done.stdout.splitlines()[-2:] == [
        "failed: seed=1: a",
        "3 of 4 jobs are not done; mend what the error names, then continue with: evorun resume 'a sweep'",
    ]


@pytest.mark.nightly
def test_a_job_that_cannot_begin_has_failed_until_a_resume_begins_it(tmp_path: Path) -> None:
    words = ("-m", *DRY_RUN[1:], "method=best_of_n,zero_shot", "seed=0,1", "hydra.sweep.dir=sweep")

    def begin(config: dict[str, Any], folder: Path, *_: object, able: bool = False, **__: object) -> str:
        logging.getLogger("evorun").warning("of each job")
        if config["method"]["name"] == "best_of_n" and not able:
            raise ConfigError("method.samples: expected\na number")
        (folder / "manifest.json").write_text(json.dumps({"status": "completed"}))
        (folder / "report.html").touch()
        return "completed"

    with mock.patch("evorun.cli.running.carry_out", begin):
        done = evorun_here(*words, cwd=tmp_path)
    said = ["warning: method=best_of_n seed=0: of each job", "error: method.samples: expected a number"]
    assert done.stderr.splitlines() == said
    jobs = "; ".join(f"method={method} seed={seed}" for method in ("best_of_n", "zero_shot") for seed in (0, 1))
    assert f"warned alike: {jobs}: of each job" in done.stdout.splitlines()
    looked = evorun_here("status", "sweep", cwd=tmp_path)
    failed = "failed: method=best_of_n seed=0; method=best_of_n seed=1: method.samples: expected a number"
    for shown in (done.stdout, looked.stdout):
        assert "4 jobs: 2 done, 2 failed" in shown
        assert shown.count("expected a number") == shown.splitlines().count(failed) == 1
        assert "mend what the error names, then continue with: evorun resume sweep" in shown
    with mock.patch("evorun.cli.running.carry_out", functools.partial(begin, able=True)):
        assert evorun_here("resume", "sweep", cwd=tmp_path).returncode == 0
    [found] = json.loads(evorun_here("status", "sweep", "--json", cwd=tmp_path).stdout)["sweeps"]
    assert [(job["state"], job["begun"], job["error"]) for job in found["jobs"]] == [("done", True, None)] * 4


def test_a_complete_run_without_its_report_is_not_done(tmp_path: Path) -> None:
    sweep = ("-m", *DRY_RUN, *SMALL, "seed=0,1", "hydra.sweep.dir=sweep")
    seen: list[str] = []

    def stop(run: Path) -> None:
        seen.append(look_at(run, "").state)
        raise KeyboardInterrupt

    with mock.patch("evorun.reports.html.write_report", stop):
        done = evorun_here(*sweep, cwd=tmp_path)
    assert seen == ["reporting"]
    assert re.search(r"^done: seed=0: no report yet$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith(
        "1 of 2 jobs is not done, 1 lacks only its report; continue with: evorun resume sweep\n"
    )


def test_a_repeated_sweep_has_a_line_for_each_complete_job(tmp_path: Path) -> None:
    sweep = ("-m", *DRY_RUN[1:], "method=zero_shot", "task.limit=3", "seed=0,1", "hydra.sweep.dir=sweep")
    first = evorun_here(*sweep, cwd=tmp_path).stdout.splitlines()
    assert [line.partition(":")[0] for line in first[:2]] == ["Simulated model", "Sample set"]  # once for both
    lines = evorun_here(*sweep, cwd=tmp_path).stdout.splitlines()
    jobs, end = lines[:2], lines[-1]
    assert first[2:] == lines
    assert lines[2] == "sweep: 2 jobs: 2 done"
    for number, (folder, line) in enumerate(zip(sorted(tmp_path.glob("sweep/*seed-*")), jobs, strict=True), 1):
        accuracy = json.loads((folder / "results.json").read_text())["metrics"]["accuracy"]
        low, high = (f"{100 * bound:.1f}" for bound in accuracy["ci95"])
        said = f"accuracy {100 * accuracy['value']:.1f} % (95 % interval {low} to {high} %)"
        assert line == f"sweep/{folder.name}: complete, {said}; {number} of 2 jobs ended"
    assert end == "compare the jobs of the sweep: evorun report sweep"


def test_the_command_of_a_job_composes_it_alone(tmp_path: Path) -> None:
    for folder, name, budget in (("conf", "mine", 3), ("more", "small", 4)):
        (tmp_path / folder / "budget").mkdir(parents=True)
        (tmp_path / folder / "budget" / f"{name}.yaml").write_text(f"calls: {budget}\n")
    own = ("--config-dir", "conf", f"hydra.searchpath=[file://{tmp_path / 'more'}]", "hydra.sweep.dir=sweep")
    with mock.patch("evorun.cli.running.carry_out", return_value="completed") as carried_out:
        done = evorun_here("-m", *own, *DRY_RUN[1:], "method=zero_shot", "budget=mine,small", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for call, calls in zip(carried_out.call_args_list, (3, 4), strict=True):
        command = call.args[2]
        shown = evorun_here(*command[1:], "--cfg", "job", "-p", "budget", cwd=tmp_path)
        assert f"calls: {calls}\n" in shown.stdout, shown.stderr


def test_an_interrupt_is_never_silent(tmp_path: Path) -> None:
    with mock.patch("evorun.reports.html.write_report", side_effect=KeyboardInterrupt):
        done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 130
    assert done.stdout.splitlines()[-1] == ("interrupted; the run is complete, its report is not: evorun report run")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "completed"
    with mock.patch("evorun.runner.settings.check", side_effect=KeyboardInterrupt):
        done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=other", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert not (tmp_path / "other").exists()
    with mock.patch("evorun.runs.directory._to_yaml", side_effect=KeyboardInterrupt):  # just after the manifest
        done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=early", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "interrupted; continue with: evorun resume early"
    assert json.loads((tmp_path / "early" / "manifest.json").read_text())["status"] == "interrupted"


@pytest.mark.parametrize("place", ["evorun.runs.directory._to_yaml", "evorun.runner.experiment.write_records"])
def test_an_interrupt_that_a_library_turns_into_its_own_error_is_one(place: str, tmp_path: Path) -> None:
    def compiled(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise SystemError("returned a result with an exception set") from None

    with mock.patch(place, side_effect=compiled):
        done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 130, done.stderr
    assert done.stdout.splitlines()[-1] == "interrupted; continue with: evorun resume run"
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "interrupted"
