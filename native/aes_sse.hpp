// The AES-NI level: one block per 128-bit register, eight registers in flight. Members as in aes_portable.hpp.
#pragma once

#include <smmintrin.h>
#include <wmmintrin.h>

#include <type_traits>
#include <utility>

#include "aes.hpp"

namespace ppca {
namespace {

struct SseCipher {
    using Vec = __m128i;
    static constexpr int kWidth = 1;
    static constexpr int kBatch = 8, kFlight = 8;

    template <int N, class F>
    [[gnu::always_inline]] static void each(F f) {
        unroll(f, std::make_integer_sequence<int, N>());
    }

    struct Context {
        Vec key[11];
        explicit Context(const Schedule& schedule) {
            for (int round = 0; round < 11; ++round)
                key[round] = _mm_load_si128(reinterpret_cast<const __m128i*>(schedule.round_key[round]));
        }
    };

    static Vec zero() { return _mm_setzero_si128(); }
    static Vec load(const void* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
    static void store(void* p, Vec x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x); }
    static Vec gather(const uint8_t* const* p, size_t at) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p[0] + at));
    }
    static Vec gather64(const uint8_t* const* p, size_t at) {
        return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p[0] + at));
    }
    static Vec counter(uint64_t lo, uint64_t hi) {
        return _mm_set_epi64x(static_cast<long long>(hi), static_cast<long long>(lo));
    }
    static Vec spread(const uint32_t* w) { return _mm_set1_epi32(static_cast<int>(w[0])); }
    static Vec test(Vec word, int i) {
        const Vec bit = _mm_set1_epi32(static_cast<int>(0x80000000u >> i));
        return _mm_cmpeq_epi32(_mm_and_si128(word, bit), bit);
    }
    static Vec bit_xor(Vec a, Vec b) { return _mm_xor_si128(a, b); }
    static Vec bit_and(Vec a, Vec b) { return _mm_and_si128(a, b); }
    static Vec and_not(Vec mask, Vec a) { return _mm_andnot_si128(mask, a); }
    static Vec low_word(uint64_t value) { return _mm_set_epi64x(0, static_cast<long long>(value)); }
    static Vec all_ones() { return _mm_set1_epi32(-1); }
    static Vec tweak(Vec bit) { return _mm_and_si128(bit, low_word(1)); }
    static Vec control(Vec x, Vec bit) {
        const Vec which = _mm_sub_epi32(_mm_set1_epi32(1), bit);  // 1 or 2
        return _mm_cmpeq_epi32(_mm_and_si128(_mm_shuffle_epi32(x, 0), which), which);
    }
    static Vec clear(Vec x) { return _mm_andnot_si128(low_word(3), x); }
    static Vec add64(Vec a, Vec b) { return _mm_add_epi64(a, b); }
    static Vec high32(Vec a) { return _mm_srli_epi64(a, 32); }

    template <int N>
    [[gnu::always_inline]] static void park(Vec (&x)[N]) {
        asm volatile("" : : "r"(x) : "memory");
    }

    // A mask costs nothing in the chain of rounds: AES ends with the xor of the last round key, so that key takes the
    // mask.
    [[gnu::always_inline]] static void rounds(const Context& context, Vec (&x)[kFlight]) {
        each<kFlight>([&](auto i) INLINE_LAMBDA { x[i] = _mm_xor_si128(x[i], context.key[0]); });
        each<9>([&](auto round) INLINE_LAMBDA {
            const Vec key = in_register(context.key[round + 1]);
            each<kFlight>([&](auto i) INLINE_LAMBDA { x[i] = _mm_aesenc_si128(x[i], key); });
        });
    }
    static Vec last(const Context& context, Vec x, Vec mask) {
        return _mm_aesenclast_si128(x, _mm_xor_si128(mask, context.key[10]));
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
