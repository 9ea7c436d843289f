"""Which NVSwitch ASIC an NVLink ends at.

In: a rack, a GPU and a link number. Out: the switch's subject. A fault of a switch is then a
fault of the same link of every GPU, which is how it is told from a fault of one link.
"""

from rackproof.harness.errors import SpecError
from rackproof.harness.model import Gpu
from rackproof.harness.spec import RackSpec


def shares(links: int, switches: int) -> tuple[int, ...]:
    """Return how many of a GPU's links go to each switch: even, the rest to the outermost ones.

    NVL72: 18 links, 18 switches, one each. HGX H100 and H200: 5, 4, 4, 5 over 4 switches. HGX
    B200: 9 and 9. That links are numbered switch by switch is our simplification: no public
    source gives the wiring of an HGX board by link number.
    """
    if switches == 0:
        return ()
    sizes = [links // switches] * switches
    for extra in range(links % switches):
        sizes[extra // 2 if extra % 2 == 0 else switches - 1 - extra // 2] += 1
    return tuple(sizes)


def switch_of(spec: RackSpec, gpu: Gpu, link: int) -> str | None:
    """Return the switch, in the GPU's own rack, that its NVLink `link` ends at.

    None in a rack without switches; a SpecError for a link that the GPU does not have.
    """
    if not 0 <= link < spec.links:
        msg = f"{gpu.subject} has {spec.links} NVLinks, and no link {link}"
        raise SpecError(msg)
    passed = 0
    for number, size in enumerate(shares(spec.links, len(spec.switches) // spec.racks)):
        passed += size
        if link < passed:
            return f"rack{gpu.rack}/switch{number:02d}"
    return None


def links_of(spec: RackSpec, switch: str) -> tuple[str, ...]:
    """Return the links, as subjects, that end at `switch`; a SpecError when there is none such."""
    if switch not in spec.switches:
        msg = f"{spec.name} has no switch {switch[:60]!r}"
        raise SpecError(msg)
    return tuple(
        gpu.link(link)
        for gpu in spec.gpus
        for link in range(spec.links)
        if switch_of(spec, gpu, link) == switch
    )
