"""Attacks on published encodings: Mixup and InstaHide."""
