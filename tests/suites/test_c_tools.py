"""The C runtime as it ships: linked into programs, under valgrind, under sanitizers, by CMake."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import poot
from tests.support.bundles import members, program, weights, whole
from tests.support.c_runtime import FOLDER, built, has_vulkan, library
from tests.support.everywhere import device_of
from tests.support.sources import ROOT
from tests.support.tiny_llama import write_tiny_llama


def run(*command: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        errors="replace",  # a model's tokens need not make a text
        check=False,
        timeout=240,
        env={**os.environ, **env},
    )


def need(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"no {tool}: apt-get install {tool}")
    return found


def test_it_brings_no_names_but_its_own():
    done = run("nm", "-D", "--defined-only", library()._name)
    names = [line.split()[-1] for line in done.stdout.splitlines()]
    assert len(names) > 20
    assert [n for n in names if not n.startswith("poot_")] == []


def test_its_header_is_cpp_too(tmp_path):
    (tmp_path / "x.cpp").write_text('#include "poot.h"\nint main() { return POOT_OK; }\n')
    done = run(
        need("g++"), "-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{FOLDER}",
        "-fsyntax-only", tmp_path / "x.cpp",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_valgrind_has_nothing_to_say(tmp_path):
    program().save(tmp_path / "x.poot", weights())
    step = built("-g", main="examples/step.c")
    command = (step, tmp_path / "x.poot", tmp_path / "x.safetensors", "cpu", 3)
    done = run(
        need("valgrind"), "-q", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=all",
        *command,
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == run(*command).stdout
    assert len(done.stdout.split()) == 3
    damaged = tmp_path / "y.safetensors"
    damaged.write_bytes((tmp_path / "x.safetensors").read_bytes()[:-9])
    done = run(
        need("valgrind"), "-q", "--error-exitcode=9", "--leak-check=full",
        step, tmp_path / "x.poot", damaged, "cpu", 1,
    )  # fmt: skip
    assert done.returncode == 2
    assert "step: the weights: w.b needs" in done.stderr or "step: step: the weights" in done.stderr


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The bytes with some changed, cut or doubled."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(made) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            made[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            del made[at : at + rng.randint(1, 40)]
        elif kind == 2:
            made[at:at] = made[at : at + rng.randint(1, 60)]
        else:
            odd = (b"0", b"-1", b"4294967296", b"9223372036854775807", b"null", b"[]", b"{}", b'"')
            made[at : at + rng.randrange(4)] = rng.choice(odd)
    return bytes(made)


def test_the_loader_takes_any_bytes(tmp_path):
    """The fuzzer's way in, with a few hundred inputs and the sanitizers."""
    rng = random.Random(7)
    (tmp_path / "seed.poot").write_bytes(whole())
    kernels = [d for n, d in members().items() if n.endswith(".o")]
    inputs: list[Path] = []
    for n in range(300):
        source = (whole(), members()["manifest.json"], kernels[n % len(kernels)])[n % 3]
        inputs.append(tmp_path / f"{n}")
        inputs[-1].write_bytes(bytes([n % 3]) + mutated(rng, source))
    flags = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DPOOT_FUZZ_MAIN")
    fuzz = built(*flags, main="fuzz/loader.c")
    done = run(fuzz, *inputs, POOT_FUZZ_SEED=str(tmp_path / "seed.poot"))
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "300 inputs\n"


def test_cmake_builds_the_library_and_the_examples(tmp_path):
    done = run(need("cmake"), "-S", FOLDER, "-B", tmp_path, "-DCMAKE_C_FLAGS=-Werror")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run("cmake", "--build", tmp_path, "--parallel", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "usage: decode" in run(tmp_path / "decode").stderr
    program().save(tmp_path / "x.poot", weights())
    done = run(tmp_path / "step", tmp_path / "x.poot", tmp_path / "x.safetensors", "cpu", 2)
    assert (done.returncode, len(done.stdout.split())) == (0, 2)


@pytest.mark.parametrize("target", ["cpu", "vulkan"])
def test_a_language_model_decodes_without_python_bit_for_bit(target, tmp_path):
    if target == "vulkan" and not has_vulkan():
        pytest.skip("no Vulkan headers: apt-get install libvulkan-dev")
    device = device_of(target)
    folder = tmp_path / "model"
    tiny = write_tiny_llama(tmp_path / "tiny.gguf")
    done = run(
        sys.executable, FOLDER / "examples/smollm2.py", folder, "--model", tiny, "--prompt",
        "the a", "--target", "cpu-avx2" if target == "cpu" else "vulkan:0", "--capacity", 64,
        PYTHONPATH=str(ROOT / "src"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = run(built("-g", main="examples/decode.c"), folder, target, 12, tmp_path / "logits")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the a")
    session = poot.load(folder / "model.poot", device).bind(folder / "model.safetensors")
    ids = [int(n) for n in (folder / "prompt.txt").read_text().split()]
    given = len(ids)
    raw = (tmp_path / "logits").read_bytes()
    for pos in range(given + 11):
        out = session.step("decode", tokens=np.array([ids[pos]], np.int32), pos=np.int32(pos))
        logits = np.asarray(out, np.float32).reshape(-1)
        assert raw[pos * logits.nbytes : (pos + 1) * logits.nbytes] == logits.tobytes()
        if pos + 1 >= given:
            ids.append(int(logits.argmax()))
    assert len(raw) == (given + 11) * logits.nbytes
    session.close()


def test_the_cuda_device_runs_ptx_bit_for_bit_on_a_stand_in_for_the_driver(tmp_path):
    done = run(
        sys.executable, "-m", "tests.support.c_cuda", tmp_path, PYTHONPATH=f"{ROOT}/src:{ROOT}"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "0 handles and 0 buffers held",
        "10: a step: CUDA_ERROR_719",
        "9: elementwise: CUDA_ERROR_218",
        "4: arena: CUDA_ERROR_2",
    ]
