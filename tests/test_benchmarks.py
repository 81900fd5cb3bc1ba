"""That the benchmarks measure what they say: the 2020 method is the published one, memory and statistics are right."""

from __future__ import annotations

import importlib
import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from leakgauge.attacks.matching import AnisotropicTotalVariation, Cosine, SignedAdam, StepDecay
from leakgauge.errors import InvalidCase
from leakgauge.models import Compact, Normalisation, build
from leakgauge.protocol import FedSGD, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
baseline, encryption, generators, labels, memory, page, quality = (
    importlib.import_module(name)
    for name in ("baseline", "encryption", "generators", "labels", "memory", "page", "quality")
)

SHAPE = (3, 8, 8)
MIB = 2**20
COLOURS = Normalisation(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))


def victim(normalisation: Normalisation = COLOURS, dtype: torch.dtype = torch.float64) -> Any:
    """A small smooth model, one private example and its gradient."""
    module = build(Compact(width=4), SHAPE, 5, seed=0, normalisation=normalisation).to(dtype)
    truth = Batch(torch.rand(1, *SHAPE, generator=seeded(0, "truth")).to(dtype), torch.tensor([2]))
    learner, state = learner_and_state(module)
    return module, truth, FedSGD().compute(learner, state, truth)


def normalised(images: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(x, dtype=images.dtype).reshape(-1, 1, 1) for x in (COLOURS.mean, COLOURS.std))
    return (images - mean) / std


# The 2020 method.


def test_every_step_of_the_baseline_is_signed_adam_on_cosine_plus_total_variation_in_normalised_pixels():
    steps, tv = 16, 0.3
    module, truth, observed = victim(Normalisation.natural(3))
    start = torch.randn(1, *SHAPE, generator=seeded(0, "start"), dtype=torch.float64)
    running = baseline.Baseline(
        module, observed, truth.labels, start, mean=(0.5,) * 3, std=(0.25,) * 3, tv=tv, steps=steps
    )
    # The same from the package's own parts, on a model that does not normalise.
    learner, state = learner_and_state(baseline.without_normalisation(module))
    adam, prior = SignedAdam(learning_rate=0.1, schedule=StepDecay()), AnisotropicTotalVariation(tv)
    moments = adam.start(start[None], (-2.0, 2.0))
    for step in range(steps):
        leaf = moments.candidate.clone().requires_grad_()
        loss = Cosine()(learner.gradient(state, Batch(leaf[0], truth.labels)), observed) + prior(leaf).sum()
        assert float(running.loss().detach()) == pytest.approx(float(loss.detach()), abs=1e-12)
        running.step()
        moments = adam.advance(moments, loss.detach(), torch.autograd.grad(loss, leaf)[0], step / steps)
        assert torch.allclose(running.candidate, moments.candidate[0], atol=1e-10)


def test_the_learning_rate_falls_tenfold_after_three_five_and_seven_eighths_of_the_steps():
    module, truth, observed = victim()
    running = baseline.Baseline(module, observed, truth.labels, truth.images, mean=(0,), std=(1,), tv=0.0, steps=8)
    rates = []
    for _ in range(8):
        rates.append(running.optimiser.param_groups[0]["lr"])
        running.step()
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.0001])


def test_the_private_image_matches_its_own_gradient_although_the_model_no_longer_normalises():
    module, truth, observed = victim()
    running = baseline.Baseline(
        module, observed, truth.labels, normalised(truth.images), mean=COLOURS.mean, std=COLOURS.std, tv=0.0
    )
    assert abs(float(running.loss().detach())) < 1e-12
    assert torch.allclose(running.images(), truth.images)


def test_a_step_ends_in_the_box_of_black_and_white_of_each_channel():
    module, truth, observed = victim()
    start = torch.tensor([100.0, -100.0], dtype=torch.float64).repeat(3 * 8 * 4).reshape(1, *SHAPE)
    running = baseline.Baseline(module, observed, truth.labels, start, mean=COLOURS.mean, std=COLOURS.std, tv=0.0)
    running.step()
    assert torch.allclose(running.candidate, normalised((start > 0).double()))


def test_the_baseline_computes_second_order_gradients_of_all_parameters_but_leaves_the_callers_model_alone():
    module, truth, observed = victim()
    module.train()
    step = baseline.make_step(module, truth.images, truth.labels, observed, 0.1)
    step()
    assert all(p.grad is not None for p in step.__self__.module.parameters())
    assert not any(layer.training for layer in step.__self__.module.modules())
    assert all(p.grad is None for p in module.parameters())
    assert module.training
    mean, std = baseline.normalisation(module)
    assert (*mean, *std) == pytest.approx((*COLOURS.mean, *COLOURS.std))


def test_inversion_returns_the_last_iterate_from_a_standard_normal_start():
    module, truth, observed = victim()
    settings = {"mean": COLOURS.mean, "std": COLOURS.std, "tv": 0.01, "steps": 3}
    start = torch.randn(1, *SHAPE, generator=seeded(5)).double()
    running = baseline.Baseline(module, observed, truth.labels, start, **settings)
    for _ in range(3):
        running.step()
    images = baseline.invert(module, observed, truth.labels, SHAPE, generator=seeded(5), **settings)
    assert torch.equal(images, running.images())


def test_the_baseline_recovers_an_image_of_a_small_smooth_model():
    module, truth, observed = victim(dtype=torch.float32)
    images = baseline.invert(
        module,
        observed,
        truth.labels,
        SHAPE,
        mean=COLOURS.mean,
        std=COLOURS.std,
        tv=0.0,
        steps=500,
        generator=seeded(0, "attack"),
    )
    assert quality.psnr(images, truth.images[0].numpy()) > 20


def test_the_number_of_steps_is_the_budget_over_the_cpu_time_of_one():
    def spin() -> None:
        started = time.process_time()
        while time.process_time() - started < 0.004:
            pass

    assert 80 <= baseline.steps_within(0.4, spin) <= 100
    assert baseline.steps_within(1e-9, spin) == 1


def test_a_budget_in_seconds_is_spent_and_one_in_both_units_is_refused():
    module, truth, observed = victim(dtype=torch.float32)
    settings: dict[str, Any] = {"mean": COLOURS.mean, "std": COLOURS.std, "tv": 0.0, "generator": seeded(0)}
    started = time.process_time()
    baseline.invert(module, observed, truth.labels, SHAPE, seconds=0.2, **settings)
    assert 0.1 < time.process_time() - started < 2
    with pytest.raises(InvalidCase, match="pass one of them"):
        baseline.invert(module, observed, truth.labels, SHAPE, seconds=1.0, steps=1, **settings)


# Memory.


def test_three_live_tensors_of_four_mebibytes_peak_at_twelve():
    assert memory.peak_memory(lambda: [torch.empty(MIB) for _ in range(3)]) == 12 * MIB


def test_tensors_released_in_turn_peak_at_one_of_them():
    def run() -> None:
        for _ in range(3):
            torch.empty(MIB)

    assert memory.peak_memory(run) == 4 * MIB


def test_what_an_operation_allocates_inside_itself_counts():
    values = torch.zeros(MIB)
    assert (
        memory.peak_memory(lambda: values.logsumexp(0)) >= 4 * MIB
    )  # exp(x) of the size of x, for a result of 4 bytes


def test_releasing_what_was_alive_before_does_not_hide_what_is_allocated():
    held = {}
    assert memory.peak_memory(lambda: held.update(one=torch.empty(2 * MIB))) == 8 * MIB

    def replace() -> None:
        held.clear()
        held["one"] = torch.empty(MIB)

    assert memory.peak_memory(replace) == 4 * MIB


def test_a_reused_address_counts_once_and_an_unknown_release_not_at_all():
    assert memory.peak_of([(1, 5), (9, -70), (2, 5), (1, -5), (1, 4)]) == 10


# Quality.


def row(method: str, image: int, psnr: float | None, *, null: bool = False, other: float = 9.0) -> dict[str, Any]:
    return {
        "method": method,
        "image": image,
        "null": null,
        "psnr": psnr,
        "psnr_to_next_image": other,
        "cpu_seconds": 2.0,
        "steps": 7,
    }


def run(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = quality.main(["--model", "lenet", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


# So short that the 2020 method makes its one obligatory step, whatever the machine.
INSTANT = ("--seconds", 1e-9, "--method", "baseline")


def test_the_paired_difference_is_over_images_both_methods_solved_with_students_interval():
    ours, theirs = [20.0, 26.0, 23.0, 30.0], [11.0, 15.0, 16.0, 31.0]
    rows = [row("best", i, x) for i, x in enumerate(ours)] + [row("baseline", i, x) for i, x in enumerate(theirs)]
    rows += [row("best", 8, 99.0), row("baseline", 9, 1.0), row("best", 9, None)]
    paired = quality.summary_of(rows)["best - baseline"]
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert paired["interval_95"] == pytest.approx([expected.low, expected.high], abs=1e-4)
    assert (paired["mean"], paired["median"], paired["smallest"]) == (6.5, 8.0, -1.0)
    assert (paired["images"], paired["images_won"]) == (4, 3)


def test_a_method_is_summarised_by_mean_spread_median_and_its_worst_image_and_missing_results_are_counted():
    rows = [row("best", 4, 30.0), row("best", 5, 10.0, other=7.0), row("best", 6, None), row("best", 7, 14.0)]
    rows += [row("best", 4, 8.0, null=True), row("best", 5, 9.0, null=True)]
    summary = quality.summary_of(rows)
    assert summary["best"] == {
        "images": 4,
        "without_result": 1,
        "cpu_seconds": 2.0,
        "steps": 7.0,
        "mean": 18.0,
        "std": pytest.approx(112**0.5, abs=1e-4),
        "median": 14.0,
        "worst": {"image": 5, "psnr": 10.0},
        "mean_to_next_image": pytest.approx(25 / 3, abs=1e-4),
    }
    assert summary["unrelated gradient"] == {"images": 2, "mean": 8.5}
    assert "best - baseline" not in summary


def test_one_image_has_no_interval_rather_than_an_interval_of_zero():
    summary = quality.summary_of([row("best", 0, 20.0), row("baseline", 0, 10.0)])
    assert summary["best - baseline"]["interval_95"] == [None, None]
    assert summary["best"]["std"] is None


def test_neighbouring_photographs_and_the_gradients_of_nulls_are_of_other_pictures():
    victims = quality.load_victims(None)
    labels = victims.batch.labels.tolist()
    assert "not CIFAR-10" in victims.name
    # Later on only the photographs with the most crops are left.
    assert all(one != other for one, other in pairwise(labels[:200]))
    tasks = quality.plan(victims, ("baseline", "best"), model="lenet", seconds=1.0, first=100, images=4, nulls=3)
    assert [task.key for task in tasks if task.null] == [("best", 100, True), ("best", 101, True), ("best", 102, True)]
    assert len(tasks) == 2 * 4 + 3
    for task in tasks:
        assert (task.observed == task.victim).all() != task.null
        assert not (task.neighbour == task.victim).all()


def test_images_beyond_the_test_split_are_refused_in_one_sentence(capsys):
    code, _, err = run(*INSTANT, "--first", 440, "--images", 20, capsys=capsys)
    assert code == 2
    assert err == (
        "Images 440 to 459 were asked for, but the embedded photographs, not CIFAR-10 are numbered 0 to 447; "
        "choose --first and --images within them.\n"
    )


@pytest.fixture(scope="module")
def two_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result for two images, the second of which was attacked in a worker."""
    out = tmp_path_factory.mktemp("quality") / "result.json"
    for images in ("1", "2"):
        assert quality.main([*map(str, INSTANT), "--images", images, "--workers", images, "--out", str(out)]) == 0
    return out


def test_a_worker_gives_the_row_of_this_process(two_images, capsys):
    code, out, _ = run(*INSTANT, "--images", 2, "--json", capsys=capsys)
    assert code == 0
    here, there = json.loads(out), json.loads(two_images.read_text())
    assert here["setting"] == there["setting"]
    assert [one["image"] for one in here["rows"]] == [100, 101]
    for one, other in zip(here["rows"], there["rows"], strict=True):
        assert one["steps"] == other["steps"] == 1
        assert (one["psnr"], one["psnr_to_next_image"]) == (other["psnr"], other["psnr_to_next_image"])


def test_a_stopped_run_continues_and_names_every_command_but_no_folder(two_images, tmp_path, capsys):
    stored = json.loads(two_images.read_text())
    path = tmp_path / "result.json"
    path.write_text(json.dumps(stored | {"rows": stored["rows"][1:]}))
    code, out, err = run(*INSTANT, "--images", 3, "--out", path, capsys=capsys)
    assert code == 0
    assert err.startswith("1 of 3 attacks were done before\n1/2 baseline, image 100: ")
    continued = json.loads(path.read_text())
    assert [one["image"] for one in continued["rows"]] == [100, 101, 102]
    assert continued["rows"][1] == stored["rows"][1]
    assert continued["rows"][0]["psnr"] == stored["rows"][0]["psnr"]
    assert continued["summary"]["baseline"]["images"] == 3
    assert continued["commands"][:2] == stored["commands"]
    assert len(continued["commands"]) == 3
    assert str(tmp_path) not in path.read_text()
    assert out.startswith("lenet, embedded photographs, not CIFAR-10, 1e-09 CPU seconds per image, PSNR in dB\n")


def test_results_of_another_setting_or_another_attack_or_another_file_are_not_mixed_in(two_images, tmp_path, capsys):
    path = tmp_path / "result.json"
    path.write_text(two_images.read_text())
    code, _, err = run("--seconds", 1, "--method", "baseline", "--out", path, capsys=capsys)
    assert (code, err) == (2, f"{path} holds results with cpu_seconds 1e-09, not 1.0; choose another --out.\n")
    path.write_text(two_images.read_text().replace("tv=0.01", "tv=0.5"))
    code, _, err = run(*INSTANT, "--out", path, capsys=capsys)
    assert code == 2
    assert "tv=0.5, but baseline is now Inverting Gradients (2020), tv=0.01; choose another --out." in err
    path.write_text("[]")
    code, _, err = run(*INSTANT, "--out", path, capsys=capsys)
    assert (code, err) == (2, f"{path} is not a result of this benchmark; choose another --out.\n")


def test_a_baseline_that_was_given_too_few_steps_for_its_seconds_runs_again_with_more(monkeypatch):
    def careless(seconds: float, step: Any) -> int:
        for _ in range(3):
            step()
        return 1

    monkeypatch.setattr(baseline, "steps_within", careless)
    victims = quality.load_victims(None)
    (task,) = quality.plan(victims, ("baseline",), model="lenet", seconds=0.3, first=100, images=1, nulls=0)
    result = quality.solve(task)
    assert result["facts"]["attempts"] > 1
    assert result["steps"] > 5
    assert result["cpu_seconds"] > 0.15


def test_our_best_recipe_is_compared_with_the_baseline_and_its_null(tmp_path, capsys):
    code, out, _ = run("--seconds", 0.3, "--images", 2, "--nulls", 1, "--json", capsys=capsys)
    assert code == 0
    result = json.loads(out)
    assert [(one["method"], one["image"], one["null"]) for one in result["rows"]] == [
        ("baseline", 100, False),
        ("best", 100, False),
        ("baseline", 101, False),
        ("best", 101, False),
        ("best", 100, True),
    ]
    assert result["summary"]["best - baseline"]["images"] == 2
    assert all(one["steps"] > 1 and 0 < one["cpu_seconds"] < 3 for one in result["rows"])


# Labels.


def test_both_rules_are_timed_on_heads_whose_labels_they_restore(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)  # other tests count on one
    out = tmp_path / "labels.json"
    sizes = ["--classes", "10", "50", "--examples", "64", "--features", "48"]
    labels.main([*sizes, "--rounds", "1", "--json", "--out", str(out)])
    printed, _ = capsys.readouterr()
    result = json.loads(printed)
    assert result == json.loads(out.read_text())
    assert result["command"] == (
        "python benchmarks/labels.py --classes 10 50 --examples 64 --features 48 --rounds 1 --threads 2"
    )
    assert [(row["rule"], row["classes"]) for row in result["rows"]] == [
        ("ILRG", 10),
        ("Alternating", 10),
        ("ILRG", 50),
        ("Alternating", 50),
    ]
    for row in result["rows"]:
        assert (row["examples"], row["features"], row["recall"]) == (64, 48, 1.0)
        assert min(row["estimate_ms"], row["restore_ms"]) > 0


def test_the_default_command_names_no_sizes_and_the_table_shows_every_row(capsys, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    for name, size in (("CLASSES", (5,)), ("EXAMPLES", (8,)), ("FEATURES", (16,))):
        monkeypatch.setattr(labels, name, size)
    labels.main(["--rounds", "1"])
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["rule", "classes", "examples", "features"]
    assert [row.split()[:4] for row in rows] == [[rule, "5", "8", "16"] for rule in ("ILRG", "Alternating")]
    labels.main(["--rounds", "1", "--json"])
    assert json.loads(capsys.readouterr().out)["command"] == "python benchmarks/labels.py --rounds 1 --threads 2"


def test_the_update_that_is_timed_is_a_clients_and_does_not_hold_its_labels():
    seen, true = labels.prepare(7, 20, 12)
    assert seen.labels is None
    assert (seen.num_examples, len(true)) == (20, 20)
    assert {tuple(tensor.shape) for tensor in seen.update.params.values()} == {(7, 12), (7,)}
    again, same = labels.prepare(7, 20, 12)
    assert torch.equal(true, same)
    assert all(torch.equal(tensor, again.update.params[name]) for name, tensor in seen.update.params.items())


# The page of results.


def test_the_page_of_results_is_what_the_result_files_say():
    assert page.PAGE.read_text("utf-8") == page.render(page.load()), "run `python benchmarks/page.py`"


def test_every_result_names_the_command_that_made_it_and_no_folder_of_a_machine():
    for name, result in page.load().items():
        commands = result.get("commands") or [result.get("command_line") or result["command"]]
        assert all("reproduce" in one or "benchmarks/" in one or "tradeoff" in one for one in commands), name
        text = json.dumps(result)
        assert not any(place in text for place in ("/home/", "/tmp/", "/root/", "/Users/", "unknown")), name


def a_result(**more):
    """A reproduction of one row in which nothing was measured."""
    nothing = {"mean": None, "deviation": None, "best": None}
    row = {
        "label": "a row",
        "published": None,
        "also_published": {},
        "ours": {"psnr": nothing},
        "null": {"psnr": nothing},
        "training": None,
        "steps": None,
        "updates": [],
        "seconds_per_update": 1.0,
    }
    command = "leakgauge reproduce x/y"
    return {"experiment": "x/y", "title": "T", "command": command, "notes": [], "rows": [row], **more}


def test_the_page_shows_a_missing_number_as_a_dash_never_as_zero():
    assert "| a row | – | – | 0 | – | 1 |" in page.render({"x.json": a_result()})


def test_the_page_shows_who_leads_each_cell_in_bold_where_ahead_of_all():
    won = {"first": "a", "second": "b", "difference": 1.25, "deviation": 0.5, "ahead": True}
    close = {"first": "b", "second": "a", "difference": 0.1, "deviation": None, "ahead": False}
    verdict = {"cells": [{"cell": "one", "psnr": won, "ssim": close}]}
    assert "| one | **a** +1.2 ± 0.5 (b) | b +0.1 (a) |" in page.render({"x.json": a_result(verdict=verdict)})
    assert "Who leads" not in page.render({"x.json": a_result()})


def test_the_page_shows_the_pictures_that_lie_beside_a_result(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    assert "![" not in page.render({"x.json": a_result()})
    (tmp_path / "x.png").write_bytes(b"")
    assert "](../benchmarks/results/x.png)" in page.render({"x.json": a_result()})


# Encryption.


def test_the_loop_and_the_vectorised_encryption_make_the_same_encodings(tmp_path, capsys):
    file = tmp_path / "encryption.json"
    words = ["--images", "40", "--loop", "5", "--rounds", "1", "--threads", "1", "--patches", "0", "--no-training"]
    encryption.main([*words, "--out", str(file)])
    result = json.loads(file.read_text())
    assert result["command"].endswith("--rounds 1 --threads 1 --no-training")
    loops = [row for row in result["rows"] if row["what"].startswith("loop")]
    assert [row["measured_on"] for row in loops] == [5, 5]
    assert all(row["difference"] < 1e-6 for row in loops)
    assert "times_slower" in capsys.readouterr().out


# Generators.


def test_the_benchmark_of_generators_keeps_speed_and_memory_and_a_checkpointed_one_needs_less(tmp_path):
    file, model = tmp_path / "generators.json", "lenet:width=2,batch_norm=True"
    generators.main(["--batches", "64", "128", "--model", model, "--size", "8", "--rounds", "1", "--out", str(file)])
    rows = {(row["space"], row["batch_size"]): row for row in json.loads(file.read_text())["rows"]}
    assert len(rows) == 6
    assert all(row["steps_per_second"] > 0 for row in rows.values())
    for batch in (64, 128):
        kept = rows["generator", batch]["peak_mib"]
        assert rows["generator, checkpointed", batch]["peak_mib"] < 0.8 * kept
    assert rows["generator", 128]["peak_mib"] <= 2 * rows["generator", 64]["peak_mib"]
