"""A lack of a later part of a run is said before anything is paid for: no teacher runs, no folder is begun."""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

from building import composed
from evorun.errors import ConfigError, EngineError, EvorunError
from evorun.models.embedded import is_ready
from evorun.models.requirements import load_skeleton
from evorun.runner.requirements import require_parts, require_student, require_trainer
from evorun.runner.settings import check
from evorun.testing.runs import carry_out
from evorun_process import DRY_RUN, SMALL, evorun_here, reopen
from tiny_llama import write_tiny_llama
from token_server import write_byte_tokenizer

LAFT = ("experiment=laft/tiny", "hydra.run.dir=run", "run.stages=stages", "evorun.progress=off")


def lack(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let these packages be not installed."""

    def found(name: str) -> ModuleSpec | None:
        return None if name in packages else find_spec(name)

    monkeypatch.setattr("evorun.models.requirements.find_spec", found)


def refused(folder: Path, *words: str) -> str:
    """Return the one line by which a run is refused before anything of it is there."""
    done = evorun_here(*words, cwd=folder)
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    assert not (folder / "run" / "manifest.json").exists()
    assert not (folder / "stages").exists()
    return line


def test_an_engine_that_only_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lack(monkeypatch, "vllm")
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    run = (*DRY_RUN, *SMALL, "hydra.run.dir=run")
    line = refused(tmp_path, *run, "judge=qwen2_5_7b", "judge_engine=vllm")
    assert line.startswith("error: judge_engine=vllm: vLLM is not installed; run ")
    line = refused(tmp_path, *run, "judge=gpt_4o_mini", "judge_engine=server", "judge_engine.api_key_env=NO_SUCH_KEY")
    assert line.startswith("error: judge_engine.api_key_env: expected the API key in the environment variable NO_SUCH")
    assert "or set judge_engine.api_key_env=null for" in line
    line = refused(tmp_path, *run, "judge=local", "judge.id=./nowhere", "judge_engine=transformers")
    assert "/nowhere': expected a folder with weights, found none" in line
    line = refused(tmp_path, *run, "judge=gpt_4o_mini", "judge_engine=transformers")
    assert "is served by its vendor only: use judge_engine=server" in line
    line = refused(tmp_path, *run, "judge=gpt_4o_mini", "judge_engine=server", "judge_engine.base_urls=[]")
    assert line == "error: judge_engine.base_urls: expected at least one URL, got an empty list"


@pytest.mark.parametrize("package", ["trl", "peft", "datasets"])
def test_the_trainer_of_a_student(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    lack(monkeypatch, package)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "model.safetensors").touch()
    line = refused(tmp_path, *LAFT, "model=local", "model.id=./model")
    assert f"the package {package}" in line
    assert "pip install 'evorun[train]'" in line


def test_the_engine_of_a_teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lack(monkeypatch, "vllm")
    monkeypatch.setattr("evorun.models.embedded.require_source", lambda: None)
    line = refused(tmp_path, *LAFT, "teacher_engine=vllm", "~teacher_engine.skill", "~teacher_engine.mean_tokens")
    assert line.startswith("error: in stage teacher (")
    assert "vLLM is not installed" in line


def test_a_run_that_has_begun_goes_on_from_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("method=zero_shot", *DRY_RUN[1:], "task.limit=1", "hydra.run.dir=run", "evorun.progress=off")
    assert evorun_here(*words, cwd=tmp_path).returncode == 0
    reopen(tmp_path / "run")
    monkeypatch.setattr("evorun.runner.experiment.require_parts", lambda config: 1 / 0)
    done = evorun_here("resume", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_chat_template_without_a_tools_turn(tmp_path: Path) -> None:
    """All engines that render prompts here are refused, trained or not; a server that renders is not looked at."""
    template = "{% for m in messages if m.role != 'tool' %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    folder = write_byte_tokenizer(tmp_path, template=template)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    run = ("task=search_qa", "task.source=sample", "model=local", f"model.id={folder}")
    for words in (("method=zero_shot", "engine=transformers"), ("method=grpo", "engine=server")):
        with pytest.raises(EngineError, match=r"no messages of the role tool \(it leaves them out\); set model\.tool"):
            require_parts(check(composed(*run, *words)))
    require_parts(check(composed(*run, "method=zero_shot", "engine=server")))
    require_parts(check(composed(*run, "method=zero_shot", "engine=transformers", "model.tool_role=user")))


@pytest.mark.nightly
@pytest.mark.embedded
@pytest.mark.skipif(not is_ready(), reason="no embedded model")
def test_the_model_of_a_student(tmp_path: Path) -> None:
    """Its layers, its tokenizer's chat template and its end tokens; looked at before the teacher's first call."""
    model = write_tiny_llama(tmp_path / "model")
    config = composed("experiment=laft/tiny", "model=local", f"model.id={model}", f"run.stages={tmp_path / 'stages'}")
    require_student(check(config))
    template = (model / "chat_template.jinja").read_text()
    endless = template.replace("<|im_end|>", "")
    for file, content, training, said in (
        (None, "", {"target_modules": ["q_prog"]}, "the model has no linear layer 'q_prog'; it has down_proj, "),
        (None, "", {"num_processes": 3}, "expected a multiple of training.num_processes (3), got 4"),
        ("chat_template.jinja", endless, {}, "ends an answer without a token that ends a completion"),
        ("chat_template.jinja", None, {}, "its tokenizer has no chat template"),
        ("config.json", '{"model_type": "of_tomorrow"}', {}, "transformers cannot load it"),
    ):
        if file is not None and content is None:
            (model / file).unlink()
        elif file is not None:
            (model / file).write_text(content)
        load_skeleton.cache_clear()
        lacking = check({**config, "training": {**config["training"], **training}})
        with pytest.raises(EvorunError, match=r"^in stage student \(") as caught:
            require_student(lacking)
        assert said in str(caught.value)
    for engine in ("vllm", "server"):  # which would be started, or asked, before the trainer
        of_run = ("method=grpo", "task=arithmetic", "model=local", f"model.id={model}", f"engine={engine}")
        urls = ("engine.base_urls=[http://127.0.0.1:9]",) if engine == "server" else ()
        with pytest.raises(EvorunError, match="transformers cannot load it"):
            require_trainer(check(composed(*of_run, *urls)))
    run = carry_out(check(config), tmp_path / "run")
    assert run.outcome.status == "failed"
    assert not list((tmp_path / "stages").glob("teacher_*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["task=arithmetic", "student=dpft_top"],
            "student.kind=dpft_top takes the best answers by penalised_score",
        ),
        (["task=sudoku", "student=dpft", "student.kind=laft"], "student.kind=laft learns from answers of lyria, got"),
    ],
)
def test_what_no_traces_or_no_student_can_come_of(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(composed("method=zero_shot", "model=llama3_2_3b", "engine=transformers", *words))
    assert said in str(caught.value)
