"""Flower's own messages through the mod, the gate and the strategy, and a simulation with two clients."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("flwr", reason="Flower comes with `make .venv/.installed-integrations`, which test-slow needs")

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict, UserConfig
from flwr.clientapp.mod import fixedclipping_mod, localdp_mod
from flwr.serverapp.strategy import DifferentialPrivacyClientSideAdaptiveClipping
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from flwr.supercore.task_identity import TaskIdentity

from leakgauge import read_round
from leakgauge.audit.execute import load_result
from leakgauge.audit.verdict import Verdict
from leakgauge.catalogue import standard_metrics
from leakgauge.config import build_defence
from leakgauge.defences import Chain, Clipping, GaussianNoise, adaptive_clipping
from leakgauge.errors import InvalidCase
from leakgauge.integrations.flower import DeclaredClient, DefenceMod, LeakGate, Recording
from leakgauge.integrations.flower.leak_gate import WITHHELD
from leakgauge.models import MLP, build
from leakgauge.types import Batch

ROOT = Path(__file__).parents[2]
SHAPE = (1, 4, 4)
RATE = 0.1
CONTEXT = Context(run_id=1, node_id=7, node_config=UserConfig(), state=RecordDict(), run_config=UserConfig())


@pytest.fixture(autouse=True, scope="module")
def _in_a_run():
    # Who speaks in this process, which Flower itself says where it starts one.
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def asked(state, kind="train", number=1) -> Message:
    content = RecordDict({"arrays": ArrayRecord(state), "config": ConfigRecord({"server-round": number})})
    return Message(content, dst_node_id=7, message_type=kind)


def answering(after, examples=1):
    """A client app that has trained."""

    def app(message: Message, context: Context) -> Message:
        content = RecordDict({"arrays": ArrayRecord(after), "metrics": MetricRecord({"num-examples": examples})})
        return Message(content, reply_to=message)

    return app


def sent(mod, before, after, **options) -> dict[str, torch.Tensor]:
    return mod(asked(before, **options), CONTEXT, answering(after)).content["arrays"].to_torch_state_dict()


@pytest.fixture
def normalised():
    """The state of a model with BatchNorm before and after one step in train mode."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(torch.rand(4, *SHAPE)).square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=RATE).step()
    return model, before, {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("defence", ["none", "clipping:max_norm=1e9", "pruning:keep=1"])
def test_a_defence_that_does_nothing_leaves_what_is_sent_as_it_is(defence, normalised):
    _, before, after = normalised
    arrays = sent(DefenceMod(defence), before, after)
    assert list(arrays) == list(after)
    for name in after:
        assert arrays[name].dtype == after[name].dtype
        torch.testing.assert_close(arrays[name], after[name], rtol=1e-6, atol=1e-7)


def test_parameters_get_the_noise_of_the_defence_on_their_update_and_running_statistics_none(normalised):
    model, before, after = normalised
    mod = DefenceMod.of(model, "gaussian_noise:std=0.5", seed=3)
    arrays = sent(mod, before, after)
    trained = dict(model.named_parameters())
    for name in after:
        assert torch.equal(arrays[name], after[name]) == (name not in trained)
    update = {name: before[name] - after[name] for name in trained}
    drawn = build_defence("gaussian_noise:std=0.5").transform(update, generator=mod._generator(7, 1))
    for name in trained:
        torch.testing.assert_close(before[name] - arrays[name], drawn[name])


def test_noise_is_drawn_anew_in_every_round_and_without_a_seed_every_time(normalised):
    _, before, after = normalised
    seeded, secure = DefenceMod("gaussian_noise:std=1", seed=3), DefenceMod("gaussian_noise:std=1")
    first, again, second = (sent(seeded, before, after, number=number)["3.bias"] for number in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(sent(secure, before, after)["3.bias"], sent(secure, before, after)["3.bias"])


def test_kept_statistics_are_those_the_server_had_and_sent_ones_are_warned_of(normalised, caplog):
    _, before, after = normalised
    arrays = sent(DefenceMod("none", statistics="keep"), before, after)
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(arrays[name], before[name])
        assert not torch.equal(after[name], before[name])
    logging.getLogger("flwr").addHandler(caplog.handler)
    sent(DefenceMod("none"), before, after)
    logging.getLogger("flwr").removeHandler(caplog.handler)
    assert "statistics of the batch; write statistics='keep'" in caplog.text


@pytest.mark.parametrize(
    ("defence", "reason"),
    [
        ("dpsgd", "cannot be done to a finished update"),
        ("clipping+dpsgd", "cannot be done to a finished update"),
        ("soteria", "needs what the client trains on"),
        ("mixup", "needs what the client trains on"),
        ("secure_aggregation", "protocol among clients"),
        ("pruning:keep=2", "keep"),
    ],
)
def test_what_cannot_be_done_to_a_finished_update_is_refused_in_a_sentence(defence, reason):
    with pytest.raises(InvalidCase, match=reason) as refusal:
        DefenceMod(defence)
    assert "\n" not in str(refusal.value)


def test_noise_on_weights_is_stated_with_what_it_is_on_the_gradient():
    mod = DefenceMod("clipping:max_norm=1+gaussian_noise:std=0.01", local_update="fedavg:learning_rate=0.01")
    assert "on the mean gradient as much as clipping:max_norm=100.0+gaussian_noise:std=1.0" in mod.words(1)
    two = DefenceMod("gaussian_noise:std=0.01", local_update="fedavg:learning_rate=0.01,batch_size=1")
    assert "gaussian_noise:std=0.5 " in two.words(2)
    assert "no multiple of a gradient" in DefenceMod("pruning", local_update="fedavg:optimiser=adam").words(2)


def test_a_list_of_arrays_needs_names(normalised):
    model, before, after = normalised
    listed = [tensor.numpy() for tensor in before.values()], [tensor.numpy() for tensor in after.values()]
    with pytest.raises(InvalidCase, match="names=list"):
        DefenceMod("pruning")(asked(listed[0]), CONTEXT, answering(listed[1]))
    reply = DefenceMod.of(model, "pruning:keep=0.3")(asked(listed[0]), CONTEXT, answering(listed[1]))
    by_name = sent(DefenceMod.of(model, "pruning:keep=0.3"), before, after)
    for number, tensor in enumerate(by_name.values()):
        assert torch.equal(torch.from_numpy(reply.content["arrays"][str(number)].numpy().copy()), tensor)


def test_evaluation_and_errors_pass_untouched(normalised):
    _, before, after = normalised
    mod = DefenceMod("gaussian_noise:std=1")
    arrays = sent(mod, before, after, kind="evaluate")
    assert all(torch.equal(arrays[name], after[name]) for name in after)

    def failing(message, context):
        return Message(Error(code=0, reason="out of memory"), reply_to=message)

    assert mod(asked(before), CONTEXT, failing).error.reason == "out of memory"


def clipped_by_flower(norm, before, after):
    message = asked(before)
    message.content["config"]["clipping_norm"] = norm
    return fixedclipping_mod(message, CONTEXT, answering(after)).content["arrays"].to_torch_state_dict()


def test_fixed_clipping_is_what_flower_does_to_the_parameters(normalised):
    model, _, _ = normalised
    before = {name: parameter.detach() for name, parameter in model.named_parameters()}
    after = {name: tensor + torch.randn_like(tensor) for name, tensor in before.items()}
    for norm in (0.1, 1e3):
        ours = sent(DefenceMod(f"fixed_clipping:clipping_norm={norm}"), before, after)
        for name, tensor in clipped_by_flower(norm, before, after).items():
            torch.testing.assert_close(ours[name], tensor, rtol=1e-5, atol=1e-6)


def test_the_norm_of_adaptive_clipping_goes_where_flower_lets_it_go():
    theirs = DifferentialPrivacyClientSideAdaptiveClipping(FlowerFedAvg(), 0.0, 2)
    for rounds in range(4):
        assert adaptive_clipping(rounds=rounds).max_norm == pytest.approx(theirs.clipping_norm, rel=1e-12)
        theirs._geometric_update(1.0)  # all were clipped


def test_local_dp_draws_the_noise_that_flower_draws(normalised, monkeypatch):
    _, before, after = normalised
    drawn = []
    monkeypatch.setattr(localdp_mod, "add_gaussian_noise_inplace", lambda arrays, std: drawn.append(std))
    localdp_mod.LocalDpMod(2.0, 3.0, 0.7, 1e-6)(asked(before), CONTEXT, answering(after))
    ours = build_defence("local_dp:clipping_norm=2,sensitivity=3,epsilon=0.7,delta=1e-6")
    assert isinstance(ours, Chain)
    clip, noise = ours.defences
    assert clip == Clipping(2.0)
    assert isinstance(noise, GaussianNoise)
    assert noise.std == pytest.approx(float(drawn[0]), rel=1e-12)


class OneClient(FlowerFedAvg):
    """FedAvg that asks node 7 without a network."""

    def configure_train(self, server_round, arrays, config, grid):
        return self._construct_messages(RecordDict({"arrays": arrays, "config": config}), [7], "train")


def linear_first(seed=0):
    return build(MLP(hidden=(8,)), SHAPE, 3, seed=seed)


def trained_once(batch):
    model = linear_first()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.nn.functional.cross_entropy(model(batch.inputs), batch.labels).backward()
    torch.optim.SGD(model.parameters(), lr=RATE).step()
    return before, model.state_dict()


KNOWN = DeclaredClient(SHAPE, local_update=f"fedavg:epochs=1,batch_size=1,learning_rate={RATE}")


def test_what_is_recorded_is_the_round_and_the_strategy_gets_every_reply(tmp_path, examples):
    batch = examples(1, SHAPE, 3)
    before, after = trained_once(batch)
    strategy = Recording(OneClient(fraction_evaluate=0.0), tmp_path, KNOWN, rounds=(2,))
    for number in (1, 2):
        (message,) = strategy.configure_train(number, ArrayRecord(before), ConfigRecord(), None)
        reply = answering(after)(message, CONTEXT)
        arrays, _ = strategy.aggregate_train(number, iter([reply]))
        assert torch.equal(arrays.to_torch_state_dict()["head.weight"], after["head.weight"])
    (path,) = tmp_path.glob("*.safetensors")
    assert path.name == "round-0002-client-7.safetensors"
    recorded = read_round(path)
    assert (recorded.num_examples, recorded.local_update, recorded.space.shape) == (1, KNOWN.local_update, SHAPE)
    assert torch.equal(recorded.update["head.bias"], before["head.bias"] - after["head.bias"])


def test_an_update_that_cannot_be_recorded_does_not_stop_the_training(tmp_path, examples, caplog):
    before, after = trained_once(examples(1, SHAPE, 3))
    broken = after | {"head.bias": torch.full_like(after["head.bias"], torch.nan)}
    strategy = Recording(OneClient(fraction_evaluate=0.0), tmp_path, KNOWN, clients=1)
    (message,) = strategy.configure_train(1, ArrayRecord(before), ConfigRecord(), None)
    reply = answering(broken)(message, CONTEXT)
    logging.getLogger("flwr").addHandler(caplog.handler)
    arrays, _ = strategy.aggregate_train(1, [reply])
    logging.getLogger("flwr").removeHandler(caplog.handler)
    assert arrays is not None
    assert "was not recorded" in caplog.text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("action", "withheld"), [("withhold", True), ("warn", False), ("log", False)])
def test_a_gate_withholds_what_leaks_and_tells_the_server_no_more_than_that(action, withheld, examples):
    batch = examples(1, SHAPE, 3)
    before, after = trained_once(batch)
    closed_form = {"attacks": ["linear_layer"]}
    limits = {"identification": 0.2}
    gate = LeakGate(KNOWN, linear_first, lambda *_: batch, limits, action, 1.0, options=closed_form)
    reply = gate(asked(before), CONTEXT, answering(after))
    assert reply.has_error() == withheld
    if withheld:
        assert reply.error.reason == WITHHELD


def test_a_gate_lets_nothing_through_that_it_could_not_audit(examples):
    batch = examples(2, SHAPE, 3)  # not the one example that the client says it trained on
    before, after = trained_once(examples(1, SHAPE, 3))
    gate = LeakGate(KNOWN, linear_first, lambda *_: Batch(batch.inputs, batch.labels))
    assert gate(asked(before), CONTEXT, answering(after)).has_error()


LOOKUPS = """
import os, sys

def told(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        with open(os.environ["LOOKUPS"], "a") as file:
            file.write(f"{arguments[0]}\\n")

sys.addaudithook(told)
"""


def simulate(tmp_path, *options) -> str:
    """Run the example in a process tree each of whose interpreters tells of every name it looks up."""
    watch = tmp_path / "watch"
    watch.mkdir(exist_ok=True)
    (watch / "sitecustomize.py").write_text(LOOKUPS)
    told = tmp_path / "lookups"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FLWR", "RAY"))}
    environment |= {"PYTHONPATH": str(watch), "LOOKUPS": str(told), "FLWR_HOME": str(tmp_path / "flwr")}
    script = str(ROOT / "examples" / "flower" / "simulate.py")
    command = [sys.executable, script, "--out", str(tmp_path / "rounds"), "--seconds", "4", *options]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr[-2000:]
    looked_up = set(told.read_text().split())
    assert looked_up  # the watch works
    assert {name for name in looked_up if not is_here(name)} == set()
    return ran.stderr + ran.stdout


def is_here(name: str) -> bool:
    if name in ("localhost", socket.gethostname(), "None"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return not address.is_link_local  # where clouds keep their metadata


def results(tmp_path):
    folders = [path for path in (tmp_path / "rounds").iterdir() if path.is_dir()]
    return [load_result(folder, standard_metrics()).rows[0] for folder in folders]


@pytest.mark.slow
def test_what_a_simulated_server_recorded_of_two_clients_comes_back_identified_above_20_db(tmp_path):
    simulate(tmp_path)
    rows = results(tmp_path)
    assert len(rows) == 2
    for row in rows:
        assert row.verdict is Verdict.LEAKS
        assert row.measured("identification").attack.mean == 1
        assert row.measured("psnr").attack.mean >= 20
        assert row.measured("identification").null.mean == 0


@pytest.mark.slow
def test_behind_the_defence_mod_the_informed_attacker_is_judged_beside_its_control_and_bound(tmp_path):
    defence = "clipping:max_norm=0.01+gaussian_noise:std=0.01"
    assert f"DefenceMod: {defence}" in simulate(tmp_path, "--defence", defence)
    rows = results(tmp_path)
    assert len(rows) == 2
    for row in rows:
        assert [fact.about for fact in row.assumptions if fact.about] == [defence]
        assert row.power.seen == row.power.tried == 3
        assert row.verdict is Verdict.NO_LEAK_FOUND
        assert row.bound.at_most == pytest.approx(0.092, abs=1e-3)


@pytest.mark.slow
def test_a_simulated_gate_withholds_both_updates(tmp_path):
    said = simulate(tmp_path, "--gate", "withhold")
    assert said.count(WITHHELD) == 2
    assert "Received 0 results and 2 failures" in said
    assert not list((tmp_path / "rounds").iterdir())
