// The VAES level: two blocks per 256-bit register, eight registers in flight. Members as in aes_portable.hpp.
#pragma once

#include <immintrin.h>

#include "aes.hpp"

namespace ppca {
namespace {

struct AvxCipher {
    using Vec = __m256i;
    static constexpr int kWidth = 2;
    static constexpr int kBatch = 8;
    static constexpr const char* kName = "vaes";

    struct Context {
        Vec key[11];
        explicit Context(const Schedule& schedule) {
            for (int round = 0; round < 11; ++round)
                key[round] = _mm256_broadcastsi128_si256(
                    _mm_load_si128(reinterpret_cast<const __m128i*>(schedule.round_key[round])));
        }
    };

    static Vec zero() { return _mm256_setzero_si256(); }
    static Vec load(const Block* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static void store(Block* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
    static Vec gather(const uint8_t* const* p, size_t at) {
        return _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p[0] + at))),
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(p[1] + at)), 1);
    }
    static Vec gather64(const uint8_t* const* p, size_t at) {
        return _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p[0] + at))),
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p[1] + at)), 1);
    }
    static Vec counter(uint64_t lo, uint64_t hi) {
        const auto low = static_cast<long long>(lo);
        return _mm256_set_epi64x(static_cast<long long>(hi + 1), low, static_cast<long long>(hi), low);
    }
    static Vec spread(const uint32_t* w) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi32(static_cast<int>(w[0]))),
                                       _mm_set1_epi32(static_cast<int>(w[1])), 1);
    }
    static Vec next_bit(Vec& path) {
        const Vec bit = _mm256_srai_epi32(path, 31);
        path = _mm256_add_epi32(path, path);
        return bit;
    }
    static Vec bit_xor(Vec a, Vec b) { return _mm256_xor_si256(a, b); }
    static Vec bit_and(Vec a, Vec b) { return _mm256_and_si256(a, b); }
    static Vec and_not(Vec mask, Vec a) { return _mm256_andnot_si256(mask, a); }
    static Vec low_word(uint64_t value) {
        const auto low = static_cast<long long>(value);
        return _mm256_set_epi64x(0, low, 0, low);
    }
    static Vec all_ones() { return _mm256_set1_epi32(-1); }
    static Vec tweak(Vec bit) { return _mm256_and_si256(bit, low_word(1)); }
    static Vec control(Vec x, Vec bit) {
        const Vec which = _mm256_sub_epi32(_mm256_set1_epi32(1), bit);  // 1 or 2
        return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_shuffle_epi32(x, 0), which), which);
    }
    static Vec clear(Vec x) { return _mm256_andnot_si256(low_word(3), x); }
    static Vec add64(Vec a, Vec b) { return _mm256_add_epi64(a, b); }
    static Vec low32(Vec a) { return _mm256_and_si256(a, _mm256_set1_epi64x(0xffffffff)); }
    static Vec high32(Vec a) { return _mm256_srli_epi64(a, 32); }

    static void encrypt(const Context& context, Vec* x) {
        Vec s[kBatch];
        for (int i = 0; i < kBatch; ++i) s[i] = _mm256_xor_si256(x[i], context.key[0]);
#pragma GCC unroll 9
        for (int round = 1; round < 10; ++round)
#pragma GCC unroll 8
            for (int i = 0; i < kBatch; ++i) s[i] = _mm256_aesenc_epi128(s[i], context.key[round]);
        for (int i = 0; i < kBatch; ++i) x[i] = _mm256_aesenclast_epi128(s[i], context.key[10]);
    }

    // The feed-forward costs nothing in the chain: AES ends with the xor of the last round key, so that key takes the input.
    static void hash(const Context& context, Vec* x) {
        Vec s[kBatch];
        for (int i = 0; i < kBatch; ++i) s[i] = _mm256_xor_si256(x[i], context.key[0]);
#pragma GCC unroll 9
        for (int round = 1; round < 10; ++round)
#pragma GCC unroll 8
            for (int i = 0; i < kBatch; ++i) s[i] = _mm256_aesenc_epi128(s[i], context.key[round]);
        for (int i = 0; i < kBatch; ++i)
            x[i] = _mm256_aesenclast_epi128(s[i], _mm256_xor_si256(x[i], context.key[10]));
    }
};

}  // namespace
}  // namespace ppca
