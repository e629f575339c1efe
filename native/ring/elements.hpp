// The rings Z_2^64 and Z_2^128: element types and element-wise kernels.
//
// An element of Z_2^128 is stored as two little-endian 64-bit limbs (lo, hi). Kernels are templates over the element
// type Z, so each is written once. Pointers may alias exactly (out == a), never partially.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ppca {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ring arrays are little endian");

using u64 = std::uint64_t;
using u128 = unsigned __int128;

// An element in memory. NumPy does not guarantee 16-byte alignment (nor 8 for views into received frames), and its
// buffers hold uint64, so a cell promises no alignment and may alias. Loads and stores cost nothing extra.
template <class V> struct __attribute__((packed, may_alias)) Cell {
    V value;
    operator V() const { return value; }
    Cell& operator=(V x) {
        value = x;
        return *this;
    }
};
using Z64 = Cell<u64>;
using Z128 = Cell<u128>;

template <class Z> struct Ring;  // by cell type
template <> struct Ring<Z64> {
    using value = u64;
    using signed_value = std::int64_t;
    static constexpr int bits = 64;
};
template <> struct Ring<Z128> {
    using value = u128;
    using signed_value = __int128;
    static constexpr int bits = 128;
};
template <class Z> using value_of = typename Ring<Z>::value;

// How a share is shifted to the right; see shift_right in bind/ring.cpp.
enum class Shift { floor = 0, negated = 1, arithmetic = 2 };

template <class Z, Shift mode> inline value_of<Z> shifted(value_of<Z> x, int bits) {
    if constexpr (mode == Shift::floor) return x >> bits;
    else if constexpr (mode == Shift::negated) return -(-x >> bits);
    else return static_cast<value_of<Z>>(static_cast<typename Ring<Z>::signed_value>(x) >> bits);
}

// a mod 2^bits, 0 <= bits <= width of the ring.
template <class Z> inline value_of<Z> low_bits(value_of<Z> x, int bits) {
    return bits == Ring<Z>::bits ? x : x & ((value_of<Z>{1} << bits) - 1);
}

// Calls f with a null pointer of the element type: f is a generic lambda that recovers Z from it.
template <class F> auto with_ring(int limbs, F&& f) {
    if (limbs == 2) return f(static_cast<Z128*>(nullptr));
    return f(static_cast<Z64*>(nullptr));
}

// out[o, i] = sum over j of a[o, j, i].
template <class Z> void sum_axis(Z* out, const Z* a, std::size_t outer, std::size_t n, std::size_t inner) {
    for (std::size_t o = 0; o < outer; ++o, out += inner, a += n * inner) {
        if (inner == 1) {
            value_of<Z> even = 0, odd = 0;  // two chains: an addition with carry has a latency of two cycles
            std::size_t j = 0;
            for (; j + 2 <= n; j += 2) even += a[j].value, odd += a[j + 1].value;
            if (j < n) even += a[j].value;
            out[0] = even + odd;
            continue;
        }
        for (std::size_t i = 0; i < inner; ++i) out[i] = 0;
        for (std::size_t j = 0; j < n; ++j)
            for (std::size_t i = 0; i < inner; ++i) out[i].value += a[j * inner + i].value;
    }
}

}  // namespace ppca
