"""FlexShard's tiers as a placement: rows of tier A stay with every trainer, those of B with a trainer of each host.

All others are at one server. Without `once_a_host` thresholds are chosen without tier B, and the report adds what it
would give.
"""

from typing import Any

import numpy as np

from bagpipe_hpc.rows.placements.assignment import deal_greedily, server_limit
from bagpipe_hpc.rows.placements.flexshard.tiers import Links, Tiers, choose_tiers
from bagpipe_hpc.rows.placements.planned import Found, PlannedTables, Request


class FlexShard(PlannedTables):
    """Devices are the trainers. Tables go to servers by the bytes that are looked up outside tiers A and B (LPT)."""

    @classmethod
    def search(cls, request: Request, settings: Any) -> Found:
        """Choose the thresholds over the rows of all tables."""
        links = Links(
            settings.trainers, settings.trainer_hosts, settings.within_gb_s * 1e9, settings.between_gb_s * 1e9
        )
        hottest = list(request.statistics.hottest(table.name for table in request.tables))
        counts = np.concatenate([of_rows for _, of_rows in hottest])
        table_of = np.repeat(np.arange(len(hottest)), [of_rows.size for _, of_rows in hottest])
        order = np.argsort(-counts, kind="stable")
        row_bytes = np.array([table.row_bytes for table in request.tables], dtype=np.int64)[table_of[order]]
        of_device = request.batch_size / request.statistics.samples / links.devices
        look_ups, spare = counts[order] * of_device, settings.fast_gb * 1e9
        three = choose_tiers(links, look_ups, row_bytes, spare, keeps_place=True)
        two = choose_tiers(links, look_ups, row_bytes, spare, keeps_place=True, has_tier_b=False)
        chosen = three if settings.once_a_host else two
        in_a, in_ab = (
            np.bincount(table_of[order[:rows]], minlength=len(hottest)) for rows in (chosen.first_b, chosen.first_c)
        )
        pinned, hosted, costs = {}, {}, []
        for table, (rows, of_rows), first_b, first_c in zip(request.tables, hottest, in_a, in_ab, strict=True):
            pinned[table.name], hosted[table.name] = rows[:first_b], rows[first_b:first_c]
            costs.append(float(of_rows[first_c:].sum() * table.row_bytes))
        plain = choose_tiers(links, look_ups, row_bytes, 0.0, keeps_place=True)
        return Found(
            deal_greedily(request.tables, costs, request.servers, server_limit(settings)),
            _report(chosen, three, plain, counts.size, once_a_host=settings.once_a_host),
            pinned,
            hosted=hosted,
            trainer_hosts=settings.trainer_hosts if settings.once_a_host else 0,
        )


def _report(chosen: Tiers, three: Tiers, plain: Tiers, used: int, *, once_a_host: bool) -> list[str]:
    """What to report: the chosen tiers, all three tiers where tier B is left out, and no tiers (`plain`)."""
    all_once = f"a batch between trainers by the model; all rows once: {1e3 * plain.seconds:.4g} ms"
    if once_a_host:
        between = f"{chosen.first_c - chosen.first_b} once a host"
        return [
            f"flexshard: {chosen.first_b} of {used} used rows with every trainer, {between}: "
            f"{1e3 * chosen.seconds:.4g} ms {all_once}",
            "train with policy.name = 'pinned', policy.plan = this file and cache.sharing = 'tiered'",
        ]
    return [
        f"flexshard: {chosen.first_b} of {used} used rows with every trainer: {1e3 * chosen.seconds:.4g} ms {all_once}",
        f"with a tier once a host (tables.once_a_host): {three.first_b} rows with every trainer, "
        f"{three.first_c - three.first_b} once a host: {1e3 * three.seconds:.4g} ms",
    ]
