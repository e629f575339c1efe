// Bit packing: the low `bits` bits of each element, concatenated, least significant bit first.
#pragma once

#include <algorithm>
#include <cstring>

#include "ring/elements.hpp"

namespace ppca {

inline std::size_t packed_size(std::size_t n, int bits) { return (n * static_cast<std::size_t>(bits) + 7) / 8; }

// Writes packed_size(n, bits) bytes; unused bits of the last byte are zero. 1 <= bits <= width of the ring.
template <class Z> void pack(std::uint8_t* out, const Z* a, std::size_t n, int bits) {
    constexpr std::size_t width = sizeof(Z);
    if (bits % 8 == 0) {
        const std::size_t bytes = static_cast<std::size_t>(bits) / 8;
        std::size_t i = 0;
        // While the buffer is long enough, a whole element is stored; the next ones overwrite its surplus.
        for (; i < n && (n - i) * bytes >= width; ++i) std::memcpy(out + i * bytes, a + i, width);
        for (; i < n; ++i) std::memcpy(out + i * bytes, a + i, bytes);
        return;
    }
    u64 word = 0;  // the bits not yet written: always fewer than 64
    int filled = 0;
    auto put = [&](u64 x, int count) {  // x < 2^count, 1 <= count <= 64
        word |= x << filled;
        if (filled + count >= 64) {
            std::memcpy(out, &word, 8);
            out += 8;
            word = filled ? x >> (64 - filled) : 0;
            filled += count - 64;
        } else {
            filled += count;
        }
    };
    for (std::size_t i = 0; i < n; ++i) {
        const value_of<Z> x = low_bits<Z>(a[i], bits);
        if (sizeof(Z) == 8 || bits <= 64) {
            put(static_cast<u64>(x), bits);
        } else {
            put(static_cast<u64>(x), 64);
            put(static_cast<u64>(x >> (Ring<Z>::bits / 2)), bits - 64);
        }
    }
    std::memcpy(out, &word, static_cast<std::size_t>(filled + 7) / 8);
}

// The inverse of pack: reads packed_size(n, bits) bytes, fills the high bits with zeros.
template <class Z> void unpack(Z* out, const std::uint8_t* in, std::size_t n, int bits) {
    constexpr std::size_t width = sizeof(Z);
    const std::size_t total = packed_size(n, bits), step = static_cast<std::size_t>(bits);
    const bool whole_bytes = bits % 8 == 0;
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t first = i * step / 8;
        const int offset = whole_bytes ? 0 : static_cast<int>(i * step % 8);
        value_of<Z> x = 0;
        if (bits <= 57 && first + 8 <= total) {  // within 8 bytes, wherever it starts
            u64 word;
            std::memcpy(&word, in + first, 8);
            x = word >> offset;
        } else if (first + width < total) {  // one byte more than the element: an unaligned one spans width + 1 bytes
            std::memcpy(&x, in + first, width);
            if (offset) x = x >> offset | static_cast<value_of<Z>>(in[first + width]) << (Ring<Z>::bits - offset);
        } else {
            const std::size_t here = std::min(width, total - first);
            std::memcpy(&x, in + first, here);
            x >>= offset;
        }
        out[i] = low_bits<Z>(x, bits);
    }
}

}  // namespace ppca
