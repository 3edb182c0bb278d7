"""Runs made by hand: each response with what it was asked, what came, and what was made of it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evorun.runs.journal_file import Effect
from evorun.runs.journal_reader import read_journal
from journals import write_journal
from run_fixture import RunSpec, write_lines, write_run

FIELDS = {"mean": None, "sd": None, "survivor": True, "correct": False, "attempts": 1, "reasoning": ""}


@dataclass
class Made:
    """A response of a run that is made by hand."""

    id: str
    operator: str = "init"
    fitness: float | None = 50.0
    parents: tuple[str, ...] = ()
    problem: str = "p"
    prompt: str = "What is it?"
    text: str | None = None
    """None: one of its own."""
    answer: str | None = "7"
    finish: str = "stop"
    scores: dict[str, float] = field(default_factory=dict)
    call: bool = True

    @property
    def said(self) -> str:
        return f"I say {self.id} of {self.problem}." if self.text is None else self.text

    def record(self) -> dict[str, Any]:
        return {
            "problem": self.problem,
            "id": self.id,
            "generation": 0,
            "parents": self.parents,
            "operator": self.operator,
            "text": self.said,
            "answer": self.answer,
            "error": None if self.answer else "no_block",
            "fitness": self.fitness,
            "scores": self.scores,
            "call": f"{self.problem}|{self.id}" if self.call else None,
            **FIELDS,
        }

    def effect(self) -> Effect:
        messages = [{"content": "Be brief.", "role": "system"}, {"content": self.prompt, "role": "user"}]
        request = {"json_schema": None, "messages": messages, "model": "m", "sampling": {}, "seed": 0}
        completion = {"text": self.said, "finish_reason": self.finish, "tokens": 3}
        result = {"completions": [completion], "prompt_tokens": 5, "seconds": 0.1, "error": None}
        return Effect(f"{self.problem}|{self.id}", b"-" * 16, encoded(request), encoded(result), "{}", 0.1)


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def make_run(path: Path, responses: list[Made], **manifest: Any) -> Path:
    """Write a run directory of method `lyria` that holds these responses, in order."""
    write_run(path, RunSpec(problems=0, finished=False, manifest={"method": "lyria", "task": "sudoku", **manifest}))
    with (path / "candidates.jsonl").open("wb") as file:
        write_lines(file, [one.record() for one in responses])
    write_journal(path / "journal.sqlite", [one.effect() for one in responses if one.call])
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a JSONL file."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def calls(run: Path) -> dict[str, tuple[list[dict[str, str]], dict[str, Any]]]:
    """Return messages and completion of each recorded model call, by key."""
    return {
        one.key: (json.loads(one.request)["messages"], json.loads(one.result)["completions"][0])
        for one in read_journal(run / "journal.sqlite")
        if not one.key.startswith("sandbox|")
    }
