"""Sudoku: grids of 4 x 4 to 25 x 25 with one solution, scored by the rows, columns and boxes that hold."""
