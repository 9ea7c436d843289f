"""Every fault kind that the emulator can plant, from the files of the families."""

from collections.abc import Mapping

from rackproof.harness.devices.emulated import planted, planted_memory
from rackproof.harness.devices.emulated.strikes import Kind

KINDS: Mapping[str, Kind] = {
    **planted.KINDS,
    **planted_memory.KINDS,
}
