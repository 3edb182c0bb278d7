"""A trained model computes with the weights of the version asked for, and afterwards with its newest again."""

from pathlib import Path

import pytest
import torch

from evorun.errors import TrainingError
from evorun.training.versions import Versions


class Adapted(torch.nn.Module):
    """One frozen weight, and one trained, as in a model with an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.peft_config = {"default": None}
        self.frozen = torch.nn.Parameter(torch.tensor([1.0]), requires_grad=False)
        self.trained = torch.nn.Parameter(torch.tensor([0.0]))

    def become(self, value: float) -> None:
        with torch.no_grad():
            self.trained.fill_(value)


def test_the_former_weights_serve_requests_of_the_update_before(tmp_path: Path) -> None:
    model, versions = Adapted(), Versions(0)
    for update in (1, 2, 3):  # after update n the weight is n
        versions.advance(model, update)
        model.become(update)
    versions.save(tmp_path)
    for kept in (versions, Versions.resumed(3, str(tmp_path))):
        for version, value in ((3, 3.0), (2, 2.0), (None, 3.0)):
            with kept.use(model, version):
                assert (model.trained.item(), model.frozen.item()) == (value, 1.0)
            assert model.trained.item() == 3.0
        for version in (1, 4):
            refused = pytest.raises(TrainingError, match=f"weights of update 3, got one for update {version}")
            with refused, kept.use(model, version):
                pass
        assert [kept.weights_kind(version) for version in (None, 3, 2)] == ["reference", "newest", "former"]
    with pytest.raises(TrainingError), Versions.resumed(3, None).use(model, 2):
        pass
