"""A shuffle of any length that is computed where it is looked at, and never stored."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor  # this file must load without it

LONGEST = 2**62
LONGEST_IN_32_BITS = 2**30  # most datasets: half the memory and two thirds of the time
ROUNDS = 4
SHORT, SHORT_ROUNDS = 1000, 8  # four rounds leave traces in orders of five or eight samples; there, more cost nothing


@dataclass(frozen=True, kw_only=True)
class Permutation:
    """A Feistel network on `high_count` times `2**low_bits` numbers, in words of 32 or 64 bits.

    These are hardly more than `length`, as both halves are about its square root. A number that comes out above is
    sent through again until it falls below (cycle walking): for a million samples, less than one in five hundred.
    """

    length: int
    low_bits: int
    high_count: int
    word_bits: int
    rounds: tuple[tuple[int, ...], ...]

    def indices_at(self, positions: Tensor) -> Tensor:
        """What stands at each of these positions, all of which are below `length`."""
        indices = self._mixed(positions.int() if self.word_bits == 32 else positions)
        outside = (indices >= self.length).nonzero().squeeze(1)
        while outside.numel():
            walked = self._mixed(indices[outside])
            indices[outside] = walked
            outside = outside[walked >= self.length]
        return indices

    def _mixed(self, numbers: Tensor) -> Tensor:
        mask = (1 << self.low_bits) - 1
        low, high = numbers & mask, numbers >> self.low_bits
        for high_factor, high_term, low_factor, low_term in self.rounds:
            low ^= self._hashed(high, high_factor, high_term) & mask
            high += self._hashed(low, low_factor, low_term)
            high %= self.high_count
        return (high << self.low_bits) | low

    def _hashed(self, half: Tensor, factor: int, term: int) -> Tensor:
        """The middle of a square, as half a word with a sign; products wrap."""
        hashed = half * factor
        hashed += term
        hashed *= hashed
        hashed >>= self.word_bits // 2
        return hashed


def permutation(length: int, *, seed: int, epoch: int) -> Permutation:
    """The one order that belongs to these three numbers, whatever the machine and the versions of torch and Python."""
    low_bits = max(length - 1, 0).bit_length() // 2
    word_bits = 32 if length <= LONGEST_IN_32_BITS else 64
    return Permutation(
        length=length,
        low_bits=low_bits,
        high_count=max(1, -(-length // 2**low_bits)),
        word_bits=word_bits,
        rounds=_rounds(f"{seed} {epoch} {length}", SHORT_ROUNDS if length <= SHORT else ROUNDS, word_bits),
    )


def _rounds(key: str, count: int, word_bits: int) -> tuple[tuple[int, ...], ...]:
    """Per round a factor and a term for either half. Factors are odd: even ones would lose bits."""
    words = struct.Struct("<4i" if word_bits == 32 else "<4q")
    digest = hashlib.shake_128(key.encode(), usedforsecurity=False).digest(count * words.size)
    return tuple((a | 1, b, c | 1, d) for a, b, c, d in words.iter_unpack(digest))
