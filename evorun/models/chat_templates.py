"""Chat templates, which a model's folder brings: rendered in jinja2's sandbox, with a bound on what they may take."""

import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import FrameType
from typing import Any

from jinja2 import Environment, TemplateError, TemplateRuntimeError, nodes

from evorun.models.base import Message

MAX_LINES = 1_000_000
"""Lines of a template that are carried out for one prompt, repetitions included. `ours`: a conversation of a hundred
turns takes some thousands, and a million half a second."""
MAX_FACTOR = 10_000
"""The largest number that a template may multiply by: repeated texts fill the memory in one step."""

_FILE = "<template>"
"""jinja2's name of the compiled code."""
# Blocks that only `transformers` knows, and that its own environment reads
_GENERATION = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")


def apply_chat_template(tokenizer: Any, messages: Sequence[Message], **options: Any) -> Any:
    """Return what a tokenizer's `apply_chat_template` returns; the template is a stranger's.

    Raises TemplateError when it fails, and for one that goes on beyond MAX_LINES or computes powers.
    """
    template = tokenizer.chat_template
    if isinstance(template, str):
        _refuse_large_numbers(template)
    before = sys.gettrace()
    sys.settrace(_LineLimit())
    try:
        return tokenizer.apply_chat_template(list(messages), **options)
    except RecursionError:
        raise TemplateRuntimeError("its macros call each other without an end") from None
    finally:
        sys.settrace(before)


class _LineLimit:
    """A trace function that ends a template which would go on for ever, in the thread that renders it."""

    def __init__(self) -> None:
        self._lines_left = MAX_LINES

    def __call__(self, frame: FrameType, event: str, value: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != _FILE:
            return None
        self._lines_left -= event == "line"
        if self._lines_left < 0:
            raise TemplateRuntimeError(f"it has not ended after {MAX_LINES:,} lines")
        return self


@lru_cache(maxsize=8)
def _refuse_large_numbers(template: str) -> None:
    """Raise TemplateError for arithmetic that takes long or fills the memory within one line."""
    try:
        parsed = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(_GENERATION.sub("", template))  # noqa: S701
    except TemplateError:
        return  # rendering says what is wrong with it
    if parsed.find(nodes.Pow) is not None:
        raise TemplateRuntimeError("it computes powers, which no conversation needs")
    for product in parsed.find_all(nodes.Mul):
        for factor in (product.left, product.right):
            if isinstance(factor, nodes.Const) and isinstance(factor.value, int) and factor.value > MAX_FACTOR:
                raise TemplateRuntimeError(f"it multiplies by {factor.value}, more than {MAX_FACTOR:,}")
