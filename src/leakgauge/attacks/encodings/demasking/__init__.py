"""Guessing the signs that a mask has flipped, by a network."""
