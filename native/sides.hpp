// Tables of vector constants by the sides (left or right) that the blocks of a Vec take in an FSS tree.
//
// Sides are public where these are used: the tables are indexed by them.
#pragma once

#include <cstdint>

namespace ppca {
namespace {

// Entry `sides` belongs to Width blocks of which number l goes right if bit l of `sides` is set. `half` is a byte
// shuffle (of 16 bytes, 0x80 writes zero), `mask` is all ones in blocks that go right.
template <int Width>
struct SideTables {
    alignas(16 * Width) uint8_t half[1 << Width][16 * Width], mask[1 << Width][16 * Width];

    consteval SideTables() : half(), mask() {
        for (int sides = 0; sides < 1 << Width; ++sides) {
            for (int i = 0; i < 16 * Width; ++i) {
                const bool right = (sides >> (i / 16)) & 1, upper = i % 16 >= 8;
                half[sides][i] = right == upper ? uint8_t((i % 16) ^ 8) : 0x80;
                mask[sides][i] = right ? 0xff : 0;
            }
        }
    }
};

template <int Width>
inline constexpr SideTables<Width> side_tables;

}  // namespace
}  // namespace ppca
