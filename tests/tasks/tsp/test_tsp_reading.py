"""Reading routes and errors out of what models write."""

import re

from hypothesis import given
from hypothesis import strategies as st
from tsp_fixture import matrices, problem_of, symmetric, task_for

from evorun.runs.candidates import Response

MATRIX = symmetric(4, [100, 141, 100, 100, 141, 100])
TASK, PROBLEM = task_for(MATRIX), problem_of(MATRIX)


def test_routes_are_read_whatever_they_leave_out_or_repeat() -> None:
    for block, answer in [
        ("0,1,2,3,0", "0,1,2,3,0"),
        ("0, 1, 2, 3, 0", "0,1,2,3,0"),
        ("0 1 2 3 0", "0,1,2,3,0"),
        ("0,1,\n2,3,0\n", "0,1,2,3,0"),
        ("00,+1,02,0", "0,1,2,0"),
        ("0,0", "0,0"),
        ("0,1,1,1,0", "0,1,1,1,0"),
        (",".join(["0"] * 16), ",".join(["0"] * 16)),
    ]:
        response = TASK.parse(PROBLEM, f"Because.\n```\n{block}\n```")
        assert (response.answer, response.error) == (answer, None)


def test_what_has_another_form_is_named() -> None:
    for block, says in [
        ("", "begins and ends"),
        ("0", "begins and ends"),
        ("1,2,3,1", "begins and ends"),
        ("0,1,2,3", "begins and ends"),
        ("0,4,0", "from 0 to 3"),
        ("0,-1,0", "from 0 to 3"),
        (f"0,{'9' * 10_000},0", "from 0 to 3"),
        ("0,1.5,0", "whole numbers"),
        ("0,one,0", "whole numbers"),
        ("0,\u0663,0", "whole numbers"),
        ("0,\u00b2,0", "whole numbers"),
        ("0 -> 1 -> 0", "whole numbers"),
        ("[0,1,2,3]", "whole numbers"),
        (",".join(["0"] * 17), "more than 16"),
        ("0,1," * 20_000 + "0", "more than 16"),
    ]:
        response = TASK.parse(PROBLEM, f"```\n{block}\n```")
        assert response.answer is None
        assert response.error is not None
        assert says in response.error
        assert len(response.error) < 200


TEXTS = st.one_of(
    st.text(),
    st.text("0123456789,- \n`"),
    st.lists(st.text("0123, \n.x-"), max_size=4).map("\n```\n".join),
)


@given(TEXTS)
def test_no_text_raises_and_what_is_read_is_a_route(text: str) -> None:
    answer = TASK.parse(PROBLEM, text).answer
    if answer is not None:
        assert re.fullmatch(r"0(,[0-3]){0,14},0", answer)
        assert TASK.parse(PROBLEM, f"```\n{answer}\n```").answer == answer
    for most in (0, 3):
        TASK.parse_errors(PROBLEM, text, most)
    TASK.read_findings(PROBLEM, text)
    TASK.parse_fitness(text)


@given(matrices(smallest=4), st.data())
def test_errors_are_read_as_they_were_described(matrix: list[list[int]], data: st.DataObject) -> None:
    task, problem, n = task_for(matrix), problem_of(matrix), len(matrix)
    missing = sorted(data.draw(st.sets(st.integers(1, n - 1))))
    repeated = sorted(data.draw(st.sets(st.integers(0, n - 1))))
    excess = data.draw(st.integers(0, 10**9)) / 100
    named = [*(["missing", city] for city in missing), *(["repeated", city] for city in repeated)]
    findings = (*named, *([["excess", excess]] if excess else []))
    text = task.describe(problem, findings)
    assert task.read_findings(problem, text) == (findings or None)


def test_errors_by_hand() -> None:
    for block, found in [
        ("missing 1,3\nexcess 12.34", [["missing", 1], ["missing", 3], ["excess", 12.34]]),
        ("excess: 2\n\n Missing: 3, 1 3", [["missing", 3], ["missing", 1], ["excess", 2.0]]),
        ("repeated 3", [["repeated", 3]]),
        ("Repeated: 0, 2\nexcess 1\nmissing 3", [["missing", 3], ["repeated", 0], ["repeated", 2], ["excess", 1.0]]),
        ("repeated 4", None),
        ("repeated", None),
        ("excess 0.0", []),
        ("missing 0", None),
        ("missing 4", None),
        ("missing", None),
        ("missing " + "1" * 5000, None),
        ("excess -1", None),
        ("excess 1e999", None),
        ("excess nan", None),
        ("the route is long", None),
        ("missing 1\nbecause", None),
        ("", None),
    ]:
        read = TASK.read_findings(PROBLEM, block)
        assert read == (None if found is None else tuple(found))


def test_a_route_and_its_reverse_are_the_same_answer() -> None:
    def signed(answer: str) -> str:
        return TASK.signature(PROBLEM, Response(text="", answer=answer))

    assert signed("0,1,2,3,0") == signed("0,3,2,1,0") != signed("0,2,1,3,0")
    assert TASK.signature(PROBLEM, Response(text="", answer=None)) == "0"
