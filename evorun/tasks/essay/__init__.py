"""Essays and stories on writing instructions (MPO, section 3.2): no right and wrong, a judge scores them."""

from evorun.tasks.essay.config import EssayConfig

__all__ = ["EssayConfig"]
