"""The page about clients says what can be built, and all of it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from torch import nn

from leakgauge.catalogue import CLIENT_PARTS, LOCAL_UPDATES
from leakgauge.config import build_client, build_loss, build_normalised
from leakgauge.models import NORMALISATIONS
from leakgauge.protocol.local_update import FedAvg
from leakgauge.protocol.losses import LOSSES
from leakgauge.protocol.optimisers import OPTIMISERS

PAGE = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")
CELLS = [
    words for row in re.findall(r"^\| .* \| (.*) \|$", PAGE, re.MULTILINE) for words in re.findall(r"`([^`]+)`", row)
]
SPELT = [words for words in CELLS if re.split(r"[:+]", words)[0] in LOCAL_UPDATES]
LOSS_WORDS = [words for words in CELLS if words.split(":")[0] in LOSSES]


@pytest.mark.parametrize("words", SPELT)
def test_every_client_on_the_page_can_be_built(words):
    build_client(words)


@pytest.mark.parametrize("words", LOSS_WORDS)
def test_every_loss_on_the_page_can_be_built(words):
    build_loss(words)


def test_the_page_leaves_nothing_out():
    text = " ".join(SPELT)
    settings = {one.name for kind in OPTIMISERS.values() for one in fields(kind)}
    options = {one.name for one in fields(FedAvg)} | settings
    assert {option for option in options if f"{option}=" not in text} == set()
    assert {name for name in (*CLIENT_PARTS, *LOCAL_UPDATES) if name not in text} == set()
    assert set(OPTIMISERS) - {"sgd"} <= set(re.findall(r"optimiser=(\w+)", text))
    assert {words.split(":")[0] for words in LOSS_WORDS} == set(LOSSES)
    assert all(name in PAGE for name in NORMALISATIONS)


def test_every_normalisation_can_be_built():
    for name in (*NORMALISATIONS, "mean=[0.5,0.5,0.5],std=[0.25,0.25,0.25]"):
        build_normalised(nn.Flatten(), name)
