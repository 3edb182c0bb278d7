"""Peak memory of a run of the size of the paper's MathBench evaluation: 150 problems with 200 candidates each."""

import resource
import tempfile
from pathlib import Path

import msgspec

from dry_run import run
from evorun.cli.compose import default_config
from evorun.tasks.mathbench import files
from evorun_bench import Row

PROBLEMS = 150
GENERATIONS = 16
"""12 initial candidates and 12 in each generation: 204 candidates a problem."""


def measure() -> list[Row]:
    """Run all 150 problems at once with 24 duels a generation."""
    with tempfile.TemporaryDirectory() as folder:
        data = _repeated_sample(Path(folder) / "data")
        size = {
            "engine": "simulated",
            "task.source": "stand_in",
            "task.data": data,
            "task.validation_per_stratum": 0,
            "method.generations": GENERATIONS,
        }
        measured = run(Path(folder) / "run", size)
        candidates = sum(1 for _ in (Path(folder) / "run" / "candidates.jsonl").open("rb"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Row("candidates", candidates, "", "", None),
        Row("model calls", measured.calls, "", "", None),
        Row("duration", measured.seconds, "s", "", None),
        Row("peak memory, 150 problems x 200 candidates", peak, "MiB", "< 1,024", peak < 1_024),
    ]


def _repeated_sample(folder: Path) -> Path:
    """Write 50 questions a level in the benchmark's layout: the sample's, repeated with a running number."""
    for stage in default_config("task", "mathbench").strata:
        lines = (files.SAMPLE / stage / "single_choice_en.jsonl").read_bytes().splitlines()
        (folder / stage).mkdir(parents=True)
        with (folder / stage / "single_choice_en.jsonl").open("wb") as target:
            for number in range(PROBLEMS // 3):
                record = msgspec.json.decode(lines[number % len(lines)])
                record.update(id=f"{stage}-{number}", question=f"({number}) {record['question']}")
                target.write(msgspec.json.encode(record) + b"\n")
    return folder
