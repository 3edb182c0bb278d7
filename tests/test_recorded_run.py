"""The whole program on a recording of the real small model: what it said once, it says again, without its weights."""

import base64
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from evorun_process import evorun_here

RECORDING = Path(__file__).parent / "recordings" / "smollm2_mathbench"
ARGUMENTS = (
    "experiment=quickstart",
    "task.limit=3",
    "method.generations=1",
    "engine=replay",
    f"engine.run={RECORDING}",
)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replayed")
    done = evorun_here(*ARGUMENTS, "hydra.run.dir=run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "name", ["predictions.jsonl", "steps.jsonl", "comparisons.jsonl", "candidates.jsonl", "results.json"]
)
def test_the_recorded_run_repeats_to_the_byte(replayed: Path, name: str) -> None:
    assert (replayed / name).read_bytes() == (RECORDING / name).read_bytes()


def test_no_call_and_no_candidate_is_lost(replayed: Path) -> None:
    predictions, candidates = lines(replayed / "predictions.jsonl"), lines(replayed / "candidates.jsonl")
    duels = lines(replayed / "comparisons.jsonl")
    for prediction in predictions:
        own = [c for c in candidates if c["problem"] == prediction["problem"]]
        assert prediction["candidates"] == len(own)
        assert sum(c["attempts"] for c in own) == prediction["cost"]["generate"]["calls"]
        judged = [d for d in duels if d["problem"] == prediction["problem"]]
        assert prediction["cost"]["judge"]["calls"] == 2 * len(judged)
    assert len(predictions) == 3


def test_the_report_shows_what_the_model_wrote(replayed: Path) -> None:
    page = (replayed / "report.html").read_text()
    packed = re.findall('<script type="application/zlib" [^>]*>([^<]*)<', page)
    texts = "".join(zlib.decompress(base64.b64decode(one)).decode() for one in packed)
    reasoning = max((c["reasoning"] for c in lines(replayed / "candidates.jsonl")), key=len)
    words = [word for word in reasoning.split() if word.isalpha()][:5]
    assert words
    assert all(word in texts for word in words)
    manifest = json.loads((replayed / "manifest.json").read_text())
    assert manifest["simulated"] is False
    assert manifest["models"]["policy"]["engine"] == "replay"


def test_a_prompt_that_was_never_asked_is_refused(tmp_path: Path) -> None:
    source = Path(__file__).parent.parent / "evorun" / "tasks" / "mathbench" / "prompts" / "generation.md"
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "generation.md").write_text(source.read_text().replace("Solve", "Please solve"))
    done = evorun_here(*ARGUMENTS, "task.prompts=prompts", "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 1
    assert "holds no reply to this request" in done.stderr


def test_a_recording_on_a_read_only_medium_replays(tmp_path: Path) -> None:
    copy = tmp_path / "recording"
    shutil.copytree(RECORDING, copy)
    copy.chmod(0o555)
    done = evorun_here(*ARGUMENTS, f"engine.run={copy}", "hydra.run.dir=run", cwd=tmp_path)
    copy.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in copy.iterdir()) == sorted(path.name for path in RECORDING.iterdir())
