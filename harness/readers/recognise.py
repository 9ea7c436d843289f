"""Which kind of file this is, by its content alone: names and suffixes say nothing.

Every reader says how much the first bytes look like its own; the surest one above FLOOR wins.
"""

from collections.abc import Sequence

from rackproof.harness.readers import (
    dcgm_diag_json,
    dcgm_diag_text,
    dcgm_metrics,
    fabricmanager,
    gpu_burn,
    ib,
    ipmi,
    kernel_log,
    kubernetes,
    memtest,
    nccl_tests,
    nvbandwidth,
    nvidia_smi_csv,
    nvidia_smi_nvlink,
    nvidia_smi_q,
    nvidia_smi_table,
    nvidia_smi_topo,
    nvidia_smi_xml,
    redfish,
    slurm,
    superbench,
    training_log,
)
from rackproof.harness.readers.prose import is_document
from rackproof.harness.readers.reading import Reader

FLOOR = 0.05
# Jobs print sentences, warnings and pieces of programs; their readers look out for themselves.
TALKATIVE = frozenset((training_log.KIND, slurm.KIND))
SURE = 0.2  # below, a file has the shape of a system's log, and may be another's further down
FIRST = 1 << 16  # bytes
CERTAIN = 0.97  # of a kernel log's lines are the kernel's: then no other tool wrote them

# The order is that of the contract; between equals the first wins.
READERS: Sequence[Reader] = (
    nvidia_smi_xml.READER,
    nvidia_smi_q.READER,
    nvidia_smi_table.READER,
    nvidia_smi_csv.READER,
    nvidia_smi_nvlink.READER,
    nvidia_smi_topo.READER,
    dcgm_metrics.READER,
    kernel_log.READER,
    superbench.READER,
    memtest.READER,
    gpu_burn.READER,
    dcgm_diag_text.READER,
    dcgm_diag_json.READER,
    fabricmanager.READER,
    ib.READER,
    redfish.READER,
    ipmi.READER,
    slurm.READER,
    kubernetes.READER,
    nvbandwidth.READER,
    nccl_tests.READER,
    training_log.READER,
)


def _surest(head: bytes) -> tuple[float, Reader]:
    sure = [(reader.likeness(head), -place) for place, reader in enumerate(READERS)]
    likeness, place = max(sure)
    return likeness, READERS[-place]


def recognise(head: bytes) -> Reader | None:
    """Return the reader whose files begin like `head`, or None, also for a text that quotes them.

    Most files are known by their first lines, and most of many files are kernel logs: the rest of
    a head, and the other readers, are asked only where those do not say.
    """
    first = head[:FIRST]
    if kernel_log.READER.likeness(first) >= CERTAIN:
        return kernel_log.READER
    likeness, reader = _surest(first)
    if likeness < SURE and len(head) > FIRST:
        likeness, reader = max((likeness, reader), _surest(head), key=lambda found: found[0])
    if likeness < FLOOR or (reader.kind not in TALKATIVE and is_document(head)):
        return None
    return reader
