"""Agentic search: questions of Natural Questions and HotpotQA, answered with a search tool over several turns."""

from evorun.tasks.search_qa.config import SearchQaConfig

__all__ = ["SearchQaConfig"]
