// The arithmetic of one tile of a matrix product, by instruction set. See matmul.cpp for how tiles are put together.
//
// Plain pointers and no inline functions: this header is included where wider instruction sets are compiled.
#pragma once

#include <cstddef>

namespace ppca {

// A panel is 8 columns of b by some rows, rearranged by pack_b; a tile is the product of up to `rows` rows of a and a
// panel. Elements of a and b are little-endian ring elements, unaligned. Packed buffers are 64-byte aligned.
struct Backend {
    std::size_t rows;     // maximum number of rows of a in a tile, up to 64
    std::size_t depth;    // maximum number of rows of b in a panel: bounds the sums and the size of the panel
    std::size_t a_bytes;  // bytes of prepare_a's output per element; 0: prepare_a is null, tile uses a itself
    std::size_t b_bytes;  // bytes of a panel per row of b

    void (*prepare_a)(void* out, const void* a, std::size_t count);

    // columns <= 8 of `depth` rows, `stride` elements apart; missing columns are zero.
    void (*pack_b)(void* panel, const void* b, std::size_t stride, std::size_t columns, std::size_t depth);

    // out[r][8], r < rows (64-byte aligned, ring elements in column order) = rows of a, `stride` elements apart, times
    // panel. prepared is the image of a under prepare_a, with the same stride.
    void (*tile)(void* out, const void* a, const void* prepared, std::size_t stride, std::size_t rows,
                 const void* panel, std::size_t depth);
};

constexpr std::size_t kPanelColumns = 8;

// The backends of one instruction set, for the rings of 1 and of 2 limbs.
struct RingKernels {
    const char* name;
    Backend limbs1, limbs2;
};

extern const RingKernels portable_ring, emulated_ifma_ring;
#if defined(__x86_64__)
extern const RingKernels avx2_ring, avx512ifma_ring;
#endif

}  // namespace ppca
