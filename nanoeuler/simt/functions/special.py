"""Special functions of float64, as device functions: error functions, gamma, Bessel, remainders, sine of pi x.

Accuracy, unless a docstring says more: 1e-13 relative; for oscillating functions (Bessel, and lgamma at its zeros left
of 0) 1e-13 of their size nearby, as near a zero no argument in float64 gives more. Written as ``primitives`` is.
"""

import math

import numpy as np
from numpy import float64, int32, int64

from nanoeuler.simt.functions.primitives import two_product

PI = math.pi
EULER = 0.5772156649015329
SQRT_PI = 1.772453850905516
SQRT_HALF, SQRT_HALF_REST = 0.7071067811865476, -4.833646656726457e-17  # together sqrt(1/2) to 32 digits

# Error functions -----------------------------------------------------------------------------------------------------


def exp_square(x: float64) -> float64:
    """Return exp(x * x); the rounding error of x * x, which exp would multiply, is put back."""
    square, rest = two_product(x, x)
    return np.exp(square) * (1.0 + rest)


def erfcx(x: float64) -> float64:
    """Return exp(x * x) * erfc(x). From 10 on by its continued fraction (Abramowitz and Stegun, 7.1.14)."""
    if x != x:
        return x
    if x < -27.0:
        return float64(math.inf)
    if x < 0.0:
        return 2.0 * exp_square(x) - erfcx_right(-x)
    return erfcx_right(x)


def erfcx_right(x: float64) -> float64:
    """Return erfcx for x >= 0."""
    if x < 10.0:
        return exp_square(x) * float64(math.erfc(x))
    tail = x
    for k in range(30, 0, -1):
        tail = x + 0.5 * float64(k) / tail
    return 1.0 / SQRT_PI / tail


def erfinv(y: float64) -> float64:
    """Return the x with erf(x) = y; not a number outside [-1, 1]."""
    if abs(y) <= 0.5:
        return erfinv_centre(y)
    return erfcinv(1.0 - y)


def erfcinv(p: float64) -> float64:
    """Return the x with erfc(x) = p; not a number outside [0, 2]."""
    if not (p >= 0.0 and p <= 2.0):
        return float64(math.nan)
    if p == 0.0:
        return float64(math.inf)
    if p == 2.0:
        return float64(-math.inf)
    if p > 1.5:
        return -erfcinv_tail(2.0 - p)
    if p >= 0.5:
        return erfinv_centre(1.0 - p)
    return erfcinv_tail(p)


def erfinv_centre(y: float64) -> float64:
    """Return erfinv for |y| <= 1/2: three of Halley's steps, cubic, from the first two terms of the series."""
    x = 0.5 * SQRT_PI * y * (1.0 + PI / 12.0 * y * y)
    for _ in range(3):
        step = (float64(math.erf(x)) - y) * 0.5 * SQRT_PI * np.exp(x * x)
        x = x - step / (1.0 + x * step)
    return x


def erfcinv_tail(p: float64) -> float64:
    """Return erfcinv for 0 < p <= 1/2: Newton's method on log(erfc(x)), from Abramowitz and Stegun, 26.2.22."""
    wanted = np.log(p)
    t = np.sqrt(-2.0 * (wanted - math.log(2.0)))
    x = (t - (2.30753 + 0.27061 * t) / (1.0 + t * (0.99229 + 0.04481 * t))) * SQRT_HALF
    for _ in range(4):
        scaled = erfcx(x)
        x = x + (np.log(scaled) - x * x - wanted) * 0.5 * SQRT_PI * scaled
    return x


def normcdf(x: float64) -> float64:
    """Return the normal distribution function, erfc(-x / sqrt(2)) / 2, corrected for the rounding of that quotient."""
    if abs(x) > 40.0:
        return float64(0.0) if x < 0.0 else float64(1.0)
    a, rest = two_product(-x, float64(SQRT_HALF))
    rest = rest - x * SQRT_HALF_REST
    tail = 0.5 * float64(math.erfc(a))
    return tail - rest * np.exp(-a * a) / SQRT_PI


def normcdfinv(p: float64) -> float64:
    """Return the x with normcdf(x) = p; not a number outside [0, 1]."""
    return 0.0 - math.sqrt(2.0) * erfcinv(2.0 * p)


# Gamma ---------------------------------------------------------------------------------------------------------------

ZETA_LESS_1 = (  # zeta(k) - 1, k from 31 down to 2
    *(4.656629065033784e-10, 9.313274324196682e-10, 1.862659723513049e-09, 3.725334024788457e-09),
    *(7.45071178983543e-09, 1.4901554828365043e-08, 2.980350351465228e-08, 5.960818905125948e-08),
    *(1.1921992596531106e-07, 2.38450502727733e-07, 4.769329867878064e-07, 9.539620338727962e-07),
    *(1.908212716553939e-06, 3.81729326499984e-06, 7.637197637899763e-06, 1.528225940865187e-05),
    *(3.058823630702049e-05, 6.124813505870483e-05, 0.00012271334757848915, 0.0002460865533080483),
    *(0.0004941886041194645, 0.0009945751278180853, 0.0020083928260822143, 0.00407735619794434),
    *(0.008349277381922827, 0.01734306198444914, 0.03692775514336993, 0.08232323371113819),
    *(0.2020569031595943, 0.6449340668482264),
)


def lgamma_2(t: float64) -> float64:
    """Return log(gamma(2 + t)) for |t| <= 1/2. Source: Abramowitz and Stegun, 6.1.33."""
    total, k = float64(0.0), int64(31)
    for zeta in ZETA_LESS_1:
        total = zeta / float64(k) - t * total
        k = k - 1
    return t * ((1.0 - EULER) + t * total)


def lgamma(x: float64) -> float64:
    """Return log(abs(gamma(x))); infinite at 0 and the negative integers, accurate at its zeros 1 and 2."""
    if x <= 0.0 and x == np.floor(x):
        return float64(math.inf)
    if x > 2.5e305:
        return float64(math.inf)
    if x >= 0.5 and x < 1.5:
        return lgamma_2(x - 1.0) - np.log1p(x - 1.0)
    if x >= 1.5 and x < 2.5:
        return lgamma_2(x - 2.0)
    return float64(math.lgamma(x))


def tgamma(x: float64) -> float64:
    """Return the gamma function; not a number at the negative integers, infinite with the sign of x at 0."""
    if abs(x) < 1e-20:
        return 1.0 / x
    if x < 0.0 and x == np.floor(x):
        return float64(math.nan)
    if x > 171.7:
        return float64(math.inf)
    return float64(math.gamma(x))


# Bessel functions ----------------------------------------------------------------------------------------------------

ASYMPTOTIC = 25.0  # from here on Hankel's expansion reaches the last bit
HUGE, SHRINK = 1e250, 1e-250


def bessel01(x: float64) -> tuple[float64, float64, float64, float64]:
    """Return J0, J1, Y0 and Y1 at x > 0."""
    if x < 1e-8:
        return float64(1.0), 0.5 * x, 2.0 / PI * (np.log(x) + (EULER - math.log(2.0))), -2.0 / (PI * x)
    if x < ASYMPTOTIC:
        return bessel01_recurrence(x)
    if x == math.inf:
        zero = float64(0.0)
        return zero, zero, zero, zero
    sine, cosine, scale = np.sin(x), np.cos(x), 1.0 / SQRT_PI / np.sqrt(x)
    p, q = hankel(float64(0.0), x)
    j0 = scale * (p * (cosine + sine) - q * (sine - cosine))
    y0 = scale * (p * (sine - cosine) + q * (cosine + sine))
    p, q = hankel(float64(4.0), x)
    j1 = scale * (p * (sine - cosine) + q * (sine + cosine))
    y1 = scale * (q * (sine - cosine) - p * (sine + cosine))
    return j0, j1, y0, y1


def hankel(mu: float64, x: float64) -> tuple[float64, float64]:
    """Return P and Q of Hankel's expansion, mu = 4 n * n. Source: Abramowitz and Stegun, 9.2.9 and 9.2.10."""
    p, q, term = float64(1.0), float64(0.0), float64(1.0)
    for k in range(1, 25):
        root = 2.0 * float64(k) - 1.0
        term = term * (mu - root * root) / (8.0 * x * float64(k))
        signed = term if k % 4 < 2 else -term
        if k % 2 == 1:
            q = q + signed
        else:
            p = p + signed
    return p, q


def bessel01_recurrence(x: float64) -> tuple[float64, float64, float64, float64]:
    """Return J0, J1, Y0 and Y1 for 1e-8 <= x <= 25, by Miller's backward recurrence and Neumann's series.

    Source: Abramowitz and Stegun, 9.12 (example 1), 9.1.46, 9.1.88 and 9.1.89.
    """
    above, here = float64(0.0), float64(1e-300)
    unit, even_sum, odd_sum = float64(0.0), float64(0.0), float64(0.0)
    for k in range(40 + 2 * int64(x), 0, -1):
        if k % 2 == 0:
            unit = unit + 2.0 * here
            even_sum = even_sum + (here if k % 4 == 0 else -here) / (0.5 * float64(k))
        elif k > 1:
            half = 0.5 * (float64(k) - 1.0)
            odd_sum = odd_sum + (here if k % 4 == 1 else -here) * float64(k) / (half * (half + 1.0))
        above, here = here, 2.0 * float64(k) / x * here - above
        if abs(here) > HUGE:
            above, here = above * SHRINK, here * SHRINK
            unit, even_sum, odd_sum = unit * SHRINK, even_sum * SHRINK, odd_sum * SHRINK
    unit = unit + here
    j0, j1 = here / unit, above / unit
    logarithm = np.log(0.5 * x) + EULER
    y0 = 2.0 / PI * (logarithm * j0 - 2.0 * (even_sum / unit))
    y1 = 2.0 / PI * ((logarithm - 1.0) * j1 - odd_sum / unit - j0 / x)
    return j0, j1, y0, y1


def j0(x: float64) -> float64:
    """Return the Bessel function of the first kind of order 0."""
    return float64(1.0) if x == 0.0 else bessel01(abs(x))[0]


def j1(x: float64) -> float64:
    """Return the Bessel function of the first kind of order 1."""
    if x == 0.0:
        return x
    size = bessel01(abs(x))[1]
    return -size if x < 0.0 else size


def y0(x: float64) -> float64:
    """Return the Bessel function of the second kind of order 0; not a number left of 0."""
    if x == 0.0:
        return float64(-math.inf)
    return bessel01(x)[2] if x > 0.0 else float64(math.nan)


def y1(x: float64) -> float64:
    """Return the Bessel function of the second kind of order 1; not a number left of 0."""
    if x == 0.0:
        return float64(-math.inf)
    return bessel01(x)[3] if x > 0.0 else float64(math.nan)


def jn(n: int32, x: float64) -> float64:
    """Return the Bessel function of the first kind of order n >= 0; not a number for a negative n."""
    order = int64(n)
    if order < 0 or x != x:
        return float64(math.nan)
    if order == 0:
        return j0(x)
    if order == 1:
        return j1(x)
    size = abs(x)
    if size == 0.0 or size == math.inf:
        return float64(0.0)
    value = jn_forward(order, size) if float64(order) < size else jn_backward(order, size)
    return -value if x < 0.0 and order % 2 == 1 else value


def jn_forward(n: int64, x: float64) -> float64:
    """Return Jn for 2 <= n < x, where the recurrence upwards is stable."""
    below, here, _, _ = bessel01(x)
    for k in range(1, n):
        below, here = here, 2.0 * float64(k) / x * here - below
    return here


def jn_backward(n: int64, x: float64) -> float64:
    """Return Jn for n >= 2 and 0 < x <= n: Miller's recurrence downwards, from an order far above n."""
    order = float64(n)
    if order * (1.0 + np.log(0.5 * x) - np.log(order)) < -760.0:  # |Jn| <= (x / 2)**n / n! is below any float64
        return float64(0.0)
    if x < 1e-8:
        value = float64(1.0)
        for k in range(1, n + 1):
            value = value * (0.5 * x / float64(k))
        return value
    above, here, wanted, unit = float64(0.0), float64(1e-300), float64(0.0), float64(0.0)
    for k in range(n + 40 + 2 * int64(np.sqrt(40.0 * order)), 0, -1):
        if k == n:
            wanted = here
        if k % 2 == 0:
            unit = unit + 2.0 * here
        above, here = here, 2.0 * float64(k) / x * here - above
        if abs(here) > HUGE:
            above, here, wanted, unit = above * SHRINK, here * SHRINK, wanted * SHRINK, unit * SHRINK
    return wanted / (unit + here)


def yn(n: int32, x: float64) -> float64:
    """Return the Bessel function of the second kind of order n >= 0; not a number for a negative n or x."""
    order = int64(n)
    if order < 0:
        return float64(math.nan)
    if order == 0:
        return y0(x)
    if order == 1 or not x > 0.0:
        return y1(x)
    _, _, below, here = bessel01(x)
    for k in range(1, order):
        if here == -math.inf:
            return here
        below, here = here, 2.0 * float64(k) / x * here - below
    return here


# Remainders and the sine of pi x, exact in their reduction -----------------------------------------------------------


def remquo(x: float64, y: float64) -> tuple[float64, int32]:
    """Return x - n * y, n the integer nearest to x / y (even on a tie), and the low three bits of n with its sign."""
    size, unit = abs(x), abs(y)
    if unit == 0.0 or not (size < math.inf and unit <= math.inf):
        return float64(math.nan), int32(0)
    if unit == math.inf:
        return x, int32(0)
    quotient = int64(0)
    if unit < 2.0**1020:
        size = np.fmod(size, 8.0 * unit)
    for step in (4, 2, 1):
        if size >= float64(step) * unit:
            size = size - float64(step) * unit
            quotient = quotient + step
    if 2.0 * size > unit or (2.0 * size == unit and quotient % 2 == 1):
        size = size - unit
        quotient = quotient + 1
    quotient = quotient & 7
    rest = -size if np.signbit(x) else size
    return rest, int32(-quotient if np.signbit(x) != np.signbit(y) else quotient)


def sinpi(x: float64) -> float64:
    """Return sin(pi * x); for an integer that is 0 with its sign."""
    part = abs(np.fmod(x, 2.0))
    if part == 0.0 or part == 1.0:
        return np.copysign(0.0, x)
    negative = np.signbit(x) != (part >= 1.0)
    if part >= 1.0:
        part = part - 1.0
    if part > 0.5:
        part = 1.0 - part
    value = np.sin(PI * part) if part <= 0.25 else np.cos(PI * (0.5 - part))
    return -value if negative else value


def cospi(x: float64) -> float64:
    """Return cos(pi * x)."""
    part = abs(np.fmod(x, 2.0))
    if part > 1.0:
        part = 2.0 - part
    if part <= 0.25:
        return np.cos(PI * part)
    if part < 0.75:
        return np.sin(PI * (0.5 - part))
    return -np.cos(PI * (1.0 - part))
