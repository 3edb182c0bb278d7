"""Agentic search: questions of Natural Questions and HotpotQA, answered with a search tool over several turns."""
