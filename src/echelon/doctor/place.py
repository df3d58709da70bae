"""A node's place among the nodes of a doctor job, and the lines in which it prints its results."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from echelon.codec import encode
from echelon.doctor.model import Plan, Result
from echelon.placement import STORE_KEY
from echelon.system.network import address_of, source_address
from echelon.untrusted import parse_json

MARK = '{"doctor": '


def format_line(kind: str, value: Mapping[str, Any]) -> str:
    return json.dumps({"doctor": kind, **value})


def emit(kind: str, **value: Any) -> None:
    """One line, written at once, so that lines of other processes cannot get into it."""
    os.write(1, format_line(kind, value).encode() + b"\n")


def emit_result(result: Result) -> None:
    emit("result", **encode(replace(result, seconds=round(result.seconds, 3))))


@dataclass(frozen=True, kw_only=True)
class Place:
    """This node's place in the doctor job, from the variables of its rank."""

    rank: int
    size: int
    main: tuple[str, int]
    token: bytes
    run_id: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Place:
        return cls(
            rank=int(environ["RANK"]),
            size=int(environ["WORLD_SIZE"]),
            main=(environ["MASTER_ADDR"], int(environ["MASTER_PORT"])),
            token=bytes.fromhex(environ[STORE_KEY]),
            run_id=environ["ECHELON_RUN_ID"],
        )

    @classmethod
    def from_json(cls, text: str, environ: Mapping[str, str]) -> Place:
        """The place of a preflight check. The key comes in a variable, which other users cannot read."""
        value = parse_json(text)
        return cls(
            rank=value["rank"],
            size=value["size"],
            main=(value["address"], value["port"]),
            token=bytes.fromhex(environ[STORE_KEY]),
            run_id=value["run_id"],
        )

    def own_address(self, plan: Plan) -> str:
        """The address on the chosen network. Rehearsed nodes have loopback addresses of their own."""
        if plan.interface:
            return address_of(plan.interface)
        if self.main[0].startswith("127."):
            return f"127.0.0.{self.rank % 254 + 1}"
        return source_address(self.main[0]) or self.main[0]
