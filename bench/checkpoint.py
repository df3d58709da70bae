"""Saves and restores 500 MB of model and Adam state on four ranks, and compares with torch's own functions."""

import json
import shutil

from harness import Trial, ours, repeats, table

trial = Trial()
argv = [*ours(4, "checkpoint_ranks.py"), str(repeats(5))]
process = trial.start(argv)
if process.wait(900) != 0:
    raise SystemExit((trial.folder / "output").read_text()[-3000:])
found = json.loads((trial.folder / "results").read_text())
shutil.rmtree(trial.folder)

milliseconds = {name: [1000 * value for value in values] for name, values in found.items() if name != "written"}
table(
    "Training waits for a save of 500 MB, 4 ranks",
    "ms",
    {
        "Checkpoint.save": milliseconds["ours"],
        "memcpy of a rank's share": milliseconds["memcpy"],
        "torch.save on rank 0": milliseconds["torch.save"],
        "torch.distributed.checkpoint": milliseconds["dcp.save"],
        "(ours, to the commit)": milliseconds["to the commit"],
    },
    ours="Checkpoint.save",
    bound="at most 1.3 times the memcpy; torch.save at least 5 times ours",
)
table(
    "Restoring it on every rank, checked",
    "ms",
    {"Checkpoint.load": milliseconds["load"], "torch.load": milliseconds["torch.load"]},
    ours="Checkpoint.load",
    bound="torch.load at least 1.0 times ours",
)
print(f"\nBytes written, as a share of the state: {found['written'][0]:.4f} (at most 1.02)")
