"""A client is simulated once for all attacks on its update, and what they see is what a fresh one would send."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch
from torch import nn

from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.labels import IDLG
from leakgauge.attacks.malicious import FrontLayer
from leakgauge.audit.case import Case
from leakgauge.audit.executors import InProcess
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.sources import SimulatedClient, SimulatedUpdate
from leakgauge.audit.sources.simulated import UpdateMemory
from leakgauge.audit.store import MemoryStore
from leakgauge.defences import Clipping, GaussianNoise, NoDefence, chain
from leakgauge.metrics import PSNR
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state
from leakgauge.types import Batch

ATTACKS = {"linear_layer": LinearLayer(), "idlg": IDLG(), "again": LinearLayer()}
DEFENCES = {"none": NoDefence(), "noise": chain(Clipping(1.0), GaussianNoise(0.1))}


def planned(**more: object) -> list[Case]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 4))
    learner, state = learner_and_state(module)
    rounds = [
        Round(
            Batch(torch.rand(1, 1, 6, 6), torch.tensor([one])),
            (Batch(torch.rand(1, 1, 6, 6), torch.tensor([3])),),
            None,
        )
        for one in range(2)
    ]
    options = {"defences": DEFENCES, "attacks": ATTACKS, "threat_model": THREAT_MODELS["informed"], "seed": 0}
    return grid(Federation(learner, state), rounds, **(options | more))  # type: ignore[arg-type]


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[SimulatedClient]:
    """The clients in the order they were run."""
    run: list[SimulatedClient] = []
    compute = SimulatedClient.compute

    def counted(self: SimulatedClient) -> object:
        run.append(self)
        return compute(self)

    monkeypatch.setattr(SimulatedClient, "compute", counted)
    return run


def test_a_client_is_simulated_once_for_each_distinct_update(simulated: list[SimulatedClient]) -> None:
    cases = planned()
    assert len({case.key for case in cases}) == len(cases) == 24
    records = list(InProcess().run(cases, {"psnr": PSNR()}, MemoryStore()))
    assert len(records) == 24
    # Two defences, two rounds, and for each the real batch and the null's, whatever is known of them.
    assert len(simulated) == len(set(simulated)) == 8


def test_a_malicious_server_has_clients_of_its_own(simulated: list[SimulatedClient]) -> None:
    cases = planned(attacks={**ATTACKS, "front_layer": FrontLayer(bins=4)}, defences={"none": NoDefence()})
    for case in cases:
        case.source.observe()
    assert len(simulated) == 4 + 4


def test_what_is_observed_is_what_a_fresh_client_sends() -> None:
    for case in planned():
        source = case.source
        fresh = replace(source, client=replace(source.client, memory=UpdateMemory()))
        for _ in range(2):
            seen, again = source.observe(), fresh.observe()
            assert all(map(torch.equal, seen.update.params.values(), again.update.params.values()))
            assert (seen.labels is None) == (case.attack_name == "idlg")
        assert source.fingerprint() == fresh.fingerprint()


def test_updates_beyond_the_limit_are_computed_again_and_not_held(simulated: list[SimulatedClient]) -> None:
    clients = list({id(case.source.client): case.source.client for case in planned()}.values())
    tight = UpdateMemory(limit=1)
    first, second = (replace(client, memory=tight) for client in clients[:2])
    for client, runs in ((first, 1), (first, 1), (second, 2), (second, 2), (first, 3)):
        client.send()
        assert len(simulated) == runs
    assert len(tight._kept) == 1


def test_a_worker_gets_what_was_computed(simulated: list[SimulatedClient]) -> None:
    case = planned()[0]
    update = case.source.observe().update.params
    sent: Case = pickle.loads(pickle.dumps(case))  # noqa: S301 - our own
    assert isinstance(sent.source, SimulatedUpdate)
    assert all(map(torch.equal, sent.source.observe().update.params.values(), update.values()))
    assert len(simulated) == 1
