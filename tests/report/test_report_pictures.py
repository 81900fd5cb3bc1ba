from __future__ import annotations

import base64
import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from test_report_examples import audit_of, null_of, record

from leakgauge.audit.record import Pictures
from leakgauge.report.charts import Axes
from leakgauge.report.pictures import data_uri, gallery
from leakgauge.types import Outcome


def decoded(uri: str | None) -> Image.Image:
    assert uri is not None
    return Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))


@given(channels=st.sampled_from([1, 3]), height=st.integers(1, 20), width=st.integers(1, 20), seed=st.integers(0, 99))
def test_pixels_that_are_bytes_survive_the_picture(channels: int, height: int, width: int, seed: int) -> None:
    values = torch.randint(256, (channels, height, width), generator=torch.Generator().manual_seed(seed))
    picture = np.asarray(decoded(data_uri(values / 255))).reshape(height, width, channels)
    assert np.array_equal(picture.transpose(2, 0, 1), values.numpy())


@pytest.mark.parametrize("channels", [2, 4])
def test_other_channel_counts_show_their_mean(channels: int) -> None:
    image = torch.zeros(channels, 2, 3)
    image[0] = 1
    assert np.all(np.asarray(decoded(data_uri(image))) == round(255 / channels))


def test_pixels_out_of_range_are_clamped_and_non_finite_ones_are_no_picture() -> None:
    assert np.asarray(decoded(data_uri(torch.tensor([[[-1.0, 2.0]]])))).tolist() == [[0, 255]]
    assert data_uri(torch.tensor([[[0.5, math.nan]]])) is None
    assert data_uri(torch.tensor([[[0.5, math.inf]]])) is None


def test_large_images_shrink_to_what_is_displayed() -> None:
    assert decoded(data_uri(torch.zeros(3, 300, 600))).size == (128, 64)


def test_the_lines_are_the_originals_each_defence_and_the_null_of_the_undefended() -> None:
    cases = [record("pruning", 2), record("none", 8)]
    nulls = [replace(null_of(case), scores={"psnr": (value,) * 8}) for case, value in zip(cases, (3.0, 4.0))]
    lines = gallery(audit_of([*cases, *nulls])).lines
    assert [line.title for line in lines] == ["Private images", "Pruning", "No defence", "Null"]
    assert lines[-1].tiles[0].caption == "4.0 dB"
    assert [tile.leaked for tile in lines[1].tiles] == [True] * 2 + [False] * 6


def test_columns_pair_reconstructions_with_originals_over_all_rounds_even_where_a_round_is_missing() -> None:
    first, second = record(size=2), record(size=2, round=1)
    private, undefended, pruned = gallery(audit_of([second, first, record("pruning", 0, 2, round=1)])).lines
    originals = torch.cat([first.pictures.originals, second.pictures.originals])  # type: ignore[list-item]
    assert [tile.source for tile in private.tiles] == [data_uri(image) for image in originals]
    assert all(tile.source for tile in undefended.tiles)
    assert [tile.words for tile in pruned.tiles[:2]] == ["not run"] * 2
    assert all(tile.source for tile in pruned.tiles[2:])


def test_a_row_of_nan_is_nothing_recovered() -> None:
    case = record(size=2, hits=1)
    assert case.pictures.reconstructions is not None
    holed = case.pictures.reconstructions.clone()
    holed[1] = math.nan
    _, line = gallery(audit_of([replace(case, pictures=replace(case.pictures, reconstructions=holed))])).lines
    assert line.tiles[0].source is not None
    assert (line.tiles[1].source, line.tiles[1].words) == (None, "nothing recovered")


def test_an_attack_that_recovered_nothing_does_not_stand_for_a_defence_if_another_recovered_something() -> None:
    nothing = Pictures(torch.rand(8, 3, 8, 8), torch.full((8, 3, 8, 8), math.nan))
    refused = record(hits=None, attack="linear_layer", pictures=nothing, outcome=Outcome.NOT_APPLICABLE)
    _, line = gallery(audit_of([refused, record(hits=None)])).lines
    assert line.detail == "by quasi_newton"


def test_without_originals_only_reconstructions_are_shown() -> None:
    blind = record(scores={}, chance=math.nan, pictures=Pictures(None, torch.rand(3, 1, 4, 4)))
    (line,) = gallery(audit_of([blind])).lines
    assert line.title == "No defence"
    assert [(tile.caption, tile.leaked) for tile in line.tiles] == [("", False)] * 3


LOSSES = st.lists(st.floats(1e-12, 1e6) | st.sampled_from([0.0, -1.0, math.nan, math.inf]), max_size=400)


@given(losses=LOSSES)
def test_every_drawn_loss_lies_inside_the_chart_and_the_last_is_kept(losses: list[float]) -> None:
    trace = torch.tensor(losses, dtype=torch.float64)
    axes = Axes.around([trace])
    points = [tuple(map(float, point.split(","))) for point in axes.points(trace).split()]
    assert all(0 <= x <= axes.width and 0 <= y <= axes.height for x, y in points)
    assert len(points) <= 161
    if losses and math.isfinite(losses[-1]) and losses[-1] > 0:
        assert points[-1][0] == (axes.width if len(losses) > 1 else 0)
    assert all(0 <= tick.place <= axes.height for tick in axes.ticks)


def test_equal_steps_down_the_chart_are_equal_factors() -> None:
    trace = torch.tensor([1.0, 0.1, 0.01], dtype=torch.float64)
    axes = Axes.around([trace])
    assert axes.points(trace) == "0.0,0.0 100.0,45.0 200.0,90.0"
    assert [tick.label for tick in axes.ticks] == ["0.01", "0.1", "1"]
