"""Rounds as people record them: neither acquitted nor accused wrongly, and the cause by its name."""

from __future__ import annotations

import re
import sys

import pytest
import torch

import leakgauge
import recorded_rounds
import recorded_situations
from leakgauge.audit.explain import explain
from leakgauge.audit.readings import READINGS, spell_client
from leakgauge.catalogue import LOCAL_UPDATES
from leakgauge.config import build
from leakgauge.errors import LeakGaugeError
from leakgauge.models import Compact
from leakgauge.models import build as build_model
from leakgauge.protocol import FedAvg, FedSGD
from leakgauge.protocol.optimisers import LocalAdam, LocalAdamW, LocalSGD
from recorded_situations import SITUATIONS, Made, Situation

BY_NAME = {situation.name: situation for situation in SITUATIONS}

# Those that no reading explains by the truth alone are attacked next, or have two things otherwise, and some are of one
# kind with others; benchmarks/recorded_rounds.py has them all.
SLOW = ("No reading", "examples", "other inputs")
ALIKE = (
    "AdamW",
    "swapped and scaled to [-1, 1]",
    "rate ten times too low",
    "gradient clipped",
    "three steps of Adam",
    "scaled to [-1, 1]",
    "red and blue exchanged",
    "accumulated without dividing",
    "squared error",
)
QUICK = [name for name, one in BY_NAME.items() if one.refused is None and one.cause not in SLOW and name not in ALIKE]


def model_of(made: Made) -> torch.nn.Module:
    return getattr(recorded_situations, made.factory)()


def test_there_are_situations_enough():
    assert len(SITUATIONS) >= 25


@pytest.mark.parametrize("name", QUICK)
def test_a_misread_round_is_explained_by_the_reading_that_was_made(name):
    situation = BY_NAME[name]
    made = situation.make()
    found = explain(made.recorded, model_of(made), made.truth)
    assert found.best is not None
    assert not found.other_inputs
    if situation.cause is None:
        assert found.best is found.declared
    else:
        assert not found.declared.explains
        assert situation.cause in found.best.reading.words


@pytest.mark.parametrize("name", [name for name, one in BY_NAME.items() if one.refused])
def test_what_no_client_sends_is_refused_in_a_sentence(name):
    situation = BY_NAME[name]

    def read() -> None:
        made = situation.make()
        explain(made.recorded, model_of(made), made.truth)

    with pytest.raises(LeakGaugeError, match=re.escape(situation.refused or "")) as refusal:
        read()
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["before and after swapped", "mirrored by the client"])
def test_an_inversion_neither_acquits_nor_accuses_what_was_misread(name):
    row = recorded_rounds.run(BY_NAME[name], steps=20)
    assert row["passes"], row


@pytest.fixture
def few_readings(monkeypatch):
    """Two kinds of readings instead of all, each of which costs an attack."""
    few = {kind: READINGS[kind] for kind in ("direction", "labels")}
    monkeypatch.setattr(sys.modules["leakgauge.audit.explain"], "READINGS", few)


@pytest.mark.slow
@pytest.mark.usefixtures("few_readings")
def test_without_a_truth_a_short_attack_finds_the_reading():
    made = BY_NAME["sign reversed"].make()
    found = explain(made.recorded, model_of(made), seconds=20)
    assert found.truth is None
    assert found.best is not None
    assert "sign of the update" in found.best.reading.words
    assert found.words_to_type == ("--read", "reversed")


def test_without_a_truth_a_round_that_was_read_right_is_explained_as_declared():
    made = BY_NAME["as declared"].make()
    found = leakgauge.explain(made.recorded, model_of(made))
    assert found.best is found.declared
    assert found.others == ()


@pytest.mark.usefixtures("few_readings")
def test_other_inputs_than_the_truth_explain_the_update_of_another_client():
    made = BY_NAME["truth of another client"].make()
    found = explain(made.recorded, model_of(made), made.truth, seconds=20)
    assert found.other_inputs
    assert found.best is found.declared


def test_a_situation_that_is_acquitted_or_wrongly_named_does_not_pass():
    swapped: Situation = BY_NAME["before and after swapped"]
    right = {"explained": False, "verdict": "inconclusive", "explanation": ["... before and after are swapped."]}
    assert recorded_rounds.passes(swapped, right)
    assert not recorded_rounds.passes(swapped, right | {"verdict": "no leak found"})
    assert not recorded_rounds.passes(swapped, right | {"verdict": "leaks"})
    assert not recorded_rounds.passes(swapped, right | {"explanation": ["the sign is reversed"]})
    assert not recorded_rounds.passes(swapped, {"refused": "something"})


@pytest.mark.parametrize(
    "client",
    [
        FedSGD(),
        FedAvg(2, 3, 0.25),
        FedAvg(1, 1, 0.5, optimiser=LocalAdam()),
        FedAvg(1, 1, 0.5, optimiser=LocalAdamW(weight_decay=0.5)),
        FedAvg(3, 2, 0.125, True, LocalSGD(momentum=0.5, nesterov=True), 0.25, clip_norm=2.0, accumulate=2),
    ],
)
def test_a_client_is_spelt_as_the_catalogue_reads_it(client):
    assert build(LOCAL_UPDATES, spell_client(client), kind="local update") == client


def test_a_round_that_does_not_fit_its_model_is_refused_before_anything_is_tried():
    made = BY_NAME["as declared"].make()
    with pytest.raises(LeakGaugeError, match="lacks"):
        explain(made.recorded, build_model(Compact(width=2), (3, 12, 12), 6, seed=0), made.truth)
