"""The example's job that serves a model: its address is there while its server answers, and its key is nowhere."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from building import make_config
from evorun.errors import ConfigError, EngineError
from hostile_server import ChatServer
from server_engine import REQUEST, opened

JOB = Path(__file__).parents[1] / "examples" / "slurm_servers" / "serve.sbatch"
VLLM = """#!{python}
import http.server, os, pathlib, sys

words = sys.argv[1:]
pathlib.Path("started").write_text(" ".join(words) + "\\n" + os.environ["VLLM_API_KEY"])
if "--broken" in words:
    sys.exit(3)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = pathlib.Path("ready").exists()
        self.send_response(200 if ready and self.path == "/health" else 503)
        self.end_headers()

    def log_message(self, *words):
        pathlib.Path("asked").touch()


http.server.HTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Handler).serve_forever()
"""
"""A program that is called as `vllm` and answers once a file is there."""
KEY = "sk-of-the-cluster"


def until(condition: object, seconds: float = 60.0) -> None:
    """Wait for what a process does. Raises AssertionError when it does not."""
    ends = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < ends
        time.sleep(0.02)


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    program = folder / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(VLLM.format(python=sys.executable))
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {"PATH": path, "VLLM_API_KEY": KEY, "SLURM_ARRAY_TASK_ID": "3", "POLL_SECONDS": "0.02"}
    command = ["bash", str(JOB), "servers", "some/model", *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def test_an_address_is_there_while_its_server_answers(tmp_path: Path) -> None:
    address = tmp_path / "servers" / "3.url"
    address.parent.mkdir()
    address.write_text("http://left.by.a.killed.job:1/v1\n")
    with start(tmp_path, "--enable-lora") as job:
        until((tmp_path / "asked").exists)
        assert not address.exists()
        (tmp_path / "ready").touch()
        until(address.exists)
        (url,) = make_config("engine", "server", url_files=str(address.parent / "*.url")).read_urls()
        port = re.fullmatch(r"http://[^/]+:(\d+)/v1", url)
        assert port is not None
        words, key = (tmp_path / "started").read_text().split("\n")
        assert words == f"serve some/model --enable-lora --host 0.0.0.0 --port {port[1]}"
        assert key == KEY
        assert KEY not in address.read_text() + words
        job.send_signal(signal.SIGTERM)
        assert job.wait(60) == 128 + signal.SIGTERM
    assert list(address.parent.iterdir()) == []


def test_a_server_that_does_not_start_ends_its_job(tmp_path: Path) -> None:
    with start(tmp_path, "--broken") as job:
        assert job.wait(60) == 1
        assert job.stderr is not None
        assert "the server has ended before it answered" in job.stderr.read()
    assert list((tmp_path / "servers").iterdir()) == []


def test_files_of_addresses_that_lack_one_are_one_line(tmp_path: Path) -> None:
    config = make_config("engine", "server", url_files=str(tmp_path / "*.url"))
    with pytest.raises(EngineError, match=r"engine.url_files: expected a server's URL in .*, found none; start the"):
        config.read_urls()
    (tmp_path / "0.url").write_text("\n")
    with pytest.raises(EngineError, match="found none"):
        config.read_urls()
    (tmp_path / "1.url").write_text("http://two:8000/v1/\nhttp://one:8000/v1\n\nhttp://two:8000/v1/\n")
    assert config.read_urls() == ["http://two:8000/v1", "http://one:8000/v1"]
    (tmp_path / "2.url").write_text("two:8000\n")
    with pytest.raises(ConfigError, match=r"engine.url_files: expected http"):
        config.read_urls()


async def test_servers_that_have_moved_are_found_when_the_engine_opens_again(tmp_path: Path) -> None:
    for _ in range(2):
        async with ChatServer() as server:
            (tmp_path / "0.url").write_text(f"{server.url}\n")
            async with opened("http://127.0.0.1:1/v1", url_files=str(tmp_path / "*.url")) as engine:
                assert (await engine.complete(REQUEST)).completions[0].text
