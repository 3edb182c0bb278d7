"""The commands of README and docs/ that need no GPU, key or data set run, on small runs instead of a reader's own.

tests/test_commands.py composes those of runs and sweeps, at their full size, and tournaments.
"""

import json
import re
import shlex
import tempfile
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from building import composed
from evorun.runner.settings import check
from evorun_process import evorun_here
from prepared_runs import RUNS, prepare, write_responses
from test_commands import COMMANDS, VERBS, is_of_example, jobs, what_is_missing
from test_commands import RUNS as PRINTED_RUNS

ROOT = Path(__file__).parents[1]
PRINTED = [command for command, places in COMMANDS.items() if any(place.endswith(".md") for place in places)]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "generated" not in page.parts),
    *sorted(ROOT.glob("examples/*/README.md")),
]
SIMULATED_EXPERIMENTS = {
    file.relative_to(ROOT / "conf" / "experiment").with_suffix("").as_posix()
    for file in (ROOT / "conf" / "experiment").rglob("*.yaml")
    if "override /engine: simulated" in file.read_text()
}
EMBEDDED = re.compile(r"^experiment=(?:\w+/tiny|training/)")
"""Experiments with the embedded model, which takes minutes. Here it is simulated; training/ and test_laft_tiny.py have
small weights."""
NOT_RUN = {
    "names a file, a package or a server of the reader's": re.compile(
        r"FILE|FOLDER|TRACES|laft\.jsonl|HOST|PACKAGE|inspect_evals"
    ),
    "needs a server, or its key": re.compile(r"engine=(?:openai|server)|=tinker\b"),
    "needs a data set": re.compile(r"task\.source=hub|^(?!.*engine=simulated).*task=(?:aime|essay|hmmt|mathbench$)"),
    "needs a GPU": re.compile(r"engine=vllm|model=(?:gemma|gpt_oss|llama|mistral|qwen)"),
    "has the paper's own size, for a GPU": re.compile(r"^experiment=(?:laft|lyria|reasoning_gym)/(?!.*simulated)"),
    "has weights, which jobs share; test_shared_models.py shares small ones": re.compile(r"share_models=true"),
}
"""Why a printed run is composed only, and how that shows."""
SIMULATED = [
    command
    for command in PRINTED
    if command in PRINTED_RUNS
    and (
        re.search(r"engine=simulated|model=random", command)
        or EMBEDDED.search(command)
        or not SIMULATED_EXPERIMENTS.isdisjoint(re.findall(r"experiment=(\S+)", command))
    )
    and not re.search(r"FOLDER|FILE|TRACES", command)
]
SMALLER = ("task.limit=1", "budget.calls=100", "evorun.progress=off")
SIZES = re.compile(
    r"seed=|budget(?:\.calls\w*)?=|task\.(?:limit|instances|training_instances)="
    r"|method\.(?:steps|problems_per_step|eval_every|eval_samples|generations)=|hydra/launcher="
)
FEW_STEPS = ("method.steps=2", "method.problems_per_step=1", "method.eval_every=2", "method.eval_samples=1")
MANY_ARMS = re.compile(r"(?:espl|lyria|mpo)/simulated_study|rivals/")
"""Experiments of which only the arms outside `variants` run; test_commands.py composes those, at night."""


def smaller(command: str) -> str:
    """Return a printed run of one problem and few calls; of a sweep and of E-SPL with one seed, few steps and arms.

    Jobs run one after another in this process; test_sweep_jobs.py has launchers.
    """
    if not re.search(r"-m |experiment=|method=espl ", command):
        return shlex.join([*shlex.split(command), *SMALLER])
    words = [word for word in shlex.split(command) if not SIZES.match(word)]
    words += ["seed=0", "task.limit=1", "evorun.progress=off"]
    if re.search(r"experiment=(?:espl|mpo|training)/|method=espl ", command):
        words += FEW_STEPS
    elif "laft/tiny" not in command:
        words.append("budget=calls_50")
    if EMBEDDED.search(command):
        words = [*(word for word in words if not word.startswith("training.micro_batch=")), "engine=simulated"]
    if re.search(r"experiment=(?:lyria|laft)/", command):
        words.append("task.instances=1")
    if "experiment=laft/" in command:
        words.append("task.training_instances=2")
    if MANY_ARMS.search(command) and "variants=" not in command:
        words.append("hydra.sweeper.variants=[]")
    return shlex.join(words)


NEEDS_A_KEY = "judge_engine=openai"
ELSEWHERE = ("--help", "list", "doctor", "calibrate", "study", "view", "plan", "--config-dir")
"""Verbs that tests of their own run: test_listing.py, test_doctor.py, test_calibrate.py, test_stated_study.py, those of
viewer/, test_plan.py."""
NEEDS = {
    "GPU": re.compile(r"engine=vllm|^(?!.*\bengine=).*\bmodel=(?:gemma|gpt_oss|llama|mistral|qwen)"),
    "key": re.compile(r"engine=openai|=tinker\b|api_key_env="),
}
"""Needs of a command of a page's own blocks beside a clone and data, by how they show. A plan needs nothing."""
CHOOSES_DATA = re.compile(r"(?:experiment=|task=|task\.source=sample|task\.data=FILE)\S*|-m(?= )")
"""Of a command's words, what decides where the task's data come from; a folder has to be there."""
LOADED: dict[str, str | None] = {}
"""What data of tasks are missing, by configuration."""
OF_SWEEPS = "SWEEP_DIR"
"""Commands on a sweep that has been started; test_sweep_jobs.py and test_branching.py have them."""
OF_ADAPTERS = "format=model"
"""Commands on a run that trained an adapter; training/test_training_runs.py has them."""
OF_VERBS = [
    command
    for command in PRINTED
    if command.split()[0] in {*VERBS, "method=..."} - {*ELSEWHERE}
    and NEEDS_A_KEY not in command
    and OF_SWEEPS not in command
    and OF_ADAPTERS not in command
]
OWN_RUNS = {"transplant": "ESPL_RUN", "delete-one": "ESPL_RUN", "rescore": "MPO_RUN", "traces": "LYRIA_RUN"}
"""The run that a verb needs, where not any will do."""
SWEEP = "outputs/first_sweep"
MATCHES = '{"a": "one", "b": "two", "winner": "one"}\n{"a": "one", "b": "two", "winner": null}\n'
ROWS = '{"question": "?", "answer": "yes"}\n'
NUMBER = r"[\u2212+]?\d+(?:\.\d+)?"


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    prepare(folder, *RUNS)
    return folder


def fill_in(command: str, folder: Path) -> list[str]:
    """Return a printed command's words with the names of what is in a folder."""
    verb = command.split()[0]
    command = re.sub(r"outputs/\S+/\S*[*?]\S*", f"{SWEEP}/duels {SWEEP}/zero", command)  # a shell expands it
    command = re.sub(r"\[[^\]]*\]", "", command)
    command = re.sub(r"--against='[^']+'", "--against=duel_evolve", command)  # other sweeps' arms
    command = re.sub(r"\bscore=\w+", "score=accuracy", command)  # other tasks' scores
    command = command.replace("--export=FOLDER", f"--export={tempfile.mkdtemp(dir=folder)}")
    command = re.sub("outputs/(sweeps/TIME|control)", "RUN_DIR" if verb in OWN_RUNS else SWEEP, command)
    command = re.sub(r"(answers|matches_per_repetition)=\d+", r"\1=4", command)
    if "training." in command or "method.steps=" in command:
        command = command.replace("RUN_DIR", "ESPL_RUN")
    elif verb == "tournament":
        command = command.replace("RUN_DIR...", f"{SWEEP}/duels {SWEEP}/zero")
    command = command.replace("RUN_DIR...", "RUN_DIR").replace("RUN_DIR", OWN_RUNS.get(verb, "RUN_DIR"))
    command = re.sub(r"^extend (\S+) method.generations=\d+", r"extend \1 method.generations=2", command)
    command = re.sub(r"^extend (\S+) method.steps=\d+", r"extend \1 method.steps=3", command)
    command = command.replace("--at step=5", "--at step=1")
    if "engine=replay" in command:
        command = command.replace("method=... task=...", " ".join(RUNS["RUN_DIR"]))
    command = command.replace("method=... task=...", "method=zero_shot task=mathbench task.source=sample task.limit=2")
    (folder / "FILE.jsonl").write_text(MATCHES if "matches=" in command else ROWS)
    if "responses=" in command:
        (task,) = re.findall(r"task=(\w+)", command)
        responses = folder / f"responses_{task}.jsonl"
        if task == "rows":
            responses.write_text('{"id": "FILE/1", "response": "Answer: no"}\n')
        else:
            write_responses(responses, task)
        command = re.sub(r"responses=\S+", f"responses={responses.name}", command)
    words = shlex.split(command)
    # the embedded model answers in the printed command
    return [*words, "gold_engine=simulated"] if any(word.startswith("gold=") for word in words) else words


@pytest.mark.nightly  # each verb has tests of its own
@pytest.mark.parametrize("command", OF_VERBS)
def test_a_printed_verb_does_its_work(command: str, folder: Path) -> None:
    done = evorun_here(*fill_in(command, folder), cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly  # test_commands.py composes them
@pytest.mark.parametrize("command", sorted({smaller(command) for command in SIMULATED}))
def test_a_printed_run_on_a_simulated_model_runs(command: str, tmp_path: Path) -> None:
    if "reasoning_gym" in command:
        pytest.importorskip("reasoning_gym.factory")
    done = evorun_here(*shlex.split(command), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_printed_run_that_does_not_run_here_has_a_reason() -> None:
    left = [command for command in PRINTED if command in PRINTED_RUNS and command not in SIMULATED]
    assert [command for command in left if not any(shown.search(command) for shown in NOT_RUN.values())] == []
    for reason, shown in NOT_RUN.items():
        assert any(shown.search(command) for command in left), reason


@pytest.mark.nightly
def test_blocks_say_what_their_commands_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the block's first line, or behind the command."""
    monkeypatch.delenv("EVORUN_DATA", raising=False)
    runs = 0
    for page in PAGES:
        text = re.sub(r"\\\n\s+", " ", page.read_text())
        for block in re.findall(r"^    \S.*\n(?:^    .*\n)*", text, re.MULTILINE):
            first, *_ = block.splitlines()
            for line in re.findall(r"^    evorun (?!plan )(.*)$", block, re.MULTILINE):
                command, _, comment = line.partition(" #")
                said = comment + first * first.startswith("    # ")
                for need, shown in NEEDS.items():
                    assert need in said or not shown.search(command), (page.name, need, command)
                if " ".join(command.split()) in PRINTED_RUNS:
                    runs += 1
                    assert "data set" in said or not lacks_data(*CHOOSES_DATA.findall(command)), (page.name, command)
    assert runs > 100


@cache
def lacks_data(*chosen: str) -> bool:
    """Say whether the task that these words of a run, or of a sweep's first one, choose has its data elsewhere."""
    (job,) = jobs(list(chosen), with_variants=False)
    return "were not found: " in (what_is_missing(check(composed(*job)).task, LOADED) or "")


@pytest.mark.nightly  # by day these commands run small: test_a_printed_run_on_a_simulated_model_runs
def test_the_first_hour_prints_what_its_page_shows(tmp_path: Path) -> None:
    """From the first run to the exported figure, and what README shows; pages may leave columns out."""
    page = (ROOT / "docs" / "first_hour.md").read_text().partition("## A run without weights")[2]
    page = page.partition("## Stop it and go on")[0]
    commands = re.findall(r"^    evorun (.+)$", re.sub(r"\\\n\s+", " ", page), re.MULTILINE)
    assert len(commands) == 4
    printed = "".join(
        evorun_here(*shlex.split(command), cwd=tmp_path, drawn="--export" in command).stdout for command in commands
    )
    lines = [set(line.split()) for line in printed.splitlines()]
    blocks = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
    shown = blocks.findall(page + (ROOT / "README.md").read_text())
    assert len(shown) == 6
    for line in "\n".join(shown).splitlines():
        words = {word for word in line.split() if set(word) != {"─"}}
        assert "DATE_TIME" in line or any(words <= one for one in lines), line
    # what its prose and its picture say
    (start, *_) = (tmp_path / "outputs" / "duel_evolve").glob("*/*/metrics.jsonl")
    printed += f"{json.loads(start.read_text().splitlines()[0])['value']:.1%}".replace("%", " %")  # not in a table
    given = f"{printed} {re.sub(r'[0-9]+[.][0-9]+', lambda one: f'{float(one[0]):.0f}', printed)}"
    prose = blocks.sub("", page).replace("\n", " ").replace("percentage points", "pp")
    figures = re.findall(rf"{NUMBER} to {NUMBER}|{NUMBER} (?:%|pp)", prose)
    assert len(figures) > 10
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}", given)] == []
    pictures = (tmp_path / "figures" / "final-accuracy.png", ROOT / "docs" / "images" / "first_hour.png")
    drawn, kept = (np.asarray(Image.open(picture).convert("RGB"), dtype=float) for picture in pictures)
    assert np.abs(drawn - kept).mean() < 2  # levels of 256: a palette of 128 colours is 0.1 off, other colours are 9


def inline_and_indented(pattern: str) -> set[str]:
    """Return what a pattern's group finds in code of the pages."""
    code = (re.sub(r"\\\n\s+", " ", page.read_text()) for page in PAGES)
    return {found for text in code for found in re.findall(rf"(?:^    |`){pattern}", text, re.MULTILINE)}


def test_make_targets_that_pages_print_are_there() -> None:
    printed = inline_and_indented(r"make ([a-z-]+)")
    assert {"setup", "test", "docs"} <= printed
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert sorted(printed - targets) == []


def test_extras_that_pages_install_are_there() -> None:
    printed = inline_and_indented(r"pip install ['\"]?evorun\[([\w,]+)\]")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {one for group in printed for one in group.split(",")} <= set(extras)
    assert len(printed) > 3


def test_scripts_take_the_options_that_pages_print() -> None:
    printed = inline_and_indented(r"python (scripts/\w+\.py[^`\n]*)")
    assert len(printed) > 10
    for command in printed:
        script, *words = shlex.split(command, comments=True)
        text = (ROOT / script).read_text()
        assert [word for word in words if word.startswith("--") and f'"{word.split("=")[0]}"' not in text] == [], (
            command
        )


def test_what_no_other_test_of_commands_gives_is_an_examples() -> None:
    """Every command of a page is composed, run here, or of examples/, whose test gives it."""
    for command in PRINTED:
        if command not in (*PRINTED_RUNS, *OF_VERBS):
            assert (
                command.split()[0] in ELSEWHERE
                or is_of_example(command)
                or (command.startswith("tournament ") and NEEDS_A_KEY in command)
                or OF_SWEEPS in command
                or OF_ADAPTERS in command
            ), command
