"""The untrusted program's process: runs it as LiveCodeBench's harness would, and sends an entry's result."""

import atexit
import builtins
import gc
import io
import json
import linecache
import os
import site
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

FILE_NAME = "solution.py"

# An entry's result goes here. Its first byte is RESULT or OUT_OF_MEMORY.
RESULT_DESCRIPTOR = 3
RESULT, OUT_OF_MEMORY = b"v", b"m"
# A file with the program's source, entry and arguments; closed before the program's first line.
TEXTS_DESCRIPTOR = 4

# LiveCodeBench's harness imports all names of these modules, in this order: later ones hide earlier ones.
STAR_IMPORTS = (
    "string",
    "re",
    "datetime",
    "collections",
    "heapq",
    "bisect",
    "copy",
    "math",
    "random",
    "statistics",
    "itertools",
    "functools",
    "operator",
    "io",
    "sys",
    "json",
    "builtins",
    "typing",
)
_RECURSION_LIMIT = 50_000
_MAX_DIGITS = 50_000
_THREAD_STACK = 8 << 20


def main_module() -> types.ModuleType:
    """Import the harness's modules and return the `__main__` that every forked program starts with."""
    names: dict[str, Any] = {}
    for module in STAR_IMPORTS:
        exec(f"from {module} import *", names)  # noqa: S102
    for module in STAR_IMPORTS[:-2]:
        exec(f"import {module}", names)  # noqa: S102
    del names["__builtins__"]
    # Without the builtins: as globals of a module they would hide a builtin that the program replaces.
    main = types.ModuleType("__main__")
    main.__dict__.update((name, value) for name, value in names.items() if vars(builtins).get(name) is not value)
    main.__dict__.update(__builtins__=builtins, __file__=FILE_NAME)
    return main


def settle() -> None:
    """Make this interpreter look like one started normally. Call once, before any program runs."""
    # An interpreter started with -S lacks exit(), copyright and help().
    site.setquit()
    site.setcopyright()
    site.sethelper()
    sys.setrecursionlimit(_RECURSION_LIMIT)
    sys.set_int_max_str_digits(_MAX_DIGITS)
    threading.stack_size(_THREAD_STACK)  # the default is the main thread's, which is very large here
    sys.argv[:] = [FILE_NAME]
    os.environ.clear()
    # One thread for linear algebra: the limit on processes counts threads. putenv leaves os.environ empty.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.putenv(variable, "1")


def run(lengths: list[int], module: types.ModuleType) -> NoReturn:
    """Run the program in this process, then exit. `lengths`: of source, entry (0 for a script) and arguments."""
    # Keep local names, since a program may replace the attributes of modules.
    leave, report = os._exit, traceback.print_exception
    shut_down, run_exit_functions = threading._shutdown, atexit._run_exitfuncs  # type: ignore[attr-defined]
    encode, send = _encode, _send
    code = 1
    try:
        source, entry, arguments = _texts(lengths)
        _fresh_state(source)
        main = module.__dict__
        main.update(stdin=sys.stdin, stdout=sys.stdout, stderr=sys.stderr)
        sys.modules["__main__"] = module
        try:
            exec(compile(source.removeprefix("\ufeff"), FILE_NAME, "exec", dont_inherit=True), main)  # noqa: S102
            if entry:
                values = [json.loads(line) for line in arguments.split("\n") if line.strip()]
                send(RESULT + encode(_find(main, entry)(*values)))
        except SystemExit as exit_:
            if isinstance(exit_.code, str):
                print(exit_.code, file=sys.stderr)
        shut_down()  # as in a normal exit: wait for threads, then call the functions of atexit
        run_exit_functions()
        _flush()
        code = 0
    except MemoryError as error:
        send(OUT_OF_MEMORY)
        _show(error, report)
    except BaseException as error:  # whatever a program raises is its result
        _show(error, report)
    finally:
        try:
            _flush()
        finally:
            leave(code)


def _texts(lengths: list[int]) -> list[str]:
    os.lseek(TEXTS_DESCRIPTOR, 0, os.SEEK_SET)
    with open(TEXTS_DESCRIPTOR, "rb") as file:
        return [file.read(length).decode("utf-8", "surrogatepass") for length in lengths]


def _fresh_state(source: str) -> None:
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), encoding="utf-8")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _writer(1, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace")  # type: ignore[misc]
    # The source is in no file: without this, tracebacks and inspect would show no lines.
    linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(keepends=True), FILE_NAME)
    for name in [name for name in sys.modules if name.split(".")[0] == "evorun"]:
        del sys.modules[name]
    gc.enable()


def _writer(descriptor: int, errors: str) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=descriptor == 2)


def _find(main: dict[str, Any], entry: str) -> Callable[..., Any]:
    owner, _, method = entry.rpartition(".")
    if owner and owner in main:
        found = getattr(main[owner](), method)
    elif method in main:
        found = main[method]
    else:
        raise NameError(f"the program does not define {entry}")
    return found  # type: ignore[no-any-return]


def _encode(result: Any) -> bytes:
    return json.dumps(list(result) if isinstance(result, Iterator) else result, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Convert values that JSON lacks to ones that it has: numpy's numbers and arrays, iterators, deques, ranges."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Iterator) or type(value).__name__ in ("deque", "range", "dict_keys", "dict_values"):
        return list(value)
    raise TypeError(f"the result holds a {type(value).__name__}, which is not JSON")


def _send(message: bytes) -> None:
    while message:
        message = message[os.write(RESULT_DESCRIPTOR, message) :]


def _show(error: BaseException, report: Callable[..., None]) -> None:
    """Print the traceback from the program's first line on, even if the program has replaced sys.stderr."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != FILE_NAME:
        frames = frames.tb_next
    stream = _writer(2, "backslashreplace")
    report(type(error), error, frames, file=stream)
    stream.flush()


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except ValueError:  # the program has closed or detached it: nothing is left to write
            pass
