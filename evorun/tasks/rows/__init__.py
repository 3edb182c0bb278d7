"""A user's own benchmark: rows of a file, with columns mapped by config keys, and a choice of graders."""
