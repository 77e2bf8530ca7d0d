"""Elementary functions from portable kernel IR ops: f32 in, f32 out, on every target the same.

Errors are measured by tests/codegen/gen/test_math.py, which also refits each polynomial: exp,
log, tanh within 2 ulp, erf within 3 ulp, sin and cos within 1e-7 absolute for every finite
argument (and 2 ulp below pi/4). Each is a minimax fit (Lawson's reweighted least squares on
Chebyshev nodes) made for poot. NaN gives NaN. Infinities are told by their bits, since some
compilers assume that there are none.
"""

from __future__ import annotations

import itertools

from poot.codegen.kir.build import F32, I32, U32, KernelBuilder, Val

INF = float("inf")
SIGN = 0x80000000
NAN_BITS = 0x7FC00000
INF_BITS = 0x7F800000
NEG_INF_BITS = 0xFF800000

# ln 2 in two parts: the first has 9 bits, so that a whole number below 2^15 times it is exact.
LN2_HIGH = 0.693359375
LN2_LOW = -2.1219444005469057e-4
LOG2_E = 1.4426950408889634
HALF_PI = 1.5707963267948966

# (exp(r) - 1 - r) / r^2 on |r| <= 0.35.
EXP = (
    0.4999999403953552,
    0.16666515171527863,
    0.04166845604777336,
    0.00836941134184599,
    0.001381315873004496,
)
# (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) - 1 .. sqrt(2) - 1.
LOG = (
    0.3333331346511841,
    -0.25000008940696716,
    0.20002123713493347,
    -0.16668008267879486,
    0.14219450950622559,
    -0.12405279278755188,
    0.11888645589351654,
    -0.11677876859903336,
    0.0674830824136734,
)
# (sin(r) - r) / r^3 and (cos(r) - 1 + r^2 / 2) / r^4 as polynomials of r^2, |r| <= pi / 4.
SIN = (-0.1666666716337204, 0.008333329111337662, -0.00019839330343529582, 2.7182743451703573e-06)
COS = (0.04166664555668831, -0.0013887364184483886, 2.4438089894829318e-05)
# (tanh(x) - x) / x^3 as a polynomial of x^2, |x| <= 0.625.
TANH = (
    -0.3333328366279602,
    0.13331490755081177,
    -0.05374349653720856,
    0.020650578662753105,
    -0.005717036779969931,
)
# erf(x) / x as a polynomial of x^2, |x| <= 0.92, and -log(1 - erf(x)) on 0.9 .. 4.
ERF = (
    1.128379225730896,
    -0.37612634897232056,
    0.11283695697784424,
    -0.02685939334332943,
    0.005201021209359169,
    -0.0008142580627463758,
    8.369576244149357e-05,
)
ERFC = (
    -0.00017055202624760568,
    1.1294951438903809,
    0.6333866715431213,
    0.10823661834001541,
    -0.025091497227549553,
    0.004160527139902115,
    -0.0004323030007071793,
    2.0909556042170152e-05,
)
# 26 zero bits, then the first 230 binary digits of 2 / pi.
TWO_OVER_PI = (
    0x00000028, 0xBE60DB93, 0x91054A7F, 0x09D5F47D, 0x4D377036, 0xD8A5664F, 0x10E4107F, 0x9458EAF7,
)  # fmt: skip


def nan(k: KernelBuilder) -> Val:
    return k.bitcast(k.lit(NAN_BITS, U32), F32)


def bits(k: KernelBuilder, x: Val) -> Val:
    return k.bitcast(x, U32)


def is_neg_inf(k: KernelBuilder, x: Val) -> Val:
    return bits(k, x).eq(NEG_INF_BITS)


def polynomial(k: KernelBuilder, x: Val, coefficients: tuple[float, ...]) -> Val:
    """Horner's form, lowest coefficient first."""
    total = k.lit(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = k.fma(total, x, c)
    return total


def power_of_two(k: KernelBuilder, n: Val) -> Val:
    """2^n as f32 for i32 n in -126 .. 127."""
    return k.bitcast((n + 127) << 23, F32)


def _again(k: KernelBuilder, whole: Val) -> Val:
    """The same small whole number in a register of its own. A driver that reassociates (Mesa's
    does) would make one product of whole * a + whole * b, and lose what the two parts hold."""
    return k.bitcast(bits(k, whole) & 0xFFFF0000, F32)


def exp(k: KernelBuilder, x: Val) -> Val:
    """e to the x: exactly 0 at -inf (and below -104), +inf past 88.73, NaN at NaN."""
    is_nan = k.op("isnan", x)
    clamped = k.op("min", k.op("max", k.select(is_nan, k.lit(0.0), x), -105.0), 89.0)
    whole = k.op("rint", clamped * LOG2_E)
    r = k.fma(whole, -LN2_HIGH, clamped)
    r = k.fma(_again(k, whole), -LN2_LOW, r)
    p = k.fma(polynomial(k, r, EXP) * r, r, r) + 1.0
    n = k.cast(whole, "i32")
    half = n >> 1
    scaled = p * power_of_two(k, half) * power_of_two(k, n - half)
    return k.select(is_nan, x, scaled)


def log(k: KernelBuilder, x: Val) -> Val:
    """Natural logarithm: -inf at 0, NaN below, +inf at +inf. A subnormal may count as 0."""
    is_tiny = x < 1.1754943508222875e-38
    word = k.bitcast(k.select(is_tiny, x * 33554432.0, x), I32)
    exponent = (word - 0x3F3504F3) >> 23
    f = k.bitcast(word - (exponent << 23), F32) - 1.0
    e = k.cast(exponent - k.select(is_tiny, k.lit(25, I32), k.lit(0, I32)), "f32")
    z = f * f
    tail = k.fma(f * z, polynomial(k, f, LOG), _again(k, e) * LN2_LOW)
    value = k.fma(e, LN2_HIGH, f + k.fma(z, -0.5, tail))
    value = k.select(bits(k, x).eq(INF_BITS), x, value)
    value = k.select(x.eq(0.0), k.lit(-INF), value)
    return k.select(k.op("or", k.op("isnan", x), x < 0.0), nan(k), value)


def _quadrant(k: KernelBuilder, x: Val) -> tuple[Val, Val]:
    """(q, r): |x| = q pi/2 + r modulo 2 pi, |r| <= pi/4, q u32 modulo 4. Exact whole-number
    arithmetic: the mantissa times the 96 bits of 2/pi that matter for its exponent, modulo 4
    (Payne and Hanek's idea)."""
    word = bits(k, x) & 0x7FFFFFFF
    size = k.bitcast(word, F32)
    mantissa = (word & 0x7FFFFF) | 0x800000
    offset = k.op("max", k.bitcast(word >> 23, I32) - 126, 0)
    at, shift = offset >> 5, k.bitcast(offset & 31, U32)
    words: list[Val] = []
    for i in range(4):
        chosen = k.lit(TWO_OVER_PI[i], U32)
        for step in range(1, 5):
            chosen = k.select(at >= step, k.lit(TWO_OVER_PI[min(i + step, 7)], U32), chosen)
        words.append(chosen)
    is_shifted = shift.ne(0)
    back = k.select(is_shifted, k.lit(32, U32) - shift, k.lit(0, U32))
    window = [
        k.select(is_shifted, (a << shift) | (b >> back), a) for a, b in itertools.pairwise(words)
    ]
    middle = mantissa * window[1] + k.op("mulhi", mantissa, window[2])
    carry = k.cast(middle < k.op("mulhi", mantissa, window[2]), "u32")
    top = mantissa * window[0] + k.op("mulhi", mantissa, window[1]) + carry
    fraction = (top << 2) | (middle >> 30)
    r = k.cast(k.bitcast(fraction, I32), "f32") * (HALF_PI / 4294967296.0)
    q = (top >> 30) + (fraction >> 31)
    is_small = size <= 0.7853981633974483
    q = k.select(is_small, k.lit(0, U32), q)
    r = k.select(is_small, size, r)
    return q, k.select(word >= INF_BITS, nan(k), r)


def _sine_of(k: KernelBuilder, q: Val, r: Val) -> Val:
    """sin(q pi/2 + r)."""
    z = r * r
    s = k.fma(r * z, polynomial(k, z, SIN), r)
    c = k.fma(z * z, polynomial(k, z, COS), k.fma(z, -0.5, 1.0))
    value = k.select((q & 1).ne(0), c, s)
    return k.bitcast(bits(k, value) ^ ((q & 2) << 30), F32)


def sin(k: KernelBuilder, x: Val) -> Val:
    q, r = _quadrant(k, x)
    return k.bitcast(bits(k, _sine_of(k, q, r)) ^ (bits(k, x) & SIGN), F32)


def cos(k: KernelBuilder, x: Val) -> Val:
    q, r = _quadrant(k, x)
    return _sine_of(k, q + 1, r)


def _signed_like(k: KernelBuilder, magnitude: Val, x: Val) -> Val:
    value = k.bitcast(bits(k, magnitude) | (bits(k, x) & SIGN), F32)
    return k.select(k.op("isnan", x), x, value)


def tanh(k: KernelBuilder, x: Val) -> Val:
    size = k.op("abs", x)
    z = size * size
    small = k.fma(size * z, polynomial(k, z, TANH), size)
    large = 1.0 - k.lit(2.0) / (exp(k, k.op("min", size, 10.0) * 2.0) + 1.0)
    return _signed_like(k, k.select(size < 0.625, small, large), x)


def erf(k: KernelBuilder, x: Val) -> Val:
    size = k.op("min", k.op("abs", x), 4.0)
    small = size * polynomial(k, size * size, ERF)
    large = 1.0 - exp(k, -polynomial(k, size, ERFC))
    return _signed_like(k, k.select(size < 0.92, small, large), x)


def trunc(k: KernelBuilder, x: Val) -> Val:
    return k.select(x < 0.0, -k.op("floor", -x), k.op("floor", x))


def _parts(k: KernelBuilder, x: Val) -> tuple[Val, Val]:
    """(m, e) of a finite |x| = m * 2^(e - 150), m u32 below 2^24, e i32 at least 1."""
    word = bits(k, x) & 0x7FFFFFFF
    exponent = k.bitcast(word >> 23, I32)
    lead = k.select(exponent > 0, k.lit(0x800000, U32), k.lit(0, U32))
    return (word & 0x7FFFFF) | lead, k.op("max", exponent, 1)


def float_rem(k: KernelBuilder, a: Val, b: Val) -> Val:
    """a - b * trunc(a / b), exact, with a's sign; NaN where b is 0 or a infinite. Long division of
    the mantissas in base 256: at most 35 rounds."""
    (m, e), (n, f) = _parts(k, a), _parts(k, b)
    n = k.select(n.eq(0), k.lit(1, U32), n)
    distance = k.op("max", e - f, 0)
    rest = k.var(m % n)
    with k.for_(0, distance >> 3):
        k.set(rest, (rest << 8) % n)
    left = (rest << k.bitcast(distance & 7, U32)) % n
    half = (f - 150) >> 1
    value = k.cast(left, "f32") * power_of_two(k, half) * power_of_two(k, f - 150 - half)
    value = k.bitcast(bits(k, value) | (bits(k, a) & SIGN), F32)
    value = k.select(k.op("abs", a) < k.op("abs", b), a, value)
    bad = k.op("or", b.eq(0.0), k.op("isnan", b))
    bad = k.op("or", bad, (bits(k, a) & 0x7FFFFFFF) >= INF_BITS)
    return k.select(bad, nan(k), value)


def int_div(k: KernelBuilder, a: Val, b: Val) -> Val:
    """a / b truncated; 0 where b is 0; the least i32 over -1 wraps to itself."""
    literal = b.literal
    if literal is not None and literal not in (0, -1):
        return a / b
    if a.ty == U32:
        is_zero = b.eq(0)
        return k.select(is_zero, k.lit(0, U32), a / k.select(is_zero, k.lit(1, U32), b))
    is_odd = k.op("or", b.eq(0), b.eq(-1))
    quotient = a / k.select(is_odd, k.lit(1, I32), b)
    return k.select(b.eq(0), k.lit(0, I32), k.select(b.eq(-1), -a, quotient))


def int_rem(k: KernelBuilder, a: Val, b: Val) -> Val:
    """a - b * trunc(a / b), with a's sign; 0 where b is 0."""
    literal = b.literal
    if literal is not None and literal not in (0, -1):
        return a % b
    if a.ty == U32:
        is_zero = b.eq(0)
        return k.select(is_zero, k.lit(0, U32), a % k.select(is_zero, k.lit(1, U32), b))
    is_odd = k.op("or", b.eq(0), b.eq(-1))
    return k.select(is_odd, k.lit(0, I32), a % k.select(is_odd, k.lit(1, I32), b))
