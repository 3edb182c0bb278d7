"""The key that a user's runs are signed with."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evorun.runs.ownership import sign


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_jobs_that_start_together_share_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        signatures = set(pool.map(sign, [{"seed": 0}] * 32))
    assert len(signatures) == 1
    assert None not in signatures
    assert [file.name for file in (tmp_path / "evorun").iterdir()] == ["key"]


def test_the_key_is_the_users_alone(tmp_path: Path) -> None:
    sign({})
    key = tmp_path / "evorun" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700


def test_a_key_that_anybody_could_guess_signs_nothing(tmp_path: Path) -> None:
    (tmp_path / "evorun").mkdir()
    (tmp_path / "evorun" / "key").write_bytes(b"")
    assert sign({}) is None


def test_every_value_counts_and_the_order_of_keys_does_not() -> None:
    assert sign({"a": 1, "b": {"c": 2, "d": [3]}}) == sign({"b": {"d": [3], "c": 2}, "a": 1})
    assert len({sign({"a": 1}), sign({"a": 2}), sign({"a": "1"}), sign({"a": [1]}), sign({"b": 1})}) == 5
    states: list[dict[str, str] | None] = [None, {}, {"journal.sqlite": "0"}, {"journal.sqlite": "1"}, {"a": "0"}]
    assert len({sign({"a": 1}, state) for state in states}) == len(states)
