"""Composes a run out of its configuration and carries it out."""
