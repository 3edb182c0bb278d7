"""Folders of the cache: there when they are complete, the first one's where several make them."""

import os
from pathlib import Path

import pytest

from evorun.models.cache import cache_folder, fill_atomically


def test_a_folder_is_there_when_it_is_complete(tmp_path: Path) -> None:
    folder = tmp_path / "kind" / "thing"
    before = os.umask(0o027)
    try:
        with fill_atomically(folder) as unfinished:
            (unfinished / "file").write_text("x")
            assert not folder.exists()
    finally:
        os.umask(before)
    assert (folder / "file").read_text() == "x"
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, folder / "file")] == ["0o750", "0o640"]
    assert list(folder.parent.iterdir()) == [folder]


def test_nothing_is_left_of_one_that_was_broken_off(tmp_path: Path) -> None:
    def break_off() -> None:
        with fill_atomically(tmp_path / "thing") as unfinished:
            (unfinished / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert list(tmp_path.iterdir()) == []


def test_what_another_process_has_put_there_stays(tmp_path: Path) -> None:
    with fill_atomically(tmp_path / "thing") as unfinished:
        (unfinished / "file").write_text("late")
        with fill_atomically(tmp_path / "thing") as other:
            (other / "file").write_text("first")
    assert (tmp_path / "thing" / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_the_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVORUN_CACHE", str(tmp_path))
    assert cache_folder("search") == tmp_path / "search"
    monkeypatch.delenv("EVORUN_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder("search") == tmp_path / ".cache" / "evorun" / "search"
