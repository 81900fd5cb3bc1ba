"""Public images named and taken out, also where they were moved before they were mixed."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from encodings_support import published
from leakgauge.attacks.encodings.search.removal import AlignedRemoval, PublicRemoval
from leakgauge.data import Photos
from leakgauge.encodings import CrossDataset, Mixup, Scheme
from leakgauge.encodings.crops import Cropping
from leakgauge.metrics.public_found import hit_members
from leakgauge.randomness import seeded


@pytest.mark.parametrize("scheme", [Mixup(3, public=2), CrossDataset(3, private=1, least_private=0.0)])
def test_public_images_that_were_moved_are_named_when_every_alignment_is_tried(scheme: Scheme) -> None:
    photos = Photos(size=16)().train.inputs
    order = torch.randperm(len(photos), generator=seeded(0, "pictures"))
    private, public, own = photos[order[:8]], photos[order[100:140]], photos[order[300:500]]
    moved = Cropping()(public, generator=seeded(0, "crops"))
    seen, members = published(scheme, private, moved, own, copies=3)
    seen = dataclasses.replace(seen, public=public)
    shares = []
    for attack in (PublicRemoval(), AlignedRemoval()):
        found = attack(seen, generator=seeded(0, "attack"))
        assert found.inputs is not None
        assert found.decoding is not None
        assert found.decoding.public is not None
        assert found.inputs.shape == found.decoding.demasked.shape == seen.encoded.images.shape
        shares.append(float(hit_members(found.decoding.public, members).double().mean()))
    assert shares[1] > shares[0] + 0.2
    assert "162 crops" in AlignedRemoval().alignment
