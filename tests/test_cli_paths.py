"""Paths on the command line mean the same in every folder, however a run is gone on with."""

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evorun
from evorun.cli.plain import FOLDERS_OR_NAMES, FUNCTIONS, PATHS, RUN_PATHS, with_absolute_paths
from evorun.runs.paths import display
from evorun_process import evorun_here, reopen

HANDLED = {
    # by itself: of engines and models of every role, the rubric, which may be a name, and trackers
    *("run", "url_files", "id", "adapter", "rubric", "folder"),
    *(key for groups in (PATHS, FOLDERS_OR_NAMES, FUNCTIONS, RUN_PATHS) for keys in groups.values() for key in keys),
}
NO_PATHS = {
    "files",  # patterns within `data`
    "hub",
    "hub_id",
    "source",
    "quantization",
    "mode",
    "base_urls",
    "weight_transfer",
}


def documented_texts() -> Iterator[tuple[str, str]]:
    """Yield the class and name of each field of a configuration whose text the documentation calls a file or folder."""
    for file in Path(evorun.__file__).parent.rglob("*.py"):
        source = file.read_text()
        # to parse all of the package takes a second
        for node in ast.walk(ast.parse(source)) if re.search(r"class \w+(Config|Settings|Benchmark)\b", source) else ():
            if not isinstance(node, ast.ClassDef) or not re.search(r"(Config|Settings|Benchmark)$", node.name):
                continue
            for field, documentation in zip(node.body, node.body[1:], strict=False):
                if not (isinstance(field, ast.AnnAssign) and isinstance(documentation, ast.Expr)):
                    continue
                may_be_text = re.search(r"^(?!ClassVar).*\b(str|Any)\b", ast.unparse(field.annotation))
                if may_be_text and re.search(r"\b(file|folder|path)s?\b", ast.unparse(documentation), re.IGNORECASE):
                    yield node.name, ast.unparse(field.target)


@pytest.mark.nightly
def test_every_setting_that_names_a_file_or_a_folder_is_known() -> None:
    found = {(of, name) for of, name in documented_texts() if not of.startswith("_")}
    assert {name for _, name in found} >= {"data", "prompts", "accelerate_config", "root_principles", "adapter"}
    assert {one for one in found if one[1] not in HANDLED | NO_PATHS} == set()


def test_paths_of_every_group_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoder").mkdir()
    method: dict[str, Any] = {
        **{"root_principles": "r.txt", "other_roots": ["o.txt", ["Be brief."]], "operator_prompts": "operators"},
        **{"prompts": 4, "meta_prompts": None, "rubric": "initial"},
    }
    absolute = with_absolute_paths(
        {
            "method": method,
            "task": {"retriever_model": "encoder", "prompt_tokenizer": "google/gemma-3-4b-it", "embeddings": "tfidf"},
            "training": {"accelerate_config": "a.yaml"},
            "tracker": {"wandb": {"folder": "logs"}, "tensorboard": {"folder": None}},
            "model": {"id": "google/gemma", "adapter": "adapter"},
            "judge": {"name": "panel", "members": [{"id": "x", "adapter": "~/adapter"}, {"id": "x", "adapter": None}]},
        }
    )
    assert absolute["method"] == {
        **method,
        "root_principles": f"{tmp_path}/r.txt",
        "other_roots": [f"{tmp_path}/o.txt", ["Be brief."]],
        "operator_prompts": f"{tmp_path}/operators",
    }
    assert absolute["tracker"] == {"wandb": {"folder": f"{tmp_path}/logs"}, "tensorboard": {"folder": None}}
    assert absolute["task"] == {
        "retriever_model": f"{tmp_path}/encoder",
        "prompt_tokenizer": "google/gemma-3-4b-it",
        "embeddings": "tfidf",
    }
    assert absolute["training"] == {"accelerate_config": f"{tmp_path}/a.yaml"}
    assert absolute["model"] == {"id": "google/gemma", "adapter": f"{tmp_path}/adapter"}
    assert [one["adapter"] for one in absolute["judge"]["members"]] == [str(Path("~/adapter").expanduser()), None]
    named = {"function": "tasks/mine.py:gsm", "environment": "package.module:Room", "rows": "rows.jsonl"}
    assert with_absolute_paths({"task": named})["task"] == {
        **named,
        "function": f"{tmp_path}/tasks/mine.py:gsm",
        "rows": f"{tmp_path}/rows.jsonl",
    }
    assert with_absolute_paths({"method": {"root_principles": ["Be brief."]}})["method"]["root_principles"] == [
        "Be brief."
    ]


def test_a_run_with_a_file_of_prompts_resumes_from_another_folder(tmp_path: Path) -> None:
    (tmp_path / "prompts.json").write_text(json.dumps([{"id": "a", "text": "Count slowly."}]))
    words = ("method=fixed_prompts", "method.prompts=prompts.json", "method.eval_samples=2", "task=arithmetic")
    done = evorun_here(*words, "task.limit=2", "engine=simulated", "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "elsewhere").mkdir()
    reopen(tmp_path / "run")
    resumed = evorun_here("resume", "../run", cwd=tmp_path / "elsewhere")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "completed"


def test_a_path_is_shown_as_a_user_would_type_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "far" / "inner").mkdir(parents=True)
    (tmp_path / "here" / "link").symlink_to(tmp_path / "far" / "inner")
    monkeypatch.chdir(tmp_path / "here")
    assert display(tmp_path / "here" / "runs" / ".." / "run") == "run"
    assert display(Path("../far")) == "../far"
    assert display(tmp_path / "here" / ".." / "far") == str(tmp_path / "far")
    above = tmp_path / "here" / "link" / ".." / ".." / "run"  # of far/inner
    assert os.path.realpath(display(above)) == os.path.realpath(above)
