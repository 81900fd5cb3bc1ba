"""Attacks that name the public images in an encoding."""
