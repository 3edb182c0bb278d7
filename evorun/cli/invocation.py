"""State of one command line that bypasses Hydra, which hands over neither arguments nor the results of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from evorun.runs.directory import MANIFEST
from evorun.runs.formats import counted
from evorun.runs.sweeps import JobInSweep, record_failure


class AddedJobs(NamedTuple):
    """Jobs that an extension adds to a sweep."""

    jobs: Sequence[Sequence[str]]
    """The overrides of each, as typed."""
    commands: Sequence[Sequence[str]]
    """The command lines that would make them, but for this one."""


@dataclass
class BegunSweep:
    """A sweep whose jobs are known."""

    folder: Path
    jobs: Sequence[JobInSweep]
    """Those that this command line carries out."""
    names: Mapping[str, str]
    """By a job's folder: what tells it from all jobs of the sweep."""
    errors: dict[str, str] = field(default_factory=dict)
    """By a job's folder: why it failed, where its manifest does not say."""
    job: str | None = None
    """Folder of the job that this process carries out now."""
    submitted: list[str] = field(default_factory=list)
    """Ids of job arrays at a scheduler that nobody waits for."""

    @property
    def job_name(self) -> str | None:
        """The name, within the sweep, of the job that this process carries out; None between jobs."""
        return None if self.job is None else self.names.get(self.job)

    def note_failure(self, job: str, error: str) -> None:
        """Keep why a job, named by its folder, failed; the sweep's manifest has it where the job could not begin."""
        self.errors[job] = error
        if not (self.folder / job / MANIFEST).exists():
            record_failure(self.folder, job, error)


@dataclass
class Invocation:
    """A command line."""

    typed: Sequence[str] = ()
    """Its arguments, as typed."""
    resumed: Mapping[str, Sequence[str]] | None = None
    """The overrides of a recorded sweep's jobs by folder, to carry out in the place of the sweep's product."""
    added: AddedJobs | None = None
    """Jobs to add to a recorded sweep in the place of the product."""
    sweep: BegunSweep | None = None
    statuses: list[str] = field(default_factory=list)
    """Of the runs of this process, in order."""
    folders: list[Path] = field(default_factory=list)
    """Of the runs that began in this process, in order."""
    said: dict[str, list[str]] = field(default_factory=dict)
    """Warnings and errors that a sweep has printed, once for all its jobs: those that gave it, where one was named."""

    def is_said(self, message: str, job: str | None = None) -> bool:
        """Return whether this command line has printed a message, which counts as printed from now on.

        job: the name of the job that gives it, which is printed with it.
        """
        if message not in self.said:
            self.said[message] = [] if job is None else [job]
            return False
        if (jobs := self.said[message]) and job is not None and job not in jobs:
            jobs.append(job)
        return True

    def describe_ended(self, statuses: Sequence[str]) -> str:
        """Return how far the sweep is, `; 3 of 42 jobs ended`. statuses: of the jobs that have ended."""
        total = 0 if self.sweep is None else len(self.sweep.jobs)
        return f"; {len(statuses)} of {counted(total, 'job')} ended" if total else ""


current = Invocation()
"""The one that this process carries out; a launcher's process has none of its own."""


def begin(
    typed: Sequence[str], resumed: Mapping[str, Sequence[str]] | None = None, added: AddedJobs | None = None
) -> Invocation:
    """Make a new invocation the current one."""
    global current
    current = Invocation(list(typed), resumed, added)
    return current
