"""FlexShard's tiers as a placement: rows of tier A are pinned at every trainer, all others are at one server.

Nothing here holds a row once a host: thresholds are chosen without tier B, and what it would give is told beside them.
"""

from typing import Any

import numpy as np

from bagpipe_hpc.rows.placements.assignment import deal_greedily, server_limit
from bagpipe_hpc.rows.placements.flexshard.tiers import Links, choose_tiers
from bagpipe_hpc.rows.placements.planned import Found, PlannedTables, Request


class FlexShard(PlannedTables):
    """Devices are the trainers. Tables go to servers by the bytes that are looked up outside tier A (LPT)."""

    @classmethod
    def search(cls, request: Request, settings: Any) -> Found:
        """Choose the thresholds over the rows of all tables."""
        links = Links(
            settings.trainers, settings.trainer_hosts, settings.within_gb_s * 1e9, settings.between_gb_s * 1e9
        )
        hottest = [request.statistics.hottest(table.name) for table in request.tables]
        counts = np.concatenate([of_rows for _, of_rows in hottest])
        table_of = np.repeat(np.arange(len(hottest)), [of_rows.size for _, of_rows in hottest])
        order = np.argsort(-counts, kind="stable")
        row_bytes = np.array([table.row_bytes for table in request.tables], dtype=np.int64)[table_of[order]]
        of_device = request.batch_size / request.statistics.samples / links.devices
        look_ups, spare = counts[order] * of_device, settings.fast_gb * 1e9
        chosen = choose_tiers(links, look_ups, row_bytes, spare, keeps_place=True, has_tier_b=False)
        tiers = choose_tiers(links, look_ups, row_bytes, spare, keeps_place=True)
        in_a = np.bincount(table_of[order[: chosen.first_b]], minlength=len(hottest))
        pinned = {
            table.name: rows[:first]
            for table, (rows, _), first in zip(request.tables, hottest, in_a.tolist(), strict=True)
        }
        costs = [
            float(of_rows[first:].sum() * table.row_bytes)
            for table, (_, of_rows), first in zip(request.tables, hottest, in_a.tolist(), strict=True)
        ]
        plain = choose_tiers(links, look_ups, row_bytes, 0.0, keeps_place=True)
        return Found(
            deal_greedily(request.tables, costs, request.servers, server_limit(settings)),
            [
                f"flexshard: {chosen.first_b} of {counts.size} used rows with every trainer: {chosen.seconds:.3e} s "
                f"a batch between trainers by the model; all rows once: {plain.seconds:.3e} s",
                f"with a tier once a host, which runs do not have: {tiers.first_b} rows with every trainer, "
                f"{tiers.first_c - tiers.first_b} once a host: {tiers.seconds:.3e} s",
            ],
            pinned,
        )
