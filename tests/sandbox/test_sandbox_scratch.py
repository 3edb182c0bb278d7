"""The folder of a program without mounts: its size is seen, and it is removed whatever it holds."""

import os
import sys
from pathlib import Path

import pytest

from evorun.sandbox.inside.scratch import is_larger, remove

DEEPER_THAN_RECURSION = sys.getrecursionlimit() + 50


def nested(folder: Path, depth: int) -> None:
    """Make folders in folders, whose path is longer than the kernel takes."""
    at = os.open(folder, os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("folder", dir_fd=at)
        inner = os.open("folder", os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)


def test_a_folder_is_removed_however_deep_it_is_and_nothing_that_links_lead_to(tmp_path: Path) -> None:
    outside, scratch = tmp_path / "outside", tmp_path / "scratch"
    for folder in (outside, scratch / "a/b", scratch / "locked/inner"):
        folder.mkdir(parents=True)
    (outside / "file").write_text("x")
    (scratch / "a/link").symlink_to(outside)
    (scratch / "file").hardlink_to(outside / "file")
    os.mkfifo(scratch / "a/b/pipe")
    nested(scratch / "a", DEEPER_THAN_RECURSION)
    (scratch / "locked").chmod(0)
    remove(str(scratch))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "outside"]


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").touch()
    (tmp_path / "scratch").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="Not a directory"):
        remove(str(tmp_path / "scratch"))
    assert (tmp_path / "outside/file").exists()


@pytest.mark.parametrize(
    ("content", "files", "larger"),
    [([60, 60], 9, True), ([60, 30], 9, False), ([1] * 9, 9, False), ([1] * 10, 9, True)],
    ids=["too many bytes together", "few enough", "as many files as allowed", "too many files"],
)
def test_a_folders_size_is_that_of_all_in_it(tmp_path: Path, content: list[int], files: int, larger: bool) -> None:
    (tmp_path / "link").symlink_to("/usr")
    folder = tmp_path
    for number, kib in enumerate(content[:-1]):
        (folder / str(number)).write_bytes(os.urandom(kib << 10))
    (folder / "last").write_bytes(os.urandom(content[-1] << 10))
    assert is_larger(str(tmp_path), 100 << 10, files + 1) == larger  # with the link


def test_a_sparse_file_counts_what_it_takes_and_a_path_too_long_counts_as_too_much(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert not is_larger(str(tmp_path), 1 << 20, 10)
    nested(tmp_path, 700)
    assert is_larger(str(tmp_path), 1 << 30, 10_000)
