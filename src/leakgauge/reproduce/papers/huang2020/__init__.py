"""Huang, Song, Li, Arora 2020: InstaHide - Instance-hiding schemes for private distributed learning. ICML 2020,
arXiv:2010.02772. Tables 2 and 4 and Figures 3, 4, 7 and 8."""

from leakgauge.reproduce.papers.huang2020 import accuracy, attacks

TABLES = (*accuracy.TABLES, *attacks.TABLES)
