"""nvidia-smi -q as text and as XML: the same readings, and no number where there is none."""

import pytest

from rackproof.harness.metrics import metrics
from rackproof.harness.model import Why
from rackproof.harness.readers import read
from rackproof.harness.readers.smi_fields import number
from rackproof.harness.units import UNITS

ECC_570 = {"sram_correctable": 0, "sram_uncorrectable_parity": 0, "sram_uncorrectable_secded": 0,
           "dram_correctable": 0, "dram_uncorrectable": 0}  # fmt: skip


def xml_gpu(bus="00000000:3B:00.0", ecc=None, more=""):
    fields = "".join(f"<{k}>{v}</{k}>" for k, v in (ECC_570 | (ecc or {})).items())
    return f"""<gpu id="{bus}"><product_name>NVIDIA B200</product_name>
      <serial>1650000000017</serial><uuid>GPU-aaaaaaaa-1111-2222-3333-bbbbbbbbbbbb</uuid>
      <gpu_recovery_action>None</gpu_recovery_action>
      <pci><pci_bus_id>{bus}</pci_bus_id><replay_counter>0</replay_counter></pci>
      <fb_memory_usage><total>183359 MiB</total></fb_memory_usage>
      <ecc_errors><volatile>{fields}</volatile></ecc_errors>{more}
      <processes></processes></gpu>"""


def xml(*gpus, attached=None, head='<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">'):
    attached = len(gpus) if attached is None else attached
    return f"""<?xml version="1.0" ?>\n{head}
    <nvidia_smi_log><timestamp>Mon Jan  5 10:00:00 2026</timestamp>
    <driver_version>570.86</driver_version><attached_gpus>{attached}</attached_gpus>
    {"".join(gpus)}</nvidia_smi_log>"""


def text_gpu(bus="00000000:3B:00.0", more=""):
    return f"""GPU {bus}
    Product Name                          : NVIDIA B200
    Serial Number                         : 1650000000017
    GPU UUID                              : GPU-aaaaaaaa-1111-2222-3333-bbbbbbbbbbbb
    GPU Recovery Action                   : None
    PCI
        Bus Id                            : {bus}
        Replays Since Reset               : 0
    FB Memory Usage
        Total                             : 183359 MiB
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 0
            DRAM Uncorrectable            : 0
{more}    Processes                             : None
"""


def text(*gpus, attached=None):
    attached = len(gpus) if attached is None else attached
    return f"""
==============NVSMI LOG==============

Timestamp                                 : Mon Jan  5 10:00:00 2026
Driver Version                            : 570.86
CUDA Version                              : 12.8

Attached GPUs                             : {attached}
{"".join(gpus)}"""


@pytest.fixture
def smi(tmp_path):
    def smi(content):
        path = tmp_path / "some.name"
        path.write_text(content)
        return read(path)

    return smi


def values(found):
    return {(m.subject, m.metric): m.value for m in found.measurements}


def test_text_and_xml_give_the_same_readings(smi):
    one, other = smi(text(text_gpu())), smi(xml(xml_gpu()))
    assert (one.kind, other.kind) == ("nvidia-smi-q", "nvidia-smi-xml")
    assert values(one) == values(other)
    assert values(one)["pci:0000:3b:00.0", "memory.total"] == 183359
    for found in (one, other):
        assert (found.records, found.cut, found.problems) == (1, False, ())
        assert found.aliases == {"gpu0": "pci:0000:3b:00.0"}
        assert found.serials == {"pci:0000:3b:00.0": "1650000000017"}


def test_every_metric_is_a_known_one_in_its_unit(smi):
    more = """    Remapped Rows
        Pending                           : No
        Bank Remap Availability Histogram
            Low                           : 1 bank(s)
            None                          : 0 bank(s)
    Temperature
        GPU Current Temp                  : 40 C
        GPU T.Limit Temp                  : 45 C
        GPU Slowdown T.Limit Temp         : -2 C
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : 1
        ClusterUUID                       : 11111111-2222-3333-4444-555555555555
        Health
            Summary                       : Healthy
"""
    found = smi(text(text_gpu(more=more)))
    for m in found.measurements:
        unit = metrics()[m.metric].unit
        assert UNITS[m.unit][0] == UNITS[unit][0], m
    assert values(found)["pci:0000:3b:00.0", "thermal.margin"] == 47
    assert values(found)["pci:0000:3b:00.0", "remap.banks.low"] == 1


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("N/A", Why.NOT_SUPPORTED),
        ("[N/A]", Why.NOT_SUPPORTED),
        ("[Not Supported]", Why.NOT_SUPPORTED),
        ("Requested functionality has been deprecated", Why.NOT_SUPPORTED),
        ("Insufficient Permissions", Why.NOT_PERMITTED),
        ("Unknown Error", Why.LOST),
        ("ERR!", Why.LOST),
        ("GPU is lost", Why.LOST),
        ("4294967295", Why.NO_READING),
        ("18446744073709551615", Why.NO_READING),
        ("4294967288", Why.NO_READING),
        ("-3", Why.NO_READING),
        ("twelve", Why.NO_READING),
        ("12", 12.0),
        ("2560 bank(s)", 2560.0),
    ],
)
def test_what_is_no_number_becomes_none(said, value):
    assert number(said, "errors") == value


def test_mib_and_mb_are_not_the_same():
    assert number("1000 MiB", "MiB") == 1000
    assert number("1048.576 MB", "MiB") == pytest.approx(1000)
    assert number("2 GiB", "MiB") == 2048


def test_a_negative_distance_is_a_temperature():
    assert number("-8 C", "C") == -8


def test_a_missing_value_is_missing_and_never_zero(smi):
    found = smi(xml(xml_gpu(ecc=dict.fromkeys(ECC_570, "N/A"))))
    assert ("pci:0000:3b:00.0", "ecc.uncorrected.volatile") not in values(found)
    assert ("ecc.uncorrected.volatile", Why.NOT_SUPPORTED) in {
        (m.metric, m.why) for m in found.missing
    }


@pytest.mark.parametrize("build", [(text, text_gpu), (xml, xml_gpu)], ids=["text", "xml"])
def test_the_heads_count_is_held_against_the_blocks(smi, build):
    whole, gpu = build
    found = smi(whole(gpu(), attached=8))
    assert found.cut
    assert "8 attached GPUs, and 1 follow" in found.problems[-1]
    assert not found.aliases


def test_a_block_that_breaks_off_is_a_cut(smi):
    whole = text(text_gpu())
    found = smi(whole[: whole.index("    ECC Errors")])
    assert found.cut
    assert "breaks off" in found.problems[0]


def test_xml_that_breaks_off_keeps_the_gpus_before(smi):
    whole = xml(xml_gpu(ecc={"dram_uncorrectable": 3}), xml_gpu("00000000:4C:00.0"))
    found = smi(whole[: whole.index("4C:00.0") + 400])
    assert found.cut
    assert "not well-formed at line" in found.problems[0]
    assert found.records == 1
    assert [(e.subject, e.code, e.detail["count"]) for e in found.events] == [
        ("pci:0000:3b:00.0", "smi.ecc.dram", 3)
    ]


def test_entities_are_refused_and_a_doctype_is_not(smi):
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    found = smi(xml(xml_gpu(more="<x>&b;</x>"), head=bomb))
    assert found.cut
    assert "an entity is declared, and is not expanded" in found.problems
    unused = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">]>'
    assert smi(xml(xml_gpu(), head=unused)).cut
    outside = '<!DOCTYPE x SYSTEM "file:///etc/passwd">'
    assert not smi(xml(xml_gpu(), head=outside)).cut


def test_deep_nesting_is_refused(smi):
    found = smi(xml(xml_gpu(more="<a>" * 5000 + "</a>" * 5000)))
    assert found.cut
    assert "nested too deeply" in found.problems[0]


def test_a_loop_of_reports_is_read_to_the_end(smi):
    found = smi(xml(xml_gpu()) + "\n" + xml(xml_gpu(ecc={"dram_uncorrectable": 1})))
    assert (found.records, found.cut) == (2, False)
    assert len(found.events) == 1


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (("<volatile><sram_uncorrectable>2</sram_uncorrectable>"
         "<dram_uncorrectable>1</dram_uncorrectable></volatile>"), 3),
        (("<volatile><double_bit><device_memory>4</device_memory><total>4</total></double_bit>"
         "</volatile>"), 4),
        (("<volatile><sram_uncorrectable_parity>1</sram_uncorrectable_parity>"
         "<sram_uncorrectable_secded>1</sram_uncorrectable_secded>"
         "<dram_uncorrectable>0</dram_uncorrectable></volatile>"), 2),
    ],
    ids=["v11", "v10", "v12"],
)  # fmt: skip
def test_ecc_layouts_of_all_drivers(smi, layout, expected):
    body = (f'<nvidia_smi_log><gpu id="00000000:01:00.0"><ecc_errors>{layout}</ecc_errors></gpu>'
            "</nvidia_smi_log>")  # fmt: skip
    assert values(smi(body))["pci:0000:01:00.0", "ecc.uncorrected.volatile"] == expected


def test_mig_devices_do_not_speak_for_the_gpu(smi):
    mig = """    MIG Device
        Index                             : 0
        ECC Errors
            Volatile
                SRAM Uncorrectable        : 7
"""
    assert (
        values(smi(text(text_gpu(more=mig))))["pci:0000:3b:00.0", "ecc.uncorrected.volatile"] == 0
    )


def test_a_process_may_have_any_name(smi):
    busy = """    Processes
        Process ID                        : 4711
            Name                          : ./GPU is lost ERR!
"""
    assert not smi(text(text_gpu(more=busy))).events


def test_parts_that_grep_left_are_gpus_by_their_place(smi):
    part = """    Fabric
        State                             : Completed
        Status                            : {}
--
"""
    found = smi(part.format("Success") + part.format("Insufficient Resources"))
    assert found.kind == "nvidia-smi-q"
    assert values(found)["gpu0", "fabric.status"] == "Success"
    assert values(found)["gpu1", "fabric.status"] == "Insufficient Resources"


def test_both_forms_of_the_recovery_action(smi):
    old = """    GPU Reset Status
        Reset Required                    : Yes
        Drain and Reset Recommended       : No
"""
    found = smi(text(text_gpu(more=old)))
    said = [m.value for m in found.measurements if m.metric == "recovery.action"]
    assert sorted(said) == ["none", "reset"]


def test_a_lost_gpu_is_an_event(smi):
    line = "Unable to determine the device handle for GPU 0000:5A:00.0: GPU is lost.  Reboot it"
    found = smi(text(text_gpu()) + line + "\n")
    assert ("pci:0000:5a:00.0", "smi.lost") in {(e.subject, e.code) for e in found.events}


def test_the_pcie_generation_counts_only_under_load(smi):
    def block(util, idle):
        return f"""    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : {idle}
    Utilization
        GPU                               : {util} %
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 3
"""

    resting = values(smi(text(text_gpu(more=block(0, "Active")))))
    loaded = values(smi(text(text_gpu(more=block(97, "Not Active")))))
    assert ("pci:0000:3b:00.0", "pcie.gen") not in resting
    assert loaded["pci:0000:3b:00.0", "pcie.gen"] == 3


@pytest.mark.parametrize(
    "content",
    [
        " Product Name          : PowerEdge\n Product Serial        : ABC123\n Board Mfg : Dell\n",
        "State: Active\nPhysical state: LinkUp\nRate: 400\n",
        "hello : world\n",
        "<html><body>status : ok</body></html>",
        "Nov 15 14:15:47 node systemd[1]: Starting NVIDIA fabric manager service...\n",
        "[2024-01-01 10:00:00,123] [INFO] training step 7 CUDA kernel errors might come\n",
        "RuntimeError: CUDA error\nCUDA kernel errors might be asynchronously reported\n",
        '{"level":"warn","msg":"Xid (PCI:0000:01:00): 79"}\n',
    ],
)
def test_what_is_something_else_is_not_taken(smi, content):
    assert smi(content).kind in ("unrecognised", "training-log")
