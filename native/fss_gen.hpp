// Generation of the key pairs of FSS trees (the dealer's side). See fss_tree.hpp for the scheme.
#pragma once

#include "fss_tree.hpp"

namespace ppca {
namespace {

// Generates the keys of one group of lanes after the other.
//
// Correction words are collected for kChunk levels and then copied: written level by level, the lines of the many keys
// (often a power of two apart) would chase each other out of the first cache.
template <class C>
class Generator {
public:
    explicit Generator(const GenCall& call) : call(call) {}

    void group(size_t begin, int count) {
        const TreeShape& shape = call.shape;
        const size_t size = shape.key_size();
        Paths<C> paths;
        const uint8_t* roots[2][kG];
        for (int l = 0; l < kG; ++l) {
            const size_t index = begin + size_t(l < count ? l : count - 1);
            alpha[l] = align_top(load128(call.alpha + 2 * index), shape.bits);
            paths.set(l, alpha[l]);
            for (int p = 0; p < 2; ++p) {
                uint8_t* key = (p ? call.key1 : call.key0) + size * index;
                const u128 root = load128(call.seeds + 4 * index + 2 * size_t(p)) & ~u128(3);
                std::memcpy(key, &root, 16);
                roots[p][l] = key;
            }
        }
        for (int p = 0; p < 2; ++p) node[p].root(roots[p], p);
        PathReader<C> reader(paths);
        const int end = shape.first_value + shape.values;
        for (int first = 0; first < end; first += kChunk) {
            const int stop = first + kChunk < end ? first + kChunk : end;
            for (int depth = first; depth < stop; ++depth) {
                if (depth >= shape.first_value) payload(depth, depth - first);
                if (depth < shape.seeds) {
                    reader.go_to(depth);
                    level(reader, depth - first);
                }
            }
            flush(begin, count, first, stop);
        }
    }

private:
    static constexpr int kG = kLanes<C>, kR = C::kBatch, kChunk = 8;
    using Vec = typename C::Vec;

    const GenCall& call;
    const typename C::Context& context = fixed_context<C>();
    Nodes<C> node[2];
    u128 alpha[kG];
    alignas(32) Block seed_word[kChunk][kG], value_word[kChunk][kG];

    // Payload correction words. Party 0's corrected mask less party 1's is to be the payload, and one of the two is
    // corrected: the word is (mask0 - payload) ^ mask1 if that is party 1, mask0 ^ (mask1 + payload) if it is party 0.
    void payload(int depth, int slot) {
        constexpr int kHalf = C::kFlight / 2;
        for (int base = 0; base < kR; base += kHalf) {
            Vec x[C::kFlight], in[C::kFlight];
            C::template each<kHalf>([&](auto i) INLINE_LAMBDA {
                x[i] = in[i] = C::bit_xor(node[0].seed[base + i], C::low_word(2));
                x[kHalf + i] = in[kHalf + i] = C::bit_xor(node[1].seed[base + i], C::low_word(2));
            });
            C::park(in);
            C::rounds(context, x);
            C::template each<kHalf>([&](auto i) INLINE_LAMBDA {
                const int r = base + i;
                alignas(32) Block mask0[C::kWidth], mask1[C::kWidth], second[C::kWidth];
                C::store(mask0, C::last(context, x[i], in[i]));
                C::store(mask1, C::last(context, x[kHalf + i], in[kHalf + i]));
                C::store(second, node[1].control[r]);
                for (int l = 0; l < C::kWidth; ++l) {
                    const int lane = r * C::kWidth + l;
                    const u128 beta = call.shape.comparison ? (alpha[lane] >> (127 - depth)) & 1 : 1;
                    const u128 one = load128(&second[l]);
                    const u128 word = (load128(&mask0[l]) - (beta & one)) ^ (load128(&mask1[l]) + (beta & ~one));
                    value_word[slot][lane] = {uint64_t(word), uint64_t(word >> 64)};
                }
            });
        }
    }

    // One level down along alpha.
    void level(const PathReader<C>& reader, int slot) {
        constexpr int kQuarter = C::kFlight / 4;
        for (int base = 0; base < kR; base += kQuarter) {
            // Left and right child of party 0, left and right child of party 1.
            Vec x[C::kFlight], in[C::kFlight];
            C::template each<kQuarter>([&](auto i) INLINE_LAMBDA {
                x[i] = in[i] = node[0].seed[base + i];
                x[kQuarter + i] = in[kQuarter + i] = C::bit_xor(node[0].seed[base + i], C::low_word(1));
                x[2 * kQuarter + i] = in[2 * kQuarter + i] = node[1].seed[base + i];
                x[3 * kQuarter + i] = in[3 * kQuarter + i] = C::bit_xor(node[1].seed[base + i], C::low_word(1));
            });
            C::park(in);
            C::rounds(context, x);
            C::template each<kQuarter>([&](auto i) INLINE_LAMBDA {
                const int r = base + i;
                const Vec bit = reader.bit(r);
                const Vec left0 = C::last(context, x[i], in[i]);
                const Vec right0 = C::last(context, x[kQuarter + i], in[kQuarter + i]);
                const Vec left1 = C::last(context, x[2 * kQuarter + i], in[2 * kQuarter + i]);
                const Vec right1 = C::last(context, x[3 * kQuarter + i], in[3 * kQuarter + i]);
                const Vec left = C::bit_xor(left0, left1), right = C::bit_xor(right0, right1);
                // Seeds: the difference on the side alpha does not take. Control bits: they must differ on the side it
                // takes.
                const Vec seeds = C::clear(select(bit, left, right));
                const Vec sides = C::bit_xor(select(C::low_word(2), right, left), C::low_word(1));
                const Vec controls = C::bit_and(C::bit_xor(sides, bit), C::low_word(3));
                const Vec word = C::bit_xor(seeds, controls);
                C::store(seed_word[slot] + r * C::kWidth, word);
                node[0].take(r, C::bit_xor(select(bit, right0, left0), C::bit_and(node[0].control[r], word)), bit);
                node[1].take(r, C::bit_xor(select(bit, right1, left1), C::bit_and(node[1].control[r], word)), bit);
            });
        }
    }

    // Copies the correction words of depths first .. stop - 1 to both keys of every lane.
    void flush(size_t begin, int count, int first, int stop) {
        const TreeShape& shape = call.shape;
        const int seeds = (stop < shape.seeds ? stop : shape.seeds) - first;
        const int skip = first < shape.first_value ? shape.first_value - first : 0;
        for (int l = 0; l < count; ++l) {
            const size_t start = shape.key_size() * (begin + size_t(l));
            for (uint8_t* keys : {call.key0, call.key1}) {
                uint8_t* to = keys + start + shape.seed_at(first);
                for (int i = 0; i < seeds; ++i, to += 16) std::memcpy(to, &seed_word[i][l], 16);
                to = keys + start + shape.value_at(first + skip);
                if (shape.limbs == 2)
                    for (int i = skip; i < stop - first; ++i, to += 16) std::memcpy(to, &value_word[i][l], 16);
                else
                    for (int i = skip; i < stop - first; ++i, to += 8) std::memcpy(to, &value_word[i][l], 8);
            }
        }
    }

    static Vec select(Vec mask, Vec a, Vec b) { return C::bit_xor(C::bit_and(mask, a), C::and_not(mask, b)); }
};

template <class C>
void generate(const GenCall& call, size_t begin, size_t end) {
    Generator<C> generator(call);
    for (size_t at = begin; at < end; at += size_t(kLanes<C>)) {
        const size_t left = end - at;
        generator.group(at, int(left < size_t(kLanes<C>) ? left : size_t(kLanes<C>)));
    }
}

}  // namespace
}  // namespace ppca
