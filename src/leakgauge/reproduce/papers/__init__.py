"""A file or folder for each paper."""
