"""A trainer's process without a model: `stand_in_worker.py JOB.json RANK`. The job's model names a trouble.

The first rank answers each command with figures; the trouble befalls the last one once it has begun.
"""

import os
import sys
import threading
import time
from pathlib import Path

from evorun.training import tcp, worker
from evorun.training.ranks import RANK
from evorun.training.wire import Failed, Figures, Finish, Ready, Started, decode_command, decode_job, frame, read_frame


def main(file: Path, rank: int) -> int:
    """Be a rank of a trainer with one on each node; return the exit code."""
    threading.Thread(target=worker._end_with_the_run, daemon=True).start()
    job = decode_job(file.read_bytes())
    trouble, last = job.model.name, rank == job.training.processes - 1
    RANK.begin(file.parent, rank)
    if trouble == "never starts":
        RANK.note("reaching the other processes", waits=not last)
    if not last:
        while trouble == "is killed first" and not Path(job.log).with_name("noticed").exists():
            time.sleep(0.01)
        host, _, port = job.socket.rpartition(":")
        link = tcp.connect(host, int(port), job.secret)
        stream = link.makefile("rb")
        if trouble != "never starts":
            link.sendall(frame(Started()) + frame(Ready(7)))
        while (body := read_frame(stream)) is not None:
            command = decode_command(body)
            RANK.begin_command("update 1")
            RANK.note("backward pass", waits=True)
            if trouble == "none":
                link.sendall(frame(Figures({"pid": float(os.getpid())})))
            if isinstance(command, Finish):
                return 0
        return 1
    if trouble != "never starts":
        RANK.note("update 1, pass 1 of 1")
    if trouble == "raises":
        RANK.fail(Failed(reason="ValueError: no such layer", rank=rank, doing="update 1", at="a.py:1 in f", time=1.0))
        return 1
    if trouble in ("is killed", "is killed first"):  # as torchrun reports it
        print(f"  rank      : {rank} (local_rank: 0)\n  exitcode  : -9 (pid: 7)", flush=True)
        return 1
    if trouble != "none":
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
