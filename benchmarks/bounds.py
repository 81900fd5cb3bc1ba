"""Whether the attacker who knows all but one example ever beats the bound, and how near it comes.

    python benchmarks/bounds.py --out FILE           # every cell, kept as it is done; the same command goes on
    python benchmarks/bounds.py --only networks --times 50
    python benchmarks/bounds.py --out FILE --times 4000 --games 400

``worst case``: noise x sampling x rounds x crowd in the space of gradients alone, all of the clip's length and
orthogonal. ``identified`` is the attacker's success among the candidates; ``detected`` is how often it says rightly
that one candidate took part, at as many false alarms as there are blind hits. ``networks``: the same attacker against
our own DP-SGD client on real models and images, one full-batch step or rounds in which the model moves. ``at_most`` is
the bound.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch

from leakgauge.bounds import gaussian_bound
from leakgauge.bounds.game import Game, worst_case
from leakgauge.config import build_dataset
from leakgauge.defences import DPSGD
from leakgauge.files import write_text
from leakgauge.metrics import Summary
from leakgauge.protocol import FedSGD, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.training import victim_model
from leakgauge.version import VERSION

NOISES, SAMPLINGS, ROUNDS, CANDIDATES = (0.5, 1.0, 2.0, 4.0), (1.0, 0.1, 0.01), (1, 10, 100, 1000), (10, 100)
NETWORKS = (
    ("digits", "mlp:hidden=(64,)", 0),
    ("digits", "mlp:hidden=(64,)", 200),
    ("photos:size=16", "compact", 0),
    ("photos:size=16", "compact", 100),
)
_CLIP = 0.05
"""Below the length of nearly every gradient, so that all have the same."""
_REST = 3

Row = dict[str, Any]
Cell = tuple[Row, Callable[[], Row]]
"""What names a row, and what measures it."""


def worst_cases(times: int, seed: int) -> Iterator[Cell]:
    for noise, sampling, rounds, candidates in product(NOISES, SAMPLINGS, ROUNDS, CANDIDATES):
        name = {"noise": noise, "sampling": sampling, "rounds": rounds, "candidates": candidates}

        def run(name: Row = name) -> Row:
            crowd, rounds, sampling = name["candidates"] - 1, name["rounds"], name["sampling"]
            generator = seeded(seed, "worst case", *name.values())
            bound = gaussian_bound(name["noise"], crowd=crowd, rounds=rounds, sampling=sampling)
            found = worst_case(
                name["noise"], crowd=crowd, rounds=rounds, sampling=sampling, times=times, generator=generator
            )
            return {
                "at_most": bound.at_most,
                "epsilon": bound.epsilon,
                "identified": _rate(found.identified),
                "detected": _rate(found.detected),
            }

        yield {"kind": "worst case", **name}, run


def networks(games: int, seed: int) -> Iterator[Cell]:
    one_step = [
        (*network, noise, 1.0, 1, count) for network in NETWORKS for noise in NOISES[:3] for count in CANDIDATES
    ]
    rounds = [(*NETWORKS[1], 2.0, sampling, 10, 10) for sampling in (1.0, 0.1)]
    for dataset, model, steps, noise, sampling, times, candidates in [*one_step, *rounds]:
        name = {"dataset": dataset, "model": model, "train_steps": steps}
        name |= {"noise": noise, "sampling": sampling, "rounds": times, "candidates": candidates}

        def run(name: Row = name) -> Row:
            played = _game(name, seed).play(games, generator=seeded(seed, "game", *name.values()))
            return {
                "at_most": played.bound.at_most,
                "epsilon": played.bound.epsilon,
                "identified": _rate(played.identified),
                "told": [fact.to_dict() for fact in played.ledger if fact.disclosed],
            }

        yield {"kind": "network", **name}, run


def _game(name: Row, seed: int) -> Game:
    dataset = build_dataset(name["dataset"], None)
    module = victim_model(name["model"], dataset, seed=seed, steps=name["train_steps"])
    learner, state = learner_and_state(module)
    order = dataset.draw(name["candidates"] + _REST, generator=seeded(seed, "candidates"))
    candidates, rest = dataset.test[order[_REST:]], dataset.test[order[:_REST]]
    client = DPSGD(max_grad_norm=_CLIP, noise_multiplier=name["noise"])(FedSGD())
    moving = 0.1 if name["rounds"] > 1 else 0.0
    return Game(learner, state, client, candidates, rest, name["rounds"], name["sampling"], moving)


def _rate(seen: Summary) -> Row:
    return {"mean": seen.mean, "low": seen.low, "high": seen.high, "count": seen.count}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["worst-case", "networks"], help="one kind of rows")
    parser.add_argument("--times", type=int, default=4000, help="games of each cell of the worst case")
    parser.add_argument("--games", type=int, default=400, help="games of each network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="keep the rows here, and go on from those that it has")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    kinds = {"worst-case": worst_cases(options.times, options.seed), "networks": networks(options.games, options.seed)}
    cells = [cell for kind, made in kinds.items() if options.only in (None, kind) for cell in made]
    chosen = f"--times {options.times} --games {options.games} --seed {options.seed}"
    only = "" if options.only is None else f" --only {options.only}"
    setting = {"command": f"python benchmarks/bounds.py{only} {chosen}", "version": VERSION, "seed": options.seed}
    rows = _kept(options.out, setting)
    for number, (name, run) in enumerate(cells, start=1):
        if any(name.items() <= row.items() for row in rows):
            continue
        print(f"{' '.join(map(str, name.values()))} ({number} of {len(cells)}) ...", file=sys.stderr)
        began = time.process_time()
        rows.append(name | run() | {"cpu_seconds": round(time.process_time() - began, 2)})
        if options.out is not None:
            write_text(options.out, json.dumps({**setting, "rows": rows}, indent=1) + "\n")
    for row in rows:
        seen = row["identified"]
        print(
            f"{row['kind']:>10} {row['noise']:4} {row['sampling']:5} {row['rounds']:5} {row['candidates']:4}", end=" "
        )
        print(f"found {seen['mean']:.4f} ({seen['low']:.4f} to {seen['high']:.4f}), at most {row['at_most']:.4f}")


def _kept(out: Path | None, setting: Row) -> list[Row]:
    """The rows of a file that the same command began."""
    if out is None or not out.is_file():
        return []
    found = json.loads(out.read_text("utf-8"))
    return found["rows"] if {name: found[name] for name in setting} == setting else []


if __name__ == "__main__":
    main()
