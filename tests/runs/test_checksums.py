import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from evorun.runs import checksums


def test_a_long_file_is_read_once_for_each_time_that_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_digest, sizes = hashlib.file_digest, list[int]()

    def counted(file: Any, digest: Any) -> Any:
        sizes.append(os.fstat(file.fileno()).st_size)
        return file_digest(file, digest)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    monkeypatch.setattr(checksums, "LONG_FILE", 6)
    long, short = tmp_path / "steps.jsonl", tmp_path / "ratings.jsonl"
    long.write_text("123456")
    short.write_text("12345")
    first = checksums.checksums(tmp_path)
    assert checksums.checksums(tmp_path) == first
    assert sorted(sizes) == [5, 5, 6]
    written = long.stat().st_mtime_ns
    long.write_text("654321")
    os.utime(long, ns=(written, written + 1))
    second = checksums.checksums(tmp_path)
    assert second["steps.jsonl"] == hashlib.blake2b(b"654321", digest_size=16).hexdigest() != first["steps.jsonl"]
    assert second["ratings.jsonl"] == first["ratings.jsonl"]
