"""Objects that programs build: their scores against independent calculations, and hostile programs in the sandbox."""

import asyncio
import json
import math
import re
from typing import Any

import numpy as np
import pytest

from building import load_task, task_config
from evorun.errors import ConfigError
from evorun.runs.candidates import Response
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.base import LoadedTask, Problem
from evorun.tasks.constructions.matrix_product.matrix_product import Shape, write_kernel
from evorun.testing.task_parsers import ODD_TEXTS

TOUCHING = (2 - math.sqrt(2)) / 2 / 1.0000000001  # of two circles on the diagonal, a little less than 0.29289


def loaded(name: str, **settings: Any) -> tuple[Any, Problem, LoadedTask]:
    task = load_task(name, **settings)
    return task.task, task.problems[0], task


# --- exact scores ---


def test_the_score_of_a_packing_is_the_sum_of_its_radii() -> None:
    task, problem, _ = loaded("circle_packing", circles=[2])
    low, high = TOUCHING, 1 - TOUCHING
    assert task.measure(problem, [[low, low, TOUCHING], [high, high, TOUCHING]]) == pytest.approx(2 - math.sqrt(2))
    assert task.measure(problem, [[0.25, 0.5, 0.25], [0.75, 0.5, 0.25]]) == 0.5  # they touch each other and the walls
    assert task.measure(problem, [[0, 0, 0], [1, 1, 0]]) == 0


@pytest.mark.parametrize(
    ("circles", "message"),
    [
        ([[0.25, 0.5, 0.25], [math.nextafter(0.75, 0), 0.5, 0.25]], "circles 0 and 1 overlap by"),
        ([[0.25, 0.5, math.nextafter(0.25, 1)], [0.8, 0.5, 0.1]], "circle 0 leaves the square by 5.55e-17"),
        ([[0.25, 0.5, -0.1], [0.8, 0.5, 0.1]], "circle 0: expected a radius of at least 0, got -0.1"),
        ([[0.25, 0.5, 0.1]], "expected a list of 2 circles, got a list of 1"),
        ([[0.25, 0.5], [0.8, 0.5, 0.1]], r"circle 0: expected \[x, y, radius\]"),
        ([[0.25, 0.5, True], [0.8, 0.5, 0.1]], "circle 0: expected a finite number, got True"),
        ([[0.25, 0.5, "0.1"], [0.8, 0.5, 0.1]], "circle 0: expected a finite number, got '0.1'"),
        ({"circles": 2}, "expected a list of 2 circles, got dict"),
    ],
)
def test_an_invalid_packing_is_refused_to_the_last_bit(circles: Any, message: str) -> None:
    task, problem, _ = loaded("circle_packing", circles=[2])
    with pytest.raises(ValueError, match=message):
        task.measure(problem, circles)


def test_a_tolerance_allows_an_overlap_up_to_it() -> None:
    task, problem, _ = loaded("circle_packing", circles=[2], tolerance=1e-6)
    assert task.measure(problem, [[0.25, 0.5, 0.25], [0.7499995, 0.5, 0.25]]) == 0.5
    with pytest.raises(ValueError, match="overlap by 2e-06"):
        task.measure(problem, [[0.25, 0.5, 0.25], [0.749998, 0.5, 0.25]])


def sampled_ratio(heights: list[float], samples: int = 200) -> float:
    """Return a step function's ratio from samples of the function itself: Riemann sums, a node at each step's edge."""
    f = np.repeat(heights, samples)
    width = 0.5 / len(f)
    return float(np.convolve(f, f).max() * width / (f.sum() * width) ** 2)


def test_the_bound_of_a_step_function_is_that_of_its_sampled_autoconvolution() -> None:
    task, problem, _ = loaded("autocorrelation")
    assert task.measure(problem, [3.0] * 7) == pytest.approx(2)  # a triangle of height 1/2, by an integral of 1/2
    assert task.measure(problem, [1, 0]) == 4.0  # half the width: twice the ratio
    heights = np.random.default_rng(1).random(9).tolist()
    assert task.measure(problem, heights) == pytest.approx(sampled_ratio(heights), rel=1e-9)
    scaled = [1e300 * height for height in heights]
    assert task.measure(problem, scaled) == pytest.approx(task.measure(problem, heights))


@pytest.mark.parametrize(
    ("heights", "message"),
    [
        ([], "expected a list of 1 to 2048 heights, got 0"),
        ([1.0] * 2049, "expected a list of 1 to 2048 heights, got 2049"),
        ([1.0, -1e-300], "expected heights of at least 0"),
        ([0, 0.0], "not all 0"),
        ([1, math.inf], "height 1: expected a finite number"),
        ([[1.0]], "height 0: expected a finite number"),
    ],
)
def test_heights_that_are_no_step_function_are_refused(heights: Any, message: str) -> None:
    task, problem, _ = loaded("autocorrelation")
    with pytest.raises(ValueError, match=message):
        task.measure(problem, heights)


def evaluate_kernel(kernel: Any, a: Any, b: Any) -> Any:
    """Return the matrix that a kernel computes, of numbers or of blocks."""
    values = [*(block for row in a for block in row), *(block for row in b for block in row)]
    apply = {"+": np.add, "-": np.subtract, "*": np.matmul}
    for operation, first, second in kernel["steps"]:
        values.append(apply[operation](values[first], values[second]))
    return np.array([values[output] for output in kernel["outputs"]])


@pytest.mark.parametrize(("n", "m", "p", "blocks"), [(2, 2, 2, 1), (3, 3, 3, 1), (4, 4, 4, 8), (2, 3, 4, 2)])
def test_a_kernel_is_right_exactly_when_it_multiplies_blocks(n: int, m: int, p: int, blocks: int) -> None:
    task, problem, _ = loaded("matrix_product", shapes=[f"{n}x{m}x{p}"])
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (n, m, 3, 3)), rng.integers(-9, 9, (m, p, 3, 3))
    kernel = write_kernel(Shape(n, m, p), strassen=blocks)
    whole = np.einsum("ikxy,kjyz->ijxz", a, b).reshape(n * p, 3, 3)
    assert (evaluate_kernel(kernel, a, b) == whole).all()
    products, sums = n * m * p - blocks, n * (m - 1) * p + 14 * blocks
    cost = (100 * products + sums) / (100 * n * m * p + n * (m - 1) * p)
    assert task.measure(problem, kernel) == pytest.approx(cost)
    for step in kernel["steps"][:4]:
        wrong = json.loads(json.dumps(kernel))
        place = kernel["steps"].index(step)
        wrong["steps"][place] = ["-" if step[0] == "+" else "+", *step[1:]]
        assert (evaluate_kernel(wrong, a, b) != whole).any()
        with pytest.raises(ValueError, match=r"is not that of the product|no product of a product"):
            task.measure(problem, wrong)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"steps": [["*", 1, 0]], "outputs": [2]}, "is not that of the product"),  # right only where entries commute
        ({"steps": [["*", 0, 1], ["*", 2, 0]], "outputs": [2]}, "step 1: expected no product of a product"),
        ({"steps": [["*", 0, 2]], "outputs": [2]}, "step 0: expected numbers of earlier values, below 2"),
        ({"steps": [["*", -1, 1]], "outputs": [2]}, "step 0: expected numbers of earlier values"),
        ({"steps": [["/", 0, 1]], "outputs": [2]}, "step 0: expected .operation, number, number."),
        ({"steps": [["+", 0, 0]] * 5, "outputs": [2]}, "expected at most 4 steps, got 5"),
        ({"steps": [["*", 0, 1]], "outputs": [True]}, "outputs: expected 1 numbers of values"),
        ({"steps": [["*", 0, 1]], "outputs": []}, "outputs: expected 1 numbers of values"),
        ([], "expected an object with the lists 'steps' and 'outputs'"),
    ],
)
def test_a_kernel_that_is_none_is_refused(value: Any, message: str) -> None:
    task, problem, _ = loaded("matrix_product", shapes=["1x1x1"])
    assert task.measure(problem, {"steps": [["*", 0, 1]], "outputs": [2]}) == 1
    with pytest.raises(ValueError, match=message):
        task.measure(problem, value)


# --- programs in the sandbox ---

HOSTILE = {
    "syntax": ("def build(n:", "runtime error: "),
    "no build": ("x = 1", "runtime error: .*does not define build"),
    "raises": ("def build(n):\n    raise SystemExit(0)", "runtime error: "),
    "nothing": ("def build(n):\n    pass", "invalid object: expected a list of 2 circles, got NoneType"),
    "nan": ("def build(n):\n    return [[float('nan')] * 3] * n", "invalid object: expected finite numbers, got NaN"),
    "infinity": ("def build(n):\n    return [[1e999] * 3] * n", "invalid object: expected finite numbers"),
    "digits": ("def build(n):\n    return [[10 ** 400] * 3] * n", "invalid object: "),
    "deep": ("def build(n):\n    return eval('[' * 90 + ']' * 90)", "invalid object: expected a list of 2"),
    "endless": ("def build(n):\n    while True: pass", "stopped after 0.5 seconds"),
    "memory": ("def build(n):\n    return [0] * 10 ** 10", "stopped at 256 MiB|runtime error"),
    "huge": ("def build(n):\n    return 'a' * 10 ** 6", "returned or printed too much"),
    "prints": (
        "def build(n):\n    print('[[0.5, 0.5, 0.5]]' * n)\n    return []",
        "invalid object: expected a list of 2",
    ),
    "replaces": (
        "import json\njson.dumps = lambda *a, **k: '[[0.3, 0.3, 0.3], [0.7, 0.7, 0.3]]'\ndef build(n):\n    return []",
        "invalid object: circles 0 and 1 overlap",
    ),
}
GOOD = "import numpy as np\n\ndef build(n):\n    return np.array([[0.25, 0.5, 0.25], [0.75, 0.5, 0.25]])"


def test_hostile_programs_get_the_worst_score_and_their_fault() -> None:
    task, problem, whole = loaded("circle_packing", circles=[2], time_limit_s=0.5, memory_mib=256)
    programs = {**{name: source for name, (source, _) in HOSTILE.items()}, "good": GOOD}

    async def grade_all() -> tuple[dict[str, Any], Any, Any]:
        sandbox: Any = LazySandbox(SandboxConfig())
        try:
            responses = {name: Response(text=source, answer=source) for name, source in programs.items()}
            grades = {name: await whole.grade(problem, response, sandbox) for name, response in responses.items()}
            seen = await task.observe(problem, responses["good"], sandbox)
            verified = await task.verify(problem, responses["nan"], 1, sandbox)
            return grades, seen, verified
        finally:
            await sandbox.close()

    grades, seen, verified = asyncio.run(grade_all())
    good = grades.pop("good")
    assert good.scores == {"sum_of_radii": 0.5, "valid": 1}
    assert good.correct is None
    assert seen.feedback.text == "sum of radii: 0.5 (higher is better)"
    assert seen.feedback.score == pytest.approx(0.5 / math.sqrt(2 / math.pi))
    assert verified.fitness == 0
    assert verified.errors.text == "- invalid object: expected finite numbers, got NaN"
    for name, grade in grades.items():
        assert grade.scores == {"sum_of_radii": 0, "valid": 0}, name
        assert re.match(HOSTILE[name][1], grade.detail), (name, grade.detail)


def test_a_changed_program_is_read_from_its_patch_or_written_in_full() -> None:
    task, problem, _ = loaded("circle_packing")
    seed = task.starting_response(problem)
    patch = (
        "Smaller.\n<<<<<<< SEARCH\n    radius = 0.5 / side - 1e-9\n=======\n    radius = 0.4 / side\n>>>>>>> REPLACE"
    )
    changed = task.read_patch(problem, seed, task.parse(problem, patch), "diff")
    assert changed.answer == seed.answer.replace("0.5 / side - 1e-9", "0.4 / side")
    assert (changed.reasoning, changed.error) == ("Smaller.", None)
    whole = task.parse(problem, "```python\ndef build(n):\n    return []\n```")
    assert task.read_patch(problem, seed, whole, "diff") == whole
    for text in ODD_TEXTS:
        response = task.read_patch(problem, seed, task.parse(problem, text), "diff")
        assert (response.answer is None) == (response.error is not None)


# --- seeds, ladders, settings ---


@pytest.mark.parametrize("name", ["circle_packing", "autocorrelation", "matrix_product"])
def test_the_ladder_goes_from_below_the_seed_to_above_it(name: str) -> None:
    task, problem, _ = loaded(name)
    namespace: dict[str, Any] = {}
    exec(task.starting_response(problem).answer, namespace)
    built = json.loads(json.dumps(namespace["build"](*task.arguments(problem))))
    start = task.degree(problem, task.measure(problem, built))
    assert task.seed_degree(problem) == pytest.approx(start, abs=1e-4)
    degrees = [task.degree(problem, task.measure(problem, rung)) for rung in task.make_ladder(problem)]
    assert degrees == sorted(degrees)
    assert len(set(degrees)) >= 9
    assert 0 <= degrees[0] < start < degrees[-1] < 1
    drawn = [task.random_object(problem, np.random.default_rng(seed)) for seed in range(20)]
    assert all(0 <= task.degree(problem, task.measure(problem, value)) < start for value in drawn)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("circle_packing", {"circles": []}, "task.circles: expected different numbers from 1 to 200"),
        ("circle_packing", {"circles": [5, 5]}, "task.circles: expected different numbers"),
        ("circle_packing", {"circles": [201]}, "task.circles: expected different numbers"),
        ("circle_packing", {"tolerance": 0.1}, "task.tolerance"),
        ("matrix_product", {"shapes": ["2x2"]}, "task.shapes: expected different ones such as 2x3x4"),
        ("matrix_product", {"shapes": ["2x2x6"]}, "task.shapes: expected different ones"),
        ("autocorrelation", {"max_steps": 0}, "task.max_steps"),
    ],
)
def test_settings_out_of_range_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task_config(name, **settings)
