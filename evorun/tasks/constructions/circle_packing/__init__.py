"""Circles in the unit square with the greatest sum of radii."""
