"""The pool and the isolations: many at once, cancelling, closing, losing a zygote, and what is chosen where."""

import ast
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from evorun.errors import ConfigError, EvorunError, SandboxError
from evorun.sandbox import Case, Limits, Program, Sandbox, SandboxConfig, Suite, probe, test
from evorun.sandbox.comparison import same_output
from evorun.sandbox.launch import _BOOT, Launch
from means import AS_ROOT, SYSTEMS_OWN, interpreter_for_other_users, user_namespaces_work, version_of

LIMITS = Limits(cpu_seconds=3.0)
Below = Callable[[], list[psutil.Process]]
ROOT = Path(__file__).parents[2]
NEEDS_NAMESPACES = pytest.mark.skipif(not user_namespaces_work(), reason="user namespaces are denied on this machine")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - processes come and go without telling us
        await asyncio.sleep(0.01)


async def opened(**settings: object) -> Sandbox:
    return await Sandbox.open(SandboxConfig(**settings))  # type: ignore[arg-type]


async def test_many_at_once_each_get_their_own_answer(below: Below) -> None:
    sandbox = await opened()
    runs = (sandbox.run(Program("print(int(input()) ** 2)"), f"{i}\n", LIMITS) for i in range(20))
    assert [e.stdout for e in await asyncio.gather(*runs)] == [f"{i * i}\n" for i in range(20)]
    await sandbox.close()
    assert below() == []


async def test_as_many_at_a_time_as_there_are_slots() -> None:
    sandbox = await opened(slots=3)
    source = "import time\nprint(time.monotonic())\ntime.sleep(1)\nprint(time.monotonic())"
    await asyncio.gather(*(sandbox.run(Program(""), "", LIMITS) for _ in range(3)))  # all three interpreters are up
    executions = await asyncio.gather(*(sandbox.run(Program(source), "", LIMITS) for _ in range(4)))
    spans = [[float(moment) for moment in e.stdout.split()] for e in executions]
    assert max(sum(start <= moment < end for start, end in spans) for moment, _ in spans) == 3
    await sandbox.close()


async def test_the_event_loop_goes_on_while_large_outputs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    comparing, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def compare_late(*about: Any, **more: Any) -> bool:
        loop.call_soon_threadsafe(comparing.set)
        assert goes_on.wait(60), "comparing held up the event loop"
        return same_output(*about, **more)

    monkeypatch.setattr("evorun.sandbox.testing.same_output", compare_late)
    sandbox = await opened(slots=1)
    line = "1.0 " * 300_000
    suite = Suite((Case("", "1 " * 300_000),), "lines", LIMITS)
    task = asyncio.create_task(test(sandbox, Program(f"print({line!r})"), suite, stop_at_failure=True))
    await comparing.wait()
    goes_on.set()
    assert (await task)[0].verdict == "accepted"
    await sandbox.close()


async def test_cancelling_kills_the_program_and_leaves_the_slot_healthy(below: Below) -> None:
    sandbox = await opened(slots=1)
    task = asyncio.create_task(sandbox.run(Program("import time\ntime.sleep(60)"), "", Limits(wall_seconds=60)))
    before = {process.pid for process in below()}
    await until(lambda: len(below()) > len(before))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        assert (await sandbox.run(Program("print(1)"), "", LIMITS)).stdout == "1\n"
        await until(lambda: not before & {process.pid for process in below()})
    await sandbox.close()
    assert below() == []


async def test_cancelling_those_that_wait_starts_nothing() -> None:
    sandbox = await opened(slots=1)
    first = asyncio.create_task(sandbox.run(Program("import time\ntime.sleep(0.3)\nprint(1)"), "", LIMITS))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(sandbox.run(Program("print(2)"), "", LIMITS)) for _ in range(20)]
    await asyncio.sleep(0.01)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (await first).stdout == "1\n"
    assert (await sandbox.run(Program("print(3)"), "", LIMITS)).stdout == "3\n"
    await sandbox.close()


async def test_cancelling_while_an_interpreter_starts_leaves_none(below: Below) -> None:
    sandbox = await opened(slots=2)
    first = asyncio.create_task(sandbox.run(Program("print(1)"), "", LIMITS))
    second = asyncio.create_task(sandbox.run(Program("print(2)"), "", LIMITS))
    idle = len(below())
    await until(lambda: len(below()) > idle)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert (await sandbox.run(Program("print(3)"), "", LIMITS)).stdout == "3\n"
    await sandbox.close()
    assert below() == []


async def test_closing_ends_what_runs(below: Below) -> None:
    sandbox = await opened(slots=2)
    tasks = [
        asyncio.create_task(sandbox.run(Program("import time\ntime.sleep(60)"), "", Limits(wall_seconds=60)))
        for _ in range(4)
    ]
    await asyncio.sleep(0.3)
    async with asyncio.timeout(60):
        await sandbox.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, SandboxError) for result in results), results
    assert below() == []


async def test_a_zygote_that_is_killed_is_replaced_and_its_program_runs_again(below: Below) -> None:
    sandbox = await opened(slots=1)
    below()[0].kill()
    assert (await sandbox.run(Program("print(1)"), "", LIMITS)).stdout == "1\n"
    idle = len(below())
    task = asyncio.create_task(sandbox.run(Program("import time\ntime.sleep(0.2)\nprint(2)"), "", LIMITS))
    await until(lambda: len(below()) > idle)
    below()[0].kill()
    assert (await task).stdout == "2\n"
    await sandbox.close()
    assert below() == []


@pytest.fixture(params=["bubblewrap", "namespaces", "gvisor", "rlimits"])
def isolation(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each isolation that can work here, with an interpreter that it can use."""
    if request.param == "gvisor" and (not shutil.which("runsc") or os.geteuid() != 0):
        pytest.skip("runsc is not installed, or this is not root")
    if request.param in ("bubblewrap", "namespaces") and not user_namespaces_work():
        pytest.skip("user namespaces are denied on this machine")
    if request.param == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("bwrap is not installed")
    with interpreter_for_other_users() if request.param == "rlimits" else contextlib.nullcontext():
        yield request.param


@pytest.mark.parametrize(
    "isolation",
    ["namespaces", *(pytest.param(other, marks=pytest.mark.nightly) for other in ("bubblewrap", "gvisor", "rlimits"))],
    indirect=True,
)
def test_our_own_end_ends_everything(isolation: str) -> None:
    source = "import os, time\nif os.fork() == 0:\n    os.setpgid(0, 0)\n    os.fork()\nwhile True: time.sleep(1)"
    script = (
        f"import asyncio, sys\nsys._base_executable = {getattr(sys, '_base_executable', sys.executable)!r}\n"
        "from evorun.sandbox import *\nasync def main():\n"
        f"    s = await Sandbox.open(SandboxConfig({isolation!r}, slots=1))\n    print(s._scratch, flush=True)\n"
        f"    await s.run(Program({source!r}), '', Limits(wall_seconds=600))\nasyncio.run(main())"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    scratch = process.stdout.readline().strip()
    assert scratch
    them = psutil.Process(process.pid)
    deadline = time.monotonic() + 60
    while len(them.children(recursive=True)) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    children = them.children(recursive=True)
    assert len(children) >= 4
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    assert scratch == "None" or os.listdir(scratch) == []


@pytest.mark.sample(2)
async def test_every_isolation_runs_programs_of_both_kinds(isolation: str) -> None:
    try:
        sandbox = await opened(isolation=isolation, slots=1)
    except SandboxError as error:
        pytest.skip(str(error))
    assert sandbox.isolation == isolation
    assert sandbox.fully_isolated == (isolation != "rlimits")
    assert bool(sandbox.note) != sandbox.fully_isolated
    assert (await sandbox.run(Program("import numpy\nprint(input())"), "a", LIMITS)).stdout == "a\n"
    assert (await sandbox.run(Program("def f(x): return [x]", "f"), "1", LIMITS)).value == "[1]"
    await sandbox.close()


async def test_packages_are_those_that_are_named() -> None:
    sandbox = await opened(slots=1, packages=["msgspec", "not_installed_anywhere"])
    assert (await sandbox.run(Program("import msgspec\nprint(1)"), "", LIMITS)).stdout == "1\n"
    assert "No module named 'numpy'" in (await sandbox.run(Program("import numpy"), "", LIMITS)).stderr
    await sandbox.close()


LOOK = "from evorun.sandbox import SandboxConfig, probe\nprint(list(probe(SandboxConfig({isolation!r}))))"
FORBID = """
import os, struct
from evorun.sandbox.inside import kernel, syscalls
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
# Load the number; refuse x86_64's and aarch64's unshare and mount; allow.
lines = [(0x20, 0, 0, 0)]
for number in {"x86_64": (272, 165), "aarch64": (97, 40)}[os.uname().machine]:
    lines += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
syscalls._assemble = lambda *_: [*lines, (0x06, 0, 0, 0x7FFF0000)]
syscalls.Filter(unix_sockets=True).enforce()
"""


def look(isolation: str, before: str = "", **options: object) -> list[object]:
    """Probe in a process of its own, after `before`."""
    command = [sys.executable, "-c", before + LOOK.format(isolation=isolation)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    found: list[object] = ast.literal_eval(done.stdout)
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", [os.environ["PATH"], "/nonexistent"], ids=["bwrap forbidden", "bwrap missing"])
def test_where_namespaces_are_denied_auto_runs_nothing_and_says_what_to_do(path: str) -> None:
    isolation, full, note = look("auto", FORBID, env={**os.environ, "PATH": path})
    assert (isolation, full) == ("none", False)
    for said in (
        "sandbox.isolation=auto: ",
        "namespaces does not work here",
        "allow user namespaces",
        "docs/sandbox.md",
    ):
        assert said in str(note)
    # What programs can do is said where that is offered.
    assert "choose sandbox.isolation=rlimits" in str(note)
    assert ("API keys" if os.geteuid() else "everybody may read") in str(note)
    assert "\n" not in str(note)


@AS_ROOT
@NEEDS_NAMESPACES
def test_where_parts_of_proc_are_hidden_programs_see_no_numbers_of_processes() -> None:
    script = (
        "import asyncio\nfrom evorun.sandbox import *\nasync def main():\n"
        "    s = await Sandbox.open(SandboxConfig('namespaces', slots=1))\n"
        '    source = \'import os\\nprint(open(0).read(), os.listdir("/proc"), *sorted(os.listdir("/proc/self")))\'\n'
        "    print((await s.run(Program(source), 'typed', Limits())).stdout)\n    await s.close()\nasyncio.run(main())"
    )
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc/irq && exec "$@"', "-"]
    command = [*hidden, sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.stdout.strip() == "typed ['self'] fd net", done.stderr


@pytest.mark.nightly
@NEEDS_NAMESPACES
def test_where_no_user_but_root_is_mapped_looking_raises_nothing_and_rlimits_refuses(tmp_path: Path) -> None:
    command = ["unshare", "--user", "--map-root-user", sys.executable]
    script = (
        LOOK.format(isolation="rlimits")
        + "\nfrom evorun.cli import doctor\ndoctor._data = list\nprint(dict(enumerate(doctor.findings())))"
    )
    done = subprocess.run([*command, "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.stderr == ""
    isolation, full, note = ast.literal_eval(done.stdout.splitlines()[0])
    assert (isolation, full) == ("none", False)
    assert "no user but root" in note
    assert "what='sandbox'" in done.stdout


@AS_ROOT
async def test_as_root_rlimits_refuses_an_interpreter_that_others_cannot_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "private", symlinks=False)
    monkeypatch.setattr(sys, "_base_executable", str(tmp_path / "private/bin/python"))
    with pytest.raises(
        SandboxError, match=r"^sandbox\.isolation=rlimits: .* cannot read /.*: let others enter [^\n]*$"
    ):
        await opened(isolation="rlimits", slots=1)


@pytest.mark.sample(1)
async def test_without_a_filter_of_system_calls_nothing_runs(
    isolation: str, below: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = "import os, types\nos.uname = lambda: types.SimpleNamespace(machine='riscv64')\n"
    monkeypatch.setattr("evorun.sandbox.launch._BOOT", elsewhere + _BOOT)
    with pytest.raises(SandboxError, match="no filter of system calls for riscv64"):
        await opened(isolation=isolation, slots=1)
    assert below() == []


UNLIMITED = "(its processes are not limited|more than 4 processes)"  # by whom it is seen first


@pytest.mark.parametrize(
    ("isolation", "module", "wall", "hole", "said"),
    [
        (
            "bubblewrap",
            "syscalls",
            "[*_require_one_of(0, _AF_UNIX), *_refuse_bits(1, _DATAGRAM_BIT)]",
            "[]",
            "it opens sockets",
        ),
        pytest.param(
            "rlimits",
            "syscalls",
            '"umask": (95, 166)',
            '"umask": (95, 166), "unshare": (272, 97)',
            "it gets privileges",
            marks=NEEDS_NAMESPACES,
        ),
        ("namespaces", "start", " | kernel.CLONE_NEWNET", "", "it sees the network"),
        ("namespaces", "cell", "_show_own_processes(scratch)", "pass", "it sees the host's processes"),
        ("namespaces", "cell", 'settings["own_process_count"]', "False", UNLIMITED),
        (
            "rlimits",
            "syscalls",
            'name != "socket" or unix_sockets',
            "True",
            "it opens sockets to this machine's processes",
        ),
        pytest.param("rlimits", "cell", 'kernel.become(settings["user"])', "pass", "it runs as root", marks=AS_ROOT),
        pytest.param(
            *("rlimits", "cell", 'settings["own_process_count"]', "False", UNLIMITED),
            marks=[AS_ROOT, pytest.mark.nightly],
        ),
    ],
    indirect=["isolation"],
)
async def test_an_isolation_with_a_hole_is_refused(
    isolation: str, module: str, wall: str, hole: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Launch.boot_message

    def with_hole(launch: Launch) -> dict[str, Any]:
        message = whole(launch)
        modules = dict(message["modules"])
        assert wall in modules[f"evorun.sandbox.inside.{module}"]
        modules[f"evorun.sandbox.inside.{module}"] = modules[f"evorun.sandbox.inside.{module}"].replace(wall, hole)
        return {**message, "modules": list(modules.items())}

    monkeypatch.setattr(Launch, "boot_message", with_hole)
    with pytest.raises(SandboxError, match=rf"{isolation} does not work here: [^\n]*{said}[^\n]*$"):
        await opened(isolation=isolation, slots=1)


@pytest.mark.parametrize(
    "isolation", [pytest.param("bubblewrap", marks=pytest.mark.nightly), "namespaces"], indirect=True
)
async def test_nothing_of_ours_may_lie_where_programs_can_read(
    isolation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SandboxConfig(isolation=isolation, slots=1)
    seen = Path(json.__file__).parent
    with pytest.raises(SandboxError, match="it sees the host's files"):
        await Sandbox.open(config, [seen])
    await (await Sandbox.open(config, [tmp_path, tmp_path / "missing"])).close()
    monkeypatch.setenv("EVORUN_DATA", str(seen))
    with pytest.raises(SandboxError, match="it sees the host's files"):
        await Sandbox.open(config)


def replaced(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a shell script in the place of the bwrap program."""
    (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


async def test_a_bubblewrap_that_hangs_is_tried_once_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(tmp_path, f"echo started >> {tmp_path}/starts\nsleep 987.6 &\nsleep 987.6", monkeypatch)
    monkeypatch.setattr("evorun.sandbox.zygotes.START_SECONDS", 0.5)
    with pytest.raises(SandboxError, match=r"^sandbox\.isolation=bubblewrap: .* no answer in 0\.5 s; install [^\n]*$"):
        await opened(isolation="bubblewrap")
    assert (tmp_path / "starts").read_text() == "started\n"
    await until(lambda: not any(process.info["cmdline"] == ["sleep", "987.6"] for process in everyone()))


def everyone() -> list[psutil.Process]:
    return list(psutil.process_iter(["cmdline"]))


async def test_a_broken_bubblewrap_is_told_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(tmp_path, "echo bwrap: out of order >&2\nexit 1", monkeypatch)
    with pytest.raises(SandboxError) as caught:
        await opened(isolation="bubblewrap")
    assert str(caught.value).count("out of order") == 1
    assert str(caught.value).count("isolation=bubblewrap") == 1


def test_without_bubblewrap_auto_uses_namespaces() -> None:
    found = look("auto", env={**os.environ, "PATH": "/nonexistent"})
    if found[0] == "none":
        pytest.skip("namespaces are denied on this machine")
    assert found == ["namespaces", True, ""]


async def test_without_runsc_gvisor_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxError, match=r"^sandbox\.isolation=gvisor: runsc is not installed; install [^\n]*$"):
        await opened(isolation="gvisor")


@pytest.mark.nightly
@AS_ROOT
@pytest.mark.parametrize(
    "isolation",
    ["namespaces", *(pytest.param(other, marks=pytest.mark.nightly) for other in ("bubblewrap", "rlimits"))],
)
def test_an_ordinary_user_can_do_the_same(isolation: str) -> None:
    if not SYSTEMS_OWN.exists() or version_of(SYSTEMS_OWN) != str(sys.version_info[:2]):
        pytest.skip("no interpreter of this version that others can read")
    locks_us_out = "import os\nos.makedirs('a/b')\nos.symlink('/', 'a/c')\nos.chmod('a', 0)\nos.chmod('.', 0)"
    programs = {
        "import numpy, os\nprint(os.getuid())": "completed 65534",
        # Where no mount limits its size, a folder that cannot be looked into counts as too large.
        locks_us_out: "runtime_error " if isolation == "rlimits" else "completed ",
        "import os, time\nwhile True:\n    os.fork()\n    time.sleep(0.01)": "",
    }
    script = (
        "import asyncio, os\nfrom evorun.sandbox import *\nasync def main():\n"
        f"    s = await Sandbox.open(SandboxConfig({isolation!r}, slots=1))\n"
        f"    for source in {list(programs)!r}:\n"
        "        e = await s.run(Program(source), '', Limits(cpu_seconds=3, processes=8))\n"
        "        print(e.end, e.stdout.strip())\n    print(s._scratch and os.listdir(s._scratch))\n"
        "    await s.close()\nasyncio.run(main())"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [str(SYSTEMS_OWN), "-c", script], capture_output=True, text=True, timeout=60, env=environment, cwd="/",
        user=65534, group=65534, extra_groups=[],
    )  # fmt: skip
    if "does not work here" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    *ended, left = done.stdout.split("\n")[:-1]
    assert ended[:2] == list(programs.values())[:2]
    assert ended[2].split()[0] in ("runtime_error", "memory_limit", "time_limit")
    assert left in ("None", "[]")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"isolation": "docker"}, "sandbox.isolation: expected one of auto, bubblewrap"),
        ({"slots": 0}, "sandbox.slots: expected a number >= 1, got 0"),
        ({"packages": ["../etc"]}, "sandbox.packages: expected names of top-level packages, got '../etc'"),
    ],
)
def test_wrong_settings_name_their_key(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SandboxConfig(**settings)  # type: ignore[arg-type]
    assert said in str(caught.value)


async def test_a_look_is_possible_where_a_loop_runs(below: Below) -> None:
    found = probe(SandboxConfig())
    assert found.isolation in ("bubblewrap", "namespaces") if user_namespaces_work() else ("none",)
    assert issubclass(SandboxError, EvorunError)
    assert below() == []
