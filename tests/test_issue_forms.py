"""The issue forms are such as GitHub takes: one with a mistake would silently not be offered."""

from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[1] / ".github" / "ISSUE_TEMPLATE"
FORMS = [file for file in sorted(FOLDER.glob("*.yml")) if file.name != "config.yml"]
LABELLED = {"input", "textarea", "dropdown", "checkboxes"}


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.stem)
def test_a_form_has_what_github_asks_for(file: Path) -> None:
    form: dict[str, Any] = yaml.safe_load(file.read_text())
    assert {"name", "description", "body"} <= set(form) <= {"name", "description", "body", "labels", "title"}
    fields = [element for element in form["body"] if element["type"] != "markdown"]
    assert {element["type"] for element in fields} <= LABELLED
    assert len({element["id"] for element in fields}) == len(fields) > 0
    assert len({element["attributes"]["label"] for element in fields}) == len(fields)
    for element in form["body"]:
        if element["type"] in ("dropdown", "checkboxes"):
            options = element["attributes"]["options"]
            assert all(isinstance(option, str | dict) for option in options)  # yes and no unquoted are booleans
            assert len(set(map(str, options))) == len(options)
        if element["type"] == "markdown":
            assert element["attributes"]["value"].strip()


def test_there_is_a_form_for_each_kind_of_issue() -> None:
    assert [file.stem for file in FORMS] == ["bug_report", "feature_request", "new_task_method_or_paper"]
    assert yaml.safe_load((FOLDER / "config.yml").read_text()) == {"blank_issues_enabled": True}
