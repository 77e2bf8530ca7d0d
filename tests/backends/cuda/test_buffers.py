"""Memory to copy through: when it waits, and what it is too small for."""

from __future__ import annotations

import numpy as np

from poot.backends.cuda.buffers import STAGED_NBYTES
from tests.support.fake_cuda import FakeDriver, fake_device


def test_the_staging_ring_waits_before_it_goes_round():
    driver = FakeDriver()
    device = fake_device(driver)
    buffer = device.allocate(STAGED_NBYTES, "x")
    part = np.zeros(STAGED_NBYTES // 2, np.uint8)
    driver.asked.clear()
    for _ in range(3):
        device.copy_in(buffer, 0, part)
    size = STAGED_NBYTES // 2
    assert driver.asked == [f"copy in {size}"] * 2 + ["synchronize", f"copy in {size}"]


def test_what_is_larger_than_the_ring_goes_straight():
    driver = FakeDriver()
    device = fake_device(driver)
    buffer = device.allocate(STAGED_NBYTES + 64, "x")
    data = np.arange(STAGED_NBYTES + 64, dtype=np.uint8)
    device.copy_in(buffer, 0, data)
    np.testing.assert_array_equal(device.copy_out(buffer, 0, data.size), data)
    assert driver.asked.count("synchronize") == 1
