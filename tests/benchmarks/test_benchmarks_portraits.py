"""Portraits: what was private above what came back, and beside it what comes back of an unrelated update."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch

import portraits
from leakgauge.catalogue import ATTACKS, DEFENCES
from portrait_drawings import LabelPanel, PictureColumn, draw_labels, draw_pictures
from portrait_settings import LABELS, PHOTOGRAPH, SENTENCE, defended, setting_of


def words(drawing: str) -> list[str]:
    return [part for part in ElementTree.fromstring(drawing).itertext() if part.strip()]


def test_a_sheet_has_a_line_for_what_was_private_what_came_back_and_the_null():
    image = torch.rand(1, 3, 8, 8)
    drawing = draw_pictures(image, [PictureColumn("none", image, image), PictureColumn("noise", None, None)])
    assert [one for one in words(drawing) if one in ("private", "came back", "null")] == [
        "private",
        "came back",
        "null",
    ]
    assert drawing.count("<image") == 3
    assert drawing.count('href="#private"') == 1  # drawn once, shown above each column
    assert drawing.count(">nothing<") == 2


def test_where_no_null_was_run_none_is_drawn_rather_than_nothing():
    image = torch.rand(1, 1, 8, 8)
    drawing = draw_pictures(image, [PictureColumn("noise", image, None, has_null=False)])
    assert ">nothing<" not in drawing


def test_of_a_batch_those_are_shown_of_which_something_came_back():
    images = torch.rand(8, 3, 8, 8)
    back = torch.full_like(images, torch.nan)
    back[6] = images[6]
    drawing = draw_pictures(images, [PictureColumn("none", back, None)])
    alone = draw_pictures(images[[0, 1, 2, 6]], [PictureColumn("none", back[[0, 1, 2, 6]], None)])
    assert re.findall('base64,([^"]+)', drawing) == re.findall('base64,([^"]+)', alone)


def test_labels_have_a_bar_for_each_class_a_dot_for_what_came_back_and_a_line_for_the_null():
    drawing = draw_labels(
        [LabelPanel("none", (2, 0, 1), (2, 1, 0), (0, 3, 0)), LabelPanel("noise", (2, 0, 1), None, None)]
    )
    assert drawing.count("<circle") == 3
    assert drawing.count('fill="#95a5a6"') == 6
    assert drawing.count('stroke-width="2"') == 3
    heights = [float(one) for one in re.findall(r'height="([\d.]+)" fill="#95a5a6"', drawing)]
    assert heights[0] == pytest.approx(2 * heights[2])


def test_every_part_has_a_client_that_suits_it():
    assert setting_of("tag") is SENTENCE
    assert setting_of("ilrg") is LABELS
    assert setting_of("best") is PHOTOGRAPH
    assert all(setting_of(name).plan()["steps"] for name in ATTACKS)
    assert all(defended(name).words for name in DEFENCES)


def test_what_has_no_portrait_is_told_and_nothing_else():
    kept: dict[str, dict] = {kind: {name: {} for name in shelf} for kind, shelf in portraits.KINDS.items()}
    del kept["attacks"]["best"]
    assert portraits.missing(kept) == [("attacks", "best")]
