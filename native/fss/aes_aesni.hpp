// The AES-NI level: one block per 128-bit register, ten registers in flight.
#pragma once

#include <nmmintrin.h>
#include <wmmintrin.h>

#include "fss/aes_registers.hpp"

namespace ppca {
namespace {

struct AesNi {
    using Vec = __m128i;
    static constexpr const char* kName = "aesni";
    static constexpr int kBatch = 10;

    static Vec load(const void* p) { return _mm_loadu_si128(static_cast<const Vec*>(p)); }
    static void store(void* p, Vec x) { _mm_storeu_si128(static_cast<Vec*>(p), x); }
    template <class At> [[gnu::always_inline]] static Vec gather(At at) { return load(at(0)); }
    template <class At> [[gnu::always_inline]] static Vec gather64(At at) {
        return _mm_loadl_epi64(static_cast<const Vec*>(static_cast<const void*>(at(0))));
    }
    static Vec spread_block(const void* p) { return load(p); }
    static Vec counter(uint64_t lo, uint64_t hi) {
        return _mm_set_epi64x(static_cast<long long>(hi), static_cast<long long>(lo));
    }
    static Vec spread(const uint32_t* w) { return _mm_set1_epi32(static_cast<int>(w[0])); }
    static Vec low_word(uint64_t value) { return counter(value, 0); }
    // (The compiler would turn ~mask & a into more than one instruction if the mask is a comparison.)
    static Vec and_not(Vec mask, Vec a) { return _mm_andnot_si128(mask, a); }
    static Vec shift_right(Vec x, Vec bits) { return _mm_srl_epi64(x, bits); }
    static Vec up64(Vec a) { return _mm_slli_si128(a, 8); }
    static Vec round(Vec x, Vec key) { return _mm_aesenc_si128(x, key); }
    static Vec last(Vec x, Vec mask) { return _mm_aesenclast_si128(x, mask); }
};

using Cipher = RegisterCipher<AesNi>;

}  // namespace
}  // namespace ppca
