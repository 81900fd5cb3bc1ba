"""Huang et al. 2020, InstaHide: accuracies of trainings, and attacks on encodings."""
