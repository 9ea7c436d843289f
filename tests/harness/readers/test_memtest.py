"""Memory tests of others: errors with their place, counts that mean nothing, what was tested."""

import pytest

from rackproof.harness.readers import read

GB = 1 << 30


def line(text, gpu=0, host="n7"):
    return f"[02/03/2026 04:05:06][{host}][{gpu}]:{text}\n"


def cuda(*rows, gpu=0, allocated=79000, total=80 * GB, end="main thread: Program exits\n"):
    """Return a run of cuda_memtest on one GPU."""
    head = ["Running cuda memtest, version 1.2.3", "num_gpus=1",
            f"Device name=NVIDIA X, global memory size={total}, serial=1320021000123",
            f"Attached to device {gpu} successfully.", f"Allocated {allocated} MB"]  # fmt: skip
    return "".join(line(text, gpu) for text in [*head, *rows]) + end


def test_rows(number):
    return [f"Test{number} [Moving inversions]", f"Test{number} finished in 3.2 seconds"]


test_rows.__test__ = False
WRONG = [
    "ERROR: The unit serial number is 1320021000123",
    "ERROR: (move_inv_read) 2 errors found in block 512",
    "ERROR: the last 2 error addresses are:\t0x7f0000400010\t0x7f0000400020\t",
    (
        "ERROR: 0th error, expected value=0xffffffff, current value=0xffffffef, diff=0x10 "
        "(second_read=0xffffffef, expect=0xffffffff, diff with expected value=0x10)"
    ),
]


def small(*tests, size=512, final=0, card=0):
    """Return a run of memtestG80; a test is (name, errors, milliseconds)."""
    rows = "".join(f"\t{name}: {count} errors ({ms} ms)\n" for name, count, ms in tests)
    end = f"Final error count after 1 iterations over {size} MiB of GPU memory: {final} errors\n"
    return (f"Running 1 iterations of tests over {size} MB of GPU memory on card {card}: X\n\n"
            f"Test iteration 1 (GPU {card}, {size} MiB): 0 errors so far\n{rows}"
            f"{'' if final is None else end}")  # fmt: skip


@pytest.fixture
def tested(tmp_path):
    def tested(text):
        path = tmp_path / "out"
        path.write_text(text)
        return read(path)

    return tested


def events(found):
    return {(e.subject, e.code) for e in found.events}


def test_a_run_without_errors(tested):
    found = tested(cuda(*test_rows(0), *test_rows(1)))
    assert (found.kind, found.records, found.cut, found.worked) == ("memtest", 2, False, True)
    assert (found.events, found.host, found.serials) == ((), "n7", {"gpu0": "1320021000123"})
    shares = [m.value for m in found.measurements if m.metric == "memtest.coverage"]
    assert shares == [pytest.approx(79000 / 81920, abs=1e-4)]


def test_errors_with_address_and_bits(tested):
    found = tested(cuda("Test2 [Moving inversions]", *WRONG, gpu=5, end=""))
    assert events(found) == {("gpu5", "memtest.errors")}
    for part in ("2 errors in all", "block 512", "0x7f0000400010", "expected 0xffffffff", "0x10"):
        assert part in found.events[0].text


@pytest.mark.parametrize(
    ("rows", "end", "cut"),
    [
        (test_rows(0), "", True),
        ([*test_rows(0), "Test1 [Own address test]"], "", True),
        ([*test_rows(0), *test_rows(1), *test_rows(0), "Test1 [Own address test]"], "", False),
        (test_rows(10), "main thread: Program exits\n", False),
    ],
    ids=["after a test", "in a test", "in the second pass", "ended"],
)
def test_where_it_breaks_off(tested, rows, end, cut):
    assert tested(cuda(*rows, end=end)).cut is cut


@pytest.mark.parametrize(
    "text",
    [
        line("Running cuda memtest, version 1.2.3") + "ERROR: Invalid option:-q\n"
        "Usage:cuda_memtest [options]\noptions:\n--silent\n",
        line("Running cuda memtest, version 1") + "ERROR: cannot allocate any memory from GPU\n",
        cuda(),
        small(final=0),
        small(("Random blocks", 0, 0)),
        small(("Random blocks", 4294967295, 12), final=4294967295),
        small(("Random blocks", -1, 12), final=-1),
        small(("Memtest86 Walking 8-bit", 40, 0), final=40),
    ],
    ids=["usage", "no memory", "no test", "no test of the other", "0 ms", "2^32-1", "-1",
         "errors in 0 ms"],
)  # fmt: skip
def test_no_work_and_nobody_accused(tested, text):
    found = tested(text)
    assert (found.kind, found.worked) == ("memtest", False)
    assert not events(found) & {("gpu0", "memtest.errors")}
    assert found.problems


@pytest.mark.parametrize(
    ("rows", "codes", "worked"),
    [
        (WRONG[3:], {("gpu0", "memtest.errors")}, True),
        (WRONG[2:], {("gpu0", "memtest.errors")}, True),
        (WRONG[2:3], set(), False),
        (["ERROR: the moon is full"], set(), False),
        (["ERROR: The unit serial number is unknown"], set(), True),
        (["ERROR: CUDA error: uncorrectable ECC error encountered, line 7, file t.cu"],
         {("gpu0", "cuda.ecc")}, True),
        (["ERROR: CUDA error: system not yet initialized, line 7, file t.cu"],
         {("gpu0", "cuda.notready")}, True),
    ],
    ids=["a value", "addresses and a value", "addresses alone", "not understood", "no error",
         "ECC", "fabric manager"],
)  # fmt: skip
def test_an_error_without_the_line_that_counts(tested, rows, codes, worked):
    found = tested(cuda(*test_rows(0), *rows, *test_rows(1)))
    assert (events(found), found.worked) == (codes, worked)
    assert worked or found.problems
    assert all(e.detail["line"] > 7 for e in found.events)


def test_errors_of_the_other_tool(tested):
    found = tested(small(("Moving Inversions (ones and zeros)", 0, 31),
                         ("Logic (4 iterations)", 6, 90), final=6, card=2))  # fmt: skip
    assert events(found) == {("gpu2", "memtest.errors")}
    assert "Logic (4 iterations): 6 errors" in found.events[0].text


@pytest.mark.parametrize(
    ("size", "other", "code"),
    [(16500, 0, "memtest.random-blocks"), (16500, 3, "memtest.errors"),
     (16400, 0, "memtest.errors")],
)  # fmt: skip
def test_the_tools_own_error_above_16400_mib(tested, size, other, code):
    found = tested(small(("Random blocks", 77, 300), ("Memtest86 Modulo-20", other, 300),
                         size=size, final=77 + other))  # fmt: skip
    assert events(found) == {("gpu0", code)}


def test_one_gpu_of_two_did_nothing(tested):
    found = tested(cuda(*test_rows(0), *test_rows(0)) + cuda(gpu=1))
    assert not found.worked


def test_a_missing_final_count_is_a_cut(tested):
    assert tested(small(("Random blocks", 0, 300), final=None)).cut


def test_an_error_of_cuda_is_none_of_the_memory(tested):
    text = "ERROR: CUDA error: unspecified launch failure, line 88, file tests.cu"
    found = tested(cuda(*test_rows(0), text))
    assert events(found) == {("gpu0", "memtest.trouble")}


@pytest.mark.parametrize(
    "text",
    ['printf("Running %u iterations of tests over %u MB of GPU memory on card %d");\n',
     "[02/03/2026 04:05:06][n7][0]: hello\n", "ERROR: Invalid option\n",
     "Moving Inversions is a test of memory: 3 errors\n"],
    ids=["code", "another log", "another tool", "prose"],
)  # fmt: skip
def test_what_is_none_of_it(tested, text):
    assert tested(text).kind != "memtest"
