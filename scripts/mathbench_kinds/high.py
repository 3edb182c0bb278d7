"""High-school kinds: sequences, counting, probability, growth, remainders, quadratics, Pythagoras."""

from fractions import Fraction as F
from math import comb, isqrt, lcm
from random import Random

from mathbench_kinds.draft import Draft, Kind, draft


def same_colour(r: Random) -> Draft | None:
    red, blue = r.randrange(3, 10), r.randrange(3, 10)
    total = red + blue
    answer = F(comb(red, 2) + comb(blue, 2), comb(total, 2))
    text = (
        f"A bag holds {red} red and {blue} blue marbles. Two are drawn at random, one after the other and without "
        "putting the first one back. What is the probability that both have the same colour?"
    )
    with_replacement = F(red * red + blue * blue, total * total)
    return draft(text, answer, [with_replacement, 1 - answer, F(comb(red, 2), comb(total, 2))])


def theatre_rows(r: Random) -> Draft | None:
    first, step, rows = r.randrange(10, 30), r.randrange(2, 6), r.randrange(12, 31)
    last = first + (rows - 1) * step
    text = (
        f"The first row of a theatre has {first} seats, and each row behind it has {step} more than the one in front. "
        f"How many seats are there in {rows} rows?"
    )
    wrong = [F(rows * (first + last + step), 2), F(rows * last), F(rows * (2 * first + rows * step))]
    return draft(text, F(rows * (first + last), 2), wrong)


def time_of_flight(r: Random) -> Draft | None:
    flight, early = r.randrange(3, 12), r.randrange(1, 8)
    # The height 5 (flight - t)(t + early) has its positive root at `flight`.
    speed, height = 5 * (flight - early), 5 * flight * early
    text = (
        f"A ball is thrown straight up from a platform {height} m above the ground at {speed} m per second. Its height "
        f"after t seconds is {height} + {speed}t - 5t^2 metres. After how many seconds does it hit the ground?"
    )
    return draft(text, flight, [flight - early, early, flight + early, flight + 1]) if flight > early else None


def committee(r: Random) -> Draft | None:
    women, men, size, needed = r.randrange(4, 9), r.randrange(4, 9), r.randrange(3, 6), r.randrange(1, 3)
    answer = sum(comb(women, w) * comb(men, size - w) for w in range(needed, size + 1))
    text = (
        f"A club has {women} women and {men} men. In how many ways can it choose a committee of {size} that includes "
        f"at least {needed} of the women?"
    )
    overcounted = comb(women, needed) * comb(women + men - needed, size - needed)
    return draft(text, answer, [overcounted, comb(women, needed) * comb(men, size - needed), comb(women + men, size)])


def compound_interest(r: Random) -> Draft | None:
    principal, rate, years = r.randrange(1000, 21000, 1000), r.choice([5, 10, 20]), r.choice([2, 3])
    interest = principal * (F(100 + rate, 100) ** years - 1)
    text = (
        f"{principal} dollars are invested at {rate} percent a year, and the interest is added to the capital at the "
        f"end of each year. How many dollars of interest have been earned after {years} years?"
    )
    simple = F(principal * rate * years, 100)
    wrong = [simple, interest + principal, F(principal * rate, 100)]
    return draft(text, interest, wrong) if interest.denominator == 1 else None


def fence_by_river(r: Random) -> Draft | None:
    fence = 4 * r.randrange(10, 60)
    text = (
        f"A farmer has {fence} m of fence for a rectangular field along a straight river. The side at the river needs "
        "no fence. What is the largest area that the field can have, in square metres?"
    )
    return draft(text, F(fence * fence, 8), [F(fence * fence, 16), F(fence * fence, 9), F(fence * fence, 4)])


def doubling(r: Random) -> Draft | None:
    start, hours, periods = r.randrange(3, 20) * 50, r.randrange(2, 6), r.randrange(3, 7)
    text = (
        f"A culture of {start} bacteria doubles every {hours} hours. How many bacteria are there after "
        f"{hours * periods} hours?"
    )
    return draft(text, start * 2**periods, [start * 2 * periods, start * 2 ** (periods - 1), start * (periods + 1)])


def remainders(r: Random) -> Draft | None:
    first, second = r.sample(range(5, 14), 2)
    answer = r.randrange(30, first * second)
    text = (
        f"A gardener has fewer than {first * second} bulbs. In rows of {first} there are {answer % first} left over, "
        f"and in rows of {second} there are {answer % second} left over. How many bulbs does the gardener have?"
    )
    coprime = lcm(first, second) == first * second
    left_over = answer % first > 0 and answer % second > 0
    wrong = [answer - second, answer - first, answer + first - second, answer + 1]
    return draft(text, answer, r.sample(wrong, 4)) if coprime and left_over else None


def sliding_ladder(r: Random) -> Draft | None:
    length = r.choice([25, 50, 65, 75, 85])
    feet = [x for x in range(1, length) if isqrt(length**2 - x**2) ** 2 == length**2 - x**2]
    before, after = sorted(r.sample(feet, 2))
    drop = isqrt(length**2 - before**2) - isqrt(length**2 - after**2)
    text = (
        f"A ladder {length} dm long leans against a wall with its foot {before} dm from the wall. The foot slides "
        f"{after - before} dm further away. By how many dm does the top of the ladder come down?"
    )
    return draft(text, drop, [after - before, isqrt(length**2 - after**2), isqrt(length**2 - before**2)])


def coin_tosses(r: Random) -> Draft | None:
    tosses = r.randrange(4, 9)
    heads = r.randrange(2, tosses)
    answer = F(comb(tosses, heads), 2**tosses)
    text = f"A fair coin is tossed {tosses} times. What is the probability that it shows heads exactly {heads} times?"
    at_least = F(sum(comb(tosses, h) for h in range(heads, tosses + 1)), 2**tosses)
    return draft(text, answer, [at_least, F(1, 2**tosses), F(heads, tosses), F(1, tosses + 1)])


def bouncing_ball(r: Random) -> Draft | None:
    part, whole, landings = r.randrange(1, 4), r.randrange(2, 5), r.randrange(4, 6)
    height = whole**landings * r.randrange(1, 6)
    if part >= whole or height < 16:
        return None
    ratio = F(part, whole)
    rises = sum(height * ratio**i for i in range(1, landings))
    text = (
        f"A ball is dropped from a height of {height} cm. After each landing it rises to {part}/{whole} of the height "
        f"that it fell from. How many cm has it travelled when it lands for the {landings}th time?"
    )
    return draft(text, height + 2 * rises, [height + rises, 2 * (height + rises), height + 2 * rises * ratio])


def faulty_parts(r: Random) -> Draft | None:
    share, fault_a, fault_b = r.randrange(20, 85, 5), r.randrange(1, 9), r.randrange(1, 9)
    from_a, from_b = share * fault_a, (100 - share) * fault_b
    text = (
        f"Machine X makes {share} percent of a plant's parts, and {fault_a} percent of its parts are faulty. Machine Y "
        f"makes the rest, with {fault_b} percent faulty. A part is picked at random and is faulty. What is the "
        "probability that machine X made it?"
    )
    wrong = [F(fault_a, fault_a + fault_b), F(share, 100), F(from_a, 10000), F(from_b, from_a + from_b)]
    return draft(text, F(from_a, from_a + from_b), wrong) if fault_a != fault_b else None


KINDS: list[Kind] = [
    same_colour,
    theatre_rows,
    time_of_flight,
    committee,
    compound_interest,
    fence_by_river,
    doubling,
    remainders,
    sliding_ladder,
    coin_tosses,
    bouncing_ball,
    faulty_parts,
]
