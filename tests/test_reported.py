"""The configuration's `reported`: what is taken, and the one line that says what is wrong."""

from typing import Any

import pytest

from building import composed
from evorun.errors import ConfigError
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


def test_the_papers_figures_are_on_file() -> None:
    for name, accuracy in (("figure2", 0.94), ("figure3", 0.374)):
        rows = composed(f"experiment=duel_evolve/{name}")["reported"]["rows"]
        assert {row["method"]: row["accuracy"] for row in rows}["duel_evolve"] == accuracy
