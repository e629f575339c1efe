// Generation of the key pairs of FSS trees (the dealer's side). See tree.hpp for the scheme.
//
// alpha is secret: this code does not branch on its bits and does not index memory by them.
#pragma once

#include "fss/tree.hpp"

namespace ppca {
namespace {

// The bits of one secret 128-bit integer per lane, top first, as masks.
class SecretPaths {
public:
    void set(int lane, u128 aligned) {
        for (int i = 0; i < 4; ++i) word[i][lane] = static_cast<uint32_t>(aligned >> (96 - 32 * i));
    }
    Vec bit(int r, int level) const { return C::test(C::spread(word[level >> 5] + r * C::kWidth), level & 31); }

private:
    uint32_t word[4][kLanes];
};

// Generates the keys of one group of lanes after the other.
//
// Correction words are collected for kChunk levels and then copied. Written level by level, the cache lines of the many
// keys (often a power of two apart) would evict each other from the first-level cache.
class Generator {
public:
    Generator(const GenCall& call, const Permutations& permutations) : call(call), permutations(permutations) {}

    // Keys begin .. begin + count - 1; `more` if a full group comes after them.
    void group(size_t begin, int count, bool more) {
        const TreeShape& shape = call.shape;
        start(begin, count);
        const int end = shape.depths();
        for (int first = 0; first < end; first += kChunk) {
            const int stop = first + kChunk < end ? first + kChunk : end;
            for (int depth = first; depth < stop; ++depth) {
                if (more) prefetch(begin + size_t(kG), depth);
                if (shape.has_value(depth)) payload(depth, depth - first);
                if (depth < shape.seeds) level(depth, depth - first);
            }
            flush(begin, count, first, stop);
        }
    }

private:
    static constexpr int kG = kLanes, kR = C::kBatch, kChunk = 16;

    const GenCall& call;
    const Permutations& permutations;
    SecretPaths alpha;
    Vec seed[2][kR];  // of both parties, on the path
    Vec delta[kR];    // their difference
    alignas(32) Block seed_word[kChunk][kG], value_word[kChunk][kG];

    void start(size_t begin, int count) {
        alignas(32) Block root[2][kG];
        for (int l = 0; l < kG; ++l) {
            const size_t index = begin + size_t(l < count ? l : count - 1);
            alpha.set(l, align_top(load128(call.alpha + 2 * index), call.shape.bits));
            const uint64_t* random = call.seeds + 4 * index;
            const uint64_t top = uint64_t(1) << 63;
            root[0][l] = {random[0], random[1]};
            root[1][l] = {random[0] ^ (random[2] | top), random[1] ^ (random[3] | top)};
            for (int p = 0; p < 2; ++p)
                std::memcpy((p ? call.key1 : call.key0) + call.shape.key_size() * index, &root[p][l], 16);
        }
        for (int r = 0; r < kR; ++r) {
            for (int p = 0; p < 2; ++p) seed[p][r] = C::load(root[p] + r * C::kWidth);
            delta[r] = C::bit_xor(seed[0][r], seed[1][r]);
        }
    }

    // P(x) ^ x of the seeds of one party.
    static void hash(const C::Context& permutation, const Vec (&in)[kR], Vec (&out)[kR]) {
        Vec x[kR];
        C::each<kR>([&](auto r) INLINE_LAMBDA { x[r] = in[r]; });
        C::rounds(permutation, x);
        C::each<kR>([&](auto r) INLINE_LAMBDA { out[r] = C::last(x[r], in[r]); });
    }

    // Payload correction words. Party 0's corrected mask minus party 1's must be the payload beta. With u the mask that
    // is not corrected and v the one that is, the word is v ^ (u + beta) if party 0 corrects, and v ^ (u - beta) if
    // party 1 does; u - beta is ~(~u + beta), so one sum serves both.
    void payload(int depth, int slot) {
        Vec mask[2][kR];
        for (int p = 0; p < 2; ++p) hash(permutations.payload, seed[p], mask[p]);
        for (int r = 0; r < kR; ++r) {
            const Vec second = C::control(seed[1][r]);
            const Vec beta = call.shape.comparison ? alpha.bit(r, depth) : C::all_ones();
            const Vec u = C::bit_xor(select(second, mask[0][r], mask[1][r]), second);
            const Vec carry = C::up64(C::bit_and(C::full64(u), beta));
            const Vec sum = C::sub64(C::add64(u, C::bit_and(beta, C::low_word(1))), carry);
            const Vec word = C::bit_xor(C::bit_xor(mask[0][r], mask[1][r]), C::bit_xor(u, sum));
            C::store(value_word[slot] + r * C::kWidth, word);
        }
    }

    // One level down along alpha.
    void level(int depth, int slot) {
        Vec left[2][kR];
        for (int p = 0; p < 2; ++p) hash(permutations.tree, seed[p], left[p]);
        for (int r = 0; r < kR; ++r) {
            const Vec bit = alpha.bit(r, depth);
            // The word is the difference of the children off the path.
            const Vec delta_below = C::bit_xor(delta[r], C::halve(delta[r]));
            const Vec word = C::bit_xor(C::bit_xor(left[0][r], left[1][r]), C::and_not(bit, delta_below));
            C::store(seed_word[slot] + r * C::kWidth, word);
            const Vec turn = C::bit_and(bit, C::bit_xor(seed[0][r], C::halve(seed[0][r])));
            const Vec child = C::bit_xor(left[0][r], turn);
            seed[0][r] = C::bit_xor(child, C::bit_and(C::control(seed[0][r]), word));
            seed[1][r] = C::bit_xor(seed[0][r], delta_below);
            delta[r] = delta_below;
        }
    }

    // Prefetches a cache line of each key of the next group for writing, alternating between the two parties.
    // (Inlined: the compiler drops calls of functions that only prefetch.)
    [[gnu::always_inline]] void prefetch(size_t begin, int turn) const {
        const size_t size = call.shape.key_size();
        const uint8_t* key = (turn % 2 ? call.key1 : call.key0) + size * begin + size_t(turn / 2) * 64;
        for (int l = 0; l < kG; ++l, key += size) __builtin_prefetch(key, 1, 2);
    }

    // Copies the correction words of depths first .. stop - 1 to both keys of every lane.
    void flush(size_t begin, int count, int first, int stop) {
        const TreeShape& shape = call.shape;
        const int seeds = (stop < shape.seeds ? stop : shape.seeds) - first;
        for (int l = 0; l < count; ++l) {
            const size_t start = shape.key_size() * (begin + size_t(l));
            for (uint8_t* keys : {call.key0, call.key1}) {
                uint8_t* to = keys + start + shape.seed_at(first);
                for (int i = 0; i < seeds; ++i, to += 16) std::memcpy(to, &seed_word[i][l], 16);
                for (int depth = first; depth < stop; ++depth)
                    if (shape.has_value(depth))
                        std::memcpy(keys + start + shape.value_at(depth), &value_word[depth - first][l],
                                    size_t(shape.value_bytes));
            }
        }
    }
};

void generate(const GenCall& call, size_t begin, size_t end) {
    const Permutations permutations(call.tree);
    Generator generator(call, permutations);
    for (size_t at = begin; at < end; at += size_t(kLanes)) {
        const size_t left = end - at, group = size_t(kLanes);
        generator.group(at, int(left < group ? left : group), left >= 2 * group);
    }
}

}  // namespace
}  // namespace ppca
