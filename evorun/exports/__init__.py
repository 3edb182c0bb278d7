"""Runs in the formats of other programs and of papers. Reads run directories only."""
