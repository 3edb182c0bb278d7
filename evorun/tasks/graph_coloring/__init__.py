"""Graph colouring: vertices get colours so that no edge joins two of the same (Lyria paper, section 3.2)."""

from evorun.tasks.graph_coloring.config import GraphColoringConfig

__all__ = ["GraphColoringConfig"]
