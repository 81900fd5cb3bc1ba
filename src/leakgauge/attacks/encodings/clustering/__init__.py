"""Attacks that restore private images from many encodings of them."""
