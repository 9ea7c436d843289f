"""Ports, counters, modules and bandwidth: what is down beside its like, and what only looks so."""

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read
from rackproof.harness.readers.ib import likeness


def ibstat(*ports):
    """Return ibstat's text; a port is (CA, state, physical state, rate, layer[, model])."""
    return "".join(
        f"CA '{name}'\n\tCA type: {more[0] if more else 'MT4129'}\n\tNumber of ports: 1\n\tPor"
        "t 1:\n"
        f"\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {rate}\n\t\tBase lid: 1\n"
        f"\t\tLink layer: {layer}\n"
        for name, state, physical, rate, layer, *more in ports
    )


def up(name, rate=400, layer="InfiniBand", *model):
    return (name, "Active", "LinkUp", rate, layer, *model)


def down(name, physical="Polling", layer="InfiniBand", *model):
    return (name, "Down", physical, 10, layer, *model)


def judged(tmp_path, text):
    path = tmp_path / "x"
    path.write_text(text)
    found = read(path)
    judgement = judge_inputs([found])
    roots = [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]
    return found, str(judgement.verdict), roots


CABLE = ("nic", "check-cabling")
SEVEN = [up(f"mlx5_{n}") for n in (0, 1, 10, 11, 2, 4, 5)]
SYSFS = "/sys/class/infiniband/mlx5_2/ports/1/hw_counters/{}:{}\n"


@pytest.mark.parametrize(
    ("text", "verdict", "roots"),
    [
        pytest.param(ibstat(*SEVEN), "PASS", [], id="all up, in lexical order"),
        pytest.param(ibstat(*SEVEN, down("mlx5_3")), "FAIL", [("nic:mlx5_3", *CABLE)],
                     id="polling beside like ports"),
        pytest.param(ibstat(*SEVEN, down("mlx5_3", "Disabled", "Ethernet")), "PASS", [],
                     id="an Ethernet port that is disabled"),
        pytest.param(ibstat(*SEVEN, down("mlx5_3", "Disabled")), "UNKNOWN",
                     [("nic:mlx5_3", "nic", "watch")], id="an InfiniBand port that is disabled"),
        pytest.param(ibstat(*SEVEN, down("mlx5_3", "Polling", "Ethernet")), "UNKNOWN",
                     [("nic:mlx5_3", "nic", "watch")], id="no like port: another link layer"),
        pytest.param(ibstat(*SEVEN, down("mlx5_3", "Polling", "InfiniBand", "MT4125")), "UNKNOWN",
                     [("nic:mlx5_3", "nic", "watch")], id="no like port: another model"),
        pytest.param(ibstat(down("mlx4_0")), "UNKNOWN", [("nic:mlx4_0", "nic", "watch")],
                     id="one port alone"),
        pytest.param(ibstat(("mlx5_0", "Initializing", "LinkUp", 400, "InfiniBand")), "UNKNOWN",
                     [("nic:mlx5_0", "fabric", "retest")], id="no subnet manager"),
        pytest.param(ibstat(*SEVEN, up("mlx5_3", 200)), "UNKNOWN", [("nic:mlx5_3", "nic", "watch")],
                     id="slower than all like ports"),
        pytest.param(ibstat(*SEVEN, up("mlx5_3", 200), up("mlx5_6", 200)), "PASS", [],
                     id="two slower ports are another fabric"),
    ],
)  # fmt: skip
def test_ports(tmp_path, text, verdict, roots):
    found, *judgement = judged(tmp_path, text)
    assert (found.kind, found.records) == ("ib", text.count("CA '"))
    assert judgement == [verdict, roots]


ROCE = [up(f"mlx5_{n}", 400, "Ethernet") for n in range(8)]
OFF = down("mlx5_9", "Disabled", "Ethernet")


@pytest.mark.parametrize(
    ("ports", "verdict", "roots"),
    [
        (ROCE, "PASS", []),
        ([*ROCE[:7], OFF], "FAIL", [("nic:mlx5_9", *CABLE)]),
        ([*ROCE[:3], OFF], "UNKNOWN", [("nic:mlx5_9", "nic", "watch")]),
        ([*ROCE[:1], OFF], "PASS", []),
        ([*ROCE[:4], OFF, down("mlx5_8", "Disabled", "Ethernet")], "PASS", []),
        ([*ROCE, down("mlx5_9", "Disabled", "Ethernet", "MT4125")], "PASS", []),
        ([*ROCE[:2], up("mlx5_3", 25, "Ethernet"), up("mlx5_4", 100, "Ethernet"), OFF], "PASS", []),
        ([*ROCE[:7], up("mlx5_8", 25, "Ethernet"), OFF], "FAIL",
         [("nic:mlx5_9", *CABLE), ("nic:mlx5_8", "nic", "watch")]),
    ],
    ids=["all up", "one of eight", "one of four", "one of two", "two of six", "of another card",
         "rates of all sorts", "beside a slow one"],
)  # fmt: skip
def test_an_ethernet_port_without_carrier_among_many(tmp_path, ports, verdict, roots):
    assert list(judged(tmp_path, ibstat(*ports))[1:]) == [verdict, roots]


def test_two_like_ports_at_two_rates_are_said(tmp_path):
    found, verdict, roots = judged(tmp_path, ibstat(up("mlx5_0"), up("mlx5_1", 200)))
    assert (verdict, roots) == ("PASS", [])
    assert "mlx5_1 at 200 Gb/s; mlx5_0 at 400 Gb/s" in found.problems[0]
    assert not judged(tmp_path, ibstat(up("mlx5_0"), up("mlx5_1", 25, "Ethernet")))[0].problems


def test_two_ports_of_one_adapter_are_not_like(tmp_path):
    text = ibstat(down("mlx4_0")).replace("ports: 1", "ports: 2")
    text += "\tPort 2:\n\t\tState: Down\n\t\tPhysical state: Disabled\n\t\tLink layer: Ethernet\n"
    found, verdict, roots = judged(tmp_path, text)
    assert (found.records, verdict) == (2, "UNKNOWN")
    assert roots == [("nic:mlx4_0/port1", "nic", "watch")]


def test_a_report_that_lacks_a_port_is_cut(tmp_path):
    text = ibstat(*SEVEN).replace("Number of ports: 1", "Number of ports: 2", 1)
    found, verdict, _ = judged(tmp_path, text)
    assert found.cut
    assert verdict == "UNKNOWN"


STATUS = (
    "Infiniband device 'mlx5_{}' port 1 status:\n\tdefault gid:\t unknown\n\tstate:\t\t {}\n"
    "\tphys state:\t {}\n\trate:\t\t {}\n\tlink_layer:\t InfiniBand\n\n"
)
GOOD = ("4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)")


@pytest.mark.parametrize(
    ("text", "verdict", "roots"),
    [
        (STATUS.format(0, *GOOD) + STATUS.format(1, *GOOD), "PASS", []),
        (STATUS.format(0, *GOOD) + STATUS.format(1, "1: DOWN", "2: Polling", "10 Gb/sec (4X)"),
         "FAIL", [("nic:mlx5_1", *CABLE)]),
        (STATUS.format(0, *GOOD) + STATUS.format(1, *GOOD[:2], "50 Gb/sec (1X HDR)"),
         "FAIL", [("nic:mlx5_1", *CABLE)]),
        (("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ib0\n"
         "link mlx5_1/1 state DOWN physical_state POLLING netdev ib1\n"),
         "FAIL", [("nic:mlx5_1", *CABLE)]),
        (("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0\n"
         "link mlx5_1/1 state DOWN physical_state DISABLED netdev eth1\n"), "PASS", []),
    ],
    ids=["ibstatus up", "ibstatus down", "one lane of four", "rdma link down",
        "rdma link disabled"],
)  # fmt: skip
def test_other_dialects_of_ports(tmp_path, text, verdict, roots):
    found, *judgement = judged(tmp_path, text)
    assert (found.kind, found.records) == ("ib", 2)
    assert judgement == [verdict, roots]


PERF = "# Port extended counters: Lid 7 port {} (CapMask: 0x5300)\nPortSelect:.....{}\n{}"


@pytest.mark.parametrize(
    ("text", "verdict", "subject"),
    [
        (PERF.format(1, 1, "SymbolErrorCounter:......3\nPortXmitWait:....99999999\n"), "PASS", ""),
        (PERF.format(1, 1, "SymbolErrorCounter:......65535\n"), "UNKNOWN", "nic:lid7"),
        (PERF.format(1, 1, "LinkDownedCounter:....0\n") + PERF.format(2, 2, "LinkDownedCounter"
                                                                            ":...12\n"),
         "UNKNOWN", "nic:lid7/port2"),
        (SYSFS.format("lifespan", 10) + SYSFS.format("np_cnp_sent", 10**8), "PASS", ""),
        (SYSFS.format("local_ack_timeout_err", 54_321), "UNKNOWN", "nic:mlx5_2"),
        (SYSFS.format("local_ack_timeout_err", 2**64 - 1), "UNKNOWN", ""),
    ],
    ids=["congestion is no error", "at its end", "two ports", "settings", "timeouts", "all ones"],
)  # fmt: skip
def test_totals_accuse_nobody(tmp_path, text, verdict, subject):
    found, got, roots = judged(tmp_path, text)
    assert (found.kind, got) == ("ib", verdict)
    assert [(s, a) for s, _, a in roots] == ([(subject, "watch")] if subject else [])


MODULE = (
    "Module Info\n-----------\nTemperature [C] : {} [-5..75]\nVoltage [mV] : 3300 [2970..3630]\n"
)


@pytest.mark.parametrize(
    ("text", "verdict", "component"),
    [
        (MODULE.format(54), "PASS", None),
        (MODULE.format(78), "FAIL", "thermal"),
        (MODULE.format(54) + "Rx Power Current [dBm]   : 1.9,2.0,-14.5,1.9 [-10.4..6"
                             "]\n", "FAIL", "nic"),
        (MODULE.format(54) + "Effective Physical BER     : 15E-255\n", "PASS", None),
        (MODULE.format(54) + "Effective Physical BER     : 3E-9\n", "FAIL", "nic"),
        (("Operational Info\n----------------\nState           : Polling\nPhysical state  : ETH"
         "_AN_FSM_ENABLE\n"
         "Status Opcode   : 1024\n"), "UNKNOWN", "nic"),
    ],
    ids=["inside", "too hot", "one lane dark", "no errors", "errors", "no cable"],
)  # fmt: skip
def test_modules(tmp_path, text, verdict, component):
    _, got, roots = judged(tmp_path, text)
    assert got == verdict
    assert {c for _, c, _ in roots} == ({component} if component else set())


def bandwidth(unit, rows):
    head = (
        f"#bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]\n"
    )
    return f"{' ' * 20}RDMA_Write BW Test\n Device         : mlx5_4\n{head}{head}{rows}"


ROW = " 65536      5000             {0}            {0}           0.35\n"


@pytest.mark.parametrize(
    ("unit", "shown", "rate"), [("MB", "25000.00", 26.2144), ("Gb", "196.80", 24.6)]
)
def test_bandwidth_in_bytes_and_in_bits(tmp_path, unit, shown, rate):
    found, verdict, _ = judged(tmp_path, bandwidth(unit, ROW.format(shown) * 2))
    (best,) = [m for m in found.measurements if m.metric == "ib.bandwidth"]
    assert (best.subject, best.unit, verdict) == ("nic:mlx5_4", "GB/s", "PASS")
    assert best.value == pytest.approx(rate)


@pytest.mark.parametrize("rest", ["", "Couldn't connect to n2:18515\n"])
def test_a_bandwidth_test_without_a_row_did_no_work(tmp_path, rest):
    found, verdict, roots = judged(tmp_path, bandwidth("MB", rest))
    assert (found.worked, verdict, roots) == (False, "UNKNOWN", [])


@pytest.mark.parametrize(
    "text",
    ["[  100.000001] mlx5_core 0000:5a:00.0: Port module event: module 0, Cable unplugged\n",
     "We ran ibstat and saw State: Down, Physical state: Polling on mlx5_3.\n",
     "def read_ibstat():\n    return \"CA 'mlx5_0'\"\n", "<html>ibstatus</html>"],
    ids=["a kernel's line", "prose", "source", "a page"],
)  # fmt: skip
def test_other_files_are_not_taken(text):
    assert likeness(text.encode()) == 0
