"""Agent environments: Python objects with tools and a reward, and OpenEnv servers."""
