"""The model that is trained and attacked: built for a dataset, loaded, trained plainly, and kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.catalogue import MODELS
from leakgauge.config import build, build_normalised
from leakgauge.data import Dataset
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.factories import import_factory, names_code
from leakgauge.files import read_tensors, writable_folder, write_tensors
from leakgauge.fingerprint import digest, training_code
from leakgauge.models import ModelFactory, Normalisation, TextModel
from leakgauge.models import build as build_model
from leakgauge.params import ParamTree
from leakgauge.progress import Progress, silent
from leakgauge.protocol.learner import learner_and_state
from leakgauge.protocol.losses import LossFunction, Targets, check_labels
from leakgauge.protocol.state_dicts import rename
from leakgauge.protocol.validation import check_loss, check_model
from leakgauge.randomness import global_stream, seeded
from leakgauge.space import InputSpace, TokenSpace
from leakgauge.threads import model_threads
from leakgauge.training.train import Training, accuracy, train

REFERENCE = 2048
"""Images that stand for a dataset: in its mean and deviation, and in the keys of what was made of it."""

_TEXT_RATE = 0.05
"""The learning rate of language models: at that of images they have learnt nothing in as many steps."""

_TESTED = 500
"""Test images that the accuracy of a kept model is taken on; all of them would take longer than the attacks."""


def is_own_model(words: str) -> bool:
    """Whether the words name a user's factory, ``package.module:factory``, and not a model of the catalogue.

    Options have an equals sign, so a misspelt name is none.

    >>> [is_own_model(words) for words in ("their.module:factory", "their.module:factory:depth=20", "compakt:width=8")]
    [True, True, False]
    """
    return names_code(words) and words.partition(":")[0] not in MODELS


def default_steps(words: str, state: str | None) -> int:
    """How long a model is trained before it is attacked, unless one says.

    A user's model comes as it is; ours is trained a little, because an untrained one leaks more than is fair.
    """
    return 0 if is_own_model(words) or state is not None else Training().steps


def model_for(dataset: Dataset, factory: ModelFactory, *, seed: int, classes: int | None = None) -> nn.Module:
    """An untrained model for the images of a dataset, which it normalises by its training images."""
    if not -(2**63) <= seed < 2**64:
        raise InvalidCase(f"torch knows no seed of {len(str(abs(seed)))} digits; choose a number below 2**64.")
    if isinstance(dataset.space, TokenSpace) != isinstance(factory, TextModel):
        raise InvalidCase(
            f"{type(factory).__name__} does not take {dataset.space.kinds}, which {dataset.name!r} consists of; choose "
            f"a model for {dataset.space.kinds}{', such as gpt or bert' * isinstance(dataset.space, TokenSpace)}."
        )
    if isinstance(dataset.space, TokenSpace):
        classes = classes or dataset.num_classes
        assert isinstance(factory, TextModel)
        return build_model(factory.for_texts(dataset.space), dataset.space.shape, classes, seed=seed)
    reference = dataset.train.inputs if len(dataset.train) else dataset.test.inputs
    normalisation = Normalisation.of(reference[:REFERENCE])
    return build_model(
        factory, dataset.space.shape, classes or dataset.num_classes, seed=seed, normalisation=normalisation
    )


def named_model(
    words: str,
    dataset: Dataset,
    *,
    seed: int,
    state: str | None = None,
    loss: LossFunction = cross_entropy,
    normalise: str | None = None,
) -> nn.Module:
    """The model of the catalogue, or the user's own, with its first weights or those of a file, fit for the dataset.

    A user's model that expects normalised inputs says so by ``normalise``; those of the catalogue normalise inside.
    """
    if normalise is not None and not is_own_model(words):
        raise InvalidCase(f"The model {words!r} of the catalogue normalises inside; leave out the normalisation.")
    if is_own_model(words):
        # A factory that draws its weights from the global stream gives the same model again for the same seed.
        with global_stream(seeded(seed, "model")):
            model = import_factory(words)
    else:
        model = model_for(dataset, build(MODELS, words, kind="model"), seed=seed)
    if state is not None:
        _load(model, Path(state))
    model = build_normalised(model, normalise)
    _check_fit(model, dataset, loss)
    return model.eval()


def catalogue_model(words: str, space: InputSpace, classes: int) -> nn.Module:
    """The model of the catalogue for such inputs, built without any data."""
    factory = build(MODELS, words, kind="model")
    if isinstance(factory, TextModel) != isinstance(space, TokenSpace):
        raise InvalidCase(
            f"The model {words!r} takes {'texts' if isinstance(factory, TextModel) else 'images or rows'}; name one "
            "for these inputs, or for texts alone their length and vocabulary, --input 32 --vocabulary 1000."
        )
    if isinstance(space, TokenSpace):
        factory = factory.for_texts(space)
    return build_model(factory, space.shape, classes, seed=0)


def recorded_model(words: str, space: InputSpace, weights: ParamTree) -> nn.Module:
    """The model that recorded weights belong to: the user's own, or of the catalogue with as many outputs as its head
    has among the weights."""
    if is_own_model(words):
        return import_factory(words)
    model = catalogue_model(words, space, classes=2)
    head = next((name for name, _ in reversed(list(model.named_parameters())) if name in weights), None)
    return model if head is None else catalogue_model(words, space, classes=len(weights[head]))


def victim_model(
    words: str,
    dataset: Dataset,
    *,
    seed: int,
    state: str | None = None,
    steps: int | None = None,
    loss: LossFunction = cross_entropy,
    normalise: str | None = None,
    progress: Progress = silent,
) -> nn.Module:
    """`named_model`, trained for ``steps`` undefended steps, or for the `default_steps` where there is data."""
    model = named_model(words, dataset, seed=seed, state=state, loss=loss, normalise=normalise)
    if steps is None:
        steps = default_steps(words, state) if len(dataset.train) else 0
    if steps:
        plain = replace(Training(), steps=steps)
        if isinstance(dataset.space, TokenSpace):
            plain = replace(plain, learning_rate=_TEXT_RATE)
        with model_threads(model):
            train(model, dataset.train, plain, loss, generator=seeded(seed, "train"), progress=progress)
    return model


def require_training_images(dataset: Dataset, who_needs: str) -> None:
    if len(dataset.train) == 0:
        raise InvalidCase(
            f"{who_needs} training images, but the folder holds only the test images of {dataset.name!r}; "
            "add the training files to --data-root."
        )


@dataclass(frozen=True)
class Pretrained:
    """Weights of a file in the folder of weights, in place of a training; ``made_by`` is the command that makes it."""

    file: str
    made_by: str

    def path(self, folder: Path | None) -> Path:
        """Where the file is, or a sentence that says how to get it."""
        if folder is None or not (folder / self.file).is_file():
            raise InvalidCase(
                f"The trained weights {self.file} are not in the folder of weights; make them with `{self.made_by}` "
                "and name the folder with --weights or LEAKGAUGE_WEIGHTS."
            )
        return folder / self.file


@dataclass(frozen=True)
class Victim:
    """A model in eval mode; ``accuracy``, on the first test images, only if it was trained."""

    module: nn.Module
    accuracy: float | None


def kept_victim(
    factory: ModelFactory,
    dataset: Dataset,
    training: Training | None,
    folder: Path,
    *,
    seed: int,
    classes: int | None = None,
    progress: Progress = silent,
) -> Victim:
    """A model, trained if it is to be; trained weights are kept in ``folder`` and read again."""
    module = model_for(dataset, factory, seed=seed, classes=classes).eval()
    if training is None:
        return Victim(module, None)
    require_training_images(dataset, "The trained models need")
    key = digest(
        (training_code(), repr(factory), repr(training), dataset.name),
        (dataset.train.labels, dataset.train.inputs[:REFERENCE], dataset.test.labels[:_TESTED]),
        (seed,),
    )
    path = writable_folder(folder) / f"{key}.safetensors"
    if (score := _kept(module, path)) is None:
        with model_threads(module):
            train(module, dataset.train, training, generator=seeded(seed, "train"), progress=progress)
            score = accuracy(module, dataset.test[:_TESTED])
        described = {"model": repr(factory), "training": repr(training), "dataset": dataset.name}
        write_tensors(path, module.state_dict(), described | {"accuracy": repr(score), "seed": str(seed)})
    return Victim(module.eval(), score)


def loaded_victim(
    factory: ModelFactory, dataset: Dataset, path: Path, *, seed: int, classes: int | None = None
) -> Victim:
    """A model with the weights of a file, which must fit it, and how well it does on the first test images."""
    module = model_for(dataset, factory, seed=seed, classes=classes)
    _load(module, path)
    with model_threads(module):
        return Victim(module.eval(), accuracy(module, dataset.test[:_TESTED]))


def _kept(module: nn.Module, path: Path) -> float | None:
    """The accuracy that was noted with the weights, after loading them; None if they are not there."""
    if not path.is_file():
        return None
    try:
        tensors, described = read_tensors(path)
        module.load_state_dict(tensors)
        return float(described["accuracy"])
    except (InvalidFile, RuntimeError, KeyError, ValueError) as error:
        raise InvalidFile(f"The trained weights in {path} are damaged; delete the file.") from error


def _load(model: nn.Module, path: Path) -> None:
    tensors, _ = read_tensors(path)
    try:
        model.load_state_dict(rename(tensors, model.state_dict()))
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip() if len(str(error).splitlines()) > 1 else str(error)
        raise InvalidCase(
            f"The weights in {path} do not fit the model ({first}); check the model and its classes."
        ) from error


def _check_fit(model: nn.Module, dataset: Dataset, loss: LossFunction) -> None:
    learner, state = learner_and_state(model, loss)
    width = check_model(learner, state, dataset.space, None)
    classes = 2 if learner.targets is Targets.BINARY else width
    if learner.targets in (Targets.CLASSES, Targets.BINARY) and classes < dataset.num_classes:
        raise InvalidCase(
            f"The model has {width} outputs but {dataset.name!r} has {dataset.num_classes} classes; "
            "use a model with the right number of outputs."
        )
    check_labels(loss, dataset.test.labels, width)
    check_loss(learner, state, dataset.test[:2])
