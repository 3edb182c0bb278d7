"""The section of a page on rubrics and on what they reward: hacking, refinements, lengths and strictness."""
