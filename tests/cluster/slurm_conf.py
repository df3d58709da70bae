"""What Slurm's daemons read: the files of /etc/slurm."""

from __future__ import annotations

from collections.abc import Mapping

STATE = "/run/slurmctld-state"
SLURM = """
ClusterName=echelon
SlurmctldHost=ctl({ctl})
SlurmUser=slurm
AuthType=auth/munge
# a requeued job starts again after cred_expire + 1 seconds; the default is two minutes
AuthInfo=cred_expire=10
MailProg=/bin/true
MpiDefault=none
StateSaveLocation={state}
SlurmdSpoolDir=/run/slurmd-spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
# the nodes have what is written below, whatever the machine has
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
MessageTimeout=5
BatchStartTimeout=10
KillWait=5
MinJobAge=600
FirstJobId=1001
SchedulerParameters=batch_sched_delay=0,bf_interval=2
AccountingStorageType={accounting}
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
{nodes}
PartitionName=main Nodes=ALL Default=YES PriorityTier=5 PreemptMode=OFF State=UP
PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=8 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 State=UP
PartitionName=small Nodes=ALL PriorityTier=5 PreemptMode=OFF MaxNodes=1 MaxTime=10 State=UP
{extra}
"""


def slurm_files(*, addresses: Mapping[str, str], cpus: int, gpus: int, accounting: bool, extra: str) -> dict[str, str]:
    """The files' names and texts; `addresses` has "ctl" and every compute node."""
    nodes = {name: address for name, address in addresses.items() if name != "ctl"}
    lines = [f"NodeName={n} NodeAddr={a} CPUs={cpus} RealMemory=16000 Gres=gpu:{gpus}" for n, a in nodes.items()]
    gres = [f"NodeName={name} Name=gpu File=/dev/nvidia[0-{gpus - 1}]" for name in nodes] if gpus else []
    slurm = SLURM.format(
        ctl=addresses["ctl"],
        state=STATE,
        accounting=f"accounting_storage/{'slurmdbd' if accounting else 'none'}",
        nodes="\n".join(lines),
        extra=extra,
    )
    return {
        "slurm.conf": slurm,
        "gres.conf": "\n".join(["AutoDetect=off", *gres]) + "\n",
        # to look for it is fatal where /sys/fs/cgroup is not a mount
        "cgroup.conf": "CgroupPlugin=cgroup/v1\n",
    }
