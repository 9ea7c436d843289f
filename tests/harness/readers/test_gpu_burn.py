"""gpu-burn: what was computed, what was wrong, and what the tool only says."""

import pytest

from rackproof.harness.readers import read

FINAL = "\nKilling processes with SIGTERM (soft kill)\ndone\n\nTested {0} GPUs:\n"


def listed(count, *, masked=False):
    uuid = (
        "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
        if masked
        else "0000000{0}-aaaa-bbbb-cccc-0123456789ab"
    )
    return "".join(f"GPU {n}: NVIDIA B200 (UUID: GPU-{uuid.format(n)})\n" for n in range(count))


def record(percent, *columns, end=""):
    """Return a record; a column is (done, Gflop/s, errors, word)."""
    columns = [(*c, *("0", "")[len(c) - 2 :]) for c in columns]
    work = "- ".join(f"{done} ({rate} Gflop/s) " for done, rate, _, _ in columns)
    errors = "- ".join(f"{count} {word and f' ({word}!)'}" for _, _, count, word in columns)
    temps = "- ".join("61 C " for _ in columns)
    return f"\r{percent:.1f}%  proc'd: {work}  errors: {errors}  temps: {temps}{end}"


def final(*words):
    rows = "".join(f"\tGPU {n}: {word}\n" for n, word in enumerate(words))
    return FINAL.format(len(words)) + rows


@pytest.fixture
def burnt(tmp_path):
    def burnt(text):
        path = tmp_path / "out"
        path.write_text(text)
        return read(path)

    return burnt


def events(found):
    return {(e.subject, e.code) for e in found.events}


GOOD, LATE = (900, 41000), (0, 0)


def test_a_run_that_worked(burnt):
    found = burnt(listed(2) + record(10, GOOD, LATE) + "\n\tSummary at:   Mo 2. Feb 10:00\n\n"
                  + record(100, GOOD, (880, 40200)) + final("OK", "OK"))  # fmt: skip
    assert (found.kind, found.records, found.worked, found.cut) == ("gpu-burn", 2, True, False)
    assert (found.problems, found.events) == ((), ())
    rates = {m.subject: m.value for m in found.measurements if m.metric == "gpuburn.rate"}
    assert rates == {"gpu0": 41000.0, "gpu1": 40200.0}
    assert found.uuids["gpu1"] == "GPU-00000001-aaaa-bbbb-cccc-0123456789ab"


@pytest.mark.parametrize(
    "text",
    [
        listed(2) + record(100, LATE, LATE) + final("OK", "OK"),
        "Initialized device 0 with 9000 MB of memory (8800 MB available, using 8000 MB of it), "
        "using FLOATS\n" + final("OK"),
        "Couldn't init a GPU test: Error in \"init\": CUDA_ERROR_NO_DEVICE\n"
        + record(100, LATE) + final("OK"),
        record(40, (-1, 0, -77, "DIED"), (-1, 0, 1234567, "DIED")) + "\nNo clients are alive!\n",
        final("OK", "OK"),
    ],
    ids=["0 Gflop/s", "no progress", "no start", "all died", "the end alone"],
)  # fmt: skip
def test_ok_after_no_work_is_no_work(burnt, text):
    found = burnt(text)
    assert (found.kind, found.worked) == ("gpu-burn", False)
    assert not {code for _, code in events(found)} & {"gpu-burn.errors", "gpu-burn.ecc"}
    assert found.problems


@pytest.mark.parametrize(
    ("column", "code"),
    [
        ((900, 41000, 3, "WARNING"), "gpu-burn.errors"),
        ((900, 41000, -524288000, "WARNING"), "gpu-burn.errors"),
        ((-1, 0, 1641686072, "DIED"), "gpu-burn.died"),
        ((-1, 0, -5, "DIED"), "gpu-burn.died"),
        ((-1, 0, 0, ""), "gpu-burn.died"),
        (LATE, "gpu-burn.idle"),
    ],
    ids=["errors", "errors beyond an int", "garbage", "negative garbage", "no word", "idle"],
)
def test_one_gpu_of_two(burnt, column, code):
    found = burnt(record(100, GOOD, column) + final("OK", "FAULTY"))
    assert events(found) == {("gpu1", code)}
    assert found.worked


def test_errors_of_a_report_that_is_over_are_not_forgotten(burnt):
    """The tool sets its counts to zero after each summary."""
    found = burnt(record(10, GOOD, (900, 41000, 7, "WARNING")) + record(100, GOOD, GOOD)
                  + final("OK", "FAULTY"))  # fmt: skip
    assert events(found) == {("gpu1", "gpu-burn.errors")}
    assert found.events[0].text.startswith("7 wrong results")


def test_errors_before_its_end_are_real_and_those_after_are_not(burnt):
    died = (-1, 0, 999999, "DIED")
    found = burnt(record(10, (900, 41000, 2, "WARNING"), GOOD) + record(20, died, GOOD)
                  + record(100, died, GOOD) + final("FAULTY", "OK"))  # fmt: skip
    assert events(found) == {("gpu0", "gpu-burn.errors")}
    assert found.events[0].text.startswith("2 wrong")


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        (record(100, GOOD), False),
        (record(63, GOOD), True),
        (record(63, GOOD) + final("OK"), False),
        (record(100, GOOD, GOOD) + FINAL.format(2) + "\tGPU 0: OK\n", True),
        (record(99, GOOD) + record(100, GOOD)[:-30] + "\n", True),
    ],
    ids=["to the end", "in the middle", "ended", "a result missing", "in a record"],
)
def test_where_it_breaks_off(burnt, text, cut):
    assert burnt(text).cut is cut


@pytest.mark.parametrize(
    ("more", "subject"),
    [("Initialized device 5 with 9000 MB of memory (8800 MB available, using 1 MB of it)\n",
      "gpu5"), ("", "host")],
    ids=["told", "not told"],
)  # fmt: skip
def test_one_column_of_eight_gpus_is_not_the_first_gpu(burnt, more, subject):
    found = burnt(listed(8) + more + record(100, (9, 800, 4, "WARNING")) + final("FAULTY"))
    assert events(found) == {(subject, "gpu-burn.errors")}


def test_an_uncorrectable_error_is_of_the_gpu_that_died(burnt):
    text = 'Failure during compute: Error in "compare": CUDA_ERROR_ECC_UNCORRECTABLE\n'
    found = burnt(record(10, GOOD, GOOD) + "\n" + text
                  + record(100, GOOD, (-1, 0, 5, "DIED")) + final("OK", "FAULTY"))  # fmt: skip
    assert ("gpu1", "gpu-burn.ecc") in events(found)


@pytest.mark.parametrize(
    "before",
    ["Low mem for result\n", "".join(f"CUDA error {n}\n" for n in range(40)), "x" * 200],
    ids=["other words", "many others", "deep in a line"],
)
def test_an_uncorrectable_error_is_told_whatever_else_was_said(burnt, before):
    text = f"{before}Failure during compute: uncorrectable ECC\n"
    found = burnt(record(10, GOOD, GOOD) + "\n" + text + record(100, GOOD, (-1, 0, 5, "DIED")))
    (told,) = [event for event in found.events if event.code == "gpu-burn.ecc"]
    assert told.text


def test_masked_uuids_are_none(burnt):
    assert not burnt(listed(1, masked=True) + record(100, GOOD) + final("OK")).uuids


def test_a_file_of_one_long_line(tmp_path):
    """Records run into one another where carriage returns were lost; none of them is missed."""
    path = tmp_path / "long"
    with path.open("w") as file:
        for _ in range(20):
            file.write(record(50, GOOD, GOOD)[1:] * 1000)
        file.write(record(51, GOOD, (900, 41000, 1, "WARNING"))[1:])
        file.write(record(100, GOOD, GOOD)[1:] * 2000)
    found = read(path)
    assert events(found) == {("gpu1", "gpu-burn.errors")}
    assert not found.cut


def test_many_like_lines_around_one_that_counts(burnt):
    dead = "read[0] error 0" + record(50, (-1, 0, -44, "DIED"), GOOD)
    found = burnt(
        (dead + "\n") * 3000 + record(100, (-1, 0, 9, "DIED"), GOOD) + final("FAULTY", "OK")
    )
    assert events(found) == {("gpu0", "gpu-burn.died")}


@pytest.mark.parametrize(
    "text",
    ['printf("%.1f%%  proc\'d: ", elapsed);\n', "gpu-burn heats a GPU: 4000 Gflop/s, errors: 0\n",
     "Tested 4 GPUs: fine\n", "[  1.0] NVRM: GPU 0: OK\n"],
    ids=["code", "prose", "one word", "log"],
)  # fmt: skip
def test_what_is_none_of_it(burnt, text):
    assert burnt(text).kind != "gpu-burn"
