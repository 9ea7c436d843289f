"""The drills by name. In: nothing. Out: DRILLS."""

from collections.abc import Mapping

from rackproof.diagnostics.drills import (
    checkpoints,
    gpu_hang,
    gpu_loss,
    link_drop,
    members,
    multi_region,
    nan_shard,
    network_jitter,
    power,
    rack_power_loss,
    sdc,
)
from rackproof.diagnostics.drills.base import Drill

_FIRST = (gpu_loss, gpu_hang, link_drop, network_jitter, rack_power_loss, nan_shard, sdc)
DRILLS: Mapping[str, Drill] = {
    each.name: each
    for each in (
        *(module.DRILL for module in _FIRST),
        *members.DRILLS,
        *checkpoints.DRILLS,
        multi_region.DRILL,
        *power.DRILLS,
    )
}
"""Every drill that can be held, in the order of the contract."""
