"""Middle-school kinds: percentages, rates, ratios, equations with one unknown, areas, means."""

from fractions import Fraction as F
from random import Random

from mathbench_kinds.draft import Draft, Kind, draft


def discount_then_tax(r: Random) -> Draft | None:
    price, off, tax = r.randrange(40, 400, 20), r.choice([10, 15, 20, 25, 30]), r.choice([5, 8, 10, 12])
    answer = F(price * (100 - off) * (100 + tax), 10000)
    text = (
        f"A jacket is marked at {price} dollars. The shop takes {off} percent off, and then adds a sales tax of "
        f"{tax} percent to the reduced price. How many dollars does a customer pay?"
    )
    wrong = [F(price * (100 - off + tax), 100), F(price * (100 - off), 100), F(price * (100 + off - tax), 100)]
    return draft(text, answer, wrong) if answer.denominator == 1 else None


def average_speed(r: Random) -> Draft | None:
    out, back, distance = r.randrange(20, 90, 5), r.randrange(20, 90, 5), r.randrange(60, 300, 30)
    answer = F(2 * out * back, out + back)
    text = (
        f"A van drives {distance} km to a warehouse at {out} km per hour and returns along the same road at "
        f"{back} km per hour. What is its average speed over the whole trip, in km per hour?"
    )
    wrong = [F(out + back, 2), F(min(out, back)), F(abs(out - back) + min(out, back) // 2)]
    return draft(text, answer, wrong) if answer.denominator == 1 and out != back else None


def work_together(r: Random) -> Draft | None:
    a, b = r.randrange(3, 31), r.randrange(3, 31)
    answer = F(a * b, a + b)
    text = (
        f"One printer finishes a batch of tickets in {a} hours, another finishes the same batch in {b} hours. "
        "How many hours do both need when they work on one batch side by side?"
    )
    return draft(text, answer, [F(a + b, 2), F(abs(a - b)), F(a + b)]) if answer.denominator == 1 and a != b else None


def mixture(r: Random) -> Draft | None:
    x, y = r.randrange(2, 13), r.randrange(2, 13)
    p, q = r.randrange(5, 60, 5), r.randrange(5, 60, 5)
    answer = F(x * p + y * q, x + y)
    text = (
        f"{x} litres of a syrup with {p} percent sugar are stirred into {y} litres of a syrup with {q} percent sugar. "
        "What percentage of the mixture is sugar?"
    )
    wrong = [F(p + q, 2), F(x * q + y * p, x + y), F(abs(p - q)), F(p + q)]
    return draft(text, answer, wrong) if answer.denominator == 1 and x != y and p != q else None


def ratio_difference(r: Random) -> Draft | None:
    a, b, c = r.sample(range(1, 10), 3)
    share = r.randrange(4, 30)
    total = share * (a + b + c)
    text = (
        f"Three friends split a prize of {total} dollars in the ratio {a} : {b} : {c}. How many dollars more does the "
        "one with the largest share get than the one with the smallest?"
    )
    high, low = max(a, b, c), min(a, b, c)
    return draft(text, share * (high - low), [F(share * high), F(share * low), F(total * (high - low), 10)])


def ages(r: Random) -> Draft | None:
    now, later, years = r.randrange(4, 9), r.randrange(2, 4), r.randrange(3, 25)
    child = F(years * (later - 1), now - later)
    text = (
        f"Mara is {now} times as old as her nephew. In {years} years she will be {later} times as old as he is then. "
        "How many years old is Mara now?"
    )
    mother = now * child
    fits = child.denominator == 1 and 2 <= child <= 15 and mother <= 80
    return draft(text, mother, [mother + years, child + years, later * child]) if fits else None


def coins(r: Random) -> Draft | None:
    fives, twenties = r.randrange(4, 30), r.randrange(4, 30)
    count, cents = fives + twenties, 5 * fives + 20 * twenties
    text = (
        f"A money box holds {count} coins, some worth 5 cents and the others worth 20 cents. Together they are worth "
        f"{cents} cents. How many of them are worth 20 cents?"
    )
    return draft(text, twenties, [fives, cents // 25, abs(cents // 20 - fives) + 1])


def path_area(r: Random) -> Draft | None:
    length, width, path = r.randrange(8, 31), r.randrange(5, 21), r.randrange(1, 4)
    answer = (length + 2 * path) * (width + 2 * path) - length * width
    text = (
        f"A garden measures {length} m by {width} m. A path {path} m wide runs all the way round the outside of it. "
        "What is the area of the path in square metres?"
    )
    inner = length * width
    one_side = (length + path) * (width + path) - inner
    return draft(text, answer, [one_side, 2 * path * (length + width), answer + inner])


def original_price(r: Random) -> Draft | None:
    before, up = r.randrange(40, 600, 20), r.choice([10, 15, 20, 25, 40, 60])
    after = F(before * (100 + up), 100)
    text = f"After a rise of {up} percent a club's yearly fee is {after} dollars. How many dollars was the fee before?"
    wrong = [after * (100 - up) / 100, after - up, after * (100 + up) / 100]
    return draft(text, before, wrong) if after.denominator == 1 and wrong[0].denominator == 1 else None


def consecutive_even(r: Random) -> Draft | None:
    count, first = r.randrange(3, 8), 2 * r.randrange(5, 60)
    total = sum(first + 2 * i for i in range(count))
    last = first + 2 * (count - 1)
    text = f"The sum of {count} consecutive even numbers is {total}. What is the largest of them?"
    return draft(text, last, [first, last + 2, F(total, count) + count])


def leaking_tank(r: Random) -> Draft | None:
    pump, leak, held = r.randrange(20, 90, 5), r.randrange(3, 18), r.randrange(50, 400, 10)
    minutes = r.randrange(8, 60)
    full = held + minutes * (pump - leak)
    text = (
        f"A tank for {full} litres already holds {held} litres. A pump adds {pump} litres a minute while {leak} litres "
        "a minute leak out. After how many minutes is the tank full?"
    )
    wrong = [full // (pump - leak), (full - held) // pump, (full - held) // (pump + leak)]
    return draft(text, minutes, wrong)


def next_score(r: Random) -> Draft | None:
    count, mean, rise = r.randrange(4, 10), r.randrange(60, 85), r.randrange(1, 4)
    last = (mean + rise) * (count + 1) - mean * count
    text = (
        f"After {count} tests Ivo's mean score is {mean} points. One more test lifts his mean to {mean + rise} points. "
        "How many points did he score in that test?"
    )
    return draft(text, last, [mean + 2 * rise, mean + rise, last - mean // 10]) if last <= 100 else None


KINDS: list[Kind] = [
    discount_then_tax,
    average_speed,
    work_together,
    mixture,
    ratio_difference,
    ages,
    coins,
    path_area,
    original_price,
    consecutive_even,
    leaking_tank,
    next_score,
]
