"""Flower's messages as LeakGauge has them: named tensors, examples, rounds."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message, MessageType
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.types import ParamTree

LOG = logging.getLogger("flwr")
"""Where Flower itself logs."""

EXAMPLES = "num-examples"
"""How Flower's strategies call the number of examples in a client's metrics, unless told otherwise."""


def is_training(message: Message) -> bool:
    """Whether a client is asked to train; an app may name several kinds of it, such as "train.head"."""
    return message.metadata.message_type.partition(".")[0] == MessageType.TRAIN


def only_arrays(message: Message) -> tuple[str, ArrayRecord]:
    """The one record of arrays in a message, and its key."""
    records = message.content.array_records
    if len(records) != 1:
        raise InvalidCase(
            f"A message holds {len(records)} records of arrays, so that the model's cannot be told from the others; "
            "send the model in the only ArrayRecord."
        )
    return next(iter(records.items()))


def read_arrays(record: ArrayRecord, names: Sequence[str] | None = None) -> dict[str, Tensor]:
    """Arrays as tensors of their own memory; a list without names gets ``names``, those of ``model.state_dict()``."""
    keys = list(record)
    if keys == [str(number) for number in range(len(keys))]:
        if names is None:
            raise InvalidCase(
                "The arrays are a list without names, so that parameters cannot be told from running statistics; pass "
                "names=list(model.state_dict()), or send ArrayRecord(model.state_dict())."
            )
        if len(names) != len(keys):
            raise InvalidCase(f"There are {len(keys)} arrays and {len(names)} names; name each of them, in order.")
        keys = list(names)
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in zip(keys, record.values(), strict=True)}


def write_arrays(record: ArrayRecord, tensors: ParamTree) -> ArrayRecord:
    """The tensors under the keys of a record and in its order, which is that of the tensors, each in its type there."""
    return ArrayRecord(
        {
            key: Array(tensor.detach().cpu().numpy().astype(array.dtype))
            for (key, array), tensor in zip(record.items(), tensors.values(), strict=True)
        }
    )


def count_examples(message: Message) -> int | None:
    """How many examples a client says that it trained on."""
    for metrics in message.content.metric_records.values():
        count = metrics.get(EXAMPLES)
        if isinstance(count, int | float) and count >= 1:
            return int(count)
    return None


def round_number(message: Message) -> int:
    """The server's round, which its strategies put into the configuration; 0 where they do not."""
    for config in message.content.config_records.values():
        number = config.get("server-round")
        if isinstance(number, int):
            return number
    return 0
