"""The examples, and the packages that `evorun new` writes, work as a third party would install and run them.

Each README's commands are carried out in a copy of its folder, and print what it shows.
"""

import contextlib
import glob
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest
import yaml
from dateutil.parser import parse as parse_date
from hydra.core.config_store import ConfigStore

from building import composed, task_config
from evorun.cli.compose import register
from evorun.cli.composed_jobs import compose_jobs
from evorun.cli.usage import EXIT_INTERRUPTED
from evorun.methods.duels.duels import warn_if_no_duels
from evorun.models.embedded import is_ready
from evorun.runner import registry
from evorun.runner.settings import check
from evorun.runs.budget import LIMITS
from evorun.runs.directory import load_manifest
from evorun.runs.journal_reader import read_journal
from evorun.testing import check_grader, check_method, check_reward, check_task
from evorun_process import environment, evorun, evorun_here
from tiny_llama import write_talking_llama

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
ELSEWHERE = ("ray_servers", "slurm_servers")
"""Examples whose commands need a cluster; test_ray_servers.py and test_slurm_servers.py carry out their scripts."""
LONGER = ("brief_reward", "own_advantages", "paper_table", "papers", "read_runs", "skypilot_job", "study")
"""Examples that train, sweep or start several interpreters; `.ci/run` gives their commands beside `make test`."""
ALIKE = ("complaints", "first_to_agree", "knockout", "nqueens", "price_list", "rows", "slurm_sweep")
"""Examples of which other tests run most: those here, or of rows, tools and sweeps."""
NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(3600)]  # four sweeps take minutes alone, far longer beside others
WRITTEN = {
    "my_words": ("task",),
    "my_letters": ("task", "kind=score"),
    "my_vote": ("method",),
    "my_duels": ("method", "kind=duels"),
    "my_prompts": ("method", "kind=dataset"),
    "my_price": ("reward",),
}
"""Packages that `evorun new` writes here, with its arguments beside the name."""
ROLES = {
    "zero_shot": {"generate"},
    "few_shot": {"generate", "demonstrate"},
    "self_consistency": {"generate"},
    "best_of_n": {"generate", "judge"},
    "feedback_descent": {"generate", "judge"},
    "duel_evolve": {"generate", "judge"},
    "lyria": {"generate", "crossover", "mutate", "fitness", "errors"},
    "gepa": {"evaluate", "reflect", "answer"},
    "first_to_agree": {"generate"},
    "knockout": {"generate", "judge"},
    "my_duels": {"generate", "judge"},
}
"""The calls that each method makes."""
BUDGET = 200
"""Calls for a problem."""


class Installed(NamedTuple):
    """Where the packages are."""

    work: Path
    """A copy of examples/, with the packages that `evorun new` wrote."""
    environment: dict[str, str]
    """Of processes that see the installed packages."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Install all packages, for this process and for those that it starts."""
    work, site = tmp_path_factory.mktemp("examples"), tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLES, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("outputs", "__pycache__"))
    for name, (kind, *options) in WRITTEN.items():
        done = evorun_here("new", kind, name, *options, cwd=work)
        assert done.returncode == 0, done.stderr
    packages = sorted(path.parent for path in work.glob("*/pyproject.toml"))
    for package in packages:
        install(package, site)
    register()  # evorun's own choices, which are stored once a process, outlive the plug-ins'
    modules, choices = set(sys.modules), deepcopy(ConfigStore.instance().repo)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        registry.plugins.cache_clear()
        seen = environment()
        yield Installed(work, {**seen, "PYTHONPATH": os.pathsep.join([str(site), seen["PYTHONPATH"]])})
    registry.plugins.cache_clear()
    ConfigStore.instance().repo = choices
    for name in {package.name for package in packages} & (set(sys.modules) - modules):
        del sys.modules[name]


def install(package: Path, site: Path) -> None:
    """Build a package as pip does, with the backend that it names, but in this process, and unpack its wheel."""
    backend = importlib.import_module(
        tomllib.loads((package / "pyproject.toml").read_text())["build-system"]["build-backend"]
    )
    with contextlib.chdir(package), ZipFile(package / backend.build_wheel(str(package))) as wheel:
        wheel.extractall(site)


class Ran(NamedTuple):
    """An example whose README's commands were carried out."""

    folder: Path
    printed: str

    @property
    def runs(self) -> dict[str, list[Path]]:
        """The run directories by method, in order."""
        found = defaultdict(list)
        for path in sorted(self.folder.glob("outputs/**/manifest.json")):
            found[json.loads(path.read_text())["method"]].append(path.parent)
        return found


@pytest.fixture(scope="module")
def ran(installed: Installed) -> Callable[[str], Ran]:
    """Return a function that carries out an example's commands once."""
    known: dict[str, Ran] = {}

    def carry_out(name: str) -> Ran:
        if name not in known:
            folder, printed = installed.work / name, ""
            for command in re.findall(r"^    (\w.*)$", (folder / "README.md").read_text(), re.MULTILINE):
                # The fixture has installed the packages; FOLDER stands for a benchmark's own files.
                if not command.startswith("pip ") and "FOLDER" not in command:
                    printed += output_of(command, folder, installed.environment)
            known[name] = Ran(folder, printed)
        return known[name]

    return carry_out


def output_of(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Return what one of a README's commands prints."""
    program, *words = shlex.split(command)
    paths = [path for word in words for path in sorted(glob.glob(word, root_dir=folder)) or [word]]
    if program == "evorun":
        done = evorun_here(*words, cwd=folder)
    elif program == "python":
        done = evorun(*paths[1:], program=str(folder / paths[0]), cwd=folder, env=environment, drawn=True)
    else:
        start = [sys.executable, "-m", program, *paths]
        done = subprocess.run(start, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def records(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=NIGHTLY if name in (*LONGER, *ALIKE) else []) for name in NAMES if name not in ELSEWHERE],
)
def test_a_readmes_commands_print_what_it_shows(name: str, ran: Callable[[str], Ran]) -> None:
    lines = iter([" ".join(line.split()) for line in ran(name).printed.splitlines()])
    (shown,) = re.findall(r"^```text\n(.*?)^```", (EXAMPLES / name / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    # in this order, with others between them; a table's last columns may be times, which differ
    expected = [" ".join(line.split()) for line in shown.splitlines() if line]
    assert [line for line in expected if not any(printed.startswith(line) for printed in lines)] == []


def test_the_list_of_examples_has_each() -> None:
    listed = re.findall(r"^\| \[(\w+)\]\(\1/README\.md\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == NAMES
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} - {"__pycache__"} == set(NAMES)


@pytest.mark.nightly
def test_tasks_pass_the_suite_of_tasks(installed: Installed) -> None:
    assert len((EXAMPLES / "nqueens" / "nqueens.py").read_text().splitlines()) <= 82
    for name in ("nqueens", "complaints", "price_list"):
        check_task(registry.task_config_class(name)())  # type: ignore[call-arg]  # a plug-in's has defaults


@pytest.mark.nightly  # by day methods of evorun pass it, and these run
def test_methods_pass_the_suite_of_methods(installed: Installed) -> None:
    import first_to_agree
    import knockout
    import nqueens

    config = first_to_agree.FirstToAgreeConfig(agreeing=2, samples=3)
    check_method(first_to_agree.FirstToAgree, config, nqueens.NQueensConfig(problems=1))
    # Its grades are the gold judge's opinions, for which no method pays.
    check_method(knockout.Knockout, knockout.KnockoutConfig(samples=3), registry.task_config_class("complaints")())  # type: ignore[call-arg]


def in_place(board: str, answer: str) -> float:
    """Return the share of rows whose queen stands where it may, by the lines that queens share."""
    lines = [{("column", c), ("rising", r + c), ("falling", r - c)} for r, c in enumerate(map(int, answer))]
    queens_on = Counter(line for own in lines for line in own)
    alone = [all(queens_on[line] == 1 for line in own) for own in lines]
    kept = [given in (".", column) for given, column in zip(board, answer, strict=True)]
    return sum(map(all, zip(alone, kept, strict=True))) / len(board)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "methods",
    [
        ("first_to_agree", "knockout", "my_duels"),
        pytest.param(tuple(ROLES), marks=pytest.mark.nightly),
    ],
    ids=["few", "all"],
)
def test_per_problem_methods_run_on_the_example_task(
    methods: tuple[str, ...], installed: Installed, tmp_path: Path
) -> None:
    size = ("task.problems=2", "budget=calls_300", f"budget.calls_per_problem={BUDGET}", "evorun.progress=off")
    model = ("engine=simulated", "engine.skill=0.05")
    sweep = (f"method={','.join(methods)}", "task=nqueens", *model, *size, "hydra.sweep.dir=sweep")
    done = evorun_here("-m", *sweep, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = {json.loads(path.read_text())["method"]: path.parent for path in tmp_path.glob("sweep/*/manifest.json")}
    assert set(runs) == set(methods)
    for method, run in runs.items():
        check_run(run, method)
    voting = {method for method, run in runs.items() if load_manifest(run).votes}
    assert voting == {"first_to_agree", "my_vote", "self_consistency"} & set(methods)
    check_votes(runs["first_to_agree"])
    for method in ("knockout", "my_duels"):  # what is left does not pay for a duel in both orders
        cost = json.loads((runs[method] / "results.json").read_text())["cost"]["total"]
        assert 2 * (BUDGET - 1) <= cost["calls"] <= 2 * BUDGET
    small = registry.method_class("my_duels")
    assert small(small.Config(samples=12)).warnings(13) == warn_if_no_duels(13, 12, "samples", 2) != []
    assert small(small.Config(samples=12)).warnings(14) == []
    vote = registry.method_class("my_vote")
    [line] = vote(vote.Config(samples=5)).warnings(4)
    assert line == "budget of 4 calls per problem: 5 responses do not fit; lower method.samples to 4"
    assert vote(vote.Config(samples=5)).warnings(5) == []


def check_run(run: Path, method: str) -> None:
    """Check what a run was asked and how its candidates were graded."""
    assert json.loads((run / "manifest.json").read_text())["status"] == "completed"
    cost = json.loads((run / "results.json").read_text())["cost"]
    assert set(cost) - {"total"} == ROLES[method], method
    answered = [one for one in records(run, "candidates") if one["answer"]]
    assert answered, method
    for one in answered:
        expected = in_place(one["problem"], one["answer"])  # a problem's id is its board
        assert (one["correct"], one["scores"]) == (expected == 1, {"queens_in_place": expected})


def check_votes(run: Path) -> None:
    """Check that `first_to_agree` drew until three agreed, its default, or fifteen times."""
    for prediction in records(run, "predictions"):
        drawn = [one["answer"] for one in records(run, "candidates") if one["problem"] == prediction["problem"]]
        votes = Counter(answer for answer in drawn if answer)
        assert votes[prediction["answer"]] == max(votes.values())
        assert max(votes.values()) == 3 or len(drawn) == 15
        assert prediction["stop"] == ("goal" if max(votes.values()) == 3 else "generations")
        assert Counter(answer for answer in drawn[:-1] if answer).most_common(1)[0][1] < 3


@pytest.mark.nightly
def test_a_knockout_leaves_whoever_lost_no_duel(ran: Callable[[str], Ran]) -> None:
    (run,) = ran("knockout").runs["knockout"]
    duels = records(run, "comparisons")
    for prediction in records(run, "predictions"):
        own = [duel for duel in duels if duel["problem"] == prediction["problem"]]
        beaten = [duel["first"] if duel["outcome"] == "second" else duel["second"] for duel in own]
        entered = {one["id"] for one in records(run, "candidates") if one["problem"] == prediction["problem"]}
        assert Counter(duel["step"] for duel in own) == {1: 4, 2: 2, 3: 1}  # of eight
        assert len(set(beaten)) == len(beaten)
        assert entered - set(beaten) == {prediction["candidate"]}
        for duel, loser in zip(own, beaten, strict=True):
            assert not any(loser in (later["first"], later["second"]) for later in own if later["step"] > duel["step"])


def test_a_grader_of_ones_own_compares_days(ran: Callable[[str], Ran]) -> None:
    folder, _ = ran("date_grader")
    run = folder / "outputs" / "dates"
    rows = [json.loads(line) for line in (folder / "dates.jsonl").read_text().splitlines()]
    right = {row["question"]: parse_date(row["answer"], dayfirst="." in row["answer"]) for row in rows}
    asked = {one["problem"]: one["data"]["question"] for one in records(run, "problems")}
    answered = [one for one in records(run, "candidates") if one["answer"] is not None]
    assert {one["correct"] for one in answered} == {True, False}
    for one in answered:
        day = parse_date(one["answer"], dayfirst="." in one["answer"])
        assert one["correct"] == (day == right[asked[one["problem"]]])
    plugins = json.loads((run / "manifest.json").read_text())["plugins"]
    assert {kind: one["package"] for kind, one in plugins.items()} == {"grader": "evorun-date-grader"}


@pytest.mark.nightly
def test_graders_pass_the_suite_of_graders(installed: Installed) -> None:
    from date_grader import Dates

    questions = ("When?", "When then?", "When at last?")
    rows = dict(zip(questions, ("1969-07-21", "9 November 1989", "July 15, 1799"), strict=True))
    check_grader(Dates, rows, wrong={"When?": ["1969-07-20", "21.07.1970"]})


@pytest.mark.nightly
def test_a_reward_of_ones_own_is_learned_from(ran: Callable[[str], Ran]) -> None:
    (run,) = ran("brief_reward").runs["grpo"]
    calls = [one for one in read_journal(run / "journal.sqlite") if one.usage is not None]
    said = {one.key: json.loads(one.result)["completions"][0]["text"] for one in calls}
    rollouts = records(run, "rollouts")
    assert {one["correct"] for one in rollouts} == {True, False}
    for one in rollouts:
        assert one["reward"] == pytest.approx(one["correct"] - 0.001 * len(said[one["call"]].split()))


@pytest.mark.nightly
def test_advantages_of_ones_own_are_learned_from(ran: Callable[[str], Ran]) -> None:
    (run,) = ran("own_advantages").runs["normalised"]
    groups = defaultdict(list)
    for one in records(run, "rollouts"):
        groups[one["step"], one["problem"]].append(one)
    assert len(groups) == 20 * 8
    for group in groups.values():
        rewards = [one["reward"] for one in group]
        spread = pstdev(rewards) + 1e-4
        expected = [(reward - fmean(rewards)) / spread for reward in rewards]
        assert [one["advantage"] for one in group] == pytest.approx(expected, abs=1e-9)
    guide = (EXAMPLES.parent / "docs" / "guides" / "write_a_method.md").read_text()
    (shown,) = re.findall(r"^```text\n.*?^```", (EXAMPLES / "own_advantages/README.md").read_text(), re.M | re.DOTALL)
    assert shown in guide


@pytest.mark.nightly
def test_rewards_pass_the_suite_of_rewards(installed: Installed) -> None:
    from brief_reward import BriefReward

    check_reward(BriefReward, task_config("arithmetic"), texts=["A long way round to 7."])
    check_reward(lambda: BriefReward(word_price=0.0), task_config("arithmetic"))


@pytest.mark.nightly
def test_a_tools_prices_add_up_to_the_right_answers(ran: Callable[[str], Ran]) -> None:
    folder, _ = ran("price_list")
    (run,) = folder.glob("outputs/prices")
    told = "".join(one.result.decode() for one in read_journal(run / "journal.sqlite") if "tools" in one.key)
    prices = {name: int(price) for name, price in re.findall(r'"content":"(\w+): (\d+)"', told)}
    baskets = {one["problem"]: one["data"]["basket"] for one in records(run, "problems")}
    for one in records(run, "candidates"):
        total = sum(count * prices[name] for name, count in baskets[one["problem"]].items())
        assert one["correct"] == (one["answer"] == str(total))


@pytest.mark.nightly
def test_an_opinion_is_a_score_without_right_and_wrong(ran: Callable[[str], Ran]) -> None:
    runs = ran("complaints").runs
    for method in ("best_of_n", "grpo"):
        for one in records(runs[method][0], "predictions"):
            assert one["correct"] is None
            assert one["scores"]["rubric"] * 6 == pytest.approx(round(one["scores"]["rubric"] * 6, 1))


@pytest.mark.nightly  # test_python_load.py reads runs
def test_a_run_is_read_with_the_ancestors_of_its_answers(ran: Callable[[str], Ran]) -> None:
    folder, printed = ran("read_runs")
    (run,) = folder.glob("outputs/two/duel_evolve_*")
    curve, *problems = printed[printed.index("duel_evolve on mathbench: ") :].strip().split("\n\n")
    predictions = records(run, "predictions")
    final = sum(one["correct"] for one in predictions) / len(predictions)
    assert curve.splitlines()[-1].split()[1] == f"{final:.3f}"
    parents = {(one["problem"], one["id"]): one["parents"] for one in records(run, "candidates")}
    for prediction, lines in zip(predictions, problems, strict=True):
        ancestors, open_ = set[str](), [prediction["candidate"]]
        while open_:
            ancestors.add(name := open_.pop())
            open_ += set(parents[prediction["problem"], name]) - ancestors
        title, *listed = lines.splitlines()
        assert title.startswith(f"{prediction['problem']}: accuracy ")
        assert sorted(line.split()[0] for line in listed) == sorted(ancestors)
        assert all(re.search(r", asked in [1-9]\d+ characters$", line) for line in listed)


@pytest.mark.nightly  # of the same example
def test_a_figure_is_drawn_of_runs(ran: Callable[[str], Ran]) -> None:
    from matplotlib.image import imread

    picture = imread(ran("read_runs").folder / "curves.png")
    assert len({tuple(pixel) for pixel in picture.reshape(-1, picture.shape[-1])}) > 20  # curves and shades


def test_a_launcher_of_ones_own_is_evoruns_for_slurm(installed: Installed) -> None:
    arguments = ("--config-dir", "conf", "experiment=equal_cost", "hydra/launcher=my_cluster")
    shown = evorun_here(*arguments, "--cfg", "hydra", cwd=installed.work / "slurm_sweep").stdout
    launcher = shown[shown.index("  launcher:\n") :]
    for line in ("SlurmLauncher", "partition: gpu", "timeout_min: 240", "max_requeues: 20", "array_parallelism: 5"):
        assert line in launcher
    if shutil.which("sbatch") is None:
        refused = evorun_here(*arguments, cwd=installed.work / "slurm_sweep")
        assert "expected a machine that submits SLURM jobs" in refused.stderr


OF_A_JOB = {"name", "workdir", "num_nodes", "resources", "envs", "secrets", "volumes", "file_mounts", "setup", "run"}
OF_RESOURCES = {"infra", "accelerators", "cpus", "memory", "use_spot", "disk_size", "any_of", "ordered", "job_recovery"}
OF_RECOVERY = {"strategy", "max_restarts_on_errors", "recover_on_exit_codes"}
OF_A_VOLUME = {"name", "type", "infra", "size", "use_existing"}
"""Keys of SkyPilot's YAML by its reference (docs.skypilot.co: SkyPilot YAML, Volumes), as far as a run may use them."""


def test_the_job_of_skypilot_is_a_run_that_goes_on() -> None:
    job, volume = (
        yaml.safe_load((EXAMPLES / "skypilot_job" / f"{name}.yaml").read_text()) for name in ("job", "volume")
    )
    assert job.keys() <= OF_A_JOB
    assert job["resources"].keys() <= OF_RESOURCES
    assert job["resources"]["job_recovery"].keys() <= OF_RECOVERY
    assert job["resources"]["job_recovery"]["recover_on_exit_codes"] == [EXIT_INTERRUPTED]
    assert volume.keys() <= OF_A_VOLUME
    [(mounted, name)] = job["volumes"].items()
    assert name == volume["name"]
    [command] = [line for line in job["run"].splitlines() if line.startswith("evorun ")]
    words = shlex.split(command)[1:]
    [run] = [word.removeprefix("hydra.run.dir=") for word in words if word.startswith("hydra.run.dir=")]
    assert all(Path(path).is_relative_to(mounted) for path in (run, job["envs"]["XDG_STATE_HOME"]))
    assert check(composed(*words)).task.load().problems


@pytest.mark.nightly
def test_the_papers_notebooks_draw_what_their_runs_recorded(ran: Callable[[str], Ran]) -> None:
    folder = ran("papers").folder
    for notebook in sorted(folder.glob("*.ipynb")):
        cells = json.loads(notebook.read_text())["cells"]
        assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
        drawn = ElementTree.parse(folder / f"{notebook.stem}.svg").getroot()
        legend = {"".join(text.itertext()).strip() for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
        methods = {
            json.loads(path.read_text())["method"] for path in folder.glob(f"outputs/{notebook.stem}/*/manifest.json")
        }
        assert len(methods) > 1
        # A method with another name in the paper stands behind it.
        assert methods <= {re.sub(r"^.*\((\w+)\)$", r"\1", text) for text in legend}


@pytest.mark.nightly  # test_python_compare.py compares runs
def test_a_notebooks_table_has_the_means_of_its_runs(ran: Callable[[str], Ran]) -> None:
    example = ran("paper_table")
    cells = json.loads((EXAMPLES / "paper_table" / "paper_table.ipynb").read_text())["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
    table = (example.folder / "table.tex").read_text().replace("\\_", "_")
    assert len(example.runs) == 2
    for method, runs in example.runs.items():
        predictions = [one for run in runs for one in records(run, "predictions")]
        calls = fmean(sum(spent["calls"] for spent in one["cost"].values()) for one in predictions)
        by_stratum = defaultdict(list)
        for one in predictions:
            by_stratum[one["stratum"]].append(100 * one["correct"])
        expected = [*map(fmean, (by_stratum[name] for name in ("college", "high", "middle")))]
        expected.append(fmean(100 * one["correct"] for one in predictions))
        row = re.search(rf"^{method} & (.*) & \[(.*), (.*)\] & (.*) \\\\$", table, re.MULTILINE)
        assert row
        assert row[1].split(" & ") == [f"{share:.1f}" for share in expected]
        assert float(row[2]) < expected[-1] < float(row[3])
        assert row[4] == f"{calls:.1f}"


@pytest.mark.nightly
def test_written_packages_pass_their_own_tests(installed: Installed) -> None:
    folder, *others = (installed.work / name for name in WRITTEN)
    tests = [folder / f"test_{folder.name}.py", *(other / f"test_{other.name}.py" for other in others)]
    # Of plug-ins that the forked process has imported already, pytest would warn.
    arguments = ("-q", "-p", "no:cacheprovider", "--disable-plugin-autoload", *tests)
    done = evorun(
        *arguments, program=str(Path(pytest.__file__).with_name("__main__.py")), cwd=folder, env=installed.environment
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"^13 passed", done.stdout, re.MULTILINE)
    assert "warning" not in (done.stdout + done.stderr).lower()


@pytest.mark.nightly  # their own tests run by day
def test_written_packages_run_together(installed: Installed, tmp_path: Path) -> None:
    words = ["method=my_vote", "task=my_words", "engine=simulated", "task.problems=3"]
    done = evorun(*words, "hydra.run.dir=run", cwd=tmp_path, env=installed.environment)
    assert done.returncode == 0, done.stderr
    for one in records(tmp_path / "run", "candidates"):
        assert one["correct"] == (one["answer"] == one["problem"][::-1])  # a problem's id is its word
    assert records(tmp_path / "run", "predictions")


def commands_of(package: Path) -> list[list[str]]:
    """Return the words of each of evorun's commands in a README, without `evorun`."""
    readme = (package / "README.md").read_text()
    return [shlex.split(command) for command in re.findall(r"^    evorun (.*)$", readme, re.MULTILINE)]


@pytest.mark.parametrize("name", ["my_duels", pytest.param("my_letters", marks=pytest.mark.nightly)])
def test_the_sweeps_of_a_written_package_compose(name: str, installed: Installed) -> None:
    with contextlib.chdir(installed.work / name):
        first, *_, last = [words for words in commands_of(Path()) if words[0] == "--config-dir"]
        budgets = [compose_jobs([*words, "seed=0", "method=duel_evolve"])[0]["budget"] for words in (first, last)]
    limits = [{key: limit for key, limit in budget.items() if key in LIMITS and limit} for budget in budgets]
    assert limits == [{"calls_per_problem": 300}, {"tokens_per_problem": 100_000}]


@pytest.mark.nightly  # by day they are composed
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WRITTEN)
def test_the_commands_of_a_written_package_run(name: str, installed: Installed) -> None:
    folder, size = installed.work / name, ("task.problems=2",) if "task" in WRITTEN[name] else ("task.limit=2",)
    for words in commands_of(folder):
        done = evorun_here(*words, *(() if words[0] == "report" else size), cwd=folder)
        assert done.returncode == 0, done.stderr
    if WRITTEN[name] == ("reward",):
        return
    runs = {"my_words": 30, "my_letters": 30, "my_prompts": 15}.get(name, 20)  # methods x seeds; twice with a task
    assert len(list(folder.glob("outputs/equal_calls/*/results.json"))) == runs
    assert len(list(folder.glob("outputs/equal_tokens/*/results.json"))) == runs
    for run in folder.glob("outputs/equal_calls/duel_evolve_*"):
        assert max(one["step"] for one in records(run, "steps")) == 4


def test_written_packages_are_in_style(installed: Installed) -> None:
    folders = [installed.work / name for name in WRITTEN]
    assert {(folder / ".gitignore").read_text().splitlines()[0] for folder in folders} == {"outputs/"}
    ruff = (sys.executable, "-m", "ruff")
    rules = ("--isolated", "--no-cache", "--line-length=120")
    # not the order of imports: in a checkout evorun is no third party's package
    for command in (("check", "--select=E,F,W,B,UP,RUF"), ("format", "--check")):
        done = subprocess.run([*ruff, *command, *rules, *folders], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.embedded
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(not is_ready(), reason="no embedded model")
def test_the_example_task_runs_on_an_engine_with_weights(tmp_path: Path, installed: Installed) -> None:
    weights = write_talking_llama(tmp_path / "weights")
    model = ("model=local", f"model.id={weights}", "model.context_length=8192")
    engine = ("engine=transformers", "engine.device=cpu", "evorun.progress=off")
    size = ("task.size=4", "task.given=1", "task.problems=1", "task.held_out=1", "task.reasoning_chars=20")
    sampling = ("task.sampling.max_tokens=200", "task.sampling.judge_max_tokens=12")
    method = ("method=duel_evolve", "method.generations=1", "method.initial_candidates=2", "method.children=1")
    few = ("method.parents=1", "method.duels=1", "hydra.run.dir=duel_evolve")
    arguments = ("task=nqueens", *method, *few, *model, *engine, *size, *sampling)
    done = evorun(*arguments, cwd=tmp_path, env=installed.environment)
    assert done.returncode == 0, done.stderr
    check_run(tmp_path / "duel_evolve", "duel_evolve")
    assert [one["operator"] for one in records(tmp_path / "duel_evolve", "candidates")] == ["init", "init", "evolve"]
