"""Programs that job scripts run: what starts commands on nodes, what carries them, what launches ranks."""

from __future__ import annotations

import re

from echelon.lint.names import names

WRAPPERS = names("time exec nohup command env sudo nice stdbuf eval unbuffer ionice")
STARTERS = names(
    "mpirun mpiexec mpiexec.hydra orterun prterun aprun jsrun ibrun lrun flux prun mpprun pbsdsh pbs_tmrsh "
    "ssh pdsh clush parallel blaunch horovodrun dsh"
)
"""Programs besides srun that start a command on other nodes."""
CARRIERS = names(
    "singularity apptainer enroot docker podman shifter ch-run udocker charliecloud numactl taskset hwloc-bind conda "
    "micromamba mamba poetry uv pipenv rye pixi xvfb-run nsys ncu rocprof perf strace gdb valgrind py-spy catchsegv"
)
"""Programs that run the command after their own options."""
PRINTERS = names("echo printf cat which type ls alias whereis cp rm mv grep sed awk man tee")
SHELLS = names("sh bash dash zsh ksh")
TORCH_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "legacy",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "torch.distributed.elastic.multiprocessing.run": "torchrun",
}
SWITCHES = names(
    "standalone no-python run-path m module use-env use_env multi-gpu cpu debug tpu use-deepspeed use-fsdp "
    "use-megatron-lm same-network no-ssh no-local force-multi quiet mps ipex virtual-local-rank enable-numa-affinity "
    "no-tpu-cluster downcast-bf16 enable-each-rank-log bind-cores-to-rank autotuning"
)
"""Options of launchers without a value."""
PYTHON = re.compile(r"(ipython|python|pypy)[\d.]*t?")
