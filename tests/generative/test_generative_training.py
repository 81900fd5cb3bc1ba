"""A generator is trained so that it can be stopped, goes on with the same bits, and is read back by an attack."""

from __future__ import annotations

import json

import pytest
import torch

from leakgauge.cli import main
from leakgauge.errors import InvalidCase
from leakgauge.files import read_tensors, write_tensors
from leakgauge.generative import DCGAN, GeneratorTraining, GeneratorTrainingPlan, read_generator, train_generator
from leakgauge.randomness import seeded

SHAPE = (1, 6, 9)
NETWORK = DCGAN(SHAPE, width=2, latent=3)
IMAGES = torch.rand(12, *SHAPE, generator=seeded(0))
PLAN = GeneratorTrainingPlan(steps=4, batch_size=4)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 8, 8), (2, 7, 13), (3, 32, 32)])
def test_images_of_any_size_are_made_and_judged(shape):
    network = DCGAN(shape, width=2, latent=3)
    images = network.generator(seed=0)(torch.randn(2, 3)).detach()
    assert images.shape == (2, *shape)
    assert 0 <= float(images.min()) <= float(images.max()) <= 1
    assert network.discriminator(seed=0)(images).shape == (2, 1)


def test_weights_are_a_function_of_the_seed_and_leave_the_global_stream_alone():
    stream = torch.get_rng_state()
    one, two, other = (NETWORK.generator(seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(torch.get_rng_state(), stream)


def test_a_training_that_was_stopped_ends_with_the_same_bits(tmp_path):
    whole, cut = (GeneratorTraining(IMAGES, NETWORK, PLAN) for _ in range(2))
    expected, described = read_tensors(train_generator(whole, tmp_path / "whole"))

    def stop(tick):
        if tick.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_generator(cut, tmp_path / "cut", stop)
    done = []
    again = GeneratorTraining(IMAGES, NETWORK, PLAN)
    file = train_generator(again, tmp_path / "cut", lambda tick: done.append(tick.step))
    assert done == [3, 4]
    found, words = read_tensors(file)
    assert words == described
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_checkpoint_of_another_training_is_not_taken_up(tmp_path):
    train_generator(GeneratorTraining(IMAGES, NETWORK, PLAN), tmp_path)
    done = []
    other = GeneratorTraining(IMAGES.flip(-1), NETWORK, PLAN)
    train_generator(other, tmp_path, lambda tick: done.append(tick.step))
    assert done == [1, 2, 3, 4]


def test_a_damaged_checkpoint_costs_the_work_and_not_the_training(tmp_path):
    training = GeneratorTraining(IMAGES, NETWORK, PLAN)
    write_tensors(tmp_path / "generator-checkpoint.safetensors", {"done": torch.tensor(3)}, training.description)
    assert train_generator(training, tmp_path).is_file()
    assert training.done == 4


def test_both_networks_move(tmp_path):
    training = GeneratorTraining(IMAGES, NETWORK, PLAN)
    before = {name: tensor.clone() for name, tensor in training.snapshot().items()}
    training.step()
    now = training.snapshot()
    moved = {name.split(".")[0] for name, tensor in before.items() if not torch.equal(tensor, now[name])}
    assert moved == {"done", "generator", "discriminator"}


@pytest.mark.parametrize(
    ("images", "plan", "said"),
    [
        (IMAGES[:0], {}, "there are none"),
        (IMAGES[:, :, :5], {}, "match them"),
        (IMAGES, {"steps": 0}, "at least one step"),
        (IMAGES, {"batch_size": 1}, "two images per batch"),
        (IMAGES, {"learning_rate": float("nan")}, "finite learning rate"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_sentence(images, plan, said):
    with pytest.raises(InvalidCase, match=said):
        GeneratorTraining(images, NETWORK, GeneratorTrainingPlan(**plan))


def test_the_command_writes_a_file_that_is_read_back(tmp_path, capfd):
    options = ["--dataset", "digits", "--width", "2", "--latent", "3", "--steps", "2", "--batch-size", "4"]
    with pytest.raises(SystemExit) as ended:
        main(["train-generator", *options, "--out", str(tmp_path), "--json"])
    assert ended.value.code in (0, None)
    printed = json.loads(capfd.readouterr().out)
    assert printed["command"] == "train-generator"
    module, network = read_generator(tmp_path / "generator.safetensors")
    assert network == DCGAN((1, 8, 8), width=2, latent=3)
    assert not module.training
