"""The page as text: self-contained, small enough, complete, and with a sum that can be checked."""

import re
import subprocess
from html.parser import HTMLParser

from rackproof.reports.html.render import CHECK_COMMAND, render
from rackproof.reports.read import fingerprint, span
from rackproof.reports.record import RecordWriter


def page_of(made, **options) -> str:
    record, judgement = made
    return render(record, judgement, **{"fingerprint": "ab" * 32, "name": "a-run", **options})


class Links(HTMLParser):
    """Collects what a browser would load or follow, and every id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        for name, value in attrs:
            if name in ("src", "href", "srcset", "action", "data", "poster", "style"):
                self.targets.append(f"{name}={value}")
            if name == "id":
                self.ids.append(value)


def test_nothing_outside_the_page_is_named(run_of, failing) -> None:
    text = page_of(run_of(failing(trays=None)))
    links = Links(text)
    assert links.targets
    assert all(target.startswith("href=#rack") for target in links.targets)
    assert len(links.ids) == len(set(links.ids))
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in text


def test_all_that_an_engineer_signs_is_there(run_of, failing) -> None:
    text = page_of(run_of(failing(trays=None)), span=("2026-07-30T10:00:00.000+00:00",
                                                      "2026-07-30T12:02:11.000+02:00"))  # fmt: skip
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))
    for wanted in (
        "EMULATED", "No hardware was tested", "69 of 72 GPUs pass", "72 × gb300", "ab" * 32,
        "2026-07-30 10:00:00 UTC", "2026-07-30 10:02:11 UTC", "6929 of 6930 checks judged",
        "your limits file", "site rule 12", "this rack&#39;s own median",
        "coolant valve is on order", "2020-01-31 expired", "Version of driver",
        "swap-to-spare", "1650000000001",
        "the sensor gave no reading", "read it with another tool", "Tested by", "Signature",
        "63, 63, 64", "memory.march: ecc.corrected.delta 63, 63, 64 in 3 of 3 runs",
    ):  # fmt: skip
        assert wanted in plain, wanted


def test_real_is_said_as_plainly_and_a_strange_source_is_neither(run_of, case) -> None:
    assert "<strong>REAL</strong>" in page_of(run_of(case(source="real")))
    strange = page_of(run_of(case(source="<b>")))
    assert "<strong>UNSAID</strong>" in strange
    assert "its source is “&lt;b&gt;”" in strange


def test_every_limit_in_force_is_listed_with_its_source(run_of, failing) -> None:
    record, judgement = run_of(failing())
    text = page_of((record, judgement))
    for limit in record.head.limits["limit"]:
        assert limit["metric"] in text
        assert limit["source"].replace("'", "&#39;").replace('"', "&#34;") in text


def test_a_rack_of_72_is_small_and_one_of_576_is_usable(run_of, case, tmp_path) -> None:
    assert len(page_of(run_of(case(trays=None)))) < 500_000
    rack = tmp_path / "wide.toml"
    rack.write_text(
        '[rack]\nname = "wide"\nsource = "emulated"\n[[tray]]\ncount = 144\ngpus = 4\n'
        '[gpu]\nsku = "gb300"\n[cooling]\nkind = "flc"\n[fabric]\nswitches = 18\n'
        "links_per_gpu = 18\n",
        "utf-8",
    )
    text = page_of(run_of(case(rack=str(rack), trays=None)))
    assert text.count('class="cell compute') == 576
    assert len(text) < 2_500_000


def test_the_command_of_the_page_gives_the_sum_of_the_page(run_of, case, tmp_path, tool) -> None:
    record, _ = run_of(case())
    for writer in (None, "gw1", "gw0"):
        with RecordWriter(tmp_path, writer) as out:
            out.run(record.head)
            for what in record.seen[:5]:
                out.seen(what)
    answer = subprocess.run(
        [tool("sh"), "-c", CHECK_COMMAND], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert answer.stdout.split()[0] == fingerprint(tmp_path)
    began, ended = span(tmp_path) or ("", "")
    assert began <= ended
    assert began.startswith("20")
    assert span(tmp_path / "nowhere") is None


def test_a_long_gap_is_one_row(run_of, case) -> None:
    record, _ = run_of(case(trays=None))
    from dataclasses import replace  # noqa: PLC0415

    from rackproof.diagnostics.judge import judge  # noqa: PLC0415

    cut = replace(record, seen=[], settled=frozenset(), ended=False)
    text = page_of((cut, judge(cut)))
    assert "rack0/tray00–17/gpu0–3" in text
    assert "rack0/tray00–17/gpu0–3/link00–17" in text
    assert "Problems of the record" in text
    assert len(text) < 1_500_000
