"""Texts as a model takes them: sequences of tokens of a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from leakgauge.errors import InvalidCase
from leakgauge.input_space import InputSpace
from leakgauge.types import ModelState, Shape

_ABSENT = -1
"""Stands for padding where sequences are compared, and is no token."""


MOST_TOKENS = 1 << 16
"""Of one text: a file may say any length."""


@dataclass(frozen=True)
class TokenSpace(InputSpace):
    """Sequences of up to ``length`` tokens, each the number of its place in the ``vocabulary``; what follows the last
    one is ``pad``.

    An entry of the vocabulary is what its token adds to a text, a space in front of it included, so that a text is its
    tokens side by side. A model takes the numbers, int64 n x length, or the relaxation: for each place a weight of each
    token, n x length x vocabulary, which stands for the weighted mean of their embeddings.
    """

    length: int
    vocabulary: tuple[str, ...]
    pad: int = 0

    kind: ClassVar[str] = "text"
    one: ClassVar[str] = "a text"
    kinds: ClassVar[str] = "texts"

    def __post_init__(self) -> None:
        object.__setattr__(self, "vocabulary", tuple(self.vocabulary))
        if type(self.length) is not int or self.length < 1 or not 0 <= self.pad < len(self.vocabulary):
            raise InvalidCase(
                f"Texts have one token or more and are padded by one of the {len(self.vocabulary)} of the vocabulary, "
                f"got length {self.length} and pad {self.pad}; correct them."
            )
        if self.length > MOST_TOKENS:
            raise InvalidCase(f"A text of {self.length} tokens is longer than the {MOST_TOKENS} there may be; cut it.")
        if not all(type(word) is str for word in self.vocabulary):
            raise InvalidCase("The entries of a vocabulary are texts; name what each token adds to one.")
        if len(self.vocabulary) < 2:
            raise InvalidCase("A vocabulary has a token besides its padding; name them.")

    @property
    def shape(self) -> Shape:
        return (self.length,)

    @property
    def size(self) -> str:
        return f"up to {self.length} of {len(self.vocabulary):,} tokens"

    def describe(self) -> str:
        return "the vocabulary and how many tokens a text has at most"

    def check(self, inputs: Tensor) -> None:
        if inputs.is_floating_point() or inputs.ndim != 2 or tuple(inputs.shape[1:]) != self.shape:
            raise InvalidCase(
                f"Texts must be whole numbers of shape n x {self.length}, got {inputs.dtype} of shape "
                f"{tuple(inputs.shape)}; tokenise them and pad them with {self.pad}."
            )
        low, high = int(inputs.min()), int(inputs.max())
        if not 0 <= low <= high < len(self.vocabulary):
            raise InvalidCase(
                f"Tokens run from 0 to {len(self.vocabulary) - 1}, got {low} to {high}; use the model's own tokenizer."
            )
        padded = inputs == self.pad
        if bool(padded[:, 0].any()) or bool((padded[:, :-1] & ~padded[:, 1:]).any()):
            raise InvalidCase(f"A text begins with a token, and only padding, {self.pad}, follows its last; pad right.")

    def lengths(self, inputs: Tensor) -> Tensor:
        """How many tokens each text has."""
        return (inputs != self.pad).sum(dim=-1)

    def tokens(self, member: Tensor) -> list[int]:
        """The tokens of one text, without its padding."""
        return [int(token) for token in member.tolist() if int(token) != self.pad]

    def probe(self, count: int, like: Tensor | ModelState) -> Tensor:
        # Not one token over and over, which some models treat as one.
        others = [token for token in range(min(len(self.vocabulary), self.length + 1)) if token != self.pad]
        row = torch.tensor(others, device=like.device).repeat(self.length)[: self.length]
        return row.expand(count, -1).clone()

    @property
    def relaxed(self) -> Shape:
        return self.length, len(self.vocabulary)

    def draw(self, count: int, *, generator: Generator) -> Tensor:
        tokens = torch.randint(len(self.vocabulary) - 1, (count, self.length), generator=generator)
        tokens = tokens + (tokens >= self.pad)
        lengths = torch.randint((self.length + 1) // 2, self.length + 1, (count, 1), generator=generator)
        return torch.where(torch.arange(self.length) < lengths, tokens, self.pad)

    def noise(self, count: int, like: Tensor | ModelState, *, generator: Generator) -> Tensor:
        return self.place(self.draw(count, generator=generator), like)

    def place(self, inputs: Tensor, like: Tensor | ModelState) -> Tensor:
        return inputs.to(like.device, torch.long)

    def relax(self, inputs: Tensor) -> Tensor:
        if inputs.is_floating_point() and inputs.shape[-1] == len(self.vocabulary) and inputs.ndim > 2:
            return inputs
        return one_hot(inputs.long(), len(self.vocabulary)).to(torch.get_default_dtype())

    def lift(self, relaxed: Tensor) -> Tensor:
        return relaxed

    def decode(self, relaxed: Tensor) -> Tensor:
        """The heaviest token at each place, up to where padding outweighs them from there on: a text ends once."""
        padding = relaxed[..., self.pad]
        others = relaxed.index_fill(-1, torch.tensor([self.pad], device=relaxed.device), -torch.inf)
        heaviest, tokens = others.max(dim=-1)
        # The end with most of what speaks for tokens before it, and for padding behind; one token at least.
        speaking = (heaviest - padding).cumsum(dim=-1)
        ends = speaking.argmax(dim=-1, keepdim=True)
        return torch.where(torch.arange(relaxed.shape[-2], device=relaxed.device) <= ends, tokens, self.pad)

    @property
    def parts(self) -> int:
        return self.length

    def vectors(self, inputs: Tensor) -> Tensor:
        return self.relax(inputs).flatten(1) / 2**0.5

    def distance(self, left: Tensor, right: Tensor) -> Tensor:
        """The share of the longer text that is not in the longest common subsequence of both."""
        common = common_tokens(self._absent(left), self._absent(right))
        longer = torch.maximum(self.lengths(left)[:, None], self.lengths(right)[None])
        return 1 - common.double() / longer.clamp_min(1)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, each the longest that goes on from the last; what the vocabulary cannot spell is left
        out, and so are capitals that it has not.

        >>> TokenSpace(8, ("", " the", " cat", " cats", ".")).encode("The cats, the cat.")
        [1, 3, 1, 2, 4]
        """
        numbers = {piece: number for number, piece in enumerate(self.vocabulary) if piece and number != self.pad}
        longest = max(map(len, numbers))
        rest, found = f" {text.strip()}", []
        while rest:
            ends = range(min(longest, len(rest)), 0, -1)
            piece = next((own for end in ends for own in (rest[:end], rest[:end].lower()) if own in numbers), None)
            found += [] if piece is None else [numbers[piece]]
            rest = rest[1 if piece is None else len(piece) :]
        return found

    def render(self, member: Tensor) -> str:
        return "".join(self.vocabulary[token] for token in self.tokens(member)).strip()

    def _absent(self, inputs: Tensor) -> Tensor:
        inputs = inputs.nan_to_num(self.pad) if inputs.is_floating_point() else inputs
        return torch.where(inputs == self.pad, _ABSENT, inputs.long())


def common_tokens(left: Tensor, right: Tensor) -> Tensor:
    """The length of the longest common subsequence of each of ``left`` (rows) and each of ``right`` (columns).

    Negative entries match nothing.

    >>> common_tokens(torch.tensor([[1, 2, 3, 4]]), torch.tensor([[2, 4, 9, 1], [5, 6, 7, -1]]))
    tensor([[2, 0]])
    """
    table = torch.zeros(right.shape[1] + 1, len(left), len(right), dtype=torch.long)
    for place in range(left.shape[1]):
        same = (left[:, place, None, None] == right) & (left[:, place, None, None] >= 0)
        before = table.clone()
        for other in range(right.shape[1]):
            longer = torch.maximum(before[other + 1], table[other])
            table[other + 1] = torch.where(same[:, :, other], before[other] + 1, longer)
    return table[-1]
