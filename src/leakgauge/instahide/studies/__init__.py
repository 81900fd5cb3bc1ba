"""Attacks on published encodings, measured beside their nulls: rows for reports and reproductions."""

from leakgauge.instahide.studies.averaging import Averages, AveragingRow, average_encryptions
from leakgauge.instahide.studies.clustering import (
    DEPLOYMENTS,
    Clustered,
    ClusteringRow,
    Knowledge,
    Trial,
    cluster_encodings,
    judge_among,
)
from leakgauge.instahide.studies.private_pairs import PairRow, compare_pairs, similarities
from leakgauge.instahide.studies.public_images import (
    SearchRow,
    attacks_by_similarity,
    attacks_on_instahide,
    attacks_on_mixup,
    search_public_images,
)
from leakgauge.instahide.studies.publication import Deployment, Pools, Publication, publish
from leakgauge.instahide.studies.recovery import Judge, Recovery, recovery
from leakgauge.instahide.studies.signs import SignRow, sign_accuracy
from leakgauge.instahide.studies.single_encoding import Remainders, SingleEncodingRow, recover_from_one

__all__ = [
    "DEPLOYMENTS",
    "Averages",
    "AveragingRow",
    "Clustered",
    "ClusteringRow",
    "Deployment",
    "Judge",
    "Knowledge",
    "PairRow",
    "Pools",
    "Publication",
    "Recovery",
    "Remainders",
    "SearchRow",
    "SignRow",
    "SingleEncodingRow",
    "Trial",
    "attacks_by_similarity",
    "attacks_on_instahide",
    "attacks_on_mixup",
    "average_encryptions",
    "cluster_encodings",
    "compare_pairs",
    "judge_among",
    "publish",
    "recover_from_one",
    "recovery",
    "search_public_images",
    "sign_accuracy",
    "similarities",
]
