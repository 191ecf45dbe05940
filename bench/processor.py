"""Processor time and memory by process: unlike throughput, no neighbour on the machine distorts them much."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PARENT, GROUP, CPU, CHILDREN_CPU, PAGES = 1, 2, slice(11, 13), slice(13, 15), 21


def seconds(pid: int) -> float:
    """What a process and its children have used, those that have ended included."""
    table = _table()
    ticks = _ticks(table.get(pid, []), CPU) + _ticks(table.get(pid, []), CHILDREN_CPU)
    living = (stat for stat in table.values() if int(stat[PARENT]) == pid)
    ticks += sum(_ticks(stat, CPU) + _ticks(stat, CHILDREN_CPU) for stat in living)
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mb(group: int) -> float:
    """What the processes of a group have in memory, in MiB."""
    pages = sum(int(stat[PAGES]) for stat in _table().values() if int(stat[GROUP]) == group)
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def parent_of(pid: int) -> int:
    """The pid of a process's parent."""
    return int(_table()[pid][PARENT])


def _ticks(stat: list[str], which: slice) -> int:
    return sum(int(value) for value in stat[which])


def _table() -> Mapping[int, list[str]]:
    """The fields of /proc/<pid>/stat after the name, for every process: state, parent, group, …"""
    stats = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats[int(file.parent.name)] = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
    return stats
