"""Softmax, and attention in its mathematical form: softmax(q k^T / sqrt(d) + mask) v."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from leakgauge.attacks.matching.engine.layers import Permuted, Scaled, Shifted
from leakgauge.attacks.matching.engine.layers.attention import Attention, Softmax
from leakgauge.attacks.matching.engine.layers.operations import Held, Operation
from leakgauge.attacks.matching.engine.layers.products import Combined, MatrixProduct
from leakgauge.attacks.matching.engine.reader import Reader


def softmax(reader: Reader, node: fx.Node) -> None:
    reader.write(node, Softmax(reader.arguments(node)["dim"]), reader.slot(node.args[0]))


def attention(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    query, key, value = (options[name] for name in ("query", "key", "value"))
    if options["enable_gqa"]:
        reader.refuse(node, "grouped queries")
    scale = options["scale"] or 1 / math.sqrt(reader.shape(query)[-1])
    masks = _masks(reader, node, options)
    stacks = {tuple(reader.shape(x)[:-2]) for x in (query, key, value)}
    if len(stacks) == 1 and len(masks) < 2 and not any(isinstance(mask, int) for mask in masks):
        constant = next((mask for mask in masks if isinstance(mask, str)), None)
        layer = Attention(scale, constant, tuple(reader.shape(node)))
        reader.write(node, layer, *map(reader.slot, (query, key, value)))
        return
    axes = len(reader.shape(key))
    turned = reader.append(Permuted((*range(axes - 2), axes - 1, axes - 2)), reader.slot(key))
    scaled = reader.append(Scaled(scale, divide=False), reader.slot(query))
    scores = reader.append(MatrixProduct(), scaled, turned)
    for mask in masks:
        scores = reader.append(Shifted(mask, 1.0, 1.0) if isinstance(mask, str) else Combined(1.0, 1.0), scores, *(
            () if isinstance(mask, str) else (mask,)
        ))  # fmt: skip
    weights = reader.append(Softmax(-1), scores)
    reader.write(node, MatrixProduct(), weights, reader.slot(value))


def _masks(reader: Reader, node: fx.Node, options: dict[str, Any]) -> list[str | int]:
    """What is added to the scores: names of constants, or slots."""
    masks: list[str | int] = []
    if options["is_causal"]:
        sizes = reader.shape(options["query"])[-2], reader.shape(options["key"])[-2]
        masks.append(reader.constant(causal(*sizes).to(node.meta["val"].dtype)))
    mask = options["attn_mask"]
    if mask is not None and reader.is_constant(mask):
        held = Held(str(reader.name(mask)))
        is_open = not mask.meta["val"].is_floating_point()
        masks.append(reader.constant(Operation(closed, (held,), {})) if is_open else held.name)
    elif mask is not None:
        masks.append(reader.slot(mask))
    return masks


def causal(queries: int, keys: int) -> Tensor:
    """0 for what a query may see, minus infinity for what comes after it."""
    return closed(torch.ones(queries, keys, dtype=torch.bool).tril())


def closed(is_open: Tensor) -> Tensor:
    return torch.zeros(is_open.shape, device=is_open.device).masked_fill_(~is_open, float("-inf"))


RULES = {"softmax": softmax, "_softmax": softmax, "special_softmax": softmax, "scaled_dot_product_attention": attention}
