"""The lengths of a run's rubrics, from candidates.jsonl alone (MPO, figure 5a)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.reports.population import count_item_words, measure_rubrics
from evorun.runs.schema import CandidateRecord
from evorun.tasks.rubrics import read_rubric

pytestmark = pytest.mark.usefixtures("drawn_figures")

words = st.lists(st.sampled_from(["clear", "well-argued", "(Example:", "“it”", "2024"]), min_size=1, max_size=9)
items = st.lists(st.tuples(words, words), min_size=1, max_size=5)


@given(items)
def test_items_are_as_long_as_the_rubrics_reader_says(drawn: list[tuple[list[str], list[str]]]) -> None:
    written = "\n".join(
        f"<item>\nPart {chr(65 + at)}\n- 5: {' '.join(high)}\n- 0: {' '.join(low)}\n</item>"
        for at, (high, low) in enumerate(drawn)
    )
    rubric = read_rubric(f"<rubric>\n{written}\n</rubric>")
    assert count_item_words(rubric.text) == pytest.approx(rubric.words_per_item)


def test_each_key_has_a_series_in_the_order_of_refinements() -> None:
    def record(name: str, generation: int, text: str, kind: str = "rubric") -> CandidateRecord:
        about = {"id": name, "kind": kind, "generation": generation, "operator": "", "text": text, "answer": None}
        return CandidateRecord(**about, problem="*")  # type: ignore[arg-type]

    found = measure_rubrics(
        [
            record("algebra 1#0", 0, "one two three"),
            record("geometry#0", 0, "one"),
            record("0.0", 0, "a system prompt", "system_prompt"),
            record("algebra 1#1", 30, "<rubric>\n<item>\na b\n</item>\n<item>\na b c d\n</item>\n</rubric>"),
        ]
    )
    assert list(found) == ["algebra 1", "geometry"]
    assert [(one.number, one.refined, one.words) for one in found["algebra 1"]] == [(0, 0, 3.0), (1, 30, 3.0)]
    assert list(measure_rubrics([record("rubric#0", 0, "one")])) == [""]
