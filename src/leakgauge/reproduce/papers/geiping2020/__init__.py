"""Geiping, Bauermeister, Dröge, Moeller 2020: Inverting Gradients - How easy is it to break privacy in federated
learning? NeurIPS 2020, arXiv:2003.14053. Tables 1 to 3 and Figures 4 to 6."""

from leakgauge.reproduce.papers.geiping2020.tables import TABLES

__all__ = ["TABLES"]
