// Matrix products cut into tiles: levels, panels, packed triangles, threads.
#include "ring/matmul.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>

#include "process/threads.hpp"
#include "ring/matmul_backend.hpp"

namespace ppca {

namespace {

// ---- levels --------------------------------------------------------------------------------------------------------

std::vector<const RingKernels*> usable() {
    std::vector<const RingKernels*> levels;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2"))
        levels.push_back(&avx512ifma_ring);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        levels.push_back(&avx2_ring);
#endif
    levels.push_back(&portable_ring);
    levels.push_back(&emulated_ifma_ring);
    return levels;
}

// ---- one product ---------------------------------------------------------------------------------------------------

// Storage of entry (i, j) of a product of m columns: at base(i) + j, for j >= first(i).
struct Layout {
    Part part;
    std::size_t m;
    std::size_t first(std::size_t i) const { return part == Part::full ? 0 : part == Part::upper ? i : i + 1; }
    std::ptrdiff_t base(std::size_t i) const {
        const auto row = static_cast<std::ptrdiff_t>(i), width = static_cast<std::ptrdiff_t>(m);
        if (part == Part::full) return row * width;
        if (part == Part::upper) return row * width - row * (row + 1) / 2;
        return row * width - row * (row + 3) / 2 - 1;
    }
    // Rows that have an entry in some column below `end`.
    std::size_t rows(std::size_t n, std::size_t end) const {
        if (part == Part::full) return n;
        return std::min(n, part == Part::upper ? end : end - 1);
    }
};

struct Range {
    std::size_t begin, end;
};

template <class Z> struct Product {
    Z* out;
    const Z *a, *b;
    std::size_t n, k;
    Layout layout;
};

template <class Z> void multiply_scalar(const Product<Z>& p, Range rows, Range columns) {
    using V = value_of<Z>;
    const std::size_t m = p.layout.m, k = p.k;
    for (std::size_t i = rows.begin; i < rows.end; ++i) {
        Z* row = p.out + p.layout.base(i);
        const Z* x = p.a + i * k;
        std::size_t j = std::max(columns.begin, p.layout.first(i));
        for (; j + 4 <= columns.end; j += 4) {
            V s0 = 0, s1 = 0, s2 = 0, s3 = 0;
            const Z* y = p.b + j;
            for (std::size_t l = 0; l < k; ++l, y += m) {
                const V f = x[l];
                s0 += f * y[0].value, s1 += f * y[1].value, s2 += f * y[2].value, s3 += f * y[3].value;
            }
            row[j] = s0, row[j + 1] = s1, row[j + 2] = s2, row[j + 3] = s3;
        }
        for (; j < columns.end; ++j) {
            V s0 = 0, s1 = 0;  // two chains: an addition with carry has a latency of two cycles
            const Z* y = p.b + j;
            std::size_t l = 0;
            for (; l + 2 <= k; l += 2) s0 += x[l].value * y[l * m].value, s1 += x[l + 1].value * y[(l + 1) * m].value;
            if (l < k) s0 += x[l].value * y[l * m].value;
            row[j] = s0 + s1;
        }
    }
}

// Aligned memory kept per thread and purpose, as products come in long series of the same size. Null if there is none.
enum Purpose { prepared_a, packed_b, purposes };
unsigned char* scratch(Purpose purpose, std::size_t bytes) {
    struct Free {
        void operator()(unsigned char* p) const { std::free(p); }
    };
    struct Memory {
        std::unique_ptr<unsigned char, Free> bytes;
        std::size_t size = 0;
    };
    thread_local Memory memories[purposes];
    Memory& memory = memories[purpose];
    if (bytes > memory.size) {
        const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
        memory.size = 0;
        memory.bytes.reset();
        memory.bytes.reset(static_cast<unsigned char*>(std::aligned_alloc(64, rounded)));
        if (memory.bytes) memory.size = rounded;
    }
    return memory.bytes.get();
}

constexpr std::size_t kMostRows = 64;     // maximum number of rows of a tile, over all backends
constexpr std::size_t kPanelsAtOnce = 4;  // packed and used together, so that a is read less often

// Packs a few panels and multiplies them with blocks of rows: one panel at a time is in the first-level cache, all of
// them and the block of rows in the second-level cache.
template <class Z>
void multiply_panels(const Product<Z>& p, const Backend& backend, const unsigned char* prepared, Range rows,
                     Range columns) {
    const std::size_t m = p.layout.m, k = p.k;
    const std::size_t steps = (k + backend.depth - 1) / backend.depth, depth = (k + steps - 1) / steps;
    const std::size_t panel_bytes = (depth * backend.b_bytes + 63) / 64 * 64;
    unsigned char* panels = scratch(packed_b, kPanelsAtOnce * panel_bytes);
    if (!panels) return multiply_scalar(p, rows, columns);
    alignas(64) unsigned char tile_bytes[kMostRows * kPanelColumns * sizeof(Z)];
    const Z* tile = reinterpret_cast<const Z*>(tile_bytes);
    for (std::size_t g0 = columns.begin; g0 < columns.end; g0 += kPanelsAtOnce * kPanelColumns) {
        const std::size_t g1 = std::min(g0 + kPanelsAtOnce * kPanelColumns, columns.end);
        for (std::size_t l0 = 0; l0 < k; l0 += depth) {
            const std::size_t here = std::min(depth, k - l0);
            unsigned char* panel = panels;
            for (std::size_t j0 = g0; j0 < g1; j0 += kPanelColumns, panel += panel_bytes)
                backend.pack_b(panel, p.b + l0 * m + j0, m, std::min(kPanelColumns, g1 - j0), here);
            for (std::size_t i0 = rows.begin; i0 < rows.end; i0 += backend.rows) {
                panel = panels;
                for (std::size_t j0 = g0; j0 < g1; j0 += kPanelColumns, panel += panel_bytes) {
                    const std::size_t j1 = std::min(j0 + kPanelColumns, g1);
                    const std::size_t last = std::min({rows.end, i0 + backend.rows, p.layout.rows(p.n, j1)});
                    if (last <= i0) continue;
                    const std::size_t at = i0 * k + l0;
                    backend.tile(tile_bytes, p.a + at, prepared + at * backend.a_bytes, k, last - i0, panel, here);
                    for (std::size_t i = i0; i < last; ++i) {
                        Z* row = p.out + p.layout.base(i);
                        const Z* from = tile + (i - i0) * kPanelColumns;
                        const std::size_t j = std::max(j0, p.layout.first(i));
                        if (l0 == 0)
                            for (std::size_t c = j; c < j1; ++c) row[c] = from[c - j0].value;
                        else
                            for (std::size_t c = j; c < j1; ++c) row[c].value += from[c - j0].value;
                    }
                }
            }
        }
    }
}

// Minimum sizes for which packing saves time, and maximum number of left-over columns that are faster one by one.
constexpr std::size_t kLeastRows = 4, kLeastColumns = 6, kLeastDepth = 4;
template <class Z> constexpr std::size_t kLooseColumns = sizeof(Z) == 16 ? 3 : 2;

constexpr std::size_t kPrepared = 1 << 16;  // elements of a that are prepared by one thread at a time

// pieces(n, grain, f) is parallel_for, or a plain call of f.
template <class Z, class Pieces> void multiply(const Product<Z>& p, const Backend& backend, Pieces&& pieces) {
    const std::size_t n = p.n, m = p.layout.m;
    std::size_t paneled = 0;  // columns done in panels, the rest one by one
    if (n >= kLeastRows && m >= kLeastColumns && p.k >= kLeastDepth)
        paneled = m % kPanelColumns > kLooseColumns<Z> ? m : m - m % kPanelColumns;
    unsigned char* prepared = nullptr;
    if (paneled && backend.a_bytes) {
        prepared = scratch(prepared_a, n * p.k * backend.a_bytes);
        if (prepared)
            pieces(n, std::max<std::size_t>(64, kPrepared / p.k), [&](std::size_t begin, std::size_t end) {
                backend.prepare_a(prepared + begin * p.k * backend.a_bytes, p.a + begin * p.k, (end - begin) * p.k);
            });
        else paneled = 0;  // slower, but without extra memory
    }
    auto region = [&](Range rows, Range columns) {
        if (columns.begin < paneled)
            multiply_panels(p, backend, prepared, rows, {columns.begin, std::min(columns.end, paneled)});
        if (columns.end > paneled) multiply_scalar(p, rows, {std::max(columns.begin, paneled), columns.end});
    };
    if (m >= 8 * kPanelColumns)
        pieces((m + kPanelColumns - 1) / kPanelColumns, 2, [&](std::size_t begin, std::size_t end) {
            region({0, n}, {begin * kPanelColumns, std::min(m, end * kPanelColumns)});
        });
    else pieces(n, 64, [&](std::size_t begin, std::size_t end) { region({begin, end}, {0, m}); });
}

struct Inline {
    template <class F> void operator()(std::size_t n, std::size_t, F&& f) const { f(std::size_t{0}, n); }
};
struct Threaded {
    template <class F> void operator()(std::size_t n, std::size_t grain, F&& f) const { parallel_for(n, grain, f); }
};

// Whether a product of this many multiply-adds is worth a second thread (about 200 microseconds).
template <class Z> bool worth_threads(std::size_t operations) {
    return threads() > 1 && operations > (sizeof(Z) == 16 ? 400'000 : 1'500'000);
}

template <class Z> const Backend& current_backend() {
    const RingKernels& kernels = ring_levels.current();
    return sizeof(Z) == 16 ? kernels.limbs2 : kernels.limbs1;
}

}  // namespace

Levels<RingKernels> ring_levels(usable());

template <class Z>
void matmul(Z* out, const Z* a, const Z* b, std::size_t batch, std::size_t n, std::size_t k, std::size_t m,
            bool a_shared, bool b_shared) {
    if (b_shared && !a_shared) n *= batch, batch = std::min<std::size_t>(batch, 1);  // one tall product
    if (batch == 0 || n == 0 || m == 0) return;
    const Backend& backend = current_backend<Z>();
    auto product = [&](std::size_t i) {
        return Product<Z>{out + i * n * m,      a_shared ? a : a + i * n * k, b_shared ? b : b + i * k * m, n, k,
                          Layout{Part::full, m}};
    };
    if (!worth_threads<Z>(batch * n * k * m)) {
        for (std::size_t i = 0; i < batch; ++i) multiply(product(i), backend, Inline{});
    } else if (batch >= threads()) {
        parallel_for(batch, (batch + 8 * threads() - 1) / (8 * threads()), [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i) multiply(product(i), backend, Inline{});
        });
    } else {
        for (std::size_t i = 0; i < batch; ++i) multiply(product(i), backend, Threaded{});
    }
}

template <class Z> void matmul_upper(Z* out, const Z* a, const Z* b, std::size_t n, std::size_t k, Part part) {
    if (n == 0) return;
    const Backend& backend = current_backend<Z>();
    const Product<Z> product{out, a, b, n, k, Layout{part, n}};
    if (worth_threads<Z>(n * n * k / 2)) multiply(product, backend, Threaded{});
    else multiply(product, backend, Inline{});
}

#define PPCA_INSTANTIATE(Z)                                                                                          \
    template void matmul<Z>(Z*, const Z*, const Z*, std::size_t, std::size_t, std::size_t, std::size_t, bool, bool); \
    template void matmul_upper<Z>(Z*, const Z*, const Z*, std::size_t, std::size_t, Part);
PPCA_INSTANTIATE(Z64)
PPCA_INSTANTIATE(Z128)
#undef PPCA_INSTANTIATE

}  // namespace ppca
