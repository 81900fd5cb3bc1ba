"""What the clients train, and on what: embedded photographs, nothing is fetched."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.data import Photos
from leakgauge.integrations.flower import DeclaredClient
from leakgauge.models import Compact, build
from leakgauge.types import Batch

RATE = 0.01
PHOTOS = Photos()(None)


def model() -> nn.Module:
    return build(Compact(width=16), PHOTOS.space.shape, PHOTOS.num_classes, seed=0)


def private_batch(partition: int) -> Batch:
    """The photograph of a client."""
    return PHOTOS.test[torch.tensor(PHOTOS.highlights[partition : partition + 1])]


def train(state: dict[str, torch.Tensor], batch: Batch) -> dict[str, torch.Tensor]:
    """One step of SGD, as a client would make it without knowing of LeakGauge."""
    net = model()
    net.load_state_dict(state)
    optimiser = torch.optim.SGD(net.parameters(), lr=RATE)
    cross_entropy(net(batch.inputs), batch.labels).backward()
    optimiser.step()
    return net.state_dict()


def declared(defence: str) -> DeclaredClient:
    """What an attacker knows of these clients."""
    client = f"fedavg:epochs=1,batch_size=1,learning_rate={RATE}"
    return DeclaredClient(PHOTOS.space, local_update=client, defence=defence)
