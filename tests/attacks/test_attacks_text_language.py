"""Matching with a language prior, and the guess that any attack on texts has to beat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from test_attacks_text import TEXTS, observe

from leakgauge import params as tree
from leakgauge.attacks.recipes import lamp, lamp_l2
from leakgauge.attacks.text import LanguageMoves, PublicSentences, SentModel, TokenGuess
from leakgauge.attacks.text.moves import MovingSearch, move, places
from leakgauge.data import Text
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.metrics import TokenRecall, align
from leakgauge.models import BERT, GPT, MLP, build
from leakgauge.protocol.losses import CrossEntropy
from leakgauge.randomness import seeded
from leakgauge.space import TokenSpace
from leakgauge.training.models import model_for
from leakgauge.types import Outcome, Update


def _few():
    """The beginnings of some sentences: few words and short texts, so that a step of a search is quick."""
    lines = [f"{number % 2}\t{TEXTS.space.render(text[:9])}" for number, text in enumerate(TEXTS.train.inputs[:50])]
    with TemporaryDirectory() as folder:
        Path(folder, "few.txt").write_text("\n".join(lines), "utf-8")
        return Text(file="few.txt", length=10)(Path(folder))


FEW = _few()


def private(count):
    return FEW.test[torch.arange(count)]


@pytest.fixture(scope="module")
def seen():
    model = model_for(FEW, GPT(width=32, layers=1, heads=2, kv_heads=2), seed=0)
    return observe(model, private(1), space=FEW.space)


@pytest.fixture
def sentences(tmp_path):
    path = tmp_path / "public.txt"
    path.write_text("\n".join(FEW.space.render(text) for text in FEW.train.inputs), "utf-8")
    return str(path)


def test_the_surprise_of_the_model_that_was_sent_is_its_loss(seen):
    batch = private(1)
    loss = seen.learner.objective(seen.state.params, seen.state.buffers, batch)
    assert float(SentModel().bind(seen, FEW.space)(batch.inputs)) == pytest.approx(float(loss), rel=1e-5)


def test_neighbours_that_public_sentences_have_surprise_less(tmp_path, seen):
    path = tmp_path / "own.txt"
    path.write_text("class\ta b a c\n\na b\n", "utf-8")
    space = TokenSpace(4, ("", " a", " b", " c"))
    surprise = PublicSentences(str(path)).bind(seen, space)
    # 6 tokens and 4 in the vocabulary; a is followed by b twice and by c once, b by a once.
    likely = [0.8 * 2 / 3 + 0.2 * 3 / 10, 0.8 * 1 + 0.2 * 4 / 10]
    expected = -torch.tensor(likely, dtype=torch.float64).log().mean()
    assert float(surprise(torch.tensor([[1, 2, 1, 0]]))) == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("content", "said"), [(None, "There is no file"), (b"\xff\xfe\xff", "UTF-8"), (b"zzz", "no word of the model")]
)
def test_a_file_that_holds_no_sentences_is_refused(tmp_path, seen, content, said):
    path = tmp_path / "public.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidFile, match=said):
        PublicSentences(str(path)).bind(seen, TokenSpace(4, ("", " a", " b")))


def test_moves_keep_every_token_and_every_end():
    space = TokenSpace(6, tuple(f" {number}" for number in range(9)))
    texts = torch.tensor([[1, 2, 3, 4, 0, 0], [5, 6, 7, 8, 3, 0]])
    generator, orders = seeded(0), set()
    for _ in range(200):
        moved = places(texts, move([4, 5], 6, generator))
        space.check(moved)
        assert torch.equal(moved.flatten().sort().values, texts.flatten().sort().values)
        orders.add(tuple(moved.flatten().tolist()))
    assert len(orders) > 40


def test_moves_find_the_order_that_no_small_step_leads_to(seen):
    truth = private(1).inputs
    length = int(FEW.space.lengths(truth))
    turned = torch.cat((truth[:, 4:length], truth[:, :4], truth[:, length:]), dim=1)
    attack = lamp_l2(weight=0.0, steps=10)
    search = replace(attack, tries=40).search([seen], generator=seeded(0))
    assert isinstance(search, MovingSearch)
    search.inner.best[0] = 20 * FEW.space.relax(turned)
    search.inner.lowest[0] = 1e9
    search._round()
    found = search._texts(search.inner.best[0])
    assert search._score(search.inner.best[0], 0)[1] < 0.5 * search._score(20 * FEW.space.relax(turned), 0)[1]
    assert (found == truth).sum() > (turned == truth).sum()


def test_it_finds_words_that_an_unrelated_text_does_not_have_and_says_what_it_knew(seen, sentences):
    found = replace(lamp(public=sentences, steps=40), tries=4)(seen, generator=seeded(0))
    own, null = (TokenRecall()(align(found, one, space=FEW.space)) for one in (private(1), FEW.test[torch.tensor([7])]))
    assert float(own) > max(0.3, 2 * float(null))
    assert found.facts["attacker also knew"] == "public sentences, public.txt, as a language prior"
    assert found.facts["rounds of moves"] == 6


def test_interrupted_and_resumed_it_ends_with_the_same_bits(seen):
    attack = replace(lamp(steps=6), tries=2)
    whole = attack(seen, generator=seeded(1))
    first = attack.search([seen], generator=seeded(1))
    for _ in range(3):
        first.step()
    second = attack.search([seen], generator=seeded(1))
    second.restore(first.snapshot())
    (resumed,) = second.run()
    assert torch.equal(resumed.inputs, whole.inputs)
    assert torch.equal(resumed.loss_trace, whole.loss_trace)
    with pytest.raises(InvalidFile, match="another attack"):
        attack.search([seen], generator=seeded(1)).restore(second.inner.snapshot())


def test_a_classifier_is_no_language_model_and_public_sentences_take_its_place(sentences):
    model = model_for(FEW, BERT(width=16, layers=1, heads=2, kv_heads=2), seed=0)
    seen = observe(model, private(1), loss=CrossEntropy(), space=FEW.space)
    for attack in (lamp(steps=2), TokenGuess()):
        assert "public=FILE" in str(attack(seen, generator=seeded(0)).facts["reason"])
    assert lamp(public=sentences, steps=2)(seen, generator=seeded(0)).inputs is not None


def test_what_is_no_text_and_no_move_is_refused(attacked, examples):
    images = attacked(build(MLP(hidden=(4,)), (1, 3, 3), 5, seed=0), examples(1, (1, 3, 3)))
    assert lamp(steps=2)(images, generator=seeded(0)).outcome is Outcome.NOT_APPLICABLE
    assert TokenGuess()(images, generator=seeded(0)).outcome is Outcome.NOT_APPLICABLE
    with pytest.raises(InvalidCase, match="tries >= 1"):
        LanguageMoves(tries=0)


@pytest.mark.parametrize("public", [False, True], ids=["the model's own", "public sentences"])
def test_a_guess_is_the_same_whatever_the_update_says(seen, sentences, public):
    guess = TokenGuess(sentences if public else None)
    found = guess(seen, generator=seeded(0))
    FEW.space.check(found.inputs)
    other = replace(seen, update=Update(tree.scale(seen.update.params, -3.0)))
    assert torch.equal(guess(other, generator=seeded(5)).inputs, found.inputs)
    if public:
        lengths = FEW.space.lengths(FEW.train.inputs).double().mean()
        assert int(FEW.space.lengths(found.inputs)) == round(float(lengths))
        first = FEW.train.inputs.flatten()
        assert int(found.inputs[0, 0]) == int(first[first != FEW.space.pad].bincount().argmax())


def test_text_is_encoded_as_it_is_rendered():
    for text in TEXTS.test.inputs[:10]:
        assert TEXTS.space.encode(TEXTS.space.render(text)) == TEXTS.space.tokens(text)
