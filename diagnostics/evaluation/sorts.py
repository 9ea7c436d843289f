"""What each sort of incident writes: codes with the companions that they have in the field.

A function a sort; each adds one incident to a Script, in the words of NVIDIA's driver and of Linux.
What lies behind it changes the lines only where it would: an application fails on several GPUs and
at many places, a defect at one.
"""

from collections.abc import Callable, Mapping

from rackproof.diagnostics.evaluation.script import NOBODY, Detail, Script
from rackproof.diagnostics.evaluation.truth import Place, Truth, subject
from rackproof.diagnostics.evaluation.worlds import OF_GPU
from rackproof.diagnostics.retest.model import Cause

_TOGETHER = 0.5  # an application that fails on one GPU does so on another of its job: proposed
_AER = 0.4
_LINK_SI, _CABLES = 2 << 20, 42 << 20  # link-down reasons of the NVLink 5 sheet, bits 20 to 25
# Fatal SXids of NVIDIA's Fabric Manager guide: of a link, and of a port's own memory in the chip.
_OF_LINK = ((20034, "LTSSM Fault Up"),)
_OF_CHIP = (
    (11013, "ingress ncisoc header DBE"),
    (23001, "tile ingress buffer overflow"),
)
_CHIP_SHARE = {Cause.SWITCH: 0.7, Cause.LINK: 0.0}  # proposed; else one half
_FLAPS = 3
_WIDE_AT_LEAST, _WIDE_AT_MOST = 12, 40
# DCGM's error codes: memory mismatch, CUDA DBE, faulty memory; NaN, rate below its target.
_MEMORY = ("dcgm.fr.58", "dcgm.fr.57", "dcgm.fr.52")
_SM = ("dcgm.fr.111", "dcgm.fr.110")
_UNLOGGED: Mapping[str, tuple[str, ...]] = {
    "app-exception": ("cuda.launch",),
    "app-mmu": ("cuda.access",),
    "gsp": ("cuda.device", "cuda.timeout"),
    "engine": ("cuda.device", "cuda.timeout"),
    "nvlink": ("dcgm.fr.14", "cuda.nvlink"),
    "switch": ("dcgm.fr.88", "cuda.notready"),
    "fallen": ("dcgm.fr.113", "cuda.device"),
    "power": ("dcgm.fr.113", "cuda.device"),
}


def _others(script: Script, truth: Truth) -> list[Place]:
    """Return where it also shows: another GPU of the machine, for an application now and then."""
    host, gpu = truth.home
    if truth.cause is not Cause.APP or script.rng.random() >= _TOGETHER:
        return [truth.home]
    rest = [subject(other) for other in script.site.gpus if subject(other) != gpu]
    return [truth.home, (host, str(script.rng.choice(rest)))]


def _exception(script: Script, truth: Truth) -> None:
    for place in _others(script, truth):
        who, detail = script.process()
        for unit in range(1 if truth.cause in OF_GPU else int(script.rng.integers(1, 5))):
            drawn = (int(script.rng.integers(0, 8)), int(script.rng.integers(0, 9)))
            gpc, tpc = (truth.link % 8, truth.link % 9) if truth.cause in OF_GPU else drawn
            said = f"{who}, Graphics SM Warp Exception on (GPC {gpc}, TPC {tpc}, SM {unit % 2}): "
            where = {"place": f"GPC {gpc}, TPC {tpc}"}
            script.xid(place, 13, said + "Illegal Instruction Encoding", {**detail, **where})
        script.xid(place, 43, f"{who}, Ch 00000010", detail)


def _mmu(script: Script, truth: Truth) -> None:
    for place in _others(script, truth):
        who, detail = script.process()
        address = int(script.rng.integers(1 << 40, 1 << 47))
        said = (
            f"{who}, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted "
            f"@ 0x{address >> 32:x}_{address & 0xFFFFFFFF:08x}. Fault is of type FAULT_PDE "
            "ACCESS_TYPE_VIRT_READ"
        )
        script.xid(place, 31, said, detail)
        script.removed(place)


def _row(script: Script, home: Place, words: str) -> None:
    row = int(script.rng.integers(1 << 16, 1 << 30))
    script.xid(home, 63, f"{NOBODY}, Row Remapper: New row (0x{row:016x}) {words}")


def _double(script: Script, home: Place, where: str) -> None:
    script.xid(
        home, 48,
        f"{NOBODY}, An uncorrectable double bit error (DBE) has been detected on GPU in the "
        f"{where}.",
    )  # fmt: skip


def _dbe(script: Script, truth: Truth) -> None:
    home = truth.home
    _double(script, home, "framebuffer at partition 3, subpartition 0")
    _row(script, home, "marked for remapping, reset gpu to activate")
    script.directive(home, 1)
    script.removed(home, 48)


def _contained(script: Script, truth: Truth) -> None:
    who, detail = script.process()
    script.xid(truth.home, 94, f"{who}, Contained: FBHUB. RST: No, D-RST: No", detail)
    _row(script, truth.home, "marked for remapping, reset gpu to activate")
    script.removed(truth.home)


def _uncontained(script: Script, truth: Truth) -> None:
    _double(script, truth.home, "framebuffer at partition 1, subpartition 1")
    who, detail = script.process()
    script.xid(truth.home, 95, f"{who}, Uncontained: FBHUB. RST: Yes, D-RST: No", detail)
    script.directive(truth.home, 1)
    script.removed(truth.home, 95)


def _remap(script: Script, truth: Truth) -> None:
    _double(script, truth.home, "framebuffer at partition 5, subpartition 0")
    said = "Row Remapper: Failed to remap row, no spare row is left in the bank"
    script.xid(truth.home, 64, f"{NOBODY}, {said}")
    script.directive(truth.home, 1)
    script.removed(truth.home, 48)


def _sram(script: Script, truth: Truth) -> None:
    _double(script, truth.home, "SM L1 SRAM of GPC 2, TPC 4")
    script.xid(truth.home, 172, f"{NOBODY}, Uncorrectable SRAM error in SM L1 SRAM")
    script.directive(truth.home, 1)
    script.removed(truth.home, 48)


def _gsp(script: Script, truth: Truth) -> None:
    for _ in range(int(script.rng.integers(1, 4))):
        who, detail = script.process()
        said = "Timeout after 6s of waiting for RPC response from GPU GSP! Expected function 76"
        script.xid(truth.home, 119, f"{who}, {said} (GSP_RM_CONTROL)", detail)
        script.start += 6.0
    script.directive(truth.home, int(script.rng.integers(1, 3)))
    script.removed(truth.home, 119)


def _engine(script: Script, truth: Truth) -> None:
    if script.rng.random() < 0.6:  # noqa: PLR2004 - more context switches time out than PMUs halt
        who, detail = script.process()
        said = f"{who}, Ch 0000000c, errorString CTX SWITCH TIMEOUT, Info 0x2c014"
        script.xid(truth.home, 109, said, detail)
        code = 109
    else:
        script.xid(truth.home, 62, f"{NOBODY}, 2106(31d4) 00000000 00000000")
        code = 62
    script.directive(truth.home, 1)
    script.removed(truth.home, code)


def _off_the_bus(script: Script, home: Place) -> None:
    address = home[1].removeprefix("pci:")
    script.add(home, "nvrm.fallen", f"NVRM: GPU {address}: GPU has fallen off the bus.")
    script.xid(home, 79, f"{NOBODY}, GPU has fallen off the bus.")


def _fallen(script: Script, truth: Truth) -> None:
    host, gpu = truth.home
    if script.rng.random() < _AER:
        port = gpu.removeprefix("pci:")[:4] + ":00:00.0"
        said = f"pcieport {port}: AER: Uncorrectable (Fatal) error message received from {port}"
        script.add((host, f"pci:{port}"), "aer.fatal", said, {"stage": "received"})
    _off_the_bus(script, truth.home)
    script.directive(truth.home, 2, 0.4)
    script.removed(truth.home, 79)


def _followers(script: Script, home: Place, many: int) -> None:
    """Write what other GPUs of the domain say when a link of one has failed."""
    for place in script.peers(home, many):
        link = int(script.rng.integers(18))
        if script.site.wide:
            script.unit(place, 145, "RLW_SRC_TRACK", ("Fatal", link, 4, 1))
        script.xid(place, 137, f"{NOBODY}, NVLink privileged error on link {link}")
        script.removed(place)


def _nvlink(script: Script, truth: Truth) -> None:
    home = truth.home
    if script.site.wide:
        register = _CABLES if script.rng.random() < 0.5 else _LINK_SI  # noqa: PLR2004
        script.unit(home, 149, "NETIR_LINK_EVT", ("Fatal", truth.link, register, 0))
        _followers(script, home, int(script.rng.integers(2, 12)))
        script.directive(home, 1)
        script.removed(home, 149)
        return
    said = f"{NOBODY}, NVLink: fatal error detected on link {truth.link}(0x0, 0x0, 0x10000, 0x0)"
    script.xid(home, 74, said, {"link": truth.link})
    script.removed(home, 74)


def _switch(script: Script, truth: Truth) -> None:
    host, _ = truth.home
    if script.site.wide:  # its links' ends fall silent on many GPUs at once; no GPU names its own
        many = int(script.rng.integers(_WIDE_AT_LEAST, _WIDE_AT_MOST))
        for place in [truth.home, *script.peers(truth.home, many)]:
            script.unit(place, 145, "RLW_SRC_TRACK", ("Fatal", truth.link, 4, 1))
            script.removed(place)
        return
    switch = script.site.switches[truth.link % len(script.site.switches)]
    chip = script.rng.random() < _CHIP_SHARE.get(truth.cause, 0.5)
    codes = _OF_CHIP if chip else _OF_LINK
    code, words = codes[truth.link % len(codes)]
    said = (
        f"nvidia-nvswitch{truth.link % 4}: SXid (PCI:{switch}.0): {code}, "
        f"Fatal, Link {truth.link} {words}"
    )
    detail: Detail = {"severity": "fatal", "link": truth.link}
    script.add((host, f"pci:{switch}.0"), f"sxid.{code}", said, detail)
    for place in [truth.home, *script.peers(truth.home, int(script.rng.integers(0, 3)))]:
        said = (
            f"{NOBODY}, NVLink: fatal error detected on link {truth.link}(0x0, 0x0, 0x10000, 0x0)"
        )
        script.xid(place, 74, said, {"link": truth.link})


def _host_memory(script: Script, truth: Truth) -> None:
    dimm = f"CPU_SrcID#0_MC#0_Chan#{truth.link % 8}_DIMM#0"
    said = f"EDAC MC0: 1 UE memory read error on {dimm} (channel:{truth.link % 8} slot:0)"
    place = (truth.home[0], "host")
    script.add(place, "edac.ue", said, {"count": 1, "device": dimm})


def _power(script: Script, truth: Truth) -> None:
    host, gpu = truth.home
    if script.rng.random() < 0.3:  # noqa: PLR2004 - the cables of one GPU
        said = f"NVRM: GPU {gpu.removeprefix('pci:')}: GPU does not have the necessary power cables"
        script.add(truth.home, "nvrm.power", f"{said} connected.")
        return
    for other in script.site.gpus:
        _off_the_bus(script, (host, subject(other)))


def _nic(script: Script, truth: Truth) -> None:
    address = script.site.nic
    place, head = (truth.home[0], f"pci:{address}"), f"mlx5_core {address}"
    shape = script.rng.random()
    if shape < 0.4:  # noqa: PLR2004
        said = f"{head}: poll_health:812:(pid 0): device's health compromised - reached miss count"
        script.add(place, "nic.health", said)
    elif shape < 0.6:  # noqa: PLR2004
        script.add(place, "nic.cable", f"{head}: Port module event: module 0, Cable error, Bad")
    else:
        for _ in range(_FLAPS if truth.cause is Cause.NIC else 1):
            script.add(place, "nic.down", f"{head} mlx5_0: Port: 1 Link DOWN")
            script.start += 8.0
            script.add(place, "nic.up", f"{head} mlx5_0: Port: 1 Link ACTIVE")
            script.start += 40.0


def unlogged(script: Script, truth: Truth) -> None:
    """Add what tells of it where no log does: DCGM's diagnostic, or for software the job itself."""
    codes = _UNLOGGED.get(truth.sort.name, _SM)
    if truth.sort.components[0] == "hbm":
        codes = _MEMORY
    script.tools.append((truth.home, str(script.rng.choice(codes))))


_SORTS: Mapping[str, Callable[[Script, Truth], None]] = {
    "app-exception": _exception, "app-mmu": _mmu, "hbm-dbe": _dbe, "hbm-contained": _contained,
    "hbm-uncontained": _uncontained, "remap-failure": _remap, "sram": _sram, "gsp": _gsp,
    "engine": _engine, "fallen": _fallen, "nvlink": _nvlink, "switch": _switch,
    "host-memory": _host_memory, "power": _power, "nic": _nic, "silent": unlogged,
    "burn": unlogged,
}  # fmt: skip


def write(script: Script, truth: Truth) -> None:
    """Add one incident of the truth's sort."""
    _SORTS[truth.sort.name](script, truth)


def storm(script: Script, truth: Truth) -> None:
    """Add what other GPUs say in sympathy: of most of the domain, or of the node."""
    _followers(script, truth.home, _WIDE_AT_MOST if script.site.wide else 7)
