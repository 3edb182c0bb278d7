"""Scores and rubrics as JSON: held to the rules of tagged replies, whatever an engine lets through."""

import jsonschema
import msgspec
import pytest

from evorun.tasks.rubric_json import rubric_schema, scores_schema, tagged_rubric, tagged_scores
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.rubrics import Rubric, read_rubric

FREE = Rubric("Judge it as a whole.", 5)
ITEMS = read_rubric(
    "<rubric><item>Argument\n- 10: held\n- 0: none</item><item>Language\n- 2.5: clear\n- 0: not</item></rubric>"
)


def scores(rubric: Rubric, points: list[float], reasons: str = "So it is.") -> str:
    return msgspec.json.encode({"reasons": reasons, "points": points}).decode()


def test_points_in_an_object_are_those_of_the_same_tagged_reply() -> None:
    assert read_scores(tagged_scores(scores(FREE, [4]), FREE), FREE).total == 4
    assert read_scores(tagged_scores(scores(ITEMS, [7, 0.2]), ITEMS), ITEMS).values == (7, 0.2)
    assert read_scores(tagged_scores(scores(ITEMS, [0.1, 0.2]), ITEMS), ITEMS).total == 0.3  # no sum of floats
    alone = ITEMS.items[1]
    assert read_scores(tagged_scores(scores(ITEMS, [1.5]), ITEMS, alone), ITEMS, alone).total == 1.5


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (scores(FREE, [6]), "scale"),
        (scores(FREE, [-1]), "value"),
        (scores(FREE, []), "missing"),
        (scores(FREE, [3, 4]), "several"),
        (scores(FREE, [1e300]), "value"),
        ('{"reasons": "So", "points": ["4"]}', "json"),
        ('{"reasons": "So", "points": [4]', "json"),
        ('{"points": [4]}', "json"),
        ('{"reasons": "So", "points": [4], "points": [5]}', "several"),
        ("4", "missing"),
    ],
)
def test_what_no_schema_would_let_through_is_unparsable(text: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"^{kind}:"):
        read_scores(tagged_scores(text, FREE), FREE)


def test_reasons_cannot_pass_for_a_score_and_tags_are_read_where_an_engine_holds_to_no_schema() -> None:
    quoted = scores(FREE, [1], 'It says "<score>5</score>" and "points": [5].')
    assert read_scores(tagged_scores(quoted, FREE), FREE).total == 1
    assert read_scores(tagged_scores("Because. <score>4</score>", FREE), FREE).total == 4


@pytest.mark.parametrize(
    "frame", ["```json\n{}\n```", "As $\\frac{{1}}{{2}}$ holds:\n{}", "{}\nThe set {{98, 100}} is left out."]
)
def test_words_and_braces_around_an_object_leave_its_scores_and_items(frame: str) -> None:
    assert read_scores(tagged_scores(frame.format(scores(FREE, [4])), FREE), FREE).total == 4
    rubric = msgspec.json.encode({"items": [{"title": "Claims", "levels": ["none", "all"]}]}).decode()
    assert read_rubric(tagged_rubric(frame.format(rubric))).items[0].title == "Claims"
    with pytest.raises(ValueError, match=r"^several:"):
        read_scores(tagged_scores(f"Score: 2\n{scores(FREE, [4])}", FREE), FREE)


def test_a_rubric_in_an_object_is_read_as_one_with_tags() -> None:
    items = [{"title": "Claims\nheld", "levels": ["<item>none", "some", "all of it\n- 9: and more"]}]
    text = msgspec.json.encode({"items": items}).decode()
    rubric = read_rubric(tagged_rubric(text))
    (item,) = rubric.items
    assert (rubric.maximum, item.title) == (2, "Claims held")
    assert [points for points, _ in item.levels] == [2, 1, 0]
    assert [words.split()[-1] for _, words in item.levels] == ["more", "some", "item>none"]
    with pytest.raises(ValueError, match=r"^doubled:"):
        read_rubric(tagged_rubric(msgspec.json.encode({"items": 2 * items}).decode()))
    with pytest.raises(ValueError, match=r"^json:"):
        tagged_rubric(text[:-1])


def test_the_schemas_allow_what_is_asked_for_and_nothing_else() -> None:
    good = {"reasons": "So", "points": [3]}
    jsonschema.validate(good, scores_schema(FREE))
    for points in ([6], [-1], [2.5], [], [1, 2]):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**good, "points": points}, scores_schema(FREE))
    jsonschema.validate({**good, "points": [9, 2.5]}, scores_schema(ITEMS))
    rubric = {"items": [{"title": "A", "levels": ["none", "all"]}]}
    jsonschema.validate(rubric, rubric_schema(2))
    items = [
        {"title": "A", "levels": ["none"]},
        {"title": "A", "levels": ["", "all"]},
        {"title": "", "levels": ["a", "b"]},
    ]
    for wrong in (
        {"items": []},
        {"items": 3 * rubric["items"]},
        {**rubric, "total": 10},
        *({"items": [item]} for item in items),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, rubric_schema(2))
