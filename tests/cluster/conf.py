"""Configuration files of the daemons, for /etc of a node."""

from __future__ import annotations

from collections.abc import Mapping

from daemons import HOST_KEY, STATE

SLURM = """\
ClusterName=echelon
SlurmctldHost=ctl({ctl})
SlurmUser=slurm
AuthType=auth/munge
# a requeued job starts again after cred_expire + 1 seconds; the default is two minutes; with less a job that stops slowly never waits
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
KillWait=10
MinJobAge=600
FirstJobId=1001
SchedulerParameters=batch_sched_delay=0,bf_interval=2
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
"""
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageTRES=gres/gpu
"""
SLURMDBD = """\
AuthType=auth/munge
DbdHost=ctl
SlurmUser=slurm
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
CommitDelay=1
"""
ACCOUNTS = """\
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""
SSHD = f"""\
HostKey {HOST_KEY}
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
"""


def slurm_files(*, addresses: Mapping[str, str], cpus: int, gpus: int, extra: str) -> dict[str, str]:
    """Their names and texts; `addresses` has "ctl" and every compute node."""
    nodes = {name: address for name, address in addresses.items() if name != "ctl"}
    lines = [f"NodeName={n} NodeAddr={a} CPUs={cpus} RealMemory=16000 Gres=gpu:{gpus}" for n, a in nodes.items()]
    gres = [f"NodeName={name} Name=gpu File=/dev/nvidia[0-{gpus - 1}]" for name in nodes] if gpus else []
    return {
        "slurm/slurm.conf": SLURM.format(ctl=addresses["ctl"], state=STATE, nodes="\n".join(lines)) + extra,
        "slurm/gres.conf": "\n".join(["AutoDetect=off", *gres, ""]),
        # to look for it is fatal where /sys/fs/cgroup is not a mount
        "slurm/cgroup.conf": "CgroupPlugin=cgroup/v1\n",
    }
