"""Measures how many small faults the tests find: a sample of mutants, each run against the tests that reach it.

    git worktree add --detach ../mutants
    python scripts/measure_mutants.py ../mutants mutants.jsonl --count 300 --seed 0

TREE is a checkout for nothing else: its files are changed, and put back. First each quick test file runs once, with a
probe at every sampled place, which says what test evaluates what. Then each mutant runs against the tests that reach
its place and, if these pass, against the whole of their files; these lists end at --limit seconds. What they let pass
runs against all tests of the files that import its module or bear its name, slow ones too. SKIPPED names what is left
out.

With --nightly the nightly tests run, too. `--again OUTPUT --nightly` says what these add to the tests of the day.

The output has a line for each mutant; those in it are not run again. --again OUTPUT runs the survivors of an earlier
output. cosmic-ray runs one command in a new interpreter for each mutant, mutmut mutates functions without decorators
only, no constants or defaults, and neither draws a sample: so this is a script of its own.
"""

import argparse
import contextlib
import gc
import importlib
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from mutants import ROOMS, Mutant, draw, find_files, find_sites

SKIPPED = re.compile(
    "net/|sandbox/|models/|traces/|testing/|_chromium|_page|_drawn|comparison_|_legends|_tables|laft_"
    "|test_(cli|bench|packaging|docs|doctor|commands|hydra|configs|model_texts|examples|foreign|resume|process|stages)"
)
"""Test files that take long, or would find any change without saying what it breaks."""
ALL = "not chromium and not vllm and not all_pairs"
QUICK = "not slow and not embedded"
WARM = (
    *("numpy", "scipy.stats", "scipy.optimize", "hypothesis.extra.numpy", "pytest_asyncio.plugin", "msgspec", "hydra"),
    *("omegaconf", "rich", "aiohttp", "jinja2", "yaml", "psutil", "sympy", "networkx", "trueskill", "matplotlib"),
)
"""Modules that most tests import; each run is a fork of a process that has."""

PROBE = '(("_reach_{0}" in globals() or globals().update(_reach_{0}=open("{1}/{0}", "a"))), ('
"""Text before a sampled expression, so that its first evaluation since the last test leaves a file."""


def probed(source: bytes, sites: Sequence[tuple[int, Mutant]], folder: Path) -> bytes:
    """Return a file's text with probes around expressions: the outer one's begins first and ends last."""
    inserted = []
    for number, mutant in sites:
        for start, end in {(mutant.start, mutant.end), *mutant.uses}:
            inserted.append((start, 1, -end, number, PROBE.format(number, folder).encode()))
            inserted.append((end, 0, -start, -number, b"))[1]"))
    for place, *_, text in sorted(inserted, reverse=True):
        source = source[:place] + text + source[place:]
    return source


class Plugin:
    """Runs the wanted tests in their order; notes what each reaches, how long it takes and which fail."""

    def __init__(self, reached: Path, wanted: Sequence[str] | None) -> None:
        self.reached, self.wanted = reached, None if wanted is None else {test: at for at, test in enumerate(wanted)}
        self.tests: dict[str, tuple[float, list[int]]] = {}
        self.failed: list[str] = []
        self.begun = 0.0

    def take(self) -> list[int]:
        """Return the places that were reached since the last call, and forget them."""
        found = [int(path.name) for path in self.reached.iterdir()]
        for number in found:
            (self.reached / str(number)).unlink()
        for name, module in list(sys.modules.items()) if found else ():
            for number in found if name.startswith("evorun") else ():
                vars(module).pop(f"_reach_{number}", None)
        return found

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if wanted := self.wanted:
            items[:] = sorted((item for item in items if item.nodeid in wanted), key=lambda item: wanted[item.nodeid])
        self.take()

    def pytest_runtest_logstart(self) -> None:
        self.begun = _cpu()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.tests[nodeid] = (round(_cpu() - self.begun, 3), self.take())

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed or (report.skipped and self.wanted is None):
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class Tests:
    """The tests of a tree, run in forks of this process, which has imported what they share but nothing of evorun."""

    def __init__(self, tree: Path, scratch: Path, files: Sequence[str] = (), *, nightly: bool = False) -> None:
        self.all = ALL if nightly else f"{ALL} and not nightly"
        self.quick = f"{QUICK} and {self.all}"
        self.tree, self.scratch, self.reached = tree, scratch, scratch / "reached"
        self.reached.mkdir()
        found = sorted(str(path.relative_to(tree)) for path in (tree / "tests").rglob("test_*.py"))
        found = list(files) or [file for file in found if not SKIPPED.search(file)]
        self.texts = {file: (tree / file).read_text(encoding="utf-8") for file in found}
        self.seconds: dict[str, float] = {}
        """CPU time of each test that passes on the tree as it is."""
        self.reaching = defaultdict[int, list[str]](list)
        """Tests by the number of what they evaluate."""
        os.chdir(tree)
        sys.path[:0] = [str(tree), str(tree / "tests"), str(tree / "scripts")]
        os.environ.update(PYTHONPATH=str(tree), OMP_NUM_THREADS="1")
        for module in WARM:
            importlib.import_module(module)
        gc.freeze()

    def run(self, files: Sequence[str], wanted: Sequence[str] | None, limit: float, marked: str) -> dict[str, Any]:
        """Run files, or the wanted tests of them until one fails, in a fork; `limit` is its CPU time."""
        result = self.scratch / "result.json"
        result.write_text('{"tests": {}, "failed": ["(it ran out of time)"]}')
        child = os.fork()
        if not child:
            try:
                self._run_here(files, wanted, limit, marked, result)
            finally:
                os._exit(1)
        ends = time.monotonic() + 300 + 10 * limit
        while not os.waitpid(child, os.WNOHANG)[0]:
            if time.monotonic() > ends:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # processes that its tests have left
        for left in self.reached.iterdir():
            left.unlink()
        return dict(json.loads(result.read_text()))

    def _run_here(
        self, files: Sequence[str], wanted: Sequence[str] | None, limit: float, marked: str, result: Path
    ) -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        plugin = Plugin(self.reached, wanted)
        options = ["-q", "-m", marked, "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=150"]
        options += [f"--basetemp={self.scratch / 'pytest'}", *([] if wanted is None else ["-x"])]
        code = pytest.main([*options, *files], plugins=[plugin])
        failed = plugin.failed or ["(pytest ended with an error)"] * (code not in (0, 5))
        result.write_text(json.dumps({"tests": plugin.tests, "failed": failed}))

    def probe(self, sample: Sequence[Mutant], notes: Path) -> None:
        """Learn what reaches what; what `notes` has of an earlier call is not run again."""
        known = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
        sites = defaultdict[str, list[tuple[int, Mutant]]](list)
        for number, mutant in enumerate(sample):
            sites[mutant.file].append((number, mutant))
        changed = {file: probed((self.tree / file).read_bytes(), found, self.reached) for file, found in sites.items()}
        with notes.open("a") as kept, replaced(self.tree, changed):
            for folder in sorted({str(Path(file).parent) for file in self.texts} - {note["folder"] for note in known}):
                files = [file for file in self.texts if str(Path(file).parent) == folder]
                known.append({"folder": folder, **self.run(files, None, 1200, self.quick)})
                print(json.dumps(known[-1]), file=kept, flush=True)
        for note in known:
            for test, (seconds, numbers) in note["tests"].items():
                if test not in note["failed"]:
                    self.seconds[test] = seconds
                    for number in numbers:
                        self.reaching[number].append(test)

    def choose(self, number: int, mutant: Mutant, limit: float) -> Iterator[tuple[list[str], list[str]]]:
        """Yield files and tests of them to run, one after the other until one fails; no tests: all of them."""
        module, stem = mutant.file.removesuffix(".py").replace("/", "."), Path(mutant.file).stem
        imported = re.compile(rf"{re.escape(module)} import|import .*\b{stem}\b")
        names = re.compile(rf"\b({'|'.join({*mutant.scope.partition('#')[0].split('.'), stem})})\b")
        about = {
            file: 2 * bool(imported.search(text)) + 4 * (stem in Path(file).stem) + bool(names.search(text))
            for file, text in self.texts.items()
        }
        reaching = self.reaching[number]
        if mutant.at_import:  # the test that imports the module evaluates a default; those that use it do not
            reaching = [test for test in self.seconds if about[test.partition("::")[0]]]
        near = {test.partition("::")[0] for test in reaching}
        for tests in (reaching, [test for test in self.seconds if test.partition("::")[0] in near]):
            left, chosen = limit, []
            for test in sorted(tests, key=lambda test: (-about[test.partition("::")[0]], self.seconds[test])):
                left -= self.seconds[test]
                if left > 0:
                    chosen.append(test)
            if chosen:
                yield list(dict.fromkeys(test.partition("::")[0] for test in chosen)), chosen
        room = [file for file in about if file.startswith(f"tests/{Path(mutant.file).parts[1]}/")]
        named = [file for file, score in about.items() if score > 1]
        yield sorted(named, key=lambda file: -about[file]) or room, []

    def judge(self, number: int, mutant: Mutant, limit: float) -> dict[str, Any]:
        """Run a mutant against what `choose` yields; what fails without it, too, tells nothing."""
        source, ran = (self.tree / mutant.file).read_bytes(), 0
        text = source[: mutant.start] + mutant.after.encode() + source[mutant.end :]
        for files, tests in self.choose(number, mutant, limit):
            seconds = 600 if not tests else 30 + 3 * sum(self.seconds[test] for test in tests)
            with replaced(self.tree, {mutant.file: text}):
                found = self.run(files, tests, seconds, self.quick if tests else self.all)
            ran += len(found["tests"])
            if found["failed"] and (tests or not self.run(files, found["failed"], seconds, self.all)["failed"]):
                return {"result": "killed", "tests": ran, "by": found["failed"]}
        return {"result": "survived", "tests": ran, "by": []}


@contextlib.contextmanager
def replaced(tree: Path, texts: Mapping[str, bytes]) -> Iterator[None]:
    """Give files other texts, and then their own again with the times that bytecode was cached for."""
    paths = {tree / file: text for file, text in texts.items()}
    before = {path: (path.read_bytes(), path.stat()) for path in paths}
    try:
        for path, text in paths.items():
            path.write_bytes(text)
        yield
    finally:
        for path, (text, stat) in before.items():
            path.write_bytes(text)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def show(records: Sequence[Mapping[str, Any]]) -> None:
    """Print what was killed by room, and the survivors."""
    print("room | mutants | killed | survived | rate")
    for room in [*dict.fromkeys(record["room"] for record in records), "all"]:
        results = [record["result"] for record in records if room in (record["room"], "all")]
        killed = results.count("killed")
        print(room, len(results), killed, len(results) - killed, f"{killed / len(results):.1%}", sep=" | ")
    for record in records:
        if record["result"] != "killed":
            place = f"{record['file']}:{record['line']} ({record['operator']}, {record['tests']} tests)"
            print(place, f"    {record['before']}\n  -> {record['after']}", sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", choices=list(ROOMS), default=list(ROOMS))
    parser.add_argument("--limit", type=float, default=15.0, help="seconds of tests to run against a mutant, each time")
    parser.add_argument("--tests", nargs="+", default=[], help="test files, from TREE's root; all, by default")
    parser.add_argument("--nightly", action="store_true", help="run the nightly tests, too")
    parser.add_argument("--again", type=Path, help="run the survivors of this output, instead of a sample")
    given = parser.parse_args()
    tree, output = given.tree.resolve(), given.output.resolve()
    sample = draw(tree, given.rooms, given.count, given.seed)
    if given.again:
        keys = {record["key"] for record in map(json.loads, given.again.open()) if record["result"] != "killed"}
        sites = [site for room in ROOMS for path in find_files(tree, room) for site in find_sites(tree, room, path)]
        sample = [mutant for site in sites for mutant in site if mutant.key in keys]
        print(f"{len(keys)} survived, {len(sample)} of them are still there")
    records = [json.loads(line) for line in output.open()] if output.exists() else []
    done = {record["key"] for record in records}
    with tempfile.TemporaryDirectory() as scratch, output.open("a") as kept:
        tests = Tests(tree, Path(scratch), given.tests, nightly=given.nightly)
        tests.probe(sample, output.with_suffix(".reach.jsonl"))
        for number, mutant in enumerate(sample):
            if mutant.key not in done:
                records.append({**asdict(mutant), "key": mutant.key, **tests.judge(number, mutant, given.limit)})
                print(json.dumps(records[-1]), file=kept, flush=True)
    show(records)


if __name__ == "__main__":
    main()
