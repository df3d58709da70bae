"""One rank needs three times as long as the others for each step. Nothing fails: the run only warns."""

import time

import torch
from common import IS_CULPRIT, train
from common import report as report_step

STEPS = 400

dist = train(steps=0)
for step in range(STEPS):
    time.sleep(0.3 if IS_CULPRIT else 0.1)
    dist.all_reduce(torch.ones(4))
    report_step(step)
dist.destroy_process_group()
