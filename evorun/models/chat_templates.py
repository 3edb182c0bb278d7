"""Chat templates, which a model's folder brings: rendered in jinja2's sandbox, with a bound on what they may take."""

import contextlib
import re
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

from jinja2 import Environment, TemplateError, TemplateRuntimeError, nodes

from evorun.models.base import Message

MAX_LINES = 1_000_000
"""Lines of a template that are carried out for one prompt, repetitions included. `ours`: a conversation of a hundred
turns takes some thousands, and a million half a second."""
MAX_FACTOR = 10_000
"""The largest number that a template may multiply by: a step that takes long is not one line after another."""
MAX_CHARACTERS = 20_000_000
"""Of a prompt. `ours`: twice the longest context that a model has."""
MAX_MEMORY = 4 * 2**30
"""Bytes that this process may grow by while a template is rendered. `ours`: far more than a prompt takes, as other
threads of the process may need some at the same moment."""

_FILE = "<template>"
"""jinja2's name of the compiled code."""
# Blocks that only `transformers` knows, and that its own environment reads
_GENERATION = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")
_STATM = Path("/proc/self/statm")
# The bound holds for the process, so that two threads would lift each other's.
_rendering = threading.Lock()


def apply_chat_template(tokenizer: Any, messages: Sequence[Message], *, tokenize: bool, **options: Any) -> Any:
    """Return a conversation as a tokenizer's chat template writes it: its text, or its token ids.

    The template is a stranger's. Raises TemplateError when it fails, and for one that goes on beyond MAX_LINES, takes
    more than MAX_MEMORY, writes more than MAX_CHARACTERS, or computes powers.
    """
    template = tokenizer.chat_template
    if isinstance(template, str):
        _refuse_large_numbers(template)
    before = sys.gettrace()
    with _rendering:
        sys.settrace(_LineLimit())
        try:
            with _bounded_memory():
                text = tokenizer.apply_chat_template(list(messages), tokenize=False, **options)
        except RecursionError:
            raise TemplateRuntimeError("its macros call each other without an end") from None
        except MemoryError:
            raise TemplateRuntimeError(f"it takes more than {MAX_MEMORY / 2**30:g} GiB of memory") from None
        finally:
            sys.settrace(before)
    if len(text) > MAX_CHARACTERS:
        raise TemplateRuntimeError(f"it writes {len(text):,} characters, more than {MAX_CHARACTERS:,}")
    # Outside of the bound: the tokenizer is no stranger's, and ends the process where it gets no memory.
    return tokenizer(text, add_special_tokens=False)["input_ids"] if tokenize else text


@contextlib.contextmanager
def _bounded_memory() -> Iterator[None]:
    """Let this process grow by MAX_MEMORY and no more; on Linux, and without CUDA in this process."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():  # which may reserve more at any moment, in another thread
        yield
        return
    try:
        pages = int(_STATM.read_text().split()[0])
    except OSError:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = pages * resource.getpagesize() + MAX_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (bound if soft == resource.RLIM_INFINITY else min(bound, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


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
    """Raise TemplateError for arithmetic that takes long within one line."""
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
