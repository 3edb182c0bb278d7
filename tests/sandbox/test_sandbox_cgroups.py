"""Memory cgroups, on a folder that behaves like the kernel's where this machine lets us make none."""

import os
from pathlib import Path

import pytest

from evorun.cli import doctor
from evorun.sandbox import Limits, Program, Sandbox, SandboxConfig, cgroups

LIMITS = Limits(cpu_seconds=60.0, memory_mib=200, file_mib=3, output_kib=2048)


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hierarchy whose root holds this process alone."""
    make, remove = Path.mkdir, Path.rmdir

    def mkdir(folder: Path, *arguments: object, **options: object) -> None:
        make(folder, *arguments, **options)  # type: ignore[arg-type]
        if folder.is_relative_to(tmp_path):
            files = {"memory.current": "1000\n", "memory.events": "max 3\noom_kill 0\n", "cgroup.procs": ""}
            for name, text in files.items():
                (folder / name).write_text(text)

    def rmdir(folder: Path) -> None:
        for file in folder.iterdir() if folder.is_relative_to(tmp_path) else ():
            file.unlink()
        remove(folder)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    monkeypatch.setattr(cgroups, "own_cgroup", lambda: tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("\n")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    return tmp_path


def groups(mount: Path) -> list[Path]:
    return list(mount.glob("evorun-sandbox-[0-9]*"))


async def test_each_slot_has_a_group_with_the_programs_limit_above_what_it_holds(mount: Path) -> None:
    left = mount / f"evorun-sandbox-{2**30}-1"
    left.mkdir()
    sandbox = await Sandbox.open(SandboxConfig(slots=1))
    assert sandbox.memory_groups
    assert (mount / "cgroup.subtree_control").read_text() == "+memory"
    assert (mount / "evorun-sandbox-runner/cgroup.procs").read_text() == str(os.getpid())
    (group,) = groups(mount)
    assert group != left
    assert (group / "cgroup.procs").read_text().strip().isdigit()
    assert (await sandbox.run(Program("print(1)"), "", LIMITS)).stdout == "1\n"
    allowed = (200 << 20) + (3 << 20) + (2048 << 10)
    assert int((group / "memory.max").read_text()) - 1000 - allowed == cgroups._KERNEL_BYTES
    await sandbox.close()
    assert groups(mount) == []


async def test_a_program_that_the_kernel_kills_in_its_group_is_over_its_memory_limit(mount: Path) -> None:
    sandbox = await Sandbox.open(SandboxConfig(slots=1))
    counts = iter([0, 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cgroups.MemoryGroup, "kills", lambda _: next(counts))
        killed = "import os\nprint(1, flush=True)\nos.kill(os.getpid(), 9)"
        execution = await sandbox.run(Program(killed), "", LIMITS)
    assert (execution.end, execution.stdout) == ("memory_limit", "1\n")
    assert (await sandbox.run(Program("print(2)"), "", LIMITS)).end == "completed"
    await sandbox.close()


@pytest.mark.parametrize(
    ("file", "text"),
    [("cgroup.procs", "1\n{own}\n"), ("cgroup.controllers", "cpu pids\n")],
    ids=["others are in our cgroup", "no memory controller"],
)
def test_without_a_group_there_is_none(mount: Path, file: str, text: str) -> None:
    (mount / file).write_text(text.format(own=os.getpid()))
    assert cgroups.find_parent_group() is None
    assert (mount / "cgroup.subtree_control").read_text() == "\n"


def test_doctor_says_how_to_get_a_group(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_data", list)
    (mount / "cgroup.controllers").write_text("cpu pids\n")
    (line,) = (finding for finding in doctor.findings() if finding.what == "sandbox memory")
    assert not line.ready
    assert "systemd-run --user --scope -p Delegate=yes" in line.remedy


def test_programs_of_a_cgroup_that_others_share_get_groups_beside_it(
    mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mount / "cgroup.subtree_control").write_text("memory pids\n")
    own = mount / "app-shell.scope"
    own.mkdir()
    (own / "cgroup.controllers").write_text("memory\n")
    (own / "cgroup.subtree_control").write_text("\n")
    (own / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    monkeypatch.setattr(cgroups, "own_cgroup", lambda: own)
    assert cgroups.find_parent_group() == mount
