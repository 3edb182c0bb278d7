"""SQuAD's measures of a short answer: exact match and F1 after normalisation (Rajpurkar et al., 2016, section 6.1)."""

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation and articles, its words a blank apart."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> bool:
    """Tell whether two answers are equal once normalised."""
    return normalised(answer) == normalised(gold)


def f1(answer: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall of the answer's words, in [0, 1]."""
    said, expected = normalised(answer).split(), normalised(gold).split()
    if not said or not expected:  # SQuAD 2.0: without words, only nothing equals nothing
        return float(said == expected)
    common = (Counter(said) & Counter(expected)).total()
    return 2 * common / (len(said) + len(expected))
