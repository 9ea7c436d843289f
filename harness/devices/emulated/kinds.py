"""Every fault kind that the emulator can plant, from the files of the families.

KINDS act on GPUs, SITES on what stands around them; one that both feel is in both.
"""

from collections.abc import Mapping

from rackproof.harness.devices.emulated import (
    planted,
    planted_links,
    planted_memory,
    planted_pcie,
    planted_power,
    planted_site,
)
from rackproof.harness.devices.emulated.strikes import Kind, SiteKind

KINDS: Mapping[str, Kind] = {
    **planted.KINDS,
    **planted_memory.KINDS,
    **planted_pcie.KINDS,
    **planted_power.KINDS,
    **planted_links.KINDS,
}
SITES: Mapping[str, SiteKind] = planted_site.KINDS
