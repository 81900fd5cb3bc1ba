"""Linear algebra and features that the attacks on encodings share."""
