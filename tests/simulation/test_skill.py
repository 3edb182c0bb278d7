"""A simulated judge against closed forms: bias is a mixture, errors persist for a problem and grow with difficulty."""

import numpy as np
import pytest

from evorun.simulation.skill import Skill

ASKS = 4000
PROBLEMS = 400


def right_share(skill: Skill, problem: str, rng: np.random.Generator, asks: int, *, right_first: bool = True) -> float:
    """Return the share of verdicts on a right and a wrong response that name the right one."""
    named = "A" if right_first else "B"
    draws = rng.random((asks, 3)).tolist()
    return sum(skill.verdict(problem, right_first, not right_first, *draw) == named for draw in draws) / asks


@pytest.mark.parametrize("q", [0.5, 0.7, 0.95])
def test_bias_never_raises_the_share_of_right_decisive_duels(q: float) -> None:
    rng = np.random.default_rng(0)
    shares = []
    for bias in (0.0, 0.25, 0.5, 0.75):
        skill = Skill(judge_skill=q, position_bias=bias)
        # A verdict is bias's with its probability, else the content's; a duel is decisive where both orders agree.
        first, second = (right_share(skill, "p", rng, ASKS, right_first=order) for order in (True, False))
        assert first == pytest.approx(bias + (1 - bias) * q, abs=0.03)
        assert second == pytest.approx((1 - bias) * q, abs=0.03)
        won, lost = first * second, (1 - first) * (1 - second)
        exact_won, exact_lost = ((bias + (1 - bias) * p) * (1 - bias) * p for p in (q, 1 - q))
        share = exact_won / (exact_won + exact_lost)
        assert won / (won + lost) == pytest.approx(share, abs=0.06)
        shares.append(share)
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(q**2 / (q**2 + (1 - q) ** 2))


@pytest.mark.parametrize("bias", [-1.0, -0.3, 0.3, 1.0])
def test_bias_names_one_place_whatever_stands_there(bias: float) -> None:
    rng = np.random.default_rng(0)
    skill = Skill(tie_rate=1, position_bias=bias)
    verdicts = [skill.verdict("p", True, True, *draw) for draw in rng.random((ASKS, 3)).tolist()]
    assert verdicts.count("A" if bias > 0 else "B") / ASKS == pytest.approx(abs(bias), abs=0.03)
    assert verdicts.count("T") / ASKS == pytest.approx(1 - abs(bias), abs=0.03)


@pytest.mark.parametrize("persistence", [0.0, 0.5, 1.0])
def test_a_judges_errors_persist_for_a_problem_and_no_vote_of_its_verdicts_corrects_them(persistence: float) -> None:
    rng = np.random.default_rng(0)
    skill = Skill(judge_skill=0.7, judge_persistence=persistence, position_bias=0)
    shares = [right_share(skill, f"q{n}", rng, 101) for n in range(PROBLEMS)]
    assert np.mean(shares) == pytest.approx(0.7, abs=0.08)  # of one verdict, whatever persists
    # A vote of 101 is right where a verdict is likelier right than not; at 0.5 that is 0.35 on deceiving problems.
    votes = np.mean([share > 0.5 for share in shares])
    assert votes == pytest.approx(0.7 if persistence else 1.0, abs=0.08)
    deceived = [share for share in shares if share < 0.5]
    if persistence:
        assert np.mean(deceived) == pytest.approx(0.7 * (1 - persistence), abs=0.03)


def test_a_judges_errors_grow_with_a_problems_difficulty() -> None:
    rng = np.random.default_rng(0)
    skill = Skill(skill=0.5, spread=0.3, judge_skill=0.7, judge_difficulty=0.6, position_bias=0)
    own = [skill.chance(f"q{n}", ()) for n in range(PROBLEMS)]
    judged = [right_share(skill, f"q{n}", rng, 200) for n in range(PROBLEMS)]
    expected = np.clip(0.7 + 0.6 * (np.array(own) - 0.5), 0, 1)
    assert np.abs(np.array(judged) - expected).max() < 0.16  # four and a half standard errors
    assert np.polyfit(own, judged, 1)[0] > 0.4
