"""Tinker's API: sampling from a model, and from the adapters that `evorun.training.tinker` trains, on its servers."""
