"""What spans give away, summed up cell by cell."""

from __future__ import annotations

import span
import span_curves
from leakgauge.catalogue import MODELS
from leakgauge.config import build as build_part


def test_a_row_sums_up_the_images_of_all_victims_of_a_cell():
    victims = [
        {"cell": "ResNet-18, batch 2", "victim": 0, "psnr": [60.0, 20.0], "null": [8.0, 9.0]},
        {"cell": "ResNet-18, batch 2", "victim": 1, "psnr": [50.0, 40.0], "null": [7.0, 12.0]},
        {"cell": "ResNet20-4", "victim": 0, "psnr": [70.0], "null": [8.0]},
    ]
    first, second = span.summary(victims)
    assert first["cell"] == "ResNet20-4"
    assert (second["victims"], second["images"], second["median"], second["above_30"]) == (2, 4, 45.0, 3)
    assert (second["null"], second["greatest_null"]) == (8.5, 12.0)


def test_every_cell_names_a_network_and_a_client_that_can_be_built():
    for cell in span.CELLS.values():
        assert build_part(MODELS, cell.model, kind="model") is not None
        assert span.build_client(cell.client) is not None


def test_a_curve_has_a_point_for_each_image_and_a_line_through_the_medians() -> None:
    cells = {"ResNet-18": [[60.0], [11.0]], "ResNet-18, batch 2": [[30.0, 50.0], [9.0, 10.0]]}
    victims = [
        {"cell": name, "psnr": psnr, "null": null, "victim": 0, "images": [], "cpu_seconds": 1.0}
        for name, (psnr, null) in cells.items()
    ]
    result = {"rows": span.summary(victims), "victims": victims}
    assert span_curves.points(result, "batch") == {1: ([60.0], [11.0]), 2: ([30.0, 50.0], [9.0, 10.0])}
    assert span_curves.points(result, "noise") == {}
    drawn = span_curves.draw(result)
    assert drawn.count("<circle") == 3
    assert drawn.count("<polyline") == 2
