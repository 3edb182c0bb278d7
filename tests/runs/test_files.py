"""Files written into a folder stay in it, whoever filled the folder."""

import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from evorun.errors import RunDirectoryError
from evorun.runs.files import open_lock, reject_links, replace_atomically


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def cut_short() -> None:
        with replace_atomically(path) as file:
            file.write(b"half of the n")
            assert path.read_text() == "old"
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - any
        cut_short()
    assert path.read_text() == "old"
    with replace_atomically(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_replaced_and_its_target_kept(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("precious")
    (tmp_path / "file").symlink_to(tmp_path / "outside")
    with replace_atomically(tmp_path / "file") as file:
        file.write(b"new")
    assert (tmp_path / "outside").read_text() == "precious"
    assert not (tmp_path / "file").is_symlink()


def test_modes_are_those_that_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with replace_atomically(tmp_path / "file"):
            pass
        os.close(open_lock(tmp_path / ".lock"))
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {"file": 0o640, ".lock": 0o640}


def test_a_lock_is_no_link(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic links"):
        open_lock(tmp_path / ".lock")
    assert not (tmp_path / "outside").exists()


def hot_journal(path: Path, victim: Path) -> None:
    """Write a rollback journal by which SQLite, when it next opens the database for writing, deletes `victim`."""
    database = sqlite3.connect(path)
    with database:
        database.execute("CREATE TABLE effects (key TEXT)")
    database.close()
    name, magic = os.fsencode(victim), bytes.fromhex("d9d505f920a163d7")
    header = magic + struct.pack(">5I", 0, 1234, path.stat().st_size // 4096, 512, 4096)
    trailer = struct.pack(">I", 2**30 // 4096 + 1) + name + struct.pack(">2I", len(name), sum(name)) + magic
    path.with_name(f"{path.name}-journal").write_bytes(header.ljust(512, b"\0") + trailer)


def linked(folder: Path) -> None:
    (folder / "artifacts" / "adapter").mkdir(parents=True)
    (folder / "artifacts" / "adapter" / "adapter_model.safetensors").symlink_to("/dev/null")


WAYS_OUT: dict[str, Callable[[Path], None]] = {
    "a file": lambda folder: (folder / "evorun.log").symlink_to("/etc/motd"),
    "a folder": lambda folder: (folder / "checkpoints").symlink_to("/tmp"),
    "nowhere": lambda folder: (folder / "steps.jsonl").symlink_to("absent"),
    "deep inside": linked,
    "a pipe": lambda folder: os.mkfifo(folder / "trainer.log"),
    "another file's name": lambda folder: hot_journal(folder / "journal.sqlite", folder.parent / "victim"),
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_folder_with_a_way_out_is_refused(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "journal.sqlite-journal").write_bytes(b"\0" * 512)  # what a power cut may leave is no way out
    reject_links(folder)
    WAYS_OUT[way](folder)
    with pytest.raises(RunDirectoryError, match=r"symbolic link|no regular file|names another file"):
        reject_links(folder)


def test_the_journal_that_is_refused_would_have_deleted_a_file(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    hot_journal(tmp_path / "journal.sqlite", victim)
    database = sqlite3.connect(tmp_path / "journal.sqlite")
    database.execute("SELECT * FROM effects").fetchall()
    database.close()
    if victim.exists():
        pytest.skip("this SQLite deletes nothing that such a journal names")
