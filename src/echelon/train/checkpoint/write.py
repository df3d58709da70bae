"""One save, from the capture to the commit: files, sync, manifest, rename."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from echelon.codec import decode, encode
from echelon.errors import EchelonError, EnvironmentProblem
from echelon.events import Kind, append_event
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.train.checkpoint import file_format
from echelon.train.checkpoint import file_format as manifests
from echelon.train.checkpoint.capture import Capture
from echelon.train.checkpoint.consensus import Consensus, JsonObject, OutcomeUnknown
from echelon.train.checkpoint.file_format import BLOCK_BYTES, MANIFEST_VERSION, CheckpointName, Manifest, ShardFile
from echelon.train.checkpoint.folder import RunContext, find_newer_start
from echelon.train.checkpoint.retention import Retention, discard_folder, remove_old_checkpoints
from echelon.train.checkpoint.verify import DamagedCheckpoint, check_sizes, next_commit_number

WRITE_CHUNK_BYTES = 1 << 20
"""Bytes written at a time: they are still in the processor's cache after their CRC is computed."""


def write_synced_file(path: Path, parts: Sequence[memoryview | bytes]) -> tuple[int, list[int]]:
    """Writes and syncs a new file. Returns its size and the CRC of each block. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        written = _write_blocks(fd, parts)
        os.fsync(fd)
    finally:
        os.close(fd)
    return written


def _write_blocks(fd: int, parts: Sequence[memoryview | bytes]) -> tuple[int, list[int]]:
    size, crcs = 0, list[int]()
    for part in parts:
        rest = memoryview(part)
        while rest:
            if size % BLOCK_BYTES == 0:
                crcs.append(0)
            room = min(WRITE_CHUNK_BYTES, BLOCK_BYTES - size % BLOCK_BYTES)
            piece, rest = rest[:room], rest[room:]
            crcs[-1] = zlib.crc32(piece, crcs[-1])
            size += len(piece)
            _write_fully(fd, piece)
    return size, crcs


def _write_fully(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def commit_checkpoint(temporary: Path, manifest: Manifest) -> Path:
    """Commits, and returns the checkpoint's final folder. After this returns, the checkpoint survives a crash of the
    machine. Raises OSError."""
    write_synced_file(temporary / file_format.MANIFEST_FILE, [manifests.encode_manifest(manifest)])
    sync_folder(temporary)
    final = _rename_to_free_name(temporary, CheckpointName(manifest.step))
    sync_folder(final.parent)
    return final


def _rename_to_free_name(temporary: Path, name: CheckpointName) -> Path:
    """Renames the folder to the first free take of the name. A rename onto a folder that is not empty fails, so two
    processes cannot overwrite each other's checkpoint."""
    while True:
        final = temporary.with_name(str(name))
        try:
            temporary.rename(final)
        except OSError as error:
            if not final.is_dir():
                raise error from None
            name = name.next_take
        else:
            return final


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@record
class SaveContext:
    """The settings that all saves of a Checkpoint share."""

    folder: Path
    rank: int
    run_context: RunContext
    retention: Retention
    timeout: timedelta


@record
class SaveRequest:
    """The values of one save.

    `began` is a time of time.monotonic().
    """

    step: int
    token: str
    """Part of the temporary folder's name. It is the same on all ranks."""
    score: float | None
    began: float
    waited: float
    """Seconds that training on this rank waited for the copy."""
    parent: str
    """The last checkpoint that was saved or loaded. Empty if there is none."""


@record
class SaveResult:
    """The result of a save, the same on all ranks. `problem` is None if it succeeded."""

    step: int
    folder: str = ""
    seconds: float = 0.0
    waited: float = 0.0
    """Seconds that training waited for the slowest copy."""
    bytes: int = 0
    problem: str | None = None


def run_save(context: SaveContext, request: SaveRequest, capture: Capture, consensus: Consensus) -> SaveResult:
    """Writes this rank's file, and commits on rank 0. Then rank 0 also removes old checkpoints.

    Raises EchelonError if ranks are missing. A full disk and similar failures are returned as the `problem` of the
    result.
    """
    temporary = context.folder / file_format.temporary_folder_name(request.step, request.token)
    report = _write_own_shard(context, request, capture, temporary)
    try:
        outcome = consensus.agree(
            f"save step {request.step}",
            report,
            lambda reports: _commit_or_discard(context, request, temporary, reports),
            context.timeout,
        )
    except EchelonError as error:
        if context.rank == 0 or not isinstance(error, OutcomeUnknown):  # otherwise rank 0 may still commit
            discard_folder(temporary)
        raise
    saved = decode(SaveResult, outcome)
    if saved.problem is not None:
        discard_folder(temporary)  # on all ranks: a late rank may have created the folder again
    elif context.rank == 0:
        _record_event(context, saved)
        remove_old_checkpoints(context.folder, context.retention, new=saved.folder)
    return saved


def _write_own_shard(context: SaveContext, request: SaveRequest, capture: Capture, temporary: Path) -> JsonObject:
    """Writes this rank's file. Returns its description for rank 0, or the problem."""
    path = temporary / file_format.shard_file_name(context.rank)
    try:
        temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
        size, crcs = write_synced_file(path, [capture.data, json.dumps(capture.index).encode()])
    except OSError as error:
        return {"problem": f"rank {context.rank} cannot write {path.name}: {error.strerror or error}"}
    file = ShardFile(
        name=path.name,
        size=size,
        crcs=tuple(crcs),
        begin=capture.begin,
        end=capture.end,
        index=len(capture.data),
    )
    return {"file": encode(file), "digest": capture.digest, "step": request.step, "waited": request.waited}


def find_save_problem(reports: Sequence[JsonObject]) -> str | None:
    """The reason why the files of all ranks cannot be committed; None if they can."""
    problems = [str(report["problem"]) for report in reports if "problem" in report]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return problems[0] + more
    for what, sentence in (("step", "is at step {}, but rank 0 is at step {}"), ("digest", "")):
        for rank, report in enumerate(reports):
            if report[what] != reports[0][what]:
                text = sentence.format(report[what], reports[0][what])
                return f"rank {rank} {text or 'has tensors that differ from those of rank 0'}"
    return None


def _commit_or_discard(
    context: SaveContext, request: SaveRequest, temporary: Path, reports: list[JsonObject]
) -> JsonObject:
    """Commits, on rank 0. Returns the encoded result, with the problem if the commit is not possible."""
    problem = find_save_problem(reports)
    if problem is None:
        files = tuple(decode(ShardFile, report["file"]) for report in reports)
        try:
            saved = _commit_shards(context, request, temporary, files)
            return encode_result(replace(saved, waited=max(float(report["waited"]) for report in reports)))
        except (OSError, DamagedCheckpoint, EchelonError) as error:
            problem = getattr(error, "what", None) or f"rank 0 cannot commit: {error}"
    discard_folder(temporary)
    return encode_result(SaveResult(step=request.step, problem=problem))


def encode_result(saved: SaveResult) -> JsonObject:
    report: JsonObject = encode(saved)
    return report


def _commit_shards(
    context: SaveContext, request: SaveRequest, temporary: Path, files: tuple[ShardFile, ...]
) -> SaveResult:
    check_sizes(temporary, files)
    run_context = context.run_context
    manifest = Manifest(
        version=MANIFEST_VERSION,
        step=request.step,
        time=time.time(),
        files=files,
        commit=next_commit_number(context.folder),
        parent=request.parent,
        score=request.score,
        run=run_context.run_id,
        attempt=run_context.attempt,
        generation=run_context.generation,
    )
    newer = find_newer_start(run_context)
    if newer is not None:
        raise EnvironmentProblem(f"{newer} of this run has started, so this one may no longer commit")
    final = commit_checkpoint(temporary, manifest)
    seconds = time.monotonic() - request.began
    return SaveResult(step=request.step, folder=final.name, seconds=seconds, bytes=manifest.size)


def _record_event(context: SaveContext, saved: SaveResult) -> None:
    """Writes the checkpoint event. The checkpoint is valid without it, so a failure is ignored."""
    run_context = context.run_context
    if run_context.run is None:
        return
    fields: dict[str, Any] = {"step": saved.step, "seconds": round(saved.seconds, 3), "bytes": saved.bytes}
    try:
        append_event(
            RunDir(run_context.run).events,
            Kind.CHECKPOINT,
            run_context.attempt,
            generation=run_context.generation,
            **fields,
        )
    except OSError:
        pass
