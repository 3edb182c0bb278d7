"""Small integer problems made by a generator, answered in a box as contests are: a first task to train weights on."""
