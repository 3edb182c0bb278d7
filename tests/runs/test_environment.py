"""The machine as a manifest describes it, against psutil and the kernel's own list of processors."""

import re
from pathlib import Path

import psutil
import pytest

from evorun.runs.environment import hardware

CPUINFO = Path("/proc/cpuinfo")


def test_the_machine_is_the_one_that_psutil_sees() -> None:
    found = hardware()
    assert found["cores"] == len(psutil.Process().cpu_affinity() or ())
    assert found["memory_gib"] == round(psutil.virtual_memory().total / 2**30)


@pytest.mark.skipif(not CPUINFO.exists(), reason="needs /proc/cpuinfo")
def test_the_processor_is_the_first_model_that_the_kernel_names() -> None:
    named = re.search(r"^model name\s*:\s*(.*?)\s*$", CPUINFO.read_text(), re.MULTILINE)
    if named is None:
        pytest.skip("this kernel names no model")
    assert hardware()["processor"] == named[1]
