"""One rank creates a tensor that no machine can hold."""

import torch
from common import others_wait

others_wait()
torch.empty(1 << 50)
