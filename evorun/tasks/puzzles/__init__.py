"""What the combinatorial tasks share: sudoku, graph_coloring and tsp (Lyria paper, section 3)."""
