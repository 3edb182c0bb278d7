"""Measures summaries with rouge_score in a separate process, which `rouge.py` starts.

It reads one JSON array (reference, summary, whether to stem) per line and replies with one JSON object per line. It
imports nothing from evorun, since it is run as a file. A pair takes at least a thirtieth of a second, and importing the
package takes seconds; neither must block a run.
"""

import json
import os
import re
import sys
from functools import cache
from typing import Any

# The end of a sentence: not after a capital (U.S.), and before a capital, a bracket or a quotation mark
_END = re.compile(r"(?<=[a-z0-9)\]'\"][.!?])[ \t]+(?=[A-Z(\"'])")


def main() -> None:
    """Serve until the input ends."""
    # A library's output must not end up among the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        scorer(stemmer=True)
    except ImportError as error:
        replies.write(json.dumps({"error": str(error)}) + "\n")
        return
    replies.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        replies.write(json.dumps(measure(*json.loads(line))) + "\n")


def measure(reference: str, summary: str, stemmer: bool) -> dict[str, float]:
    """Return the F-measures of ROUGE-1, -2, -L and, in two readings, -Lsum, each in [0, 1]."""
    scored = scorer(stemmer).score(reference, summary)
    by_sentence = scorer(stemmer, ("rougeLsum",)).score(
        put_sentences_on_lines(reference), put_sentences_on_lines(summary)
    )
    measures = {name: float(score.fmeasure) for name, score in scored.items()}
    return {**measures, "rougeLsum_sentences": float(by_sentence["rougeLsum"].fmeasure)}


def put_sentences_on_lines(text: str) -> str:
    """Put each sentence on a separate line, as the package expects for ROUGE-Lsum."""
    return _END.sub("\n", text)


@cache
def scorer(stemmer: bool, kinds: tuple[str, ...] = ("rouge1", "rouge2", "rougeL", "rougeLsum")) -> Any:
    """Return the package's scorer for these measures."""
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(kinds), use_stemmer=stemmer)


if __name__ == "__main__":
    main()
