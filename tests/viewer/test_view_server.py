"""The server of `evorun view`: who gets an answer, what a planted folder gains, and what is read again."""

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from building import simulated_run
from evorun.cli.verbs import run_verb
from evorun.errors import EvorunError, RunDirectoryError
from evorun.reports.comparison import compare, render_comparison
from evorun.reports.html import render_report
from evorun.runs.job_search import display_as_text
from evorun.runs.sweeps import JobInSweep, new_sweep, write_sweep
from evorun.viewer import index, pages
from evorun.viewer.index import Index
from evorun.viewer.live import load_live
from evorun.viewer.pages import PageError, Workers, read_live
from evorun.viewer.server import Viewer
from prepared_runs import DUELS, SMALL_DUELS
from run_fixture import HOSTILE, RunSpec, write_run
from warm_process import no_figures

TOKEN = "the_token_that_only_the_user_has"
SECRET = "what another file of this user says"


class Inline(Workers):
    """Draws pages in this process: what they hold is the same."""

    async def run(self, function: Callable[..., bytes], *arguments: object) -> bytes:
        try:
            return function(*arguments)
        except EvorunError as error:
            raise PageError(str(error)) from error


@pytest.fixture(name="finished", scope="module")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a simulated run, for tests that only read."""
    folder = tmp_path_factory.mktemp("finished")
    simulated_run(folder / "run", *DUELS, *SMALL_DUELS)
    return folder


@pytest.fixture(name="folder")
def _folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "runs"))


@pytest.fixture(name="match")
def _match(finished: Path, tmp_path: Path) -> Path:
    """Return the folder of a tournament of a run with its copy."""
    runs = [str(shutil.copytree(finished / "run", tmp_path / "players" / name)) for name in ("one", "two")]
    words = [*runs, "judge=oracle", f"folder={tmp_path}/match", "resamples=9", "repetitions=1"]
    assert run_verb("tournament", words) == 0
    return tmp_path / "match"


class Page:
    """A client of a viewer over a folder, which is looked at before each request."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self.client = TestClient(TestServer(viewer.make_app()))

    async def get(self, address: str, token: str = TOKEN, **headers: str) -> tuple[int, str, Any]:
        self.viewer._rested_at = 0.0
        with contextlib.suppress(RunDirectoryError):
            await self.viewer.look()
        self.viewer._rested_at = 0.0
        async with self.client.get(f"/{token}/{address}", headers=headers) as answer:
            return answer.status, await answer.text(), answer.headers

    async def changes(self, since: int = 0) -> Any:
        return json.loads((await self.get(f"runs.json?since={since}"))[1])


@pytest.fixture(name="page")
async def _page(folder: Path) -> AsyncIterator[Page]:
    page = Page(Viewer([folder], TOKEN, Inline()))
    await page.client.start_server()
    with no_figures():
        yield page
    await page.client.close()


def by_name(answer: Any) -> dict[str, Any]:
    return {each["run"]["status"]["name"].rpartition("/")[2]: each for each in answer["runs"]}


# --- who gets an answer ---


async def addresses(page: Page) -> list[str]:
    (number,) = (await page.changes())["order"]
    return ["", "runs.json", f"run/{number}", f"live/{number}", f"compare?run={number}&run={number}", "nothing"]


async def test_nobody_without_the_token_gets_an_answer(page: Page) -> None:
    for address in await addresses(page):
        for token in ("runs.json", "another", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "%ff", "..", f"{TOKEN}%2f"):
            status, text, _ = await page.get(address, token)
            assert (status, text) == (403, "expected the address that evorun view printed, with its token")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("127.0.0.1", "localhost:8000", "[::1]:9", "LOCALHOST")),
        *(
            (host, 403)
            for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example")
        ),
        *((host, 403) for host in ("localhost@evil.example", "evil.example@localhost", "", "[", "10.0.0.1", "0.0.0.0")),
    ],
)
async def test_a_name_of_another_host_gets_no_answer(page: Page, host: str, status: int) -> None:
    for address in ("", "runs.json"):
        assert (await page.get(address, Host=host))[0] == status


async def test_nothing_can_be_asked_but_to_read(page: Page) -> None:
    for address in (await addresses(page))[:-2]:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            async with page.client.request(method, f"/{TOKEN}/{address}") as answer:
                assert answer.status == 405


async def test_each_answer_forbids_what_it_does_not_need(page: Page) -> None:
    policies = {}
    for address in await addresses(page):
        _, _, headers = await page.get(address)
        policies[address.partition("/")[0]] = headers["Content-Security-Policy"].split("; ")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"  # an address has the token
        assert headers["Cache-Control"] == "no-store"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers
    for policy in policies.values():
        assert {"default-src 'none'", "frame-ancestors 'none'"} <= {*policy}
        assert not [
            part for part in policy if part.startswith("script-src") and not part.startswith("script-src 'sha256-")
        ]
    assert policies["runs.json"] == ["default-src 'none'", "frame-ancestors 'none'"]
    # a page of a run has an origin of its own, from which this server answers nothing
    assert "sandbox allow-scripts allow-downloads allow-popups" in policies["run"]
    assert "connect-src 'self'" in policies[""]
    assert not [part for part in policies["run"] if part.startswith("connect-src")]


# --- pages ---


async def test_the_pages_are_those_of_evorun_report(page: Page, folder: Path) -> None:
    second_run = Path(shutil.copytree(folder / "run", folder / "second"))
    manifest = json.loads((second_run / "manifest.json").read_text())
    changed = {**manifest, "seed": 1, "config": {**manifest["config"], "seed": 1}}
    (second_run / "manifest.json").write_text(json.dumps(changed))
    first, second = (await page.changes())["order"]
    assert (await page.get(f"run/{first}"))[1] == render_report(folder / "run")
    status, text, _ = await page.get(f"compare?run={second}&run={first}&run={second}")
    compared = compare([folder / "second", folder / "run"])
    links = {"run": f"run/{first}", "second": f"run/{second}"}
    by_run = {run.name: links[run.outcome.run_dir.name] for run in compared.runs}
    assert (status, text) == (200, render_comparison(compared, by_run))
    assert f'href="run/{first}"' in text
    assert (await page.get(f"compare?run={first}"))[0] == 400
    assert (await page.get(f"compare?run={first}&run=0"))[0] == 404


async def test_a_page_is_drawn_once_for_each_state(page: Page, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (number,) = (await page.changes())["order"]
    drawn = []
    monkeypatch.setattr(
        "evorun.viewer.server.draw_run",
        lambda run: drawn.append(run) or b'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">',
    )
    for _ in range(3):
        assert (await page.get(f"run/{number}"))[0] == 200
    assert len(drawn) == 1
    with (folder / "run" / "steps.jsonl").open("a") as file:
        file.write("\n")
    await page.changes()
    await page.get(f"run/{number}")
    assert len(drawn) == 2


async def test_a_run_at_a_glance(page: Page, folder: Path) -> None:
    (number,) = (await page.changes())["order"]
    seen = json.loads((await page.get(f"live/{number}"))[1])
    points = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    means = [(point["step"], point["value"]) for point in points if point["name"] == "accuracy"]
    assert [(point["step"], point["value"]) for point in seen["curves"][0]["points"]] == means
    assert {text["role"] for text in seen["texts"]} == {"generate", "judge"}
    candidates = (folder / "run" / "candidates.jsonl").read_text()
    for text in seen["texts"]:
        assert text["role"] == "judge" or json.dumps(text["text"])[1:-1] in candidates
    (folder / "run" / "metrics.jsonl").unlink()  # as before a run's end: counted from its steps
    (folder / "run" / "journal.sqlite").unlink()
    live = load_live(folder / "run")
    assert [(point.step, point.value) for point in live.curves[0].points] == means
    assert live.texts == []
    assert "found no file" in str(live.note)


# --- what is live ---


async def test_only_what_has_changed_is_sent(page: Page, folder: Path) -> None:
    write_run(folder / "other", RunSpec(problems=1))
    first = await page.changes()
    assert {*by_name(first)} == {"run", "other"}
    assert await page.changes(first["version"]) == {"version": first["version"]}
    write_run(folder / "third", RunSpec(problems=1))
    second = await page.changes(first["version"])
    assert {*by_name(second)} == {"third"}
    assert len(second["order"]) == 3
    shutil.rmtree(folder / "other")
    third = await page.changes(second["version"])
    assert third["runs"] == []
    assert len(third["order"]) == 2
    shutil.rmtree(folder)
    status, text, _ = await page.get(f"runs.json?since={third['version']}")
    assert (status, "expected a folder of runs" in text) == (503, True)


async def test_a_run_that_goes_on_is_seen_to_run_and_to_be_killed(page: Page, folder: Path) -> None:
    run = write_run(folder / "live", RunSpec(problems=2, finished=False, manifest={"status": "running"}))
    (run / ".lock").touch()
    with (run / ".lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        first = await page.changes()
        assert by_name(first)["live"]["run"]["status"]["state"] == "running"
        progress = {"share": 0.25, "ended": 1, "problems": 4, "calls": 9, "tokens": 9, "seconds": 1, "left_seconds": 3}
        (run / ".progress.json").write_text(json.dumps(progress))
        second = await page.changes(first["version"])
        status = by_name(second)["live"]["run"]["status"]
        assert {*by_name(second)} == {"live"}
        assert (status["share"], status["left_seconds"]) == (0.25, 3)
    third = await page.changes(second["version"])  # no file of it has changed: its process is gone
    assert by_name(third)["live"]["run"]["status"]["state"] == "lost"


def many(folder: Path, finished: Path, number: int) -> list[Path]:
    """Return a sweep's runs, copies of one with a seed each."""
    manifest = json.loads((finished / "run" / "manifest.json").read_text())
    runs = [folder / f"job_{seed}" for seed in range(number)]
    for seed, run in enumerate(runs):
        run.mkdir(parents=True)
        for name in ("results.json", "predictions.jsonl"):
            shutil.copy(finished / "run" / name, run)
        changed = {**manifest, "seed": seed, "config": {**manifest["config"], "seed": seed}}
        (run / "manifest.json").write_text(json.dumps(changed))
    planned = [JobInSweep(run.name, (f"seed={seed}", "method=duel_evolve")) for seed, run in enumerate(runs)]
    write_sweep(folder, new_sweep(["evorun", "-m"], "basic", planned))
    return runs


def test_two_hundred_runs_are_read_once(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = many(tmp_path / "sweep", finished, 200)
    found = Index([tmp_path])
    found.refresh()
    first = found.changes(0)
    assert [each["settings"] for each in first["runs"]] == [{"seed": seed} for seed in range(200)]
    assert first["keys"] == ["seed"]
    opened: list[Path] = []
    read = index.read_regular
    monkeypatch.setattr(index, "read_regular", lambda path: opened.append(path) or read(path))
    found.refresh()
    assert (opened, found.changes(1)) == ([], {"version": 1})
    later = time.time_ns() + 10**9
    os.utime(runs[7] / "predictions.jsonl", ns=(later, later))
    found.refresh()
    assert opened == [runs[7] / "manifest.json"]
    assert [msgspec.json.decode(each["run"])["seed"] for each in found.changes(1)["runs"]] == [7]
    # another key that differs concerns all of them
    manifest = json.loads((runs[3] / "manifest.json").read_text())
    manifest["config"]["method"]["temperature"] = 0.9
    (runs[3] / "manifest.json").write_text(json.dumps(manifest))
    found.refresh()
    changed = found.changes(2)
    assert changed["keys"] == ["method.temperature", "seed"]
    assert [each["settings"]["method.temperature"] for each in changed["runs"]] == [
        0.9 if i == 3 else 0.7 for i in range(200)
    ]


# --- planted folders ---


def link_file(run: Path, outside: Path) -> None:
    (run / "predictions.jsonl").unlink()
    (run / "predictions.jsonl").symlink_to(outside / "secret.json")


def link_manifest(run: Path, outside: Path) -> None:
    (run / "manifest.json").rename(outside / "manifest.json")
    (run / "manifest.json").symlink_to(outside / "manifest.json")


def link_deep(run: Path, outside: Path) -> None:
    (run / "artifacts").mkdir()
    (run / "artifacts" / "study.json").symlink_to(outside / "secret.json")


def pipe(run: Path, outside: Path) -> None:
    (run / "results.json").unlink()
    os.mkfifo(run / "results.json")


def large(run: Path, outside: Path) -> None:
    with (run / "manifest.json").open("r+b") as file:
        file.truncate(index.MAX_SUMMARY_BYTES + 1)


@pytest.mark.parametrize("plant", [link_file, link_manifest, link_deep, pipe, large])
async def test_a_planted_folder_shows_nothing_from_outside(
    page: Page, folder: Path, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text(json.dumps({"problem": SECRET}) + "\n")
    planted = Path(shutil.copytree(folder / "run", folder / "planted"))
    plant(planted, outside)
    answer = await page.changes()
    rows = by_name(answer)
    assert rows["run"]["run"]["opens"]
    assert rows["planted"]["run"]["opens"] == (plant is link_deep)
    number = rows["planted"]["run"]["id"]
    for address in (f"run/{number}", f"live/{number}", f"compare?run={number}&run={rows['run']['run']['id']}"):
        status, text, _ = await page.get(address)
        assert status == (422 if plant is link_deep else 404)
        assert SECRET not in text
    note = rows["planted"]["run"]["status"]["note"]
    assert plant is link_deep or note.startswith(("it holds", "its manifest.json has more than"))
    assert SECRET not in json.dumps(answer)


async def test_a_sweep_leads_nowhere_else(page: Page, folder: Path, tmp_path: Path) -> None:
    outside = Path(shutil.copytree(folder / "run", tmp_path / "outside" / "run"))
    (folder / "sweep").mkdir()
    (folder / "sweep" / "inner").symlink_to(outside.parent)
    write_sweep(
        folder / "sweep",
        new_sweep(["evorun"], "basic", [JobInSweep("inner/run", ("seed=0",)), JobInSweep("next", ("seed=1",))]),
    )
    (folder / "linked").symlink_to(outside)
    rows = by_name(await page.changes())
    assert {*rows} == {"run", "seed=0", "seed=1"}
    planted = rows["seed=0"]["run"]
    assert (planted["opens"], planted["status"]["state"], planted["method"]) == (False, "waiting", None)
    assert "outside of" in planted["status"]["note"]
    assert (await page.get(f"run/{planted['id']}"))[0] == 404


async def test_what_was_made_of_a_run_is_marked(page: Page, folder: Path) -> None:
    """A fork, an extension, a replay and a rejudging look like runs of their own otherwise."""
    manifest = json.loads((folder / "run" / "manifest.json").read_text())
    origin = {"run": str(folder / "run"), "changes": [], "effects": 1, "calls": 1}
    made = {
        "fork": {"origin": {**origin, "verb": "fork", "at": 2}},
        "longer": {"origin": {**origin, "verb": "extend", "at": None}},
        "again": {"config": {**manifest["config"], "engine": {"name": "replay", "run": str(folder / "run")}}},
    }
    for name, changes in made.items():
        shutil.copytree(folder / "run", folder / name)
        (folder / name / "manifest.json").write_text(json.dumps({**manifest, **changes}))
    (folder / "run" / "rejudge" / "0123").mkdir(parents=True)
    (folder / "run" / "rejudge" / "0123" / "figures.json").write_text("[]")
    found = by_name(await page.changes())
    source = display_as_text(folder / "run")
    assert {name: (each["run"]["origin"], each["run"]["rejudged"]) for name, each in found.items()} == {
        "run": (None, 1),
        "fork": (f"fork of {source} from step 2", 0),
        "longer": (f"extension of {source}", 0),
        "again": (f"replay of {source}", 0),
    }


async def test_a_tournament_has_a_row_and_its_page(page: Page, folder: Path, match: Path) -> None:
    shutil.copytree(match, folder / "match")
    found = by_name(await page.changes())["match"]["run"]
    status = found["status"]
    assert (status["kind"], status["state"], found["method"], found["opens"]) == (
        "tournament",
        "done",
        "tournament",
        True,
    )
    results = json.loads((folder / "match" / "results.json").read_text())
    assert status["calls"] == results["cost"]["calls"]
    answered, text, _ = await page.get(f"run/{found['id']}")
    assert answered == 200
    assert "Tournament of 2 runs" in text
    assert results["players"][0]["name"] in json.loads((await page.get(f"live/{found['id']}"))[1])["note"]
    changed = json.loads((folder / "match" / "tournament.json").read_text())
    (folder / "match" / "tournament.json").write_text(json.dumps({**changed, "status": "running"}))
    found = by_name(await page.changes())["match"]["run"]
    assert (found["status"]["state"], found["opens"]) == ("lost", False)


@pytest.mark.parametrize("linked", [False, True])
def test_a_scheduler_id_names_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "1.log").write_text(f"{SECRET}\n")
    sweep = tmp_path / "runs" / "sweep"
    sweep.mkdir(parents=True)
    if linked:
        (sweep / ".slurm").symlink_to(tmp_path / "outside")
    else:
        (sweep / ".slurm").mkdir()
    number = "1" if linked else "../../../outside/1"
    write_sweep(sweep, new_sweep(["evorun"], "slurm", [JobInSweep("job", ("seed=0",), number)]))
    monkeypatch.setattr("evorun.runs.slurm.query_states", lambda _: {})
    found = Index([tmp_path / "runs"])
    found.refresh()
    (job,) = found.changes(0)["runs"]
    assert msgspec.json.decode(job["run"])["status"]["state"] == "lost"
    assert SECRET not in bytes(job["run"]).decode()


@pytest.mark.parametrize(
    "address",
    [
        "run/..%2f..%2f..%2fetc%2fpasswd",
        "run/../../../etc/passwd",
        "run/%2fetc%2fpasswd",
        "live/.",
        "run/",
        "view.js",
        "run/0",
    ],
)
async def test_no_address_names_a_file(page: Page, address: str) -> None:
    status, text, _ = await page.get(address)
    assert status in (403, 404)  # a client may resolve `..` itself, and lose the token by it
    assert "root:" not in text


async def test_hostile_texts_stay_texts(page: Page, folder: Path) -> None:
    texts = {
        "error": "".join(HOSTILE),
        "method": HOSTILE[1],
        "task": HOSTILE[2],
        "config": {HOSTILE[0]: HOSTILE[1], "seed": 9},
    }
    write_run(folder / f"{HOSTILE[0].replace('/', '')}", RunSpec(problems=1, hostile=True, manifest=texts))
    status, text, headers = await page.get("runs.json")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    (planted,) = (each for each in json.loads(text)["runs"] if each["run"]["method"] == HOSTILE[1])
    assert planted["settings"][HOSTILE[0]] == HOSTILE[1]
    _, page_text, page_headers = await page.get("")
    assert page_headers["Content-Type"].startswith("text/html")
    assert "window.pwned" not in page_text  # the page holds no word of any run


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"method": {"steps": 10**30}, "training": {}}},
        {"config": {"method": {"steps": int("9" * 4000)}, "training": {}}},
        {"config": json.loads("[" * 90 + "]" * 90) and {"a": json.loads("[" * 90 + "]" * 90)}},
        {"config": {f"key_{i}": i for i in range(5_000)}},
        {"config": {"a" * 10_000: "b", "long": "b" * 100_000}},
        {"config": None},
        {"models": []},
        {"seed": 10**30},
        {"status": "failed", "error": "e" * 10**6, "method": "m" * 10**6, "task": "t" * 10**6, "started": "s" * 10**6},
    ],
    ids=["large", "larger", "deep", "many", "long", "none", "models", "seed", "texts"],
)
async def test_a_manifest_that_no_run_has_written_harms_no_other(
    page: Page, folder: Path, changes: dict[str, Any]
) -> None:
    planted = Path(shutil.copytree(folder / "run", folder / "planted"))
    manifest = json.loads((planted / "manifest.json").read_text())
    (planted / "manifest.json").write_text(json.dumps({**manifest, **changes}))
    status, text, _ = await page.get("runs.json")
    assert status == 200
    assert len(text) < 100_000
    rows = by_name(json.loads(text))
    assert rows["run"]["run"]["opens"]
    assert rows["planted"]["run"]["status"]["folder"].endswith("planted")


# --- processes ---


def sleep(folder: Path) -> bytes:
    time.sleep(600)
    return b""


def vanish(folder: Path) -> bytes:
    os._exit(3)


@pytest.fixture(name="workers")
def _workers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pages, "_PRELOADED", ["evorun.viewer.live"])
    workers = Workers()
    workers.warm_up()
    yield workers
    workers.close()


@pytest.mark.nightly
async def test_processes_answer_fail_and_end(workers: Workers, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(await workers.run(read_live, folder / "run"))["texts"]
    with pytest.raises(PageError, match=r"is not a run directory: expected a file manifest\.json in it"):
        await workers.run(read_live, folder)
    with pytest.raises(PageError, match="ended without a page"):
        await workers.run(vanish, folder)
    monkeypatch.setattr(pages, "LIMIT_S", 0.05)
    with pytest.raises(PageError, match=r"took more than 0\.05 s"):
        await workers.run(sleep, folder)
    assert not workers._running
