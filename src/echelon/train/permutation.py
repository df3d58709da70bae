"""A pseudorandom permutation of any length that is computed on access and never stored."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

from echelon.record import record

if TYPE_CHECKING:
    from torch import Tensor  # this module must be importable without torch


MAX_LENGTH = 2**62
MAX_LENGTH_32_BITS = 2**30  # most datasets; 32 bits take half the memory and two thirds of the time
ROUNDS = 4
SHORT_LENGTH, SHORT_ROUNDS = (
    1000,
    8,
)  # four rounds leave patterns in orders of five or eight samples; here more cost nothing


@record
class Permutation:
    """A Feistel network on `high_count` times `2**low_bits` numbers, in words of 32 or 64 bits.

    Both halves are about the square root of `length`, so the domain is hardly larger than `length`. A result of
    `length` or more goes through the network again until it is below (cycle walking). For a million samples, that is
    less than one in five hundred.
    """

    length: int
    low_bits: int
    high_count: int
    word_bits: int
    rounds: tuple[tuple[int, ...], ...]

    def indices_at(self, positions: Tensor) -> Tensor:
        """The sample index at each position. All positions must be below `length`."""
        indices = self._mix(positions.int() if self.word_bits == 32 else positions)
        outside = (indices >= self.length).nonzero().squeeze(1)
        while outside.numel():
            walked = self._mix(indices[outside])
            indices[outside] = walked
            outside = outside[walked >= self.length]
        return indices

    def _mix(self, numbers: Tensor) -> Tensor:
        mask = (1 << self.low_bits) - 1
        low, high = numbers & mask, numbers >> self.low_bits
        for high_factor, high_term, low_factor, low_term in self.rounds:
            low ^= self._hash_half(high, high_factor, high_term) & mask
            high += self._hash_half(low, low_factor, low_term)
            high %= self.high_count
        return (high << self.low_bits) | low

    def _hash_half(self, half: Tensor, factor: int, term: int) -> Tensor:
        """The middle bits of a square, as a signed half word. Products wrap around."""
        hashed = half * factor
        hashed += term
        hashed *= hashed
        hashed >>= self.word_bits // 2
        return hashed


def epoch_permutation(length: int, *, seed: int, epoch: int) -> Permutation:
    """The order for these three numbers. It is the same on every machine and with every version of torch and Python."""
    low_bits = max(length - 1, 0).bit_length() // 2
    word_bits = 32 if length <= MAX_LENGTH_32_BITS else 64
    return Permutation(
        length=length,
        low_bits=low_bits,
        high_count=max(1, -(-length // 2**low_bits)),
        word_bits=word_bits,
        rounds=_round_keys(f"{seed} {epoch} {length}", SHORT_ROUNDS if length <= SHORT_LENGTH else ROUNDS, word_bits),
    )


def _round_keys(key: str, count: int, word_bits: int) -> tuple[tuple[int, ...], ...]:
    """A factor and a term for each half, per round. Factors are odd: even ones would lose bits."""
    words = struct.Struct("<4i" if word_bits == 32 else "<4q")
    digest = hashlib.shake_128(key.encode(), usedforsecurity=False).digest(count * words.size)
    return tuple((a | 1, b, c | 1, d) for a, b, c, d in words.iter_unpack(digest))
