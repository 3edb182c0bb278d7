"""Straight-line programs that multiply small matrices with few operations."""
