"""One rank finds that its loss is not a number: nan_loss.py raise|clip|anomaly."""

import sys

import torch
from common import others_wait

others_wait()
model = torch.nn.Linear(4, 1)
if sys.argv[1] == "raise":
    loss = model(torch.ones(4)) * float("nan")
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is {loss.item()} at step 7")
elif sys.argv[1] == "clip":
    (model(torch.ones(4)) * float("inf")).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
else:
    with torch.autograd.set_detect_anomaly(True):
        torch.sqrt(model(torch.zeros(4)) * 0).sum().backward()
