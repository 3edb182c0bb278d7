"""Summaries of bills: ROUGE against counting by hand, in processes; the bills' text; and their splits."""

import asyncio
import signal
import threading
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from building import load_task
from evorun.errors import ConfigError, DataError, ToolError
from evorun.runs.candidates import Response
from evorun.tasks.billsum import billsum, rouge
from evorun.tasks.billsum.rouge import MEASURES, Rouge, RougeGrader
from evorun.tasks.billsum.worker import put_sentences_on_lines
from evorun.tasks.worker_process import WorkerProcess
from prose_data import TEST_DATA, ids, write

NO_TOOLS: Any = None
LOADED = load_task("billsum", source="sample")
TASK: Any = LOADED.task
PROBLEM = LOADED.problems[0]


@pytest.fixture(name="measured")
def _measured() -> Rouge:
    """Return the one that runs in this process use too: a worker takes seconds to start."""
    return rouge.shared()


# --- ROUGE ---


def longest_common(one: list[str], other: list[str]) -> int:
    """Return the length of the longest common subsequence, by trying all of them."""
    for length in range(len(one), 0, -1):
        for kept in combinations(one, length):
            rest = iter(other)
            if all(word in rest for word in kept):
                return length
    return 0


def f_measure(common: int, reference: int, summary: int) -> float:
    return 2 * common / (reference + summary)


async def test_the_measures_are_those_of_their_definitions(measured: Rouge) -> None:
    reference, summary = "Grants aid to small farms of the state", "The state grants small farms much aid"
    found = await measured.measure(reference, summary, stemmer=False)
    words = [text.lower().split() for text in (reference, summary)]
    pairs = [set(pairwise(one)) for one in words]
    assert found["rouge1"] == pytest.approx(f_measure(len(set(words[0]) & set(words[1])), 8, 7))
    assert found["rouge2"] == pytest.approx(f_measure(len(pairs[0] & pairs[1]), 7, 6))
    assert found["rougeL"] == pytest.approx(f_measure(longest_common(*words), 8, 7))
    assert tuple(found) == MEASURES


async def test_lsum_has_two_readings(measured: Rouge) -> None:
    """The same two sentences in the other order: as they are, one is lost; sentence by sentence, none is."""
    reference, summary = "Funds new roads. Bans old cars.", "Bans old cars. Funds new roads."
    found = await measured.measure(reference, summary, stemmer=False)
    assert found["rougeLsum"] == found["rougeL"] == pytest.approx(0.5)
    assert found["rougeLsum_sentences"] == pytest.approx(1.0)
    # Lines that a text has already count as sentences in both.
    lines = await measured.measure(reference.replace(". ", ".\n"), summary.replace(". ", ".\n"), stemmer=False)
    assert lines["rougeLsum"] == pytest.approx(1.0)
    assert lines["rougeL"] == pytest.approx(0.5)


def test_sentences_end_where_readers_see_it() -> None:
    assert put_sentences_on_lines("Amends U.S. Code sec. 3. Allows 1.5 percent. (1) Bans it! Ends.").split("\n") == [
        "Amends U.S. Code sec. 3.",
        "Allows 1.5 percent.",
        "(1) Bans it!",
        "Ends.",
    ]


@pytest.mark.parametrize("stemmer", [True, False])
async def test_suffixes_count_or_not(tmp_path: Path, stemmer: bool) -> None:
    path = write(tmp_path / "bills.jsonl", [bill(1, summary="requires reports")])
    loaded = load_task("billsum", data=str(path), validation_problems=0, stemmer=stemmer)
    said = Response(text="", answer="requiring reporting")
    grade = await loaded.grader.grade(loaded.problems[0], said, NO_TOOLS)
    assert grade.scores["rouge1"] == float(stemmer)


async def test_a_worker_that_is_killed_is_no_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is infrastructure's failure, never a summary's; and the next one has a worker of its own."""
    replies = iter(["", "{}"])
    ended: list[int] = []

    class Worker:
        def __init__(self, *about: Any, **more: Any) -> None: ...

        def ask(self, request: str) -> str:
            return next(replies)

        def end(self) -> int:
            ended.append(1)
            return -signal.SIGKILL

    monkeypatch.setattr(rouge, "WorkerProcess", Worker)
    made = Rouge(processes=1)
    with pytest.raises(ToolError, match="the process that measures ROUGE ended with status -9"):
        await made.measure("a", "b", stemmer=True)
    assert await made.measure("a", "b", stemmer=True) == {}
    made.close()
    assert len(ended) == 2


@pytest.mark.nightly
async def test_grading_holds_up_nothing(measured: Rouge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker answers only after the event loop has gone on meanwhile."""
    goes_on = threading.Event()
    ask = WorkerProcess.ask

    def ask_late(worker: WorkerProcess, request: str) -> str:
        assert goes_on.wait(60), "grading held up the event loop"
        return ask(worker, request)

    monkeypatch.setattr(WorkerProcess, "ask", ask_late)
    grader = RougeGrader(TASK, {name: [text] for name, text in LOADED.answers.items()}, stemmer=True, rouge=measured)
    texts = ("Farms and roads.", "Farms.", "")
    grading = [asyncio.create_task(grader.grade(PROBLEM, TASK.parse(PROBLEM, text), NO_TOOLS)) for text in texts]
    await asyncio.sleep(0)  # the tasks begin
    goes_on.set()
    grades = await asyncio.gather(*grading)
    assert 0 < grades[0].scores["rouge1"] < 0.2
    assert 0 <= grades[1].scores["rouge1"] < 0.1
    assert grades[2].scores == dict.fromkeys(MEASURES, 0.0)
    assert grades[2].detail.startswith("empty:")
    assert TASK.score(PROBLEM, Response(text="x", answer="x"), None).scores == {}


async def test_a_reference_scores_one(measured: Rouge) -> None:
    grader = RougeGrader(TASK, {name: [text] for name, text in LOADED.answers.items()}, stemmer=True, rouge=measured)
    grade = await grader.grade(PROBLEM, TASK.parse(PROBLEM, LOADED.answers[PROBLEM.id]), NO_TOOLS)
    assert grade.scores == dict.fromkeys(MEASURES, 1.0)


# --- bills ---


def bill(number: int, **changes: Any) -> dict[str, Any]:
    named = f"    This Act may be cited as the\n``Act {number}''."
    text = f"SECTION 1. SHORT TITLE.\n\n{named}\n  \n\n\n    (a) It is so.\n"
    return {"title": f"A bill {number}", "text": text, "summary": f"Act {number} - Makes it so.\n", **changes}


def test_both_test_sets_are_read_and_bills_are_shown_without_the_lines_of_print(tmp_path: Path) -> None:
    write(tmp_path / "us_train_data.jsonl", [bill(n) for n in range(4)])
    write(tmp_path / "us_test_data.jsonl", [bill(10, bill_id="107_hr1"), bill(11, summary=None)])
    write(tmp_path / "ca_test_data.jsonl", [bill(20, title=None)])
    loaded = load_task("billsum", data=str(tmp_path))
    assert {problem.id: problem.stratum for problem in loaded.problems} == {
        "107_hr1": "congress",
        "ca_test_data_00001": "california",
    }
    assert loaded.answers["107_hr1"] == "Act 10 - Makes it so."
    assert len(loaded.validation) == 4
    asked: Any = loaded.task
    [shown] = [asked.generation_prompt(one) for one in loaded.problems if one.id == "107_hr1"]
    text = "SECTION 1. SHORT TITLE.\n\nThis Act may be cited as the ``Act 10''.\n\n(a) It is so.\n"
    assert text in shown.messages[-1]["content"]
    assert "1 left out" in loaded.provenance.description
    write(tmp_path / "ca_test_data.jsonl", [bill(20, summary=" ")])
    with pytest.raises(DataError, match=r"ca_test_data.jsonl:1: summary: expected a non-empty string or none"):
        load_task("billsum", data=str(tmp_path))


def test_a_bill_that_is_cut_says_so_and_is_counted(tmp_path: Path) -> None:
    write(tmp_path / "bills.jsonl", [bill(1), bill(2, text="Long. " * 100), bill(3)])
    whole, cut = (
        load_task("billsum", data=str(tmp_path / "bills.jsonl"), validation_problems=0, bill_chars=chars)
        for chars in (20_000, 200)
    )
    assert "cut" not in whole.provenance.description
    assert ", 1 of them cut to 200 characters" in cut.provenance.description
    asked: Any = cut.task
    prompts = [asked.generation_prompt(problem).messages[-1]["content"] for problem in cut.problems]
    assert ["characters left out ...]" in prompt for prompt in prompts].count(True) == 1
    assert max(map(len, prompts)) < 700


@pytest.mark.skipif(not TEST_DATA.is_dir(), reason="needs the test data; set EVORUN_TEST_DATA to their folder")
async def test_the_bills_at_hand_load_and_their_own_summaries_are_right(measured: Rouge) -> None:
    path = TEST_DATA / "billsum" / "billsum_us.jsonl"
    test, train = (load_task("billsum", data=str(path), test_problems=20, split=split) for split in ("test", "train"))
    assert (len(test.problems), len(train.problems)) == (20, 80)
    assert not set(ids(test)) & set(ids(train))
    assert "cut" not in test.provenance.description
    problem = test.problems[0]
    task: Any = test.task
    lead = " ".join(task.question(problem).split()[:150])
    grader = RougeGrader(task, {name: [text] for name, text in test.answers.items()}, stemmer=True, rouge=measured)
    right, beginning = [
        (await grader.grade(problem, task.parse(problem, text), NO_TOOLS)).scores["rouge1"]
        for text in (test.answers[problem.id], lead)
    ]
    assert right == 1
    assert 0.05 < beginning < 0.9


class WordTokenizer:
    """A token a word, and three that the chat template adds."""

    chat_template = "any"

    def apply_chat_template(self, messages: Any, *, add_generation_prompt: bool, tokenize: bool, **options: Any) -> str:
        assert add_generation_prompt
        assert not tokenize
        return "a b c " + " ".join(message["content"] for message in messages)

    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens  # the template writes them
        return {"input_ids": list(range(len(text.split())))}

    def get_vocab(self) -> dict[str, int]:
        return {}


def test_bills_with_long_prompts_are_left_out_of_both_splits_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPO's released code: prompts of the policy's chat template, of up to 4,000 tokens."""
    asked: list[str] = []
    monkeypatch.setattr(billsum, "load_tokenizer", lambda model: asked.append(model.id) or WordTokenizer())
    bills = [{"bill_id": f"b{n}", "text": f"Bill {n} " + "word " * n, "summary": f"Of bill {n}."} for n in range(40)]
    write(tmp_path / "us_test.jsonl", bills[:4] + bills[30:32])
    write(tmp_path / "us_train.jsonl", bills[4:30])
    settings: dict[str, Any] = {"data": str(tmp_path), "train_problems": None, "validation_problems": 0}
    whole = load_task("billsum", **settings)
    task: Any = whole.task
    words = [" ".join(turn["content"] for turn in task.generation_prompt(one).messages) for one in whole.problems]
    at_most = max(len(text.split()) for text in words)
    limit = {"max_prompt_tokens": at_most + 3, "prompt_tokenizer": "own/model"}
    assert sorted(ids(load_task("billsum", **settings, **limit))) == sorted(ids(whole))  # up to and with the limit
    limit["max_prompt_tokens"] = at_most + 2
    left = load_task("billsum", **settings, **limit)
    assert sorted(set(ids(whole)) - set(ids(left))) == ["b31"]
    assert "1 left out" in left.provenance.description
    limit["max_prompt_tokens"] = at_most + 3 - 11  # a bill of 20 words fits
    train = load_task("billsum", **settings, **limit, split="train")
    assert sorted(ids(train)) == sorted(f"b{n}" for n in range(4, 21))
    assert set(asked) == {"own/model"}
    with pytest.raises(ConfigError, match=r"^task.prompt_tokenizer: expected a model with task.max_prompt_tokens"):
        load_task("billsum", **settings, max_prompt_tokens=9)
