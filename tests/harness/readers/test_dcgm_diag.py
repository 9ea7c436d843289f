"""dcgmi diag, as JSON of every layout and as a table: results by GPU, reasons by their number."""

import json

import pytest

from rackproof.harness.readers import read
from rackproof.harness.readers.dcgm_words import code_of
from rackproof.harness.readers.objects import objects

RULE = f"+{'-' * 27}+{'-' * 48}+"
HEAD = [RULE, f"| {'Diagnostic':<25} | {'Result':<46} |", RULE.replace("-", "=")]


def section(name):
    return f"+-----  {name}  {'-' * (18 - len(name))}+{'-' * 48}+"


def row(name, value):
    return f"| {name:<25} | {value:<46} |"


def wrapped(name, text):
    """Return the rows of a long cell, broken at 45 characters as the tool breaks it."""
    parts = [text[i : i + 45] for i in range(0, len(text), 45)]
    return [row(name if not i else "", part) for i, part in enumerate(parts)]


def table(*rows, head=True, foot=True):
    return "\n".join([*(HEAD if head else []), *rows, *([RULE] if foot else [])]) + "\n"


@pytest.fixture
def told(tmp_path):
    def told(text):
        path = tmp_path / "anything"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return read(path)

    return told


def events(found):
    return {(e.subject, e.code) for e in found.events}


def results(found):
    return {(m.check, m.subject): m.value for m in found.measurements
            if m.metric == "dcgm.diag.result"}  # fmt: skip


def three(*tests, **more):
    """Return the layout of DCGM 3: tests as (category, name, [result…])."""
    categories = [{"category": c, "tests": [None, {"name": n, "results": r}]} for c, n, r in tests]
    return {"DCGM GPU Diagnostic": {"test_categories": categories, "version": "3.3.7"} | more}


def four(*results, test="memory", category="Hardware"):
    found = [{"entity_group": "GPU", "entity_group_id": 1} | one for one in results]
    return {
        "DCGM Diagnostic": {"test_categories": [
            {"category": category, "tests": [
                {"name": test, "results": found, "test_summary": {"status": "Fail"}}]}]},
        "entity_groups": [{"entity_group": "GPU", "entities": [
            {"entity_id": 2, "serial_num": "1652923001111"},
            {"entity_id": 3, "serial_num": "<<<NOT_SUPPORTED>>>"}]}],
        "metadata": {"Driver Version Detected": "570.9"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "gpus"),
    [({"gpu_ids": "0, 2,5"}, [0, 2, 5]), ({"gpu_id": "3"}, [3]), ({"gpu_id": 3}, [3]),
     ({"gpu_ids": [1, 2]}, [1, 2]), ({"gpu_ids": "99999999"}, []), ({}, [])],
    ids=["list in text", "text", "number", "list", "no GPU's number", "none"],
)  # fmt: skip
def test_ids_of_the_third_layout(told, ids, gpus):
    found = told(three(("Hardware", "Memtest", [{"status": "PASS"} | ids])))
    assert results(found) == {("Memtest", f"gpu{n}"): "pass" for n in gpus} or not gpus
    assert (found.kind, found.worked, found.cut) == ("dcgm-diag-json", True, False)


def test_the_fourth_layout_names_entities(told):
    found = told(four(
        {"entity_id": 2, "status": "Fail", "warnings": [
            {"warning": "GPU 2 had uncorrectable memory errors and row remapping failed.",
             "error_id": 80, "error_severity": 2, "error_category": 10}]},
        {"entity_id": 3, "status": "Pass"},
        {"entity_group": "CPU", "entity_id": 0, "status": "Skip"},
    ))  # fmt: skip
    assert events(found) == {("gpu2", "dcgm.fr.80")}
    assert found.events[0].detail["severity"] == 2
    assert found.serials == {"gpu2": "1652923001111"}
    assert results(found)["memory", "gpu3"] == "pass"
    assert "driver.version" in {m.metric for m in found.measurements}


@pytest.mark.parametrize(
    ("warnings", "code"),
    [
        ("Detected 2 volatile double-bit ECC error(s) in GPU 4.", "dcgm.fr.4"),
        (["GPU 4's NvLink link 11 is currently down"], "dcgm.fr.14"),
        ([{"warning": "Detected XID 79 for GPU 4", "error_id": 101}], "xid.79"),
        ([{"warning": "GPU had an uncontained error (XID 95)", "error_id": 81}], "xid.95"),
        ([{"warning": "Detected fatal NvSwitch SXID 20034", "error_id": "109"}], "sxid.20034"),
        ([{"warning": "of a release to come", "error_id": 300, "error_severity": 6}],
         "dcgm.fr.300"),
        ([{"warning": "x", "error_id": 9223372036854775794}], "dcgm.fail"),
        ([{"warning": "x", "error_id": "2147483632"}], "dcgm.fail"),
        ("what nobody has written before", "dcgm.fail"),
        (None, "dcgm.fail"),
        ([None, 7, {"error_id": None}, {}], "dcgm.fail"),
    ],
)  # fmt: skip
def test_reasons_have_a_number_or_are_found_by_their_words(told, warnings, code):
    result = {"gpu_id": "4", "status": "Fail", "warnings": warnings}
    found = told(three(("Hardware", "Diagnostic", [result])))
    assert {e.code for e in found.events} == {code}


def test_a_reason_that_names_one_gpu_is_about_that_one(told):
    result = {"gpu_ids": "0,1,2,3", "status": "Fail",
              "warnings": ["Found 3 faulty memory elements on GPU 2"]}  # fmt: skip
    assert events(told(three(("Hardware", "Memory", [result])))) == {("gpu2", "dcgm.fr.52")}


def test_a_pass_beside_memory_that_was_not_allocated_is_not_only_a_pass(told):
    result = {"gpu_id": 1, "status": "Pass",
              "warnings": ["Couldn't allocate at least 75.0% of GPU memory on GPU 1"]}  # fmt: skip
    assert events(told(three(("Hardware", "Memory", [result])))) == {("gpu1", "dcgm.fr.56")}
    result["warnings"] = ["Detected 2 volatile double-bit ECC error(s) in GPU 1."]
    assert not told(three(("Hardware", "Memory", [result]))).events


@pytest.mark.parametrize(
    ("statuses", "worked", "codes"),
    [(["Skip", "Skip"], False, set()), (["Skip", "Not Run"], False, set()),
     (["Pass", "Skip"], True, {"dcgm.skipped"}), (["Fine", "Fine"], False, set()),
     (["Pass", "Pass"], True, set())],
    ids=["all skipped", "not run", "one skipped", "a word that we do not know", "all passed"],
)  # fmt: skip
def test_what_was_skipped_was_not_tested(told, statuses, worked, codes):
    rows = [{"gpu_id": i, "status": status} for i, status in enumerate(statuses)]
    found = told(three(("Hardware", "GPU Memory", rows), ("Deployment", "Inforom",
                                                           [{"status": "Pass"}])))  # fmt: skip
    assert (found.worked, {e.code for e in found.events}) == (worked, codes)


def test_a_refusal_is_no_work(told):
    found = told('Error: Unable to run diagnostic on unsupported GPU 0.\n'
                 '{"DCGM GPU Diagnostic": {"version": "4.2.0"}}')  # fmt: skip
    assert (found.kind, found.records, found.worked) == ("dcgm-diag-json", 0, False)


def test_json_that_breaks_off_is_read_up_to_there(told):
    rows = [{"gpu_id": n, "status": "Pass" if n else "Fail"} for n in range(6)]
    whole = json.dumps(three(("Hardware", "Memory", rows)), indent=1)
    for size in range(len(whole) // 2, len(whole) - 1, 7):
        found = told(whole[:size])
        assert found.cut
        assert ("gpu0", "dcgm.cut") in events(found)
    assert not told(whole).cut


def test_objects_one_after_the_other(told):
    summary = {"event": "Diagnostic summary", "failed": 1, "warned": 1, "module": "m"}
    warn = {"event": "Test warn", "test": "software", "error_code": 29, "module": "m",
            "gpu": "GPU-11111111-2222-3333-4444-555555555555",
            "detail": "Persistence Mode: Persistence mode for GPU 6 is disabled."}  # fmt: skip
    found = told("\n".join(json.dumps(one, indent=2) for one in (summary, warn)))
    assert events(found) == {("gpu6", "dcgm.fr.29")}
    assert found.uuids == {"gpu6": "GPU-11111111-2222-3333-4444-555555555555"}
    assert found.cut
    assert any("counts 1 tests that failed, 0 are in it" in p for p in found.problems)


@pytest.mark.parametrize(
    ("text", "values", "cut"),
    [
        ('x {"a": 1} y {"b": 2}', [{"a": 1}, {"b": 2}], False),
        ('{"a": [1, {"b": "}"', [{"a": [1, {}]}], True),
        ('{"a": "\\"{", "b": [1,', [{"a": '"{', "b": [1]}], True),
        ('{"a": 1, "b', [{"a": 1}], True),
        ("no object", [], False),
        ('{"a": 1, "b\n{"c": 2}\n', [{"c": 2}], True),
        ('{"a": 1}\n{"b": [1\n{"c": 2}\n{"d"', [{"a": 1}, {"c": 2}, {}], True),
        ("{" * 5000, [], True),
    ],
    ids=["two", "in a string", "escaped", "in a name", "none", "a line", "two lines", "brackets"],
)
def test_objects_of_a_text(text, values, cut):
    found = objects(text)
    assert (found.values, found.cut) == (values, cut)


def test_the_table_of_the_third_version(told):
    text = "GPU 3 API call cudaMalloc failed: 'out of memory, it says, and says no more than that'"
    found = told(table(
        section("Metadata"), row("Driver Version Detected", "550.1"),
        section("Deployment"), row("Denylist", "Pass"), row("Inforom", "Pass"),
        section("Hardware"), row("GPU Memory", "Pass - GPUs: 0, 1, 2   "),
        row("", "Fail - GPU: 3   "), *wrapped("Warning", text), *wrapped("Info", "Allocated 1 MB"),
        section("Stress"), row("Memtest", "Pass - All"), row("Pulse Test", "Skip - All"),
    ))  # fmt: skip
    assert (found.kind, found.cut, found.worked) == ("dcgm-diag-text", False, True)
    assert results(found)["GPU Memory", "gpu2"] == "pass"
    assert events(found) == {("gpu3", "dcgm.fr.65")}
    assert text in found.events[0].text


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (["A thing of some sort came up in there. Drain", "the GPU."], "Drain the GPU"),
        (["GPU 5's NvLink of a long name is currently down", "Run a field diagnostic."],
         "down Run a"),
        (["A DBE occurred while this long test was running.", "Drain the GPU."], "running. Drain"),
        (["Check the logs for the errors. Then you may re", "set the GPU."], "may reset the GPU"),
    ],
    ids=["two words", "two sentences", "after a full stop", "inside a word"],
)  # fmt: skip
def test_rows_are_put_together_at_words(told, rows, text):
    found = told(table(section("Hardware"), row("GPU Memory", "Fail - GPU: 3"),
                       row("Warning", rows[0]), *(row("", one) for one in rows[1:]),
                       row("", "Pass - GPUs: 0, 1")))  # fmt: skip
    assert text in found.events[0].text
    assert "Pass" not in found.events[0].text
    assert results(found)["GPU Memory", "gpu1"] == "pass"


def test_the_table_of_the_fourth_version(told):
    found = told(table(
        section("Hardware"), row("memory", "Fail"), row("", "GPU0: Pass"), row("", "GPU1: Fail"),
        *wrapped("Warning: GPU1", "GPU 1 had memory errors and row remappings are pending"),
        row("", "GPU2: Pass"),
    ))  # fmt: skip
    assert results(found) == {("memory", "gpu0"): "pass", ("memory", "gpu1"): "fail",
                              ("memory", "gpu2"): "pass"}  # fmt: skip
    assert events(found) == {("gpu1", "dcgm.fr.85")}


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([section("Hardware"), row("Memtest", "Fail - All")], ("host", "dcgm.fail")),
        ([section("Deployment"), row("Permissions and OS Blocks", "Fail")],
         ("host", "dcgm.software")),
        ([section("Deployment"), row("Page Retirement/Row Remap", "Fail")],
         ("host", "dcgm.retirement")),
        ([section("Deployment"), row("Blacklist", "Fail")], ("host", "dcgm.fr.23")),
        ([section("Stress"), row("Targeted Power", "Warn - GPU: 2")], ("gpu2", "dcgm.warn")),
    ],
    ids=["hardware", "software", "row remap", "nouveau", "warning"],
)  # fmt: skip
def test_a_failure_without_a_reason(told, rows, code):
    assert events(told(table(*rows))) == {code}


@pytest.mark.parametrize(
    "part",
    [
        table(section("Hardware"), row("GPU Memory", "Pass - All"), foot=False),
        table(section("Hardware"), row("GPU Memory", "Pass - All"), head=False),
        table(section("Deployment"), row("Inforom", "Pass"), "| PCIe", foot=False),
        table(section("Hardware"), row("GPU Memory", "Pass - All")[:-1], foot=False),
    ],
    ids=["no end", "no beginning", "in a row", "in a cell"],
)
def test_a_part_of_a_table_is_cut(told, part):
    found = told(part)
    assert (found.kind, found.cut) == ("dcgm-diag-text", True)


def test_only_the_installation_was_tested(told):
    found = told(table(section("Deployment"), row("Denylist", "Pass"), row("Inforom", "Pass")))
    assert (found.worked, found.records, found.cut) == (True, 2, False)
    assert any("only the installation" in problem for problem in found.problems)


def test_an_engine_that_is_not_there(told):
    found = told("Error: unable to establish a connection to the specified host: localhost\n")
    assert (found.kind, found.worked) == ("dcgm-diag-text", False)


@pytest.mark.parametrize(
    "text",
    [
        'int main() { out["DCGM GPU Diagnostic"] = root; }',
        "Run dcgmi diag -r 3. The result is a table with Deployment, Hardware and Stress.\n",
        "<html><pre>| Diagnostic | Result |</pre>",
        '{"name": "a package", "version": "1"}',
        "| Diagnostic | Result |\n|---|---|\n| cough | flu |\n",
    ],
    ids=["code", "prose", "page", "other JSON", "a table of something else"],
)
def test_what_is_none_of_it(told, text):
    assert told(text).kind not in ("dcgm-diag-json", "dcgm-diag-text")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("GPU 1 had uncorrectable memory err ors and row rem apping failed.", 80),
        ("Thermal violations totaling 3.5 seconds started at 9.0 seconds into the test", 41),
        ("There were thermal violations totaling 3.5 seconds for GPU 0", 40),
        ("Detected more than 31 PCIe replays per minute for GPU 3 : 90", 3),
        ("120.0 CRC NvLink errors found occuring per second on GPU 2, exceeding the limit", 70),
        ("Only 16 NvLinks are up out of the expected 18", 99),
        ("NvSwitch 2 - Only 30 NvLinks are up out of the expected 36", 100),
        ("Detected 3 ecc_dbe_volatile_total for GPU 1", 103),
        ("Detected a miscompare failure in the L1 cache.", 79),
        ("all is well", None),
        ("", None),
    ],
)
def test_codes_by_words(text, code):
    assert code_of(text) == code
