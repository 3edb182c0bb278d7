"""Tasks of inspect_ai: their prompts, and their scores of replies that are already there."""
