"""Slurm's words for states and reasons, and what they mean to the person who waits."""

from __future__ import annotations

import re
from signal import SIGKILL, SIGTERM

from echelon.exit_codes import TIME_LIMIT
from echelon.states import JobState

STATES = {
    "PENDING": JobState.QUEUED,
    "EXPEDITING": JobState.QUEUED,
    "RESV_DEL_HOLD": JobState.QUEUED,
    "REQUEUED": JobState.REQUEUED,
    "REQUEUE_FED": JobState.REQUEUED,
    "REQUEUE_HOLD": JobState.REQUEUED,
    "SPECIAL_EXIT": JobState.REQUEUED,
    "CONFIGURING": JobState.STARTING,
    "POWER_UP_NODE": JobState.STARTING,
    "RUNNING": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "SUSPENDED": JobState.RUNNING,
    "COMPLETED": JobState.SUCCEEDED,
    "CANCELLED": JobState.CANCELLED,
    "FAILED": JobState.FAILED,
    "TIMEOUT": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
    "NODE_FAIL": JobState.FAILED,
    "BOOT_FAIL": JobState.FAILED,
    "LAUNCH_FAILED": JobState.FAILED,
    "RECONFIG_FAIL": JobState.FAILED,
    "DEADLINE": JobState.FAILED,
    "PREEMPTED": JobState.FAILED,
    "REVOKED": JobState.FAILED,
}

STATE_SENTENCES = {
    "REQUEUE_HOLD": "requeued, and held until somebody releases it",
    "SPECIAL_EXIT": "requeued, and held because of its exit code",
    "SUSPENDED": "suspended",
    "STOPPED": "stopped",
    "CANCELLED": "cancelled",
    "TIMEOUT": "its time limit was reached",
    "OUT_OF_MEMORY": "a node ran out of the memory it was given",
    "NODE_FAIL": "a node of it failed",
    "BOOT_FAIL": "a node of it could not be started",
    "LAUNCH_FAILED": "it could not be launched on its nodes",
    "RECONFIG_FAIL": "a node of it could not be set up",
    "DEADLINE": "its deadline passed",
    "PREEMPTED": "it had to make way for another job",
    "REVOKED": "another cluster of the federation took it",
}

EXIT_CODES = {"TIMEOUT": TIME_LIMIT, "DEADLINE": TIME_LIMIT, "CANCELLED": 128 + SIGTERM, "OUT_OF_MEMORY": 128 + SIGKILL}
"""What a run ends with where Slurm's own code would say nothing, or 0."""

REASONS = {
    "Resources": "waiting for nodes to become free",
    "Priority": "jobs of higher priority come first",
    "Dependency": "waiting for a job it depends on",
    "DependencyNeverSatisfied": "a job it depends on did not end as asked for, so this one will never start",
    "BeginTime": "it may not start yet; after a requeue Slurm waits for a moment",
    "JobHeldUser": "held by its owner; scontrol release lets it go",
    "JobHeldAdmin": "held by an administrator",
    "JobArrayTaskLimit": "as many of its array as may run at once do so",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "its partition does not allow that many nodes",
    "PartitionTimeLimit": "its partition does not allow that much time",
    "PartitionConfig": "its partition cannot give what it asks for",
    "ReqNodeNotAvail": "a node it asks for is down, drained or reserved",
    "NodeDown": "a node it asks for is down",
    "BadConstraints": "no node has what it asks for, so it will never start",
    "Licenses": "waiting for a licence",
    "Reservation": "waiting for its reservation",
    "ReservationDeleted": "its reservation is gone",
    "Cleaning": "its last attempt is being cleaned up",
    "Prolog": "its nodes are being prepared",
    "NodeBooting": "its nodes are starting up",
    "AccountNotAllowed": "its account may not use the partition",
    "InvalidAccount": "its account does not exist",
    "InvalidQOS": "its QOS does not exist",
    "QOSNotAllowed": "its QOS may not be used there",
    "QOSJobLimit": "its QOS has as many jobs as it may",
    "QOSResourceLimit": "its QOS has as much as it may",
    "QOSTimeLimit": "its QOS has used up its time",
    "QOSUsageThreshold": "its QOS has been used too much of late",
    "AssociationJobLimit": "its account has as many jobs as it may",
    "AssociationResourceLimit": "its account has as much as it may",
    "AssociationTimeLimit": "its account has used up its time",
    "MaxRequeue": "it was requeued as often as Slurm allows, and is held",
    "RaisedSignal": "a signal ended it",
    "NonZeroExitCode": "it ended with an exit code other than 0",
    "JobLaunchFailure": "its script could not be started, or was killed at once; its folders must be on the nodes too",
    "launch failed requeued held": "Slurm could not start its script, and holds it; scontrol release lets it try again",
    "job requeued in held state": "requeued and held; scontrol release lets it go",
    "TimeLimit": "its time limit was reached",
    "OutOfMemory": "a node ran out of the memory it was given",
    "FedJobLock": "the clusters of the federation are agreeing who runs it",
    "WaitingForScheduling": "it has only just been queued",
    "None": "",
    "NonE": "",
}

_LIMIT = re.compile(r"(?:(Assoc|QOS)(Grp|Max|Min)?|(?:Max|Min))([A-Z]\w*)")
_OF = {"Assoc": "its account", "QOS": "its QOS"}
_THINGS = (
    ("CpuRunMin", "CPU time"), ("CpuMin", "CPU time"), ("CPURunMin", "CPU time"), ("CPUMin", "CPU time"),
    ("GRESRunMin", "GPU time"), ("GRESMin", "GPU time"), ("GRES", "GPUs"), ("Cpu", "CPUs"), ("CPU", "CPUs"),
    ("Node", "nodes"), ("Mem", "memory"), ("Wall", "time"), ("Submit", "submitted jobs"), ("Job", "jobs"),
    ("Billing", "billing units"), ("BB", "burst buffer"), ("License", "licences"), ("Energy", "energy"),
)  # fmt: skip


def reason_sentence(reason: str) -> str:
    """Slurm's reason as a sentence; one that is new to us is shown as it is."""
    word = re.split("[,:]", reason, maxsplit=1)[0]
    if word in REASONS:
        more = reason.removeprefix(word).lstrip(",:").replace("_", " ").strip()
        return f"{REASONS[word]} ({more})" if more else REASONS[word]
    match = _LIMIT.fullmatch(word)
    if match is None:
        return reason.replace("_", " ") if reason.count("_") > 2 else reason
    thing = next((name for part, name in _THINGS if part in match.group(3)), None)
    if thing is None:
        return reason
    return f"the limit of {_OF.get(match.group(1), 'its account or QOS')} on {thing} is reached ({word})"


REMEDIES = {
    "configuration source": "--on local runs on this machine; SLURM_CONF=FILE names the cluster's configuration",
    "partition specified": "sinfo lists the partitions; -p NAME chooses one",
    "Invalid partition": "sinfo lists the partitions; -p NAME chooses one",
    "Invalid account": "--account NAME; sacctmgr show associations user=$USER lists yours",
    "Invalid qos": "--qos NAME; sacctmgr show qos lists them",
    "Invalid generic resource": "sinfo -o '%P %D %G' shows what there is; --cpu asks for no GPUs, --gres otherwise",
    "node configuration is not available": "sinfo -o '%P %D %c %m %G' shows what there is; --cpu asks for no GPUs",
    "More processors requested": "sinfo -o '%P %D %c' shows what there is; fewer --cpus",
    "Memory specification": "sinfo -o '%P %D %m' shows what there is; less --mem",
    "time limit": "sinfo -o '%P %l' shows the limits; a shorter --time, with --requeues to go on",
    "unrecognized option": "sbatch --help lists what --slurm can pass on",
    "Invalid job array": "scontrol show config | grep MaxArraySize",
}
"""What to try after a refusal, by words that are in it."""
