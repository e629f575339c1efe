// Function secret sharing of the sign of a masked number: two evaluators get XOR shares of its top bit.
//
// Input    x = m - alpha mod 2^bits. Both evaluators know m; only the dealer knows the mask alpha.
// Output   one bit per evaluator; their XOR is the top bit of x (1 if x is negative).
// Cost     bits - 1 levels; per level 16 bytes of key, one AES block to evaluate and two to generate.
//
// Formula. m' and a' are the top bits of m and alpha, m" and a" the other bits; d counts bits from the top. The
// subtraction borrows from the top bit exactly if m" < a":
//
//     top bit of x = m' ^ a' ^ [m" < a"],
//     [m" < a"]    = XOR over the levels d with m"_d = 0 of  [the first d bits of m" and a" agree] * a"_d.
//
// Key. The tree of tree.hpp with a one-bit payload a"_d at depth d, which needs no AES block of its own:
//   - The lowest bit of both words of every seed is cleared. These bits of Delta_d are then 0; R acts on the others.
//   - Bit 0 of the left child P(s) ^ s is therefore bit 0 of P(s). It is the payload mask of the node.
//   - Bit 0 of the correction word, applied if the control bit is set, makes the masks on the path differ by a"_d.
//   - Payloads count only at levels where the path goes left (m"_d = 0).
// The last level does not have a child: its correction bit is bit 64 of the root. Bit 0 of the root is a share of a'.
//
// Security. As in tree.hpp. A correction word is P(h_d) XOR Delta_d (124 uniform bits) or Delta_d / 2 (122), XOR a
// function of s_d, XOR the payload: uniform without knowledge of h_d. Bit 0 of a root is a random share of a'.
//
// Layout. Only the roots differ between the evaluators. Correction words are stored level by level in groups of 80
// keys, so that both sides stream through them: word d of key i is block
// 80 * (i / 80) * (levels - 1) + d * w + i % 80, with w = 80, or less in the last group.
#pragma once

#include "fss/generate.hpp"

namespace ppca {
namespace {

constexpr size_t kTogether = 80;  // keys of a group: whole groups of lanes of the AES-NI and VAES levels

// Locations of the words of the keys first .. first + count - 1, those of one group of lanes.
template <class Byte> class SignWords {
public:
    SignWords(Byte* words, int levels, size_t keys, size_t first, size_t count)
        : base(words), keys(keys), first(first), count(count) {
        const size_t group = first / kTogether;
        per_key = levels > 1 ? size_t(levels) - 1 : 0;
        row = width(group);
        // At every level the words of lanes within one group of keys are contiguous. They may be read beyond the last
        // lane, up to the end of all words, and written likewise if they are a whole row, since the next row is
        // written later.
        within = first % kTogether + count <= row;
        over = within && (count == kG || count == row);
        at = base + 16 * (group * kTogether * per_key + first % kTogether);
    }

    // The words of one level, lane by lane; copied to `scratch` if they are not contiguous.
    const void* level(int depth, Block (&scratch)[kLanes]) const {
        const Byte* from = at + 16 * row * size_t(depth);
        if (within && fits(from)) {
            // Rows are far apart, so the processor does not prefetch the words of the next lanes.
            for (size_t line = 0; line < 16 * kG; line += 64) __builtin_prefetch(from + 16 * kG + line, 0, 3);
            return from;
        }
        for (size_t l = 0; l < count; ++l) std::memcpy(&scratch[l], place(l, depth), 16);
        return scratch;
    }

    void store(int depth, const Vec (&word)[C::kBatch]) const {
        Byte* to = at + 16 * row * size_t(depth);
        if (over && fits(to)) {
            C::each<C::kBatch>([&](auto r) INLINE_LAMBDA { C::store(to + 16 * r * C::kWidth, word[r]); });
            return;
        }
        alignas(32) Block block[kG];
        for (int r = 0; r < C::kBatch; ++r) C::store(block + r * C::kWidth, word[r]);
        for (size_t l = 0; l < count; ++l) std::memcpy(place(l, depth), &block[l], 16);
    }

private:
    static constexpr size_t kG = size_t(kLanes);

    Byte *base, *at;
    size_t keys, first, count, per_key, row;
    bool within, over;

    bool fits(const Byte* from) const { return from + 16 * kG <= base + 16 * keys * per_key; }

    Byte* place(size_t lane, int depth) const {
        const size_t key = first + lane, group = key / kTogether;
        return base + 16 * (group * kTogether * per_key + size_t(depth) * width(group) + key % kTogether);
    }
    size_t width(size_t group) const {
        const size_t left = keys - group * kTogether;
        return left < kTogether ? left : kTogether;
    }
};

// Bits 0 and 64.
static inline Vec free_bits() { return C::bit_xor(C::low_word(1), C::up64(C::low_word(1))); }

void sign_gen(const SignGenCall& call, size_t begin, size_t end) {
    constexpr int kG = kLanes, kR = C::kBatch;
    const C::Context permutation(call.tree.tree);
    const int levels = call.bits - 1;
    const Vec one = C::low_word(1), spare = free_bits();
    for (size_t at = begin; at < end; at += size_t(kG)) {
        const int count = end - at < size_t(kG) ? int(end - at) : kG;
        SecretPaths path;
        alignas(32) Block root[kG], difference[kG];
        for (int l = 0; l < kG; ++l) {
            const size_t key = at + size_t(l < count ? l : count - 1);
            path.set(l, align_top(load128(call.alpha + 2 * key), call.bits) << 1);
            const uint64_t* random = call.seeds + 4 * key;
            const uint64_t top = uint64_t(1) << 63;
            root[l] = {random[0] & ~uint64_t(1), random[1] & ~uint64_t(1)};
            difference[l] = {(random[2] | top) & ~uint64_t(1), (random[3] | top) & ~uint64_t(1)};
        }
        Vec seed[kR], delta[kR], word[kR];
        for (int r = 0; r < kR; ++r) {
            seed[r] = C::load(root + r * C::kWidth);
            delta[r] = C::load(difference + r * C::kWidth);
            word[r] = C::zero();
        }
        const SignWords<uint8_t> words(call.words, levels, call.keys, at, size_t(count));
        for (int depth = 0; depth < levels; ++depth) {
            Vec x[kR], y[kR];
            C::each<kR>([&](auto r) INLINE_LAMBDA {
                x[r] = seed[r];
                y[r] = C::bit_xor(seed[r], delta[r]);
            });
            C::rounds(permutation, x);
            C::rounds(permutation, y);
            C::each<kR>([&](auto r) INLINE_LAMBDA {
                const Vec bit = path.bit(r, depth), left = C::last(x[r], seed[r]);
                const Vec both = C::bit_xor(left, C::last(y[r], C::bit_xor(seed[r], delta[r])));
                delta[r] = C::and_not(spare, C::bit_xor(delta[r], C::halve(delta[r])));
                // The difference of the children off the path, and the payload.
                word[r] = C::bit_xor(C::bit_xor(both, C::and_not(bit, delta[r])), C::bit_and(bit, one));
                const Vec turn = C::bit_and(bit, C::bit_xor(seed[r], C::halve(seed[r])));
                const Vec correction = C::bit_and(C::control(seed[r]), word[r]);
                seed[r] = C::and_not(spare, C::bit_xor(C::bit_xor(left, turn), correction));
            });
            if (depth < levels - 1) words.store(depth, word);
        }
        alignas(32) Block last[kG];
        for (int r = 0; r < kR; ++r) C::store(last + r * C::kWidth, word[r]);
        for (int l = 0; l < count; ++l) {
            const size_t key = at + size_t(l);
            const uint64_t share = call.seeds[4 * key] & 1;
            const auto top = uint64_t(load128(call.alpha + 2 * key) >> levels) & 1;
            const uint64_t high = root[l].hi | (last[l].lo & 1);
            const Block roots[2] = {{root[l].lo | share, high},
                                    {(root[l].lo ^ difference[l].lo) | (share ^ top), high ^ difference[l].hi}};
            for (int p = 0; p < 2; ++p) std::memcpy(call.roots[p] + 16 * key, &roots[p], 16);
        }
    }
}

void sign_eval(const SignEvalCall& call, size_t begin, size_t end) {
    constexpr int kG = kLanes, kR = C::kBatch;
    const C::Context permutation(call.tree.tree);
    const int levels = call.bits - 1;
    const Vec spare = free_bits();
    for (size_t at = begin; at < end; at += size_t(kG)) {
        const int count = end - at < size_t(kG) ? int(end - at) : kG;
        u128 path[kG];
        alignas(32) Block root[kG], last[kG], scratch[kG] = {};
        uint8_t start[kG];
        for (int l = 0; l < kG; ++l) {
            const size_t key = at + size_t(l < count ? l : count - 1);
            const u128 m = load128(call.m + 2 * key);
            path[l] = align_top(m, call.bits) << 1;
            std::memcpy(&root[l], call.roots + 16 * key, 16);
            last[l] = {root[l].hi & 1, 0};
            start[l] = uint8_t(root[l].lo & 1) ^ (call.party == 0 ? uint8_t(m >> levels) & 1 : 0);
        }
        const Sides sides(path, levels);
        const SignWords<const uint8_t> words(call.words, levels, call.keys, at, size_t(count));
        Vec x[kR], seed[kR], sum[kR];
        C::each<kR>([&](auto r) INLINE_LAMBDA {
            x[r] = seed[r] = C::and_not(spare, C::load(root + r * C::kWidth));
            sum[r] = C::zero();
        });
        for (int depth = 0; depth < levels; ++depth) {
            const void* from = depth < levels - 1 ? words.level(depth, scratch) : last;
            const auto* word = static_cast<const uint8_t*>(from);
            C::rounds(permutation, x);
            C::each<kR>([&](auto r) INLINE_LAMBDA {
                const uint8_t side = sides.side[r][depth];
                const Vec child = C::last(x[r], child_mask(seed[r], side, C::load(word + 16 * r * C::kWidth)));
                sum[r] = C::bit_xor(sum[r], C::and_not(C::mask(side), child));
                x[r] = seed[r] = C::and_not(spare, child);
            });
        }
        alignas(32) Block bits[kG];
        for (int r = 0; r < kR; ++r) C::store(bits + r * C::kWidth, sum[r]);
        for (int l = 0; l < count; ++l) call.out[at + size_t(l)] = start[l] ^ uint8_t(bits[l].lo & 1);
    }
}

}  // namespace
}  // namespace ppca
