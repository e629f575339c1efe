// The AES-NI level: one block per 128-bit register, ten registers in flight. Members as in aes_portable.hpp.
#pragma once

#include <nmmintrin.h>
#include <wmmintrin.h>

#include <type_traits>
#include <utility>

#include "aes.hpp"
#include "sides.hpp"

namespace ppca {
namespace {

struct Cipher {
    static constexpr const char* kName = "aesni";
    using Vec = __m128i;
    static constexpr int kWidth = 1;
    static constexpr int kBatch = 10;
    static constexpr uint8_t kSide = 16;

    template <int N, class F> [[gnu::always_inline]] static void each(F f) {
        unroll(f, std::make_integer_sequence<int, N>());
    }

    struct Context {
        Vec first, inner[9], last;
        explicit Context(const Schedule& schedule) {
            const auto key = [&](int round) {
                const auto* p = reinterpret_cast<const __m128i*>(schedule.round_key[round]);
                return _mm_load_si128(p);
            };
            first = key(0);
            for (int round = 0; round < 9; ++round) inner[round] = key(round + 1);
            last = key(10);
        }
    };

    static Vec zero() { return _mm_setzero_si128(); }
    static Vec load(const void* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
    static void store(void* p, Vec x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x); }
    template <class At> [[gnu::always_inline]] static Vec gather(At at) { return load(at(0)); }
    template <class At> [[gnu::always_inline]] static Vec gather64(At at) {
        return _mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(at(0))));
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
    static Vec control(Vec x) { return _mm_cmpgt_epi64(zero(), x); }
    static Vec halve(Vec x) { return _mm_srli_epi64(x, 1); }
    static Vec halve(Vec x, uint8_t side) { return _mm_srl_epi64(x, entry(side_tables<kWidth>.shift, side)); }
    static Vec mask(uint8_t side) { return entry(side_tables<kWidth>.mask, side); }
    static Vec add64(Vec a, Vec b) { return _mm_add_epi64(a, b); }
    static Vec sub64(Vec a, Vec b) { return _mm_sub_epi64(a, b); }
    static Vec full64(Vec a) { return _mm_cmpeq_epi64(a, all_ones()); }
    static Vec up64(Vec a) { return _mm_slli_si128(a, 8); }
    static Vec high32(Vec a) { return _mm_srli_epi64(a, 32); }

    [[gnu::always_inline]] static void rounds(const Context& context, Vec (&x)[kBatch]) {
        each<9>([&](auto round) INLINE_LAMBDA {
            const Vec key = in_register(context.inner[round]);
            each<kBatch>([&](auto i) INLINE_LAMBDA { x[i] = _mm_aesenc_si128(x[i], key); });
        });
    }
    static Vec last(Vec x, Vec mask) { return _mm_aesenclast_si128(x, mask); }

private:
    static Vec entry(const void* table, uint8_t side) {
        return _mm_load_si128(reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(table) + side));
    }

    // Left alone, the compiler keeps some round keys in registers and loads the others once per block instead of once
    // per round, which makes the two load ports the bottleneck.
    [[gnu::always_inline]] static Vec in_register(Vec key) {
        asm volatile("" : "+x"(key));
        return key;
    }

    template <class F, int... I> [[gnu::always_inline]] static void unroll(F& f, std::integer_sequence<int, I...>) {
        (f(std::integral_constant<int, I>()), ...);
    }
};

}  // namespace
}  // namespace ppca
