"""Ten questions: two sentences each, of the files alone, and "not measured" where there is none."""

from __future__ import annotations

import re

import pytest

import page
import readings
import ten_questions
from ten_questions import Number


def test_all_ten_are_answered_with_a_number_its_interval_or_that_it_was_measured_once_and_a_plot():
    text, drawn = ten_questions.page(readings.load(), lambda name: f"#{name}")
    parts = text.split("\n## ")[1:]
    assert len(parts) == len(ten_questions.QUESTIONS) == 10
    for index, part in enumerate(parts, 1):
        assert re.search(r"\*\*-?[\d.]+( dB| %)?\*\* \((95 % interval|measured once)", part), part
        assert f"results/question-{index}.svg" in part
        assert "Rows: [" in part
    assert len(drawn) == 10


def test_without_files_nothing_is_measured_and_nothing_is_drawn():
    text, drawn = ten_questions.page({}, lambda name: name)
    assert text.count("Not measured.") == 10
    assert drawn == {}


def test_the_page_of_questions_is_made_with_the_others():
    written = page.pages(readings.load())
    assert page.DOCS / "questions.md" in written
    assert "](questions.md)" in written[page.DOCS / "results.md"]
    for file in re.findall(r"\]\((results/[\w.-]+svg)\)", written[page.DOCS / "questions.md"]):
        assert page.DOCS / file in written


@pytest.mark.parametrize(
    ("one", "higher", "word"),
    [
        (Number(20.0, 15.0, 25.0, 10.0), True, "Yes"),
        (Number(20.0, 5.0, 35.0, 10.0), True, "Open"),
        (Number(9.0, 5.0, 35.0, 10.0), True, "Not by what was tried"),
        (Number(20.0, None, None, 10.0), True, "Perhaps, it was measured once"),
        (Number(0.3, 0.2, 0.4, 0.6), False, "Yes"),
        (Number(0.3, None, None, 0.2), False, "Not by what was tried"),
    ],
)
def test_the_word_of_an_answer_follows_from_its_numbers(one, higher, word):
    assert one.verdict(higher_leaks=higher) == word


def _of_local_steps(**means: float) -> dict[str, dict]:
    """A file of settings, each with its mean, a spread of 1 dB over two updates, and a null of 10 dB."""
    rows = [
        {
            "label": f"E={one[0]}, n={one[1]}, B={one[2]}: ours (not in the paper)",
            "ours": {"psnr": {"mean": mean, "standard_error": 0.05, "updates": 2}},
            "null": {"psnr": {"mean": 10.0}},
        }
        for name, mean in means.items()
        for one in [name.strip("_").split("_")]
    ]
    return {"geiping2020-table2-long.json": {"rows": rows}}


def test_local_steps_are_answered_by_several_images_and_the_most_steps_and_by_what_leaks_most():
    told = ten_questions.local_steps(_of_local_steps(_5_1_1=20.0, _5_8_8=12.0, _1_8_8=15.0))
    assert told.found.startswith("No: after 5 local steps (5 epochs) on 8 images, **12.00 dB**")
    assert "The most is **20.00 dB**" in told.means
    assert "after 5 local steps (5 epochs) on 1 image; 3 of 3 settings" in told.means
    assert ten_questions.local_steps(_of_local_steps(_5_8_8=9.0)).found.startswith("By what was tried, yes: ")
    assert ten_questions.local_steps(_of_local_steps(_5_8_8=10.3)).found.startswith("Open: ")


@pytest.mark.parametrize(
    ("model", "training", "said"),
    [
        ("Plain(width=12)", None, "Of a trained ResNet that was not measured. Perhaps, it was measured once: of 32"),
        ("ResNet(depth=18)", None, "Of a trained ResNet that was not measured."),
        ("ResNet(depth=18)", {"epochs": 3}, "Perhaps, it was measured once: of 32 images in the update of a trained R"),
    ],
)
def test_a_batch_of_32_is_told_with_the_network_it_was_measured_on(model, training, said):
    rows = [
        {
            "label": f"None, batch {size}, strongest (BN_exact)",
            "model": model if size == 32 else "MLP()",
            "training": training,
            "parameters": 12_000 if size == 32 else 7,
            "ours": {"lpips_vgg": {"mean": mean, "standard_error": None, "updates": 1}},
            "null": {"lpips_vgg": {"mean": 0.7}},
        }
        for size, mean in ((16, 0.5), (32, 0.6))
    ]
    told = ten_questions.batch_of_32({"huang2021-table5-long.json": {"rows": rows}})
    assert told.found.startswith(said)
    assert f"rained {model.partition('(')[0]} of 12,000 parameters" in told.found
    assert "Of 16 images it is **0.500** (measured once; null 0.700)" in told.means


def test_a_batch_of_32_out_of_a_trained_residual_network_is_told_where_it_was_measured():
    cell = "ResNet-20, batch 32"
    measured = {"cell": cell, "batch_size": 32, "accuracy": 0.92, "cpu_seconds": 300}
    victims = [{"cell": cell, "psnr": [9.0, 11.0], "null": [10.5, 11.5]}]
    results = {"span.json": {"rows": [{**measured, "batch_size": 4}, measured], "victims": victims}}
    said = ten_questions._trained_batch(results, 32)
    assert said.startswith(
        "Not by what was tried, of a trained ResNet: 32 images in the update of a ResNet-20 with 92 %"
    )
    assert "**10.00 dB**" in said
    assert "null 11.00" in said
    victims[0]["psnr"] = [12.0, 12.1]
    assert ten_questions._trained_batch(results, 32).startswith("Hardly, of a trained ResNet: ")
    victims[0]["psnr"] = [22.0, 22.1]
    assert ten_questions._trained_batch(results, 32).startswith("Yes, of a trained ResNet: ")
    assert ten_questions._trained_batch(results, 64) == "Of a trained ResNet that was not measured. "


def test_a_longer_run_of_a_table_is_the_one_that_is_told():
    names = {name: {} for name in ("a-table1-cpu.json", "a-table1-long.json", "a-table10-cpu.json")}
    assert ten_questions.file_of(names, "a-table1") == "a-table1-long.json"
    with pytest.raises(ten_questions.NotMeasured):
        ten_questions.file_of(names, "b")


def test_a_share_has_wilsons_interval_and_a_score_students():
    share = ten_questions.of_share(4, 8, 0.0)
    assert (share.low, share.high) == (pytest.approx(0.2152, abs=1e-4), pytest.approx(0.7848, abs=1e-4))
    assert ten_questions.of_scores([3.0], None).low is None
    assert ten_questions.of_scores([0.5, 1.0], None).within(0.0, 1.0).high == 1.0
