"""Digests that say which part of a run differs: one for each part of its requests and for each field of its records."""

import json
from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from evorun.models.base import Request
from evorun.runs.journal_reader import read_journal

Digests = dict[str, Any]
"""Digests and counts, nested by what they are of."""

MANIFEST = ("status", "seed", "method", "task", "models", "stages", "regime", "simulated", "provenance")
"""Fields of manifest.json that say nothing of the time, the machine or the versions."""

METRIC = ("step", "value", "ci95", "n", "calls", "tokens")
"""Fields of a line of metrics.jsonl; its digests are by the metric's name."""


def digest(value: Any) -> str:
    """Return 12 hexadecimal digits of a JSON value; floats count with nine significant digits."""
    text = json.dumps(_rounded(value), sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=6).hexdigest()


def unordered(values: Iterable[Any]) -> str:
    """Return the digest of values whose order means nothing."""
    return digest(sorted(json.dumps(_rounded(value), sort_keys=True) for value in values))


def digest_run(path: Path, asked: Iterable[Request]) -> Digests:
    """Return the digests of a run that has ended in `path`, and of what it asked its models."""
    found: Digests = {"requests": _requests(path, asked)}
    for file in sorted(path.glob("*.jsonl")):
        found[file.name] = _columns([json.loads(line) for line in file.read_text().splitlines()])
    metrics = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    found["metrics.jsonl"] = {
        name: digest([[line[key] for key in METRIC] for line in metrics if line["name"] == name])
        for name in sorted({line["name"] for line in metrics})
    }
    manifest = json.loads((path / "manifest.json").read_text())
    found["manifest.json"] = {key: digest(manifest[key]) for key in MANIFEST}
    found["results.json"] = _results(json.loads((path / "results.json").read_text()))
    artifacts = [file for file in sorted(path.glob("artifacts/**/*")) if file.is_file()]
    found["artifacts"] = {file.relative_to(path).as_posix(): digest(_text(file)) for file in artifacts}
    return {name: digests for name, digests in found.items() if digests}


def differences(expected: Any, found: Any, name: str = "") -> list[str]:
    """Return a line for each digest or count that is not as expected, beginning with the names that lead to it."""
    if isinstance(expected, dict) and isinstance(found, dict):
        names = [*expected, *(key for key in found if key not in expected)]
        return [
            line
            for key in names
            for line in differences(expected.get(key), found.get(key), f"{name} > {key}" if name else key)
        ]
    if expected == found:
        return []
    if expected is None:
        return [f"{name}: is new"]
    if found is None:
        return [f"{name}: is gone"]
    return [f"{name}: expected {expected}, found {found}"]


def prompt_digests(prompts: Iterable[Any]) -> Digests:
    """Return the digests of prompts or requests, in their order, part by part."""
    plain = [msgspec.to_builtins(prompt, enc_hook=repr) for prompt in prompts]
    return {part: digest([one[part] for one in plain]) for part in ("messages", "json_schema", "hints")}


def _requests(path: Path, asked: Iterable[Request]) -> Digests:
    """Return digests by role, as the journal's keys name it; other effects go by the name in theirs.

    `pairs` differs where the prompts and the seeds are as expected, but not which goes with which.
    """
    effects = sorted((one.key, one.request, one.usage) for one in read_journal(path / "journal.sqlite"))
    keys, others, role_of = defaultdict(list), defaultdict(list), {}
    for key, body, usage in effects:
        role = key.split("|")[0] if usage is None and key.count("|") < 4 else key.rsplit("|", 4)[2]
        keys[role].append(key)
        if usage is None:
            others[role].append(json.loads(body))
        else:
            role_of[json.loads(body)["seed"]] = role  # drawn from the call's key, so no two calls share it
    by_role = defaultdict(list)
    for request in asked:
        plain = msgspec.to_builtins(request, enc_hook=repr)
        by_role[role_of.get(request.seed, "not in the journal")].append(plain)
    found = {role: {"keys": digest(names), "requests": unordered(others[role])} for role, names in keys.items()}
    for role, calls in by_role.items():
        found[role] = {
            "calls": len(calls),
            "keys": digest(keys[role]),
            "prompts": unordered(call["messages"] for call in calls),
            "schema": unordered(call["json_schema"] for call in calls),
            "sampling": unordered([call["sampling"], call["token_ids"]] for call in calls),
            "seeds": unordered(call["seed"] for call in calls),
            "hints": unordered(call["hints"] for call in calls),
            "pairs": unordered([call["seed"], call["messages"]] for call in calls),
        }
    return dict(sorted(found.items()))


def _columns(lines: list[dict[str, Any]]) -> Digests:
    fields = {key: None for line in lines for key in line}
    return {field: digest([line.get(field) for line in lines]) for field in fields}


def _results(results: dict[str, Any]) -> Digests:
    for spent in (*results["cost"].values(), *results.get("cost_by_model", {}).values()):
        spent.pop("seconds", None)
    return {
        f"{part}.{name}" if name else part: digest(value)
        for part, values in results.items()
        for name, value in (sorted(values.items()) if isinstance(values, dict) else [("", values)])
    }


def _text(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "backslashreplace")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}") if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, dict):
        return {str(key): _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value
