"""The reference's pages say what the program does: each table is held to a source that its writer does not read."""

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
import yaml

from building import composed, composition
from evorun.cli import main
from evorun.cli.compose import default_config
from evorun.cli.plain import plain
from evorun.errors import ConfigError
from evorun.models.config import ModelConfig
from evorun.reports import figures, hacking, training
from evorun.runner import registry
from evorun.runner.settings import check
from evorun.runner.typed import typed
from evorun.runs.budget import BudgetConfig
from evorun.runs.results import RARE_COUNTS, TEXT_COUNTS
from evorun.tasks.environment.code import CodingTask
from evorun.training.config import TrainingConfig

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RECORDING = ROOT / "tests" / "recordings" / "smollm2_mathbench"
PINNED = json.loads((ROOT / "tests" / "composed_values.json").read_text())["methods"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Return the Markdown of each generated page, by its name."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(DOCS))
        folder = tmp_path_factory.mktemp("generated")
        importlib.import_module("reference.__main__").main(folder)
        yield {file.stem: file.read_text() for file in folder.glob("*.md")}


@pytest.fixture(scope="module")
def settings() -> Iterator[Mapping[str, str]]:
    """Return the pages of the settings alone: all pages take seconds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(DOCS))
        yield dict(importlib.import_module("reference.settings").settings_pages())


def sections(page: str) -> dict[str, list[list[str]]]:
    """Return the rows of each section's tables, cell by cell, without the heads."""
    found = {}
    for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        rows = [re.split(r" (?<!\\)\| ", line.removeprefix("| ").removesuffix(" |")) for line in lines]
        heads = {number - 1 for number, row in enumerate(rows) if set(row) == {"---"}}
        found[title] = [row for number, row in enumerate(rows) if not {number, number - 1} & heads]
    return found


def codes(cell: str) -> list[str]:
    """Return the texts between backticks."""
    return re.findall(r"`([^`]*)`", cell)


def value_at(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values[part]
    return values


# --- settings ---


@pytest.mark.nightly
def test_defaults_of_methods_are_those_that_are_composed(settings: Mapping[str, str]) -> None:
    """Composed on a task that sets no sampling, without a budget: the last code of a default is then the value."""
    tables = sections(settings["settings_methods"])
    assert tables.keys() == {f"method={name}" for name in PINNED}
    for name, expected in PINNED.items():
        shown = {codes(key)[0].removeprefix("method."): default for key, default, _ in tables[f"method={name}"]}
        assert shown.keys() == expected.keys()
        for key, value in expected.items():
            if "that of" not in shown[key] and "at least" not in shown[key]:  # as another key
                text = codes(shown[key].partition("; under")[0])[-1]
                assert yaml.safe_load(text) == pytest.approx(value), (name, key)


def test_defaults_of_tasks_engines_and_training_are_those_of_the_checked_objects(settings: Mapping[str, str]) -> None:
    shared = sections(settings["settings"])
    lora = yaml.safe_load((ROOT / "conf/training/lora.yaml").read_text())
    found = {f"task={name}": asdict(default_config("task", name)) for name in registry.TASKS}
    found |= {
        f"engine={name}": asdict(typed(registry.engine_config_class(name), {"name": name}, "engine"))
        for name in ("vllm", "server", "transformers", "replay")
    }
    found |= {"training=lora": lora, "model": asdict(ModelConfig("", "id")), "budget": asdict(BudgetConfig())}
    for title, values in found.items():
        group = title.partition("=")[0]
        rows = {**sections(settings["settings_tasks"]), **shared}[title]
        shown = {
            codes(row[0])[0].removeprefix(f"{group}."): codes(row[1])
            for row in rows
            if codes(row[0])[0].startswith(f"{group}.") and not row[0].endswith("<br>settings")
        }
        assert {key.partition(".")[0] for key in shown} == values.keys() - {"name", "description"}, title
        for key, default in shown.items():
            if default:  # none where a value must be given
                expected = value_at(values, key)
                shown_value = float(default[0]) if isinstance(expected, float) else yaml.safe_load(default[0])
                assert shown_value == expected, (title, key)


@pytest.mark.nightly
def test_each_default_stands_in_the_line_that_is_named(pages: Mapping[str, str]) -> None:
    places = 0
    for page in ("settings", "settings_methods", "settings_tasks", "settings_of_pairs"):
        for row in (row for rows in sections(pages[page]).values() for row in rows if ":" in row[-1]):
            file, _, line = codes(row[-1])[-1].rpartition(":")
            key = codes(row[0])[0].rpartition(".")[2]
            assert (ROOT / file).read_text().splitlines()[int(line) - 1].strip().startswith(f"{key}:"), (
                key,
                file,
                line,
            )
            places += 1
    assert places > 1000


def test_each_key_has_a_type_a_meaning_and_a_source(settings: Mapping[str, str]) -> None:
    keys = 0
    for page in settings.values():
        for row in (row for rows in sections(page).values() for row in rows if "=" not in codes(row[0])[0]):
            key, _, kind = row[0].partition("<br>")
            assert re.search(r"\w", kind), key
            meaning, source, _ = row[-1].split("<br>")
            assert re.search(r"\w", meaning), key
            assert re.fullmatch(r"\*.*\w.*\*", source), key
            keys += 1
    assert keys > 2000


def test_a_key_without_a_source_is_refused(settings: Mapping[str, str]) -> None:
    module = importlib.import_module("reference.settings")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "read_words", lambda: {"meanings": {}, "sources": []})
        with pytest.raises(ValueError, match=r"^task\.sampling: expected a source in the comment of conf/task/aime"):
            list(module.list_settings("task", "aime", registry.task_config_class("aime")))


def test_each_rule_of_sources_and_each_meaning_by_hand_is_that_of_a_key(settings: Mapping[str, str]) -> None:
    words = importlib.import_module("reference.settings").read_words()
    all_rows = (row for page in settings.values() for rows in sections(page).values() for row in rows)
    rows = [row for row in all_rows if "=" not in codes(row[0])[0]]  # the others are choices: model=NAME
    shown = {re.sub(r"\\", "", row[-1]) for row in rows}
    assert [one for one in words["meanings"].values() if not any(row.startswith(f"{one}<br>") for row in shown)] == []
    places = [(codes(row[-1])[-1].rpartition(":")[0], codes(row[0])[0]) for row in rows]
    for rule in words["sources"]:
        for pattern in rule["keys"]:
            assert any(fnmatchcase(file, rule["file"]) and fnmatchcase(key, pattern) for file, key in places), rule


def test_values_outside_a_range_are_refused(settings: Mapping[str, str]) -> None:
    """The nearest values beyond the bounds, as numbers; the program refuses them by name."""
    schemas: dict[str, Any] = {
        f"method={name}": registry.method_class(name).Config for name in ("duel_evolve", "lyria")
    }
    refused = 0
    for title, schema in {**schemas, "training=lora": TrainingConfig}.items():
        group, _, name = title.partition("=")
        rows = {**sections(settings["settings_methods"]), **sections(settings["settings"])}[title]
        good = yaml.safe_load((ROOT / f"conf/{group}/lora.yaml").read_text()) if group == "training" else PINNED[name]
        typed(schema, {"name": name, **good}, group)
        for cell, *_ in rows:
            key, kind = codes(cell)[0].removeprefix(f"{group}."), cell.partition("<br>")[2]
            for value in beyond(kind):
                with pytest.raises(ConfigError, match=rf"^{group}\.{key}: expected"):
                    typed(schema, {"name": name, **good, key: value}, group)
                refused += 1
    assert refused > 50


def beyond(kind: str) -> Iterator[Any]:
    """Yield values just outside a range as the page states it."""
    step = 1 if kind.startswith("int") else 1e-6
    if found := re.search(r"(>=?) ([\d.]+)$", kind):
        yield type(step)(found[2]) - (step if found[1] == ">=" else 0)
    elif found := re.search(r"in ([\[(])([-\d.]+), ([-\d.]+)([\])])$", kind):
        yield type(step)(float(found[2])) - (step if found[1] == "[" else 0)
        yield type(step)(float(found[3])) + (step if found[4] == "]" else 0)
    elif "one of" in kind:
        yield "none_of_these"


# --- records ---


@pytest.mark.nightly
def test_a_records_rows_are_its_fields(pages: Mapping[str, str]) -> None:
    """By the JSON schema that msgspec makes of the types; the page is made of their annotations."""
    records = importlib.import_module("reference.records")
    tables = sections(pages["records"])
    shown = {**records.RUN, **records.STUDIES}
    _, definitions = msgspec.json.schema_components(tuple(dict.fromkeys(shown.values())))
    titles = {title: record.__name__ for title, record in shown.items()}
    titles |= {name: name for name in definitions if name not in titles.values()}
    assert tables.keys() == titles.keys() | {"Objects within records", "Other files"}
    for title, name in titles.items():
        properties = definitions[name]["properties"]
        assert [codes(row[0])[0] for row in tables[title]] == list(properties), title
        for (field, kind, unit, meaning), schema in zip(tables[title], properties.values(), strict=True):
            assert meaning, (title, field)
            assert unit or not re.search(r'"(number|integer)"', json.dumps(schema)), (title, field)
            one_type = schema.get("type")
            if one_type in ("string", "boolean", "integer", "number"):
                assert kind.removesuffix(" or absent") == one_type, (title, field)
            elif one_type in ("array", "object"):
                assert kind.startswith(("list", "object")), (title, field)
            alternatives = re.sub(r"\(.*\)", "", kind).split(" or ")
            assert ("null" in alternatives) == any(one.get("type") == "null" for one in schema.get("anyOf", ()))


@pytest.mark.nightly
def test_a_recorded_run_has_no_field_beside_the_rows(pages: Mapping[str, str]) -> None:
    tables = sections(pages["records"])
    for file in (*RECORDING.glob("*.jsonl"), RECORDING / "manifest.json", RECORDING / "results.json"):
        rows = {codes(row[0])[0] for row in tables[file.name]}
        for line in [file.read_text()] if file.suffix == ".json" else file.read_text().splitlines()[:50]:
            assert json.loads(line).keys() <= rows, file.name


@pytest.mark.nightly
def test_a_field_without_a_meaning_is_refused(pages: Mapping[str, str]) -> None:
    records, sources = importlib.import_module("reference.records"), importlib.import_module("reference.sources")
    stated = sources.read_fields(records.RUN["steps.jsonl"])
    bare = {name: field._replace(doc="") for name, field in stated.items()}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(records, "read_fields", lambda record: bare)
        with pytest.raises(
            ValueError, match=r"^StepRecord\.best: expected a meaning, found none; write a docstring in"
        ):
            list(records.list_columns(records.RUN["steps.jsonl"]))


@pytest.mark.nightly
def test_a_field_with_numbers_and_without_a_unit_is_refused(pages: Mapping[str, str]) -> None:
    records = importlib.import_module("reference.records")
    given = {name: one for name, one in records.read_given().items() if name != "RolloutRecord.version"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(records, "read_given", lambda: given)
        with pytest.raises(ValueError, match=r"^RolloutRecord\.version: expected a unit, since it has numbers"):
            list(records.list_columns(records.RUN["rollouts.jsonl"]))


@pytest.mark.nightly
def test_every_meaning_by_hand_is_that_of_a_field(pages: Mapping[str, str]) -> None:
    records = importlib.import_module("reference.records")
    shown = {**records.RUN, **records.STUDIES}
    _, definitions = msgspec.json.schema_components(tuple(dict.fromkeys(shown.values())))
    known = {f"{name}.{field}" for name, one in definitions.items() for field in one["properties"]}
    frames = importlib.import_module("reference.frames")
    leaves = (leaf for frame in frames.find_frames().values() for leaf in frames.list_leaves(frame.record))
    known |= {f"{owner.__name__}.{leaf.field}" for leaf in leaves for owner in leaf.owner.__mro__}
    known |= {name.partition(".")[2] for name in known}
    # tests/test_python_compare.py compares those of a comparison's frames
    given = {name for name in records.read_given() if not name.startswith(frames.PREFIX)}
    assert sorted(given - known) == []


@pytest.mark.nightly
def test_frames_name_the_values_of_columns_that_have_few(pages: Mapping[str, str]) -> None:
    frames, records = (importlib.import_module(f"reference.{name}") for name in ("frames", "records"))
    columns = {name: meaning for name, *_, meaning in frames.describe_columns(frames.find_frames()["duels"])}
    assert columns["outcome"].endswith(" Values: `first`, `second`.")
    assert columns["verdicts"].endswith(" Values: `A`, `B`, `T`, `invalid`.")
    assert '`"first"` or `"second"`' in records.records_page()


@pytest.mark.nightly
def test_the_run_directorys_page_names_each_file(pages: Mapping[str, str]) -> None:
    described = set(re.findall(r"^\| `([\w.]+\.jsonl?)`", (DOCS / "run_directory.md").read_text(), re.MULTILINE))
    records = importlib.import_module("reference.records")
    assert described == {file for file in records.RUN if "/" not in file}


# --- examples, and functions of the papers ---


@pytest.mark.nightly
def test_each_example_is_shown_with_its_modules(pages: Mapping[str, str]) -> None:
    """Sphinx fails where a link of the page leads nowhere."""
    for readme in sorted((ROOT / "examples").glob("*/README.md")):
        assert f"\n#{readme.read_text().splitlines()[0]}\n" in pages["examples"]
        for module in readme.parent.glob("*.py"):
            assert f"../../examples/{readme.parent.name}/{module.name}\n" in pages["examples"]
    assert "](../guides/write_a_task.md)" in pages["examples"]
    assert "](#example-slurm_servers)" in pages["examples"]


@pytest.mark.nightly
def test_each_equations_function_has_its_code(pages: Mapping[str, str]) -> None:
    """Sphinx fails where a file lacks the function; the site's links are to these places."""
    named = {
        name
        for paper in (DOCS / "papers").glob("*.md")
        for name in re.findall(r"`(evorun[\w.]+:[\w.]+)`", paper.read_text())
    }
    shown = re.findall(
        r"^\((\S+)\)=\n### (\S+)\n.*?^```{literalinclude} \.\./\.\./(\S+)\.py\n.*?^:pyobject: (\S+)$",
        pages["functions"],
        re.MULTILINE | re.DOTALL,
    )
    assert sorted(f"{file.replace('/', '.')}:{function}" for _, _, file, function in shown) == sorted(named)
    for place, title, file, function in shown:
        assert title == function
        assert place == f"{file}:{function}".replace("/", "-").replace(".", "-").replace(":", "-")


# --- methods and tasks ---


@pytest.mark.nightly
def test_a_pair_runs_where_its_configuration_passes_the_checks(pages: Mapping[str, str]) -> None:
    """Methods of each kind on tasks of each: an opinion, no right and wrong, public tests, a verifier."""
    rows = {codes(name)[0]: (runs, fails) for name, runs, fails in sections(pages["pairs"])["Pairs"]}
    assert rows.keys() == registry.METHODS.keys()
    tasks = {name: composition(f"task={name}").task for name in ("mathbench", "essay", "billsum", "livecodebench")}
    refused = 0
    for method in ("few_shot", "gepa", "grpo", "self_consistency", "sft"):
        whole = composition(f"method={method}", "engine=transformers")
        for task, settings in tasks.items():
            config = whole.copy()
            config.task = settings
            runs, fails = rows[method]
            try:
                regime = check(plain(config)).regime
            except ConfigError:
                refused += 1
                assert f"`{task}`" in fails, (method, task)
                assert f"`{task}`" not in runs, (method, task)
            else:
                assert f"`{task}`" not in fails, (method, task)
                [named] = re.findall(r"\*\*`(\w+)`\*\*: [^;]*`" + task + "`", runs)
                assert named == regime, (method, task)
    assert refused == 10  # 2 each of few_shot and self_consistency, 1 each of gepa and grpo, 4 of sft


@pytest.mark.nightly
def test_a_method_on_a_task_with_values_for_it_has_their_regime(pages: Mapping[str, str]) -> None:
    rows = {codes(name)[0]: runs for name, runs, _ in sections(pages["pairs"])["Pairs"]}
    for method in ("best_of_n", "lyria"):
        assert check(composed(f"method={method}", "task=sudoku")).regime == "oracle"
        assert re.search(r"`oracle`\*\*: [^;]*`sudoku`", rows[method])


@pytest.mark.nightly
def test_every_method_and_task_is_described(pages: Mapping[str, str]) -> None:
    tables = sections(pages["pairs"])
    assert [codes(row[0])[0] for row in tables["Methods"]] == sorted(registry.METHODS)
    assert [codes(row[0])[0] for row in tables["Tasks"]] == sorted(registry.TASKS)


# --- scores and figures ---


def names_on(page: str) -> set[str]:
    return {codes(row[0])[0] for rows in sections(page).values() for row in rows}


def is_named(name: str, shown: set[str]) -> bool:
    """Say whether a name has a row of its own, or one for all with its beginning (`edits_OPERATION`)."""
    beginnings = [re.sub(r"[A-Z]+$", "", one) for one in shown if one[-1].isupper() and "_" in one]
    return name in shown or any(name.startswith(beginning) for beginning in beginnings)


@pytest.mark.nightly
def test_every_figure_that_reports_put_in_words_has_a_row(pages: Mapping[str, str]) -> None:
    shown = names_on(pages["scores"])
    known = {*figures.SEARCH, *figures.JUDGE, *figures.RATINGS, *figures.TRAINING, *TEXT_COUNTS, *RARE_COUNTS}
    known |= {hacking.REWARD, hacking.RAW, *training._SIGNS}
    known |= {f"{name}x" if name.endswith("_") else name for name in training.REFINEMENTS}
    serving = ast.parse((ROOT / "evorun/training/serving.py").read_text())  # which imports torch
    [kept] = [
        ast.literal_eval(one.value)
        for one in serving.body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id == "FIGURES"
    ]
    assert len(kept) > 10
    assert [name for name in sorted({*known, *kept.values()}) if not is_named(name, shown)] == []


@pytest.mark.nightly
def test_every_figure_of_a_recorded_run_has_a_row_and_lies_in_its_range(pages: Mapping[str, str]) -> None:
    scales = {
        codes(row[0])[0]: row[1]
        for title, rows in sections(pages["scores"]).items()
        for row in rows
        if title != "Counts"
    }
    results = json.loads((RECORDING / "results.json").read_text())
    steps = [json.loads(line) for line in (RECORDING / "steps.jsonl").read_text().splitlines()]
    named = {*results["counts"], *(name for step in steps for name in step["extra"])}
    assert named <= names_on(pages["scores"])
    for name, metric in results["metrics"].items():
        found = re.search(r"(-?\d+) to (\d+)", scales[name])
        assert found is not None
        assert metric["value"] is None or int(found[1]) <= metric["value"] <= int(found[2]), name


@pytest.mark.nightly
def test_every_figure_stands_in_the_code_that_is_named(pages: Mapping[str, str]) -> None:
    entries = importlib.import_module("reference.scores").read_figures()
    for section in entries.keys() - {"scores"}:
        for name, entry in entries[section].items():
            module, _, symbol = entry["where"].partition(":")
            text = (ROOT / f"{module.replace('.', '/')}.py").read_text()
            assert re.search(rf"^(class |def |async def )?{symbol}\b", text, re.MULTILINE), entry["where"]
            stem = re.sub(r"_[A-Z]+$", "", name)
            assert stem in text or stem.partition("_")[2] in text, (name, module)  # `monitor_words`: a prefix and words


@pytest.mark.nightly
def test_every_score_of_a_task_is_explained(pages: Mapping[str, str]) -> None:
    meanings = importlib.import_module("reference.scores").read_figures()["scores"]
    classes = [*(registry.task_config_class(name).task_class for name in registry.TASKS), CodingTask]
    declared = {score.name for task_class in classes for score in task_class.scores}
    assert declared == meanings.keys()


@pytest.mark.nightly
def test_a_score_has_a_range_and_a_mean_over_samples_its_unit(pages: Mapping[str, str]) -> None:
    scales = {codes(row[0])[0]: row[1].split("; ") for row in sections(pages["scores"])["Scores of tasks"]}
    for name, (unit, bounds, _) in scales.items():
        assert re.fullmatch(r"any number|[<>]= -?[\d.]+|-?[\d.]+ to [\d.]+", bounds), name
        if name.startswith("mean_"):
            assert unit == scales[name.removeprefix("mean_")][0]
    assert scales["mean_sum_of_radii"] == ["length", ">= 0", "higher is better"]
    assert scales["reward"][1] == "any number"
    assert scales["pass_rate"][0] == "share"


# --- the command line ---


@pytest.mark.nightly
def test_each_verb_prints_the_help_of_its_section(pages: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    blocks = dict(re.findall(r"^## evorun ?([\w-]*)\n.*?```text\n(.*?)\n```", pages["command_line"], re.M | re.S))
    listed = re.findall(r"^ {7}evorun ([a-z][a-z-]+)\b", blocks[""], re.MULTILINE)
    assert len(listed) > 8
    assert blocks.keys() == {"", *listed}
    for verb, block in blocks.items():
        with pytest.raises(SystemExit, match=r"^0$"):
            main([verb, "--help"] if verb else ["--help"])
        assert capsys.readouterr().out.rstrip() == block, verb


def test_sample_sets_have_as_many_problems_as_the_guide_says() -> None:
    text = (DOCS / "guides" / "data.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    said = {name: (int(problems), int(held)) for names, problems, held in rows for name in re.findall(r"\w+", names)}
    tasks = registry.task_configs()
    assert sorted(said) == sorted(name for name, config in tasks.items() if "sample" in getattr(config, "sources", ()))
    for name, sizes in said.items():
        loaded = default_config("task", name, source="sample").load()
        assert (len(loaded.problems), len(loaded.validation)) == sizes, name


# --- the Python API ---


API = re.findall(r"^\.\. autoapi\w+:: ([\w.]+)$", (DOCS / "python_api.md").read_text(), re.MULTILINE)


def test_every_public_name_is_there_and_explained() -> None:
    assert len(API) == len(set(API)) > 100
    for path in API:
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert inspect.getdoc(found), path


def test_a_public_choice_explains_each_of_its_values() -> None:
    choices = set()
    for path in API:
        module, _, name = path.rpartition(".")
        found = importlib.import_module(module)
        if get_origin(getattr(found, name)) is not Literal:
            continue
        choices.add(name)
        said = re.search(
            rf'^{name} = Literal\[[^\]]*\]\n"""(.*?)"""', inspect.getsource(found), re.MULTILINE | re.DOTALL
        )
        assert said is not None, path
        assert [value for value in get_args(getattr(found, name)) if f"`{value}`" not in said[1]] == [], path
    assert choices >= {"Kind", "Outcome", "Regime", "Verdict"}


def test_every_capability_is_public() -> None:
    module = "evorun.tasks.capabilities"
    tree = ast.parse((ROOT / "evorun/tasks/capabilities.py").read_text())
    classes = [f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)]
    assert sorted(classes) == sorted(name for name in API if name.startswith(f"{module}."))


def test_examples_and_guides_import_only_what_is_public() -> None:
    scripts = {file: file.read_text() for file in (ROOT / "examples").rglob("*.py")}
    guides = {
        file: "\n".join(
            line.strip() for line in file.read_text().splitlines() if re.match(r"\s*from evorun\S* import", line)
        )
        for file in (DOCS / "guides").glob("*.md")
    }
    defined = {find_defined(path) for path in API}
    for file, text in {**scripts, **guides}.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "evorun":
                used = {f"{node.module}.{name.name}" for name in node.names}
                private = [name for name in used - set(API) if find_defined(name) not in defined]
                assert private == [], f"{file.name}: expected names of docs/python_api.md"


def find_defined(path: str) -> tuple[str, str]:
    """Return module and name where a class or a function is defined, which packages export again."""
    module, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    return getattr(found, "__module__", module), getattr(found, "__qualname__", name)


@pytest.mark.parametrize("package", ["evorun.testing", "evorun.models"])
def test_what_a_package_exports_is_public(package: str) -> None:
    exported = importlib.import_module(package).__all__
    assert {f"{package}.{name}" for name in exported} <= set(API)


# --- the index ---


@pytest.mark.nightly
def test_the_index_links_every_page(pages: Mapping[str, str]) -> None:
    text = (DOCS / "index.md").read_text()
    reference = text.partition("## Reference")[2]
    expected = {f"generated/{name}" for name in pages} | {"python_api", "run_directory"}
    assert {name for name in expected if f"({name}.md)" not in reference.partition("```")[0]} == set()
    assert {name for name in expected if f"\n{name}\n" not in reference} == set()


@pytest.mark.nightly
def test_sentences_of_the_pages_are_short(pages: Mapping[str, str]) -> None:
    from test_docs import LONGEST, sentences

    long = [one for text in pages.values() for one in sentences(text) if len(one.split()) > LONGEST]
    assert long == []
