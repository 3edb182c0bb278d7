"""College kinds: calculus, linear algebra, Markov chains, expectations, number and group theory, optimisation."""

from fractions import Fraction as F
from math import comb, gcd, isqrt
from random import Random

from mathbench_kinds.draft import Draft, Kind, draft


def steady_state(r: Random) -> Draft | None:
    leave_x, leave_y = r.randrange(5, 60, 5), r.randrange(5, 60, 5)
    text = (
        f"Each year {leave_x} percent of the customers of provider X switch to Y, and {leave_y} percent of the "
        "customers of Y switch to X; nobody joins or leaves the market. What share of the customers does X have in the "
        "long run?"
    )
    total = leave_x + leave_y
    wrong = [F(leave_x, total), F(100 - leave_x, 100), F(leave_y, 100), F(100 - leave_x, 200 - total)]
    return draft(text, F(leave_y, total), wrong) if leave_x != leave_y else None


def largest_of_two(r: Random) -> Draft | None:
    faces = r.randrange(4, 21)
    answer = sum(F(k * (2 * k - 1), faces * faces) for k in range(1, faces + 1))
    text = (
        f"Two fair dice, each with the faces 1 to {faces}, are thrown. What is the expected value of the larger of the "
        "two numbers (or of either, when they are equal)?"
    )
    return draft(text, answer, [F(faces + 1, 2), F(2 * (faces + 1), 3), F(2 * faces, 3), faces + 1 - answer])


def net_volume(r: Random) -> Draft | None:
    square, linear, out, end = 3 * r.randrange(1, 5), 2 * r.randrange(1, 7), r.randrange(2, 15), r.randrange(3, 9)
    inflow = square * end**3 // 3 + linear * end**2 // 2
    text = (
        f"Water runs into a large basin at a rate of {square}t^2 + {linear}t litres per minute, where t is the time "
        f"in minutes. Over the first {end} minutes {out} litres per minute are pumped out of it as well. By how many "
        "litres does the inflow exceed the outflow over that time?"
    )
    rate = square * end**2 + linear * end - out
    return draft(text, inflow - out * end, [inflow, inflow - out, rate, rate * end])


def best_output(r: Random) -> Draft | None:
    price, slope = r.randrange(60, 200, 4), r.randrange(2, 6)
    cost, fixed = r.randrange(4, 40, 4), r.randrange(20, 300, 5)
    best = F(price - cost, 2 * slope)
    if best.denominator != 1 or best < 5:
        return None
    profit = (price - slope * best) * best - cost * best - fixed
    text = (
        f"A firm sells q units at {price} - {slope}q dollars each. Making q units costs {cost}q + {fixed} dollars. "
        "What is the largest profit that it can make, in dollars?"
    )
    at_revenue = F(price, 2 * slope)
    wrong = [profit + fixed, (price - slope * best) * best, profit - cost * (at_revenue - best), profit + cost]
    return draft(text, profit, [value for value in wrong if value.denominator == 1])


def sliding_rate(r: Random) -> Draft | None:
    length, speed = r.choice([25, 50, 65, 75, 85]), r.randrange(2, 8)
    foot = r.choice([x for x in range(1, length) if isqrt(length**2 - x**2) ** 2 == length**2 - x**2])
    top = isqrt(length**2 - foot**2)
    text = (
        f"A ladder {length} dm long leans against a wall. Its foot is pulled away from the wall at {speed} dm per "
        f"second. How fast does the top come down, in dm per second, when the foot is {foot} dm from the wall?"
    )
    return draft(text, F(foot * speed, top), [F(top * speed, foot), F(speed), F(foot * speed, length)])


def elements_of_order(r: Random) -> Draft | None:
    order = r.randrange(6, 31)
    size = order * r.randrange(2, 9)
    count = sum(gcd(k, order) == 1 for k in range(1, order + 1))
    text = (
        f"How many elements of order exactly {order} does the group of the integers modulo {size} under addition have?"
    )
    return draft(text, count, [order, size // order, order - 1, count + 1])


def parcels_in_vans(r: Random) -> Draft | None:
    parcels, vans = r.randrange(4, 8), r.randrange(3, 5)
    answer = sum((-1) ** k * comb(vans, k) * (vans - k) ** parcels for k in range(vans + 1))
    text = (
        f"In how many ways can {parcels} different parcels be loaded into {vans} different vans so that no van stays "
        "empty?"
    )
    one_step = vans**parcels - vans * (vans - 1) ** parcels
    return (
        draft(text, answer, [vans**parcels, one_step, comb(parcels - 1, vans - 1), answer // vans])
        if (parcels > vans)
        else None
    )


def power_remainder(r: Random) -> Draft | None:
    base, exponent, modulus = r.randrange(3, 30), r.randrange(40, 400), r.randrange(11, 60)
    answer = pow(base, exponent, modulus)
    text = f"What is the remainder when {base}^{exponent} is divided by {modulus}?"
    wrong = [pow(base, exponent + 1, modulus), pow(base, exponent - 1, modulus), base * exponent % modulus]
    return draft(text, answer, wrong) if gcd(base, modulus) == 1 and answer > 1 else None


def full_collection(r: Random) -> Draft | None:
    pictures = r.randrange(3, 9)
    text = (
        f"Each packet holds one of {pictures} different pictures, all equally likely. What is the expected number of "
        "packets that one has to open to own every picture?"
    )
    answer = sum(F(pictures, k) for k in range(1, pictures + 1))
    wrong = [
        F(pictures**2),
        answer - 1,
        F(pictures * (pictures + 1), 2),
        sum(F(pictures, k) for k in range(2, pictures + 2)),
    ]
    return draft(text, answer, wrong)


def steady_dose(r: Random) -> Draft | None:
    dose, kept = r.randrange(20, 400, 10), r.randrange(10, 85, 5)
    answer = F(100 * dose, 100 - kept)
    text = (
        f"A patient takes {dose} mg of a drug each morning. By the next morning the body still holds {kept} percent of "
        "what it held right after the last dose. In the long run, how many mg does it hold right after a dose?"
    )
    wrong = [answer - dose, F(100 * dose, kept), F(dose * (100 + kept), 100)]
    return draft(text, answer, wrong) if answer.denominator == 1 else None


def stage_population(r: Random) -> Draft | None:
    born, grown, kept, young, years = r.randrange(2, 5), r.randrange(2, 4), r.randrange(2, 4), r.randrange(4, 20), 3
    history = [(young, 0)]
    for _ in range(years):
        juveniles, adults = history[-1]
        history.append((born * adults, grown * juveniles + kept * adults))
    text = (
        f"In a model of a plant, each adult leads to {born} seedlings and {kept} adults in the next year, and each "
        f"seedling leads to {grown} adults. There are {young} seedlings and no adults now. How many plants (seedlings "
        f"and adults together) are there after {years} years?"
    )
    totals = [sum(state) for state in history]
    return draft(text, totals[3], [totals[2], history[3][1], history[3][0], totals[3] + young])


def best_mix(r: Random) -> Draft | None:
    gain_x, gain_y = r.randrange(3, 15), r.randrange(3, 15)
    a, b, c, d = (r.randrange(2, 7) for _ in range(4))
    x, y = r.randrange(3, 12), r.randrange(3, 12)
    wood, hours = a * x + b * y, c * x + d * y
    # The corner (x, y) is the optimum when the slope of the gain lies between the slopes of the two limits.
    if not min(F(a, b), F(c, d)) < F(gain_x, gain_y) < max(F(a, b), F(c, d)):
        return None
    text = (
        f"A table takes {a} units of wood and {c} hours and brings {gain_x} dollars; a shelf takes {b} units of wood "
        f"and {d} hours and brings {gain_y} dollars. There are {wood} units of wood and {hours} hours. What is the "
        "largest number of dollars that tables and shelves can bring together?"
    )
    only_x, only_y = gain_x * min(wood // a, hours // c), gain_y * min(wood // b, hours // d)
    best = gain_x * x + gain_y * y
    return draft(text, best, [only_x, only_y, best + min(gain_x, gain_y), best - max(gain_x, gain_y)])


KINDS: list[Kind] = [
    steady_state,
    largest_of_two,
    net_volume,
    best_output,
    sliding_rate,
    elements_of_order,
    parcels_in_vans,
    power_remainder,
    full_collection,
    steady_dose,
    stage_population,
    best_mix,
]
