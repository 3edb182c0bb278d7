"""Text in, text out: the language-model protocol and its engines."""

from evorun.models.base import Completion, Confidence, LanguageModel, Message, Reply, Request, Sampling, make_rejection

__all__ = ["Completion", "Confidence", "LanguageModel", "Message", "Reply", "Request", "Sampling", "make_rejection"]
