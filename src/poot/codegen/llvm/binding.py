# pyright: basic
"""llvmlite, which has no types: machines, object files, and code made ready to call."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# Kernels come as vectors, with their constants folded and equal values shared: stack slots have to
# become registers, and little else is left to find. LLVM's own -O2 takes four times as long and its
# code is no faster (SmolLM2 and products of 1024, Zen 4).
PASSES = ("sroa", "simplify_cfg", "loop_rotate", "instruction_combine", "simplify_cfg",
          "dead_code_elimination")  # fmt: skip


@functools.cache
def llvm() -> tuple[Any, str]:
    """llvmlite.binding, initialised, and an empty reason; or None and what to install."""
    try:
        binding = importlib.import_module("llvmlite.binding")
    except (ImportError, OSError) as e:
        return None, f"the Python package `llvmlite` is not there ({e}): pip install 'poot[cpu]'"
    for name in ("targets", "asmprinters"):
        getattr(binding, f"initialize_all_{name}")()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding, ""


def missing() -> str:
    """Why llvmlite can't be used, or an empty string."""
    return llvm()[1]


def host_cpu() -> tuple[str, dict[str, bool]]:
    """LLVM's name of this machine's processor, and which of its features are there."""
    binding = llvm()[0]
    return str(binding.get_host_cpu_name()), dict(binding.get_host_cpu_features())


@functools.cache
def _machine(cpu: str, features: str) -> Any:
    """A target machine; made once for each processor."""
    binding = llvm()[0]
    triple = binding.get_process_triple()
    if cpu.startswith("x86-64") and not triple.startswith("x86_64"):
        triple = "x86_64-unknown-linux-gnu"
    target = binding.Target.from_triple(triple)
    return target.create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small"
    )


def _module(machine: Any, text: str) -> Any:
    binding = llvm()[0]
    module = binding.parse_assembly(text)
    module.triple = str(machine.triple)
    module.data_layout = str(machine.target_data)
    module.verify()
    builder = binding.create_pass_builder(machine, binding.PipelineTuningOptions(speed_level=2))
    passes = binding.create_new_module_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    return module


def compile_object(cpu: str, features: str, text: str) -> bytes:
    """The text's object file. RuntimeError says what LLVM refused."""
    machine = _machine(cpu, features)
    return machine.emit_object(_module(machine, text))


def compile_assembly(cpu: str, features: str, text: str) -> str:
    """The text's assembly, for people."""
    machine = _machine(cpu, features)
    return machine.emit_assembly(_module(machine, text))


@dataclass(frozen=True, slots=True)
class Loaded:
    """Object files in memory, and the addresses of functions in them. Holds them while it lives."""

    library: Any
    addresses: dict[str, int]


@functools.cache
def _linker() -> tuple[Any, Iterator[int]]:
    """The process's linker, and numbers for the names of what it links."""
    orcjit = importlib.import_module("llvmlite.binding.orcjit")
    machine = llvm()[0].Target.from_default_triple().create_target_machine()
    return orcjit.create_lljit_compiler(machine, use_jit_link=True), itertools.count()


def load_objects(objects: Sequence[bytes], names: Sequence[str]) -> Loaded:
    """Links object files into the process and finds the named functions. RuntimeError says what
    failed.

    Code reaches its constants by 32-bit distances. JITLink gives an object file one block of memory
    for all its sections; MCJIT places each where there is room, and ends the process where two are
    too far from each other."""
    linker, numbers = _linker()
    library = importlib.import_module("llvmlite.binding.orcjit").JITLibraryBuilder()
    for data in objects:
        library.add_object_img(data)
    for name in names:
        library.export_symbol(name)
    made = library.add_current_process().link(linker, f"poot{next(numbers)}")
    return Loaded(made, {n: int(made[n]) for n in names})
