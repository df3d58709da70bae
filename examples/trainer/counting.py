"""The training text: the numbers from one to ninety-nine in words, a few of them twice, cut into windows."""

import torch

ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
TEENS = ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
LETTERS = "abcdefghijklmnopqrstuvwxyz-, "
WINDOW = 33


def words() -> list[str]:
    """From one to ninety-nine."""
    return ONES + TEENS + [ten + one for ten in TENS for one in ("", *(f"-{word}" for word in ONES[:9]))]


def encode(text: str) -> torch.Tensor:
    return torch.tensor([LETTERS.index(letter) for letter in text])


class Windows(torch.utils.data.Dataset):
    """Each sample has its index, so that a trace can show which samples were used, and a window of letters."""

    def __init__(self):
        self.text = encode("".join(f"{word}, " for word in [*words(), *words()[:10]]))

    def __len__(self):
        return len(self.text) - WINDOW

    def __getitem__(self, index):
        return index, self.text[index : index + WINDOW]
