"""Candidates that serve all problems (system prompts, rubrics) as they evolve, and the rollouts under them."""
