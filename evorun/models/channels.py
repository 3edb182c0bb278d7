"""Harmony, the format of gpt-oss: a turn consists of messages in channels, with special tokens between them.

    <|start|>assistant<|channel|>analysis<|message|>...<|end|>                                     a thought
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>   a call
    <|start|>functions.NAME to=assistant<|channel|>commentary<|message|>...<|end|>                 the tool's answer
    <|start|>assistant<|channel|>final<|message|>...<|return|>                                     the answer

Source: github.com/openai/harmony, docs/format.md. evorun reads and writes turns by token ids: a text does not
distinguish a special token from words that look like one. The package openai-harmony does not help: it downloads the
vocabulary of gpt-oss, and accepts no other tokenizer.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, RETURN, CALL = "<|end|>", "<|return|>", "<|call|>"
ANALYSIS, COMMENTARY, FINAL = "analysis", "commentary", "final"
ASSISTANT = "assistant"
FUNCTIONS = "functions."
"""Prefix of a tool's name as recipient or author."""
TOOL_RESPONSE = "<tool_response>\n{}\n</tool_response>"
"""A tool's answer as a user's message, between the tags of Qwen's template."""
CALL_END = "}</tool_call>"

_RECIPIENT = re.compile(r"(?:^|\s)to=(?!(?:all|user|assistant)(?:\s|$))(\S+)")


class ChannelMessage(NamedTuple):
    """A message of a turn."""

    author: str
    recipient: str
    """The tool that it calls, or empty."""
    channel: str
    content: str
    closed: bool
    """False if the end of the turn truncated the message."""


class Channels:
    """Reads and writes the turns of a model whose tokenizer has harmony's special tokens."""

    def __init__(self, tokenizer: Any) -> None:
        """Raise ValueError if the tokenizer lacks one of the special tokens."""
        self._tokenizer = tokenizer
        self._ids: dict[str, int] = tokenizer.get_added_vocab()
        needed = (START, CHANNEL, CONSTRAIN, MESSAGE, END, RETURN, CALL)
        missing = [token for token in needed if token not in self._ids]
        if missing:
            raise ValueError(f"its chat template has channels, its tokenizer has no token {', '.join(missing)}")

    @property
    def stops(self) -> list[int]:
        """The token ids that end a turn: that of an answer and that of a call."""
        return [self._ids[RETURN], self._ids[CALL]]

    @property
    def final(self) -> list[int]:
        """The token ids that open the final channel, after a prompt that ends in `<|start|>assistant`."""
        return [self._ids[CHANNEL], *self._encode(FINAL), self._ids[MESSAGE]]

    def messages(self, ids: Sequence[int], *, starts_in_final: bool = False) -> Iterator[ChannelMessage]:
        """Yield the messages of a turn, sampled after `<|start|>assistant`.

        starts_in_final: the prompt has already opened the final channel.
        """
        start, message = self._ids[START], self._ids[MESSAGE]
        ends = {self._ids[END], *self.stops}
        parts = {self._ids[CHANNEL], self._ids[CONSTRAIN]}
        header: list[list[int]] = [self._encode(ASSISTANT)]  # the author, the channel, the kind of the content
        content: list[int] | None = None
        if starts_in_final:
            header, content = [*header, self._encode(FINAL)], []
        for token in (*ids, None):
            if token is None or token in ends or token == start:
                if content is not None:
                    yield self._message(header, content, closed=token is not None)
                header, content = [[]], None
            elif content is not None:
                content.append(token)
            elif token == message:
                content = []
            elif token in parts:
                header.append([])
            else:
                header[-1].append(token)

    def text(self, ids: Sequence[int], *, starts_in_final: bool = False) -> str:
        """Return a turn's text: its last message outside the analysis channel, with a call written by `tool_call`.

        The text is empty if the turn contains only analysis. starts_in_final: see `messages`.
        """
        said = ""
        for message in self.messages(ids, starts_in_final=starts_in_final):
            if message.author != ASSISTANT:  # a model may invent another author's message: ignore it
                continue
            if message.recipient:
                said = tool_call(message.recipient.removeprefix(FUNCTIONS), message.content.strip())
                said = said if message.closed else said.removesuffix(CALL_END)
            elif message.channel != ANALYSIS:
                said = message.content
        return said

    def next_turn(self, seen: Sequence[int], messages: Sequence[Any]) -> list[int]:
        """Return the token ids between a turn of the assistant and its next one.

        seen: the conversation up to and including the turn, which does not change. A template would drop the turn's
        analysis and replace its end token, but training uses the sampled ids.

        messages: those of tools and users after the turn. The author of a tool's answer is the called tool. If the turn
        wrote its call as text, not in harmony's format, the author is the user.
        """
        ids = [] if seen[-1] in (*self.stops, self._ids[END]) else [self._ids[END]]
        called = self._called(seen)
        for message in messages:
            author, content = message["role"], message["content"]
            if author != "tool":
                ids += self._written(author, [], content)
            elif called:
                ids += self._written(f"{called} to=assistant", [self._ids[CHANNEL], *self._encode(COMMENTARY)], content)
            else:
                ids += self._written("user", [], TOOL_RESPONSE.format(content))
        return [*ids, self._ids[START], *self._encode(ASSISTANT)]

    def _called(self, seen: Sequence[int]) -> str:
        """Return the recipient of the conversation's last message, or an empty text."""
        begin = max((at for at, token in enumerate(seen) if token == self._ids[START]), default=0)
        return next((message.recipient for message in self.messages(seen[begin:])), "")

    def _written(self, header: str, channel: Sequence[int], content: str) -> list[int]:
        return [
            self._ids[START],
            *self._encode(header),
            *channel,
            self._ids[MESSAGE],
            *self._encode(content),
            self._ids[END],
        ]

    def _message(self, header: Sequence[Sequence[int]], content: Sequence[int], *, closed: bool) -> ChannelMessage:
        # A recipient follows the author or the channel: models write both.
        role, channel = (self._decode(part).strip() for part in (*header, [])[:2])
        recipient = _RECIPIENT.search(f"{role} {channel}")
        return ChannelMessage(
            author=role.partition(" ")[0],
            recipient=recipient[1] if recipient else "",
            channel=channel.partition(" ")[0],
            content=self._decode(content),
            closed=closed,
        )

    def _encode(self, text: str) -> list[int]:
        # A tool's text must not become special tokens, which would end its message.
        return list(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def tool_call(name: str, arguments: str) -> str:
    """Return a call in the format that tasks with tools request and read, whatever the model's format.

    arguments: JSON, as the model wrote it. If it is invalid, the task tells the model.
    """
    return f'<tool_call>{{"name": {json.dumps(name)}, "arguments": {arguments}{CALL_END}'


def find_channels(tokenizer: Any) -> Channels | None:
    """Return a model's channels if its chat template has them, else None: its completions are plain text.

    Raises ValueError as `Channels` does.
    """
    template = str(getattr(tokenizer, "chat_template", None) or "")
    return Channels(tokenizer) if CHANNEL in template else None
