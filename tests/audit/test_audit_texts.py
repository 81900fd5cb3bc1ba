"""Texts audited from the command line to the page."""

from __future__ import annotations

import json

import pytest
import torch

import leakgauge
from leakgauge import RecordedRound, write_round
from leakgauge.cli import main
from leakgauge.data import Text
from leakgauge.data.texts import encode, space_of, split_words
from leakgauge.models import GPT, build
from leakgauge.protocol.learner import learner_and_state
from leakgauge.protocol.losses import NextToken
from leakgauge.types import Batch

HOSTILE = "<script>alert(1)</script> stole the file &amp; ran"


def run(*words: str) -> int:
    try:
        main(list(words))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_an_audit_of_texts_has_verdict_null_control_and_a_page_that_escapes_them(tmp_path, capsys):
    lines = [HOSTILE, *(f"patient number {one} has no fever and sleeps at night" for one in range(12))]
    (tmp_path / "notes.txt").write_text("\n".join(lines), "utf-8")
    options = ["--dataset", "text:file=notes.txt", "--data-root", str(tmp_path), "--model", "gpt:width=64,layers=1"]
    options += [
        "--train-steps",
        "0",
        "--batch-size",
        "1",
        "--defence",
        "none",
        "--nulls",
        "1",
        "--json",
        "--attack",
        "token_spans",
    ]
    assert run("audit", *options, "--out", str(tmp_path / "out")) in (0, 1)
    told = json.loads(capsys.readouterr().out)
    (row,) = told["rows"]
    assert row["attack"] == "token_spans"
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert "<script>alert" not in page
    assert "Private text" in page
    assert "Null" in page


def factory():
    texts = Text()(None)
    return build(GPT(width=64, layers=1).for_texts(texts.space), texts.space.shape, 4, seed=0)


def test_a_recorded_round_of_texts_is_inverted_from_its_file(tmp_path, monkeypatch, capsys):
    texts = Text()(None)
    private = texts.test[torch.tensor([3])]
    learner, state = learner_and_state(factory(), NextToken())
    update = learner.gradient(state, private)
    recorded = RecordedRound(
        {**state.params, **state.buffers}, update, texts.space, num_examples=1, local_update="fedsgd", loss="next_token"
    )
    write_round(tmp_path / "round.safetensors", recorded)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "theirs.py").write_text(
        "from leakgauge.data import Text\nfrom leakgauge.models import GPT, build\n"
        "def model():\n    space = Text()(None).space\n"
        "    return build(GPT(width=64, layers=1).for_texts(space), space.shape, 4, seed=1)\n"
    )
    arguments = [str(tmp_path / "round.safetensors"), "--model", "theirs:model", "--attack", "token_spans"]
    assert run("invert", *arguments, "--no-redact", "--out", str(tmp_path / "out"), "--json") in (0, 1)
    assert (tmp_path / "out" / "recovered" / "texts.txt").read_text("utf-8").strip() == texts.space.render(
        private.inputs[0]
    )


def test_a_users_own_texts_leak_certified_through_the_api(tmp_path):
    words = [
        split_words(line) for line in ("no fever and no cough today", "she sleeps well at night", "he eats and walks")
    ]
    space = space_of(words, 8)
    model = build(GPT(width=64, layers=1).for_texts(space), space.shape, 2, seed=0)
    private = Batch(encode(space, words[:1]), torch.zeros(1).long())
    result = leakgauge.audit(
        model, "next_token", private, space=space, attacks=["token_spans"], defences=["none"], nulls=1, out=tmp_path
    )
    (row,) = result.rows
    assert row.records[0].certificate is not None
    assert row.verdict.leaks


@pytest.mark.parametrize(
    "words",
    [
        ("--dataset", "text", "--model", "compact"),
        ("--dataset", "digits", "--model", "gpt"),
        ("--dataset", "text", "--model", "gpt:width=30"),
    ],
)
def test_what_does_not_fit_is_one_sentence_and_exit_code_two(words, capsys, tmp_path):
    assert run("audit", *words, "--out", str(tmp_path)) == 2
    assert capsys.readouterr().err.strip().count("\n") <= 3
