"""Reading answers and verdicts: what is understood, what is refused, and that nothing makes the parser raise."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.base import Problem
from evorun.tasks.judging import parse_judgment
from evorun.tasks.mathbench.mathbench import MathBench

PROBLEM = Problem(id="p", stratum="high", data={"question": "How much?", "options": ("41", "42", "x + 1", "None of A")})
TASK = MathBench()


def reply(solution: object, reasoning: str = "because") -> str:
    return msgspec.json.encode({"reasoning": reasoning, "solution": solution}).decode()


SOLUTIONS = [
    ("B", "B"),
    ("b", "B"),
    (" B ", "B"),
    ("B.", "B"),
    ("B)", "B"),
    ("(B)", "B"),
    ("(b).", "B"),
    ("[B]", "B"),
    ("**B**", "B"),
    ("Option B", "B"),
    ("option b.", "B"),
    ("Answer: B", "B"),
    ("The answer is B", "B"),
    (r"\boxed{B}", "B"),
    (r"$\boxed{\text{B}}$", "B"),
    ("B. 42", "B"),
    ("B) 42", "B"),
    ("B: something in other words", "B"),
    ("42", "B"),
    (42, "B"),
    (["B"], "B"),
    (" X +  1", "C"),
    ("none of A", "D"),
    ("D. None of A", "D"),
]


def test_a_solution_with_one_meaning_is_understood() -> None:
    for solution, letter in SOLUTIONS:
        response = TASK.parse(PROBLEM, reply(solution))
        assert (response.answer, response.error, response.reasoning) == (letter, None, "because")


REFUSED = [
    ("E", "not_an_option"),
    ("", "not_an_option"),
    ("43", "not_an_option"),
    (None, "not_an_option"),
    (True, "not_an_option"),
    (["A", "B"], "not_an_option"),
    ({"letter": "B"}, "not_an_option"),
    ("I do not know", "not_an_option"),
    ("A or B", "ambiguous"),
    ("A, B", "ambiguous"),
    ("A. or B.", "ambiguous"),
    ("A. 42", "ambiguous"),
]


def test_a_solution_without_one_meaning_is_refused_by_kind() -> None:
    for solution, kind in REFUSED:
        response = TASK.parse(PROBLEM, reply(solution))
        assert response.answer is None
        assert response.error is not None
        assert response.error.startswith(f"{kind}:")


def test_an_option_text_that_two_options_share_is_ambiguous() -> None:
    problem = Problem(id="p", stratum="high", data={"question": "?", "options": ("7", "7", "8", "9")})
    assert TASK.parse(problem, reply("7")).error == "ambiguous: '7' means more than one option"
    assert TASK.parse(problem, reply("8")).answer == "C"


NEAR_JSON = [
    '```json\n{"reasoning": "r", "solution": "B"}\n```',
    'Here you are:\n{"reasoning": "r", "solution": "B"}\nI hope that helps.',
    '{"reasoning": "r", "solution": "B",}',
    "{'reasoning': 'r', 'solution': 'B'}",
    '{"reasoning": "r", "solution": "B"',
    '{"reasoning": "r", "solution": "B',
    '{reasoning: "r", solution: "B"}',
    'As \\frac{1}{2} of {98, 100}:\n{"reasoning": "r", "solution": "B"}',
    '{"reasoning": "r", "solution": "B"}\n\nIndeed \\frac{84}{2} is in {42, 43}.',
    'Format: {"reasoning": "...", "solution": "..."}\n{"reasoning": "r", "solution": "B"}',
]


@pytest.mark.parametrize("text", NEAR_JSON)
def test_near_json_is_repaired(text: str) -> None:
    response = TASK.parse(PROBLEM, text)
    assert (response.answer, response.reasoning) == ("B", "r")


def test_unescaped_latex_and_newlines_are_repaired() -> None:
    response = TASK.parse(PROBLEM, '{"reasoning": "so \\( x = \\frac{1}{2} \\)\nand {x}", "solution": "C"}')
    assert response.answer == "C"
    assert "frac{1}{2}" in response.reasoning


TEXTS = [
    # plainly stated, without any JSON
    ("Work... The answer is C.", "C"),
    ("So the final answer is (C).", "C"),
    ("**Answer:** C", "C"),
    ("Answer: C) x + 1", "C"),
    ("The correct option is C because it fits.", "C"),
    (r"Hence \boxed{C}.", "C"),
    (r"The answer is \boxed{\text{C}}.", "C"),
    ("First 40 + 1, then more.\n\n(C)", "C"),
    ("C", "C"),
    # a place and its letter, which must agree
    ("Of these, I pick the third option, C.", "C"),
    ("I choose the first option, (A).", "A"),
    ("I would go with the last one: D.", "D"),
    ("I would go with the last one: C.", None),
    ("I pick the second option, C.", None),
    # nothing that commits to one letter
    ("", None),
    ("   \n", None),
    ("I think it could be A.", None),
    ("The answer is a number larger than 3.", None),
    ("The answer is unclear.", None),
    ("The answer is A Cauchy sequence", None),
    ("Option A fails, option B fails, so C it is", "C"),
    ("The answer is A. No wait, the answer is B.", "B"),
    ("The answer is A. The answer is B.", None),
    ("The answer is A. Wait, is it? The answer is B. The answer is C.", None),
    ("Among the answer choices A and B, both look right.", None),
    ("Answer: E", None),
    ("The answer is Delta", None),
    # JSON without a usable solution: the reasoning is not searched
    ('{"reasoning": "The answer is C', None),
    ('{"reasoning": "The answer is C"}', None),
    ("{}", None),
    ("[]", None),
    ("null", None),
    # started over
    ('{"reasoning": "r", "solution": "A"}\n{"reasoning": "r", "solution": "C"}', None),
    ('{"reasoning": "r", "solution": "C"}\n{"reasoning": "r", "solution": "C"}', "C"),
    ('{"reasoning": "steps", "solution": "the letter"}\n{"reasoning": "r", "solution": "C"}', "C"),
]


def test_texts_without_clean_json() -> None:
    for text, letter in TEXTS:
        response = TASK.parse(PROBLEM, text)
        assert response.answer == letter
        assert (response.error is None) == (letter is not None)
        assert response.text == text


PLAIN_OPTIONS = ("106", "104", "5/11", "108")
PLAIN_TEXTS = {
    "A": r"""
Option A (106)
So, option A (106).
which leaves A
That rules out B, C and D, which leaves A.
B, C and D are out, leaving A.
\boxed{A}
\boxed{A) 106}
A
(a)
""",
    "B": r"""
Answer: 104 (option B)
""",
    "C": r"""
\boxed{\frac{5}{11}}
So $\boxed{\dfrac{5}{11}}$.
So only C remains.
By elimination, only C is left.
Some say the answer is B, but the answer is C.
The answer is $\frac{5}{11}$.
The answer is 5/11, i.e. option C.
5/11
\frac{5}{11}
{"reasoning":"r","solution":"\\frac{5}{11}"}
""",
    "D": r"""
If we double it, the answer is A. But we must not, so it's D
The answer is A. Sorry, that was wrong; it should be 108
The answer is (D) 108
You might think the answer is A. It is not: it should be D.
A common wrong answer is A. The correct answer is D.
The answer is **D**.
**D**
**D. 108**
D. 108
D) 108
d) 108
The answer is (d).
The answer is d.
answer: d
The answer is **d**.
\boxed{108}
\boxed{\text{D}}
\boxed{D. 108}
\boxed{D} = 108
The answer is 108.
The answer is $108$.
The answer is 108 because we counted.
The answer is 108, which is option D.
D.\n\nExplanation: we count all of them and get 108.
D\n\nWe count all of them.
**D. 108**\n\nExplanation: A is too small, B too.
D, because we counted them.
D because we counted them.
The answer is D. If we had not counted the ends, the answer would be A.
Suppose the answer is A. Then we get a contradiction. So the answer is D.
If 2x = 6 then x = 3, so the answer is D.
Since 5 is not prime, the answer is D.
Since x is not 0 the answer is D.
The answer is A? No. The answer is D.
At first I thought the answer is A. The answer is D.
I think the answer is D.
I believe the answer is D.
We conclude that the answer is D.
This means that the answer is D.
It follows that the answer is D.
This shows the answer is D.
That said, the answer is D.
According to the calculation, the answer is D.
The answer is D, not A.
The answer is A. Actually, it's D.
The answer is A. I made a mistake; the answer is D.
The correct option is D, since 100 + 8 = 108.
Options A, B and C are wrong, so D is correct.
I choose D.
I'd pick D.
The correct choice is (D).
Correct answer: D
The answer is\nD
The final answer is: $\boxed{\text{(D) } 108}$
\boxed{\textbf{(D)}\ 108}
\boxed{\text{Option D}}
\boxed{d}
\boxed{n = 108}
\boxed{108 \text{ ways}}
A. 106\nB. 104\nC. 5/11\nD. 108\n\nThe answer is D.
A. 106 is wrong.\nD. 108
D is the correct answer.
Only D is correct.
The answer is clearly D.
The answer is therefore D.
The answer must be D.
Hence D.
Therefore, the answer is option D.
Therefore, D
So the answer is choice D: 108.
The answer is "D".
The answer is `D`.
The answer is [D].
The answer is {D}.
The answer is D) 108.
Thus D) 108.
(D)
Answer = D
$D$
The answer is D = 108.
It matches option D.
My answer is D.
Bob's answer is A; the right answer is D.
Answer (A) is wrong, answer (D) is right.
108
n = 108
The answer is D, which is greater than A.
{"reasoning":"r","solution":"D (108)"}
{"reasoning":"r","solution":"Option D (108)"}
{"reasoning":"r","solution":"D - 108"}
{"reasoning":"r","solution":"$108$"}
{"reasoning":"r","solution":"n = 108"}
""",
    "": r"""
The wrong answer is A
A student claims that the answer is A. We disagree
A student claims that the answer is A.
Had we miscounted, the answer would be A
The answer is A. Sorry, that was wrong.
(A) 108
The answer is (A) 108
The answer is A. 108
Answer: A) 108
Answer: A (108)
The answer is not A.
A is incorrect.
It can't be A.
Option A is incorrect.
It is not true that option A is correct.
I don't think the answer is A.
I doubt that the answer is A.
I doubt that the answer is 108.
Neither option A nor option B is correct.
You might think the answer is A.
The tempting answer is B.
The answer is A or B.
The answer is A, B.
The answer is A, B, C or D.
Answer: A and C
The possible answers are A, B, C, D.
The answer is a.
The answer is a number.
The answer is a prime.
A prime number is needed.
\boxed{A. 108}
Answer: 104 (option A)
The answer would be A if we had miscounted.
Assuming that the ends are not counted, the answer is A.
Suppose the answer is A. Then we get a contradiction.
Is the answer A?
At first glance the answer is A.
My friend said the answer is A.
According to the book, the answer is A.
Not A.
Answer: not A
The answer: A is wrong.
To say that the answer is A would be a mistake.
It would be a mistake to say that the answer is A.
The answer is A. Wait, no.
The answer is A. Hmm, that's not right. Let me recount.
Final answer: A. I was wrong.
I would not choose A.
\boxed{107}
The answer is E.
The answer is I.
A. 106\nB. 104\nC. 5/11\nD. 108
The answer might be A.
The answer could be A.
It could be A.
The answer cannot be A.
So the answer is choice A: 108.
The solution is A Markov chain.
Let A be the answer.
The answer is A + B.
The answer is A's value.
Vitamin A is the best.
It does not match option A.
Choose A if x > 0.
The answer is A unless x = 0.
Their answer is A.
The student's answer is A.
The previous answer is A.
Answer A is wrong.
The answer isn't A.
The answer is never A.
The answer is "none of these".
None of the above.
I cannot tell.
The answer is 0.4545.
The answer is A, if we count twice.
{"reasoning":"r","solution":"A. 108"}
{"reasoning":"r","solution":"A (108)"}
{"reasoning":"r","solution":"not A"}
{"reasoning":"r","solution":"The answer is not A"}
{"reasoning":"r","solution":"A or D"}
{"reasoning":"r","solution":"A is wrong"}
{"reasoning":"r","solution":"A. is wrong"}
""",
}
"""By the letter that a careful human reads, one reply a line; a line break in a reply is written as \\n."""


def test_what_a_text_denies_supposes_reports_or_takes_back_is_no_answer() -> None:
    problem = Problem(id="p", stratum="high", data={"question": "How many?", "options": PLAIN_OPTIONS})
    misread = {}
    for letter, replies in PLAIN_TEXTS.items():
        for line in replies.strip().splitlines():
            text = re.sub(r"\\n(?!eq)", "\n", line)
            read = TASK.parse(problem, text).answer or ""
            if read != letter:
                misread[line] = read
    assert misread == {}


HOSTILE = [
    "{" * 5000,
    "[" * 100_000,
    '{"a":' * 3000,
    '{"solution": ' * 500 + '"A"' + "}" * 500,
    "\x00\ud800 {\udfff}",
    '{"reasoning": "\\ud800", "solution": "A"}',
    '{"solution": "' + "A" * 100_000,
    "answer " * 20_000,
    "answer is " * 500,
    "(" * 50_000 + "A",
    "\\boxed{" * 20_000,
    '"solution":"' * 10_000,
    '{"solution": 1e999}',
    '{"solution": ' + "9" * 5000 + "}",
]


@pytest.mark.timeout(600)
def test_hostile_texts_neither_raise_nor_hang() -> None:
    for text in HOSTILE:
        response = TASK.parse(PROBLEM, text)
        assert response.answer is None or response.error is None
        msgspec.json.encode(response)  # can be written to a record
        parse_judgment(text)


@given(st.one_of(st.text(), st.text(alphabet='{}[]":,\\ABCDT solutionanswer is\n\ud800')))
def test_any_text_yields_an_answer_or_an_error(text: str) -> None:
    for candidate in (text, '{"reasoning": "r", "solution": "' + text, "The answer is " + text):
        response = TASK.parse(PROBLEM, candidate)
        assert (response.answer is None) != (response.error is None)
        assert response.answer in ("A", "B", "C", "D", None)
        msgspec.json.encode(response)
        assert parse_judgment(candidate).verdict in ("A", "B", "T", "invalid")


def test_a_text_whose_repair_would_take_long_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    repaired: list[str] = []
    monkeypatch.setattr("json_repair.loads", lambda text: repaired.append(text) or {})
    for text in ('{"a":' * 41, '{"a": "' + "x" * 40_000):
        TASK.parse(PROBLEM, text)
    assert not repaired
    TASK.parse(PROBLEM, '{"a":' * 40)
    assert len(repaired) == 1


def test_a_long_chain_of_thought_before_the_json_is_no_hindrance() -> None:
    thinking = "Consider \\frac{1}{2} of it, then {x | x > 3}. " * 3000
    assert TASK.parse(PROBLEM, f'{thinking}</think>\n{{"reasoning": "r", "solution": "B"}}').answer == "B"
