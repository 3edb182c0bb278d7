"""evorun: one runner for experiments that evolve what language models produce."""

__version__ = "0.2.0"
