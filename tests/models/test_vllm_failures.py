"""The cause of vLLM's end or failed start, by what its processes log. Only a process of Python logs here, no vLLM."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evorun.models.vllm.failures import Diagnosis, EngineErrors

ARGUMENTS = {"model": "/nowhere", "max_num_seqs": 256, "max_model_len": 8192, "gpu_memory_utilization": 0.9}
LOGS_AS_VLLM = """
import json, logging, logging.config, os
logging.config.dictConfig(json.load(open(os.environ["VLLM_LOGGING_CONFIG_PATH"])))
log = logging.getLogger("vllm.v1.engine.core")
try:
    try:
        raise {cause}
    except Exception as error:
        raise RuntimeError("worker proc failed") from error
except Exception:
    log.exception("EngineCore failed to start.")
"""


def died(cause: str) -> str:
    """Return the explanation of an engine whose process has logged an exception."""
    errors = EngineErrors()
    environment = {**os.environ, **errors.environment({})}
    program = LOGS_AS_VLLM.replace("{cause}", cause)
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True)
    said = Diagnosis(errors, ARGUMENTS).explain_death()
    errors.close()
    return said


@pytest.mark.parametrize(
    ("cause", "sizes", "key"),
    [
        (
            "ValueError('No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.')",
            "engine.max_num_seqs=256, engine.max_model_len=8192, engine.gpu_memory_utilization=0.9",
            "raise engine.gpu_memory_utilization",
        ),
        (
            "ValueError('(4.0 GiB KV cache is needed, which is larger than the available KV cache memory (1.5 GiB).')",
            "4.0 GiB KV cache is needed",
            "lower engine.max_model_len",
        ),
        (
            "ValueError('Free memory on device cuda:0 (10.1/79.1 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 71.2 GiB).')",
            "10.1/79.1 GiB",
            "lower engine.gpu_memory_utilization",
        ),
        ("MemoryError('CUDA out of memory. Tried to allocate 2 GiB.')", "allocate 2 GiB", "lower engine.max_num_seqs"),
    ],
)
def test_a_lack_of_memory_has_sizes_and_a_key(cause: str, sizes: str, key: str) -> None:
    said = died(cause)
    assert said.startswith("out of memory: ")
    assert sizes in said
    assert key in said.rpartition("; ")[2]


def test_the_first_exception_is_the_cause() -> None:
    said = died("KeyError('no such layer')")
    assert said.startswith("KeyError: 'no such layer'; ")
    assert "memory" not in said


def test_a_process_that_logged_nothing_was_killed(tmp_path: Path) -> None:
    assert "as if the system had killed it" in Diagnosis(EngineErrors(), ARGUMENTS).explain_death()


def test_the_users_own_logging_stays() -> None:
    assert EngineErrors().environment({"VLLM_LOGGING_CONFIG_PATH": "mine.json"}) == {}
