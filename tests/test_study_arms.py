"""The simulated studies of E-SPL and MPO: their arms, the random numbers of each, and the rows of the docs."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser

from evorun.cli.compose import register, yaml_values
from evorun.cli.groups import config_folder
from evorun.cli.sweeper import jobs_of_sweep, make_overrides

ROOT = Path(__file__).parents[1]


def read_arms(study: str) -> list[list[str]]:
    """Return the overrides of each arm of a study."""
    sweeper: Any = yaml_values("experiment", study)["hydra"]["sweeper"]
    parser = OverridesParser.create()
    return jobs_of_sweep(parser.parse_overrides(make_overrides(sweeper["params"])), sweeper["variants"], parser)


@pytest.mark.sample(1)
@pytest.mark.parametrize("study", ["espl/simulated_study", "mpo/simulated_study"])
def test_each_arm_has_random_numbers_of_its_own_whatever_the_seed(study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register()

    def find_stream(*words: str) -> str:
        overrides = [f"experiment={study}", "hydra.mode=RUN", *words]
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            config = compose("config", overrides, return_hydra_config=True)
        monkeypatch.setattr(HydraConfig.instance(), "cfg", config)
        stream: str = config.engine.stream
        return stream

    first, *_, last = read_arms(study)
    given = "++engine.stream=${arm:}"  # as on a command line
    streams = [find_stream(*arm, *words) for arm in (first, last) for words in (["++seed=0"], ["++seed=7", given])]
    assert streams[0] == streams[1] != streams[2] == streams[3]
    assert all(streams)


def read_rows(doc: str) -> list[str]:
    """Return the names of the arms in the tables of a page of the docs, without their budget."""
    rows = re.findall(r"^\| `(method=[^`]+)` \|", (ROOT / "docs" / doc).read_text(), re.MULTILINE)
    return [re.sub(r" budget=\w+", "", row) for row in rows]


@pytest.mark.parametrize(("study", "page"), [("espl", "espl_study.md"), ("mpo", "mpo_study.md")])
def test_docs_have_a_row_for_every_arm_and_no_other(study: str, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    name_arm = importlib.import_module("study_tables").name_arm
    assert sorted(read_rows(page)) == sorted(name_arm(arm) for arm in read_arms(f"{study}/simulated_study"))


def test_each_row_of_duel_evolves_page_is_an_arm_of_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    name_arm = importlib.import_module("study_tables").name_arm
    rows = set(read_rows("duel_evolve_study.md"))  # the page says which arms it leaves out
    assert rows
    assert rows <= {name_arm(arm) for arm in read_arms("duel_evolve/simulated_study")}


def test_an_arm_is_named_without_hydras_backslashes_or_the_stream_that_its_other_settings_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    name_arm = importlib.import_module("study_tables").name_arm
    recorded = ["++method.rubric=FOLDER/my\\=one.md", "method=ppo", r"++engine.stream=$\{arm\:\}", "seed=3"]
    assert name_arm(recorded) == "method=ppo method.rubric=FOLDER/my=one.md"
