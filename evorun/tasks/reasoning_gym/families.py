"""Makes the problems of Reasoning Gym and scores answers, outside evorun's process; imports nothing of evorun.

With the argument `serve` it is a worker (see `tasks.worker_process`), which only sees settings and known answers. As a
program in the sandbox it scores what a model wrote (`score`).
"""

import ast
import contextlib
import dataclasses
import io
import json
import math
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

MIN_RIGHT = 0.99
"""An answer of this score is right (ours): some verifiers give less than 1 for another form of the right answer."""
_MIN_SIZE = 1000
"""Nominal size of a data set, of which a split takes the first problems: some families depend on it."""
REFUSED = {
    "composite": "it mixes other families; run these one by one",
    "game_of_life_halting": "its verifier takes any text for right",
}
# Where a family names no answer, its metadata has one, of several right ones.
_EXAMPLES = ("example_answer", "example_correct_answer", "possible_answer")
# These verifiers evaluate an answer as Python, or have SymPy do so. The sandbox keeps the machine safe. A filter keeps
# the score safe, which an answer could set otherwise: lists have no calls, and formulas call known functions only.
_LISTS = re.compile(r"[\w\s,\[\]'\"-]*")
_SUMS = re.compile(r"[0-9\s+*/().-]*")
_FORMULAS = re.compile(r"[A-Za-z0-9\s+*/^().,-]*")
_NAME = re.compile(r"a?(?:sin|cos|tan)h?|sec|csc|cot|exp|log|ln|sqrt|pi|Abs|[A-Za-z]")
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z]")
_EVALUATED = {
    "binary_matrix": _LISTS,
    "n_queens": _LISTS,
    "spiral_matrix": _LISTS,
    "string_insertion": _LISTS,
    "countdown": _SUMS,
    "puzzle24": _SUMS,
    "intermediate_integration": _FORMULAS,
    "polynomial_multiplication": _FORMULAS,
    "simple_integration": _FORMULAS,
}


def is_accepted(family: str, answer: str) -> bool:
    """Return whether the family's verifier may see an answer."""
    form = _EVALUATED.get(family)
    if form is None:
        return True
    words = re.findall("[A-Za-z]+", answer) if form is _FORMULAS else []
    named = all(_NAME.fullmatch(word) for word in words) and not (words and _ATTRIBUTE.search(answer))
    return named and form.fullmatch(answer) is not None


def make_dataset(family: str, arguments: dict[str, Any], level: int | None, seed: int, size: int) -> Any:
    """Return a data set of a family. Raises ValueError in one line for a wrong setting."""
    from reasoning_gym.factory import CURRICULA, DATASETS, create_curriculum

    if family in REFUSED:
        raise ValueError(f"task.dataset: {family} cannot be a task, since {REFUSED[family]}")
    if family not in DATASETS:
        names = ", ".join(sorted(set(DATASETS) - set(REFUSED)))
        raise ValueError(f"task.dataset: expected a family of Reasoning Gym, got '{family}'; it has {names}")
    dataset_class, config_class = DATASETS[family]
    known = [field.name for field in dataclasses.fields(config_class) if field.name not in ("seed", "size")]
    if wrong := [name for name in arguments if name not in known]:
        raise ValueError(f"task.arguments.{wrong[0]}: {family} has {', '.join(known)}")
    config = config_class()
    if level is not None:
        if family not in CURRICULA:
            raise ValueError(f"task.level: {family} has no levels; set its task.arguments ({', '.join(known)})")
        curriculum = create_curriculum(family)
        highest = max((len(attribute.levels) for attribute in curriculum.attributes.values()), default=1) - 1
        if level > highest:
            raise ValueError(f"task.level: expected 0 to {highest} for {family}, got {level}")
        curriculum.set_global_level(level)
        config = curriculum.generate_configuration()
    config = dataclasses.replace(config, **arguments, seed=seed, size=size)
    try:
        return dataset_class(config)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"task.arguments: {family} refuses {arguments}: {error or type(error).__name__}") from error


def score(family: str, arguments: dict[str, Any], level: int | None, record: str, answer: str) -> tuple[float, str]:
    """Return an answer's score in [0, 1], and why it is 0 where no verifier said so.

    record: the problem as `_write_record` writes it.
    """
    if not is_accepted(family, answer):
        return 0.0, "refused: it holds characters or names that no answer of this family needs"
    try:
        value = float(make_dataset(family, arguments, level, 0, 1).score_answer(answer, ast.literal_eval(record)))
    except Exception as error:
        return 0.0, f"verifier_failed: {type(error).__name__}"
    return (min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0), ""


def generate(family: str, arguments: dict[str, Any], level: int | None, splits: list[list[int]]) -> list[list[Any]]:
    """Return the problems of several splits, each [question, known answer or None, record].

    splits: pairs of a seed and a number of problems. No question is in two splits or twice in one: later ones skip it.
    Raises ValueError for wrong settings, or where a family has fewer questions.
    """
    import numpy as np

    seen: set[str] = set()
    found = []
    for seed, count in splits:
        random.seed(seed)
        np.random.seed(seed)
        dataset = make_dataset(family, arguments, level, seed, max(_MIN_SIZE, 2 * count))
        split = []
        for entry in _entries(dataset, seed) if count else ():
            if entry["question"] not in seen:
                seen.add(entry["question"])
                split.append([entry["question"], _known_answer(dataset, entry), _write_record(entry)])
            if len(split) == count:
                break
        if len(split) < count:
            raise ValueError(
                f"expected {count} different problems of {family}, found {len(split)}; lower task.test_problems, "
                "task.train_problems or task.validation_problems, or choose another task.level"
            )
        found.append(split)
    return found


def find_mistakes(
    family: str, arguments: dict[str, Any], level: int | None, record: str, candidates: list[str], count: int
) -> list[str]:
    """Return the first `count` of the candidates, which are known texts and no model's, that are not right."""
    dataset, entry = make_dataset(family, arguments, level, 0, 1), ast.literal_eval(record)
    wrong = (text for text in candidates if text.strip() and not _is_right(dataset, entry, text.strip()))
    return [text.strip() for _, text in zip(range(count), wrong, strict=False)]


def _entries(dataset: Any, seed: int) -> Iterator[dict[str, Any]]:
    for index in range(len(dataset)):
        random.seed(seed + index)  # two families draw from the global generator
        # Some families give up on some indices.
        with contextlib.suppress(ValueError, RuntimeError, IndexError):
            entry = dataset[index]
            # One family has problems about files of its own making, whose random names no seed repeats.
            if f"{tempfile.gettempdir()}/{tempfile.gettempprefix()}" not in str(entry):
                yield entry


def _known_answer(dataset: Any, entry: dict[str, Any]) -> str | None:
    """Return an answer that the verifier accepts without blanks around it, None where the family names none."""
    named = entry["answer"]
    if named is None:
        named = next((entry["metadata"][name] for name in _EXAMPLES if name in entry["metadata"]), None)
    if named is None:
        return None
    text = (named if isinstance(named, str) else json.dumps(named)).strip()
    return text if _is_right(dataset, entry, text) else None


def _is_right(dataset: Any, entry: dict[str, Any], text: str) -> bool:
    try:
        return bool(dataset.score_answer(text, entry) >= MIN_RIGHT)
    except Exception:
        return False


def _write_record(entry: dict[str, Any]) -> str:
    """Return a problem as a Python literal: JSON lacks the tuples and the keys by which some verifiers compare."""
    return repr(_plain({name: entry[name] for name in ("question", "answer", "metadata")}))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return type(value)(map(_plain, value))
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value.item() if hasattr(value, "item") else value


def _serve(replies: Any) -> None:
    try:
        import reasoning_gym  # noqa: F401 - seconds, before the first request
    except Exception as error:
        print(json.dumps({"error": str(error) or type(error).__name__}), file=replies, flush=True)
        return
    print(json.dumps({"ready": True}), file=replies, flush=True)
    work: dict[str, Callable[..., Any]] = {"generate": generate, "find_mistakes": find_mistakes}
    for line in sys.stdin:
        name, given = json.loads(line)
        try:
            reply = {"result": work[name](**given)}
        except ValueError as error:
            reply = {"error": str(error)}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__" and sys.argv[1:] == ["serve"]:
    # Some families print as they generate.
    with contextlib.redirect_stdout(io.StringIO()):
        _serve(sys.__stdout__)
