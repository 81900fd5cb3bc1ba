"""Whether the attacker who knows all but one example ever beats the bound, and how near it comes.

    python benchmarks/bounds.py --out FILE           # every cell, kept as it is done; the same command goes on
    python benchmarks/bounds.py --only networks --games 50

``worst case``: noise x sampling x rounds x crowd in the space of gradients alone, all of the clip's length and
orthogonal. ``identified`` is the attacker's success among the candidates; ``detected`` is how often it says rightly
that one candidate took part, at as many false alarms as there are blind hits. ``networks``: the same attacker against
our own DP-SGD client on real models and images, one full-batch step or rounds in which the model moves. ``at_most`` is
the bound. Intervals hold for all cells at once. ``jacobian``: where no noise hides the gradient of one image, there is
no bound; its largest singular values in the image say how much it tells along the best directions, ``nearest_db`` what
noise without a clip leaves.
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
from scipy.stats import binomtest

from leakgauge.bounds import gaussian_bound
from leakgauge.bounds.fisher import error_bound, leading_singular_values, squared_jacobian, update_function
from leakgauge.bounds.game import Game, worst_case
from leakgauge.config import build_dataset
from leakgauge.data import Dataset
from leakgauge.defences import DPSGD, GaussianNoise
from leakgauge.files import write_text
from leakgauge.metrics import Summary
from leakgauge.protocol import FedSGD, Learner, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.training import victim_model
from leakgauge.types import ModelState
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
_CROWD = 99
_SURE = 0.05
_CELLS = 250
"""The chance that any of up to so many intervals misses its rate."""
_LEADING = 8

Row = dict[str, Any]
Cell = tuple[Row, Callable[[], Row]]
"""What names a row, and what measures it."""


def worst_cases(times: int, seed: int) -> Iterator[Cell]:
    for noise, sampling, rounds, candidates in product(NOISES, SAMPLINGS, ROUNDS, CANDIDATES):
        name = {"noise": noise, "sampling": sampling, "rounds": rounds, "candidates": candidates}

        def run(name: Row = name) -> Row:
            crowd, rounds, sampling = name["candidates"] - 1, name["rounds"], name["sampling"]
            # Ten times as many where a game takes no time: few rounds, or all of them in one number.
            count = 10 * times if sampling == 1 or rounds <= 10 else times
            generator = seeded(seed, "worst case", *name.values())
            bound = gaussian_bound(name["noise"], crowd=crowd, rounds=rounds, sampling=sampling)
            found = worst_case(
                name["noise"], crowd=crowd, rounds=rounds, sampling=sampling, times=count, generator=generator
            )
            return {
                "at_most": bound.at_most,
                "epsilon": bound.epsilon,
                "games": count,
                **_rate("identified", found.identified),
                **_rate("detected", found.detected),
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
            # A model that moves is differentiated anew in every round of every game.
            count = games if name["rounds"] == 1 else max(1, games // 2)
            played = _game(name, seed).play(count, generator=seeded(seed, "game", *name.values()))
            return {
                "at_most": played.bound.at_most,
                "epsilon": played.bound.epsilon,
                "games": count,
                **_rate("identified", played.identified),
            }

        yield {"kind": "network", **name}, run


def _model(name: Row, seed: int) -> tuple[Dataset, Learner, ModelState]:
    dataset = build_dataset(name["dataset"], None)
    module = victim_model(name["model"], dataset, seed=seed, steps=name["train_steps"])
    return dataset, *learner_and_state(module)


def _game(name: Row, seed: int) -> Game:
    dataset, learner, state = _model(name, seed)
    order = dataset.draw(name["candidates"] + _REST, generator=seeded(seed, "candidates"))
    candidates, rest = dataset.test[order[_REST:]], dataset.test[order[:_REST]]
    client = DPSGD(max_grad_norm=_CLIP, noise_multiplier=name["noise"])(FedSGD())
    moving = 0.1 if name["rounds"] > 1 else 0.0
    return Game(learner, state, client, candidates, rest, name["rounds"], name["sampling"], moving)


def jacobians(seed: int) -> Iterator[Cell]:
    for dataset, model, steps in NETWORKS:
        name = {"dataset": dataset, "model": model, "train_steps": steps}

        def run(name: Row = name) -> Row:
            data, learner, state = _model(name, seed)
            order = data.draw(_CROWD + 1, generator=seeded(seed, "candidates"))
            image, crowd = data.test[order[:1]], data.test[order[1:]].inputs
            update = update_function(FedSGD(), learner, state, image)
            found = leading_singular_values(update, image.inputs, _LEADING, seeded(seed, "basis"))
            squares = squared_jacobian(update, image.inputs, 32, seeded(seed, "probes"))
            row = {"largest": float(found[0]), "eighth": float(found[-1])}
            row["share_of_eight"] = float(found.square().sum()) / squares
            for std in (0.001, 0.01, 0.1):
                client = GaussianNoise(std)(FedSGD())
                bound = error_bound(client, learner, state, image, crowd, generator=seeded(seed, "probes"))
                row[f"nearest_db_at_{std:g}"] = bound.informed_decibels
            return row

        yield {"kind": "jacobian", **name}, run


def _rate(name: str, seen: Summary) -> Row:
    """A success rate with an interval that holds for all cells at once."""
    hits = round(seen.mean * seen.count)
    low, high = binomtest(hits, seen.count).proportion_ci(1 - _SURE / _CELLS, method="wilson")
    return {name: seen.mean, f"{name}_low": float(low), f"{name}_high": float(high)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["worst-case", "networks", "jacobians"], help="one kind of rows")
    parser.add_argument("--times", type=int, default=2000, help="games of each cell of the worst case")
    parser.add_argument("--games", type=int, default=200, help="games of each network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="keep the rows here, and go on from those that it has")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    kinds = {
        "worst-case": worst_cases(options.times, options.seed),
        "networks": networks(options.games, options.seed),
        "jacobians": jacobians(options.seed),
    }
    cells = [cell for kind, made in kinds.items() if options.only in (None, kind) for cell in made]
    chosen = f"--times {options.times} --games {options.games} --seed {options.seed}"
    # One kind of rows is a part of the whole, which the same file takes up.
    setting = {"command": f"python benchmarks/bounds.py {chosen}", "version": VERSION, "seed": options.seed}
    rows = _kept(options.out, setting)
    for number, (name, run) in enumerate(cells, start=1):
        if any(name.items() <= row.items() for row in rows):
            continue
        print(f"{' '.join(map(str, name.values()))} ({number} of {len(cells)}) ...", file=sys.stderr)
        began = time.process_time()
        rows.append(name | run() | {"cpu_seconds": round(time.process_time() - began, 2)})
        if options.out is not None:
            rows = _in_order(rows, cells)
            write_text(options.out, json.dumps({**setting, "rows": rows}, indent=1) + "\n")
    for row in (one for one in rows if "identified" in one):
        print(
            f"{row['kind']:>10} {row['noise']:4} {row['sampling']:5} {row['rounds']:5} {row['candidates']:4}", end=" "
        )
        interval = f"({row['identified_low']:.4f} to {row['identified_high']:.4f})"
        print(f"found {row['identified']:.4f} {interval}, at most {row['at_most']:.4f}")


def _in_order(rows: list[Row], cells: Sequence[Cell]) -> list[Row]:
    """The rows as the cells come, whenever they were made; those of other cells first."""
    places = {json.dumps(name): place for place, (name, _) in enumerate(cells)}
    return sorted(rows, key=lambda row: max((at for name, at in places.items() if _is(row, name)), default=-1))


def _is(row: Row, name: str) -> bool:
    return json.loads(name).items() <= row.items()


def _kept(out: Path | None, setting: Row) -> list[Row]:
    """The rows of a file that the same command began."""
    if out is None or not out.is_file():
        return []
    found = json.loads(out.read_text("utf-8"))
    return found["rows"] if {name: found[name] for name in setting} == setting else []


if __name__ == "__main__":
    main()
