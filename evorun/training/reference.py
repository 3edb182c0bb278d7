"""The reference policy: the untrained model, from which methods measure divergence and which answers for some roles.

With an adapter it is the trained model with the adapter off. Where all weights are trained, it is a frozen copy. The
copy is loaded from the base model's folder on its first use, so that a run without a reference needs no memory for it.

Imports TRL: only the trainer process imports this module.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from trl.trainer.utils import add_fused_lm_head

from evorun.training.ranks import RANK
from evorun.training.weights import load_model, mixed_precision
from evorun.training.wire import Job


class Reference:
    """The reference policy of a trainer."""

    def __init__(self, job: Job, temperature: float = 1.0) -> None:
        """temperature: of sampling; log-probabilities are taken at it."""
        self._job = job
        self._temperature = temperature
        self._copy: Any = None

    @contextlib.contextmanager
    def use(self, policy: Any) -> Iterator[Any]:
        """Yield the reference policy, on the device of the trained one; the block must not train.

        Raises EngineError when its weights cannot be loaded.
        """
        if hasattr(policy, "peft_config"):
            trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
            with policy.disable_adapter():
                # PEFT has cleared these flags, by which FSDP2 decides the type of gradients when it gathers weights.
                for parameter in trained:
                    parameter.requires_grad_()
                yield policy
            return
        if self._copy is None:
            RANK.note("loading the reference policy")
            self._copy = self._load()
        self._copy.to(policy.device)
        try:
            yield self._copy
        finally:
            if self._job.training.reference == "cpu":
                self._copy.to("cpu")
                torch.cuda.empty_cache()

    def _load(self) -> Any:
        # Frozen weights need no more precision than the trained ones compute in.
        dtype = torch.bfloat16 if mixed_precision(self._job) else torch.float32
        model = load_model(self._job, dtype).requires_grad_(False)
        add_fused_lm_head(model, temperature=self._temperature)
        return model
