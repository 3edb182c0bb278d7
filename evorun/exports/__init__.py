"""A run's records in the formats of other programs and of papers. Reads run directories only."""
