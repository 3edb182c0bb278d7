"""Reasoning Gym: generated problems of some hundred families, each with a verifier of its own."""
