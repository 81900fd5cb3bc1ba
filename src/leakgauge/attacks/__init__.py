"""Attacks: from an observation to a reconstruction. Nothing here can see the truth (an import contract checks it)."""
