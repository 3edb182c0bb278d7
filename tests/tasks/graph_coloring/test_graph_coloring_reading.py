"""Reading answers and lists of errors, and writing them."""

from graph_coloring_cases import TASK, answered, problem
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.base import Problem

PATH = problem(4, [(0, 1), (1, 2), (2, 3)], 2)


def answer(block: str) -> str | None:
    return TASK.parse(PATH, f"Some words.\n```\n{block}\n```").answer


def test_commas_blanks_and_newlines_stand_between_colours() -> None:
    for block in [
        "0,1,0,7",
        "0, 1 ,0,\t7",
        "0\n1\n0\n7",
        "0 1 0 7",
        "0,1,\n0,7\n",
        "00,01,0,007",
        "0,1\n0,7",
        "\n\n0,1,0,7",
    ]:
        assert answer(block) == "0,1,0,7"


def test_other_forms_cannot_be_read() -> None:
    for block, reason in [
        ("0,1,0", "expected 4 colours, one for each vertex, got 3"),
        ("0,1,0,1,0", "got 5"),
        ("0,1,,0,1", "got ''"),
        ("", "got ''"),
        ("0,1,0,-1", "got '-1'"),
        ("0,1,0,1.0", "got '1.0'"),
        ("[0,1,0]", "got '[0'"),
        ("red,blue,red,blue", "got 'red'"),
        ("0,1,0,1000000", "got '1000000'"),
        ("0,1,0,²", "got '²'"),
        ("0,1,0,\u0661", "got '\u0661'"),
        ("9" * 9000, f"got '{'9' * 20}'"),
    ]:
        response = TASK.parse(PATH, f"```\n{block}\n```")
        assert response.answer is None
        assert response.error is not None
        assert response.error.startswith("format: expected")
        assert reason in response.error


def test_colours_out_of_range_are_errors_of_the_answer_not_of_its_form() -> None:
    assert answer("0,999999,5,2") == "0,999999,5,2"


@given(answered())
def test_errors_are_the_excess_and_every_conflict_and_read_back_as_they_are_described(
    case: tuple[Problem, list[int]],
) -> None:
    of, colors = case
    size, k = of.data["vertices"], of.data["colors"]
    beyond = len({color for color in colors if color not in range(k)})
    expected = [["excess", beyond]] if beyond else []
    for u in range(size):
        expected += [
            [u, v, colors[u]] for v in range(u + 1, size) if (u, v) in of.data["edges"] and colors[u] == colors[v]
        ]
    findings = TASK.findings(of, ",".join(map(str, colors)))
    assert list(findings) == expected
    if findings:
        assert TASK.read_findings(of, TASK.describe(of, findings)) == findings


def test_the_excess_counts_as_one_error_and_none_is_named_where_none_may_be() -> None:
    response = TASK.response("7,7,7,0")
    assert TASK.verified(PATH, response, 2).errors.text == "excess 1\n0,1,7"
    assert TASK.verified(PATH, response, 2).errors.findings == (["excess", 1], [0, 1, 7])
    assert TASK.verified(PATH, response, 0).errors.findings == ()
    assert TASK.verified(PATH, response, 0).errors.text == ""


def test_a_models_errors() -> None:
    for block, findings in [
        ("0,1,1", ([0, 1, 1],)),
        ("1,0,1\n0,1,1\n\n 2 , 3 , 0 ", ([0, 1, 1], [2, 3, 0])),
        ("2,3,0\nExcess: 2", (["excess", 2], [2, 3, 0])),
        ("excess 0", ()),
        ("excess -1\n2,3,0", ([2, 3, 0],)),
        ("", ()),
        ("0,3,1", ([0, 3, 1],)),  # no edge: whether an error is real is not asked
        ("0,4,1", None),
        ("1,1,1", None),
        ("0,1", None),
        ("0,1,red", None),
        ("excess", None),
        ("excess many", None),
        ("excess --1", None),
        ("no errors", None),
    ]:
        assert TASK.read_findings(PATH, block) == findings


@given(st.text(max_size=80) | st.text("0123,- \nexcs`:", max_size=80))
def test_no_text_of_a_detector_raises(text: str) -> None:
    TASK.parse_errors(PATH, text, 3)
    findings = TASK.read_findings(PATH, text)
    if findings:
        assert TASK.read_findings(PATH, TASK.describe(PATH, findings)) == findings
