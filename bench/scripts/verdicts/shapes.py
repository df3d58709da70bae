"""One rank multiplies matrices whose sizes do not fit."""

import torch
from common import others_wait

others_wait()
torch.nn.Linear(5, 4)(torch.ones(8, 4))
