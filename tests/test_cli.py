"""The program as a user meets it: help, lists, and one clear line for whatever is wrong."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from building import load_task
from evorun.cli.groups import CHOSEN_GROUPS
from evorun.runner import registry
from evorun_process import DRY_RUN, SMALL, environment, evorun, evorun_here

OWN_CONFIG = Path(__file__).parents[1] / "examples" / "slurm_sweep" / "conf"
PLUGIN = """
from dataclasses import dataclass
from evorun.tasks.base import LoadedTask, Task, TaskConfig
from evorun.runs.candidates import Response

class Riddle(Task):
    name = "riddle"

    def parse(self, problem, text):
        return Response(text=text, answer=text)

@dataclass
class RiddleConfig(TaskConfig):
    task_class = Riddle
    name: str = "riddle"
    description: str = "a task that can only be parsed"
    lines: int = 4
    \"\"\"Lines of a riddle.\"\"\"
    tongue: str | None = None
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a third party's task."""
    (tmp_path / "site" / "riddles-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "site" / "riddles.py").write_text(PLUGIN)
    info = tmp_path / "site" / "riddles-1.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: riddles\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[evorun.tasks]\nriddle = riddles:RiddleConfig\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    registry.plugins.cache_clear()
    yield
    registry.plugins.cache_clear()


def complaint(*arguments: str | Path, cwd: Path, **options: object) -> str:
    """Run evorun (with options: in a process of its own); check that it fails with one line, which is returned."""
    done = evorun(*arguments, cwd=cwd, **options) if options else evorun_here(*arguments, cwd=cwd)
    assert done.returncode == 1, (done.stdout, done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert "Traceback" not in done.stdout
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["method=duel_evolv"], "unknown method; did you mean method=duel_evolve? evorun list methods names all"),
        (
            ["task=nothing"],
            "task=nothing: unknown task; choose one of aime, arithmetic, autocorrelation,",
        ),
        (["method=gepa", "reflection=nobody"], "reflection=nobody: unknown reflection"),
        (["reflection=gemma3_4b"], "reflection: has no effect, only method=gepa has a model that reflects"),
        (["engine=warp"], "vllm; a plug-in's package must be installed (pip install FOLDER)"),
        (["method.generatons=3"], "method.generatons: unknown key; did you mean method.generations?"),
        (["generations=3"], "generations: unknown key; did you mean generator? the top level has method, task"),
        (["method.generations=many"], "method.generations: expected int, got 'many'"),
        (
            ["task.sampling.max_tokenz=5"],
            "task.sampling.max_tokenz: unknown key; did you mean task.sampling.max_tokens",
        ),
        (["task.draw_seed=-1"], "task.draw_seed: expected a number >= 0, got -1"),
        (["task.instance_seed=1"], "task.instance_seed: this key is now task.draw_seed"),
        (["task.sampling.max_tokens=many"], "task.sampling.max_tokens: expected int | None, got 'many'"),
        (["task.sampling.top_p=3"], "task.sampling.top_p: expected a number in (0, 1], got 3.0"),
        (["task.sampling=3"], "task.sampling: expected a group of settings (task.sampling.KEY=VALUE), got 3"),
        (["budget.calls=-5"], "budget.calls: expected a number >= 1, got -5"),
        (["seed=-1"], "seed: expected an integer >= 0, got -1"),
        (["run.concurrency=0"], "run.concurrency: expected a number >= 1, got 0"),
        (["task.data=/no/such/folder", "task.source=auto"], "/no/such/folder"),
        (["engine=replay"], "engine.run: expected the directory of the run to replay, got null"),
        (["model=local"], "model.id: expected a value, none was given; set model.id=VALUE"),
        (["method.duels=[1"], "method.duels=[1"),
        (["budget=5"], "budget=5: unknown budget; did you mean budget.calls_per_problem=5? choose one of calls_150, "),
        (["budget=null"], "budget=null: unknown budget; did you mean budget=unlimited? choose one of calls_150, "),
        (["method=5"], "method=5: unknown method; choose one of"),
        (
            ["task=null"],
            "task=null: unknown task; choose one of aime, arithmetic, autocorrelation,",
        ),
        (["~task"], "task: expected a choice by name; set task=NAME"),
        (["evorun=5"], "evorun: expected a group of settings"),
        (["--resolve"], "--resolve: expected --cfg job|hydra|all beside it"),
        (["-x"], "evorun: unrecognized arguments: -x"),
        (["--cfg", "jobb"], "evorun: argument --cfg/-c: invalid choice: 'jobb'"),
        (["hydra/launcher=nope"], "hydra/launcher=nope: unknown hydra/launcher; choose one of basic, local, slurm"),
        (["hydra.foo=1"], "hydra.foo: Hydra has no such key"),
        (["hydra/launcher=slurm"], "hydra/launcher=slurm: launches the jobs of a sweep: add -m, or leave it out"),
        (["seed=range(0,3)"], "seed=range(0,3): several values make a sweep, one run per value: add -m"),
        (["training=lora"], "training: expected a method that trains weights (method=grpo) or a student, got neither"),
        (["output=outputs/run"], "output: expected hydra.run.dir=FOLDER for the folder of a run, or hydra.sweep.dir="),
        (["+method=lyria"], "method: a new choice replaces the present one; write method=NAME, without +"),
        (["=3"], "=3: expected KEY=VALUE, got no key"),
        (["method=lyria", "plan"], "plan: expected the verb as the first word, got others before it; write evorun"),
        (["sandbox.packages=numpy"], "expected list[str], got 'numpy'; write sandbox.packages=[numpy]"),
        (["metod=lyria"], "metod: unknown key; did you mean method? the top level has method, task"),
        (["metod.generations=3"], "metod.generations: unknown key; did you mean method.generations?"),
        (["method.generations=1,2"], "method.generations=1,2: several values make a sweep, one run per value: add -m;"),
        (["experiment=lyria/error", "seed=0,1"], "experiment=lyria/error: unknown experiment; did you mean"),
        (["experiment=lyria/errors", "seed=0,1", "budget=calls_100"], "budget=calls_100: unknown budget; did you mean"),
        (
            ["budget.methods.lyria.population=3"],
            "has no effect, a budget's methods are composed first; set",
        ),
        (["hydra.run.dir="], "hydra.run.dir: expected a folder, got an empty string"),
        (
            [f"--config-dir={OWN_CONFIG}", "experiment=equal_cots"],
            "unknown experiment; did you mean experiment=equal_cost? --config-dir has equal_cost, and evorun list",
        ),
        (
            ["lst"],
            "lst: did you mean list? expected a verb (status, plan, resume, replay, extend, fork, ",
        ),
        (["gemma3_4"], "gemma3_4: did you mean model=gemma3_4b?"),
        (["hydra/launcher=basic", "hydra/launcher=slurm"], "hydra/launcher: expected once, got it twice"),
        (["+method.generations=1"], "method.generations: has a value already; write method.generations=VALUE, with"),
        (["hydra.job.num=x"], "hydra.job.num=x: expected a value that its key takes, got: Value 'x' of type 'str'"),
        (["seed=range(0,3,0)"], "a range by itself, got: range() arg 3 must not be zero"),
        (
            ["-m", "method=glob(zero*),lyria"],
            "expected a glob by itself; write method=glob([NAME,NAME,...])",
        ),
        (["method=gepa", "method=lyria"], "method: expected once, got it twice: method=gepa and method=lyria"),
        (["task.limit=${nope}"], "task.limit: expected a value, got ${nope}, which refers to nothing"),
        (["task.limit=${nope:3}"], "task.limit: expected a value, got ${nope:...}, which refers to nothing"),
        (["model.id=${oc.env:HOME}"], "model.id: expected a value, got ${oc.env:HOME}, which would write"),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (
                (["model=gemma"], "model=gemma: unknown model"),
                (["judge=nobody"], "judge=nobody: unknown judge"),
                (["model=null"], "model=null: unknown model"),
                (["engine=null"], "engine=null: unknown engine"),
                (["judge=null"], "judge=null: unknown judge"),
                (["task=recipe_order"], "verifiers; a plug-in's package must be installed (pip install FOLDER)"),
                (["~task", "method=laft"], "task: expected a choice by name; set task=NAME"),
                (["method=lyria,gepa"], "method=lyria,gepa: several values make a sweep, one run per value: add -m;"),
                (["method.generations=-1"], "method.generations: expected a number >= 0, got -1"),
                (["method.temperature=hot"], "method.temperature: expected float, got 'hot'"),
                (["--cfg"], "evorun: argument --cfg/-c: expected one argument"),
                (
                    ["experiment=duel_evolve/figure9"],
                    "experiment=duel_evolve/figure9: unknown experiment; did you mean",
                ),
                (["engine=replay", "engine.run=/no/such/run"], "/no/such/run"),
            )
        ),
    ],
)
def test_a_bad_configuration_is_one_line(tmp_path: Path, arguments: list[str], expected: str) -> None:
    given = {argument.lstrip("+").partition("=")[0] for argument in arguments}
    rest = [word for word in (*DRY_RUN, *SMALL) if word.partition("=")[0] not in given]
    assert expected in complaint(*rest, *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())  # nothing is left of a run that was refused


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["method=few_shot", "method.shots=100"], "method.shots: expected a validation split of at least 100"),
        (["method=few_shot", "task.validation_per_stratum=0"], "method.shots: expected a validation split of at"),
        (["method=few_shot", "method.demonstrations=nowhere"], "method.demonstrations: cannot read"),
        (["method=few_shot", "method.demonstrations=empty"], "found 0; the split's ids are: "),
        (["method=few_shot", "method.demonstrations=strange"], "found 0; the split's ids are: "),
        (["method=few_shot", "method.demonstrations=broken"], 'broken:1: expected {"id": "...", "response": "..."}'),
        (["method=gepa", "method.train_share=0"], "method.train_share: expected both parts of the validation split"),
        (["method=gepa", "method.train_share=1"], "method.train_share: expected both parts of the validation split"),
        (["method=gepa", "task.validation_per_stratum=0"], "0 to reflect on; raise task.validation_per_stratum"),
        (["method=grpo", "method.rubric=nope"], "method.rubric: task=mathbench has no rubric 'nope'; expected one of"),
    ],
)
def test_settings_that_the_data_does_not_allow_begin_no_run(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "strange").write_text('{"id": "nobody", "response": "x"}\n')
    (tmp_path / "broken").write_text("{\n")
    sample = ("task=mathbench", "task.source=sample", "engine=simulated", "task.limit=2", "hydra.run.dir=run")
    line = complaint(*sample, *arguments, cwd=tmp_path)
    assert expected in line
    assert ("or change the share" in line) == (arguments[1].startswith("method.train_share"))  # not of no problems
    assert "resume" not in line
    assert not (tmp_path / "run").exists()


def test_a_key_of_an_experiment_that_another_task_lacks_is_taken_away_by_name(tmp_path: Path) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text("# @package _global_\ntask:\n  source: sample\n")
    mine = ("--config-dir=conf", "experiment=mine", "task=graph_coloring", "engine=simulated")
    advice = (
        "task.source: unknown key; task has name, ",
        "; if experiment=mine sets it, take it away with '~task.source'",
    )
    for given in ([], ["task.source=null"], ["-m", "seed=0,1"]):
        line = complaint(*mine, *given, cwd=tmp_path)
        assert all(part in line for part in advice), line
    assert "take it away" not in complaint(*mine, "~task.source", "task.qqq=3", cwd=tmp_path)


def test_worked_examples_that_are_wrong_are_not_worth_a_resume(tmp_path: Path) -> None:
    held_out = [example.problem.id for example in load_task("mathbench", source="sample").validation]
    lines = [json.dumps({"id": identity, "response": "no idea"}) for identity in held_out]
    (tmp_path / "wrong").write_text("\n".join(lines))
    sample = ("task=mathbench", "task.source=sample", "engine=simulated", "task.limit=2")
    line = complaint(*sample, "method=few_shot", "method.demonstrations=wrong", cwd=tmp_path)
    assert "method.demonstrations: expected 8 correct responses" in line
    assert "resume" not in line


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["method=best_of_n", "method.samples=150"], "budget of 12 calls per problem: 150 initial responses (method.s"),
        (["method=best_of_n"], None),
        (["method=duel_evolve"], "budget of 12 calls per problem: 12 initial responses (method.initial_candidates)"),
        (["method=best_of_n", "method.samples=11"], "11 initial responses"),
        (["method=best_of_n", "method.samples=10"], None),
        (["method=best_of_n", "method.rounds=0"], None),
    ],
)
def test_a_budget_that_leaves_no_duels_is_warned_of(tmp_path: Path, arguments: list[str], expected: str | None) -> None:
    sample = ("task.source=sample", "engine=simulated", "task.limit=2", "budget.calls=25", "hydra.run.dir=run")
    done = evorun_here(*sample, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    logged = [line for line in (tmp_path / "run" / "evorun.log").read_text().splitlines() if " WARNING " in line]
    # With Duel-Evolve, another one says that no generation comes either.
    of_duels = [[line for line in lines if "generation 0" not in line] for lines in (told, logged)]
    assert [len(lines) for lines in of_duels] == [expected is not None] * 2
    assert all(expected in line for lines in of_duels for line in lines if expected is not None)


def test_data_that_is_nowhere(tmp_path: Path) -> None:
    line = complaint("engine=simulated", cwd=tmp_path)
    assert "task.data=FOLDER" in line
    assert "task.source=sample" in line


def test_a_corrupt_record_names_file_and_line(tmp_path: Path) -> None:
    for stage in ("middle", "high", "college"):
        (tmp_path / "data" / stage).mkdir(parents=True)
        record = {"question": "?", "options": ["1", "2", "3", "4"], "answer": "A"}
        lines = [json.dumps({**record, "question": f"{stage} {i}?"}) for i in range(60)]
        lines[41] = '{"question": "cut sho'
        (tmp_path / "data" / stage / "single_choice_en.jsonl").write_text("\n".join(lines) + "\n")
    line = complaint("engine=simulated", "task.data=data", cwd=tmp_path)
    assert "middle/single_choice_en.jsonl" in line
    assert "42" in line


@pytest.mark.usefixtures("plugin")
def test_an_impossible_pair_says_what_is_missing(tmp_path: Path) -> None:
    line = complaint("task=riddle", "engine=simulated", cwd=tmp_path)
    needs = "generation prompts, evolution prompts and pairwise judging"
    assert f"method=duel_evolve needs {needs}, which task=riddle does not offer" in line
    assert line.endswith(f"tasks that do: {', '.join(sorted(registry.TASKS))}")


@pytest.mark.usefixtures("plugin")
def test_a_plugin_is_listed_with_what_it_lacks(tmp_path: Path) -> None:
    listed = evorun_here("list", cwd=tmp_path).stdout
    assert "a task that can only be parsed" in listed
    named = evorun_here("list", "riddle", cwd=tmp_path).stdout
    assert {"lines: int = 4 (Lines of a riddle)", "tongue: str | None = None"} <= {
        line.removeprefix("keys").strip() for line in named.splitlines()
    }
    assert "needs generation prompts, evolution prompts and pairwise judging" in " ".join(listed.split())


@pytest.mark.timeout(120)  # all the retries of a run that had begun would take longer
def test_an_unreachable_server(tmp_path: Path) -> None:
    server = ("engine=server", "engine.base_urls=[http://127.0.0.1:9/v1]", "model=api", "model.id=m")
    line = complaint("task.source=sample", *SMALL, *server, cwd=tmp_path)
    assert "http://127.0.0.1:9" in line
    assert "continue with: evorun resume" in line


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = complaint(*DRY_RUN, *SMALL, "hydra.run.dir=file/run", cwd=tmp_path)
    assert "hydra.run.dir=FOLDER" in line


LIMITED = """
import resource
from evorun.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
main()
"""


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    limit = 150_000
    script = tmp_path / "limited.py"
    script.write_text(LIMITED.format(limit=limit))
    larger = [*DRY_RUN, *SMALL[:1], "method.generations=10", *SMALL[2:]]  # its journal takes more than the limit
    line = complaint(*larger, "hydra.run.dir=run", cwd=tmp_path, program=str(script))
    assert "cannot write" in line
    run = tmp_path / "run"
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert "cannot write" in manifest["error"]
    assert evorun_here("resume", run, cwd=tmp_path).returncode == 0
    assert evorun_here(*larger, "hydra.run.dir=other", cwd=tmp_path).returncode == 0
    assert (run / "steps.jsonl").read_bytes() == (tmp_path / "other" / "steps.jsonl").read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.nightly  # needs root; the test above has a full disk
def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    line = complaint(*DRY_RUN, *SMALL, "task.limit=9", "hydra.run.dir=run", cwd=small_disk)
    assert "disk is full" in line or "No space left on device" in line
    assert json.loads((small_disk / "run" / "manifest.json").read_text())["status"] == "failed"
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    assert evorun_here("resume", "run", cwd=small_disk).returncode == 0


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = evorun(*DRY_RUN, "method.generations=-1", "evorun.debug=true", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ConfigError: method.generations" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["resume"],
            "expected: evorun resume RUN_DIR|SWEEP_DIR [--trust] [--redo-calls] [KEY=VALUE ...]; got: nothing",
        ),
        (["resume", "nowhere"], "nowhere is not a run directory"),
        (["report", "nowhere"], "expected a run directory, found none at nowhere"),
        (["report", "nowhere", "--problem"], "expected: evorun report RUN_DIR... [--problem=ID ...]"),
        (["grade", "task=5", "responses=x"], "task=5: unknown task"),
        (["grade", "task=mathbench", "task=mathbench", "responses=x"], "task: expected once, got it twice"),
        (["grade", "task=mathbench", "responses=x", "output=x"], "output: expected another file"),
        (
            ["grade", "task=mathbench", "responses=x", "seed=1"],
            "seed: does not decide which problems are drawn",
        ),
        (["grade", "task=mathbench", "task.source=sample", "responses=."], "expected a regular file"),
        (
            ["list", "everything"],
            "expected methods, tasks, models, engines, experiments, one of their names, or --json, got 'everything'",
        ),
        (["grade", "task=mathbench"], "expected: evorun grade task=TASK responses=FILE.jsonl"),
        (["grade", "task=mathbench", "task.source=sample", "responses=nowhere"], "cannot read responses=nowhere"),
    ],
)
def test_verbs_say_what_they_expect(tmp_path: Path, arguments: list[str], expected: str) -> None:
    assert expected in complaint(*arguments, cwd=tmp_path)


CHOICES = ("method", "duel_evolve", "mathbench", "gemma3_4b", "transformers", "slurm", "duel_evolve/figure2")
GROUPS = tuple(f"\n  {group} " for group in CHOSEN_GROUPS)


LIGHT = {
    "-sc query=bash": ("method=duel_evolve",),
    "--help": (*CHOICES, *GROUPS, "quickstart", "duel_evolve/simulated_study", "examples"),
}
SHOWN = {
    **LIGHT,
    "list": ("problem_only", "google/gemma-3-4b-it", "OpenAI-compatible", "which methods fit which tasks"),
    "doctor": ("GPU", "evorun[vllm]", "model=smollm2_135m", "bubblewrap", "SLURM", "data of task=mathbench"),
}
REFUSED = ("model=smollm2_135m", "engine=transformers", "method.generations=x")
HEAVY = ("aiohttp", "datasets", "matplotlib", "pandas", "torch", "transformers", "trl", "vllm")
IMPORTING = """
import sys
from evorun.cli import main
for line in sys.argv[1:]:
    print("RUN", line)
    try:
        main(line.split())
    except SystemExit as end:
        light = line in ("--help", "-sc query=bash")  # the others show all methods, of which some need these
        own = ("hydra", "numpy", "omegaconf", "scipy") if light else ()
        print("END", end.code, [name for name in (*{heavy}, *own) if name in sys.modules])
"""


@pytest.mark.parametrize("verbs", [LIGHT, pytest.param(SHOWN, marks=pytest.mark.nightly)], ids=["few", "all"])
def test_what_is_shown_or_refused_imports_nothing_heavy(verbs: dict[str, tuple[str, ...]], tmp_path: Path) -> None:
    program = [sys.executable, "-c", IMPORTING.format(heavy=HEAVY), *verbs, " ".join(REFUSED)]
    env = {**environment(), "COMP_LINE": "evorun method=du"}
    done = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    *shown, refused = done.stdout.split("RUN ")[1:]
    for said, (verb, words) in zip(shown, verbs.items(), strict=True):
        assert [word for word in words if word not in said] == [], verb
        assert said.endswith("END 0 []\n"), verb
    assert refused.endswith("END 1 []\n")
    assert "error: method.generations: expected int, got 'x'" in done.stderr


BLOCKING = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in ("rich", "omegaconf") and sys.argv[1] == "missing":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if package == "numpy" and sys.argv[1] == "broken":
            cause = ImportError("libblas.so: cannot open shared object file", name="numpy._core._multiarray_umath")
            raise ImportError("\\nIMPORTANT: PLEASE READ THIS\\n") from cause  # as the real one does
sys.meta_path.insert(0, Blocker())
from evorun.cli import main
main(["list"])
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(
            "missing", "cannot import rich: ModuleNotFoundError: No module named 'rich'", marks=pytest.mark.nightly
        ),
        ("broken", "cannot import numpy: ImportError: libblas.so: cannot open shared object file"),
    ],
)
def test_a_broken_installation_is_a_line_on_the_first_lost_package(tmp_path: Path, state: str, expected: str) -> None:
    program = [sys.executable, "-c", BLOCKING, state]
    done = subprocess.run(program, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.stderr == f"error: {expected}; install evorun again, with its packages (README, Install)\n"
    assert done.returncode == 1


@pytest.mark.nightly  # test_cli_sweeps.py has the names, and a repeated sweep
def test_a_sweep_gives_each_job_a_stable_folder(tmp_path: Path) -> None:
    sweep = ("-m", *DRY_RUN, "task.limit=1", "seed=0,1", "budget.calls_per_problem=8,20", "hydra.sweep.dir=sweep")
    done = evorun_here(*sweep, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = sorted(path.parent.name for path in (tmp_path / "sweep").glob("*/manifest.json"))
    assert len(runs) == 4
    names = {f"duel_evolve_mathbench_seed-{seed}_calls_per_problem-{calls}" for seed in (0, 1) for calls in (8, 20)}
    assert set(runs) == names
    assert not any("+" in name for name in runs)
    problems = {(tmp_path / "sweep" / name / "problems.jsonl").read_bytes() for name in runs}
    assert len(problems) == 1  # whatever the run's seed
    assert evorun_here(*sweep, cwd=tmp_path).returncode == 0
    assert sorted(path.parent.name for path in (tmp_path / "sweep").glob("*/manifest.json")) == runs


@pytest.mark.nightly  # test_sweep_jobs.py has such a job
def test_a_sweep_goes_on_after_a_job_that_failed(tmp_path: Path) -> None:
    done = evorun_here("-m", *DRY_RUN, *SMALL, "method.duels=-1,2", "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert done.returncode == 1
    assert "method.duels: expected a number >= 0, got -1" in done.stderr
    assert len(list((tmp_path / "sweep").glob("*/results.json"))) == 1


def test_grade(tmp_path: Path) -> None:
    assert evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=tmp_path).returncode == 0
    predictions = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    answered = [
        {"id": p["problem"], "response": f'{{"reasoning": "", "solution": "{p["answer"]}"}}'} for p in predictions
    ]
    responses = [*answered[:-1], {"id": predictions[-1]["problem"], "response": "I do not know."}]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(r) + "\n" for r in responses))
    sample = ("task=mathbench", "task.source=sample", "responses=r.jsonl")
    done = evorun_here("grade", *sample, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    graded = [json.loads(line) for line in (tmp_path / "r.graded.jsonl").read_text().splitlines()]
    assert [g["correct"] for g in graded] == [*(p["correct"] for p in predictions[:-1]), False]
    assert graded[-1]["answer"] is None
    assert graded[-1]["error"]
    assert "not MathBench" in done.stdout
    (tmp_path / "r.jsonl").write_text('{"id": "a", "response": "x"}\n{"id": 5}\n')
    assert "r.jsonl, line 2" in complaint("grade", *sample, "overwrite=true", cwd=tmp_path)


def test_a_budget_stops_every_problem_at_its_share(tmp_path: Path) -> None:
    done = evorun_here(*DRY_RUN, *SMALL, "budget.calls=40", "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    predictions = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    calls = [sum(role["calls"] for role in p["cost"].values()) for p in predictions]
    assert sum(calls) <= 40
    assert all(12 <= c <= 14 for c in calls)
    assert {p["stop"] for p in predictions} == {"budget"}


def test_another_judge_is_another_model(tmp_path: Path) -> None:
    judge = ("judge=qwen2_5_7b", "judge_engine=simulated", "judge_engine.judge_skill=1.0")
    done = evorun_here(*DRY_RUN, *SMALL, *judge, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    models = json.loads((tmp_path / "run" / "manifest.json").read_text())["models"]
    assert models["judge"] == {"name": "qwen2_5_7b", "id": "Qwen/Qwen2.5-7B-Instruct", "engine": "simulated"}
    assert models["policy"]["id"] != models["judge"]["id"]
