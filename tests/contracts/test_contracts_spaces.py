"""What holds for every input space, and for every one that will be added to this list."""

from __future__ import annotations

import json
import pickle

import pytest
import torch

from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.randomness import seeded
from leakgauge.space import (
    Categorical,
    Continuous,
    ImageSpace,
    InputSpace,
    TableSpace,
    TokenSpace,
    as_space,
    require,
    space_from_json,
    space_to_json,
)

TABLE = TableSpace(
    (Continuous("age", 18, 95), Categorical("ward", ("A", "B", "C")), Continuous("dose", -0.02, 0.01)),
)
TEXTS = TokenSpace(5, ("", " no", " pain", " fever", "."))
SPACES: tuple[InputSpace, ...] = (ImageSpace(3, 5, 4), TABLE, TableSpace((Categorical("sex", ("f", "m")),)), TEXTS)

every_space = pytest.mark.parametrize("space", SPACES, ids=repr)


def members(space: InputSpace, count: int = 6) -> torch.Tensor:
    return space.draw(count, generator=seeded(0))


def test_no_space_is_left_out():
    assert {type(space) for space in SPACES} == set(InputSpace.__subclasses__())


@every_space
def test_a_space_is_its_own_configuration_and_returns_from_json(space):
    again = eval(repr(space), globals())  # noqa: S307 - the theorem is about eval, the text is ours
    assert again == space == pickle.loads(pickle.dumps(space))  # noqa: S301
    assert hash(again) == hash(space)
    assert space_from_json(json.loads(json.dumps(space_to_json(space)))) == space
    assert as_space(space) is space


@every_space
def test_what_is_decoded_and_the_probe_are_members(space):
    space.check(members(space))
    far = 9 * torch.randn(4, *space.relaxed, generator=seeded(1))
    space.check(space.decode(far))
    probe = space.probe(3, torch.zeros((), dtype=torch.float64))
    space.check(probe)
    assert probe.dtype == space.place(members(space), torch.zeros((), dtype=torch.float64)).dtype
    assert torch.equal(probe[0], probe[2])


@every_space
def test_a_member_survives_relaxing_and_decoding(space):
    inputs = space.place(members(space), torch.zeros((), dtype=torch.float64))
    relaxed = space.relax(inputs)
    assert relaxed.shape[1:] == space.relaxed
    assert relaxed.min() >= 0
    assert relaxed.max() <= 1
    taken = inputs if inputs.is_floating_point() else relaxed  # a model takes tokens by number or by weight
    torch.testing.assert_close(space.lift(relaxed), taken, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(space.decode(relaxed), inputs, rtol=1e-12, atol=1e-12)
    # Axes in front, as several restarts have them, change nothing.
    assert torch.equal(space.decode(relaxed.unsqueeze(0)), space.decode(relaxed).unsqueeze(0))


@every_space
def test_what_the_model_takes_can_be_differentiated_in_the_relaxation(space):
    point = torch.rand(1, *space.relaxed, generator=seeded(0)).requires_grad_()
    (gradient,) = torch.autograd.grad(space.lift(point).sum(), point)
    assert bool((gradient != 0).all())


@every_space
def test_the_distance_is_zero_for_equal_members_alone_symmetric_and_at_most_one(space):
    inputs = torch.unique(members(space), dim=0)
    distances = space.distance(inputs, inputs)
    assert torch.equal(distances == 0, torch.eye(len(inputs), dtype=torch.bool))
    assert torch.equal(distances, distances.T)
    assert distances.max() <= 1


@every_space
def test_what_is_outside_is_refused_in_one_sentence(space):
    inputs = members(space)
    for wrong in (inputs[0], inputs[..., :-1], inputs + 1e3, inputs * torch.nan):
        with pytest.raises(InvalidCase) as refused:
            space.check(wrong)
        assert str(refused.value).count("\n") == 0


@every_space
def test_a_part_for_other_inputs_says_whom_it_serves(space):
    other = TableSpace if isinstance(space, ImageSpace) else ImageSpace
    require(space, InputSpace, space)
    with pytest.raises(UnsupportedModel, match=f"serves {other.kinds}, and this model takes {space.kinds}"):
        require(space, other, space)


def test_columns_count_alike_whatever_their_range_and_their_number_of_entries():
    low = torch.tensor([[18.0, 1.0, 0.0, 0.0, -0.02]])
    far = [[95.0, 1.0, 0.0, 0.0, -0.02], [18.0, 0.0, 0.0, 1.0, -0.02], [18.0, 1.0, 0.0, 0.0, 0.01]]
    torch.testing.assert_close(TABLE.distance(low, torch.tensor(far)), torch.full((1, 3), 1 / 3).double())


def test_a_row_is_shown_column_by_column():
    row = torch.tensor([33.25, 0.1, 0.2, 0.7, 0.005])
    assert TABLE.render(row) == (("age", "33.25"), ("ward", "C"), ("dose", "0.005"))


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ((17.0, 1, 0, 0, 0), "age"),
        ((20.0, 1, 1, 0, 0), "ward"),
        ((20.0, 0, 0, 0.5, 0), "ward"),
        ((20.0, 1, 0, 0, 1), "dose"),
    ],
)
def test_a_cell_outside_its_column_names_the_column(row, column):
    with pytest.raises(InvalidCase, match=f"'{column}'"):
        TABLE.check(torch.tensor([row]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ImageSpace(3, 0, 4),
        lambda: Continuous("age", 3, 3),
        lambda: Continuous("age", 0, float("inf")),
        lambda: Categorical("sex", ("f",)),
        lambda: Categorical("sex", ("f", "f")),
        lambda: TableSpace(()),
        lambda: TableSpace((Continuous("age", 0, 1), Continuous("age", 0, 2))),
        lambda: as_space((3, 32)),
        lambda: TokenSpace(0, ("", "a")),
        lambda: TokenSpace(4, ("",)),
        lambda: TokenSpace(4, ("", "a"), pad=2),
    ],
)
def test_a_space_without_members_is_refused(make):
    with pytest.raises(InvalidCase):
        make()


@pytest.mark.parametrize("values", [{}, {"columns": []}, {"columns": [{"name": "a"}]}, {"image_shape": [3, 9.5, 9]}])
def test_damaged_json_is_no_space(values):
    with pytest.raises((ValueError, TypeError, KeyError)):
        space_from_json(values)
