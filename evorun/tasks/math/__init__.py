"""MATH: competition problems of seven subjects, in clusters of kindred ones that have a rubric each."""
