// Tiles with 52-bit multiply-add (AVX-512 IFMA), over a lane type that other processors can emulate for tests.
//
// An element is L limbs of 52 bits: L = 3 for Z_2^128, L = 2 for Z_2^64. madd52lo/hi add the low or high 52 bits of a
// 104-bit product to a 64-bit sum, so column c collects lo(a_i b_j), i + j = c, and hi(a_i b_j), i + j = c - 1:
// 9 (or 4) instructions per multiply-add of 8 lanes. A column takes at most 2 L - 1 <= 5 terms below 2^52 per step,
// hence up to 800 steps without overflow; the last column may wrap, only its low bits count.
//
// V offers: zero(), load(p), store(p, x), spread(word), madd52lo(c, a, b), madd52hi(c, a, b) on 8 lanes of 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ring/matmul_backend.hpp"

namespace ppca {
namespace {  // every translation unit has its own: they are compiled for different processors

constexpr std::uint64_t kMask52 = (std::uint64_t{1} << 52) - 1;

// One element (64 * (L - 1) bits) into L limbs, `step` words apart.
template <int L> inline void split52(std::uint64_t* out, std::size_t step, const unsigned char* element) {
    std::uint64_t lo, hi = 0;
    __builtin_memcpy(&lo, element, 8);
    if constexpr (L == 3) __builtin_memcpy(&hi, element + 8, 8);
    out[0] = lo & kMask52;
    out[step] = (lo >> 52 | hi << 12) & kMask52;
    if constexpr (L == 3) out[2 * step] = hi >> 40;
}

template <int L> void ifma_prepare_a(void* out, const void* a, std::size_t count) {
    auto* to = static_cast<std::uint64_t*>(out);
    const auto* from = static_cast<const unsigned char*>(a);
    for (std::size_t i = 0; i < count; ++i) split52<L>(to + L * i, 1, from + 8 * (L - 1) * i);
}

// A panel row: limb 0 of the 8 columns, then limb 1, ...
template <int L>
void ifma_pack_b(void* panel, const void* b, std::size_t stride, std::size_t columns, std::size_t depth) {
    auto* row = static_cast<std::uint64_t*>(panel);
    const auto* from = static_cast<const unsigned char*>(b);
    for (std::size_t l = 0; l < depth; ++l, row += 8 * L, from += 8 * (L - 1) * stride) {
        for (std::size_t j = 0; j < columns; ++j) split52<L>(row + j, 8, from + 8 * (L - 1) * j);
        for (std::size_t j = columns; j < 8; ++j)
            for (int i = 0; i < L; ++i) row[8 * i + j] = 0;
    }
}

template <class V, int L, int R>
inline void ifma_rows(std::uint64_t* out, const std::uint64_t* a, std::size_t stride, const std::uint64_t* row,
                      std::size_t depth) {
    typename V::lanes c[R][L];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < L; ++i) c[r][i] = V::zero();
    for (std::size_t l = 0; l < depth; ++l, row += 8 * L) {
        typename V::lanes y[L];
#pragma GCC unroll 4
        for (int j = 0; j < L; ++j) y[j] = V::load(row + 8 * j);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
            for (int i = 0; i < L; ++i) {
                const auto x = V::spread(a[L * (r * stride + l) + i]);
#pragma GCC unroll 4
                for (int j = 0; j < L - i; ++j) {
                    c[r][i + j] = V::madd52lo(c[r][i + j], x, y[j]);
                    if (i + j + 1 < L) c[r][i + j + 1] = V::madd52hi(c[r][i + j + 1], x, y[j]);
                }
            }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        alignas(64) std::uint64_t column[L][8];
        for (int i = 0; i < L; ++i) V::store(column[i], c[r][i]);
        for (int j = 0; j < 8; ++j) {
            unsigned __int128 x = column[0][j] + (static_cast<unsigned __int128>(column[1][j]) << 52);
            if constexpr (L == 3) x += static_cast<unsigned __int128>(column[2][j]) << 104;
            std::uint64_t* to = out + (L - 1) * (8 * r + j);
            to[0] = static_cast<std::uint64_t>(x);
            if constexpr (L == 3) to[1] = static_cast<std::uint64_t>(x >> 64);
        }
    }
}

template <class V, int L>
void ifma_tile(void* out, const void*, const void* prepared, std::size_t stride, std::size_t rows, const void* panel,
               std::size_t depth) {
    auto* to = static_cast<std::uint64_t*>(out);
    const auto* a = static_cast<const std::uint64_t*>(prepared);
    const auto* p = static_cast<const std::uint64_t*>(panel);
    for (; rows >= 8; rows -= 8, to += 64 * (L - 1), a += 8 * L * stride) ifma_rows<V, L, 8>(to, a, stride, p, depth);
    if (rows >= 4) {
        ifma_rows<V, L, 4>(to, a, stride, p, depth);
        rows -= 4, to += 32 * (L - 1), a += 4 * L * stride;
    }
    for (; rows > 0; --rows, to += 8 * (L - 1), a += L * stride) ifma_rows<V, L, 1>(to, a, stride, p, depth);
}

template <class V, int L> constexpr Backend ifma_backend() {
    // 128 rows of b are 24 KiB of panel.
    return {64, 128, 8 * L, 64 * L, ifma_prepare_a<L>, ifma_pack_b<L>, ifma_tile<V, L>};
}

}  // namespace
}  // namespace ppca
