"""What spans give away, summed up cell by cell."""

from __future__ import annotations

import span


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
        assert span.build_part(span.MODELS, cell.model, kind="model") is not None
        assert span.build_client(cell.client) is not None
