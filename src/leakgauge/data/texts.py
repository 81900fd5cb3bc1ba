"""Sentences: some that are embedded, and a user's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from leakgauge.data.datasets import Dataset, split_every_fifth
from leakgauge.data.files import find_required, read_text, require_root
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.space import TokenSpace
from leakgauge.types import Batch

_SENTENCES = Path(__file__).parent / "sentences.txt"

_PAD, _UNKNOWN = "", " <unknown>"


@dataclass(frozen=True)
class Text:
    """Sentences, one a line: 200 of English novels out of copyright, in or after the words of Carroll, Doyle, Austen
    and Melville; or those of a ``file`` below the data root or the working folder.

    A tab parts a sentence from the class in front of it, if it has one. Every word and every sign of a file is a token
    of its vocabulary; what is longer than ``length`` tokens is cut off.
    """

    file: str | None = None
    length: int = 32

    def __post_init__(self) -> None:
        if self.length < 2:
            raise InvalidCase(f"A sentence needs room for two tokens or more, got length={self.length}; raise it.")

    def __call__(self, root: Path | None) -> Dataset:
        path = _SENTENCES
        if self.file is not None:
            folder = require_root(root or Path(), source=self, needs=f"the file {self.file!r}")
            path = find_required((self.file,), folders=(folder,))
        try:
            lines = [line.strip() for line in read_text(path).splitlines() if line.strip()]
        except ValueError as error:
            raise InvalidFile(f"{path} is no text in UTF-8; save it as such, one sentence a line.") from error
        pairs = [line.rpartition("\t")[::2] for line in lines]
        words = [split_words(sentence)[: self.length] for _, sentence in pairs]
        if len(pairs) < 2 or min(map(len, words)) < 2:
            raise InvalidFile(
                f"{path} needs two sentences or more, each of two words or more, one a line, as a private one "
                "is told from others of its kind; add some below it."
            )
        space = space_of(words, self.length)
        names = sorted({name for name, _ in pairs})
        labels = torch.tensor([names.index(name) for name, _ in pairs])
        train, test = split_every_fifth(Batch(encode(space, words), labels))
        return Dataset(path.stem, train, test, tuple(name or "text" for name in names), space=space)


def split_words(text: str) -> list[str]:
    """The words and signs of a text, in lower case, each with the space that stands before it.

    >>> split_words("The cat grinned, twice.")
    [' the', ' cat', ' grinned', ',', ' twice', '.']
    """
    return [part if not part.isalnum() else f" {part}" for part in re.findall(r"[^\W_]+|[^\w\s]|_", text.lower())]


def space_of(texts: Iterable[Sequence[str]], length: int) -> TokenSpace:
    """The vocabulary of these texts: padding, what is not known, and every word of theirs in alphabetical order."""
    return TokenSpace(length, (_PAD, _UNKNOWN, *sorted({word for text in texts for word in text})))


def encode(space: TokenSpace, texts: Sequence[Sequence[str]]) -> Tensor:
    """The tokens of these words; one that the vocabulary does not hold is the unknown one."""
    numbers = {word: number for number, word in enumerate(space.vocabulary)}
    rows = torch.full((len(texts), space.length), space.pad)
    for row, text in zip(rows, texts, strict=True):
        known = [numbers.get(word, numbers[_UNKNOWN]) for word in text[: space.length]]
        row[: len(known)] = torch.tensor(known)
    return rows
