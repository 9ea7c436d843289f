"""ACME's burn as a test: rackproof makes an item of each GPU, runs it, records and judges it."""

import pytest


@pytest.mark.burn("acme.clock")
def test_clock_holds(burn, judge):
    judge(burn())


def test_every_gpu_says_its_serial_number(gpu):
    """A plain test may use a GPU too; it is pytest's alone and not in the record."""
    assert gpu.telemetry.read("gpu.serial")
