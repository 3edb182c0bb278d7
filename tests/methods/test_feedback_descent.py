"""Feedback Descent against its definition (Duel-Evolve paper, appendix A.1 and D)."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import make_meter, make_method
from evorun.methods.duels.feedback_descent import FeedbackDescent
from evorun.runs.candidates import Step
from method_fixture import Ask, Quiz, Script, Scripted, TestedQuiz, solve


def descent(**config: object) -> FeedbackDescent:
    return make_method("feedback_descent", **{"generations": 6, "retries": 0, **config})


def test_public_tests_are_feedback_to_it() -> None:
    assert descent().information_regime(TestedQuiz) == "public_tests"
    assert descent().information_regime(Quiz) == "problem_only"


def judged(say: Callable[[Ask, str], str]) -> Script:
    """Return a model that answers `a<step>` and judges by `say`, which is told the letter of the new proposal."""

    def script(ask: Ask) -> str:
        if ask.role == "generate":
            return f"a{ask.step}"
        challenger = "A" if ask.shown["a"]["answer"] == f"a{ask.step}" else "B"
        assert ask.shown["ab".replace(challenger.lower(), "")]["answer"] != f"a{ask.step}"
        return say(ask, challenger)

    return script


def other(letter: str) -> str:
    return "B" if letter == "A" else "A"


def incumbents(solved: list[Step]) -> list[str]:
    return [str(step.best.answer) for step in solved if step.best]


async def test_two_calls_a_step() -> None:
    model = Scripted(judged(lambda ask, new: new + ":"))
    solved = await solve(descent(), model)
    assert [step.step for step in solved] == list(range(7))
    assert [(ask.step, ask.role) for ask in model.asked] == [
        (0, "generate"),
        *((step, role) for step in range(1, 7) for role in ("generate", "judge")),
    ]


OUTCOMES = ("win", "loss", "tie", "nonsense", "refused", "unparsed")


@given(script=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=12), window=st.integers(1, 5))
async def test_the_course_by_definition(script: list[str], window: int) -> None:
    """A model that plays any outcomes: incumbent, history and prompts follow, by a replay of the paper's words."""

    def say(ask: Ask) -> str | None:
        outcome = script[ask.step - 1] if ask.step else "win"
        if ask.role == "generate":
            return "?" if outcome == "unparsed" else f"a{ask.step};m{ask.step}"
        new = "A" if ask.shown["a"]["answer"] == f"a{ask.step}" else "B"
        return {
            "win": f"{new}:r{ask.step}",
            "loss": f"{other(new)}:r{ask.step}",
            "tie": f"T:r{ask.step}",
            "nonsense": f"Z:r{ask.step}",
            "refused": None,
        }[outcome]

    model = Scripted(say)
    solved = await solve(descent(generations=len(script), window=window), model)

    incumbent, history = "a0", [("a0", "first", "")]
    prompts = {ask.step: ask.shown for ask in model.of("generate")}
    for number, outcome in enumerate(script, 1):
        shown = prompts[number]
        assert shown["incumbent"]["answer"] == incumbent
        told = [(a["answer"], a["outcome"]) for a in shown["attempts"]]
        assert told == [(answer, fared) for answer, fared, _ in history[-window:]]
        assert [a["memory"] for a in shown["attempts"]] == ["m" + answer[1:] for answer, *_ in history[-window:]]
        for attempt, (_, _, reason) in zip(shown["attempts"], history[-window:], strict=True):
            assert reason is None or attempt["reason"] == reason
        if outcome == "unparsed":
            continue
        fared = {"win": "won", "loss": "lost"}.get(outcome, "undecided")
        # what is said of a judgment that the engine refused is the method's own affair
        history.append((f"a{number}", fared, None if outcome == "refused" else f"r{number}"))
        incumbent = f"a{number}" if outcome == "win" else incumbent
        best = solved[number].best
        assert best is not None
        assert best.answer == incumbent
        assert [rated.id for rated in solved[number].candidates if rated.survivor] == [best.id]


async def test_the_order_of_presentation_is_random_and_repeats() -> None:
    async def orders(seed: int) -> list[str]:
        seen: list[str] = []

        def note(ask: Ask, new: str) -> str:
            seen.append(new)
            return "T:"

        await solve(descent(generations=60), Scripted(judged(note)), seed=seed)
        return seen

    first = await orders(0)
    assert first == await orders(0)
    assert first != await orders(1)
    assert 15 < first.count("A") < 45


async def test_a_judge_that_always_says_a_does_not_always_win() -> None:
    solved = await solve(descent(generations=40), Scripted(judged(lambda ask, new: "A:")))
    assert 8 < len(set(incumbents(solved))) < 33


async def test_every_duel_is_recorded_as_it_was_shown() -> None:
    model = Scripted(judged(lambda ask, new: f"{new}:why {ask.step}"))
    solved = await solve(descent(), model)
    assert not solved[0].comparisons
    for step, ask in zip(solved[1:], model.of("judge"), strict=True):
        (duel,) = step.comparisons
        answer = {rated.id: rated.answer for rated in step.candidates}
        assert (answer[duel.first], answer[duel.second]) == (ask.shown["a"]["answer"], ask.shown["b"]["answer"])
        assert duel.reasons == (f"why {step.step}",)
        assert len(duel.verdicts) == 1
        assert (duel.outcome == "first") is (duel.verdicts == ("A",))


async def test_the_proposer_is_told_which_letters_the_judges_words_mean() -> None:
    model = Scripted(judged(lambda ask, new: f"{new}:{new} is a{ask.step}, {other(new)} is not"))
    await solve(descent(generations=20), model)
    letters = set()
    for attempt in model.of("generate")[-1].shown["attempts"]:
        assert attempt["reason"] == f"{attempt['letter']} is {attempt['answer']}, {other(attempt['letter'])} is not"
        letters.add(attempt["letter"])
    assert letters == {"A", "B"}


async def test_until_something_parses_it_starts_from_the_problem() -> None:
    def script(ask: Ask) -> str:
        return "T:" if ask.role == "judge" else "?" if ask.step < 3 else f"a{ask.step}"

    model = Scripted(script)
    solved = await solve(descent(), model)
    assert [ask.shown["ask"] for ask in model.of("generate")] == ["generate"] * 4 + ["refine"] * 3
    assert [step.best is None for step in solved] == [True] * 3 + [False] * 4
    assert [len(step.candidates) for step in solved] == list(range(1, 8))


async def test_zero_generations_are_one_response() -> None:
    model = Scripted(lambda ask: "x")
    (step,) = await solve(descent(generations=0), model)
    assert len(model.asked) == 1
    assert step.best is not None


@pytest.mark.parametrize("calls", [1, 2, 3, 8, 12, 13])
async def test_the_budget_ends_it(calls: int) -> None:
    model, meter = Scripted(judged(lambda ask, new: new + ":")), make_meter(calls)
    solved = await solve(descent(generations=20), model, meter=meter)
    assert len(model.asked) == calls
    assert meter.exhausted
    # a proposal that could not be judged is there, but it is not the incumbent
    assert len(solved[-1].candidates) == 1 + calls // 2
    assert incumbents(solved)[-1] == f"a{(calls - 1) // 2}"


async def test_feedback_reaches_the_judge_and_the_next_proposal() -> None:
    model = Scripted(judged(lambda ask, new: new + ":"))
    await solve(descent(), model, task=TestedQuiz())
    for ask in model.of("judge"):
        assert ask.shown["a"]["feedback"] == f"tests of {ask.shown['a']['answer']}"
    for ask in model.of("generate")[1:]:
        assert ask.shown["incumbent"]["feedback"] == f"tests of {ask.shown['incumbent']['answer']}"
        assert all(a["feedback"] == f"tests of {a['answer']}" for a in ask.shown["attempts"])
