"""Travelling salesman problem: the shortest round trip through all cities (Lyria paper, section 3.3)."""
