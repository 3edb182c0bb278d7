"""Text in, text out: the language-model protocol and its engines."""

from evorun.models.base import Completion, LanguageModel, Message, Reply, Request, Sampling, rejected

__all__ = ["Completion", "LanguageModel", "Message", "Reply", "Request", "Sampling", "rejected"]
