"""Several kernels' HIP texts as one source: each in a namespace, under a name of its own."""

from __future__ import annotations

from collections.abc import Sequence

from poot.codegen.code import Code
from poot.codegen.hip.names import symbol


def own_name(n: int) -> str:
    """The name of kernel n's function in a joined source."""
    return f"poot_kernel_{n}"


def joined(codes: Sequence[Code], header: str | None = "<hip/hip_runtime.h>") -> str:
    """The texts after HIP's header, which stands once; messages keep each text's line numbers.
    Without a header the texts are for hiprtc, which has it built in."""
    parts = [f"#include {header}", "#define __HIPCC_RTC__"] if header else []
    for n, code in enumerate(codes):
        name = symbol(code.name)
        parts += [
            f'#define POOT_SHARED "poot_shared_{n}"',
            f"#define {name} {own_name(n)}",
            f"namespace poot_text_{n} {{",
            f'#line 1 "{code.name}.hip"',
            code.binary.decode(),
            "}",
            f"#undef {name}",
            "#undef POOT_SHARED",
        ]
    return "\n".join(parts) + "\n"
