"""Moral reasoning about anecdotes with a verdict, right or wrong: Scruples (MPO, section 3.3.2)."""
