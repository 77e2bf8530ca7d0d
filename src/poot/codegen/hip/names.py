"""C++ names for what a kernel names: each its own, none that the language or HIP has taken."""

from __future__ import annotations

import re

# Words of C++ and of HIP's headers (macros among them) that a kernel's names may not be.
_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept
    const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq
    private protected public register reinterpret_cast requires return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    threadIdx blockIdx blockDim gridDim warpSize linux unix
"""
TAKEN = frozenset(_WORDS.split())
_UNFIT = re.compile(r"[^A-Za-z0-9_]")
# The names of the structs and functions that a text may declare before its kernel.
_OWN = re.compile(r"(load|store|reduce|mfma|wmma|wave|swizzle)_.*|(f|bf|i|u|bool)[0-9a-z]*x[0-9]+")


def symbol(kernel: str) -> str:
    """The name that a kernel's function has in its code object."""
    return f"poot_{_UNFIT.sub('_', kernel)}"


class Names:
    """Gives each name of a kernel an identifier, the same at each asking."""

    def __init__(self, taken: frozenset[str] = TAKEN) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._taken = set(taken)

    def reserve(self, name: str) -> None:
        """Keeps a name for the text's own use."""
        self._taken.add(name)

    def of(self, space: str, name: str) -> str:
        """The identifier of a name in a space ("memory", "register", "immediate")."""
        key = (space, name)
        if key not in self._given:
            made = _UNFIT.sub("_", name)
            if made[:1].isdigit() or made.startswith("__") or _OWN.fullmatch(made):
                made = f"v_{made}"
            while made in self._taken:
                made += "_"
            self._taken.add(made)
            self._given[key] = made
        return self._given[key]
