"""Tasksets of verifiers: their prompts, and their rewards of replies that are already there."""
