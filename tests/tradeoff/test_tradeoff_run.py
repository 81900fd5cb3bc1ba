from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leakgauge.audit.executors import in_process
from leakgauge.config import build_defence, from_mapping
from leakgauge.errors import InvalidCase
from leakgauge.report.tradeoff_words import remarks
from leakgauge.tradeoff import TradeoffPlan, tradeoff
from leakgauge.tradeoff.plan import Condition
from leakgauge.tradeoff.result import Tradeoff
from leakgauge.training import DefendedTraining

pytestmark = pytest.mark.slow  # the command of a trade-off is tried in `make test`
TINY: dict[str, Any] = {
    "dataset": "digits",
    "model": "mlp:hidden=(6,)",
    "train_steps": 2,
    "defences": ("none", "pruning:keep=0.1", "mixup:k=2"),
    "attacks": ("inverting_gradients",),
    "threat_models": ("strongest",),
    "batch_sizes": (1, 2),
    "images": 2,
    "steps": 2,
    "training_steps": 5,
    "distractors": 20,
}


@pytest.fixture(autouse=True)
def _no_weights_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEAKGAUGE_WEIGHTS", raising=False)


def plan(**changes: Any) -> TradeoffPlan:
    return TradeoffPlan(**(TINY | changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tradeoff:
    return tradeoff(plan(), tmp_path_factory.mktemp("whole"))


def plain(result: Tradeoff) -> dict[str, Any]:
    """All numbers but those of the clock."""
    payload = result.to_dict()
    for row in payload["rows"]:
        if row["utility"] is not None:
            for name in ("overhead", "seconds_per_step"):
                del row["utility"][name]
        for cell in row["leakage"]:
            cell.pop("seconds", None)
    return payload


def test_every_defence_has_its_utility_and_every_cell_its_null(whole: Tradeoff) -> None:
    assert whole.complete
    assert [row.defence for row in whole.rows] == list(TINY["defences"])
    assert len(whole.conditions) == 4
    for row in whole.rows:
        assert row.accuracy is not None
        assert row.accuracy.count == 359
        for condition, cell in row.cells.items():
            assert cell.measurements["psnr"].attack.count == 2
            # Two rounds of one image with two nulls each, or one round of two images with three.
            assert cell.measurements["psnr"].null.count == {1: 4, 2: 6}[condition.batch_size]
    assert not whole["none"].cells[Condition("strongest", 1)].measurements["lpips_vgg"].measured


def test_each_cell_shows_the_leakiest_attack(tmp_path: Path) -> None:
    words = plan(defences=("none",), attacks=("quasi_newton", "linear_layer"), batch_sizes=(1,), images=1, unaware=None)
    (cell,) = tradeoff(words, tmp_path).rows[0].cells.values()
    # One image of a model whose first layer is linear is read off exactly, and nothing leaks more.
    assert cell.attack == "linear_layer"
    assert cell.measurements["identification"].attack.mean == 1.0
    assert cell.measurements["psnr"].attack.mean > 60


def test_a_batch_too_small_to_mix_is_measured_as_an_encoding_that_mixes_in_other_images(whole: Tradeoff) -> None:
    mixed = whole["mixup:k=2"]
    assert not mixed.refused
    assert {condition.batch_size for condition in mixed.cells} == {1, 2}
    assert mixed.cells[Condition("strongest", 1)].measurements["psnr"].attack.count == 2
    assert whole.worst(mixed, whole.axis) is not None


def test_a_defence_that_no_client_can_run_is_refused_and_the_others_are_measured(tmp_path: Path) -> None:
    words = plan(defences=("none", "mixup:k=40"), attacks=("linear_layer",), batch_sizes=(1,), images=1, unaware=None)
    result = tradeoff(words, tmp_path)
    mixed = result["mixup:k=40"]
    assert [condition.batch_size for condition in mixed.refused] == [1]
    assert all("raise the batch size" in reason for reason in mixed.refused.values())
    assert not mixed.cells
    assert result["none"].cells


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """``[n]``: Ctrl-C in the midst of the attack after the next n; ``[]``: none."""
    left: list[int] = []
    original = in_process.run_safely

    def counted(*arguments: Any) -> Any:
        if left and left[0] == 0:
            raise KeyboardInterrupt
        if left:
            left[0] -= 1
        return original(*arguments)

    monkeypatch.setattr(in_process, "run_safely", counted)
    return left


@pytest.mark.slow
def test_interrupted_anywhere_it_keeps_what_finished_and_ends_with_the_same_numbers(
    whole: Tradeoff, tmp_path: Path, interrupted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    step = DefendedTraining.step

    def stopping(self: Any) -> None:
        nonlocal steps
        if steps == 9:  # two of the victim, five of the first defence, two of the second
            raise KeyboardInterrupt
        steps += 1
        step(self)

    monkeypatch.setattr(DefendedTraining, "step", stopping)
    first = tradeoff(plan(), tmp_path)
    assert not first.complete
    assert [row.accuracy is not None for row in first.rows] == [True, False, False]
    assert not any(row.cells for row in first.rows)
    steps = -1000
    interrupted[:] = [7]
    second = tradeoff(plan(), tmp_path)
    assert steps == -1000 + 8
    assert not second.complete
    assert all(row.accuracy is not None for row in second.rows)
    # Two updates of one image with two nulls each are a cell; the seventh case is of the next one.
    assert [len(row.cells) for row in second.rows] == [1, 0, 0]
    interrupted.clear()
    last = tradeoff(plan(), tmp_path)
    assert steps == -1000 + 8
    assert last.complete
    assert plain(last) == plain(whole)


def test_an_interruption_before_anything_is_kept_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DefendedTraining, "step", stopped)
    with pytest.raises(KeyboardInterrupt):
        tradeoff(plan(), tmp_path)


def test_a_defence_that_cannot_be_trained_with_leaves_the_others_alone(tmp_path: Path) -> None:
    words = plan(
        defences=("none", "mixup:k=9"),
        attacks=("linear_layer",),
        batch_sizes=(1,),
        images=1,
        training_batch_size=4,
        unaware=None,
    )
    result = tradeoff(words, tmp_path)
    mixed = result["mixup:k=9"]
    assert mixed.utility is None
    assert mixed.untrained is not None
    assert "k=9" in mixed.untrained
    assert mixed.accuracy is None
    assert result["none"].accuracy is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"defences": []}, "at least one entry in `defences`"),
        ({"batch_sizes": [1, 1]}, "given twice"),
        ({"batch_sizes": [0]}, "at least 1"),
        ({"limit": 0.1}, "table such as"),
        ({"limit": {"identificaton": 0.1}}, "no metric"),
        ({"limit": {"identification": "low"}}, "finite number"),
        ({"limit": {"label_recall": 0.1}}, "compares images"),
        ({"threat_models": ["stronges"]}, "did you mean 'strongest'"),
        ({"unaware": "strongest"}, "knows the defence"),
        ({"recipe": "nonsense"}, "no recipe"),
        ({"defenses": ["none"]}, "did you mean 'defences'"),
        ({"steps": 0}, "steps >= 1"),
        ({"learning_rates": 0.1}, "table from defences"),
        ({"learning_rates": {"soteria": 0.1}}, "table from defences"),
        ({"learning_rates": {"none": "fast"}}, "table from defences"),
        ({"learning_rates": {"none": 0}}, "finite learning rate above 0"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_before_any_work(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidCase, match=words):
        from_mapping(TradeoffPlan, change, source="plan")


def test_a_row_may_have_a_learning_rate_of_its_own() -> None:
    words = plan(learning_rates={"pruning:keep=0.1": 0.02}, learning_rate=0.1)
    rates = {defence: words.training(defence).chosen_recipe().learning_rate for defence in words.defences}
    assert rates == {"none": 0.1, "pruning:keep=0.1": 0.02, "mixup:k=2": 0.1}


def test_the_default_plan_has_eight_rows_and_more_and_all_of_them_can_be_built() -> None:
    default = TradeoffPlan()
    assert len(default.defences) >= 8
    assert default.batch_sizes == (1, 4)
    assert len({repr(build_defence(text)) for text in default.defences}) == len(default.defences)
    assert sum(condition.unaware for condition in default.conditions()) == 2


def test_the_batch_by_the_rank_rule_is_attacked_and_trained_in(tmp_path: Path) -> None:
    result = tradeoff(plan(batch_sizes=(1,), batch_rule=True, defences=("none",), images=1), tmp_path)
    assert result.batch_rule is not None
    assert result.batch_rule.utility is not None
    size = result.batch_rule.batch_size
    assert {condition.batch_size for condition in result.conditions} == {1, size}
    assert result.batch_rule.utility.to_dict()["batch_size"] == size
    assert result.batch_rule.utility.steps == round(5 * 32 / size)  # as many examples in all
    told = [one for one in remarks(result) if "rank rule" in one]
    assert len(told) == 1
    assert f"in batches of {size}" in told[0]
    assert "Trained in such batches" in told[0]
    assert result.to_dict()["batch_rule"]["batch_size"] == size


def test_a_narrow_network_needs_no_larger_batch(tmp_path: Path) -> None:
    given = {"dataset": "photos:size=16", "model": "lenet", "batch_sizes": (1,), "defences": ("none",), "images": 1}
    narrow = tradeoff(plan(batch_rule=True, **given), tmp_path)
    assert narrow.batch_rule is not None
    assert narrow.batch_rule.batch_size == 1
    assert any("not even in updates of one example" in one for one in remarks(narrow))
