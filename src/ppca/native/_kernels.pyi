def add(out, a, b, /) -> None:
    """out = a + b, element by element."""

def sub(out, a, b, /) -> None:
    """out = a - b, element by element."""

def mul(out, a, b, /) -> None:
    """out = a * b, element by element."""

def neg(out, a, /) -> None:
    """out = -a."""

def scale(out, a, lo: int, hi: int, /) -> None:
    """
    out = a * (lo + 2^64 hi) for one public constant; hi is ignored in the 64-bit ring.
    """

def shift_left(out, a, bits: int, /) -> None:
    """out = a * 2^bits."""

def shift_right(out, a, bits: int, mode: int, /) -> None:
    """
    mode 0: a >> bits (first summand of a truncation); mode 1: -((-a) >> bits) (second summand); mode 2: arithmetic, floor of the signed value.
    """

def add_shift(out, a, b, bits: int, mode: int, /) -> None:
    """shift_right of a + b in one pass."""

def mask_low(out, a, bits: int, /) -> None:
    """out = a mod 2^bits."""

def sum(out, a, outer: int, n: int, inner: int, /) -> None:
    """Sums the middle axis of a, seen as (outer, n, inner)."""

def matmul(out, a, b, batch: int, n: int, k: int, m: int, a_shared: bool, b_shared: bool, /) -> None:
    """
    batch products of (n,k) by (k,m); a shared operand is one matrix used for every product.
    """

def matmul_upper(out, a, b, n: int, k: int, strict: bool, /) -> None:
    """
    Upper triangle of a(n,k) @ b(k,n), packed row by row, with the diagonal unless strict.
    """

def encode(out, values, frac: int, /) -> int:
    """
    Two's complement of round-half-even(values * 2^frac), exact; returns -1, or the flat index of the first value that is not finite or out of range.
    """

def decode(out, a, frac: int, /) -> None:
    """Nearest doubles of the signed values times 2^-frac."""

def extend(out, a, signed: bool, /) -> None:
    """64-bit elements to 128 bits, with zeros or the sign."""

def pack_bits(out, a, bits: int, /) -> None:
    """
    Low bits of each element as one bit stream, least significant first, ceil(n*bits/8) bytes.
    """

def unpack_bits(out, in_, bits: int, /) -> None:
    """Inverse of pack_bits; high bits are zero."""

def threads() -> int:
    """Largest number of threads one call may use."""

def set_threads(n: int, /) -> None:
    """1 = never start a thread."""

def ring_levels() -> list[str]:
    """Instruction-set levels of the matrix product usable here, best first."""

def force_ring(level: str, /) -> None:
    """Pins the level for tests; 'auto' undoes it."""

class Key:
    """AES-128 key, expanded once: Key(bytes of length 16)."""

    def __init__(self, arg: bytes, /) -> None: ...

def aes_blocks(arg0: object, arg1: Key, arg2: object, /) -> None:
    """
    aes_blocks(out, key, in): AES-128 of every 16-byte block (ECB, for tests).
    """

def prg(arg0: object, arg1: Key, arg2: int, arg3: int, /) -> None:
    """
    prg(out, key, op, purpose): fills out with the stream (op, purpose) of the key; block i is AES(le64(op) || le64(purpose << 48 | i)).
    """

def mask2(arg0: object, arg1: object, arg2: object, arg3: Key, arg4: int, arg5: int, arg6: Key, arg7: int, /) -> None:
    """
    mask2(out_a, out_b, t, key_a, op, sign_a, key_b, sign_b): out_a = t + sign_a * PRG(key_a, op, 0), out_b = t + sign_b * PRG(key_b, op, 1).
    """

def mul_mask2(arg0: object, arg1: object, arg2: object, arg3: object, arg4: Key, arg5: int, arg6: int, arg7: Key, arg8: int, /) -> None:
    """
    mul_mask2(out_a, out_b, x, y, key_a, op, sign_a, key_b, sign_b): mask2 of the element-wise product t = x * y.
    """

def dcf_key_size(arg0: int, arg1: int, /) -> int:
    """dcf_key_size(bits, limbs): bytes of one DCF key."""

def dcf_gen(arg0: object, arg1: object, arg2: object, arg3: int, arg4: int, arg5: object, /) -> None:
    """
    dcf_gen(key0, key1, alpha, bits, limbs, seeds): keys of [y < alpha]; seeds are 4 random words per key.
    """

def dcf_eval(arg0: object, arg1: int, arg2: object, arg3: object, arg4: int, /) -> None:
    """dcf_eval(out, party, keys, points, bits): share of [point < alpha]."""

def classify_bits(arg0: object, arg1: int, arg2: object, arg3: object, arg4: object, arg5: int, /) -> None:
    """
    classify_bits(out, party, keys, m, thresholds, bits): share of [x < t] for x = m - alpha mod 2^bits and every threshold t; cheapest when neighbouring thresholds are close.
    """

def dpf_key_size(arg0: int, arg1: int, arg2: bool, /) -> int:
    """dpf_key_size(bits, limbs, incremental): bytes of one DPF key."""

def dpf_gen(arg0: object, arg1: object, arg2: object, arg3: int, arg4: int, arg5: object, arg6: bool, /) -> None:
    """
    dpf_gen(key0, key1, alpha, bits, limbs, seeds, incremental): keys of [y == alpha], or of [y == first i bits of alpha] for every i.
    """

def dpf_eval(arg0: object, arg1: int, arg2: object, arg3: object, arg4: int, /) -> None:
    """dpf_eval(out, party, keys, points, bits): share of [point == alpha]."""

def prefix_bits(arg0: object, arg1: int, arg2: object, arg3: object, arg4: int, arg5: int, arg6: int, arg7: int, arg8: int, /) -> None:
    """
    prefix_bits(out, party, keys, m, bits, first_level, L, first_k, W): from incremental keys, out[n, j, w] = share of [(m >> g) - (alpha >> g) mod 2^i <= first_k + w] with i = first_level + j and g = bits - i.
    """

def fss_levels() -> list[str]:
    """
    Instruction-set levels of the AES / FSS kernels that run here, best first.
    """

def force_fss(arg: str, /) -> None:
    """force_fss(level): pins a level, 'auto' returns to the best one."""
