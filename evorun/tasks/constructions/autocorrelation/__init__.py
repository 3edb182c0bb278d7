"""Step functions for the first autocorrelation inequality."""
