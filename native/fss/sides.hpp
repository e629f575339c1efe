// Tables of vector constants by the sides (left or right) that the blocks of a Vec take in an FSS tree.
//
// The tables are indexed by sides, which are public in all uses.
#pragma once

#include <cstdint>

namespace ppca {
namespace {

// Entry `sides` belongs to Width blocks of which number l goes right if bit l of `sides` is set. In the two 64-bit
// words of block l, `shift` is 1 and `mask` is all ones if it does, else both are zero.
template <int Width> struct SideTables {
    alignas(16 * Width) uint64_t shift[1 << Width][2 * Width], mask[1 << Width][2 * Width];

    consteval SideTables() : shift(), mask() {
        for (int sides = 0; sides < 1 << Width; ++sides) {
            for (int i = 0; i < 2 * Width; ++i) {
                shift[sides][i] = (sides >> (i / 2)) & 1;
                mask[sides][i] = -shift[sides][i];
            }
        }
    }
};

template <int Width> inline constexpr SideTables<Width> side_tables;

}  // namespace
}  // namespace ppca
