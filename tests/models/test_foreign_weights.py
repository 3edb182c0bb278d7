"""Models of other people's making: what their folders bring is loaded as data, and never run."""

import json
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError

from building import make_config
from evorun.errors import EngineError
from evorun.models import chat_templates
from evorun.models.base import Message
from evorun.models.chat import load_tokenizer, prompt_token_ids
from evorun.models.config import ModelConfig
from evorun.models.transformers.engine import _load
from tiny_llama import write_tiny_llama

torch = pytest.importorskip("torch")

CODE = """open({marker!r}, "w").close()
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class Config(LlamaConfig): pass
class Model(LlamaForCausalLM): pass
class Tokenizer(PreTrainedTokenizerFast): pass
"""
OF_MODEL = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
OF_TOKENIZER = {"AutoTokenizer": ["code.Tokenizer", "code.Tokenizer"]}


class _Opens:
    """Opens a file for writing when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return open, (str(self.marker), "w")


@pytest.fixture(name="tiny", scope="module")
def _tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(name="folder")
def _folder(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of a model, on a terminal where the user agrees to everything."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    (folder / "code.py").write_text(CODE.format(marker=str(tmp_path / "marker")))
    return folder


def _change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": _Opens(folder.parent / "marker")}, folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("attack", "refused"),
    [
        (lambda folder: _change(folder / "config.json", model_type="theirs", auto_map=OF_MODEL), "custom code"),
        (
            lambda folder: _change(
                folder / "tokenizer_config.json", tokenizer_class="Tokenizer", auto_map=OF_TOKENIZER
            ),
            "custom code",
        ),
        (_pickled, "Weights only load failed"),
        (lambda folder: _change(folder / "config.json", auto_map=OF_MODEL), None),  # of a type that is known anyway
    ],
    ids=["model", "tokenizer", "pickle", "known"],
)
def test_what_a_folder_brings_is_not_run(folder: Path, attack: Any, refused: str | None) -> None:
    attack(folder)
    engine, model = make_config("engine", "transformers"), ModelConfig(name="theirs", id=str(folder))
    if refused is None:
        _load(engine, model)
    else:
        with pytest.raises(EngineError, match=refused):
            _load(engine, model)
    assert not (folder.parent / "marker").exists()


def test_a_tokenizer_alone_brings_no_code_either(folder: Path) -> None:
    _change(folder / "tokenizer_config.json", tokenizer_class="Tokenizer", auto_map=OF_TOKENIZER)
    with pytest.raises(EngineError, match="custom code"):
        load_tokenizer(ModelConfig(name="theirs", id=str(folder)))
    assert not (folder.parent / "marker").exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['os'].system('touch marker') }}",
        "{% for i in range(10**9) %}{% endfor %}",
    ],
)
def test_a_chat_template_reaches_nothing_of_python(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    model = ModelConfig(name="theirs", id=str(folder))
    with pytest.raises((TemplateError, OverflowError)):
        prompt_token_ids(load_tokenizer(model), (Message(role="user", content="Which?"),), model)


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (ENDLESS + "{% endfor %}", "not ended after 20,000 lines"),
        (
            "{% macro m(n) %}{% for a in range(9999) %}{{ m(n) }}{% endfor %}{% endmacro %}{{ m(1) }}",
            "without an end|ended",
        ),
        ("{% if messages[0].content == 'Which?' %}" + ENDLESS + "{% endfor %}{% endif %}", "not ended"),
        ("{{ 9 ** 9 ** 9 }}", "powers"),
        ("{{ 'a' * 99999999999 }}", "multiplies by 99999999999"),
    ],
)
@pytest.mark.timeout(600)  # without an end it would take years
def test_a_chat_template_without_an_end_is_ended(
    folder: Path, template: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_templates, "MAX_LINES", 20_000)
    model = ModelConfig(name="theirs", id=str(folder))
    tokenizer = load_tokenizer(model)
    before = sys.gettrace()
    tokenizer.chat_template = template
    with pytest.raises(TemplateError, match=reason):
        prompt_token_ids(tokenizer, (Message(role="user", content="Which?"),), model)
    assert sys.gettrace() is before


LARGE = "a" * 1000
# Each writes, or holds, some gigabytes where nothing bounds it; none takes many lines, powers or factors
GREEDY = {
    "replace": "{% set x = s.replace('a', s).replace('a', s) %}{{ x | length }}",
    "join": "{% set x = (s | list) | join(s) %}{% set y = (x[:2000] | list) | join(x) %}{{ y | length }}",
    "concatenation": "{% set n = namespace(x=s) %}{% for _ in range(21) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ 1 }}",
    "addition": "{% set n = namespace(x=s) %}{% for _ in range(21) %}{% set n.x = n.x + n.x %}{% endfor %}{{ 1 }}",
    "lists": "{% set n = namespace(x=[s]) %}{% for _ in range(28) %}{% set n.x = n.x + n.x %}{% endfor %}{{ 1 }}",
    "width": "{{ ('%2000000000d' % 1) | length }}",
    "width of format": "{{ '{:>2000000000}'.format(1) | length }}",
    "center": "{{ s | center(2000000000) | length }}",
    "method": "{{ s.ljust(2000000000) | length }}",
    "shared": "{% set n = namespace(x=[s]) %}{% for _ in range(21) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ n.x | tojson | length }}",
    "indent": "{{ [[[1]]] | tojson(indent=700000000) | length }}",
    "factors": "{% set x = s * 10000 * 200 %}{{ x | length }}",
    "output": "{% for _ in range(2000) %}{{ s * 1000 }}{% endfor %}",
}


NIGHTLY = ("addition", "lists", "shared")  # held back as the others are, and slow


@pytest.mark.parametrize(
    "template",
    [pytest.param(text, id=name, marks=[pytest.mark.nightly] * (name in NIGHTLY)) for name, text in GREEDY.items()],
)
@pytest.mark.timeout(600)
def test_a_chat_template_does_not_fill_the_memory(folder: Path, template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_templates, "MAX_MEMORY", 2**28)
    model = ModelConfig(name="theirs", id=str(folder))
    tokenizer = load_tokenizer(model)
    tokenizer.chat_template = f"{{% set s = '{LARGE}' %}}{template}"
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(TemplateError, match=r"takes more than 0\.25 GiB of memory"):
        prompt_token_ids(tokenizer, (Message(role="user", content="Which?"),), model)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    tokenizer.chat_template = "{{ messages[0].content }}"  # and the next one is rendered
    assert prompt_token_ids(tokenizer, (Message(role="user", content="Which?"),), model)


def test_a_prompt_beyond_any_context_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_templates, "MAX_CHARACTERS", 1_000)
    model = ModelConfig(name="theirs", id=str(folder))
    tokenizer = load_tokenizer(model)
    for length in (1_000, 1_001):
        tokenizer.chat_template = f"{{{{ 'a' * {length} }}}}"
        if length == 1_000:
            assert prompt_token_ids(tokenizer, (Message(role="user", content="Which?"),), model)
        else:
            with pytest.raises(TemplateError, match="writes 1,001 characters, more than 1,000"):
                prompt_token_ids(tokenizer, (Message(role="user", content="Which?"),), model)


def test_a_long_conversation_is_no_endless_template(folder: Path) -> None:
    model = ModelConfig(name="theirs", id=str(folder))
    turns = [Message(role="user", content="Which?"), Message(role="assistant", content="This one.")] * 500
    tokenizer = load_tokenizer(model)
    assert len(prompt_token_ids(tokenizer, (*turns, turns[0]), model)) > 1000
