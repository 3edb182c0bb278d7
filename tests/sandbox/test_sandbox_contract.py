"""The world that a program sees, and the results of its execution and its tests."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from evorun.errors import SandboxError
from evorun.sandbox import Case, Execution, Limits, Program, Sandbox, SandboxConfig, Suite, test
from evorun.sandbox.testing import LONGEST_TEXT

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(cpu_seconds=30.0)  # out of reach: no verdict may depend on the machine's speed
LOW_MEMORY = Limits(cpu_seconds=30.0, memory_mib=100)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    opened = await Sandbox.open(SandboxConfig(slots=1))
    yield opened
    await opened.close()


async def script(sandbox: Sandbox, source: str, stdin: str = "", limits: Limits = LIMITS) -> Execution:
    return await sandbox.run(Program(source), stdin, limits)


async def call(sandbox: Sandbox, source: str, entry: str, *arguments: object) -> Execution:
    return await sandbox.run(Program(source, entry), "\n".join(map(json.dumps, arguments)), LIMITS)


@pytest.mark.parametrize(
    ("source", "stdin", "stdout"),
    [
        ("print(input())", "a\n", "a\n"),
        ("import sys\nprint(sys.stdin.read())", "a\nb", "a\nb\n"),
        ("import sys\nfor line in sys.stdin: print(line.strip()[::-1])", "ab\ncd\n", "ba\ndc\n"),
        ("print(open(0).read())", "ab", "ab\n"),
        ("print(open('/dev/stdin').read())", "ab", "ab\n"),
        ("import os\nprint(os.read(0, 9))", "ab", "b'ab'\n"),
        ("import sys\ni = input()\nprint(i, sys.stdin.read())", "a\nb", "a b\n"),
        ("import sys\nprint(sys.stdin.buffer.readline(), sys.stdin.buffer.readline())", "a\nb\n", "b'a\\n' b'b\\n'\n"),
        ("print(input() + '\u00e9\U0001f600')", "\u00df\n", "\u00df\u00e9\U0001f600\n"),
        ("print(repr(input()))", "a\r\n", "'a'\n"),
        ("import sys\nsys.stdout.write('no newline')", "", "no newline"),
        ("if __name__ == '__main__': print('main')", "", "main\n"),
        ("\ufeffprint(1)", "", "1\n"),
        ("# -*- coding: latin-1 -*-\nprint('\u00e9')", "", "\u00e9\n"),
        ("print(1)\r\nprint(2)\r\n", "", "1\n2\n"),
        ("from __future__ import annotations\nprint(1)", "", "1\n"),
        ("", "", ""),
        ("print(1)\nexit()\nprint(2)", "", "1\n"),
        ("print(1)\nquit(3)", "", "1\n"),
        ("import sys\nprint(1)\nsys.exit(3)", "", "1\n"),
        ("import atexit\natexit.register(print, 'last')\nprint('first')", "", "first\nlast\n"),
        ("import threading\nthreading.Thread(target=lambda: print('t')).start()", "", "t\n"),
        ("import subprocess\nprint(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True).stdout)", "",
         "b'1\\n'\n"),
        ("import os\nprint(os.system('echo x'))", "", "32512\n"),  # there is no shell
        ("import bz2, ctypes, decimal, hashlib, lzma, sqlite3, ssl, uuid, zlib\nprint(1)", "", "1\n"),
        ("import numpy as np\nprint(np.linalg.det(np.eye(3)))", "", "1.0\n"),
        ("import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, -2]))", "", "[1, 2]\n"),
        ("open('f', 'w').write('x')\nprint(open('f').read())", "", "x\n"),
        ("import tempfile\nwith tempfile.TemporaryFile() as f: print(f.write(b'x'))", "", "1\n"),
        ("import inspect\ndef f(): pass\nprint(inspect.getsource(f))", "", "def f(): pass\n\n"),
        ("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)", "", "A\n"),
        ("print(int('9' * 50000) % 10, len(str(10 ** 49999)))", "", "9 50000\n"),
        # the names that LiveCodeBench's harness gives
        ("print(gcd(4, 6), Counter('aab').most_common(1), deque([1]), heappop([1]), bisect_left([1], 1))", "",
         "2 [('a', 2)] deque([1]) 1 0\n"),
        ("def f(x: List[int]) -> Optional[int]: return reduce(add, accumulate(x))\nprint(f([1, 2]))", "", "4\n"),
        ("print(math.pi == pi, collections.OrderedDict, datetime.datetime.max.year, string.digits)", "",
         "True <class 'collections.OrderedDict'> 9999 0123456789\n"),
        ("print(stdin.readline(), pow(2, 3, 5))", "x", "x 3\n"),
        ("def f(n): return n and 1 + f(n - 1)\nprint(f(40000))", "", "40000\n"),
        ("@cache\ndef f(n): return n and 1 + f(n - 1)\nprint(f(20000))", "", "20000\n"),
    ],
)  # fmt: skip
async def test_scripts(sandbox: Sandbox, source: str, stdin: str, stdout: str) -> None:
    execution = await script(sandbox, source, stdin)
    assert (execution.end, execution.stdout, execution.exit_code) == ("completed", stdout, 0), execution.stderr
    assert execution.value is None


@pytest.mark.parametrize(
    ("source", "arguments", "value", "stdout"),
    [
        ("def f(a, b): return a + b", [1, 2], 3, ""),
        ("class Solution:\n    def f(self, s): return s[::-1]", ["ab\u00e9\n"], "\n\u00e9ba", ""),
        ("class Solution:\n    def __init__(self): self.x = 1\n    def f(self): return self.x", [], 1, ""),
        (
            "def f(x):\n    print('shown')\n    return x",
            [{"a": [1.5, None, True]}],
            {"a": [1.5, None, True]},
            "shown\n",
        ),
        ("def f(n): return tuple((i, i) for i in range(n))", [2], [[0, 0], [1, 1]], ""),
        ("def f(n):\n    for i in range(n): yield i", [3], [0, 1, 2], ""),
        ("def f(n): return map(str, range(n))", [2], ["0", "1"], ""),
        ("def f(n): return [range(n), deque([1]), zip('a', 'b')]", [2], [[0, 1], [1], [["a", "b"]]], ""),
        (
            "import numpy as np\ndef f(n): return [np.int64(n), np.arange(n), np.float64(0.5)]",
            [2],
            [2, [0, 1], 0.5],
            "",
        ),
        ("def f(x): pass", [1], None, ""),
        ("import sys\nsys.stdout = open('/dev/null', 'w')\nprint('lost')\ndef f(x): return x", [1], 1, ""),
        ("def f(x): return x\nif __name__ == '__main__': print(f('main'))", [1], 1, "main\n"),
    ],
)
async def test_entries(sandbox: Sandbox, source: str, arguments: list[object], value: object, stdout: str) -> None:
    execution = await call(sandbox, source, "Solution.f", *arguments)
    assert (execution.end, execution.stdout) == ("completed", stdout), execution.stderr
    assert json.loads(execution.value or "") == value


async def test_long_integers_go_in_and_out(sandbox: Sandbox) -> None:
    digits = "12345" * 9_000
    execution = await sandbox.run(Program("def f(n): return -n", "f"), digits, LIMITS)
    assert execution.value == f"-{digits}"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(x): return {1, 2}", "set"),
        ("def f(x): return object()", "object"),
        ("def f(x, y): return x", "TypeError"),
        ("def g(x): return x", "does not define Solution.f"),
        ("class Solution: pass", "AttributeError"),
        ("def f(x):\n    a = []\n    a.append(a)\n    return a", "ValueError"),
        ("def f(x): return 1 / 0", "ZeroDivisionError"),
    ],
)
async def test_entries_that_fail(sandbox: Sandbox, source: str, said: str) -> None:
    execution = await call(sandbox, source, "Solution.f", 1)
    assert (execution.end, execution.exit_code, execution.value) == ("runtime_error", 1, None)
    assert said in execution.stderr


@pytest.mark.parametrize(
    ("forged", "value"), [("import os\nos.write(3, b'v[42]')\nos._exit(0)", "[42]"), ("import os\nos._exit(0)", None),
                          ("exit()", None), ("import os\nos.write(3, b'nonsense')\nos._exit(0)", None)]
)  # fmt: skip
async def test_an_entry_that_does_not_return_gives_no_value_but_a_forged_one(
    sandbox: Sandbox, forged: str, value: str | None
) -> None:
    execution = await call(sandbox, forged, "f", 1)
    assert (execution.end, execution.value) == ("completed", value)


async def test_a_traceback_shows_the_programs_own_lines_only(sandbox: Sandbox) -> None:
    execution = await script(sandbox, "def f(x):\n    return 1 / x\n\nf(0)\n")
    lines = execution.stderr.splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", '  File "solution.py", line 4, in <module>']
    assert "    return 1 / x" in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert execution.stderr.count("File ") == 2


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print(", "SyntaxError"),
        ("x = 'a\0b'", "null bytes"),
        ("x = '\ud800'", "surrogates not allowed"),
        ("print('\\ud800')", "surrogates not allowed"),
        ("raise Exception('\\ud800')", "Exception: \\ud800"),
        ("import evorun", "No module named 'evorun'"),
        ("import torch", "No module named 'torch'"),
        ("input()", "EOFError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
async def test_runtime_errors(sandbox: Sandbox, source: str, said: str) -> None:
    execution = await script(sandbox, source)
    assert (execution.end, execution.exit_code, execution.signal) == ("runtime_error", 1, None)
    assert said in execution.stderr


async def test_stdin_with_a_lone_surrogate_reaches_the_program_as_bytes(sandbox: Sandbox) -> None:
    execution = await script(sandbox, "import os\nprint(os.read(0, 9))", "\ud800")
    assert execution.stdout == "b'\\xed\\xa0\\x80'\n"


@pytest.mark.parametrize(
    "source", ["print(1)", "import os\nos.close(0)\nprint(1)", "import sys\nsys.stdin.read(1)\nprint(1)"]
)
async def test_megabytes_of_input_that_nobody_reads(sandbox: Sandbox, source: str) -> None:
    execution = await script(sandbox, source, "x" * (8 << 20))
    assert (execution.end, execution.stdout) == ("completed", "1\n")


async def test_megabytes_in_and_out(sandbox: Sandbox) -> None:
    text = "0123456789\u00e9\n" * 300_000
    execution = await script(sandbox, "import sys\nsys.stdout.write(sys.stdin.read())", text)
    assert execution.stdout == text


@pytest.mark.parametrize(
    ("source", "limits", "end", "said"),
    [
        ("while True: pass", Limits(cpu_seconds=0.05), "time_limit", "0.05 s of CPU time"),
        ("import time\ntime.sleep(900)", Limits(wall_seconds=0.2), "time_limit", "0.2 s of wall time"),
        ("x = [0] * 10**8", LOW_MEMORY, "memory_limit", "100 MiB"),
        ("x = []\nwhile True: x.append([0] * 10**5)", LOW_MEMORY, "memory_limit", "100 MiB"),
        ("print('x' * 5000)", Limits(output_kib=4), "output_limit", "4 KiB"),
        ("open('f', 'w').write('x' * 2_000_000)", Limits(file_mib=1), "runtime_error", "File too large"),
        ("x = [open('/dev/null') for _ in range(20)]", Limits(open_files=16), "runtime_error", "Too many open files"),
        (
            "import os\nos.kill(os.getpid(), 11)\nimport ctypes\nctypes.string_at(0)",
            LIMITS,
            "runtime_error",
            "signal 11",
        ),
        ("import os\nos._exit(7)", LIMITS, "runtime_error", ""),
    ],
)
async def test_limits(sandbox: Sandbox, source: str, limits: Limits, end: str, said: str) -> None:
    execution = await script(sandbox, source, limits=limits)
    assert execution.end == end
    assert said in execution.stderr


async def test_no_crash_starts_the_machines_program_for_core_dumps(sandbox: Sandbox) -> None:
    source = "import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE))"
    assert (await script(sandbox, source)).stdout == "(1, 1)\n"  # 0 would, as core(5) says


async def test_an_allowed_program_stays_below_its_limits(sandbox: Sandbox) -> None:
    limits = Limits(cpu_seconds=30, memory_mib=200, output_kib=101, file_mib=2, open_files=20)
    source = "x = bytearray(100 << 20)\nprint('x' * 102_000)\nopen('f', 'w').write('x' * 2_000_000)"
    assert (await script(sandbox, source, limits=limits)).end == "completed"


async def test_time_is_the_programs_own(sandbox: Sandbox) -> None:
    asleep = await script(sandbox, "import time\ntime.sleep(0.4)")
    assert asleep.cpu_seconds < 0.4 <= asleep.wall_seconds
    busy = await script(sandbox, "import time\nwhile time.process_time() < 0.1: pass")
    assert 0.09 < busy.cpu_seconds < 3
    children = "import os\nfor _ in range(3):\n    if os.fork() == 0:\n        t = os.times()\n" \
               "        while sum(os.times()[:2]) < 0.05: pass\n        os._exit(0)\n    os.wait()"  # fmt: skip
    assert 0.12 < (await script(sandbox, children)).cpu_seconds < 3


async def test_signals_write_into_no_file_of_the_program(sandbox: Sandbox) -> None:
    source = (
        "import os, signal\nfiles = [open(f'f{i}', 'w') for i in range(20)]\n"
        "signal.signal(signal.SIGALRM, lambda *_: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nsignal.pause()\n"
        "print(sum(os.path.getsize(f.name) for f in files))"
    )
    assert (await script(sandbox, source)).stdout == "0\n"


FORKS = """
import os, threading, time
n = 1
try:
    while True:
        if os.fork() == 0:
            time.sleep(9)
        n += 1
except OSError:
    print(n, flush=True)
    os._exit(0)
"""


async def test_the_kernel_itself_limits_processes_for_root_too(sandbox: Sandbox) -> None:
    if not sandbox.fully_isolated:
        pytest.skip("left to the zygote, which looks now and then")
    execution = await script(sandbox, FORKS, limits=Limits(processes=6))
    assert (execution.end, execution.stdout) == ("completed", "6\n")


STATE = """
import os, sys, random, builtins, json, ctypes
shm = ctypes.CDLL(None).shmget(4711, 4096, 0)
print(json.dumps([os.listdir("."), dict(os.environ), sorted(os.listdir("/tmp")), hasattr(builtins, "mark"),
    hasattr(random, "mark"), "mark" in sys.modules, os.getcwd() == os.path.realpath("."), os.umask(0), shm,
    sys.getrecursionlimit(), __name__, "mark" in globals(), len(os.listdir("/dev/shm"))]))
seed = random.random()
"""
SPOIL = """
import os, sys, random, builtins, json, collections, ctypes, resource, time, locale
mark = builtins.mark = random.mark = sys.modules["mark"] = os
os.environ["mark"] = "1"
os.putenv("mark", "1")
open("mark", "w").write("x")
open("/dev/shm/mark", "w").write("x")
os.mkdir("d"); os.chdir("d"); os.umask(0)
ctypes.CDLL(None).shmget(4711, 4096, 0o1666)
json.dumps = json.loads = print = None
collections.Counter.most_common = lambda *_: 1
sys.path.clear(); sys.meta_path.clear(); sys.setrecursionlimit(100)
random.seed(1); time.time = lambda: 0
list.__class_getitem__
"""


async def test_nothing_passes_from_one_program_to_the_next(sandbox: Sandbox) -> None:
    before = await script(sandbox, STATE)
    assert before.end == "completed"
    assert (await script(sandbox, SPOIL)).end == "completed"
    assert (await script(sandbox, STATE)).stdout == before.stdout
    randoms = [await script(sandbox, "import random\nprint(random.random())") for _ in range(2)]
    assert randoms[0].stdout != randoms[1].stdout


async def test_the_order_of_sets_is_always_the_same(sandbox: Sandbox) -> None:
    source = "print({str(i) for i in range(20)})"
    first = (await script(sandbox, source)).stdout
    async with asyncio.timeout(30):
        other = await Sandbox.open(SandboxConfig(slots=1))
        assert (await other.run(Program(source), "", LIMITS)).stdout == first
        await other.close()


def suite(check: str, *cases: tuple[str, str], limits: Limits = LIMITS) -> Suite:
    return Suite(tuple(Case(*case) for case in cases), check, limits)  # type: ignore[arg-type]


async def test_verdicts_come_in_order(sandbox: Sandbox) -> None:
    source = (
        "n = int(input())\nif n == 3: 1 / 0\nwhile n == 4: pass\nx = bytearray(10**n)\n"
        "print('x' * 10**6 if n == 6 else n)"
    )
    cases = suite("lines", ("1", "1"), ("2", "7"), ("3", "3"), ("4", "4"), ("12", "12"), ("6", "6"),
                  limits=Limits(cpu_seconds=0.3, wall_seconds=60, output_kib=1))  # fmt: skip
    results = await test(sandbox, Program(source), cases, stop_at_failure=False)
    assert [r.verdict for r in results] == [
        "accepted", "wrong_answer", "runtime_error", "time_limit", "memory_limit", "output_limit"
    ]  # fmt: skip
    results = await test(sandbox, Program(source), cases, stop_at_failure=True)
    assert [(r.verdict, r.stdout) for r in results] == [("accepted", "1\n"), ("wrong_answer", "2\n")]


async def test_entries_are_compared_by_value(sandbox: Sandbox) -> None:
    program = Program("def f(x, y):\n    print('noise')\n    return x, y", "f")
    cases = suite("json", ('1\n"a"', '[1, "a"]'), ("1\n2", "[1,3]"))
    results = await test(sandbox, program, cases, stop_at_failure=False)
    assert [(r.verdict, r.value, r.stdout) for r in results] == [
        ("accepted", '[1, "a"]', "noise\n"), ("wrong_answer", "[1, 2]", "noise\n")
    ]  # fmt: skip


async def test_a_script_may_print_its_json_value(sandbox: Sandbox) -> None:
    cases = suite("json", ("1", "[true, 1]"), ("2", "[true, 1]"))
    results = await test(sandbox, Program("print((True, int(input())))"), cases, stop_at_failure=False)
    assert [r.verdict for r in results] == ["accepted", "wrong_answer"]


async def test_a_script_may_print_a_string_bare_and_a_callable_returns_a_string(sandbox: Sandbox) -> None:
    cases = suite("json", ("12", '"12"'), ("12", '"13"'))
    script = await test(sandbox, Program("print(input())"), cases, stop_at_failure=False)
    assert [r.verdict for r in script] == ["accepted", "wrong_answer"]
    callable_ = await test(sandbox, Program("def f(n): return n", "f"), cases, stop_at_failure=False)
    assert [r.verdict for r in callable_] == ["wrong_answer", "wrong_answer"]


async def test_large_outputs_are_compared_one_at_a_time(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    at_once = threading.Lock()

    def compare(*_: object, **__: object) -> bool:
        assert at_once.acquire(blocking=False)
        time.sleep(0.05)
        at_once.release()
        compared.append(1)
        return True

    monkeypatch.setattr("evorun.sandbox.testing.same_output", compare)
    large = suite("lines", ("", "1" * 30_000))
    await asyncio.gather(*(test(sandbox, Program("print(1)"), large, stop_at_failure=True) for _ in range(4)))
    assert len(compared) == 4


@pytest.mark.parametrize("source", ["", "import sys\nsys.exit()", "import os\nos.close(1)\nos._exit(0)"])
async def test_exiting_without_output_is_a_wrong_answer(sandbox: Sandbox, source: str) -> None:
    (result,) = await test(sandbox, Program(source), suite("lines", ("", "1")), stop_at_failure=True)
    assert result.verdict == "wrong_answer"


async def test_texts_of_results_are_cut(sandbox: Sandbox) -> None:
    source = "import sys\ndef f():\n    print('<' + 'o' * 9000 + '>')\n    sys.stderr.write('<' + 'e' * 9000 + '>')\n" \
             "    return '<' + 'v' * 9000 + '>'"  # fmt: skip
    (result,) = await test(sandbox, Program(source, "f"), suite("json", ("", "1")), stop_at_failure=True)
    for text, start, end in (
        (result.stdout, "<oo", "oo>\n"),
        (result.stderr, "<ee", "ee>"),
        (result.value or "", '"<v', 'v>"'),
    ):
        assert len(text) <= LONGEST_TEXT
        assert text.startswith(start)
        assert text.endswith(end)
        assert "characters left out" in text


async def test_a_closed_sandbox_says_so() -> None:
    sandbox = await Sandbox.open(SandboxConfig(slots=1))
    await sandbox.close()
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.run(Program(""), "", LIMITS)
    await sandbox.close()
