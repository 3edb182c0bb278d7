"""`evorun doctor`: missing data in a row each, with what is true of all said once, and drivers too old for CUDA."""

import io
from importlib import metadata

import pytest

from evorun.cli import doctor
from evorun.runner import registry
from evorun.runs.terminal import Terminal


def test_what_holds_for_all_missing_data_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVORUN_DATA", raising=False)
    monkeypatch.setattr(registry, "names", lambda _: ["mathbench", "livecodebench", "aime", "ethics", "search_qa"])
    monkeypatch.setattr(doctor, "findings", doctor._data)
    printed = io.StringIO()
    doctor.print_findings(Terminal(file=printed, width=300))
    said = printed.getvalue()
    assert said.count("own small set") == said.count("task.data=FOLDER") == 1
    for wanted in ("aime_*[0-9].jsonl in $EVORUN_DATA/math;", "unpacked in $EVORUN_DATA/mathbench"):
        assert wanted in said


@pytest.mark.parametrize(
    ("driver", "installed", "ready"),
    [
        ("580.95.05", {}, True),  # the pins bring 13.0
        ("575.57.08", {}, False),
        ("575.57.08", {"nvidia-cuda-runtime-cu12": "12.9.79"}, True),
        ("470.82.01", {"nvidia-cuda-runtime-cu12": "12.9.79"}, False),
        ("595.10", {"nvidia-cuda-runtime": "13.0.96"}, True),
        ("575.57.08", {"nvidia-cuda-runtime": "14"}, True),  # nothing is known of that
        ("[N/A]", {}, False),
    ],
)
def test_the_driver_is_held_against_the_cuda_libraries(
    monkeypatch: pytest.MonkeyPatch, driver: str, installed: dict[str, str], ready: bool
) -> None:
    monkeypatch.setattr(doctor, "_version", installed.get)
    found = doctor._driver([driver])
    assert found.ready == ready
    assert ready or "needs a driver R5" in found.remedy


def test_a_package_has_its_version_by_whatever_name_it_is_installed() -> None:
    found = doctor._packages("two", ("msgspec", "yaml"), "")
    assert found.found == f"msgspec {metadata.version('msgspec')}, yaml {metadata.version('pyyaml')}"
