"""problems.jsonl: what the prompts show of each problem, in the problems' order, from the start of a run."""

import json
from pathlib import Path

from building import load_task
from evorun_process import DRY_RUN, SMALL, evorun_here


def test_the_problems_are_recorded_without_their_answers(tmp_path: Path) -> None:
    assert evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=tmp_path).returncode == 0
    records = [json.loads(line) for line in (tmp_path / "run" / "problems.jsonl").open()]
    problems = load_task("mathbench", source="sample", limit=3).problems
    assert [(r["problem"], r["stratum"]) for r in records] == [(p.id, p.stratum) for p in problems]
    assert [r["data"] for r in records] == [{**p.data, "options": list(p.data["options"])} for p in problems]
    assert all(set(r["data"]) == {"question", "options"} for r in records)


def test_a_run_that_fails_at_its_model_has_its_problems(tmp_path: Path) -> None:
    options = [option for option in DRY_RUN if not option.startswith("engine")]
    failed = evorun_here(
        *options, *SMALL, "engine=server", "engine.base_urls=[http://127.0.0.1:9/v1]", "engine.max_retries=0",
        "hydra.run.dir=run", cwd=tmp_path,
    )  # fmt: skip
    assert failed.returncode == 1
    assert len((tmp_path / "run" / "problems.jsonl").read_text().splitlines()) == 3
