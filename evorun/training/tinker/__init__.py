"""Weight updates on a server that speaks Tinker's API: the second trainer behind `evorun.training.wire`."""
