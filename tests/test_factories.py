"""Words that name things: options of parts, and modules of the user's own."""

from __future__ import annotations

import pytest
from torch import nn

from leakgauge import factories
from leakgauge.catalogue import MODELS
from leakgauge.config import build, build_dataset
from leakgauge.errors import InvalidCase
from leakgauge.factories import import_factory, read_options


@pytest.mark.parametrize(
    "name", ["my-pictures", "my pictures", "data/pics", "/abs/path/x.y", "2024_pics", "..", "./a", "visits-2024.csv"]
)
def test_a_name_of_a_file_needs_no_quotes(name):
    assert read_options(f"file={name}", "csv") == read_options(f"file={name!r}", "csv") == {"file": name}
    assert read_options(f"size=(8,),file={name},low=-1e-3", "x") == {"size": (8,), "file": name, "low": -1e-3}


def test_what_is_quoted_is_left_alone_and_what_is_neither_is_refused():
    assert read_options("file='x, a=b-c, d=e'", "csv") == {"file": "x, a=b-c, d=e"}
    for rest in ("file=a(b", "file=a;b", "file=a-b,16", "a-b", "file=", "file=a-b,file=c-d", "file=`ls`"):
        with pytest.raises(InvalidCase, match="Cannot read the options of"):
            read_options(rest, "csv")


@pytest.mark.parametrize("filling", [" ", "a", "a ", "a=", "a= ", ",a=", "-", "a=b "])
def test_no_words_take_longer_than_they_are_long(filling, monkeypatch):
    # By an expression that looks back at every sign this would take hours.
    monkeypatch.setattr(factories, "MOST_OPTIONS", 400_000)
    with pytest.raises(InvalidCase, match="Cannot read the options of"):
        read_options(f"file=x-y{filling * (300_000 // len(filling))}(", "csv")


def test_options_are_read_to_their_most_characters_and_refused_beyond():
    name = "x" * (factories.MOST_OPTIONS - len("file=''"))
    assert read_options(f"file='{name}'", "csv") == {"file": name}
    with pytest.raises(InvalidCase, match=str(factories.MOST_OPTIONS)):
        read_options(f"file='{name}x'", "csv")


@pytest.mark.parametrize(
    "words", ["theirs:net", "theirs.py:net", "./theirs.py:net", "inner/deep.py:net", "inner.deep:net"]
)
def test_a_factory_is_found_by_its_module_or_by_its_file(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for path in (tmp_path / "theirs.py", tmp_path / "inner" / "deep.py"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("from torch.nn import Linear\ndef net(): return Linear(2, 3)\n", "utf-8")
    assert isinstance(import_factory(words), nn.Linear)


@pytest.mark.parametrize("name", ["theirs", "theirs.py"])
def test_a_file_without_a_function_is_answered_with_what_is_missing(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text("")
    with pytest.raises(InvalidCase, match="name the function in it that builds the model, as in theirs:build"):
        build(MODELS, name, kind="model")


def test_data_that_is_named_without_its_kind_is_answered_with_what_to_write(tmp_path):
    (tmp_path / "holiday").mkdir()
    for name in ("patients.csv", "diary.txt", "batch.npz"):
        (tmp_path / name).write_text("")
    for name, meant in {
        "holiday": "image_folder:folder=holiday",
        "patients.csv": "csv:file=patients.csv,label=COLUMN",
        "diary.txt": "text:file=diary.txt",
        "batch.npz": "npz:file=batch.npz",
    }.items():
        with pytest.raises(InvalidCase, match=f"write --dataset {meant}"):
            build_dataset(name, tmp_path)
    for name in ("nowhere", "x" * 5000, "a\0b"):
        with pytest.raises(InvalidCase, match="There is no dataset"):
            build_dataset(name, tmp_path)
