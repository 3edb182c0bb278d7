"""Serves replicas of a model on a Ray cluster, each with the GPUs that it asks for, and tells a run their addresses.

    python serve.py FOLDER REPLICAS GPUS MODEL [ARGUMENT OF vllm serve ...]

Each replica writes its server's address into FOLDER/NUMBER.url once the server answers. A server that dies later, alone
or with its node, is started again, anywhere. The script ends the servers when it is interrupted. A key is in
VLLM_API_KEY.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import ray


class Replica:
    """A `vllm serve` process on the node and the GPUs that Ray chose."""

    def __init__(self, number: int, folder: str, arguments: list[str], key: dict[str, str]) -> None:
        self._address = Path(folder, f"{number}.url")
        self._address.unlink(missing_ok=True)  # of a replica that died
        with socket.socket() as free:
            free.bind(("", 0))
            self._port = free.getsockname()[1]
        words = ["vllm", "serve", *arguments, "--host", "0.0.0.0", "--port", str(self._port)]  # noqa: S104
        # Ray has set CUDA_VISIBLE_DEVICES.
        self._server = subprocess.Popen(words, env={**os.environ, **key})
        self._stopping = False

    def serve(self) -> int:
        """Publish the server's address once it answers; return the exit code of one that never does."""
        while self._server.poll() is None and not self._answers():
            time.sleep(1)
        if (code := self._server.poll()) is not None:
            return code
        written = self._address.with_suffix(".new")
        written.write_text(f"http://{ray.util.get_node_ip_address()}:{self._port}/v1\n")
        written.replace(self._address)  # whole or not at all
        code = self._server.wait()
        self._address.unlink(missing_ok=True)
        if not self._stopping:
            os._exit(1)  # Ray starts the replica again
        return code

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://localhost:{self._port}/health", timeout=5):
                return True
        except OSError:
            return False

    def stop(self) -> None:
        """End the server."""
        self._stopping = True
        self._server.terminate()
        self._server.wait()
        self._address.unlink(missing_ok=True)


def main(folder: str, replicas: int, gpus: float, arguments: list[str]) -> None:
    """Serve until interrupted, or until a server ends before it has answered."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    # Not as Ray's environment variables, which its dashboard shows.
    key = {name: value for name, value in os.environ.items() if name == "VLLM_API_KEY"}
    ray.init()
    replica: Any = ray.remote(num_cpus=1, num_gpus=gpus, max_concurrency=2, max_restarts=-1, max_task_retries=-1)(
        Replica
    )
    started = [replica.remote(number, folder, arguments, key) for number in range(replicas)]
    try:
        ended, _ = ray.wait([one.serve.remote() for one in started])
        sys.exit(
            f"a server has ended before it answered, with exit code {ray.get(ended[0])}; Ray's logs have its output"
        )
    except KeyboardInterrupt:
        print("stopping the servers")
    finally:
        ray.get([one.stop.remote() for one in started])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
