"""The peak of memory that the benchmarks report is that of live tensors."""

from __future__ import annotations

import torch

import memory

MIB = 2**20


def test_three_live_tensors_of_four_mebibytes_peak_at_twelve():
    assert memory.peak_memory(lambda: [torch.empty(MIB) for _ in range(3)]) == 12 * MIB


def test_tensors_released_in_turn_peak_at_one_of_them():
    def run() -> None:
        for _ in range(3):
            torch.empty(MIB)

    assert memory.peak_memory(run) == 4 * MIB


def test_what_an_operation_allocates_inside_itself_counts():
    values = torch.zeros(MIB)
    assert (
        memory.peak_memory(lambda: values.logsumexp(0)) >= 4 * MIB
    )  # exp(x) of the size of x, for a result of 4 bytes


def test_releasing_what_was_alive_before_does_not_hide_what_is_allocated():
    held = {}
    assert memory.peak_memory(lambda: held.update(one=torch.empty(2 * MIB))) == 8 * MIB

    def replace() -> None:
        held.clear()
        held["one"] = torch.empty(MIB)

    assert memory.peak_memory(replace) == 4 * MIB


def test_a_reused_address_counts_once_and_an_unknown_release_not_at_all():
    assert memory.peak_of([(1, 5), (9, -70), (2, 5), (1, -5), (1, 4)]) == 10
