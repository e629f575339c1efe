// The VAES level: two blocks per 256-bit register, eight registers in flight.
#pragma once

#include <immintrin.h>

#include "fss/aes_registers.hpp"

namespace ppca {
namespace {

struct Vaes {
    using Vec = __m256i;
    static constexpr const char* kName = "vaes";
    static constexpr int kBatch = 8;

    static Vec load(const void* p) { return _mm256_loadu_si256(static_cast<const Vec*>(p)); }
    static void store(void* p, Vec x) { _mm256_storeu_si256(static_cast<Vec*>(p), x); }
    template <class At> [[gnu::always_inline]] static Vec gather(At at) {
        return pair(_mm_loadu_si128(block(at(0))), _mm_loadu_si128(block(at(1))));
    }
    template <class At> [[gnu::always_inline]] static Vec gather64(At at) {
        return pair(_mm_loadl_epi64(block(at(0))), _mm_loadl_epi64(block(at(1))));
    }
    static Vec spread_block(const void* p) { return _mm256_broadcastsi128_si256(_mm_load_si128(block(p))); }
    static Vec counter(uint64_t lo, uint64_t hi) {
        const auto low = static_cast<long long>(lo);
        return _mm256_set_epi64x(static_cast<long long>(hi + 1), low, static_cast<long long>(hi), low);
    }
    static Vec spread(const uint32_t* w) {
        return pair(_mm_set1_epi32(static_cast<int>(w[0])), _mm_set1_epi32(static_cast<int>(w[1])));
    }
    static Vec low_word(uint64_t value) {
        const auto low = static_cast<long long>(value);
        return _mm256_set_epi64x(0, low, 0, low);
    }
    static Vec and_not(Vec mask, Vec a) { return _mm256_andnot_si256(mask, a); }
    static Vec shift_right(Vec x, Vec bits) { return _mm256_srlv_epi64(x, bits); }
    static Vec up64(Vec a) { return _mm256_slli_si256(a, 8); }
    static Vec round(Vec x, Vec key) { return _mm256_aesenc_epi128(x, key); }
    static Vec last(Vec x, Vec mask) { return _mm256_aesenclast_epi128(x, mask); }

private:
    static Vec pair(__m128i low, __m128i high) { return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1); }
    static const __m128i* block(const void* p) { return static_cast<const __m128i*>(p); }
};

using Cipher = RegisterCipher<Vaes>;

}  // namespace
}  // namespace ppca
