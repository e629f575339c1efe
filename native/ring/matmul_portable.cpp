// Tiles in plain C++: one widening multiplication and two low ones per multiply-add mod 2^128.
#include <cstring>

#include "ring/elements.hpp"
#include "ring/matmul_backend.hpp"

namespace ppca {

namespace {

template <class V> void pack_b(void* panel, const void* b, std::size_t stride, std::size_t columns, std::size_t depth) {
    auto* row = static_cast<V*>(panel);
    const auto* from = static_cast<const unsigned char*>(b);
    for (std::size_t l = 0; l < depth; ++l, row += kPanelColumns, from += stride * sizeof(V)) {
        std::memcpy(row, from, columns * sizeof(V));
        std::memset(row + columns, 0, (kPanelColumns - columns) * sizeof(V));
    }
}

// Four columns at a time: their sums stay in registers.
template <class V>
void tile(void* out, const void* a, const void*, std::size_t stride, std::size_t rows, const void* panel,
          std::size_t depth) {
    auto* to = static_cast<V*>(out);
    const auto* x = static_cast<const Cell<V>*>(a);
    for (std::size_t r = 0; r < rows; ++r, x += stride)
        for (std::size_t c = 0; c < kPanelColumns; c += 4, to += 4) {
            V s0 = 0, s1 = 0, s2 = 0, s3 = 0;
            const V* y = static_cast<const V*>(panel) + c;
            for (std::size_t l = 0; l < depth; ++l, y += kPanelColumns) {
                const V f = x[l];
                s0 += f * y[0], s1 += f * y[1], s2 += f * y[2], s3 += f * y[3];
            }
            to[0] = s0, to[1] = s1, to[2] = s2, to[3] = s3;
        }
}

// 24 KiB of panel.
template <class V>
constexpr Backend kBackend{
    64, (24 << 10) / (kPanelColumns * sizeof(V)), 0, kPanelColumns * sizeof(V), nullptr, pack_b<V>, tile<V>};

}  // namespace

constinit const RingKernels portable_ring = {"portable", kBackend<u64>, kBackend<u128>};

}  // namespace ppca
