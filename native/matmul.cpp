#include "matmul.hpp"

namespace ppca {

namespace {

// Entry (i, j) of a packed triangle is at base(i) + j for j >= first(i); of a full matrix, likewise with first(i) = 0.
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
};

template <class Z>
void multiply(Z *out, const Z *a, const Z *b, std::size_t n, std::size_t k, Layout layout) {
    using V = value_of<Z>;
    const std::size_t m = layout.m;
    for (std::size_t i = 0; i < n; ++i) {
        Z *row = out + layout.base(i);
        const Z *x = a + i * k;
        std::size_t j = layout.first(i);
        for (; j + 4 <= m; j += 4) {
            V s0 = 0, s1 = 0, s2 = 0, s3 = 0;
            const Z *y = b + j;
            for (std::size_t l = 0; l < k; ++l, y += m) {
                const V f = x[l];
                s0 += f * y[0].value, s1 += f * y[1].value, s2 += f * y[2].value, s3 += f * y[3].value;
            }
            row[j] = s0, row[j + 1] = s1, row[j + 2] = s2, row[j + 3] = s3;
        }
        for (; j < m; ++j) {
            V s = 0;
            for (std::size_t l = 0; l < k; ++l) s += x[l].value * b[l * m + j].value;
            row[j] = s;
        }
    }
}

}  // namespace

template <class Z>
void matmul(Z *out, const Z *a, const Z *b, std::size_t batch, std::size_t n, std::size_t k, std::size_t m,
            bool a_shared, bool b_shared) {
    for (std::size_t i = 0; i < batch; ++i)
        multiply<Z>(out + i * n * m, a_shared ? a : a + i * n * k, b_shared ? b : b + i * k * m, n, k,
                    Layout{Part::full, m});
}

template <class Z>
void matmul_upper(Z *out, const Z *a, const Z *b, std::size_t n, std::size_t k, Part part) {
    multiply<Z>(out, a, b, n, k, Layout{part, n});
}

std::vector<std::string> ring_levels() { return {"portable"}; }
bool force_ring(const std::string &level) { return level == "auto" || level == "portable"; }

template void matmul<Z64>(Z64 *, const Z64 *, const Z64 *, std::size_t, std::size_t, std::size_t, std::size_t, bool, bool);
template void matmul<Z128>(Z128 *, const Z128 *, const Z128 *, std::size_t, std::size_t, std::size_t, std::size_t, bool, bool);
template void matmul_upper<Z64>(Z64 *, const Z64 *, const Z64 *, std::size_t, std::size_t, Part);
template void matmul_upper<Z128>(Z128 *, const Z128 *, const Z128 *, std::size_t, std::size_t, Part);

}  // namespace ppca
