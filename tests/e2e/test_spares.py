"""`spares` and the forms for schedulers, as a user runs them."""

import json
import subprocess

import pytest


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder in which this module's run lies."""
    return tmp_path_factory.mktemp("spares")


@pytest.fixture
def run(runs, cli):
    """A run of an HGX node with a stuck bit, burnt once."""
    out = runs / "run"
    if not out.exists():
        burn = cli("burn", "hgx-h100", "--seed", "7", "--only", "memory.march,inventory",
                   "--plant", "hbm-stuck-bit@rack0/tray00/gpu1", "--out", str(out))  # fmt: skip
        assert burn.code == 1
    return out


def asked(cli, *words) -> tuple[int, dict]:
    done = cli("spares", *words, "--json")
    return done.code, done.json


def test_a_node_without_spares_is_exposed_and_a_spare_node_helps(cli, run) -> None:
    code, body = asked(cli, str(run))
    assert (code, body["verdict"], body["schema"]) == (1, "FAIL", "rackproof.spares/1")
    assert [e["subject"] for e in body["exposed"]] == ["rack0/tray00/gpu1"]
    code, body = asked(cli, str(run), "--spare-racks", "1", "--job", "512")
    assert (code, body["verdict"], body["exposed"]) == (0, "PASS", [])
    (one,) = body["decisions"]
    assert one["decision"] == "move-rack"
    assert body["spare_racks_left"] == 0


def test_the_same_question_gets_the_same_answer(cli, run) -> None:
    words = (str(run), "--racks", "8", "--days", "30")
    assert asked(cli, *words) == asked(cli, *words)
    assert asked(cli, *words)[1]["planning"]["agrees"] is True
    doubled = asked(cli, str(run), str(run) + "/.")[1]
    assert len(doubled["stock"]) == 1  # one run named twice is one run


def test_a_person_reads_the_plan_and_the_verdict_last(cli, run) -> None:
    done = cli("spares", str(run), "--racks", "8")
    lines = done.out.splitlines()
    assert lines[0].startswith("Recommended; nothing is moved")
    assert any(line.startswith("Planning: 8 racks for 30 days") for line in lines)
    assert "agrees with the closed forms" in " ".join(done.out.split())
    assert lines[-1].startswith("FAIL  exposed for want of spares: rack0/tray00/gpu1")


def test_two_runs_of_one_rack_share_its_stock(cli, run, runs) -> None:
    later = runs / "later"
    if not later.exists():
        cli("burn", "hgx-h100", "--seed", "8", "--only", "inventory", "--out", str(later))
    code, body = asked(cli, str(later), str(run))
    assert (code, body["verdict"]) == (0, "PASS")  # the newer run of the rack found nothing
    assert body["older"] == [{"run": str(run), "for": str(later)}]
    assert [row["run"] for row in body["stock"]] == [str(later)]
    assert body["planning"]["racks"] == 1
    said = cli("spares", str(later)).out.splitlines()[-1]
    assert said.endswith("nothing stays exposed; burns were left out of 1 run")


def test_a_run_that_was_cut_hides_something_whatever_it_found(cli, run, tmp_path) -> None:
    (tmp_path / "record.jsonl").write_bytes((run / "record.jsonl").read_bytes()[:-400])
    code, body = asked(cli, str(tmp_path), "--spare-racks", "1", "--job", "512")
    assert (code, body["verdict"]) == (3, "UNKNOWN")
    assert body["stock"][0]["unjudged"]


def test_a_job_is_as_wide_as_was_said(cli, run) -> None:
    assert asked(cli, str(run), "--job", "4096")[1]["planning"]["useful_time"]["gpus"] == 4096


@pytest.mark.parametrize(
    "words",
    [("--rate", "h1000"), ("--rate", "-1"), ("--rate", "nan"), ("--spare-trays", "1"),
     ("--days", "0"), ("--persistent", "2"), ("--confidence", "1"), ("--racks", "0"),
     ("--days", "nan"), ("--persistent", "nan"), ("--confidence", "nan"), ("--repair", "nan"),
     ("--days", "inf"), ("--rate", "1e-300")],
    ids=" ".join,
)  # fmt: skip
def test_nonsense_is_one_line_and_exit_2(cli, run, words) -> None:
    done = cli("spares", str(run), *words)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert words[0] in done.err


def test_what_is_no_run_is_exit_2(cli, tmp_path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        done = cli("spares", str(path))
        assert done.code == 2
        assert str(path) in done.err


def test_a_run_that_was_not_judged_is_unknown(cli, tmp_path) -> None:
    out = tmp_path / "run"
    cli("burn", "hgx-h100", "--only", "health", "--out", str(out), "--plant",
        "sensor-missing@rack0/tray00/gpu1")  # fmt: skip
    code, body = asked(cli, str(out))
    assert (code, body["verdict"]) == (3, "UNKNOWN")


def test_schedulers_are_told_and_nothing_is_called(cli, run) -> None:
    done = cli("report", str(run), "--as", "slurm", "--out", "-", "--node", "gpu-17")
    assert done.out.startswith('scontrol update NodeName=gpu-17 State=DRAIN Reason="hbm gpu1 ')
    cli("report", str(run), "--as", "kubernetes")
    told = json.loads((run / "kubernetes.json").read_text())
    assert told["items"][0]["status"]["conditions"][0]["status"] == "False"
    cli("report", str(run), "--as", "ocp")
    last = (run / "report.ocp.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["testRunArtifact"]["testRunEnd"]["result"] == "FAIL"


@pytest.mark.parametrize(
    ("words", "said"),
    [(("report", "RUN", "--as", "html", "--node", "a"), "--node"),
     (("report", "RUN", "--as", "slurm", "--node", "a b"), "--node"),
     (("diagnose", "RUN", "--as", "slrm"), "slurm"),
     (("diagnose", "RUN", "--as", "slurm", "--json"), "--json"),
     (("diagnose", "RUN", "--node", "a"), "--as"),
     (("diagnose", "RUN", "--as", "slurm"), "rackproof report")],
    ids=["node-html", "bad-node", "bad-form", "form-and-json", "node-alone", "run"],
)  # fmt: skip
def test_forms_that_make_no_sense_are_exit_2(cli, run, words, said) -> None:
    done = cli(*(str(run) if word == "RUN" else word for word in words))
    assert done.code == 2
    assert said in done.err


def test_files_are_told_to_a_scheduler(cli, tmp_path) -> None:
    log = tmp_path / "kern.log"
    line = "gpu-21 kernel: NVRM: Xid (PCI:0000:41:00): 64, pid=0, name=x, Row Remapper Error: (0x1)"
    log.write_text(f"2026-01-05T10:00:00.000000+00:00 {line} - All reserved rows are remapped\n")
    done = cli("diagnose", str(log), "--as", "slurm", "--node", "gpu-21")
    assert done.code == 1
    assert done.out.startswith('scontrol update NodeName=gpu-21 State=DRAIN Reason="hbm pci:')
    assert subprocess.run(["sh", "-n"], input=done.out, text=True, check=False).returncode == 0
