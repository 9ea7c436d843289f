"""Every sample once: what was used twice, never, or by a shard that is out of use, is found."""

import pytest

from rackproof.diagnostics.verdict import Verdict


def fails(scene, name, said):
    claim = scene.claim(name)
    assert (str(claim.verdict), said in claim.message) == ("FAIL", True), claim
    assert scene.judge().verdict is Verdict.FAIL


def everywhere(scene, step, ids):
    """Have a step use other samples, in its intent as well."""
    return scene.change("step", {"samples": ids}, step=step).change(
        "intent", {"samples": ids}, step=step
    )


def unclean(scene):
    """Take the fault-free runs away."""
    for course in ("clean1", "clean2"):
        del scene.said[course]
    scene.facts = [fact for fact in scene.facts if fact.course == "faulted"]
    return scene


def counts(scene, *numbers, course="faulted", step=None):
    """Have c0, c1, … tell a number of samples of each step, or of one."""
    told = [h for h in scene.said[course] if h.kind == "step"]
    chosen = [h for h in told if step in {None, h.fields["step"]}]
    scene.said[course] = [h for h in scene.said[course] if h not in chosen]
    for what in [h for h in chosen if h.who == "c0"]:
        for place, number in enumerate(numbers):
            fields = {**what.fields, "samples": number}
            who = f"c{place}"
            scene.say(what.at + place / 100, who, "step", course=course, attempt=what.attempt,
                      **fields)  # fmt: skip
    return scene


# --- ids -----------------------------------------------------------------------------------------
def test_ids_for_each_micro_shard_are_ids_as_well(good):
    assert everywhere(good, 9, [[32, 33], [34, 35]]).verdict("samples") == "PASS"


def test_a_sample_that_was_used_twice(good):
    everywhere(unclean(good), 9, [0, 33, 34, 35])
    fails(good, "samples", "sample 0 was used 2 times, 1 is the most")


def test_a_sample_may_be_used_as_often_as_the_data_set_is_gone_through(good):
    good.plan(samples={"shards": 7, "per_shard": 4, "reserve": 1})  # 24 of 48
    for step in range(1, 13):
        ids = [(4 * (step - 1) + place) % 24 for place in range(4)]
        for course in ("faulted", "clean1", "clean2", "replay"):
            good.change("step", {"samples": ids}, course=course, step=step)
            if course != "replay":
                good.change("intent", {"samples": ids}, course=course, step=step)
    assert good.verdict("samples") == "PASS"
    everywhere(unclean(good), 9, [4, 5, 6, 7])
    fails(good, "samples", "sample 4 was used 3 times, 2 is the most")


def test_a_batch_that_is_too_small(good):
    everywhere(unclean(good), 9, [32, 33, 34])
    fails(good, "samples", "step 9 used 3 samples, a batch has 4")


def test_a_dropped_batch_may_be_smaller_and_not_larger(good):
    good.head = good.head.__class__(
        **{name: getattr(good.head, name) for name in good.head.__slots__} | {"mode": "drop-batch"}
    )
    assert everywhere(good, 9, [32, 33]).verdict("samples") == "PASS"
    everywhere(good, 9, [32, 33, 34, 35, 48])
    fails(good, "samples", "step 9 used 5 samples, a batch has 4")


def test_other_samples_than_without_the_fault(good):
    everywhere(good, 9, [132, 133, 134, 135])
    fails(good, "samples", "step 9 used other samples than without the fault")


def test_other_samples_than_the_intent_says(good):
    unclean(good).change("intent", {"samples": [100, 101, 102, 103]}, step=9)
    fails(good, "samples", "step 9 used other samples than its intent says")


def test_a_step_without_an_intent_before_it(good):
    good.drop("intent", step=9)
    fails(good, "samples", "step 9 was committed without an intent before it")


def test_a_step_that_lost_its_samples_is_unknown(good):
    good.change("step", {"samples": None}, step=9)
    assert good.verdict("samples") == "UNKNOWN"
    assert "step 9" in good.claim("samples").message
    assert good.judge().proof == "L1"


def test_some_ids_and_some_numbers_are_unknown(good):
    good.change("step", {"samples": 4}, step=9)
    assert good.verdict("samples") == "UNKNOWN"


def test_ids_beside_numbers_of_one_step_are_a_contradiction(good):
    good.change("step", {"samples": 4}, step=9, who="r0")
    fails(good, "samples", "step 9: some tell sample ids, others only their number")


@pytest.mark.parametrize("bad", ["4", [1, "2"], [1, -2], 4.5, {"a": 1}])
def test_samples_that_are_neither_make_the_line_unreadable(good, bad):
    good.change("step", {"samples": bad}, step=9, who="r0")
    assert good.verdict("events") == "UNKNOWN"


def test_ids_of_a_command_are_held_against_its_fault_free_run(telling_command):
    assert telling_command.verdict("samples") == "PASS"
    telling_command.change("step", {"samples": [0, 1, 2, 3]}, step=9)
    fails(telling_command, "samples", "step 9 used other samples")


def test_ids_of_a_command_that_occur_twice_are_unknown_without_a_fault_free_run(telling_command):
    unclean(telling_command)
    assert telling_command.verdict("samples") == "PASS"
    telling_command.change("step", {"samples": [0, 1, 2, 3]}, step=9)
    assert telling_command.verdict("samples") == "UNKNOWN"
    assert "sample 0 was used 2 times" in telling_command.claim("samples").message


# --- numbers -------------------------------------------------------------------------------------
def numbered(scene, *numbers):
    for course in ("clean1", "clean2", "faulted"):
        counts(scene, *numbers, course=course)
    return scene.expect(proof="L2")


def test_numbers_that_add_up(command):
    assert numbered(command, 8).verdict("samples") == "PASS"


def test_numbers_that_do_not_add_up(command):
    counts(numbered(command, 8), 6, step=9)
    fails(command, "samples", "step 9 used 6 samples, without the fault 8")


def test_parts_of_several_processes_add_up_whoever_has_them(command):
    counts(numbered(command, 4, 4), 8, step=9)
    assert command.verdict("samples") == "PASS"
    counts(command, 7, step=9)
    fails(command, "samples", "step 9 used 7 samples, without the fault 8")


def test_numbers_that_may_be_of_a_part_or_of_all_are_unknown(command):
    counts(numbered(command, 4, 4), 4, step=9)
    assert command.verdict("samples") == "UNKNOWN"
    assert "say sample ids" in command.claim("samples").message


def test_numbers_of_a_dropped_batch_may_be_smaller_and_not_larger(command):
    numbered(command, 8)
    names = command.head.__slots__
    command.head = command.head.__class__(
        **{name: getattr(command.head, name) for name in names} | {"mode": "drop-batch"}
    )
    assert counts(command, 6, step=9).verdict("samples") == "PASS"
    counts(command, 9, step=9)
    fails(command, "samples", "step 9 used 9 samples, without the fault 8")


def test_samples_that_are_used_again_in_the_next_pass_are_told_so(good):
    assert good.claim("samples").message == "48 samples, each once"


def test_numbers_that_change_without_a_fault_free_run(command):
    counts(unclean(numbered(command, 8)), 6, step=9)
    fails(command, "samples", "step 9 used 6 samples")


# --- quarantine ----------------------------------------------------------------------------------
def poisoned(scene, shard=0, **said):
    scene.plan(samples={"shards": 32, "per_shard": 8, "reserve": 4, "poisoned": [0]})
    scene.expect(kinds=("quarantine",))
    return scene.say(102.9, "coordinator", "quarantine", shard=shard, step=3, samples=[5], **said)


def test_a_bad_shard_is_put_out_of_use(good):
    assert poisoned(good).verdict("quarantine") == "PASS"


def test_a_good_shard_is_not(good):
    poisoned(good, shard=20)
    fails(good, "quarantine", "shard 20 was put out of use, and is good")


def test_a_shard_that_an_injection_made_bad(good):
    poisoned(good, shard=20).say(102.0, "drill", "injected", fault="nan", shard=20)
    assert good.verdict("quarantine") == "PASS"


def test_nothing_of_a_bad_shard_is_used_any_more(good):
    everywhere(poisoned(good), 9, [7, 33, 34, 35])
    fails(good, "quarantine", "shard 0 was used in step 9 all the same")


def test_a_shard_that_had_to_be_put_out_of_use(good):
    good.expect(kinds=("quarantine",))
    fails(good, "quarantine", "no shard of the data set was put out of use")
