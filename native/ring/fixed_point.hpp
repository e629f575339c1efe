// Fixed point: doubles to ring elements and back, exactly rounded.
#pragma once

#include <bit>
#include <cmath>

#include "ring/elements.hpp"

namespace ppca {

// round-half-even(v * 2^frac) as a two's complement ring element; false if v is not finite or the result is outside
// the signed range [-2^(k-1), 2^(k-1)). Integer arithmetic only: the result is exact for every double.
template <class Z> inline bool encode_one(value_of<Z>& out, double v, int frac) {
    using V = value_of<Z>;
    const u64 raw = std::bit_cast<u64>(v);
    const bool negative = raw >> 63;
    const int exponent = static_cast<int>(raw >> 52 & 0x7ff);
    u64 mantissa = raw & ((u64{1} << 52) - 1);
    if (exponent == 0x7ff) return false;
    if (exponent != 0) mantissa |= u64{1} << 52;
    if (mantissa == 0) {
        out = 0;
        return true;
    }
    // |v| * 2^frac = mantissa * 2^shift
    const int shift = (exponent ? exponent : 1) - 1075 + frac;
    V magnitude;
    if (shift >= 0) {
        if (std::bit_width(mantissa) + shift > Ring<Z>::bits) return false;
        magnitude = static_cast<V>(mantissa) << shift;
    } else if (shift < -54) {
        magnitude = 0;  // below one half: mantissa < 2^53
    } else {
        const u64 rest = mantissa & ((u64{1} << -shift) - 1), half = u64{1} << (-shift - 1);
        u64 whole = mantissa >> -shift;
        whole += rest > half || (rest == half && (whole & 1));
        magnitude = whole;
    }
    const V limit = V{1} << (Ring<Z>::bits - 1);  // only -limit has this magnitude
    if (magnitude > limit || (magnitude == limit && !negative)) return false;
    out = negative ? -magnitude : magnitude;
    return true;
}

// Encodes until a value is refused; returns how many were accepted.
template <class Z> std::size_t encode_while_valid(Z* out, const Cell<double>* values, std::size_t n, int frac) {
    for (std::size_t i = 0; i < n; ++i) {
        value_of<Z> x;
        if (!encode_one<Z>(x, values[i], frac)) return i;
        out[i] = x;
    }
    return n;
}

// The double nearest to the signed value of x times 2^-frac (half to even). The conversion from the integer rounds
// once; the scaling is a power of two that keeps the result normal (|frac| <= 800, checked by the caller), hence exact.
template <class Z> inline double decode_one(value_of<Z> x, double scale) {
    return static_cast<double>(static_cast<typename Ring<Z>::signed_value>(x)) * scale;
}

}  // namespace ppca
