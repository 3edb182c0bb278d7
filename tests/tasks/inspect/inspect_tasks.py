"""Tasks of inspect_ai that the tests evaluate by evorun and by inspect_ai itself, and some that evorun refuses."""

# mypy: disable-error-code="untyped-decorator"

import itertools
from collections.abc import Callable

from inspect_ai import Task, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser, ContentImage, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, answer, choice, f1, match, mean, model_graded_qa, scorer
from inspect_ai.solver import (
    Generate,
    Solver,
    TaskState,
    chain_of_thought,
    generate,
    multiple_choice,
    prompt_template,
    solver,
    system_message,
    use_tools,
)
from inspect_ai.tool import bash

_NUMBERS = itertools.count()
SUMS = [(17, 25), (8, 9), (40, 2), (31, 31)]


@task
def sums(first: int = 0) -> Task:
    """Numbers that a reply ends in."""
    samples = [Sample(input=f"What is {a} + {b}?", target=str(a + b), metadata={"kind": "sum"}) for a, b in SUMS]
    return Task(samples[first:], solver=[system_message("You add numbers."), generate()], scorer=match(numeric=True))


@task
def capitals() -> Task:
    """Multiple choice; one sample has several right options."""
    samples = [
        Sample(id="france", input="The capital of France?", choices=["Lyon", "Paris", "Nice"], target="B"),
        Sample(id="italy", input="The capital of Italy?", choices=["Rome", "Turin"], target="A"),
        Sample(id="spain", input="The capital of Spain?", choices=["Vigo", "Cadiz", "Madrid"], target="C"),
    ]
    return Task(samples, solver=multiple_choice(cot=True), scorer=choice())


@task
def talks() -> Task:
    """A conversation as input, several accepted targets, and an answer on a line of its own."""
    before = [
        ChatMessageSystem(content="Be brief."),
        ChatMessageUser(content="Hello."),
        ChatMessageAssistant(content="Yes?"),
    ]
    samples = [
        Sample(input=[*before, ChatMessageUser(content="Name a primary colour of light.")], target=["red", "green"]),
        Sample(input=[*before, ChatMessageUser(content="Name the colour of snow.")], target="white"),
    ]
    return Task(samples, solver=[chain_of_thought(), generate()], scorer=answer("line"))


@task
def phrases() -> Task:
    """Degrees of overlap between words."""
    samples = [
        Sample(input="Who wrote Emma?", target="Jane Austen"),
        Sample(input="Who wrote Faust?", target="Johann Wolfgang von Goethe"),
    ]
    return Task(samples, solver=[prompt_template("Q: {prompt}"), generate()], scorer=f1())


@scorer(metrics=[mean()])
def initials() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        said = state.output.completion
        return Score(value=1.0 if said == target.text else 0.5 * said.startswith("J"), answer=said)

    return score


@task
def names() -> Task:
    """Half a mark for a name's first letter."""
    samples = [Sample(input=f"Which {n}?", target=name) for n, name in enumerate(("Jane", "Johann", "Emma"))]
    return Task(samples, solver=generate(), scorer=initials())


@scorer(metrics=[mean()])
def by_a_missing_package() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        raise PrerequisiteError("A provider's API requires optional dependencies.")

    return score


@task
def unequipped() -> Task:
    """A scorer that no reply can satisfy here."""
    return Task([Sample(input="Who?", target="Jane")], solver=generate(), scorer=by_a_missing_package())


@scorer(metrics={"words": [mean()], "kept": [accuracy()]})
def words() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        said = state.output.completion.split()
        if "crash" in said:
            raise ValueError("a scorer's fault")
        kept = len(said) <= state.metadata["most"] and state.store.get("seen") == len(state.messages) - 1
        return Score(value={"words": float(len(said)), "kept": kept}, answer=str(len(said)))

    return score


@solver
def counting_messages() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.store.set("seen", len(state.messages))
        return await generate(state, max_tokens=20)

    return solve


@task
def limits() -> Task:
    """A scorer of two values of its own, which reads the metadata and the solver's store."""
    samples = [Sample(input=f"Say {n} words or fewer.", metadata={"most": n, "kind": f"k{n}"}) for n in (2, 4)]
    return Task(samples, solver=counting_messages(), scorer=words())


@task
def judged() -> Task:
    """A scorer that asks a model."""
    samples = [
        Sample(input="Why is the sky blue?", target="scattering"),
        Sample(input="Why do we see the moon?", target="reflection"),
    ]
    return Task(samples, solver=generate(), scorer=model_graded_qa())


@task
def judged_by_name() -> Task:
    """A scorer that asks a model of its own choice."""
    return Task([Sample(input="Why?", target="why")], scorer=model_graded_qa(model="mockllm/other"))


@task
def numbers() -> Task:
    """Any number of a reply may be the right one."""
    samples = [Sample(input=f"A number like {n}?", target=str(n)) for n in (5, 6, 7)]
    return Task(samples, scorer=match(location="any", numeric=True))


@task
def repeating() -> Task:
    """A sample twice."""
    return Task([Sample(input="2 + 2?", target="4")] * 2 + [Sample(input="3 + 3?", target="6")], scorer=match())


@solver
def asking(ask: Callable[[TaskState, Generate], object]) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await ask(state, generate)  # type: ignore[misc]
        return state

    return solve


async def _twice(state: TaskState, generate: Generate) -> None:
    await generate(state)
    await generate(state)


async def _never(state: TaskState, generate: Generate) -> None:
    return None


async def _directly(state: TaskState, generate: Generate) -> None:
    await get_model().generate(state.messages)


async def _shuffled(state: TaskState, generate: Generate) -> None:
    state.user_prompt.text = str(next(_NUMBERS))
    await generate(state)


def refused(why: str) -> Task:
    """A task that cannot be one model call."""
    sample = Sample(input="2 + 2?", target="4")
    settings = {
        "twice": {"solver": asking(_twice)},
        "never": {"solver": asking(_never)},
        "directly": {"solver": asking(_directly)},
        "tools": {"solver": [use_tools(bash()), generate()]},
        "sandbox": {"sandbox": "docker"},
        "files": {"dataset": [Sample(input="2 + 2?", target="4", files={"a.txt": "text"})]},
        "image": {
            "dataset": [Sample(input=[ChatMessageUser(content=[ContentImage(image="data:image/png;base64,AA")])])]
        },
        "shuffled": {"solver": asking(_shuffled)},
        "no_scorer": {"scorer": None},
        "no_samples": {"dataset": []},
    }
    return Task(**{"dataset": [sample], "solver": generate(), "scorer": match(), **settings[why]})
