"""Translates Slurm's states, reasons and refusals to states of echelon and sentences for users."""

from __future__ import annotations

import re
from signal import SIGKILL, SIGTERM

from echelon.errors import TIME_LIMIT
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
    "REQUEUE_HOLD": "requeued and held; scontrol release JOB releases it",
    "SPECIAL_EXIT": "requeued, and held because of its exit code",
    "SUSPENDED": "suspended",
    "STOPPED": "stopped",
    "CANCELLED": "cancelled",
    "TIMEOUT": "its time limit was reached",
    "OUT_OF_MEMORY": "a node exceeded its memory limit",
    "NODE_FAIL": "one of its nodes failed",
    "BOOT_FAIL": "one of its nodes could not boot",
    "LAUNCH_FAILED": "it could not be launched on its nodes",
    "RECONFIG_FAIL": "one of its nodes could not be configured",
    "DEADLINE": "its deadline passed",
    "PREEMPTED": "preempted by another job",
    "REVOKED": "another cluster of the federation runs it",
}
EXIT_CODES = {"TIMEOUT": TIME_LIMIT, "DEADLINE": TIME_LIMIT, "CANCELLED": 128 + SIGTERM, "OUT_OF_MEMORY": 128 + SIGKILL}
"""Exit codes of a run for states in which Slurm reports no code, or 0."""
REASONS = {
    "Resources": "waiting for nodes to become free",
    "Priority": "jobs of higher priority come first",
    "Dependency": "waiting for a job it depends on",
    "DependencyNeverSatisfied": "a job it depends on did not end as required; this job will never start",
    "BeginTime": "its start time has not been reached; Slurm delays the start after a requeue",
    "JobHeldUser": "held by its owner; scontrol release JOB releases it",
    "JobHeldAdmin": "held by an administrator",
    "JobArrayTaskLimit": "the limit of simultaneous runs of its array is reached",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "its partition does not allow that many nodes",
    "PartitionTimeLimit": "its partition does not allow that much time",
    "PartitionConfig": "its partition cannot provide the requested resources",
    "ReqNodeNotAvail": "a requested node is down, drained or reserved",
    "NodeDown": "a requested node is down",
    "BadConstraints": "no node has the requested features; this job will never start",
    "Licenses": "waiting for a licence",
    "Reservation": "waiting for its reservation",
    "ReservationDeleted": "its reservation is gone",
    "Cleaning": "its last attempt is being cleaned up",
    "Prolog": "its nodes are being prepared",
    "NodeBooting": "its nodes are starting up",
    "AccountNotAllowed": "its account may not use the partition",
    "InvalidAccount": "its account does not exist",
    "InvalidQOS": "its QOS does not exist",
    "QOSNotAllowed": "its partition does not allow its QOS",
    "QOSJobLimit": "its QOS has reached its limit of jobs",
    "QOSResourceLimit": "its QOS has reached its limit of resources",
    "QOSTimeLimit": "its QOS has reached its limit of time",
    "QOSUsageThreshold": "its QOS has exceeded its usage threshold",
    "AssociationJobLimit": "its account has reached its limit of jobs",
    "AssociationResourceLimit": "its account has reached its limit of resources",
    "AssociationTimeLimit": "its account has reached its limit of time",
    "MaxRequeue": "held: Slurm's limit of requeues is reached",
    "RaisedSignal": "a signal ended it",
    "NonZeroExitCode": "it ended with an exit code other than 0",
    "JobLaunchFailure": "its script did not start, or was killed at once; its folders must also exist on the nodes",
    "launch failed requeued held": "Slurm could not start its script and holds it; scontrol release JOB tries again",
    "job requeued in held state": "requeued and held; scontrol release JOB releases it",
    "TimeLimit": "its time limit was reached",
    "OutOfMemory": "a node exceeded its memory limit",
    "FedJobLock": "the clusters of the federation are choosing the one that runs it",
    "WaitingForScheduling": "just queued",
    "None": "",
    "NonE": "",
}
_LIMIT = re.compile(r"(?:(Assoc|QOS)(Grp|Max|Min)?|(?:Max|Min))([A-Z]\w*)")
_OF = {"Assoc": "its account", "QOS": "its QOS"}
_THINGS = (
    ("CpuRunMin", "CPU time"),
    ("CpuMin", "CPU time"),
    ("CPURunMin", "CPU time"),
    ("CPUMin", "CPU time"),
    ("GRESRunMin", "GPU time"),
    ("GRESMin", "GPU time"),
    ("GRES", "GPUs"),
    ("Cpu", "CPUs"),
    ("CPU", "CPUs"),
    ("Node", "nodes"),
    ("Mem", "memory"),
    ("Wall", "time"),
    ("Submit", "submitted jobs"),
    ("Job", "jobs"),
    ("Billing", "billing units"),
    ("BB", "burst buffer"),
    ("License", "licences"),
    ("Energy", "energy"),
)


def reason_sentence(reason: str) -> str:
    """Slurm's reason as a sentence. An unknown reason is shown as it is."""
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


REFUSAL_HINTS = {
    "partition specified": "sinfo lists the partitions; -p NAME chooses one",
    "Invalid partition": "sinfo lists the partitions; -p NAME chooses one",
    "Invalid account": "--account NAME; sacctmgr show associations user=$USER lists yours",
    "Invalid qos": "--qos NAME; sacctmgr show qos lists them",
    "Invalid generic resource": "sinfo -o '%P %D %G' lists the GPUs; --cpu requests none, --gres uses --gres=gpu:N",
    "More processors requested": "sinfo -o '%P %D %c' lists the CPUs; request fewer with --cpus",
    "Memory specification": "sinfo -o '%P %D %m' lists the memory; request less with --mem",
    "node configuration is not available": "sinfo -o '%P %D %c %m %G' lists the nodes; --cpu requests no GPUs",
    "time limit": "sinfo -o '%P %l' lists the limits; use a shorter --time, and --requeues to continue",
    "unrecognized option": "sbatch --help lists what --slurm can pass on",
    "Invalid job array": "scontrol show config | grep MaxArraySize",
}
"""Hints for refused requests, by a part of Slurm's message. The last line of a message is often general, so that part
comes after the causes."""
