"""Keys and values of the transformers engine: of rows decoded together, and of prompts shared between requests.

`transformers.DynamicCache` would copy all keys and values at each step, and its attention repeats them for each group
of query heads. With 32 rows of 800 tokens, that costs several times as much as the model's own matrix products.

Imports torch: only `evorun.models.transformers.engine` imports this module, when it opens a model.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

# A trade-off: fewer columns mean copying everything more often, more take memory that a training step needs.
COLUMNS = 64
"""Columns are allocated in multiples of this."""


@dataclass(frozen=True)
class Prefix:
    """A processed prompt of T tokens."""

    ids: tuple[int, ...]
    keys_and_values: list[tuple[torch.Tensor, torch.Tensor]]
    """For each layer, keys and values of shape [1, key-value heads, T, head size]."""
    logits: torch.Tensor
    """Next-token logits after the last token, shape [1, vocabulary]."""


class PrefixStore:
    """The most recently used prompts, at most `max_tokens` tokens in total; a new prompt starts from its best match."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._tokens = 0
        self._prefixes: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()

    def prefill(self, model: Any, ids: tuple[int, ...], device: torch.device) -> Prefix:
        """Return the processed prompt; the model runs only over the tokens that no stored prompt shares."""
        if ids in self._prefixes:
            self._prefixes.move_to_end(ids)
            return self._prefixes[ids]
        best, shared = None, 0
        for stored in self._prefixes.values():
            length = shared_length(stored.ids, ids)
            if length > shared:
                best, shared = stored, length
        shared = min(shared, len(ids) - 1)  # at least one token must pass the model, for the logits after it
        cache = DynamicCache()
        if best is not None:
            self._prefixes.move_to_end(best.ids)
            for layer, (keys, values) in enumerate(best.keys_and_values):
                cache.update(keys[:, :, :shared], values[:, :, :shared], layer)
        rest = torch.tensor([ids[shared:]], device=device)
        output = model(input_ids=rest, past_key_values=cache, use_cache=True, logits_to_keep=1)
        layers: list[Any] = cache.layers
        keys_and_values = [(layer.keys, layer.values) for layer in layers]
        prefix = Prefix(ids, keys_and_values, output.logits[:, -1].float())
        self._prefixes[ids] = prefix
        self._tokens += len(ids)
        while self._tokens > self._max_tokens and self._prefixes:
            oldest, _ = self._prefixes.popitem(last=False)
            self._tokens -= len(oldest)
        return prefix

    def clear(self) -> None:
        """Forget all prompts."""
        self._prefixes.clear()
        self._tokens = 0


def shared_length(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Return the number of leading tokens that two sequences share."""
    # Bisection over slices, which compare in C: prompts share thousands of tokens, and a Python loop was slow.
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class RowCache(Cache):
    """Keys and values of the rows in flight, aligned at their ends so that all rows write the same column.

    Row r owns the columns `starts[r]` to `column` (exclusive) of buffers [rows, heads, columns, head size]. The columns
    before its start are masked padding.
    """

    def __init__(self, max_rows: int) -> None:
        super().__init__(layers=[])
        self.layers: list[Any]
        self._max_rows = max_rows
        self.starts: list[int] = []
        self.column = 0
        self._columns = 0
        self._rows = 0

    @property
    def first(self) -> int:
        """The first column that any row uses."""
        return min(self.starts, default=self.column)

    def add(self, prefix: Prefix, count: int) -> None:
        """Append `count` rows that start with a processed prompt."""
        length, present = len(prefix.ids), len(self.starts)
        total = present + count
        while len(self.layers) < len(prefix.keys_and_values):
            self.layers.append(_RowLayer(self))
        if total > self._rows or length > self.column:
            self._reallocate(total, length, prefix)
        for layer, (keys, values) in zip(self.layers, prefix.keys_and_values, strict=True):
            layer.keys[present:total, :, self.column - length : self.column] = keys
            layer.values[present:total, :, self.column - length : self.column] = values
        self.starts += [self.column - length] * count

    def remove(self, row: int) -> None:
        """Drop a row; the last row moves to its index."""
        last = len(self.starts) - 1
        if row != last:
            used = slice(self.starts[last], self.column)
            for layer in self.layers:
                layer.keys[row, :, used] = layer.keys[last, :, used]
                layer.values[row, :, used] = layer.values[last, :, used]
            self.starts[row] = self.starts[last]
        self.starts.pop()

    def clear(self) -> None:
        """Drop all rows and free the buffers at once."""
        # Cache and layers refer to each other, so without this the buffers would stay until a garbage collection.
        self.layers.clear()
        self.starts.clear()
        self.column = self._columns = self._rows = 0

    def forward(self, model: Any, tokens: list[int], device: torch.device) -> torch.Tensor:
        """Feed one token to each row and return the next-token logits, shape [rows, vocabulary]."""
        if self.column == self._columns:
            self._reallocate(len(tokens), 0, None)
        first = self.first
        starts = torch.tensor(self.starts, device=device)[:, None]
        columns = torch.arange(first, self.column + 1, device=device)
        output = model(
            input_ids=torch.tensor(tokens, device=device)[:, None],
            attention_mask=columns >= starts,
            position_ids=self.column - starts,
            past_key_values=self,
            use_cache=True,
            logits_to_keep=1,
        )
        self.column += 1
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits

    def _reallocate(self, rows: int, length: int, prefix: Prefix | None) -> None:
        """Make room for `rows` rows, for a row of `length` tokens, and for at least one more column."""
        first = self.first
        used = self.column - first
        column = -(-max(used, length, 1) // COLUMNS) * COLUMNS
        # Double the rows, so that a batch that grows row by row is copied a logarithmic number of times.
        if rows > self._rows:
            self._rows = min(max(rows, 2 * self._rows), max(rows, self._max_rows))
        self._columns = column + COLUMNS
        for i, layer in enumerate(self.layers):
            keys, values = prefix.keys_and_values[i] if prefix else (layer.keys, layer.values)
            layer.keys = self._grown(layer.keys, keys, first, column)
            layer.values = self._grown(layer.values, values, first, column)
            layer.is_initialized = True
        self.starts = [start - first + column - used for start in self.starts]
        self.column = column

    def _grown(self, old: torch.Tensor | None, like: torch.Tensor, first: int, column: int) -> torch.Tensor:
        # Zeros, not empty: a masked column with NaN would still spoil the weighted sum.
        new = like.new_zeros((self._rows, like.shape[1], self._columns, like.shape[3]))
        if old is not None and self.starts:
            rows = len(self.starts)
            new[:rows, :, column - (self.column - first) : column] = old[:rows, :, first : self.column]
        return new


class _RowLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer's buffers in a RowCache, with the interface of transformers."""

    keys: Any
    values: Any

    def __init__(self, cache: RowCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, column, first = len(self._cache.starts), self._cache.column, self._cache.first
        self.keys[:rows, :, column] = key_states[:, :, 0]
        self.values[:rows, :, column] = value_states[:, :, 0]
        return self.keys[:rows, :, first : column + 1], self.values[:rows, :, first : column + 1]

    def get_seq_length(self) -> int:
        return self._cache.column - self._cache.first


def grouped_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **options: Any
) -> Any:
    """Compute attention like transformers' `sdpa`, but without repeating keys and values while decoding.

    query: [rows, heads, positions, head size]; key and value: [rows, key-value heads, columns, head size].
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    rows, heads, positions, size = query.shape
    shared = key.shape[1]
    if positions != 1 or heads == shared or options.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, mask, **options)
    # With one query position, the query heads of a group become positions over their shared key-value head.
    grouped = query.view(rows, shared, heads // shared, size)
    attended = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=mask, scale=options.get("scaling")
    )
    return attended.reshape(rows, 1, heads, value.shape[-1]), None


def use_grouped_attention(model: Any) -> None:
    """Let a model that uses `sdpa` decode with `grouped_attention`, without cuDNN; do not change other models."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    if model.config._attn_implementation != "sdpa":
        return
    # On Hopper and later GPUs PyTorch prefers cuDNN for a masked batch. cuDNN plans each new shape anew, for a tenth of
    # a second and more, and a decoding batch has a new shape at every token (pytorch/pytorch#155958).
    torch.backends.cuda.enable_cudnn_sdp(False)
    AttentionInterface.register("grouped_sdpa", grouped_attention)
    AttentionMaskInterface.register("grouped_sdpa", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model.set_attn_implementation("grouped_sdpa")
