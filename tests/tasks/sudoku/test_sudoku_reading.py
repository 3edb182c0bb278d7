"""Reading answers and a model's error lists: what is taken, what is refused, and that nothing raises."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sudoku_fixture import TASK, loaded, problems, rows_of, solution, text_of

FENCE = "```"


def rows() -> list[list[int]]:
    return solution(3, 0)


def ruled(grid: list[list[int]], ruler: str) -> str:
    lines = [" | ".join(" ".join(map(str, row[k : k + 3])) for k in (0, 3, 6)) for row in grid]
    return "\n".join([ruler, *lines[:3], ruler, *lines[3:6], ruler, *lines[6:], ruler])


def test_accepted_forms_have_one_canonical_text() -> None:
    for shape in [
        text_of,
        lambda g: "\n".join("".join(map(str, row)) for row in g),
        lambda g: "\n".join(f"  {'   '.join(map(str, row))}\t" for row in g),
        lambda g: "\r\n".join(" ".join(map(str, row)) for row in g),
        lambda g: "\n\n".join(" ".join(map(str, row)) for row in g),
        lambda g: "\n".join(f"| {' | '.join(map(str, row))} |" for row in g),
        lambda g: "\n".join(" ".join(f"0{value}" for value in row) for row in g),
        lambda g: ruled(g, "------+-------+------"),
        lambda g: ruled(g, "- - - - - - - - - - -"),
        lambda g: ruled(g, "|---|---|---|"),
        lambda g: "\n".join("|".join("".join(map(str, row[k : k + 3])) for k in (0, 3, 6)) for row in g),
    ]:
        response = TASK.parse(problems(3)[0], f"So:\n{FENCE}\n{shape(rows())}\n{FENCE}\nDone.")
        assert response.answer == text_of(rows())
        assert response.error is None
        assert response.reasoning == "So:"


@pytest.mark.parametrize(("numbered_rows", "numbered_columns"), [(False, False), (True, False), (True, True)])
def test_labels_are_told_from_a_row_and_a_column_that_count_up(numbered_rows: bool, numbered_columns: bool) -> None:
    grid = [[(row + column) % 9 + 1 for column in range(9)] for row in range(9)]
    lines = [f"{number} {' '.join(map(str, row))}"[0 if numbered_rows else 2 :] for number, row in enumerate(grid, 1)]
    header = [" ".join(map(str, range(1, 10)))] if numbered_columns else []
    text = "\n".join(["Solution:", *header, *lines, "Done."])
    assert TASK.read_answer(problems(3)[0], text) == text_of(grid)


def changed(place: int, line: str) -> str:
    lines = text_of(rows()).split("\n")
    lines[place] = line
    return "\n".join(lines)


def test_other_forms_are_refused_with_a_reason() -> None:
    for block, reason in [
        ("", "expected 9 rows, got 0"),
        (text_of(rows()[:8]), "expected 9 rows, got 8"),
        (text_of([*rows(), rows()[0]]), "expected 9 rows, got 10"),
        ("".join(str(v) for row in rows() for v in row), "expected 9 rows, got 1"),
        (changed(2, "1 2 3 4 5 6 7 8"), "row 3: expected 9 numbers, got 8"),
        (changed(2, "1 2 3 4 5 6 7 8 9 1"), "row 3: expected 9 numbers, got 10"),
        (changed(2, "12345678"), "row 3: expected 9 numbers, got 1"),
        (changed(0, "1 2 3 4 . 6 7 8 9"), "row 1 has an empty cell"),
        (changed(0, "1234.6789"), "row 1 has an empty cell"),
        (changed(8, "1/2/3/4/5/6/7/8/9"), "row 9: expected 9 whole numbers separated by blanks, got '1/2/3"),
        (changed(8, "1 2 3 4 5 6 7 8 9.0"), "got '9.0'"),
        (changed(8, "1 2 3 4 5 6 7 8 \u0669"), "got '\u0669'"),
        (changed(8, "1 2 3 4 5 6 7 8 1e3"), "got '1e3'"),
        (changed(8, f"1 2 3 4 5 6 7 8 {'9' * 5000}"), "got '9{20}'"),
        (f"Solution:\n{text_of(rows()[1:])}", "expected 9 rows, got 9|row 1"),
    ]:
        response = TASK.parse(problems(3)[0], f"{FENCE}\n{block}\n{FENCE}")
        assert response.answer is None
        with pytest.raises(ValueError, match=reason):
            TASK.read_answer(problems(3)[0], block)
        assert len(response.error or "") < 200


def test_numbers_out_of_range_are_an_error_of_the_answer_not_of_its_form() -> None:
    answer = TASK.read_answer(problems(3)[0], changed(0, "0 -3 10 00012 5 6 7 8 9"))
    assert answer.split("\n")[0] == "0 -3 10 12 5 6 7 8 9"
    assert not TASK.measure(problems(3)[0], answer).correct


@pytest.mark.nightly
def test_digits_without_blanks_are_for_small_grids_only() -> None:
    assert TASK.read_answer(problems(2)[0], "1234\n3412\n2143\n4321") == "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1"
    with pytest.raises(ValueError, match=r"row 1: expected 16 whole numbers .* got '1234567890123456'"):
        TASK.read_answer(problems(4)[0], "\n".join(["1234567890123456"] * 16))


@given(st.text(alphabet=st.sampled_from("123456789 0.-+|\n\t`,x\u2028\u0661\x00"), max_size=400))
@example("```\n" + "-" * 20_000 + "x\n```")
@example("```\n" + "9 " * 20_000 + "\n```")
@example("```\n" + "\n" * 20_000 + "\n```")
def test_no_text_raises(text: str) -> None:
    problem = problems(3)[0]
    response = TASK.parse(problem, text)
    TASK.parse_errors(problem, text, 3)
    TASK.parse_fitness(text)
    assert (response.answer is None) == (response.error is not None)
    if response.answer is not None:
        assert TASK.read_answer(problem, response.answer) == response.answer
        TASK.findings(problem, response.answer)


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from(["row", "col", "box", "given"])),
        min_size=1,
        max_size=30,
        unique=True,
    )
)
def test_described_errors_are_read_back(errors: list[tuple[int, int, str]]) -> None:
    problem = problems(3)[0]
    found = tuple([i, j, kind] for i, j, kind in errors)
    assert TASK.read_findings(problem, TASK.describe(problem, found)) == found


def test_a_models_errors() -> None:
    for block, found in [
        ("0,0,row", ([0, 0, "row"],)),
        (" ( 1 , 2 , 'Column' ) \n\n[8,8,subgrid],", ([1, 2, "col"], [8, 8, "box"])),
        ("0,0,row\n0,0,row", ([0, 0, "row"],)),
        ("0,9,row", None),
        ("9,0,row", None),
        ("-1,0,row", None),
        ("0,0", None),
        ("0,0,diagonal", None),
        ("0,0,row\nand so on", None),
        ("", None),
        (f"0,0,{'row' * 100_000}", None),
        ("(" * 100_000, None),
    ]:
        assert TASK.read_findings(problems(3)[0], block) == found


def test_prompts_show_the_puzzle_and_the_rules() -> None:
    for box in (2, 3, 4):
        for problem in loaded(box).problems:
            text = TASK.generation_prompt(problem).messages[0]["content"]
            assert problem.data["grid"] in text
            assert f"{box} x {box}" in text
            assert f"{box**2} lines" in text
            assert "{{" not in text
            assert rows_of(problem.data["grid"]) != []
