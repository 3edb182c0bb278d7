"""Says why the trainer ended, in one line: the rank that failed first, what it was doing, and its last lines."""

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from evorun.errors import ConfigError, EvorunError, TrainingError
from evorun.models.memory import format_size
from evorun.training.ranks import log_of_node, log_of_rank, read_failures, read_position, read_statuses
from evorun.training.wire import Failed

LAST_LINES = 3
"""Lines of a log that an error quotes. `ours`."""

# torchrun reports how its processes ended only in this table, for people.
_TABLE = re.compile(r"rank +: (\d+) \(local_rank: \d+\)\s+exitcode +: (-?\d+) ")
_RULE = re.compile(r"[=\-*_ ]*")


class OutOfMemory(TrainingError):
    """Memory ran out in a process of the trainer."""

    def __init__(self, reason: str, *, rows: int, tokens: int) -> None:
        """rows, tokens: of the pass that needed too much; 0 outside a pass."""
        super().__init__(reason)
        self.rows = rows
        self.tokens = tokens


class Evidence:
    """The files of a trainer's processes, to be read when it has failed."""

    def __init__(self, folder: Path, log: Path, ranks: int, nodes: int = 1) -> None:
        """folder: with the ranks' statuses. log: of the trainer, which appends to it."""
        self._folder = folder
        self._ranks = ranks
        self._log = log
        self._launch_logs = [log] if nodes == 1 else [log_of_node(log, node) for node in range(nodes)]
        """Logs of what has started the ranks."""
        self._hosts: Sequence[str] = ()
        """The node of each rank, if there are several."""
        files = [log, *self._launch_logs, *(log_of_rank(log, rank, ranks) for rank in range(ranks))]
        self._start = {file: file.stat().st_size if file.exists() else 0 for file in files}
        """Sizes of the logs before this trainer."""

    def name_nodes(self, hosts: Sequence[str]) -> None:
        """Set the name of each rank's node."""
        self._hosts = hosts

    def pids(self) -> list[int]:
        """Return the ids of the ranks' processes."""
        return [status.pid for status in read_statuses(self._folder)]

    def progress(self) -> list[tuple[str, int]]:
        """Return for each rank something that changes when it makes progress."""
        return [(status.doing, status.notes) for status in read_statuses(self._folder)]

    def explain_exception(self, failure: Failed | None = None) -> EvorunError | None:
        """Return the error for the exception that ended the trainer, None without one. failure: the first rank's."""
        failures = [*read_failures(self._folder), *([failure] if failure is not None else [])]
        causes = [found for found in failures if not found.lost_peer]
        return self._of_exception(causes[0]) if causes else None

    def explain_end(self, code: int, loss: EvorunError | None = None) -> EvorunError:
        """Return the error for a trainer whose processes have all ended.

        code: of the first one or the launcher. loss: that of a node which is gone.
        """
        found = self.explain_exception()
        if found is None and (killed := self._killed(code)) is not None:
            found = self._of_signal(*killed)
        found = found or loss
        if found is None and (lost := read_failures(self._folder)):
            found = self._of_exception(lost[0])
        if found is None:
            found = TrainingError(f"the trainer process ended with exit code {code}: {self._quote(self._log)}")
        return found

    def explain_start(self, seconds: float, joined: str) -> TrainingError:
        """Return the error for a trainer whose ranks have not all started. joined: its nodes, if there are several."""
        statuses = read_statuses(self._folder)
        late = [f"{self._name(status.rank)} is {status.doing}" for status in statuses if not status.waits]
        late += [f"{self._name(rank)} has not begun" for rank in self._missing()]
        what = (
            joined
            if not statuses and joined
            else "; ".join(late)
            or "all processes wait for one another: their nodes must reach each other at all ports, and "
            "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name the network interface"
        )
        return TrainingError(
            f"the trainer has not started within {seconds:g} s (training.start_timeout): {what}; see {self._log.name}"
        )

    def explain_launch(self, code: int, joined: str) -> TrainingError:
        """Return the error for a command that should have started the trainer's nodes."""
        return TrainingError(
            f"the trainer has not started: what starts its nodes ended with exit code {code}, {joined}: "
            f"{self._quote(self._log)}"
        )

    def explain_loss(self, node: int, host: str, ranks: Sequence[int]) -> TrainingError:
        """Return the error for a node that is gone. node: its number. ranks: of its processes."""
        there = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        return TrainingError(
            f"the trainer lost the node {host} ({there} of {self._ranks}): it was killed, or cut off from the run's "
            f"machine; the last checkpoint is intact: resume the run; {self._quote(self._launch_logs[node])}"
        )

    def _missing(self) -> list[int]:
        """Return the ranks that have not begun."""
        return sorted(set(range(self._ranks)) - {status.rank for status in read_statuses(self._folder)})

    def explain_hang(self, seconds: float) -> TrainingError:
        """Return the error for a trainer none of whose ranks has made progress for so long."""
        statuses = read_statuses(self._folder)
        working = [status for status in statuses if not status.waits] or statuses
        # Ranks in the same pass wait for the one that is behind.
        behind = min((status.notes for status in working), default=0)
        found = {status: read_position(self._folder, status.rank) for status in working if status.notes == behind}
        # One that waits for others can still say where it is; a process that is stopped, or in a driver, cannot.
        silent = {status: at for status, at in found.items() if not at}
        named = [
            f"{self._name(status.rank)} in {status.doing} ({f'at {at}' if at else 'it answers no signal'})"
            for status, at in (silent or found).items()
        ]
        return TrainingError(
            f"the trainer hangs: no progress for {seconds:g} s (training.hang_timeout) of {'; '.join(named)}; "
            "its checkpoint is intact: see the log, then resume"
        )

    def _of_exception(self, failure: Failed) -> EvorunError:
        if failure.of_settings:
            return ConfigError(failure.reason)
        rank = f" on {self._name(failure.rank)}" if self._ranks > 1 else ""
        if failure.memory is not None:
            place = f" in {failure.doing}" if failure.doing else ""
            sizes = f"{failure.memory}; {self._sizes(failure.weights, failure.rows, failure.tokens)}"
            return OutOfMemory(
                f"the trainer ran out of memory{rank}{place}: {sizes}", rows=failure.rows, tokens=failure.tokens
            )
        place = f" (at {failure.at}, in {failure.doing})" if failure.doing else ""
        log = f"; see {self._log_of(failure.rank).name}" if self._ranks > 1 else ""
        return TrainingError(f"the trainer failed{rank}: {_shorten(failure.reason)}{place}{log}")

    def _killed(self, code: int) -> tuple[int, int] | None:
        """Return the rank that a signal has ended, and the signal; None if none has."""
        if self._ranks == 1:
            # A shell reports a signal as 128 and its number.
            number = -code if code < 0 else code - 128
            return (0, number) if number > 0 else None
        texts = map(self._text, self._launch_logs)
        table = [(int(rank), -int(ended)) for text in texts for rank, ended in _TABLE.findall(text)]
        # When one rank has ended, torchrun sends SIGTERM to the others.
        killed = [(rank, number) for rank, number in table if number > 0 and number != signal.SIGTERM]
        return killed[0] if killed else None

    def _of_signal(self, rank: int, number: int) -> TrainingError:
        status = next((status for status in read_statuses(self._folder) if status.rank == rank), None)
        try:
            name = f"signal {number} ({signal.Signals(number).name})"
        except ValueError:
            name = f"signal {number}"
        who = f"rank {rank} of the trainer's {self._ranks}" if self._ranks > 1 else "the trainer process"
        how = f"{who}{self._on(rank)} was killed by {name}"
        place = f" in {status.doing}" if status is not None else ""
        quote = self._quote(self._log_of(rank))
        if number != signal.SIGKILL:
            return TrainingError(f"{how}{place}: {quote}")
        sizes = "" if status is None else f"{self._sizes(status.weights, status.rows, status.tokens)}; "
        rows, tokens = (0, 0) if status is None else (status.rows, status.tokens)
        return OutOfMemory(
            f"{how}{place}, as the system does when memory runs out: {sizes}{quote}", rows=rows, tokens=tokens
        )

    def _sizes(self, weights: int, rows: int, tokens: int) -> str:
        parts = [f"weights {format_size(weights)}"] if weights else []
        parts += [f"{rows} sequence{'s' * (rows > 1)}{f' of {tokens} tokens in all' if tokens else ''}"] if rows else []
        return ", ".join(parts) or "no weights loaded"

    def _name(self, rank: int) -> str:
        return f"rank {rank} of {self._ranks}{self._on(rank)}" if self._ranks > 1 else "the trainer process"

    def _on(self, rank: int) -> str:
        return f" on {self._hosts[rank]}" if self._hosts else ""

    def _log_of(self, rank: int) -> Path:
        return log_of_rank(self._log, rank, self._ranks)

    def _text(self, log: Path) -> str:
        try:
            with log.open("rb") as file:
                file.seek(self._start.get(log, 0))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def _quote(self, log: Path) -> str:
        lines = [line.strip() for line in self._text(log).splitlines() if not _RULE.fullmatch(line)][-LAST_LINES:]
        quoted = f", the last ones: {' | '.join(line[:150] for line in lines)}" if lines else ""
        return f"its messages are in {log.name}{quoted}"


def _shorten(reason: str) -> str:
    return reason if len(reason) <= 300 else f"{reason[:300]} ..."
