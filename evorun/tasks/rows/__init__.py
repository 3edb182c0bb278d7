"""A benchmark of one's own: rows of a file, whose columns are mapped by keys, under one of several graders."""
