"""Requests to vLLM, and its outputs as they arrive: joined, and their log-probabilities reduced."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

from msgspec import UNSET

from evorun.models.base import FinishReason, Request
from evorun.models.confidence import WindowMonitor, token_confidence


@dataclass
class _Drawn:
    """A completion so far."""

    monitor: WindowMonitor | None
    """Of the confidence, if the request asks for it."""
    text: str = ""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Of `ids`, if the request asks for them."""
    vllm_reason: str | None = None
    unsure: bool = False
    """True if it fell below the threshold of confidence."""

    @property
    def reason(self) -> FinishReason:
        if self.unsure:
            return "low_confidence"
        return "stop" if self.vllm_reason == "stop" else "length"


class Collected:
    """The completions of a request, joined from vLLM's outputs."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._asked = request.sampling.confidence
        self._drawn: dict[int, _Drawn] = {}

    @property
    def outputs(self) -> list[_Drawn]:
        """The completions, in order."""
        return [self._drawn[index] for index in sorted(self._drawn)]

    def add(self, output: Any) -> bool:
        """Add an output, of whole completions or of their next parts; return True if the request must end with it."""
        ended = [self._extend(part) for part in output.outputs]  # all of them, whichever ends
        return any(ended)

    def _extend(self, part: Any) -> bool:
        asked = self._asked
        drawn = self._drawn.setdefault(part.index, _Drawn(None if asked is UNSET else WindowMonitor(asked)))
        drawn.vllm_reason = part.finish_reason or drawn.vllm_reason
        drawn.text += part.text
        ids = list(part.token_ids)
        if drawn.monitor is not None and asked is not UNSET:
            for position, found in enumerate(part.logprobs, 1):
                # vLLM adds the sampled token where it is not among the largest.
                largest = nlargest(asked.top, (entry.logprob for entry in found.values()))
                ended = part.finish_reason is not None and position == len(ids)
                if drawn.monitor.add(token_confidence(largest)) and not ended:
                    drawn.unsure = True
                    ids = ids[:position]
                    break
        drawn.ids += ids
        if self._request.logprobs:
            found = zip(ids, part.logprobs, strict=False)  # behind the end of an unsure completion, there may be more
            drawn.logprobs += [float(entries[token].logprob) for token, entries in found]
        return drawn.unsure


def sampling_parameters(request: Request, stops: Sequence[int]) -> Any:
    """Return vLLM's sampling parameters. stops: ids that end a completion, in addition to the model folder's."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    sampling = request.sampling
    schema, asked = request.json_schema, sampling.confidence
    return SamplingParams(
        # vLLM refuses n > 1 with greedy decoding, whose completions are all equal.
        n=1 if sampling.temperature == 0 else sampling.n,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=sampling.max_tokens,
        stop=list(sampling.stop),
        stop_token_ids=list(stops),
        seed=request.seed,
        structured_outputs=None if schema is None else StructuredOutputsParams(json=schema),
        # In parts, so that a part's log-probabilities are reduced before the next one comes.
        output_kind=RequestOutputKind.FINAL_ONLY if asked is UNSET else RequestOutputKind.DELTA,
        logprobs=(0 if request.logprobs else None) if asked is UNSET else asked.top,  # 0: only the sampled tokens'
    )
