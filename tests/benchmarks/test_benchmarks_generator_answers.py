"""CI-Net's claim is judged by the strongest of each side, and by nobody at its null."""

from __future__ import annotations

import pytest

import generator_answers


def row(attack: str, psnr: float, *, null: float = 9.0, batch: int = 16, model: str = "Plain()"):
    def told(mean: float):
        return {"psnr": {"mean": mean, "deviation": 0.1, "standard_error": 0.1, "updates": 2, "images": 32}}

    facts = {"batch_size": batch, "model": model, "seconds_per_update": 10.0}
    return {"label": attack, "attack": attack, "ours": told(psnr), "null": told(null), **facts}


def test_each_side_has_its_strongest_row_on_the_same_victim():
    weak, strong = row("GeneratorWeights(1)", 11.0), row("GeneratorWeights(2)", 15.0)
    pixels, elsewhere = row("Pixels()", 12.0), row("Pixels()", 30.0, batch=64)
    (cell,) = generator_answers.cells_of({"rows": [weak, strong, pixels, elsewhere]})
    assert (cell.generator, cell.pixels, cell.lead) == (strong, pixels, 3.0)


@pytest.mark.parametrize(
    ("generator", "pixels", "null", "word"),
    [
        (20.0, 15.0, 9.0, "Confirmed"),
        (15.0, 20.0, 9.0, "Refuted"),
        (15.3, 15.0, 9.0, "Not decided"),
        (20.0, 15.0, 20.0, "Not decided"),
    ],
)
def test_who_is_ahead_by_the_margin_and_above_the_null_decides(generator, pixels, null, word):
    rows = [row("GeneratorWeights()", generator, null=null), row("Pixels()", pixels, null=null)]
    said = generator_answers.claim([{"rows": rows}])
    assert said.startswith(word)


def test_what_a_smooth_image_has_in_common_with_any_other_is_no_lead():
    rows = [row("GeneratorWeights()", 13.96, null=13.66), row("Pixels()", 12.41, null=11.94)]
    said = generator_answers.claim([{"rows": rows}])
    assert said.startswith("Not decided")
    assert "in 0 of 1 batches, and pixels of them in 0" in said


def test_one_batch_for_and_one_against_decide_nothing():
    rows = [row("GeneratorWeights()", 20.0), row("Pixels()", 15.0)]
    rows += [row("GeneratorWeights()", 15.0, batch=64), row("Pixels()", 20.0, batch=64)]
    said = generator_answers.claim([{"rows": rows}])
    assert said.startswith("Not decided")
    assert "in 1 of 2 batches" in said


def test_pixels_ahead_in_small_batches_and_the_generator_in_large_ones_confirm_it_from_there_on():
    rows = [row("GeneratorWeights()", 15.0, batch=16), row("Pixels()", 20.0, batch=16)]
    rows += [row("GeneratorWeights()", 20.1, batch=32), row("Pixels()", 20.0, batch=32)]
    rows += [row("GeneratorWeights()", 25.0, batch=64), row("Pixels()", 20.0, batch=64)]
    said = generator_answers.claim([{"rows": rows}])
    assert said.startswith("Confirmed from batches of 64 on, refuted up to 16, on what was run:")


def test_what_contrast_and_brightness_decide_is_told_apart():
    rows = [row("GeneratorWeights()", 20.0), row("Pixels()", 15.0)]
    for one, corrected in zip(rows, (21.0, 30.0), strict=True):
        one["ours"]["psnr_affine"], one["null"]["psnr_affine"] = (
            {**one[side]["psnr"], "mean": mean} for side, mean in (("ours", corrected), ("null", 9.0))
        )
    said = generator_answers.claim([{"rows": rows}])
    assert said.startswith("Confirmed on what was run")
    assert "after the best gain and offset of each channel the generator is ahead in 0 of 1, pixels in 1." in said
    assert ("| +5.00 |" in said, "| -9.00 |" in said) == (True, True)


def test_a_row_without_a_null_is_no_evidence():
    without = row("Pixels()", 15.0)
    without["null"]["psnr"]["mean"] = None
    assert generator_answers.cells_of({"rows": [row("GeneratorWeights()", 20.0), without]}) == []
