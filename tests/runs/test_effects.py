"""Model calls through the journal: asked once, refusals at the start kept back, wrong settings noticed."""

import asyncio
import json
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from evorun.errors import EngineError
from evorun.models import Completion, LanguageModel, Reply, Request, Sampling, make_rejection
from evorun.models.base import CONTROL, MAX_CHARS_PER_TOKEN, Wasted
from evorun.rollouts.replies import TextCounts
from evorun.runs.candidates import Response
from evorun.runs.effects import MAX_INITIAL_REFUSALS, JournaledModel, Traffic, journal_engines
from evorun.runs.journal import Journal
from evorun.runs.journal_reader import read_journal
from method_fixture import Quiz


class Engine:
    """Refuses the first requests, then answers."""

    name = "m"

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked = 0

    async def complete(self, request: Request) -> Reply:
        self.asked += 1
        if self.asked <= self.refusals:
            return make_rejection(request, "no such option")
        done = Completion(text="x", finish_reason="stop", tokens=1)
        return Reply(completions=(done,), prompt_tokens=1, seconds=0.5)

    async def close(self) -> None:
        return


COST = {"prompt_tokens": 1, "seconds": 0.5}


def ask(seed: int) -> Request:
    return Request(messages=({"role": "user", "content": "?"},), seed=seed)


async def test_a_recorded_call_is_not_made_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    engine, traffic = Engine(0), Traffic()
    first = await JournaledModel(engine, journal, traffic).complete("k", ask(1))
    journal.close()
    journal = Journal(tmp_path / "j")
    again = await JournaledModel(engine, journal, traffic).complete("k", ask(1))
    assert first == again
    assert engine.asked == 1
    assert (traffic.calls, traffic.replayed) == (1, 1)
    journal.close()


class Endless(Engine):
    """Gives all the text that it has, whatever `max_tokens` is."""

    def __init__(self, *texts: str) -> None:
        super().__init__(0)
        self.completions = tuple(Completion(text=text, finish_reason="stop", tokens=9) for text in texts)

    async def complete(self, request: Request) -> Reply:
        return Reply(completions=self.completions, prompt_tokens=1, seconds=0.5)


async def test_a_text_longer_than_its_tokens_can_be_is_cut_before_it_is_recorded(tmp_path: Path) -> None:
    longest = 2 * MAX_CHARS_PER_TOKEN
    journal = Journal(tmp_path / "j")
    model = JournaledModel(Endless("x" * 3_000_000, "y" * longest), journal, Traffic())
    request = Request(messages=({"role": "user", "content": "?"},), sampling=Sampling(max_tokens=2, n=2))
    reply = await model.complete("k", request)
    cut, whole = reply.completions
    assert (cut.text, cut.finish_reason, cut.tokens) == ("x" * longest, "overlong", 9)
    assert (whole.text, whole.finish_reason) == ("y" * longest, "stop")
    journal.close()
    journal = Journal(tmp_path / "j")
    assert await JournaledModel(Engine(0), journal, Traffic()).complete("k", request) == reply
    journal.close()
    assert sum(len(effect.result) for effect in read_journal(tmp_path / "j")) < 1_000
    counts = TextCounts()
    for one in reply.completions:
        counts.add(Quiz(), msgspec.structs.replace(reply, completions=(one,)), Response(text=one.text, answer="x"))
    assert counts.diagnostics()["overlong_texts"] == 1
    assert counts.truncated_texts == 0


async def test_log_probabilities_have_six_decimals_when_made_and_when_given_back(tmp_path: Path) -> None:
    class Sampled(Engine):
        async def complete(self, request: Request) -> Reply:
            logprobs = (-0.12345678901234567, -1e-9, 0.0, -23.45678949999)
            done = Completion(text="x", finish_reason="stop", tokens=4, token_ids=(1, 2, 3, 4), logprobs=logprobs)
            return Reply(completions=(done, Completion(text="", finish_reason="rejected", tokens=0)), **COST)

    for _ in range(2):
        journal = Journal(tmp_path / "j")
        reply = await JournaledModel(Sampled(0), journal, Traffic()).complete("k", ask(1))
        assert [one.logprobs for one in reply.completions] == [(-0.123457, 0.0, 0.0, -23.456789), None]
        journal.close()
    assert b"-0.123457,-0.0,0.0,-23.456789]" in next(one.result for one in read_journal(tmp_path / "j"))


@pytest.mark.nightly
async def test_a_call_that_is_done_leaves_no_key_in_memory(tmp_path: Path) -> None:
    # of a run of paper size, 1.4 million: more than 200 MB; keys this long stand out from what the interpreter keeps
    journal = Journal(tmp_path / "j")
    model = JournaledModel(Engine(0), journal, Traffic())
    problem = "a problem" * 200

    async def kept_after(step: int) -> int:
        await asyncio.gather(*(model.complete(f"{problem}|{step}|generate|{i}|0", ask(0)) for i in range(800)))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first, _, last = [await kept_after(step) for step in range(3)]
    finally:
        tracemalloc.stop()
    assert len(journal) == 2_400
    journal.close()
    assert last - first < len(problem) * 1_600 / 2


async def test_an_engine_that_has_answered_in_one_role_has_answered_in_all(tmp_path: Path) -> None:
    journal, engine = Journal(tmp_path / "j"), Engine(1)
    models = journal_engines({"evaluate": engine, "rollout": engine, "judge": Engine(5)}, journal, Traffic())
    await models["evaluate"].complete("refused", ask(1))
    await models["judge"].complete("refused by another", ask(2))
    assert len(journal) == 0
    await models["rollout"].complete("answered", ask(3))
    assert len(journal) == 2  # an update may follow, which a resumed run reaches only with the refusal recorded
    journal.close()


async def test_of_a_model_that_is_trained_each_call_names_the_weights_of_its_step(tmp_path: Path) -> None:
    class Weights:
        """Weights that have been updated in steps 1 and 3."""

        name = "m"

        def at(self, step: int) -> LanguageModel:
            engine = Engine(0)
            engine.name = f"m@{(step >= 1) + (step >= 3)}"
            return engine

        async def close(self) -> None:
            return

    journal = Journal(tmp_path / "j")
    model = JournaledModel(Weights(), journal, Traffic())
    for step in range(4):
        await model.complete(f"k{step}", ask(0), step)
    journal.close()
    requests = [json.loads(one.request) for one in read_journal(tmp_path / "j")]
    assert [request["model"] for request in requests] == ["m@0", "m@1", "m@1", "m@2"]


async def test_an_engine_that_refuses_everything_stops_the_run(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    model = JournaledModel(Engine(1000), journal, Traffic())
    for i in range(MAX_INITIAL_REFUSALS - 1):
        await model.complete(f"k{i}", ask(i))
    with pytest.raises(EngineError, match=f"refused the first {MAX_INITIAL_REFUSALS} requests.*no such option"):
        await model.complete("one more", ask(MAX_INITIAL_REFUSALS))
    # with the settings mended, a resumed run asks all of them again
    assert len(journal) == 0
    journal.close()


async def test_a_few_refusals_before_an_answer_are_recorded_as_data(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    model = JournaledModel(Engine(MAX_INITIAL_REFUSALS - 1), journal, Traffic())
    replies = [await model.complete(f"k{i}", ask(i)) for i in range(MAX_INITIAL_REFUSALS + 3)]
    assert len(journal) == len(replies)
    journal.close()
    again = Journal(tmp_path / "j")
    silent = Engine(0)
    replayed = JournaledModel(silent, again, Traffic())
    assert [await replayed.complete(f"k{i}", ask(i)) for i in range(len(replies))] == replies
    assert silent.asked == 0
    again.close()


async def test_a_run_of_refusals_alone_is_recorded_when_it_has_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    model = JournaledModel(Engine(1000), journal, Traffic())
    for i in range(3):
        await model.complete(f"k{i}", ask(i))
    await model.finish()
    await model.finish()
    assert len(journal) == 3
    journal.close()


async def test_requests_that_fail_alone_are_recorded_where_a_control_was_answered(tmp_path: Path) -> None:
    class FailsAlone(Engine):
        async def complete(self, request: Request) -> Reply:
            wasted = {"http_500": Wasted(12), CONTROL: Wasted(3, 9)}
            return msgspec.structs.replace(make_rejection(request, "12 attempts failed"), wasted=wasted)

    def resumed(engine: Engine) -> tuple[Journal, JournaledModel]:
        journal = Journal(tmp_path / "j")
        return journal, JournaledModel(engine, journal, Traffic())

    journal, model = resumed(Engine(0))
    await model.complete("answered", ask(100))
    journal.close()
    journal, model = resumed(FailsAlone(0))
    await model.complete("answered", ask(100))
    for number in range(MAX_INITIAL_REFUSALS + 5):  # a resume may have nothing else to ask
        reply = await model.complete(str(number), ask(number))
    assert len(journal) == 1 + MAX_INITIAL_REFUSALS + 5
    journal.close()
    journal, model = resumed(FailsAlone(0))
    assert await model.complete("0", ask(0)) == reply
    # Recorded are now failures alone, as in a run in which nothing was ever answered.
    asked = [model.complete(str(number), ask(number)) for number in range(100, 100 + MAX_INITIAL_REFUSALS)]
    with pytest.raises(EngineError, match="check the model and the engine's settings"):
        await asyncio.gather(*asked)
    journal.close()
