"""Inverting Gradients: the numbers of the paper, and at full scale its images, iterations and weights."""

from __future__ import annotations

import pytest

from leakgauge.attacks.matching import AnisotropicTotalVariation, SignedAdam
from leakgauge.attacks.recipes import Best, inverting_gradients
from leakgauge.data import Cifar10, Cifar100
from leakgauge.models import Plain, ResNet
from leakgauge.protocol import FedAvg
from leakgauge.reproduce import TABLES, Row
from leakgauge.reproduce.draws import InOrder
from leakgauge.reproduce.measures.updates import Setting, budget_of
from leakgauge.reproduce.papers.geiping2020.published import OURS, PROPOSED, PUBLISHED
from leakgauge.reproduce.papers.geiping2020.settings import federated_attack
from leakgauge.reproduce.scales import Scale
from leakgauge.training import Pretrained, Training

AS_PRINTED = {
    "table1": "46.25 12.66, 13.24 5.44, 10.29 5.38, 6.90 2.80, 18.00 3.33, 18.08 4.27, 19.83 2.96, 13.95 3.38",
    "table2": "16.92 2.10, 14.66 1.12, 16.49 1.02, 25.05 3.28, 16.58 0.96",
    "table3": "20.12 1.02, 15.13 0.70, 19.96 0.75, 5.13 0.50",
    "figure4": "19.02 2.84, 22.04 5.89, 22.94 6.83, 21.59 4.49, 20.98 5.57",
}
"""Read off the paper in its order, row by row; Figure 4 column by column."""


def row(name: str, label: str) -> Row:
    return next(one for one in TABLES[f"geiping2020/{name}"].rows if one.label == label)


def setting(name: str, label: str) -> Setting:
    found = row(name, label).at("full")
    assert isinstance(found, Setting)
    return found


@pytest.mark.parametrize("name", AS_PRINTED)
def test_the_published_numbers_are_those_of_the_paper(name: str) -> None:
    numbers = [one.published for one in TABLES[f"geiping2020/{name}"].rows if one.published is not None]
    assert ", ".join(f"{one.mean:.2f} {one.deviation:.2f}" for one in numbers) == AS_PRINTED[name]


@pytest.mark.parametrize("source", PUBLISHED)
def test_every_published_number_has_its_row(source: str) -> None:
    name = source.partition(",")[0].replace(" ", "").lower()
    rows = {one.label: one.published for one in TABLES[f"geiping2020/{name}"].rows}
    for label, printed in PUBLISHED[source].items():
        own = rows.pop(label)
        assert own is not None
        assert (own.mean, own.deviation) == printed
        assert own.source == source
    assert all("not in the paper" in label and published is None for label, published in rows.items())


@pytest.mark.parametrize(
    ("name", "updates", "steps"),
    [
        ("table1", 100, 4_800),
        ("table2", 100, 4_800),
        ("table3", 10, 4_800),
        ("figure4", 10, 4_800),
        ("figure6", 1, 24_000),
    ],
)
def test_full_scale_has_the_papers_numbers_of_images_and_iterations(name: str, updates: int, steps: int) -> None:
    for label, one in TABLES[f"geiping2020/{name}"].measures("full").items():
        assert one.updates == updates
        assert budget_of(one.attack).steps == (300 * 20 if "Euclidean" in label else steps)
        assert budget_of(one.attack).seconds is None


@pytest.mark.parametrize(
    ("label", "weight"),
    [
        ("LeNet (Zhu), untrained: proposed", 1e-2),
        ("LeNet (Zhu), trained: proposed", 1e-3),
        ("ResNet20-4, untrained: proposed", 0.0),
        ("ResNet20-4, trained: proposed", 1e-2),
    ],
)
def test_total_variation_is_weighted_as_in_table_4(label: str, weight: float) -> None:
    attack = setting("table1", label).attack
    assert attack == inverting_gradients(weight)
    assert len(attack.priors) == (weight > 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("label", "restarts"), [("LeNet (Zhu)", 16), ("ResNet20-4", 8)])
def test_the_euclidean_baseline_has_the_papers_restarts(label: str, restarts: int) -> None:
    for state in ("untrained", "trained"):
        attack = setting("table1", f"{label}, {state}: Euclidean + L-BFGS").attack
        assert attack.restarts == restarts  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("client", "weight"),
    [((1, 4, 2), 1e-6), ((1, 8, 2), 1e-6), ((1, 8, 8), 1e-4), ((5, 1, 1), 1e-4), ((5, 8, 8), 1e-4)],
)
def test_clients_and_weights_of_table_2_are_those_of_table_5(client: tuple[int, int, int], weight: float) -> None:
    epochs, images, minibatch = client
    found = setting("table2", f"E={epochs}, n={images}, B={minibatch}")
    assert found.local_update == FedAvg(epochs, minibatch, 1e-4)
    assert (found.batch_size, found.minibatch) == (images, minibatch)
    assert found.attack == federated_attack(weight)


def test_the_attack_on_local_steps_is_the_same_at_ten_times_the_rate() -> None:
    attack, plain = federated_attack(1e-4), inverting_gradients(1e-4)
    assert attack.priors == plain.priors == (AnisotropicTotalVariation(1e-4 / 0.25),)  # type: ignore[attr-defined]
    assert isinstance(attack.optimiser, SignedAdam)  # type: ignore[attr-defined]
    assert isinstance(plain.optimiser, SignedAdam)
    assert attack.optimiser.learning_rate == pytest.approx(10 * plain.optimiser.learning_rate)  # type: ignore[attr-defined]
    assert attack.optimiser.schedule == plain.optimiser.schedule  # type: ignore[attr-defined]


def test_our_own_recipe_meets_images_it_was_not_tuned_on_or_is_marked_as_flattered() -> None:
    chosen = TABLES["geiping2020/table1"]
    own = [one for one in chosen.rows if one.published is None]
    assert {type(setting("table1", one.label).attack) for one in own} == {Best}
    assert len(own) == 4
    assert {one.draw for one in chosen.measures("cpu").values()} == {InOrder(100)}
    assert {one.draw for one in chosen.measures("full").values()} == {InOrder(0)}
    assert any("0 to 99, and our own row is flattered" in line for line in chosen.assumptions)


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "figure4", "width", "figure5", "figure6"])
def test_scale_long_attacks_images_that_nothing_was_tuned_on_and_as_many_as_the_paper_at_once(name: str) -> None:
    for label, one in TABLES[f"geiping2020/{name}"].measures("long").items():
        paper = row(name, label).at("full")
        assert isinstance(paper, Setting)
        assert one.draw == InOrder(2_000)
        assert one.updates >= (1 if name == "figure6" else 5)
        assert one.batch_size == paper.batch_size


def test_the_ablation_has_the_papers_number_of_images_at_scale_long_each_with_a_null() -> None:
    for label, one in TABLES["geiping2020/table3"].measures("long").items():
        assert one.updates == one.nulls == row("table3", label).at("full").updates


def test_scale_long_has_the_papers_iterations_but_where_a_small_net_settles_or_they_would_take_a_day() -> None:
    for name in ("table1", "table2", "table3", "figure4", "width", "figure5", "figure6"):
        for label, one in TABLES[f"geiping2020/{name}"].measures("long").items():
            budget, paper = budget_of(one.attack), budget_of(row(name, label).at("full").attack)
            if isinstance(one.model, Plain) and name != "table3":
                assert 200 <= budget.steps <= 1_000
            elif name == "table1" and isinstance(one.model, ResNet) and not label.endswith(f": {PROPOSED}"):
                assert budget.seconds == 20.0
            elif name == "figure4":
                assert (budget.seconds, budget.steps) == ((20.0, None) if OURS in label else (None, 1_600))
            else:
                assert budget == paper


@pytest.mark.parametrize("name", ["table1", "figure4"])
def test_residual_networks_start_as_the_papers_do_at_long_and_full_scale(name: str) -> None:
    def starts(scale: Scale) -> set[str]:
        models = [one.model for one in TABLES[f"geiping2020/{name}"].measures(scale).values()]
        return {model.initialisation for model in models if isinstance(model, ResNet)}

    assert starts("long") == starts("full") == {"kaiming"}
    assert starts("cpu") == {"default"}


def test_a_trained_victim_of_scale_long_comes_from_a_file_that_says_what_makes_it_or_is_trained_at_length() -> None:
    trained = [one.training for label, one in TABLES["geiping2020/table1"].measures("long").items() if ", tr" in label]
    assert {type(one) for one in trained} == {Pretrained}
    assert all("python benchmarks/" in one.made_by for one in trained if isinstance(one, Pretrained))
    ablated = [one.training for one in TABLES["geiping2020/table3"].measures("long").values()]
    assert min(one.steps for one in ablated if isinstance(one, Training)) > 1_000


def test_every_table_of_this_paper_runs_on_cifar() -> None:
    assert {type(one.dataset) for one in TABLES.values() if "geiping" in one.name} == {Cifar10, Cifar100}
