"""The configuration's `reported`: what is taken, and the one line that says what is wrong."""

from typing import Any

import pytest

from building import composed
from evorun.errors import ConfigError
from evorun.reports.comparison.reported import find_paper_name
from evorun.runner.settings import check

ROW = {"method": "lyria", "task": "sudoku", "model": "qwen2_5_7b"}
SWEPT = {**ROW, "overrides": {"method.max_errors": 3}}
WHOLE = {**ROW, "accuracy": 0.0, "metrics": {"score": 62, "penalised_score": 61.0}, "by_stratum": {"9x9": 0}}


@pytest.fixture(name="config", scope="module")
def _config() -> dict[str, Any]:
    return composed("method=zero_shot", "task=mathbench", "engine=simulated")


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"method": "lyria"}],
        [WHOLE],
        [ROW, SWEPT, {**ROW, "overrides": {"method.max_errors": 6, "judge": "gpt_4o_mini"}}],
        [{"method": "lyria"}, {"method": "lyria", "task": "tsp"}, {"method": "lyria", "model": "tsp"}, WHOLE],
    ],
)
def test_rows_need_a_method_and_may_say_more(config: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    check({**config, "reported": {"source": "Lyria, Table 5", "rows": rows}})


@pytest.mark.parametrize(
    ("reported", "wrong"),
    [
        ("94 %", "got `str`"),
        ([], "got `array`"),
        ({"rows": []}, "missing required field `source`"),
        ({"source": "x", "rows": {}}, "Expected `array`, got `object` - at `$.rows`"),
        ({"source": "x", "rows": [{"task": "tsp"}]}, "missing required field `method` - at `$.rows[0]`"),
        ({"source": "x", "accuracy": {"lyria": 0.5}, "rows": []}, "unknown field `accuracy`"),
        ({"source": "x", "rows": [{**ROW, "acuracy": 0.5}]}, "unknown field `acuracy` - at `$.rows[0]`"),
        ({"source": "x", "rows": [WHOLE, {**ROW, "accuracy": 62}]}, "<= 1.0 - at `$.rows[1].accuracy`"),
        ({"source": "x", "rows": [{**ROW, "accuracy": True}]}, "got `bool` - at `$.rows[0].accuracy`"),
        ({"source": "x", "rows": [{**ROW, "by_stratum": {"9x9": -1}}]}, ">= 0.0 - at `$.rows[0].by_stratum[...]`"),
        ({"source": "x", "rows": [{**ROW, "metrics": {"score": "62"}}]}, "got `str` - at `$.rows[0].metrics[...]`"),
        ({"source": "x", "rows": [{**ROW, "metrics": {"score": float("nan")}}]}, "at `$.rows[0].metrics[...]`"),
        ({"source": "x", "rows": [{**ROW, "metrics": {"score": float("inf")}}]}, "at `$.rows[0].metrics[...]`"),
        ({"source": "x", "rows": [{"method": "a"}, WHOLE, {**ROW}]}, "got rows 1 and 2 for method lyria, task sudoku"),
        ({"source": "x", "rows": [SWEPT, {**SWEPT}]}, "got rows 0 and 1 for method lyria, task sudoku"),
        ({"source": "x", "rows": [{**ROW, "overrides": {"a": []}}]}, "got `array` - at `$.rows[0].overrides[...]`"),
        ({"source": "x", "means": [{"method": "lyria", "metrics": {}}]}, "missing required field `tasks`"),
        ({"source": "x", "names": [{"method": "lyria"}]}, "missing required field `name` - at `$.names[0]`"),
        ({"source": "x", "names": [{**ROW, "name": "DP", "accuracy": 0.5}]}, "unknown field `accuracy`"),
        ({"source": "x", "names": [{**ROW, "name": ""}]}, "at `$.names[0].name`"),
        ({"source": "x", "names": [{**ROW, "name": "DP\n"}]}, "at `$.names[0].name`"),
        ({"source": "x", "names": [{**ROW, "name": "a" * 41}]}, "length <= 40 - at `$.names[0].name`"),
        (
            {"source": "x", "names": [{**SWEPT, "name": "A"}, {**ROW, "name": "A"}, {**SWEPT, "name": "B"}]},
            "reported.names: expected one entry per method, task, model and overrides, got names 0 and 2 for method",
        ),
    ],
)
def test_a_wrong_shape_is_one_line_that_says_where(config: dict[str, Any], reported: Any, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check({**config, "reported": reported})
    assert str(caught.value).startswith("reported")
    assert wrong in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_paper_may_say_it_in_words_only(config: dict[str, Any]) -> None:
    check({**config, "reported": {"source": "Lyria, section 4.3", "note": "It grows by 4 points."}})


@pytest.mark.parametrize(
    ("words", "name"),
    [  # the papers' tables and legends
        (["espl/figure12", "method=espl"], "Evolution + RL"),
        (["espl/figure11", "method=espl", "task=beyond_aime", "method.crossover_rate=0.0"], "Mutation + RL"),
        (["espl/figure11", "method=espl", "method.evolve=false"], None),
        (["espl/figure15", "method.reflect_with=policy"], "RL policy"),
        (["mpo/essay", "method.refine_schedule=before", "meta=gpt_4o", "meta_engine=openai"], "PPO 32b_AP"),
        (["mpo/essay", "reward=qwen2_5_72b_awq"], "MPO 72b_72b"),
        (["mpo/math", "reward=llama3_1_8b"], None),
        (["laft/tsp", "student=dpft", "method=best_of_n"], "BoN"),
    ],
)
def test_arms_have_the_names_of_their_paper(words: list[str], name: str | None) -> None:
    config = composed(*(f"experiment={word}" if "=" not in word else word for word in words))
    found = find_paper_name(config, config["method"]["name"], config["task"]["name"], config["model"]["name"])
    assert found == name


def test_the_papers_figures_are_on_file() -> None:
    for name, accuracy in (("figure2", 0.94), ("figure3", 0.374)):
        rows = composed(f"experiment=duel_evolve/{name}")["reported"]["rows"]
        assert {row["method"]: row["accuracy"] for row in rows}["duel_evolve"] == accuracy
