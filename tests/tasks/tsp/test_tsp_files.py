"""Instances from outside: TSPLIB's distances against the archive's, layouts, and what is said of hostile files."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tsp_fixture import TEST_DATA, tsplib_records

from evorun.errors import DataError
from evorun.tasks.puzzles.instances import Instance
from evorun.tasks.tsp import instances
from evorun.tasks.tsp.solver import MAX_CITIES
from evorun.tasks.tsp.tsplib import parse

POINTS = [(0.0, 0.0), (3.0, 4.0), (10.5, 0.25), (-7.0, 2.5), (1e3, -1e3)]


def tsp(kind: str, points: Any, **header: str) -> str:
    lines = {"NAME": "x", "TYPE": "TSP", "DIMENSION": str(len(points)), "EDGE_WEIGHT_TYPE": kind, **header}
    head = "\n".join(f"{key}: {value}" for key, value in lines.items())
    return head + "\nNODE_COORD_SECTION\n" + "\n".join(f"{i} {x} {y}" for i, (x, y) in enumerate(points, 1)) + "\nEOF\n"


def explicit(layout: str, numbers: Any, cities: int) -> str:
    head = f"NAME : y\nTYPE : TSP\nDIMENSION : {cities}\nEDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : {layout}\n"
    return head + "EDGE_WEIGHT_SECTION\n " + "\n ".join(map(str, numbers)) + "\nDISPLAY_DATA_SECTION\n1 2 3\nEOF"


def read(path: Path, most: int) -> list[Instance]:
    return [solve() for solve in itertools.islice(instances.read_instances(path), most)]


def read_one(path: Path, content: str | bytes) -> Instance:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    (found,) = read(path, 5)
    return found


def test_coordinates_give_the_archives_distances() -> None:
    checked = set()
    for record in tsplib_records():
        kind = record["edge_weight_type"]
        if record["coords"] and kind != "EXPLICIT":
            assert parse(tsp(kind, record["coords"]), 200).distances == record["weights"], record["id"]
            checked.add(kind)
    assert checked == {"EUC_2D", "GEO"}


ORDERS: dict[str, Callable[[int, int], bool]] = {
    "FULL_MATRIX": lambda i, j: True,
    "UPPER_ROW": lambda i, j: i < j,
    "LOWER_ROW": lambda i, j: i > j,
    "UPPER_DIAG_ROW": lambda i, j: i <= j,
    "LOWER_DIAG_ROW": lambda i, j: i >= j,
}


@pytest.mark.parametrize("layout", ORDERS)
def test_matrices_are_read_in_every_layout(layout: str) -> None:
    for record in tsplib_records()[:3]:
        n, weights = record["n"], record["weights"]
        rows = [weights[i][j] for i in range(n) for j in range(n) if ORDERS[layout](i, j)]
        assert parse(explicit(layout, rows, n), 200).distances == weights
        by_column = layout.replace("ROW", "COL")
        columns = [weights[i][j] for j in range(n) for i in range(n) if ORDERS[layout](i, j)]
        assert parse(explicit(by_column, columns, n), 200).distances == weights


def test_distances_that_round_up() -> None:
    ceiling = parse(tsp("CEIL_2D", POINTS), 200).distances
    pseudo = parse(tsp("ATT", POINTS), 200).distances
    for i, (xi, yi) in enumerate(POINTS):
        for j, (xj, yj) in enumerate(POINTS):
            if i != j:
                assert ceiling[i][j] == math.ceil(math.dist((xi, yi), (xj, yj)))
                exact = math.sqrt(((xi - xj) ** 2 + (yi - yj) ** 2) / 10)
                # The description rounds, and adds one where that was down.
                assert pseudo[i][j] == round(exact) + (round(exact) < exact)


def test_nodes_may_be_numbered_and_written_in_any_way(tmp_path: Path) -> None:
    text = (
        "\ufeffCOMMENT : a: b\r\nDIMENSION:4\r\nEDGE_WEIGHT_TYPE : EUC_2D\r\nNODE_COORD_SECTION:\r\n"
        "30 0 3e0\r\n10 0 0\r\n\r\n20 4 0\r\n40 4 3\r\n"
    )
    found = read_one(tmp_path / "square.tsp", text.encode("utf-8"))
    assert found.problem.id == "square"
    assert found.problem.data["distances"] == [[0, 4, 3, 5], [4, 0, 5, 3], [3, 5, 0, 4], [5, 3, 4, 0]]
    assert found.solution == "0,1,3,2,0"


def test_an_instance_of_the_archive_is_solved(tmp_path: Path) -> None:
    record = next(record for record in tsplib_records() if record["id"].endswith("burma14"))
    found = read_one(tmp_path / "b.tsp", tsp("GEO", record["coords"], NAME="burma14"))
    route = [int(city) for city in found.solution.split(",")]
    assert sum(record["weights"][u][v] for u, v in itertools.pairwise(route)) == record["optimum"]
    assert (found.problem.id, found.problem.stratum) == ("burma14", "cities_14")
    assert found.problem.data["coordinates"] == record["coords"]


def test_all_records_of_the_archive_are_read_with_their_optima() -> None:
    records = tsplib_records()
    found = read(TEST_DATA, 100)
    assert [instance.problem.id for instance in found] == [record["id"] for record in records]
    for record, instance in zip(records, found, strict=True):
        assert instance.problem.data["distances"] == record["weights"]
        assert "optimum" not in msgspec.json.encode(instance.problem.data).decode()
        assert instance.solution.split(",") == [*map(str, record["optimal_tour"]), "0"]


def test_a_folder_gives_its_files_in_order_and_no_more_than_are_wanted(tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        (tmp_path / f"{name}.tsp").write_text(tsp("EUC_2D", POINTS, NAME=name))
    (tmp_path / "d.tsp").write_text("never read")
    (tmp_path / "notes.txt").write_text("not an instance")
    assert [instance.problem.id for instance in read(tmp_path, 3)] == ["a", "b", "c"]


WEIGHTS = [[9, 1, 2.004], [1, 9, 3], [2.004, 3, 9]]


def record(**changes: Any) -> bytes:
    return msgspec.json.encode({"weights": WEIGHTS, **changes})


def test_a_record_needs_no_more_than_weights(tmp_path: Path) -> None:
    found = read_one(tmp_path / "x.jsonl", b"\n" + record() + b"\n")
    assert found.problem.id == "line_0002"
    assert found.problem.data["distances"] == [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    assert found.problem.data["coordinates"] is None
    tour = read_one(tmp_path / "y.jsonl", record(optimal_tour=[2, 0, 1], optimum=6.004, coords=[[0, 1]] * 3))
    assert tour.solution == "0,1,2,0"


def large(cities: int, **changes: Any) -> bytes:
    return record(weights=[[1] * cities for _ in range(cities)], **changes)


def test_records_that_cannot_be_used(tmp_path: Path) -> None:
    for content, says in [
        (b"\x00\xff\xfe", "x.jsonl:1: "),
        (b"{}", "weights"),
        (b"[1, 2]", "object"),
        (record(weights=[]), "square matrix"),
        (record(weights=[[0, 1], [1, 0]]), "square matrix"),
        (record(weights=[[0, 1, 2], [1, 0], [2, 3, 0]]), "square matrix"),
        (record(weights=[[0, 1, 2], [1, 0, 3], [2, 4, 0]]), "symmetric"),
        (record(weights=[[0, -1, 2], [-1, 0, 3], [2, 3, 0]]), "at least 0"),
        (record(weights=[[0, 1e300, 2], [1e300, 0, 3], [2, 3, 0]]), "below 1e"),
        (record(weights=[[0, 0.001, 0]] * 3), "symmetric|all 0"),
        (record(weights=[[0, "1", 2], [1, 0, 3], [2, 3, 0]]), "float"),
        (record(optimal_tour=[0, 1]), "each of the cities"),
        (record(optimal_tour=[0, 1, 1]), "each of the cities"),
        (record(optimal_tour=[0, 1, 10**30]), "x.jsonl:1: "),
        (record(optimum=5), "expected the optimum 6, .* got 5"),
        (record(coords=[[0, 1]]), "3 pairs"),
        (record(id="a") + b"\n" + record(id="a"), "'a' twice"),
        (large(MAX_CITIES + 1), "optimal_tour"),
        (b'{"weights": ' + b"[" * 100_000, "x.jsonl:1: "),
    ]:
        path = tmp_path / "x.jsonl"
        path.write_bytes(content)
        with pytest.raises(DataError, match=says) as caught:
            read(path, 5)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


def test_a_known_tour_makes_any_size_usable(tmp_path: Path) -> None:
    found = read_one(tmp_path / "x.jsonl", large(300, optimal_tour=list(range(300)), optimum=300))
    assert found.problem.stratum == "cities_300"


def test_tsplib_files_that_cannot_be_used(tmp_path: Path) -> None:
    for text, says in [
        ("", "DIMENSION"),
        ("\x00\x01\x02", "KEYWORD"),
        ("1 2 3", "KEYWORD"),
        (tsp("EUC_2D", POINTS, TYPE="ATSP"), "TYPE"),
        (tsp("EUC_2D", POINTS, TYPE=""), "TYPE"),
        (tsp("EUC_3D", POINTS), "EDGE_WEIGHT_TYPE"),
        (tsp("EUC_2D", POINTS, DIMENSION="6"), "expected 18 numbers, got 15"),
        (tsp("EUC_2D", POINTS, DIMENSION="1000000000"), "DIMENSION"),
        (tsp("EUC_2D", POINTS, DIMENSION="999999999"), "at most 120"),
        (tsp("EUC_2D", POINTS, DIMENSION="-3"), "DIMENSION"),
        (tsp("EUC_2D", POINTS[:2]), "at least 3 cities"),
        (tsp("EUC_2D", [(0, 0), ("x", 1), (2, 2)]), "numbers only"),
        (tsp("EUC_2D", [(0, 0), ("nan", 1), (2, 2)]), "coordinates below"),
        (tsp("GEO", [(0, 0), ("inf", 1), (2, 2)]), "coordinates below"),
        (tsp("EUC_2D", [(0, 0)] * 3), "not all 0"),
        (tsp("EUC_2D", POINTS).replace("\n2 ", "\n1 "), "each node once"),
        (explicit("FULL_MATRIX", [0, 1, 2, 1, 0, 3, 2, 4, 0], 3), "symmetric"),
        (explicit("FULL_MATRIX", [0, 1], 3), "expected 9 numbers"),
        (explicit("FUNCTION", [0, 1], 3), "EDGE_WEIGHT_FORMAT"),
        (explicit("UPPER_ROW", [1, "nan", 2], 3), "at least 0"),
        ("DIMENSION: 3\nEDGE_WEIGHT_TYPE: EXPLICIT\nEOF", "EDGE_WEIGHT_FORMAT"),
    ]:
        path = tmp_path / "x.tsp"
        path.write_bytes(text.encode())
        with pytest.raises(DataError, match=says) as caught:
            read(path, 5)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def test_paths_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ends in \.tsp or \.jsonl"):
        read(tmp_path / "x.csv", 5)
    for name in ("absent.tsp", "absent.jsonl"):
        with pytest.raises(DataError, match="cannot read"):
            read(tmp_path / name, 5)
    with pytest.raises(DataError, match="regular file"):
        instances._from_tsplib(Path("/dev/zero"))
    assert read(tmp_path, 5) == []
