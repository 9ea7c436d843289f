"""What a kernel message says about hardware: a message in, a Sign (code, place, detail) out.

A signature is anchored at the message's first character: a line that only quotes the words of the
driver says nothing. Codes: ``xid.N``, ``sxid.N``, ``nvrm.*``, ``aer.*``, ``apei.*``, ``edac.*``,
``storage.*``, ``nic.*``, ``kernel.*``. What no signature knows is no sign.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rackproof.harness.readers.places import ADDRESS, pci

Detail = dict[str, str | int | float]
HOST = "host"  # stands for the machine itself until its name is known


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that the hardware said. `subject` is a ``pci:`` subject, ``host`` or "" (unknown).

    `alias` is another name of the same device, `serial` and `uuid` what it said to carry.
    """

    code: str
    subject: str
    detail: Mapping[str, str | int | float] = field(default_factory=dict)
    alias: str = ""
    serial: str = ""
    uuid: str = ""


_XID = re.compile(
    r"(NVRM: )?Xid \((?:PCI:)?(" + ADDRESS + r")(?: GPU-I:(\d{1,3}))?(?: GPU-CI:(\d{1,3}))?\): "
    r"(\d{1,6})\b,? ?"
)
_PID = re.compile(r"\bpid='?(\d{1,10})\b")
_CAUSE = re.compile(r"caused by previous Xid (\d{1,6})\b")
_ACTION = re.compile(r"to (0x[0-9A-Fa-f]{1,8}) \(")
_UNIT = re.compile(
    r"(?:pid=[^,]{0,40}, {0,4})?(?:name=[^,]{0,64}, {0,4})?([A-Z][\w/]{1,40}) {1,4}(?:Link )?"
    r"(Fatal|Non-?fatal)\b[^(]{0,60}?Link {1,4}(-?\d{1,3}) {0,4}"
    r"\((0x[0-9A-Fa-f]{1,16}),? {1,4}(0x[0-9A-Fa-f]{1,16})",
    re.IGNORECASE,
)
_UNIT_LINKS = range(144, 151)
_PLACE = re.compile(r"\(GPC (\d{1,3}), TPC (\d{1,3})")
_LINK = re.compile(r"\blink (\d{1,2})\b")
_SXID = re.compile(
    r"(?:nvidia-nvswitch(\d{1,3}): )?SXid \((?:PCI:)?(" + ADDRESS + r")\): (\d{1,6}), "
    r"(Fatal|Non-?fatal|Severity|Data)\b,? ?(?:Link (\d{1,3}))?",
    re.IGNORECASE,
)
_IDENT = re.compile(r"NVRM: GPU at (?:PCI:)?(" + ADDRESS + r"): (GPU-[0-9a-f-]{36})")
_SERIAL = re.compile(r"NVRM: GPU Board Serial Number: (\w{4,32})")
_NAMED_GPU = re.compile(r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(" + ADDRESS + r")(?!\w)")
_INIT = re.compile(r"NVRM: .{0,80}?(?:RmInitAdapter|rm_init_adapter) failed")
_AER = re.compile(
    r"(\S{1,32}) (" + ADDRESS + r"): (?:AER: )?(?:PCIe Bus Error: severity=|(?=Multiple |Unc|Cor))"
    r"(?:Multiple )?(Correct(?:ed|able)|Uncorrect(?:ed|able)(?: \((?:Non-)?Fatal\))?)( error)?"
)
_AER_BYSTANDER = re.compile(
    r"nvidia (" + ADDRESS + r"): (?:AER: can't recover|device has no AER-aware driver)"
)
_EDAC = re.compile(r"EDAC (MC\d{1,3}): (?:(\d{1,9}) )?(UE|CE) (?!.{0,20}error_count)")
_DIMM = re.compile(r"\bon (\S{1,80})")
_MEMORY = re.compile(r"Memory failure: 0x[0-9a-f]{1,16}: ")
_MCE = re.compile(r"mce: (?:Uncorrected hardware memory error|\[Hardware Error\]: .{0,40}Fatal)")
_BANK = re.compile(
    r"mce: \[Hardware Error\]: CPU \d{1,5}: Machine Check(?: Exception)?: [0-9a-f]{1,4} "
    r"Bank \d{1,3}: ([0-9a-f]{16})\b"
)
_UNCORRECTED = 1 << 61  # MCi_STATUS.UC, Intel SDM volume 3B, section 16.3.2.2
_AMD = re.compile(r"\[Hardware Error\]: (Corrected|Uncorrected|Deferred)\b[^:]{0,60}\Z")
_CABLE = re.compile(
    r"mlx5_core (" + ADDRESS + r")[^:]{0,40}: Port module event(?:\[error\])?: module \d{1,3}, "
    r"Cable (unplugged|plugged|error)"
)
_BLOCK = re.compile(
    r"(?:blk_update_request: |print_req_error: )?(?:I/O error|critical (?:medium|target) error), "
    r"dev (\w{1,32}),"
)
_BUFFER = re.compile(r"Buffer I/O error on dev(?:ice)? (\w{1,32})")
_NVME = re.compile(
    r"nvme (nvme\d{1,4}): (?:controller is down|Removing after probe failure|Device not ready"
    r"|I/O .{0,60}timeout(?!, completion polled)|frozen state error"
    r"|Disabling device|controller .{0,20}failed)"
)
_FILESYSTEM = re.compile(
    r"(?:XFS \((\w{1,32})\): .{0,40}I/O [Ee]rror|EXT4-fs error \(device (\w{1,32})\)"
    r"|EXT4-fs \((\w{1,32})\): (?:Remounting|I/O error)|BTRFS error \(device (\w{1,32}))"
)
_NOT_STORAGE = re.compile(r"(?:loop|fd|sr|zram|ram|nbd)\d")
_MLX5_IB = re.compile(
    r"mlx5_core (" + ADDRESS + r") (mlx5_\d{1,3}|\w{1,32}): (?:Port: \d{1,2} )?Link (\w{2,8})\b"
)
_MLX5_NET = re.compile(r"mlx5_core (" + ADDRESS + r")(?: (\w{1,32}))?: Link (up|down)\b")
_MLX5_SICK = re.compile(
    r"mlx5_core (" + ADDRESS + r")[^:]{0,40}: .{0,80}?(health compromised|[Ff]atal error|firmware "
    r"internal error|insufficient power|[Hh]igh [Tt]emperature|device's health)"
)
_HOTPLUG = re.compile(
    r"pcieport (" + ADDRESS + r"): pciehp: Slot\([^)]{1,16}\): (Link Down|Card not present)"
)
_OOM = re.compile(r"(?:Memory cgroup o|O)ut of memory: Kill(?:ed)? process (\d{1,10})\b")
_PLAIN = (
    (re.compile(r"Kernel panic - not syncing"), "kernel.panic"),
    (re.compile(r"watchdog: BUG: soft lockup|BUG: soft lockup"), "kernel.lockup"),
    (re.compile(r"(?:mce: )?CPU\d{1,5}: .{0,24}temperature (?:is )?above thresh"), "kernel.heat"),
    (re.compile(r"Linux version \d"), "kernel.boot"),
    (re.compile(r"reboot: (?:Restarting system|Power down|System halted)"), "kernel.halt"),
)


def _severity(word: str) -> str:
    return "non-fatal" if word.lower().startswith("non") else "fatal"


def _xid(message: str, *, traced: bool) -> Sign | None:
    match = _XID.match(message)
    subject = pci(match[2]) if match and (match[1] or traced) else None
    if match is None or subject is None:
        return None
    code, said = int(match[5]), message[match.end() :]
    detail: Detail = {
        key: int(found[1])
        for key, found in (("pid", _PID.search(said)), ("cause", _CAUSE.search(said)))
        if found
    }
    if match[3]:
        detail["mig"] = int(match[3])
    return Sign(f"xid.{code}", subject, detail | _xid_detail(code, said))


def _xid_detail(code: int, said: str) -> Detail:
    """Return what the words after the code say: action, unit, link or place."""
    detail: Detail = {}
    if code == 154 and (found := _ACTION.search(said)):  # noqa: PLR2004
        detail["action"] = int(found[1], 16)
    elif code in _UNIT_LINKS and (found := _UNIT.match(said)):
        detail |= {"unit": found[1].upper(), "severity": _severity(found[2])}
        detail |= {"register": int(found[4], 16), "status": int(found[5], 16)}
        if int(found[3]) >= 0:
            detail["link"] = int(found[3])
    elif code in (74, 136) and (found := _LINK.search(said)):
        detail["link"] = int(found[1])
    elif found := _PLACE.search(said):
        detail["place"] = f"GPC {found[1]}, TPC {found[2]}"
    return detail


def _sxid(message: str) -> Sign | None:
    match = _SXID.match(message)
    if match is None:
        return None
    subject, word = pci(match[2]), match[4].lower()
    if subject is None or word in ("severity", "data"):  # they go on from the line before
        return Sign("", "")
    detail: Detail = {"severity": _severity(word)}
    if match[5]:
        detail["link"] = int(match[5])
    return Sign(f"sxid.{match[3]}", subject, detail)


def _identity(message: str) -> Sign | None:
    if match := _IDENT.match(message):
        return Sign("nvrm.ident", pci(match[1]) or "", uuid=match[2])
    if match := _SERIAL.match(message):
        return Sign("nvrm.serial", "", serial=match[1])
    return None


def _nvrm(message: str) -> Sign | None:
    if not message.startswith("NVRM: "):
        return None
    named = _NAMED_GPU.match(message)
    subject = (pci(named[1]) or "") if named else ""
    if "fallen off the bus" in message:
        return Sign("nvrm.fallen", subject)
    if "power cables" in message:
        return Sign("nvrm.power", subject)
    if message.startswith("NVRM: API mismatch"):
        return Sign("nvrm.mismatch", HOST)
    if _INIT.match(message):
        return Sign("nvrm.init", subject)
    return Sign("nvrm.named", subject) if message.startswith("NVRM: The NVIDIA GPU") else None


def _aer(message: str) -> Sign | None:
    if match := _AER_BYSTANDER.match(message):
        return Sign("aer.unrecovered", pci(match[1]) or "")
    match = _AER.match(message)
    if match is None:
        return None
    word = match[3].lower()
    level = "corrected" if word.startswith("c") else "nonfatal" if "non-" in word else "fatal"
    stage = "received" if match[4] else "reported"
    return Sign(f"aer.{level}", pci(match[2]) or "", {"stage": stage})


def _host(message: str) -> Sign | None:
    if match := _EDAC.match(message):
        detail: Detail = {"count": int(match[2] or 1), "device": match[1]}
        if dimm := _DIMM.search(message):
            detail["device"] = dimm[1]
        return Sign(f"edac.{match[3].lower()}", HOST, detail)
    if match := _BANK.match(message):
        return Sign("mce.ue" if int(match[1], 16) & _UNCORRECTED else "mce.ce", HOST)
    if match := _AMD.match(message):
        return Sign("mce.ce" if match[1] == "Corrected" else "mce.ue", HOST)
    if _MEMORY.match(message) or _MCE.match(message):
        return Sign("edac.ue", HOST)
    for pattern, code in _PLAIN:
        if pattern.match(message):
            return Sign(code, HOST)
    return None


def _storage(message: str) -> Sign | None:
    for pattern, code in (
        (_BLOCK, "storage.io"),
        (_BUFFER, "storage.io"),
        (_NVME, "storage.nvme"),
        (_FILESYSTEM, "storage.filesystem"),
    ):
        if match := pattern.match(message):
            device = next((group for group in match.groups() if group), "")
            if _NOT_STORAGE.match(device):
                return None
            return Sign(code, HOST, {"device": device})
    return None


def _nic(message: str) -> Sign | None:
    match = _MLX5_IB.match(message) or _MLX5_NET.match(message)
    if match:
        state = {"down": "down", "up": "up", "active": "up"}.get(match[3].lower())
        alias = match[2] if (match[2] or "").startswith("mlx5_") else ""
        return Sign(f"nic.{state}", pci(match[1]) or "", alias=alias) if state else None
    if match := _CABLE.match(message):
        state = {"unplugged": "down", "plugged": "up"}.get(match[2], "cable")
        return Sign(f"nic.{state}", pci(match[1]) or "")
    if match := _MLX5_SICK.match(message):
        word = match[2].lower()
        code = "power" if "power" in word else "heat" if "temperature" in word else "health"
        return Sign(f"nic.{code}", pci(match[1]) or "")
    if match := _HOTPLUG.match(message):
        return Sign("pcie.unplugged", pci(match[1]) or "")
    return None


# drivers/rtc/class.c: "rtc_cmos 00:02: setting system clock to 2026-03-02T04:05:06 UTC (17724…)"
_CLOCK_SET = re.compile(r"rtc\S{0,16} \S{1,24}: setting system clock to .{10,40}\((\d{9,10})\)")


def _clock(message: str) -> Sign | None:
    match = _CLOCK_SET.match(message)
    return Sign("kernel.clock", HOST, {"epoch": int(match[1])}) if match else None


def _oom(message: str) -> Sign | None:
    match = _OOM.match(message)
    return Sign("kernel.oom", HOST, {"pid": int(match[1])}) if match else None


_READERS: tuple[Callable[[str], Sign | None], ...] = (
    _sxid, _identity, _nvrm, _aer, _nic, _storage, _host, _clock, _oom,
)  # fmt: skip


def sign_of(message: str, *, traced: bool = False) -> Sign | None:
    """Return what a kernel message says about hardware, or None.

    `traced`: the line is an ftrace event of the driver, which writes no ``NVRM:`` before it.
    A Sign without a code continues the line before it.
    """
    message = message.lstrip(" \t")
    if found := _xid(message, traced=traced):
        return found
    for reader in _READERS:
        if found := reader(message):
            return found
    return None
