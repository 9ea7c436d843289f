"""Who says a line of a job's output, which GPU a rank has, and which job it is: all as told.

Launchers put a host, a rank or both before each line (pdsh, mpirun, srun, torchrun, NCCL). A rank
is no GPU: only NCCL's own communicator lines (rank, bus id), DeepSpeed's rank mapping and the
launcher's table of failures say where one runs. What is not said stays ``rankN``. A job is known by
its communicators, its run and its number; its hosts by their addresses, and by what others call
them.
"""

import re
from dataclasses import dataclass, field

from rackproof.harness.readers.job_times import Stamp, Times
from rackproof.harness.readers.reading import Job

_MPIRUN = re.compile(r"\[\d{1,5},(\d{1,6})\]<std(?:out|err|diag)>: ?")
_ROLE = re.compile(r"\[[a-z_]{1,32}\d{1,6}\]: ?")  # torchrun: role and local rank
# What containers, schedulers and Megatron put first: a time, a pod, a worker of Ray.
_STAMP = re.compile(
    r" ?\[?\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}(?:Z|[+-]\d\d:?\d\d)?\]? {1,2}(?!\[[A-Z])"
)
_POD = re.compile(r"\[pod/([\w.\-]{1,253})/[\w.\-]{1,253}\] ")
_RAY = re.compile(r"\([\w.:]{1,64} pid=\d{1,10}(?:, ip=([\d.a-f:]{3,45}))?\) ")
_RANK = re.compile(r"\[rank ?(\d{1,6})\]: ?", re.IGNORECASE)
_SRUN = re.compile(r" {0,5}(\d{1,6}): (?=\S| iteration)")
_NCCL = re.compile(r"([\w.\-]{1,253}):(\d{1,10}):\d{1,10} \[(\d{1,4})\] ")
_PDSH = re.compile(r"([A-Za-z][\w.\-]{0,252}): (?=\[\d{4}-|\[rank|\[default| {0,3}iteration )")
_HOSTED = re.compile(r"([A-Za-z][\w.\-]{0,252}): ")
_UCX = re.compile(r" {0,4}\[\d{10}\.\d{3,9}\] \[([\w.\-]{1,253}):(\d{1,10}):\d{1,10}\] {1,8}")
_COMM = re.compile(r"\bcommId (0x[0-9a-f]{1,32})\b")
_RUN = re.compile(r"\brun_id {0,16}: (\S{1,120})|\brendezvous '(\S{1,120}?)'")
_NUMBERED = re.compile(r"\bStepId=(\d{1,10})\b|\*\*\* (?:STEP|JOB) (\d{1,10})\b")
_OWN = re.compile(r"(?:Bootstrap : Using|NET/Socket : Using|OOB) {1,2}(?:\[\d{1,3}\])?"
                  r"[\w.\-]{1,32}:([\w.:\[\]]{2,64}?)(?:%[\w.]{1,32})?<\d{1,5}>")  # fmt: skip
_PEER = re.compile(
    r"\b(?:from|to|peer|by|with) (?:peer )?(?:\[([\w.:\-]{2,120})(?:%[\w.]{1,32})?\]:\d{1,5}"
    r"|([0-9A-Za-z][\w.:\-]{2,120}?)(?:%[\w.]{1,32})?(?:<\d{1,5}>|:\d{2,5}\b(?![.:])))"
)
_EVERYONES = frozenset(("none", "0.0.0.0", "127.0.0.1", "localhost", "::1", "::"))  # noqa: S104
MOST_NAMES = 10_000  # communicators, addresses
_INSIDE = re.compile(r"\[Rank (\d{1,6})\]|\bRank (\d{1,6})\]|\bon rank:? (\d{1,6})\b")
_INIT = re.compile(
    r"\brank (\d{1,6}) nranks (\d{1,6}) cudaDev \d{1,4}(?: nvmlDev (\d{1,4}))? "
    r"busId ([0-9a-f]{1,12})\b"
)
_WORKERS = re.compile(r"'([\w.\-]{1,253})': \[([\d, ]{1,2000})\]")
_TABLE_HOST = re.compile(r" {0,4}host {1,12}: ([\w.\-]{1,253})\s{0,4}\Z")
_TABLE_RANK = re.compile(r" {0,4}rank {1,12}: (\d{1,6}) \(local_rank: \d{1,6}\)")
LEARN = (b" nranks ", b"global_rank_mapping", b" (local_rank: ", b"  host ", b"WORLD INFO DICT",
         b"world_size", b"world size", b"run_id ", b"rendezvous '", b"StepId=", b"*** STEP ",
         b"*** JOB ", b"Bootstrap : Using", b"NET/Socket : Using", b"OOB ")  # fmt: skip
MOST = 100_000  # hosts, and ranks
_TEACHES = tuple(word.decode() for word in LEARN)
_OPENS = frozenset("[(")
_DIGITS = frozenset(" 0123456789")
_WORLD = re.compile(r"world[_ ]size['\"]?\s{0,2}[=:]\s{0,2}(\d{1,6})\b")


@dataclass(frozen=True, slots=True)
class Spoken:
    """A line without its prefixes: `rank` and `host` are None where nothing says them."""

    text: str
    host: str | None = None
    rank: int | None = None
    pid: str | None = None
    stamp: Stamp | None = None


def bus_address(number: str) -> str:
    """Return the ``pci:`` subject of NCCL's busId, a hexadecimal domain, bus, device, function."""
    value = int(number, 16)
    domain, bus = value >> 20 & 0xFFFF, value >> 12 & 0xFF
    return f"pci:{domain:04x}:{bus:02x}:{value >> 4 & 0xFF:02x}.{value & 7}"


def _address(name: str) -> str:
    """Return an address or a host's name as all spell it."""
    return name.strip("[]").lower().removeprefix("::ffff:")


@dataclass(slots=True)
class Places:
    """Hosts, and where each rank runs, as far as the log has told."""

    hosts: set[str] = field(default_factory=set)
    host_of: dict[int, str] = field(default_factory=dict)
    gpu_of: dict[int, str] = field(default_factory=dict)
    rank_of: dict[tuple[str, str], int] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    world: int | None = None
    times: Times = field(default_factory=Times)
    names: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    peers: set[str] = field(default_factory=set)
    _table_host: str | None = None

    def spoken(self, line: str) -> Spoken:
        """Return a line's words, who said them, and when."""
        host, rank, pid = None, None, None
        stamp = self.times.of(line)
        for _ in range(6):
            first = line[:1]
            if match := _NCCL.match(line) or _UCX.match(line):
                host, pid = match[1], match[2]
                self._met(host)
                line = line[match.end() :]
                break
            if match := self._by_rank(line, first, known=rank is not None):
                rank = int(match[1])
            elif match := self._by_host(line, first):
                host = match[1] or host
                if match[1]:
                    self._met(match[1])
            elif not (match := self._by_nobody(line, first)):
                break
            line = line[match.end() :]
        if rank is None and "ank" in line and (match := _INSIDE.search(line[:400])):
            rank = int(next(group for group in match.groups() if group))
        if rank is None and host and pid:
            rank = self.rank_of.get((host, pid))
        return Spoken(line, host, rank, pid, stamp)

    def _by_rank(self, line: str, first: str, *, known: bool) -> re.Match[str] | None:
        if first == "[":
            return _MPIRUN.match(line) or _RANK.match(line)
        return _SRUN.match(line) if first in _DIGITS and not known else None

    def _by_host(self, line: str, first: str) -> re.Match[str] | None:
        if first in _OPENS:
            return _POD.match(line) or _RAY.match(line)
        match = _HOSTED.match(line)
        return match if match and (match[1] in self.hosts or _PDSH.match(line)) else None

    def _by_nobody(self, line: str, first: str) -> re.Match[str] | None:
        return (_ROLE.match(line) if first == "[" else None) or _STAMP.match(line)

    def _met(self, host: str) -> None:
        if len(self.hosts) < MOST:
            self.hosts.add(host)

    def learn(self, said: Spoken) -> None:
        """Take in what a line says of ranks and hosts."""
        text = said.text
        if not any(word in text for word in _TEACHES):
            return
        self._job(text)
        if match := _INIT.search(text):
            self._communicator(match, said)
        elif "global_rank_mapping" in text or "WORLD INFO DICT" in text:
            self._mapping(text, ranks="global_rank_mapping" in text)
        elif match := _TABLE_HOST.match(text):
            self._table_host = match[1]
            self._met(match[1])
        elif (match := _TABLE_RANK.match(text)) and self._table_host:
            self.host_of.setdefault(int(match[1]), self._table_host)
        if match := _WORLD.search(text):
            self.world = max(self.world or 0, int(match[1]))

    def _job(self, text: str) -> None:
        """Take in what tells one job from another, and the addresses of its hosts."""
        if len(self.names) + len(self.addresses) > MOST_NAMES:
            return
        if match := _COMM.search(text):
            self.names.add(f"comm {match[1]}")
        if (match := _RUN.search(text)) and (match[1] or match[2]) not in _EVERYONES:
            self.names.add(f"run {match[1] or match[2]}")
        if match := _NUMBERED.search(text):
            self.names.add(f"slurm {match[1] or match[2]}")
        self.addresses |= {_address(name) for name in _OWN.findall(text)} - _EVERYONES

    def met_peer(self, text: str) -> None:
        """Take in whom a line of trouble names as the other end of a connection."""
        if len(self.peers) < MOST_NAMES and (match := _PEER.search(text)):
            self.peers |= {_address(match[1] or match[2])} - _EVERYONES

    @property
    def job(self) -> Job:
        """What is known of the job."""
        return Job(frozenset(self.names), frozenset(self.addresses), frozenset(self.peers))

    def _mapping(self, text: str, *, ranks: bool) -> None:
        """Take in the launcher's list of hosts, which with `ranks` are numbers of the whole job."""
        for host, numbers in _WORKERS.findall(text):
            self._met(host)
            for place, word in enumerate(numbers.split(",") if ranks else ()):
                if word.strip().isdecimal() and len(self.host_of) < MOST:
                    self.host_of[int(word)] = host
                    self.gpu_of.setdefault(int(word), f"gpu{place}")

    def _communicator(self, match: re.Match[str], said: Spoken) -> None:
        """Take in NCCL's own line; the largest communicator is the job's, and its ranks count."""
        rank, size = int(match[1]), int(match[2])
        if size < (self.world or 0) or len(self.rank_of) >= MOST:
            return
        self.world = size
        self.gpu_of[rank] = bus_address(match[4])
        if said.host:
            self.host_of[rank] = said.host
            if said.pid:
                self.rank_of[said.host, said.pid] = rank
        if match[3]:
            home = said.host or ""
            self.aliases[f"{home}/gpu{match[3]}"] = self.gpu_of[rank]

    def subject(self, said: Spoken, device: str = "") -> str:
        """Return the subject of what was said: the rank's GPU, the rank, a NIC or the host."""
        rank = said.rank
        if rank is None and said.host and said.pid:
            rank = self.rank_of.get((said.host, said.pid))
        host = said.host or (self.host_of.get(rank) if rank is not None else None)
        if rank is not None:
            host = self.host_of.get(rank, host)
        if device:
            place = f"nic:{device}"
        elif rank is not None:
            place = self.gpu_of.get(rank) or f"rank{rank}"
        else:
            place = "host"
        if len(self.hosts) > 1 and host:
            return f"host:{host}" if place == "host" else f"host:{host}/{place}"
        return place
