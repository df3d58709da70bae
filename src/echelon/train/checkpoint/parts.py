"""The objects that a Checkpoint saves and loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echelon.record import record
from echelon.train.checkpoint.capture import CapturePlan, plan_capture
from echelon.train.checkpoint.loaders import check_loaders, is_finished, is_loader, is_position
from echelon.train.checkpoint.reader import CheckpointReader
from echelon.train.checkpoint.state import (
    RESERVED_NAME,
    check_optimizer_classes,
    check_part_names,
    check_parts,
    collect_states,
    load_states,
    optimizer_classes,
    replicated_tensor_test,
    target_lookup,
)
from echelon.train.checkpoint.tree import FlatState


@record
class CheckpointParts:
    """The objects that a Checkpoint saves: `common` ones are equal on all ranks, `own` ones differ, such as loaders."""

    common: dict[str, Any]
    own: dict[str, Any]
    loaders: frozenset[str]

    @classmethod
    def sorted_from(cls, common: Mapping[str, Any], own: Mapping[str, Any]) -> CheckpointParts:
        """Raises ConfigError for an object that cannot be saved. A loader is always an own part of each rank."""
        check_parts({**common, **own}, "echelon.Checkpoint")
        loaders = frozenset(name for name, part in {**common, **own}.items() if is_loader(part))
        check_loaders({name: part for name, part in {**common, **own}.items() if name in loaders})
        return cls(
            common={name: part for name, part in common.items() if name not in loaders},
            own={**own, **{name: part for name, part in common.items() if name in loaders}},
            loaders=loaders,
        )

    @property
    def all(self) -> dict[str, Any]:
        return {**self.common, **self.own}

    def load_common(self, reader: CheckpointReader, *, origin: str) -> dict[str, Any]:
        """Loads the common parts and returns the complete common state."""
        check_part_names(self.common, reader.names, origin=origin)
        check_optimizer_classes(self.common, reader.without_tensors(RESERVED_NAME).get("optimizers", {}), origin=origin)
        state: dict[str, Any] = reader.common(target_lookup(self.common))
        load_states(self.common, state, origin=origin)
        return state

    def load_own(self, states: Mapping[str, Any], *, origin: str, same_size: bool) -> dict[str, bool]:
        """Loads the own parts. Returns the name of each loaded part, and whether it is at the end of its epoch.

        The state of a loader is loaded only on as many ranks as saved it: it does not fit another share of the data.
        """
        check_part_names(self.own, list(states), origin=origin)
        unfit = {name for name in self.loaders if not same_size or not is_position(states[name])}
        fitting = {name: part for name, part in self.own.items() if name not in unfit}
        load_states(fitting, states, origin=origin)
        return {name: is_finished(states[name]) for name in fitting}

    def plan_capture(self, common: Mapping[str, Any], own: Mapping[str, Any], *, rank: int, size: int) -> CapturePlan:
        """Plans the copy of all parts, of `common` values that are equal on all ranks, and of `own` values."""
        alike = {**common, "optimizers": optimizer_classes(self.common)}
        return plan_capture(
            FlatState({RESERVED_NAME: alike, **collect_states(self.common)}),
            FlatState({RESERVED_NAME: own, **collect_states(self.own)}),
            rank,
            size,
            alike=replicated_tensor_test(self.common),
        )
