"""The order in which DistributedDataParallel adds gradients up, made the same from the first step of every start.

It packs gradients into buckets by guess, and packs them anew after the first step, in the order they came. With more
than two ranks the order within a bucket decides how sums are rounded: so the first step after a restart would differ,
in the last bit, from the same step of a run that was never interrupted.
"""

from __future__ import annotations

from typing import Any


def settle_buckets(wrapped: Any) -> None:
    """Has the buckets packed anew now, by a backward pass over nothing but the parameters: last first, as they come.

    Left as it is where torch would not do it either, or where such a pass would be wrong.
    """
    if wrapped.find_unused_parameters or wrapped.static_graph or _has_sparse_gradients(wrapped.module):
        return
    parameters = [parameter for parameter in wrapped.module.parameters() if parameter.requires_grad]
    reducer = wrapped.reducer
    reducer.prepare_for_backward([])
    sum(parameter.sum() for parameter in parameters).backward()
    reducer._rebuild_buckets()
    for parameter in parameters:
        parameter.grad = None


def _has_sparse_gradients(module: Any) -> bool:
    return any(getattr(part, "sparse", False) for part in module.modules())
