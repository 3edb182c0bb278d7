"""The check that neither a problem's data nor its prompt gives away the answer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from evorun.tasks.base import LoadedTask
from evorun.testing.expectations import expect
from evorun.testing.task_cases import Case

LONG = 12
"""Characters of an answer too long to be in a prompt by chance."""


def check_hidden_answers(loaded: LoadedTask, cases: Sequence[Case], picked_answers: bool) -> None:
    """Raise AssertionError for a problem whose data or prompt has the answer. picked_answers: see `check_task`."""
    task: Any = loaded.task
    for case in cases:
        answer = case.right.answer or ""
        places = [place for place, text in _list_texts(msgspec.to_builtins(case.problem.data)) if _tells(text, answer)]
        expect(
            not places,
            f"problem {case.problem.id}: expected no answer among its data, found {answer!r} as its "
            f"{places[0] if places else ''}",
        )
        prompt = "\n".join(message["content"] for message in task.generation_prompt(case.problem).messages)
        # Short answers, such as the letter of an option, always occur in the prompt.
        told = len(answer) >= LONG and answer in prompt and not picked_answers
        expect(not told, f"problem {case.problem.id}: expected no answer in its prompt, found {answer!r}")


def _list_texts(value: Any, place: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the place of each value in a problem's data, such as `note.key[2]`, and the texts within it in order."""
    items: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        items = ((f"{place}.{key}".lstrip("."), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        items = ((f"{place}[{index}]", item) for index, item in enumerate(value))
    else:
        yield place, [str(value)]
        return
    texts = list[str]()
    for inner, item in items:
        for where, found in _list_texts(item, inner):
            yield where, found
            if where == inner:
                texts += found
    yield place, texts


def _tells(texts: Sequence[str], answer: str) -> bool:
    """Return whether texts, in their order, are the answer; of several, those of a long one, however joined."""
    if len(texts) == 1:
        return texts[0] == answer
    return len(answer) >= LONG and _letters("".join(texts)) == _letters(answer)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))
