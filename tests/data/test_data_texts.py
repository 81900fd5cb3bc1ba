"""Sentences as tokens, and back."""

from __future__ import annotations

import pytest
import torch

from leakgauge.data import Text, resample_texts
from leakgauge.data.texts import encode, space_of, split_words
from leakgauge.errors import InvalidFile
from leakgauge.randomness import seeded


def test_every_embedded_sentence_is_a_member_and_reads_as_it_was_written():
    data = Text()(None)
    for part in (data.train, data.test):
        data.space.check(part.inputs)
        assert not bool((part.inputs == 1).any())  # no word is unknown
    assert data.space.render(data.test.inputs[0]).startswith("alice was beginning to get very tired")
    assert data.num_classes == 4
    lengths = data.space.lengths(torch.cat((data.train.inputs, data.test.inputs)))
    assert 10 <= int(lengths.min()) <= int(lengths.max()) <= 30


def test_a_word_that_is_not_known_is_the_unknown_one():
    space = space_of([split_words("no fever today")], 4)
    assert space.render(encode(space, [split_words("no cough today")])[0]) == "no <unknown> today"


def test_a_users_own_file_is_read_with_or_without_classes(tmp_path):
    (tmp_path / "notes.txt").write_text("sick\tno fever at all\nwell\tshe sleeps, and eats\nsick\ta cough\n", "utf-8")
    data = Text("notes.txt")(tmp_path)
    assert data.class_names == ("sick", "well")
    (tmp_path / "plain.txt").write_text("no fever at all\nshe sleeps, and eats\n", "utf-8")
    assert Text("plain.txt")(tmp_path).class_names == ("text",)
    for wrong in ("one\n", "", "word\nanother\n"):
        (tmp_path / "bad.txt").write_text(wrong, "utf-8")
        with pytest.raises(InvalidFile):
            Text("bad.txt")(tmp_path)


def test_texts_made_of_others_are_members_of_their_lengths():
    data = Text()(None)
    made = resample_texts(data.space, data.test.inputs[:3], 50, generator=seeded(0))
    data.space.check(made)
    assert set(data.space.lengths(made).tolist()) <= set(data.space.lengths(data.test.inputs[:3]).tolist())
