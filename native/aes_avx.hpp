// The VAES level: two blocks per 256-bit register, eight registers in flight. Members as in aes_portable.hpp.
#pragma once

#include <immintrin.h>

#include <type_traits>
#include <utility>

#include "aes.hpp"

namespace ppca {
namespace {

struct AvxCipher {
    using Vec = __m256i;
    static constexpr int kWidth = 2;
    static constexpr int kBatch = 8, kFlight = 8;

    template <int N, class F>
    [[gnu::always_inline]] static void each(F f) {
        unroll(f, std::make_integer_sequence<int, N>());
    }

    struct Context {
        Vec key[11];
        explicit Context(const Schedule& schedule) {
            for (int round = 0; round < 11; ++round)
                key[round] = _mm256_broadcastsi128_si256(
                    _mm_load_si128(reinterpret_cast<const __m128i*>(schedule.round_key[round])));
        }
    };

    static Vec zero() { return _mm256_setzero_si256(); }
    static Vec load(const void* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static void store(void* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
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
    static Vec test(Vec word, int i) {
        const Vec bit = _mm256_set1_epi32(static_cast<int>(0x80000000u >> i));
        return _mm256_cmpeq_epi32(_mm256_and_si256(word, bit), bit);
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
    static Vec high32(Vec a) { return _mm256_srli_epi64(a, 32); }

    template <int N>
    [[gnu::always_inline]] static void park(Vec (&x)[N]) {
        asm volatile("" : : "r"(x) : "memory");
    }

    // A mask costs nothing in the chain of rounds: AES ends with the xor of the last round key, so that key takes the
    // mask.
    [[gnu::always_inline]] static void rounds(const Context& context, Vec (&x)[kFlight]) {
        each<kFlight>([&](auto i) INLINE_LAMBDA { x[i] = _mm256_xor_si256(x[i], context.key[0]); });
        each<9>([&](auto round) INLINE_LAMBDA {
            const Vec key = in_register(context.key[round + 1]);
            each<kFlight>([&](auto i) INLINE_LAMBDA { x[i] = _mm256_aesenc_epi128(x[i], key); });
        });
    }
    static Vec last(const Context& context, Vec x, Vec mask) {
        return _mm256_aesenclast_epi128(x, _mm256_xor_si256(mask, context.key[10]));
    }

private:
    // Left alone, the compiler keeps some round keys in registers and loads the others once per block instead of once
    // per round, which makes the two load ports the bottleneck.
    [[gnu::always_inline]] static Vec in_register(Vec key) {
        asm volatile("" : "+x"(key));
        return key;
    }

    template <class F, int... I>
    [[gnu::always_inline]] static void unroll(F& f, std::integer_sequence<int, I...>) {
        (f(std::integral_constant<int, I>()), ...);
    }
};

}  // namespace
}  // namespace ppca
