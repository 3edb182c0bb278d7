"""Populations of programs on islands: the policies of OpenEvolve, ShinkaEvolve and AdaEvolve."""
