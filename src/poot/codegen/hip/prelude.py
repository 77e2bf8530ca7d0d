"""Functions that a kernel's text may need before the kernel: only those used are written.

They call the compiler's own builtins, so that the text needs no device library and means the same
wherever a header spells HIP's few words.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = "static __device__ __forceinline__"


@dataclass(frozen=True, slots=True)
class Function:
    """One function's text, and the names of those it calls."""

    text: str
    calls: tuple[str, ...] = ()


FUNCTIONS: dict[str, Function] = {
    "is_nan": Function(
        f"""// Tested on the bits, which no fast-math assumption removes.
{HEAD} bool is_nan(float a) {{
  return (__builtin_bit_cast(unsigned, a) & 0x7fffffffu) > 0x7f800000u;
}}"""
    ),
    "nan_min": Function(
        f"""{HEAD} float nan_min(float a, float b) {{
  return is_nan(a) ? a : is_nan(b) ? b : __builtin_fminf(a, b);
}}""",
        ("is_nan",),
    ),
    "nan_max": Function(
        f"""{HEAD} float nan_max(float a, float b) {{
  return is_nan(a) ? a : is_nan(b) ? b : __builtin_fmaxf(a, b);
}}""",
        ("is_nan",),
    ),
    "f16_bits": Function(
        f"""{HEAD} unsigned f16_bits(float a) {{
  return __builtin_bit_cast(unsigned short, (_Float16)a);
}}"""
    ),
    "f16_value": Function(
        f"""{HEAD} float f16_value(unsigned bits) {{
  return (float)__builtin_bit_cast(_Float16, (unsigned short)bits);
}}"""
    ),
    "bf16_bits": Function(
        f"""// The high half of the float, rounded to nearest even; a NaN stays one.
{HEAD} unsigned bf16_bits(float a) {{
  const unsigned bits = __builtin_bit_cast(unsigned, a);
  return is_nan(a) ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}}""",
        ("is_nan",),
    ),
    "bf16_value": Function(
        f"""{HEAD} float bf16_value(unsigned bits) {{
  return __builtin_bit_cast(float, bits << 16);
}}"""
    ),
    "f8e4m3_bits": Function(
        f"""// To nearest even. Past 464, and for NaN, the one NaN; below 2^-6 units of 2^-9.
{HEAD} unsigned f8e4m3_bits(float a) {{
  const unsigned bits = __builtin_bit_cast(unsigned, a), size = bits & 0x7fffffffu;
  const float small = __builtin_bit_cast(float, size) + 16384.0f;
  const unsigned normal = (size + 0x7ffffu + (size >> 20 & 1u) - (120u << 23)) >> 20;
  const unsigned tiny = __builtin_bit_cast(unsigned, small) - 0x46800000u;
  const unsigned code = size > 0x43e80000u ? 0x7fu : size < 0x3c800000u ? tiny : normal;
  return bits >> 31 << 7 | code;
}}"""
    ),
    "f8e4m3_value": Function(
        f"""{HEAD} float f8e4m3_value(unsigned bits) {{
  const unsigned code = bits & 0x7fu;
  const float tiny = (float)code * 0.001953125f;
  const float normal = __builtin_bit_cast(float, (code << 20) + (120u << 23));
  const float size = code == 0x7fu ? __builtin_nanf("") : code < 8u ? tiny : normal;
  return bits & 0x80u ? -size : size;
}}"""
    ),
    "wave_barrier": Function(
        f"""// The lanes of a wave meet; what they wrote to workgroup memory is seen by all of them.
{HEAD} void wave_barrier() {{
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}}"""
    ),
    "swizzle_128b": Function(
        f"""{HEAD} int swizzle_128b(int at, int nbytes) {{
  const int byte = at * nbytes;
  return (byte ^ (byte >> 7 & 7) << 4) / nbytes;
}}"""
    ),
    "swizzle_row": Function(
        f"""{HEAD} int swizzle_row(int at, int pitch, int nbytes) {{
  return at ^ (at / pitch & 7) * (16 / nbytes);
}}"""
    ),
}
