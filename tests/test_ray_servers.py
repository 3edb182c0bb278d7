"""The example's script that serves replicas of a model by Ray, with a stand-in for vLLM."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from test_slurm_servers import KEY, VLLM, until

pytest.importorskip("ray")

SCRIPT = Path(__file__).parents[1] / "examples" / "ray_servers" / "serve.py"

pytestmark = [pytest.mark.nightly, pytest.mark.slow]


def test_replicas_that_die_are_started_again(tmp_path: Path) -> None:
    """One loses its server, the other Ray's process, whose server must not live on with the GPU."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(VLLM.format(python=sys.executable).replace('"started"', "f'{tmp}/started-{os.getpid()}'"))
    program.write_text(program.read_text().replace("import http", f"tmp = {str(tmp_path)!r}\nimport http", 1))
    program.write_text(program.read_text().replace('"ready"', 'f"{tmp}/ready"').replace('"asked"', 'f"{tmp}/asked"'))
    program.chmod(0o755)
    (tmp_path / "ready").touch()
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    settings = {"VLLM_API_KEY": KEY, "RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "240"}
    folder = tmp_path / "servers"
    words = [sys.executable, str(SCRIPT), str(folder), "2", "0", "some/model"]
    with (tmp_path / "log").open("w") as log:
        script = subprocess.Popen(words, env={**os.environ, **settings, "PATH": path}, stdout=log, stderr=log)

    def addresses() -> set[str]:
        return {file.read_text() for file in folder.glob("*.url")}

    def servers() -> set[int]:
        return {int(file.name.removeprefix("started-")) for file in tmp_path.glob("started-*")}

    try:
        until(lambda: len(addresses()) == 2, 300)
        first, (one, other) = addresses(), servers()
        assert KEY in (tmp_path / f"started-{one}").read_text()
        for process in (psutil.Process(one), psutil.Process(other).parent()):
            assert process is not None
            process.kill()
        until(lambda: len(addresses()) == 2 and not addresses() & first, 300)
        assert len(servers()) == 4
        until(lambda: not psutil.pid_exists(other) or psutil.Process(other).status() == "zombie")
    finally:
        script.send_signal(signal.SIGTERM)
        script.wait(120)
    assert addresses() == set()
    until(lambda: not any(psutil.pid_exists(server) for server in servers()))
