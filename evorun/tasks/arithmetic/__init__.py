"""Generated integer problems with boxed answers, as in contests: a first task for training weights."""
