"""What serves all problems (system prompts, rubrics) as it evolves, and the rollouts under it."""
