// Tiles with AVX2: 32-bit limbs and sums mod 2^64, whose overflow is recovered from sums in single precision.
//
// Split into 32-bit limbs, a product mod 2^128 is
//
//   c0 = a0 b0,  c1 = a0 b1 + a1 b0,  c2 = a0 b2 + a1 b1 + a2 b0,  c3 = a0 b3 + a1 b2 + a2 b1 + a3 b0
//
// weighted 1, 2^32, 2^64, 2^96. Sums over the inner dimension are kept per column c, mod 2^64 for c0..c2 (vpmuludq, 4
// lanes) and mod 2^32 for c3 (vpmulld, 8 lanes). That is enough for c2 and c3. For c0 and c1 the multiple of 2^64 that
// was lost is recovered from a second, approximate sum in single precision (one FMA on 8 lanes, a quarter of the
// cost of splitting the products): it is the integer nearest to (approximate - wrapped) / 2^64.
//
// That integer is correct if the error of the difference is below 2^63. A sum has at most N = 2 * depth = 144 terms,
// each below 2^64. Factors are converted as x >> 1 (AVX2 converts signed integers only; the sum is thus scaled by 1/4),
// with an error below 2^8, so the error of a term is below 2^42. Each of N additions rounds by at most N 2^64 2^-24.
// The total is N 2^42 + N^2 2^40 < 2^55. The high word of the wrapped sum, converted likewise, adds less than 2^42.
//
// Mod 2^64: c0 = a0 b0 mod 2^64, c1 = a0 b1 + a1 b0 mod 2^32, nothing to recover.
#include <immintrin.h>

#include <cstdint>

#include "ring/matmul_backend.hpp"

namespace ppca {

namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Limbs of ring elements in memory, aligned or not. Uses name the type: `auto` would drop the attributes.
typedef u32 __attribute__((aligned(1), may_alias)) u32u;
typedef u64 __attribute__((aligned(1), may_alias)) u64u;

// Unrolled early, so that arrays of accumulators indexed by the row become registers.
#define EACH_ROW _Pragma("GCC unroll 8")

inline __m256i load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
inline void store(void* p, __m256i x) { _mm256_store_si256(static_cast<__m256i*>(p), x); }
inline __m256i loadu(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m256i add(__m256i x, __m256i y) { return _mm256_add_epi64(x, y); }
inline __m256i odd_down(__m256i x) { return _mm256_srli_epi64(x, 32); }
inline __m256i low_word(__m256i x) { return _mm256_blend_epi32(x, _mm256_setzero_si256(), 0xaa); }
inline __m256i high_word(__m256i x) { return _mm256_blend_epi32(x, _mm256_setzero_si256(), 0x55); }
inline __m256 half(__m256i x) { return _mm256_cvtepi32_ps(_mm256_srli_epi32(x, 1)); }

// sum += x * y. Written as assembly because the compiler, given intrinsics, regroups these sums to shorten chains that
// are short already, and spills half of the accumulators (a factor of two in time).
inline void accumulate(__m256i& sum, __m256i x, __m256i y) {  // even 32-bit lanes, 64-bit sums
    __m256i product;
    asm("vpmuludq %3, %2, %1\n\tvpaddq %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(x), "xm"(y));
}
inline void accumulate32(__m256i& sum, __m256i x, __m256i y) {  // 8 lanes, mod 2^32
    __m256i product;
    asm("vpmulld %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(x), "xm"(y));
}
inline void accumulate(__m256& sum, __m256 x, __m256 y) { asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "xm"(y)); }

// A load that is repeated rather than kept: the compiler would keep it, and spill it.
inline __m256i fetch(const void* p) {
    __m256i x;
    asm volatile("vmovdqa %1, %0" : "=x"(x) : "m"(*static_cast<const __m256i*>(p)));
    return x;
}

// One 32-bit word in all lanes. vbroadcastss and not vpbroadcastd, which the compiler prefers: the latter also takes an
// arithmetic slot on AMD processors.
inline __m256i spread(const u32u& word) {
    __m256i x;
    asm("vbroadcastss %1, %0" : "=x"(x) : "m"(word));
    return x;
}

// ---- Z_2^128 -------------------------------------------------------------------------------------------------------

// One row of a panel. Columns are in the order 0 2 4 6 1 3 5 7, which falls out of the transposition.
struct alignas(32) Row128 {
    u32 limb[4][8];
    u32 odd[3][8];     // limbs 0..2 with the odd lanes moved to even ones, ready for vpmuludq
    float half[2][8];  // limbs 0, 1 divided by two
};

void prepare_a128(void* out, const void* a, std::size_t count) {
    auto* to = static_cast<float*>(out);
    const u32u* from = static_cast<const u32u*>(a);
    for (std::size_t i = 0; i < count; ++i) {
        to[2 * i] = static_cast<float>(static_cast<int>(from[4 * i] >> 1));
        to[2 * i + 1] = static_cast<float>(static_cast<int>(from[4 * i + 1] >> 1));
    }
}

void pack_b128(void* panel, const void* b, std::size_t stride, std::size_t columns, std::size_t depth) {
    auto* row = static_cast<Row128*>(panel);
    const auto* from = static_cast<const char*>(b);
    alignas(32) u64 padded[16] = {};
    for (std::size_t l = 0; l < depth; ++l, ++row, from += 16 * stride) {
        const char* source = from;
        if (columns < kPanelColumns) {
            for (std::size_t i = 0; i < 2 * columns; ++i) padded[i] = reinterpret_cast<const u64u*>(from)[i];
            source = reinterpret_cast<const char*>(padded);
        }
        const __m256i x01 = loadu(source), x23 = loadu(source + 32), x45 = loadu(source + 64), x67 = loadu(source + 96);
        const __m256i low0 = _mm256_unpacklo_epi32(x01, x23), low1 = _mm256_unpacklo_epi32(x45, x67);
        const __m256i high0 = _mm256_unpackhi_epi32(x01, x23), high1 = _mm256_unpackhi_epi32(x45, x67);
        const __m256i limb0 = _mm256_unpacklo_epi64(low0, low1), limb1 = _mm256_unpackhi_epi64(low0, low1);
        const __m256i limb2 = _mm256_unpacklo_epi64(high0, high1), limb3 = _mm256_unpackhi_epi64(high0, high1);
        store(row->limb[0], limb0);
        store(row->limb[1], limb1);
        store(row->limb[2], limb2);
        store(row->limb[3], limb3);
        store(row->odd[0], odd_down(limb0));
        store(row->odd[1], odd_down(limb1));
        store(row->odd[2], odd_down(limb2));
        _mm256_store_ps(row->half[0], half(limb0));
        _mm256_store_ps(row->half[1], half(limb1));
    }
}

// The multiples of 2^64 lost by the sums `even` and `odd`, in the lane order of `approximate` (scaled by 1/4).
inline __m256i lost(__m256 approximate, __m256i even, __m256i odd) {
    const __m256 wrapped = half(_mm256_blend_epi32(odd_down(even), odd, 0xaa));  // the high words, halved
    const __m256 multiple =
        _mm256_fmsub_ps(approximate, _mm256_set1_ps(0x1p-62f), _mm256_mul_ps(wrapped, _mm256_set1_ps(0x1p-31f)));
    return _mm256_cvtps_epi32(_mm256_round_ps(multiple, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Four results c0 + 2^32 c1 + 2^64 (q0 + q1), to columns 0 1 and 4 5 of out (the even lanes), or, from out + 4, to
// columns 2 3 and 6 7 (the odd ones).
inline void put_low(u64* out, __m256i c0, __m256i c1, __m256i q0, __m256i q1) {
    const __m256i sign = _mm256_set1_epi64x(static_cast<long long>(u64{1} << 63));  // AVX2 compares signed numbers only
    const __m256i middle = _mm256_slli_epi64(c1, 32), low = add(c0, middle);
    const __m256i carry = _mm256_cmpgt_epi64(_mm256_xor_si256(middle, sign), _mm256_xor_si256(low, sign));  // 0 or -1
    const __m256i high = _mm256_sub_epi64(add(odd_down(c1), add(q0, q1)), carry);
    store(out, _mm256_unpacklo_epi64(low, high));
    store(out + 8, _mm256_unpackhi_epi64(low, high));
}

// Adds 2^64 times four values to the results placed by put_low.
inline void add_high(u64* out, __m256i high) {
    const __m256i zero = _mm256_setzero_si256();
    store(out, add(load(out), _mm256_unpacklo_epi64(zero, high)));
    store(out + 8, add(load(out + 8), _mm256_unpackhi_epi64(zero, high)));
}

// sum[r] += x[r] * y for R rows, y read once.
template <int R> inline void accumulate_rows(__m256i* sum, const __m256i* x, const u32* y) {
    const __m256i operand = fetch(y);
    EACH_ROW for (int r = 0; r < R; ++r) accumulate(sum[r], x[r], operand);
}
template <int R> inline void accumulate_rows(__m256* sum, const __m256* x, const float* y) {
    const __m256 operand = _mm256_castsi256_ps(fetch(y));
    EACH_ROW for (int r = 0; r < R; ++r) accumulate(sum[r], x[r], operand);
}

// out[r] = c0 + 2^32 c1 for R rows.
template <int R>
inline void low_columns(u64* out, const u32u* a, const float* f, std::size_t stride, const Row128* row,
                        std::size_t depth) {
    __m256i c0e[R], c0o[R], c1e[R], c1o[R];
    __m256 s0[R], s1[R];
    EACH_ROW for (int r = 0; r < R; ++r) {
        c0e[r] = c0o[r] = c1e[r] = c1o[r] = _mm256_setzero_si256();
        s0[r] = s1[r] = _mm256_setzero_ps();
    }
    for (std::size_t l = 0; l < depth; ++l, ++row) {
        // Registers are scarce: 6 R accumulators. This order keeps the operands of b for all rows, and R words of a.
        __m256i x[R];
        EACH_ROW for (int r = 0; r < R; ++r) x[r] = spread(a[4 * (r * stride + l)]);
        accumulate_rows<R>(c0e, x, row->limb[0]);
        accumulate_rows<R>(c0o, x, row->odd[0]);
        accumulate_rows<R>(c1e, x, row->limb[1]);
        accumulate_rows<R>(c1o, x, row->odd[1]);
        EACH_ROW for (int r = 0; r < R; ++r) x[r] = spread(a[4 * (r * stride + l) + 1]);
        accumulate_rows<R>(c1e, x, row->limb[0]);
        accumulate_rows<R>(c1o, x, row->odd[0]);
        __m256 y[R];
        EACH_ROW for (int r = 0; r < R; ++r) y[r] = _mm256_broadcast_ss(f + 2 * (r * stride + l));
        accumulate_rows<R>(s0, y, row->half[0]);
        accumulate_rows<R>(s1, y, row->half[1]);
        EACH_ROW for (int r = 0; r < R; ++r) y[r] = _mm256_broadcast_ss(f + 2 * (r * stride + l) + 1);
        accumulate_rows<R>(s1, y, row->half[0]);
    }
    EACH_ROW for (int r = 0; r < R; ++r) {
        const __m256i q0 = lost(s0[r], c0e[r], c0o[r]), q1 = lost(s1[r], c1e[r], c1o[r]);
        u64* to = out + 16 * r;
        put_low(to, c0e[r], c1e[r], low_word(q0), _mm256_slli_epi64(q1, 32));
        put_low(to + 4, c0o[r], c1o[r], odd_down(q0), high_word(q1));
    }
}

// out[r] += 2^64 c2 + 2^96 c3 for R rows.
template <int R>
inline void high_columns(u64* out, const u32u* a, std::size_t stride, const Row128* row, std::size_t depth) {
    __m256i c2e[R], c2o[R], c3[R];
    EACH_ROW for (int r = 0; r < R; ++r) c2e[r] = c2o[r] = c3[r] = _mm256_setzero_si256();
    for (std::size_t l = 0; l < depth; ++l, ++row) {
        EACH_ROW for (int r = 0; r < R; ++r) {
            const __m256i a0 = spread(a[4 * (r * stride + l)]);
            accumulate(c2e[r], a0, load(row->limb[2]));
            accumulate(c2o[r], a0, load(row->odd[2]));
            accumulate32(c3[r], a0, load(row->limb[3]));
        }
        EACH_ROW for (int r = 0; r < R; ++r) {
            const __m256i a1 = spread(a[4 * (r * stride + l) + 1]);
            accumulate(c2e[r], a1, load(row->limb[1]));
            accumulate(c2o[r], a1, load(row->odd[1]));
            accumulate32(c3[r], a1, load(row->limb[2]));
        }
        EACH_ROW for (int r = 0; r < R; ++r) {
            const __m256i a2 = spread(a[4 * (r * stride + l) + 2]);
            accumulate(c2e[r], a2, load(row->limb[0]));
            accumulate(c2o[r], a2, load(row->odd[0]));
            accumulate32(c3[r], a2, load(row->limb[1]));
        }
        EACH_ROW for (int r = 0; r < R; ++r) {
            accumulate32(c3[r], spread(a[4 * (r * stride + l) + 3]), load(row->limb[0]));
        }
    }
    EACH_ROW for (int r = 0; r < R; ++r) {
        u64* to = out + 16 * r;
        add_high(to, add(c2e[r], _mm256_slli_epi64(c3[r], 32)));
        add_high(to + 4, add(c2o[r], high_word(c3[r])));
    }
}

// One pass over the rows for c0 and c1, then one for c2 and c3: each has registers for as many rows as it can use, and
// reads about two thirds of the panel, which then stays in the first-level cache.
void tile128(void* out, const void* a, const void* prepared, std::size_t stride, std::size_t rows, const void* panel,
             std::size_t depth) {
    const u32u* x = static_cast<const u32u*>(a);
    const auto* f = static_cast<const float*>(prepared);
    auto* to = static_cast<u64*>(out);
    const auto* p = static_cast<const Row128*>(panel);
    std::size_t r = 0;
    for (; r + 2 <= rows; r += 2) low_columns<2>(to + 16 * r, x + 4 * r * stride, f + 2 * r * stride, stride, p, depth);
    if (r < rows) low_columns<1>(to + 16 * r, x + 4 * r * stride, f + 2 * r * stride, stride, p, depth);
    for (r = 0; r + 4 <= rows; r += 4) high_columns<4>(to + 16 * r, x + 4 * r * stride, stride, p, depth);
    to += 16 * r, x += 4 * r * stride;
    switch (rows - r) {
        case 3: return high_columns<3>(to, x, stride, p, depth);
        case 2: return high_columns<2>(to, x, stride, p, depth);
        case 1: return high_columns<1>(to, x, stride, p, depth);
    }
}

// ---- Z_2^64 --------------------------------------------------------------------------------------------------------

// One row of a panel, columns in the order 0 1 4 5 2 3 6 7.
struct alignas(32) Row64 {
    u32 low[8];
    u32 odd[8];  // low with the odd lanes moved to even ones
    u32 high[8];
};

void pack_b64(void* panel, const void* b, std::size_t stride, std::size_t columns, std::size_t depth) {
    auto* row = static_cast<Row64*>(panel);
    const auto* from = static_cast<const char*>(b);
    alignas(32) u64 padded[8] = {};
    for (std::size_t l = 0; l < depth; ++l, ++row, from += 8 * stride) {
        const char* source = from;
        if (columns < kPanelColumns) {
            for (std::size_t i = 0; i < columns; ++i) padded[i] = reinterpret_cast<const u64u*>(from)[i];
            source = reinterpret_cast<const char*>(padded);
        }
        const __m256 x = _mm256_castsi256_ps(loadu(source)), y = _mm256_castsi256_ps(loadu(source + 32));
        const __m256i low = _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88));
        store(row->low, low);
        store(row->odd, odd_down(low));
        store(row->high, _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)));
    }
}

template <int R>
inline void tile64_of(u64* out, const u32u* a, std::size_t stride, const Row64* row, std::size_t depth) {
    __m256i c0e[R], c0o[R], c1[R];
    EACH_ROW for (int r = 0; r < R; ++r) c0e[r] = c0o[r] = c1[r] = _mm256_setzero_si256();
    for (std::size_t l = 0; l < depth; ++l, ++row) {
        const __m256i low = load(row->low), odd = load(row->odd);
        EACH_ROW for (int r = 0; r < R; ++r) {
            const __m256i a0 = spread(a[2 * (r * stride + l)]);
            accumulate(c0e[r], a0, low);
            accumulate(c0o[r], a0, odd);
            accumulate32(c1[r], a0, load(row->high));
            accumulate32(c1[r], spread(a[2 * (r * stride + l) + 1]), low);
        }
    }
    EACH_ROW for (int r = 0; r < R; ++r) {
        const __m256i even = add(c0e[r], _mm256_slli_epi64(c1[r], 32));
        const __m256i odd = add(c0o[r], high_word(c1[r]));
        store(out + 8 * r, _mm256_unpacklo_epi64(even, odd));
        store(out + 8 * r + 4, _mm256_unpackhi_epi64(even, odd));
    }
}

void tile64(void* out, const void* a, const void*, std::size_t stride, std::size_t rows, const void* panel,
            std::size_t depth) {
    const u32u* x = static_cast<const u32u*>(a);
    auto* to = static_cast<u64*>(out);
    const auto* p = static_cast<const Row64*>(panel);
    for (; rows >= 4; rows -= 4, to += 32, x += 8 * stride) tile64_of<4>(to, x, stride, p, depth);
    switch (rows) {
        case 3: return tile64_of<3>(to, x, stride, p, depth);
        case 2: return tile64_of<2>(to, x, stride, p, depth);
        case 1: return tile64_of<1>(to, x, stride, p, depth);
    }
}

}  // namespace

constinit const RingKernels avx2_ring = {"avx2",
                                         {64, 256, 0, sizeof(Row64), nullptr, pack_b64, tile64},
                                         {64, 72, 2 * sizeof(float), sizeof(Row128), prepare_a128, pack_b128, tile128}};

}  // namespace ppca
