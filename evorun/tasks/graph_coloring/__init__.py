"""Graph colouring: vertices get colours so that no edge joins two of the same (Lyria paper, section 3.2)."""
