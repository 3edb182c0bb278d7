"""Every command that the README, docs/ and the headers under conf/ print can be given as it stands.

A run is composed and checked; of a sweep its first job, and, nightly and where an experiment's header prints it, one
job for each choice of its variants. Then the data are looked for: what is missing is data, named in the line. Weights
and servers are looked for when a run starts.
"""

import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from building import composed
from evorun.cli.compose import register
from evorun.cli.groups import config_folder
from evorun.cli.overrides import words
from evorun.cli.sweep_keys import drop_inapplicable_keys
from evorun.cli.sweeper import make_overrides, values_by_key
from evorun.cli.tournament import _composed, _sorted
from evorun.cli.usage import USAGES
from evorun.errors import ConfigError, DataError, ToolError
from evorun.models.server.engine import ServerConfig
from evorun.models.vllm.engine import VllmConfig
from evorun.runner.settings import check

ROOT = Path(__file__).parents[1]
TEXTS = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "generated" not in page.parts),
    *sorted((ROOT / "conf").rglob("*.yaml")),
]
VERBS = {*USAGES, "list", "doctor", "--help"}
KEYS = {"evorun.rewards": "method.reward_source", "evorun.graders": "task.grader"}
"""Keys that choose a plug-in, where they are not named as its group."""
OF_EXAMPLES = {
    f"{KEYS.get(group, group.removeprefix('evorun.').removesuffix('s'))}={name}"
    for file in sorted((ROOT / "examples").glob("*/pyproject.toml"))
    for group, points in tomllib.loads(file.read_text())["project"]["entry-points"].items()
    for name in points
}
"""The choices of plug-ins in examples/, whose own test gives their commands."""


def is_of_example(command: str) -> bool:
    """Say whether a command chooses a plug-in of examples/."""
    return not OF_EXAMPLES.isdisjoint(command.split())


def printed_commands(text: str) -> Iterator[str]:
    """Yield the arguments of each command in a text, without what explains it.

    A command is indented, in a comment's header too. A run's may also be in backquotes, or end a comment's line.
    """
    joined = re.sub(r"\\\n#?\s+", "", text)
    for line in re.findall(r"^(?:#   |    )(?:[A-Z_]+=\S+ )?evorun (.+)$", joined, re.MULTILINE):
        yield re.split(r"\s+#|\s{4,}", line.strip())[0]
    run = r"evorun ((?:-m )?[a-z_/]+="
    inline = re.findall(rf"`{run}[^`{{}}]+)`", joined) + re.findall(rf"^#.*: {run}.+)$", joined, re.MULTILINE)
    yield from (" ".join(command.split()) for command in inline)


def small_commands(text: str) -> Iterator[str]:
    """Yield what each row of a page's table makes of its small command: its words replace those of the same keys."""
    rows = re.findall(r"^\| [^|]+ \| `(experiment=[^`]+)` \|", text, re.MULTILINE)
    for row in rows:
        small = next(
            command for command in printed_commands(text) if re.match("experiment=.* engine=simulated", command)
        )
        given = {word.partition("=")[0]: word for word in (*shlex.split(small), *row.split())}
        yield shlex.join(given.values())


COMMANDS: dict[str, list[str]] = {}
for _file in TEXTS:
    for _command in (*printed_commands(_file.read_text()), *small_commands(_file.read_text())):
        COMMANDS.setdefault(_command, []).append(_file.relative_to(ROOT).as_posix())
RUNS = [
    command
    for command in COMMANDS
    if command.split()[0] not in VERBS and not is_of_example(command) and "=..." not in command
]
TOURNAMENTS = [command for command in COMMANDS if command.startswith("tournament ")]


def jobs(arguments: list[str], *, with_variants: bool) -> list[list[str]]:
    """Return the overrides of the run, or of a sweep's first job and of one for each choice of its variants."""
    arguments = [argument for argument in arguments if not argument.startswith("--max-price=")]
    given = [word for argument in arguments if argument != "-m" for word in words(argument)]
    if not any(word == "-m" or word.startswith("experiment=") for word in arguments):
        return [given]
    parser = OverridesParser.create()
    hydra = hydra_of(*(word for word in given if word.startswith(("experiment=", "hydra"))))
    if "-m" not in arguments and hydra.mode is None:
        return [given]
    sweep: Any = OmegaConf.to_container(OmegaConf.create(hydra.sweeper))
    base = values_by_key(parser.parse_overrides([*make_overrides(sweep.get("params") or {}), *given]))
    # Composing takes a while: of the variants those that choose something, once for each choice, and no floors.
    chosen = {
        repr({key: values for key, values in variant.items() if "." not in key}): variant
        for variant in (
            values_by_key(parser.parse_overrides(make_overrides(one))) for one in sweep.get("variants") or ()
        )
        if set(variant) != {"model"}
    }
    variants = [{}, *(chosen.values() if with_variants else ())]
    products = [list(map(list, itertools.product(*{**base, **variant}.values()))) for variant in variants]
    return [drop_inapplicable_keys(product)[0] for product in products]  # only some of its jobs may have a key


@cache
def hydra_of(*choices: str) -> Any:
    """Return Hydra's own settings, which an experiment and those of Hydra decide."""
    register()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", overrides=list(choices), return_hydra_config=True).hydra


def test_commands_are_found_in_texts() -> None:
    header = "# A.\n#   evorun method=a \\\n#     b=c   \n#   evorun f=g    h\n"
    page = "    KEY=x evorun -m d=1,2   # e\nevorun no=1\n"
    assert list(printed_commands(header + page)) == ["method=a b=c", "f=g", "-m d=1,2"]
    prose = "So `evorun h=1\nk=2`, `evorun resume RUN_DIR` and\n# One alone: evorun -m l=3\n# evorun m=4\n"
    assert list(printed_commands(prose)) == ["h=1 k=2", "-m l=3"]
    table = (
        "    evorun experiment=n engine=simulated 'o=${p:}' q=1,2\n\n| A | `experiment=r q=3` | 4 |\n| B | `s=5` |\n"
    )
    assert list(small_commands(table)) == ["experiment=r engine=simulated 'o=${p:}' q=3"]
    assert len(RUNS) > 60
    assert len(TOURNAMENTS) > 5


def test_every_experiment_prints_its_command() -> None:
    for file in sorted((ROOT / "conf" / "experiment").rglob("*.yaml")):
        name = file.relative_to(ROOT / "conf" / "experiment").with_suffix("").as_posix()
        if name != "quickstart":  # `make run`
            assert any(f"experiment={name}" in command for command in printed_commands(file.read_text())), name


def test_scripts_that_texts_name_are_there() -> None:
    named = {name for file in TEXTS for name in re.findall(r"\bscripts/[\w/]+\.(?:py|sh)", file.read_text())}
    # Those of MPO's released code, which conf/ cites, are in its own folders.
    own = {name for name in named if "mpo_experiments" not in name and not name.endswith("scripts/mpo.py")}
    assert len(own) > 10
    assert [name for name in sorted(own) if not (ROOT / name).is_file()] == []


@pytest.mark.sample(8)
@pytest.mark.parametrize("command", RUNS)
def test_a_printed_run_lacks_nothing_but_data_and_weights(
    command: str, loaded: dict[str, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = jobs(words_of(command, tmp_path), with_variants=False)
    lacks_nothing_else(job, loaded, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize("command", [one for one in RUNS if any(place.startswith("conf/") for place in COMMANDS[one])])
def test_nor_do_the_variants_of_a_printed_sweep(
    command: str, loaded: dict[str, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in jobs(words_of(command, tmp_path), with_variants=True)[1:]:
        lacks_nothing_else(job, loaded, monkeypatch)


def words_of(command: str, folder: Path) -> list[str]:
    return [word.replace("FOLDER", str(folder)) for word in shlex.split(command) if word != "..."]


def lacks_nothing_else(job: list[str], loaded: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", _offline)
    config = check(composed(*job))
    for served in (config, *config.others.values()):
        assert not served.model.api or isinstance(served.engine, ServerConfig), (job, served.model.name)
    if config.training is not None and isinstance(config.engine, VllmConfig):
        # Of most models vLLM takes no adapter there (`require_served_targets`, which needs the model's own files).
        assert "lm_head" not in config.training.target_modules, job
    missing = what_is_missing(config.task, loaded)
    # the line names the files, the data set, the server or the package
    named = r"were not found: |cannot fetch the data set '.+/.+'|expected .*\.(jsonl|parquet)"
    named += r"|does not answer|pip install 'evorun\["
    assert missing is None or re.search(named, missing)


@pytest.fixture(scope="module")
def loaded() -> dict[str, str | None]:
    """Return what data of tasks were missing, by configuration: many commands are of the same task."""
    return {}


def what_is_missing(task: Any, loaded: dict[str, str | None]) -> str | None:
    """Return the error of a task whose data are not here; None of one that loads."""
    if repr(task) not in loaded:
        try:
            task.load()
            loaded[repr(task)] = None
        except (DataError, ConfigError, ToolError) as error:
            loaded[repr(task)] = str(error)
    return loaded[repr(task)]


def _offline(name: str, **options: Any) -> str:
    raise OSError("offline")


@pytest.mark.parametrize("command", TOURNAMENTS)
def test_a_printed_tournament_has_a_judge_that_can_be_served(command: str) -> None:
    arguments = _sorted(shlex.split(command)[1:])
    if "matches" not in arguments.own:
        asked = _composed(arguments.overrides)
        assert not asked["judge"].get("api") or asked["judge_engine"]["name"] == "server"


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.split()[0] not in VERBS and one not in RUNS])
def test_what_is_not_tried_here_is_an_example(command: str) -> None:
    assert is_of_example(command) or "method=... task=..." in command
