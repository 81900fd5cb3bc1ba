"""How much memory a computation needs at its peak, in tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.profiler import ProfilerActivity, profile


def peak_memory(run: Callable[[], object]) -> int:
    """Most bytes of CPU tensors that were alive at one moment of ``run()`` and had been allocated in it.

    Read from torch's allocator through its profiler, and so including what an operation allocates and frees inside
    itself, but neither oneDNN's own scratch space nor what was alive before, even if ``run`` frees it.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        result = run()
    del result  # kept until here: what is returned was alive at the end
    assert recorded.profiler is not None
    results = recorded.profiler.kineto_results
    assert results is not None
    return peak_of(_allocations(results.experimental_event_tree()))


def peak_of(allocations: Iterable[tuple[int, int]]) -> int:
    """Peak of allocations (address, bytes) and releases (address, -bytes) in their order.

    A release whose allocation is not among them is of an older tensor and does not count.

    >>> peak_of([(1, 5), (9, -70), (2, 5), (1, -5), (1, 4)])
    10
    """
    alive: dict[int, int] = {}
    total = peak = 0
    for address, size in allocations:
        if size > 0:
            alive[address] = size
            total += size
        else:
            total -= alive.pop(address, 0)
        peak = max(peak, total)
    return peak


def _allocations(roots: Iterable[Any]) -> Iterator[tuple[int, int]]:
    events, found = list(roots), []
    while events:
        event = events.pop()
        events += event.children
        if event.tag.name == "Allocation" and event.extra_fields.device.type == "cpu":
            found.append(event)
    for event in sorted(found, key=lambda event: event.start_time_ns):
        yield event.extra_fields.ptr, event.extra_fields.alloc_size
