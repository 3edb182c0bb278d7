"""Every file of conf/model is a valid model, under the name that the command line knows it by."""

from pathlib import Path

import pytest
from omegaconf import MISSING, OmegaConf

from evorun.models.config import ModelConfig

FILES = sorted((Path(__file__).parents[2] / "conf" / "model").glob("*.yaml"))
ID_GIVEN_BY_THE_USER = ("api", "local")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_a_model_of_its_own_name(file: Path) -> None:
    loaded = OmegaConf.merge(OmegaConf.structured(ModelConfig(name="", id=MISSING)), OmegaConf.load(file))
    assert OmegaConf.is_missing(loaded, "id") == (file.stem in ID_GIVEN_BY_THE_USER)
    if file.stem in ID_GIVEN_BY_THE_USER:
        loaded.id = "given"
    model = OmegaConf.to_object(loaded)
    assert isinstance(model, ModelConfig)
    assert model.name == file.stem
    assert model.description


def test_ids_are_told_apart() -> None:
    ids = [OmegaConf.load(file).id for file in FILES if file.stem not in ID_GIVEN_BY_THE_USER]
    assert len(set(ids)) == len(ids)
