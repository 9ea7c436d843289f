"""Workers share a rack, and say of it what one process says."""

import json
from pathlib import Path

import pytest

from rackproof.diagnostics.judge import judge
from rackproof.reports.read import read_run

NODE = (
    "gpu-lost@rack0/tray00/gpu2",
    "nvlink-down@rack0/tray00/gpu5/link03",
    "slow-gpu@rack0/tray00/gpu7",
    "sm-sdc@rack0/tray00/gpu1:rate=0.7",
)
RACK = (
    "gpu-lost@rack0/tray03/gpu2",
    "nvlink-down@rack0/tray05/gpu1/link03",
    "slow-gpu@rack0/tray07/gpu3",
    "sm-sdc@rack0/tray11/gpu1:rate=0.7",
)
SOME = "inventory,health,platform,memory.march,gemm.fp32,gemm.bf16,link.all,link.collective"


def both(cli, tmp_path, *words):
    """Run serially and with two workers; return the two records."""
    for name, extra in (("serial", ()), ("parallel", ("-n", "2"))):
        answer = cli("burn", *words, *extra, "--out", name, "--json")
        assert answer.code == 1, answer.err
    assert len(list((tmp_path / "parallel").glob("record.gw*.jsonl"))) == 2
    return [read_run(tmp_path / name) for name in ("serial", "parallel")]


def same(one, other):
    """The same was seen, settled, judged and concluded."""
    assert sorted(map(repr, one.seen)) == sorted(map(repr, other.seen))
    assert one.settled == other.settled
    first, second = judge(one), judge(other)
    assert first.checks == second.checks
    assert first.diagnoses == second.diagnoses
    assert first.verdict == second.verdict
    return first


def planted(words):
    return [word for fault in words for word in ("--plant", fault)]


@pytest.mark.parametrize("seed", [3, 4])
def test_workers_see_in_a_node_what_one_process_sees(cli, tmp_path, seed):
    words = ("hgx-h100", "--level", "acceptance", "--seed", str(seed), *planted(NODE))
    judgement = same(*both(cli, tmp_path, *words))
    roots = {d.subject for d in judgement.diagnoses if d.role == "root"}
    assert roots >= {"rack0/tray00/gpu2", "rack0/tray00/gpu5/link03", "rack0/tray00/gpu7"}


def test_workers_see_in_a_rack_what_one_process_sees(cli, tmp_path):
    words = ("gb300-nvl72", "--level", "acceptance", "--only", SOME, "--seed", "5")
    judgement = same(*both(cli, tmp_path, *words, *planted(RACK)))
    roots = {d.subject for d in judgement.diagnoses if d.role == "root"}
    assert roots == {fault.partition("@")[2].partition(":")[0] for fault in RACK}


def test_workers_run_a_soak_in_rounds(cli, tmp_path):
    words = ("catalina", "--level", "soak", "--only", "health,memory.march,link.all")
    plants = planted(["nvlink-down@rack1/tray03/gpu1/link02", "hbm-stuck-bit@?:rate=0.7"])
    one, other = both(cli, tmp_path, *words, "--for", "17s", "--seed", "2", *plants)
    same(one, other)
    assert one.head.rounds == 3
    assert one.turns == other.turns


def test_what_strikes_once_is_counted_once(cli, tmp_path):
    words = ("hgx-h100", "--only", "memory,link", "--seed", "2")
    plants = planted(["hbm-bit-flip@rack0/tray00/gpu2"])
    same(*both(cli, tmp_path, *words, *plants))
    for name in ("serial", "parallel"):
        (fault,) = json.loads((tmp_path / name / "planted.json").read_text())
        assert fault["fired"] == 1, name
    assert not list(Path(tmp_path / "parallel").glob("planted.gw*.json"))
