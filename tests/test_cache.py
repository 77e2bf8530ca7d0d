"""The disk cache, under many processes and kills."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from poot.cache import DiskCache

KEY = hashlib.sha256(b"k").hexdigest()

FILL = """
import hashlib, sys
from pathlib import Path
from poot.cache import DiskCache
cache = DiskCache(Path(sys.argv[1]))
for n in range(int(sys.argv[2])):
    key = hashlib.sha256(b"%d" % (n % 40)).hexdigest()
    got = cache.get(key)
    want = (b"%d," % (n % 40)) * 20000
    assert got is None or got == want, "a partial entry was used"
    cache.put(key, want)
"""


def test_what_is_put_is_got(tmp_path: Path):
    cache = DiskCache(tmp_path)
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"abc")
    assert cache.get(KEY) == b"abc"


def test_a_damaged_entry_is_not_used_and_goes(tmp_path: Path):
    cache = DiskCache(tmp_path)
    cache.put(KEY, b"abc" * 100)
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get(KEY) is None
    assert not path.exists()


def test_an_entry_under_another_key_is_not_used(tmp_path: Path):
    cache = DiskCache(tmp_path)
    cache.put(KEY, b"abc")
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    other = hashlib.sha256(b"other").hexdigest()
    (tmp_path / other[:2]).mkdir(exist_ok=True)
    path.rename(tmp_path / other[:2] / other)
    assert cache.get(other) is None


def test_a_directory_that_cannot_be_written_keeps_nothing():
    cache = DiskCache(Path("/proc/no-such-place"))
    assert not cache.put(KEY, b"abc")
    assert cache.get(KEY) is None


def test_eight_processes_fill_one_cache_and_one_is_killed_in_mid_write(tmp_path: Path):
    src = str(Path(__file__).parents[1] / "src")
    env = {**os.environ, "PYTHONPATH": src}
    run = [sys.executable, "-c", FILL, str(tmp_path)]
    procs = [subprocess.Popen([*run, "200" if n else "100000"], env=env) for n in range(8)]
    time.sleep(0.7)
    procs[0].send_signal(signal.SIGKILL)
    assert [p.wait(60) for p in procs[1:]] == [0] * 7
    procs[0].wait(60)
    assert subprocess.run([*run, "40"], env=env, check=False).returncode == 0
