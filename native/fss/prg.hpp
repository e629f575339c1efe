// Counter-mode streams of ring elements, and shares and products of shares masked by them.
//
// Block i of stream (op, purpose) under a key is AES_key(le64(op) || le64(purpose << 48 | i)). Seen as 64-bit words the
// stream is the same for both rings: an element of Z_2^128 is one block, an element of Z_2^64 is half a block.
#pragma once

#include <cstring>

#include "fss/cipher.hpp"
#include "fss/kernels.hpp"

namespace ppca {
namespace {

struct Stream {
    static constexpr size_t kBlocks = size_t(C::kWidth) * C::kBatch;
    static constexpr size_t kWords = 2 * kBlocks;

    C::Context context;
    uint64_t op, base;

    Stream(const Schedule& schedule, uint64_t op, uint64_t purpose) : context(schedule), op(op), base(purpose << 48) {}

    // Writes blocks first .. first + kBlocks - 1.
    void blocks(uint64_t first, Block out[kBlocks]) const {
        Vec x[C::kBatch];
        C::each<C::kBatch>([&](auto i) INLINE_LAMBDA {
            x[i] = C::bit_xor(C::counter(op, base + first + uint64_t(i) * C::kWidth), context.first);
        });
        C::rounds(context, x);
        C::each<C::kBatch>([&](auto i)
                               INLINE_LAMBDA { C::store(out + size_t(i) * C::kWidth, C::last(x[i], context.last)); });
    }
};

void aes_blocks(const Schedule& schedule, uint8_t* out, const uint8_t* in, size_t count) {
    constexpr size_t kBlocks = Stream::kBlocks;
    const C::Context context(schedule);
    for (size_t at = 0; at < count; at += kBlocks) {
        const size_t now = count - at < kBlocks ? count - at : kBlocks;
        alignas(32) Block buffer[kBlocks] = {};
        std::memcpy(buffer, in + 16 * at, 16 * now);
        Vec x[C::kBatch];
        C::each<C::kBatch>(
            [&](auto i) INLINE_LAMBDA { x[i] = C::bit_xor(C::load(buffer + size_t(i) * C::kWidth), context.first); });
        C::rounds(context, x);
        C::each<C::kBatch>(
            [&](auto i) INLINE_LAMBDA { C::store(buffer + size_t(i) * C::kWidth, C::last(x[i], context.last)); });
        std::memcpy(out + 16 * at, buffer, 16 * now);
    }
}

void prg(const Schedule& schedule, uint64_t op, uint64_t purpose, uint64_t* out, size_t begin, size_t end) {
    constexpr size_t kWords = Stream::kWords;
    const Stream stream(schedule, op, purpose);
    size_t at = begin;
    for (; end - at >= kWords; at += kWords) stream.blocks(at / 2, reinterpret_cast<Block*>(out + at));
    if (at < end) {
        alignas(32) Block block[Stream::kBlocks];
        stream.blocks(at / 2, block);
        std::memcpy(out + at, block, 8 * (end - at));
    }
}

template <int Limbs> struct Element;

template <> struct Element<1> {
    using Type = uint64_t;
    static Type load(const uint64_t* p) { return *p; }
    static void store(uint64_t* p, Type x) { *p = x; }
};

// Word by word: as one 16-byte access the compiler goes through a vector register, which costs more than the
// arithmetic.
template <> struct Element<2> {
    using Type = unsigned __int128;
    static Type load(const uint64_t* p) { return Type(p[1]) << 64 | p[0]; }
    static void store(uint64_t* p, Type x) {
        p[0] = uint64_t(x);
        p[1] = uint64_t(x >> 64);
    }
};

// out = t + s, where s is the mask, or its negation if minus is all ones.
template <class T> [[gnu::always_inline]] static inline T masked(T t, T mask, T minus) {
    return t + ((mask ^ minus) - minus);
}

// Both masked versions of t (or of x * y when Product) for `now` elements starting at element `at`.
template <int Limbs, bool Product>
[[gnu::always_inline]] static inline void mask_chunk(const MaskCall& call, const Block* a, const Block* b, size_t at,
                                                     size_t now) {
    using E = Element<Limbs>;
    using T = typename E::Type;
    const T minus_a = T(0) - T(call.minus_a), minus_b = T(0) - T(call.minus_b);
    const auto* stream_a = reinterpret_cast<const uint64_t*>(a);
    const auto* stream_b = reinterpret_cast<const uint64_t*>(b);
    for (size_t i = 0; i < now; ++i) {
        const size_t to = Limbs * (at + i);
        T t = E::load(call.x + to);
        if constexpr (Product) t *= E::load(call.y + to);
        E::store(call.out_a + to, masked(t, E::load(stream_a + Limbs * i), minus_a));
        E::store(call.out_b + to, masked(t, E::load(stream_b + Limbs * i), minus_b));
    }
}

template <int Limbs, bool Product> void mask_elements(const MaskCall& call, size_t begin, size_t end) {
    constexpr size_t kElements = Stream::kWords / Limbs;
    const Stream a(*call.key_a, call.op, 0), b(*call.key_b, call.op, 1);
    for (size_t at = begin; at < end; at += kElements) {
        alignas(32) Block block_a[Stream::kBlocks], block_b[Stream::kBlocks];
        a.blocks(at * Limbs / 2, block_a);
        b.blocks(at * Limbs / 2, block_b);
        if (end - at >= kElements) mask_chunk<Limbs, Product>(call, block_a, block_b, at, kElements);
        else mask_chunk<Limbs, Product>(call, block_a, block_b, at, end - at);
    }
}

// call.y == nullptr selects t = x, otherwise t = x * y.
void mask2(const MaskCall& call, int limbs, size_t begin, size_t end) {
    if (limbs == 1) call.y ? mask_elements<1, true>(call, begin, end) : mask_elements<1, false>(call, begin, end);
    else call.y ? mask_elements<2, true>(call, begin, end) : mask_elements<2, false>(call, begin, end);
}

}  // namespace
}  // namespace ppca
