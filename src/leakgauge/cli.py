"""The command line: thin, so that everything it does can be done from Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import click
import typer
from rich.console import Console, RenderableType
from rich.table import Table

from leakgauge.errors import InvalidCase, LeakGaugeError
from leakgauge.version import VERSION

app = typer.Typer(
    help="Measure what a federated-learning update gives away, and which defence stops it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder for results and the report.")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of data, client and attack.")]
BudgetOption = Annotated[str | None, typer.Option("--budget", help="Work of each attack: quick, standard or deep.")]
SecondsOption = Annotated[float | None, typer.Option("--seconds", help="Seconds of each attack.")]
LimitOption = Annotated[
    list[str] | None,
    typer.Option("--fail-above", help="metric=limit; exit with 1 when any row leaks more, e.g. identification=0.5."),
]


@app.command()
def audit(
    config: Annotated[Path | None, typer.Argument(help="A .toml or .json plan; options override it.")] = None,
    dataset: Annotated[str | None, typer.Option(help="photos, digits, cifar10, npz:file='x.npz', ...")] = None,
    data_root: Annotated[str | None, typer.Option(help="Folder that holds the dataset's files.")] = None,
    model: Annotated[str | None, typer.Option(help="A catalogue model, or package.module:factory.")] = None,
    state: Annotated[str | None, typer.Option(help="Weights of the model, as .safetensors.")] = None,
    train_steps: Annotated[int | None, typer.Option(help="Train the model this much first.")] = None,
    mode: Annotated[str | None, typer.Option(help="The client's mode: eval or train (BatchNorm, dropout).")] = None,
    local_update: Annotated[str | None, typer.Option(help="fedsgd, or fedavg:epochs=1,batch_size=2,...")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Private images per update.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How many updates, each of other images.")] = None,
    defence: Annotated[list[str] | None, typer.Option(help="Repeatable; join with + to combine.")] = None,
    attack: Annotated[list[str] | None, typer.Option(help="Repeatable.")] = None,
    threat_model: Annotated[str | None, typer.Option(help="What the attacker knows; see `leakgauge list`.")] = None,
    budget: BudgetOption = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps of each attack.")] = None,
    seconds: SecondsOption = None,
    distractors: Annotated[int | None, typer.Option(help="Size of the crowd an original is picked from.")] = None,
    weights: Annotated[str | None, typer.Option(help="Folder with LPIPS weights (or LEAKGAUGE_WEIGHTS).")] = None,
    seed: SeedOption = None,
    out: OutOption = Path("report"),
    fail_above: LimitOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Audit one client: attack its update undefended and defended, and report what came back.

    Without arguments it audits the embedded example.
    """
    from leakgauge.audit.api import execute
    from leakgauge.audit.plan import Plan, prepare
    from leakgauge.audit.store import check_reachable
    from leakgauge.config import from_mapping, load_config
    from leakgauge.report.progress import case_progress, training_progress

    limits = _limits(fail_above)
    plan = from_mapping(Plan, {} if config is None else load_config(config), source="plan")
    options: dict[str, Any] = {
        "dataset": dataset,
        "data_root": data_root,
        "model": model,
        "state": state,
        "train_steps": train_steps,
        "mode": mode,
        "local_update": local_update,
        "batch_size": batch_size,
        "rounds": rounds,
        "defences": None if not defence else tuple(defence),
        "attacks": None if not attack else tuple(attack),
        "threat_model": threat_model,
        "budget": budget,
        "steps": steps,
        "seconds": seconds,
        "distractors": distractors,
        "weights": weights,
        "seed": seed,
    }
    if budget is not None:
        # Asked for here, it is not to be cut short by what the file says.
        plan = replace(plan, steps=None, seconds=None)
    plan = replace(plan, **{name: value for name, value in options.items() if value is not None})
    check_reachable(out)
    console = _console()
    with training_progress(console) as train_step:
        prepared = prepare(plan, train_step)
    _check_limits(limits, prepared)
    with case_progress(console, prepared.cases) as progress_of:
        result = execute(prepared.cases, prepared.metrics, prepared.description, out, progress_of)
    _finish(result, out, limits, as_json, "audit")


@app.command()
def invert(
    file: Annotated[Path, typer.Argument(help="A recorded round, as .safetensors.")],
    model: Annotated[str, typer.Option(help="package.module:factory of the model the update belongs to.")],
    attack: Annotated[str, typer.Option(help="The attack to run.")] = "quasi_newton",
    budget: BudgetOption = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    seconds: SecondsOption = None,
    truth: Annotated[
        Path | None, typer.Option(help=".npz with the private `images` and `labels`, to score what came back.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Folder with LPIPS weights (or LEAKGAUGE_WEIGHTS).")] = None,
    seed: SeedOption = None,
    out: OutOption = Path("inverted"),
    fail_above: LimitOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Attack a recorded update that nobody simulated here; write the recovered images and a report."""
    from leakgauge.audit.api import execute
    from leakgauge.audit.inversion import Inversion, prepare_inversion
    from leakgauge.audit.store import check_reachable
    from leakgauge.report.images import write_images
    from leakgauge.report.progress import case_progress

    limits = _limits(fail_above)
    check_reachable(out)
    prepared = prepare_inversion(
        Inversion(
            file=str(file),
            model=model,
            attack=attack,
            budget=budget,
            steps=steps,
            seconds=seconds,
            truth=None if truth is None else str(truth),
            weights=weights,
            seed=seed or 0,
        )
    )
    _check_limits(limits, prepared)
    console = _console()
    with case_progress(console, prepared.cases) as progress_of:
        result = execute(prepared.cases, prepared.metrics, prepared.description, out, progress_of)
    for row in result.rows:
        for record in row.records:
            write_images(record.pictures.reconstructions, out)
    _finish(result, out, limits, as_json, "invert")


@app.command()
def labels(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recorded rounds, as .safetensors.")],
    model: Annotated[str, typer.Option(help="package.module:factory of the model the updates belong to.")],
    method: Annotated[list[str] | None, typer.Option(help="Repeatable; a label attack of `leakgauge list`.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per update, where a file does not say.")] = None,
    truth: Annotated[
        list[Path] | None, typer.Option(help=".npz with private `images` and `labels`; once per FILE, in order.")
    ] = None,
    seed: SeedOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results and a report; without it, none.")] = None,
    fail_above: LimitOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Restore the labels of recorded updates: which classes a client trained on, and how often."""
    from leakgauge.audit.api import execute
    from leakgauge.audit.restoration import DEFAULT_METHOD, Restoration, prepare_restoration
    from leakgauge.audit.store import check_reachable
    from leakgauge.report.labels import tables
    from leakgauge.report.progress import case_progress

    limits = _limits(fail_above)
    if out is not None:
        check_reachable(out)
    prepared = prepare_restoration(
        Restoration(
            files=tuple(map(str, files)),
            model=model,
            methods=tuple(method or (DEFAULT_METHOD,)),
            batch_size=batch_size,
            truths=tuple(map(str, truth or ())),
            seed=seed or 0,
        )
    )
    _check_limits(limits, prepared)
    with case_progress(_console(), prepared.cases) as progress_of:
        result = execute(prepared.cases, prepared.metrics, prepared.description, out, progress_of)
    _finish(result, out, limits, as_json, "labels", tables)


@app.command()
def train(
    dataset: Annotated[str | None, typer.Option(help="photos, digits, cifar10, npz:file='x.npz', ...")] = None,
    data_root: Annotated[str | None, typer.Option(help="Folder that holds the dataset's files.")] = None,
    model: Annotated[str | None, typer.Option(help="A catalogue model, or package.module:factory.")] = None,
    state: Annotated[str | None, typer.Option(help="First weights of the model, as .safetensors.")] = None,
    defence: Annotated[str | None, typer.Option(help="What every update passes through; join with +.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="short (seconds), or huang2021 (200 epochs, as published).")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps, instead of the recipe's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs, instead of the recipe's.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate at the start.")] = None,
    schedule: Annotated[str | None, typer.Option(help="constant, step:every=0.25,by=0.1 or cosine.")] = None,
    seed: SeedOption = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for checkpoints and the trained weights.")] = Path(
        "trained"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Train a model under a defence: its accuracy, and the time that the defence costs.

    Stopped, the same command goes on where it was. `model.safetensors` is what `audit --state` reads.
    """
    from leakgauge.audit.store import check_reachable
    from leakgauge.files import write_tensors, write_text
    from leakgauge.report.progress import training_progress
    from leakgauge.tradeoff.training import TrainingPlan, prepare_training, run_training

    options: dict[str, Any] = {
        "dataset": dataset,
        "data_root": data_root,
        "model": model,
        "state": state,
        "defence": defence,
        "recipe": recipe,
        "steps": steps,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "schedule": schedule,
        "seed": seed,
    }
    plan = TrainingPlan(**{name: value for name, value in options.items() if value is not None})
    check_reachable(out)
    with training_progress(_console()) as progress:
        prepared = prepare_training(plan)
        try:
            trained = run_training(prepared, out, progress)
        except KeyboardInterrupt:
            _stopped_early()
    write_tensors(out / "model.safetensors", trained.weights())
    row = trained.to_dict()
    write_text(out / "training.json", json.dumps({"seed": plan.seed, **row}, indent=2, allow_nan=False) + "\n")
    if as_json:
        _print_json("train", plan.seed, [row])
        return
    from leakgauge.report.tradeoff_words import utility

    Console().print(f"[bold]{_escape(utility(trained))}[/]", soft_wrap=True)
    Console().print(f"Weights: [bold]{_escape(str((out / 'model.safetensors').resolve()))}[/]", soft_wrap=True)


@app.command()
def tradeoff(
    config: Annotated[
        Path | None, typer.Argument(help="A .toml or .json plan; without it, the embedded example.")
    ] = None,
    seed: SeedOption = None,
    out: OutOption = Path("tradeoff"),
    as_json: JsonFlag = False,
) -> None:
    """Train and attack under every defence: the table of accuracy, time and leakage, and the cheapest that will do.

    Stopped, the same command goes on where it was.
    """
    from leakgauge.audit.store import check_reachable
    from leakgauge.config import from_mapping, load_config
    from leakgauge.report.tradeoff_page import write_page
    from leakgauge.report.tradeoff_progress import Bars
    from leakgauge.report.tradeoff_words import remarks, sentence, table
    from leakgauge.tradeoff import TradeoffPlan
    from leakgauge.tradeoff import tradeoff as run

    plan = from_mapping(TradeoffPlan, {} if config is None else load_config(config), source="plan")
    if seed is not None:
        plan = replace(plan, seed=seed)
    check_reachable(out)
    result = run(plan, out, Bars(_console()))
    page = write_page(result, out)
    if as_json:
        sys.stdout.write(json.dumps(result.to_dict() | {"sentence": sentence(result)}, allow_nan=False) + "\n")
    else:
        console = Console()
        console.print(f"[bold]{_escape(sentence(result))}[/]")
        for remark in remarks(result):
            console.print(_escape(remark))
        console.print(table(result))
        console.print(f"Report: [bold]{_escape(str(page.resolve()))}[/]", soft_wrap=True)
    if not result.complete:
        _stopped_early()


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of an earlier audit.")] = Path("report"),
    fail_above: LimitOption = None,
    weights: Annotated[str | None, typer.Option(help="Folder with LPIPS weights (or LEAKGAUGE_WEIGHTS).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the report of an earlier audit again, from its stored results."""
    from leakgauge.audit.api import load_result
    from leakgauge.audit.grid import standard_metrics

    limits = _limits(fail_above)
    result = load_result(folder, standard_metrics(weights))
    result.write_report(folder)
    _finish(result, folder, limits, as_json, "report")


@app.command("train-generator")
def train_generator(
    dataset: Annotated[str, typer.Option(help="Public images: photos, cifar10, image_folder, ...")] = "photos",
    data_root: Annotated[Path | None, typer.Option(help="Folder that holds the dataset's files.")] = None,
    width: Annotated[int, typer.Option(help="Channels at the largest size.")] = 32,
    latent: Annotated[int, typer.Option(help="Length of the latents.")] = 64,
    steps: Annotated[int, typer.Option(help="Steps of either network.")] = 2_000,
    batch_size: Annotated[int, typer.Option(help="Images per step.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Learning rate.")] = 2e-4,
    seed: SeedOption = None,
    out: OutOption = Path("generator"),
    as_json: JsonFlag = False,
) -> None:
    """Train a small generator on the training images of a dataset, for the attacks gias and gifd.

    Stopped, the same command goes on where it was.
    """
    from leakgauge.catalogue import DATASETS
    from leakgauge.config import build
    from leakgauge.generative import DCGAN, GeneratorTraining, GeneratorTrainingPlan
    from leakgauge.generative import train_generator as run
    from leakgauge.report.progress import training_progress

    plan = GeneratorTrainingPlan(steps, batch_size, learning_rate, seed or 0)
    with training_progress(_console()) as progress:
        data = build(DATASETS, dataset, kind="dataset")(data_root)
        training = GeneratorTraining(data.train.images, DCGAN(data.image_shape, width, latent), plan)
        try:
            file = run(training, out, progress, {"dataset": data.name})
        except KeyboardInterrupt:
            _stopped_early()
    if as_json:
        _print_json("train-generator", plan.seed, [{"dataset": data.name, "steps": steps}], file=str(file.resolve()))
        return
    Console().print(f"Generator: [bold]{_escape(str(file.resolve()))}[/]", soft_wrap=True)


@app.command("list")
def list_(
    what: Annotated[str | None, typer.Argument(help="attacks, defences, ...; or `runs`, with --out.")] = None,
    out: OutOption = Path("report"),
    as_json: JsonFlag = False,
) -> None:
    """List the catalogue, or the runs kept in a folder."""
    _print_rows(_runs(out) if what == "runs" else _catalogue(what), "list", as_json)


def _print_rows(rows: list[dict[str, Any]], command: str, as_json: bool) -> None:
    if as_json:
        _print_json(command, 0, rows)
        return
    console = Console()
    table = Table(box=None, header_style="bold")
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold", no_wrap=column == "name")  # a name is there to be copied
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


@app.command()
def reproduce(
    experiment: Annotated[str | None, typer.Argument(help="Such as geiping2020/table1; without it, a list.")] = None,
    scale: Annotated[str, typer.Option(help="smoke (seconds), cpu (up to an hour) or full (as published).")] = "smoke",
    data_root: Annotated[Path | None, typer.Option(help="Folder that holds the dataset's files.")] = None,
    images: Annotated[int | None, typer.Option(help="Private images per row, instead of the scale's.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Seconds per update, instead of the scale's limit.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: SeedOption = None,
    out: OutOption = Path("reproduced"),
    as_json: JsonFlag = False,
) -> None:
    """Run a table or figure of a paper and print the published numbers beside ours."""
    from leakgauge.reproduce.registry import EXPERIMENTS, named_experiment
    from leakgauge.reproduce.run import Options, prepare
    from leakgauge.reproduce.run import reproduce as run

    if experiment is None:
        _print_rows([{"experiment": one.name, "what": one.title} for one in EXPERIMENTS.values()], "reproduce", as_json)
        return
    from leakgauge.reproduce.show import table, watching, write_sheet

    chosen = named_experiment(experiment)
    options = Options(scale, data_root, out, images, seconds, seed or 0, device)  # type: ignore[arg-type]
    prepared = prepare(chosen, options)
    with watching(_console(), prepared.labels) as watch:
        result = run(prepared, watch=watch)
    if as_json:
        sys.stdout.write(json.dumps(result.to_dict(), allow_nan=False) + "\n")
    else:
        Console().print(table(result))
    if not result.complete:
        _stopped_early()
    file = options.file(chosen)
    write_sheet(result, file.with_suffix(".png"))
    if not as_json:
        Console().print(f"Result: [bold]{_escape(str(file.resolve()))}[/]", soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    command = typer.main.get_command(app)
    try:
        # Not `app()`, which answers a wrong option with a box of several lines and Ctrl-C with silence.
        with command.make_context("leakgauge", words) as context:
            command.invoke(context)
    except LeakGaugeError as error:
        _refuse(str(error))
    except click.UsageError as error:
        _refuse(f"{error.format_message()} See `{error.ctx.command_path if error.ctx else 'leakgauge'} --help`.")
    except click.exceptions.Exit as wanted:
        sys.exit(wanted.exit_code)
    except KeyboardInterrupt:
        _console().print("[yellow]Stopped before the first result; run the same command to resume.[/]", soft_wrap=True)
        sys.exit(130)
    sys.exit(0)


def _finish(
    result: Any,
    out: Path | None,
    limits: dict[str, float],
    as_json: bool,
    command: str,
    body: Callable[[Any], RenderableType] | None = None,
) -> None:
    """Print the result, its table or another ``body``, then let the exit code say whether a limit was exceeded."""
    from leakgauge.report.terminal import headline, table

    # A part of the rows can neither pass nor fail the whole.
    exceeded = result.exceeding(limits) if result.complete else []
    if as_json:
        payload = result.to_json(command)
        files = {"files": list(result.description["files"])} if "files" in result.description else {}
        _print_json(command, payload["seed"], payload["rows"], complete=result.complete, exceeded=exceeded, **files)
    else:
        console = Console()
        console.print(f"[bold]{_escape(' '.join(headline(result)))}[/]")
        console.print((body or table)(result))
        if out is not None:
            console.print(f"Report: [bold]{_escape(str((out / 'index.html').resolve()))}[/]", soft_wrap=True)
    for sentence in exceeded:
        _console().print(f"[bold red]limit exceeded[/] {_escape(sentence)}", soft_wrap=True)
    if not result.complete:
        _stopped_early()
    if exceeded:
        raise typer.Exit(1)


def _limits(texts: list[str] | None) -> dict[str, float]:
    from leakgauge.audit.result import check_limit

    limits = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        try:
            limits[name.strip()] = float(value)
        except ValueError as error:
            raise InvalidCase(f"--fail-above takes metric=number, such as identification=0.5, got {text!r}.") from error
        check_limit(name.strip(), limits[name.strip()])
    return limits


def _check_limits(limits: dict[str, float], prepared: Any) -> None:
    """Refuse, before any attack runs, a limit on what this run cannot measure."""
    from leakgauge.audit.result import OF_LABELS, labels_given

    for name in limits:
        if name not in prepared.metrics:
            raise InvalidCase(f"The limit on {name!r} cannot be measured here; choose from {', '.join(OF_LABELS)}.")
        if prepared.metrics[name] is None:
            raise InvalidCase(f"The limit on {name!r} needs LPIPS weights; name their folder with --weights.")
        if name in OF_LABELS and all(labels_given(case.ledger) for case in prepared.cases):
            raise InvalidCase(
                f"The limit on {name!r} needs labels that the attacker is not given; "
                "choose such a threat model, or add an attack on labels."
            )
        if any(case.truth is None for case in prepared.cases):
            raise InvalidCase(f"The limit on {name!r} needs the private images to compare with; give --truth.")


def _catalogue(what: str | None) -> list[dict[str, Any]]:
    from leakgauge.catalogue import CATALOGUE

    if what is not None and what not in CATALOGUE:
        raise InvalidCase(f"There is no {what!r} to list; choose from {', '.join((*CATALOGUE, 'runs'))}.")
    return [
        {"kind": kind, "name": name, "options": _signature(part), "what": _summary(part)}
        for kind, table in CATALOGUE.items()
        if what in (None, kind)
        for name, part in table.items()
    ]


def _signature(part: Callable[..., Any]) -> str:
    import inspect

    if part.__name__ == "<lambda>":
        return ""
    parameters = inspect.signature(part).parameters.values()
    return ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)


def _summary(part: Callable[..., Any]) -> str:
    if part.__name__ == "<lambda>":
        return str(part().source)
    return (part.__doc__ or "").strip().splitlines()[0]


def _runs(folder: Path) -> list[dict[str, Any]]:
    from leakgauge.audit.store import FolderStore

    store = FolderStore.open(folder)
    return [
        {
            "id": run["id"],
            "started": run["started"],
            "finished": sum(store.get(key) is not None for key in run["keys"]),
            "cases": len(run["keys"]),
            "seed": run["description"].get("seed"),
            "model": run["description"].get("model"),
        }
        for run in store.runs()
    ]


def _print_json(command: str, seed: int, rows: list[dict[str, Any]], **more: Any) -> None:
    payload = {"command": command, "version": VERSION, "seed": seed, "rows": rows, **more}
    sys.stdout.write(json.dumps(payload, allow_nan=False) + "\n")


def _stopped_early() -> NoReturn:
    sentence = "Stopped early; what had finished is kept. Run the same command to resume."
    _console().print(f"[yellow]{sentence}[/]", soft_wrap=True)
    raise typer.Exit(130)


def _refuse(sentence: str) -> NoReturn:
    _console().print(f"[bold red]leakgauge:[/] {_escape(' '.join(sentence.split()))}", soft_wrap=True)
    sys.exit(2)


def _console() -> Console:
    return Console(stderr=True)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
