"""The checkpoints of a run that are kept."""

from pathlib import Path

from evorun.training.checkpoints import Checkpoints


def test_the_newest_stay_by_number_not_by_name(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for update in (8, 9, 10, 11):
        checkpoints.begin().mkdir()
        checkpoints.seal(update)
    assert checkpoints.saved_updates() == [10, 11]
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == ["update-10", "update-11"]
