"""Every reader of LeakGauge: a folder of valid files, how they are damaged, and what is then read of them."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from fuzz_mutations import (
    Mutation,
    damaged,
    relied,
    resealed_gzip,
    resealed_json,
    resealed_safetensors,
    resealed_zip,
    reworded,
)
from leakgauge import Federation, FedSGD, RecordedRound, learner_and_state, simulate_round
from leakgauge.attacks.base import Stepper
from leakgauge.attacks.encodings.demasking import Demasker, UNet, load_demasker
from leakgauge.attacks.recipes.second_order import quasi_newton
from leakgauge.audit.execute import execute, load_result
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.recorded import OpenRound
from leakgauge.audit.resumption import attack_resumably
from leakgauge.audit.store import FolderStore
from leakgauge.catalogue import MODELS, standard_metrics
from leakgauge.config import build, build_client, build_dataset, build_loss, build_threat_model, from_mapping
from leakgauge.data import Cifar10, Csv, ImageFolder, Mnist, Npz, Text, read_batch, read_images
from leakgauge.data.datasets import Dataset
from leakgauge.defences import NoDefence
from leakgauge.encodings import InsideDataset, SeededKeys
from leakgauge.encodings.challenge import make_challenge, read_challenge, read_secret
from leakgauge.encodings.public_patches import read_public
from leakgauge.files import write_tensors
from leakgauge.generative import DCGAN, read_generator, write_generator
from leakgauge.plan_files import load_config
from leakgauge.progress import silent
from leakgauge.protocol import THREAT_MODELS, UpdateObservation
from leakgauge.protocol.recording import read_round, write_round
from leakgauge.protocol.weight_files import read_weights
from leakgauge.randomness import seeded
from leakgauge.reproduce.result import numbers_of
from leakgauge.reproduce.run import read_rows
from leakgauge.reproduce.table import Found, Measured
from leakgauge.sweep import compare_stores, read_grid, result_rows, status_of
from leakgauge.tradeoff import TradeoffPlan
from leakgauge.training.models import is_own_model
from leakgauge.training.run import PreparedTraining, TrainingPlan, prepare_training, run_training
from leakgauge.types import Batch

IMAGES, CLASSES = (1, 8, 8), 10


@dataclass(frozen=True)
class Reader:
    """``write`` leaves valid files in a folder, ``victims`` are those that ``mutations`` damage one at a time, and
    ``read`` is what a command does with the folder; ``writes`` into it, some do."""

    name: str
    write: Callable[[Path], None]
    victims: tuple[str, ...]
    mutations: tuple[Mutation, ...]
    read: Callable[[Path], object]
    writes: bool = False


def small_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def _batch() -> Batch:
    generator = seeded(0, "fuzz")
    return Batch(torch.rand(2, *IMAGES, generator=generator), torch.tensor([3, 5]))


def _write_round(folder: Path) -> None:
    learner, state = learner_and_state(small_model())
    seen = simulate_round(
        Federation(learner, state, FedSGD()),
        _batch(),
        threat_model=THREAT_MODELS["informed"],
        defence=NoDefence(),
        generator=seeded(0, "client"),
    )
    recorded = RecordedRound.of(seen, local_update="fedsgd", defence="clipping:max_norm=1+pruning:keep=0.5")
    write_round(folder / "round.safetensors", recorded)


def _read_round(folder: Path) -> object:
    recorded = read_round(folder / "round.safetensors")
    return OpenRound.of(recorded, small_model()).case("linear_layer", _attack(), seed=0)


def _attack() -> Any:
    from leakgauge.attacks.analytic import LinearLayer

    return LinearLayer()


def _write_weights(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        weights = small_model().state_dict()
        if name.endswith(".pt"):
            torch.save({"epoch": 3, "state_dict": weights}, folder / name)
        elif name.endswith(".npz"):
            np.savez(folder / name, **{key: tensor.numpy() for key, tensor in weights.items()})
        else:
            write_tensors(folder / name, weights, {"made": "here"})

    return write


def _read_weights(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        found = read_weights(folder / name)
        return RecordedRound.between(found, {key: tensor + 1 for key, tensor in found.items()}, IMAGES)

    return read


def _write_arrays(folder: Path) -> None:
    batch = _batch()
    images = (batch.inputs * 255).byte().numpy()
    np.savez_compressed(folder / "images.npz", images=images, labels=batch.labels.numpy())


def _read_arrays(folder: Path) -> object:
    read_batch(folder / "images.npz")
    read_images(folder / "images.npz")
    return Npz("images.npz")(folder)


def _write_idx(packed: bool) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        images = bytes([0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28]) + bytes(range(196)) * 12
        labels = bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3])
        for name, content in (("images-idx3", images), ("labels-idx1", labels)):
            path = folder / f"t10k-{name}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(content) if packed else content)

    return write


def _write_cifar(folder: Path) -> None:
    (folder / "test_batch.bin").write_bytes(b"".join(bytes([label]) + bytes(range(256)) * 12 for label in range(3)))
    (folder / "batches.meta.txt").write_text("\n".join(f"class{number}" for number in range(10)))


def _write_pictures(folder: Path) -> None:
    pixels = (np.arange(24 * 20 * 3, dtype=np.uint32) * 7 % 256).astype(np.uint8).reshape(20, 24, 3)
    (folder / "pictures").mkdir()
    for suffix, form in (("png", "PNG"), ("jpg", "JPEG"), ("bmp", "BMP"), ("webp", "WEBP")):
        Image.fromarray(pixels).save(folder / "pictures" / f"one.{suffix}", form)


def _write_table(folder: Path) -> None:
    lines = [
        "age,colour,label",
        *(f"{20 + number}.5,{'red' if number % 2 else 'blue'},{number % 3}" for number in range(9)),
    ]
    (folder / "rows.csv").write_text("\n".join(lines), "utf-8")


def _write_text(folder: Path) -> None:
    (folder / "lines.txt").write_text(
        "yes\tThe cat grinned, twice.\nno\tA dog — “barked”.\nyes\tNobody came.\n", "utf-8"
    )


PLAN = """dataset = "digits"
model = "mlp:hidden=(8,)"
loss = "cross_entropy:label_smoothing=0.1"
batch_size = 2
rounds = 1
seed = 7
seconds = 2.5
local_update = "fedavg:epochs=2,batch_size=1,learning_rate=0.1"
defences = ["none", "clipping:max_norm=1+gaussian_noise:std=0.01"]
attacks = ["linear_layer", "quasi_newton:steps=3", "gias:latent=4"]
threat_model = "informed"
"""
GRID = """models = ["mlp:hidden=(8,)", "compact"]
dataset = "digits"
seeds = [0, 1]
batch_sizes = [1, 2]
attacks = ["linear_layer"]
without = [{model = "compact", seed = 1}]
"""
TRADEOFF = """dataset = "photos:size=16"
defences = ["none", "pruning:keep=0.1"]
batch_sizes = [1, 4]
images = 4
limit = {identification = 0.1}
learning_rates = {"pruning:keep=0.1" = 0.1}
"""


def _write_file(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text, "utf-8") and None


def _read_plan(name: str) -> Callable[[Path], object]:
    """All that a plan says made into parts, short of data and training."""

    def read(folder: Path) -> object:
        plan = from_mapping(AuditPlan, load_config(folder / name), source="plan")
        parts = plan.named_attacks(plan.attacks or ()), plan.named_defences(), build_client(str(plan.local_update))
        build_threat_model(str(plan.threat_model))
        build_loss(plan.loss, plan.model)
        return parts, None if is_own_model(plan.model) else build(MODELS, plan.model, kind="model")

    return read


def _read_grid(folder: Path) -> object:
    return [cell.name for cell in read_grid(load_config(folder / "grid.toml")).cells()]


def _write_store(folder: Path) -> None:
    for name, content in _store_files().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


@cache
def _store_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _audit_into(folder)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _audit_into(folder: Path) -> None:
    short = {"train_steps": 1, "batch_size": 1, "steps": 1, "nulls": 1}
    named = {"model": "mlp:hidden=(8,)", "attacks": ("linear_layer",), "defences": ("none",)}
    execute(prepare(AuditPlan("digits", **named, **short)), folder)
    with closing(sqlite3.connect(folder / "audit.sqlite")) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")  # all of it in one file
    for name in ("index.html", "plan.json", "driver.sqlite"):
        (folder / name).unlink(missing_ok=True)


def _read_store(folder: Path) -> object:
    """As `report`, `results`, `status`, `compare` and `list runs` do."""
    store = FolderStore.open(folder)
    status_of(store)
    list(result_rows(store))
    compare_stores(store, store)
    return load_result(folder, standard_metrics()).write_report(folder)


_ROWS = {
    "body": ("SELECT key, body FROM records", "UPDATE records SET body = ? WHERE key = ?"),
    "description": ("SELECT id, description FROM runs", "UPDATE runs SET description = ? WHERE id = ?"),
    "keys": ("SELECT id, keys FROM runs", "UPDATE runs SET keys = ? WHERE id = ?"),
}


def relied_store(content: bytes, random: Random) -> bytes:
    """A whole database whose rows lie."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(content)
        asked, told = _ROWS[random.choice(("body", "body", "description", "keys"))]
        where, text = random.choice(connection.execute(asked).fetchall())
        value: str | bytes = json.dumps(relied(json.loads(text), random))
        if random.random() < 0.1:
            value = random.choice(("", "{", "[" * 5000, "null", b"\xff\x00"))
        connection.execute(told, (value, where))
        connection.commit()
        return bytes(connection.serialize())


def _write_generator(folder: Path) -> None:
    network = DCGAN(IMAGES, 2, 4)
    write_generator(folder / "generator.safetensors", network, network.generator(seed=0), {"steps": "1"})


def _write_demasker(folder: Path) -> None:
    Demasker(UNet(1, (4, 4)), facts={"channels": 1, "widths": [4, 4], "k": 2, "steps": 1}).save(
        folder / "demasker.safetensors"
    )


def _write_challenge(folder: Path) -> None:
    batch = Batch(torch.rand(6, *IMAGES, generator=seeded(0, "fuzz")), torch.arange(6) % 3)
    (folder / "public").mkdir()
    make_challenge(
        folder / "public",
        folder / "secret",
        InsideDataset(2),
        batch,
        classes=3,
        copies=2,
        keys=SeededKeys(seeded(0, "keys")),
    )


def _read_challenge(folder: Path) -> object:
    seen = read_challenge(folder / "public")
    return read_secret(folder / "secret", seen.encoded)


def _write_news(folder: Path) -> None:
    _write_store(folder)
    running = [{"case": 0, "title": "a case", "step": 3, "share": 0.5, "loss": 0.1, "for": 2.0}]
    news = {"process": 1, "machine": "here", "told": 1.0, "running": running, "speed": 1.0}
    (folder / "driver.news").write_text(json.dumps(news))


def _write_public(folder: Path) -> None:
    images = torch.randint(0, 256, (4, *IMAGES), dtype=torch.uint8, generator=seeded(0, "fuzz"))
    write_tensors(folder / "public.safetensors", {"images": images}, {"count": "4", "source": "photos"})


def _write_rows(folder: Path) -> None:
    measured = {"psnr": Measured(12.5, 0.5, 0.25, 4, 4)}
    found = Found(measured, measured, {"steps": 3}, torch.rand(2, *IMAGES), torch.rand(2, *IMAGES))
    pictures = {"one/originals": found.originals, "one/estimates": found.estimates}
    write_tensors(
        folder / "row.safetensors",
        {name: images for name, images in pictures.items() if images is not None},
        {"one": json.dumps(numbers_of(found))},
    )


@cache
def _observation() -> UpdateObservation:
    learner, state = learner_and_state(small_model())
    federation = Federation(learner, state, FedSGD())
    told = {"threat_model": THREAT_MODELS["informed"], "defence": NoDefence()}
    return simulate_round(federation, _batch(), **told, generator=seeded(0, "client"))


def _search() -> Stepper:
    return quasi_newton(steps=3).search([_observation()], generator=seeded(0, "attack"))


def _write_snapshot(folder: Path) -> None:
    search = _search()
    search.step()
    kept = {**search.snapshot(), "audit.seconds": torch.zeros(2, dtype=torch.float64)}
    FolderStore(folder).keep_snapshot("case", kept)


def _read_snapshot(folder: Path) -> object:
    return attack_resumably(_search, silent, FolderStore(folder), "case", every=60.0)


@cache
def _dataset() -> Dataset:
    return build_dataset("digits", None)


def _training() -> PreparedTraining:
    return prepare_training(TrainingPlan("digits", model="mlp:hidden=(4,)", steps=2, batch_size=4), _dataset())


def _train(folder: Path) -> object:
    return run_training(_training(), folder)


SEALED = (damaged, resealed_safetensors, resealed_safetensors)

READERS: tuple[Reader, ...] = (
    Reader("recorded round", _write_round, ("round.safetensors",), SEALED, _read_round),
    Reader(
        "weights .safetensors",
        _write_weights("w.safetensors"),
        ("w.safetensors",),
        SEALED,
        _read_weights("w.safetensors"),
    ),
    Reader("weights .pt", _write_weights("w.pt"), ("w.pt",), (damaged, resealed_zip), _read_weights("w.pt")),
    Reader("weights .npz", _write_weights("w.npz"), ("w.npz",), (damaged, resealed_zip), _read_weights("w.npz")),
    Reader("images .npz", _write_arrays, ("images.npz",), (damaged, resealed_zip), _read_arrays),
    Reader(
        "idx",
        _write_idx(False),
        ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
        (damaged,),
        lambda folder: Mnist()(folder),
    ),
    Reader(
        "idx .gz",
        _write_idx(True),
        ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
        (damaged, resealed_gzip),
        lambda folder: Mnist()(folder),
    ),
    Reader(
        "CIFAR binary",
        _write_cifar,
        ("test_batch.bin", "batches.meta.txt"),
        (damaged,),
        lambda folder: Cifar10()(folder),
    ),
    Reader(
        "images",
        _write_pictures,
        tuple(f"pictures/one.{suffix}" for suffix in ("png", "jpg", "bmp", "webp")),
        (damaged,),
        lambda folder: ImageFolder("pictures", 8)(folder),
    ),
    Reader(
        "table .csv", _write_table, ("rows.csv",), (damaged, reworded), lambda folder: Csv("rows.csv", "label")(folder)
    ),
    Reader("text", _write_text, ("lines.txt",), (damaged, reworded), lambda folder: Text("lines.txt")(folder)),
    Reader("plan .toml", _write_file("p.toml", PLAN), ("p.toml",), (damaged, reworded, reworded), _read_plan("p.toml")),
    Reader(
        "plan .json",
        _write_file(
            "p.json", json.dumps({"dataset": "digits", "attacks": ["gias:latent=4"], "seed": 1, "budget": "deep"})
        ),
        ("p.json",),
        (damaged, resealed_json, resealed_json),
        _read_plan("p.json"),
    ),
    Reader("grid .toml", _write_file("grid.toml", GRID), ("grid.toml",), (damaged, reworded, reworded), _read_grid),
    Reader(
        "trade-off .toml",
        _write_file("t.toml", TRADEOFF),
        ("t.toml",),
        (damaged, reworded, reworded),
        lambda folder: from_mapping(TradeoffPlan, load_config(folder / "t.toml"), source="plan"),
    ),
    Reader("store .sqlite", _write_store, ("audit.sqlite",), (damaged,), _read_store, writes=True),
    Reader("records in a store", _write_store, ("audit.sqlite",), (relied_store,), _read_store, writes=True),
    Reader("pictures in a store", _write_store, ("tensors/*",), SEALED, _read_store, writes=True),
    Reader(
        "generator",
        _write_generator,
        ("generator.safetensors",),
        SEALED,
        lambda folder: read_generator(folder / "generator.safetensors"),
    ),
    Reader(
        "demasker",
        _write_demasker,
        ("demasker.safetensors",),
        SEALED,
        lambda folder: load_demasker(folder / "demasker.safetensors"),
    ),
    Reader(
        "challenge",
        _write_challenge,
        ("public/encodings.safetensors", "secret/secret.safetensors"),
        SEALED,
        _read_challenge,
    ),
    Reader(
        "news of a store",
        _write_news,
        ("driver.news",),
        (damaged, resealed_json, resealed_json),
        lambda folder: status_of(FolderStore.open(folder)),
        writes=True,
    ),
    Reader(
        "snapshot of an attack", _write_snapshot, ("snapshots/case.safetensors",), SEALED, _read_snapshot, writes=True
    ),
    Reader("checkpoint of a training", _train, ("trainings/*",), SEALED, _train, writes=True),
    Reader(
        "rows of a table",
        _write_rows,
        ("row.safetensors",),
        SEALED,
        lambda folder: [numbers_of(one) for one in read_rows(folder / "row.safetensors").values()],
    ),
    Reader(
        "public images",
        _write_public,
        ("public.safetensors",),
        SEALED,
        lambda folder: read_public(folder / "public.safetensors"),
    ),
    Reader("challenge .json", _write_challenge, ("public/challenge.json",), (damaged, resealed_json), _read_challenge),
)
