"""The combinatorial tasks: sudoku, graph_coloring and tsp (Lyria paper, section 3)."""
