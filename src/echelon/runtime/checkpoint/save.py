"""One save, from the snapshot to the commit; runs in a thread of its own, on every rank at once."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from echelon.codec import decode, encode
from echelon.errors import EchelonError, EnvironmentProblem
from echelon.events import Kind, append_event
from echelon.run_dir import RunDir
from echelon.runtime.checkpoint import names
from echelon.runtime.checkpoint.council import Council, Unheard, Word
from echelon.runtime.checkpoint.fence import Standing, replaced_by
from echelon.runtime.checkpoint.manifest import VERSION, File, Manifest
from echelon.runtime.checkpoint.prune import prune
from echelon.runtime.checkpoint.retention import Retention
from echelon.runtime.checkpoint.snapshot import Snapshot
from echelon.runtime.checkpoint.verify import Damaged, check_sizes, next_commit
from echelon.runtime.checkpoint.writer import commit, discard, write_shard


@dataclass(frozen=True, kw_only=True)
class Place:
    """What all saves of a Checkpoint have in common."""

    folder: Path
    rank: int
    standing: Standing
    retention: Retention
    timeout: timedelta


@dataclass(frozen=True, kw_only=True)
class Order:
    """One save."""

    step: int
    token: str
    """Part of the temporary folder's name, and the same on all ranks."""
    score: float | None
    began: float
    parent: str
    """The last checkpoint that was saved or loaded; empty for none."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """How a save ended, on every rank alike."""

    step: int
    folder: str = ""
    seconds: float = 0.0
    bytes: int = 0
    problem: str | None = None


def carry_out(place: Place, order: Order, snapshot: Snapshot, council: Council) -> Saved:
    """Raises EchelonError when ranks are missing; a full disk and the like are told in what is returned."""
    temporary = place.folder / names.temporary(order.step, order.token)
    report = _write(place, order, snapshot, temporary)
    try:
        outcome = council.settle(
            f"save step {order.step}", report, lambda words: _conclude(place, order, temporary, words), place.timeout
        )
    except EchelonError as error:
        if place.rank == 0 or not isinstance(error, Unheard):  # unheard of, rank 0 may be about to commit it
            discard(temporary)
        raise
    saved = decode(Saved, outcome)
    if saved.problem is not None:
        discard(temporary)  # here too: a rank that came late made the folder anew
    elif place.rank == 0:
        _record(place, saved)
        prune(place.folder, place.retention, new=saved.folder)
    return saved


def _write(place: Place, order: Order, snapshot: Snapshot, temporary: Path) -> Word:
    """What this rank has to say of its file, be it only why there is none."""
    path = temporary / names.shard(place.rank)
    try:
        temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
        size, crcs = write_shard(path, [snapshot.data, json.dumps(snapshot.index).encode()])
    except OSError as error:
        return {"problem": f"rank {place.rank} cannot write {path.name}: {error.strerror or error}"}
    file = File(
        name=path.name, size=size, crcs=tuple(crcs), begin=snapshot.begin, end=snapshot.end,
        index=len(snapshot.data),
    )  # fmt: skip
    return {"file": encode(file), "digest": snapshot.digest, "step": order.step}


def problem_in(words: Sequence[Word]) -> str | None:
    """Why these files make no checkpoint."""
    problems = [str(word["problem"]) for word in words if "problem" in word]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return problems[0] + more
    for what, sentence in (("step", "is at step {}, and rank 0 at step {}"), ("digest", "")):
        for rank, word in enumerate(words):
            if word[what] != words[0][what]:
                text = sentence.format(word[what], words[0][what])
                return f"rank {rank} {text or 'has other tensors than rank 0'}"
    return None


def _conclude(place: Place, order: Order, temporary: Path, words: list[Word]) -> Word:
    """On rank 0 alone: the commit, or the reason why there is none."""
    problem = problem_in(words)
    if problem is None:
        files = tuple(decode(File, word["file"]) for word in words)
        try:
            return encode_saved(_committed(place, order, temporary, files))
        except (OSError, Damaged, EchelonError) as error:
            problem = getattr(error, "what", None) or f"rank 0 cannot commit: {error}"
    discard(temporary)
    return encode_saved(Saved(step=order.step, problem=problem))


def encode_saved(saved: Saved) -> Word:
    word: Word = encode(saved)
    return word


def _committed(place: Place, order: Order, temporary: Path, files: tuple[File, ...]) -> Saved:
    check_sizes(temporary, files)
    standing = place.standing
    manifest = Manifest(
        version=VERSION, step=order.step, time=time.time(), files=files, commit=next_commit(place.folder),
        parent=order.parent, score=order.score,
        run=standing.run_id, attempt=standing.attempt, generation=standing.generation,
    )  # fmt: skip
    newer = replaced_by(standing)
    if newer is not None:
        raise EnvironmentProblem(f"{newer} of this run has taken over, so this one may no longer commit")
    final = commit(temporary, manifest)
    seconds = time.monotonic() - order.began
    return Saved(step=order.step, folder=final.name, seconds=seconds, bytes=manifest.size)


def _record(place: Place, saved: Saved) -> None:
    """For those who watch the run; the checkpoint is there with or without it."""
    standing = place.standing
    if standing.run is None:
        return
    fields: dict[str, Any] = {"step": saved.step, "seconds": round(saved.seconds, 3), "bytes": saved.bytes}
    try:
        append_event(
            RunDir(standing.run).events, Kind.CHECKPOINT, standing.attempt, generation=standing.generation, **fields
        )
    except OSError:
        pass
