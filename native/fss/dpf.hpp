// Evaluation of distributed point functions: shares of [y == alpha], and of prefixes near alpha.
//
// An incremental key gives shares of the bits [(m - alpha) >> g <= k] for every g (or every second one, ...), and of
// those of alpha - m. See tree.hpp for the scheme.
#pragma once

#include "fss/tree.hpp"

namespace ppca {
namespace {

// One node per lane.
struct Nodes {
    Vec seed[C::kBatch];

    void root(const KeyLanes& keys) {
        for (int r = 0; r < C::kBatch; ++r) seed[r] = keys.word(r, 0);
    }

    // Calls use(r, child of Vec r on side(r)); `at` is where the level's correction word is in a key.
    template <class Side, class Use>
    void children(const C::Context& permutation, const KeyLanes& keys, size_t at, Side side, Use use) const {
        Vec x[C::kBatch];
        C::each<C::kBatch>([&](auto r) INLINE_LAMBDA { x[r] = seed[r]; });
        C::rounds(permutation, x);
        C::each<C::kBatch>(
            [&](auto r) INLINE_LAMBDA { use(r, C::last(x[r], child_mask(seed[r], side(r), keys.word(r, at)))); });
    }

    // Calls use(r, payload of Vec r); word(r) is the payload correction word.
    template <class Word, class Use> void payloads(const C::Context& permutation, Word word, Use use) const {
        Vec x[C::kBatch];
        C::each<C::kBatch>([&](auto r) INLINE_LAMBDA { x[r] = seed[r]; });
        C::rounds(permutation, x);
        C::each<C::kBatch>([&](auto r) INLINE_LAMBDA { use(r, C::last(x[r], payload_mask(seed[r], word(r)))); });
    }
};

// The points of a group of lanes, aligned; lanes past the end repeat the last one.
static Sides sides_of(const uint64_t* points, size_t begin, size_t end, int bits) {
    u128 aligned[kLanes];
    for (size_t l = 0; l < size_t(kLanes); ++l)
        aligned[l] = align_top(load128(points + 2 * (begin + l < end ? begin + l : end - 1)), bits);
    return Sides(aligned, bits);
}

template <int Limbs> void dpf_eval_limbs(const EvalCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes);
    const int bits = call.shape.bits;
    const Permutations permutations(call.tree);
    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes keys(call.keys, call.shape.key_size(), at, end, call.per_key);
        const Sides sides = sides_of(call.points, at, end, bits);
        Nodes nodes;
        nodes.root(keys);
        for (int depth = 0; depth < bits; ++depth) {
            nodes.children(
                permutations.tree, keys, call.shape.seed_at(depth),
                [&](int r) INLINE_LAMBDA { return sides.side[r][depth]; },
                [&](int r, Vec child) INLINE_LAMBDA { nodes.seed[r] = child; });
        }
        alignas(32) Block value[kG];
        const size_t value_at = call.shape.value_at(bits);
        const auto word = [&](int r) INLINE_LAMBDA {
            return payload_word<Limbs>([&](int l) INLINE_LAMBDA { return keys.key[r * C::kWidth + l] + value_at; });
        };
        nodes.payloads(permutations.payload, word,
                       [&](int r, Vec x) INLINE_LAMBDA { C::store(value + r * C::kWidth, x); });
        for (size_t l = 0; l < kG && at + l < end; ++l)
            store_share<Limbs>(call.out + Limbs * (at + l), load128(&value[l]), call.party);
    }
}

void dpf_eval(const EvalCall& call, size_t begin, size_t end) {
    if (call.shape.limbs == 1) dpf_eval_limbs<1>(call, begin, end);
    else dpf_eval_limbs<2>(call, begin, end);
}

// The nodes mt - a (or, mirrored, mt + a), a = 0 .. A - 1, of level i, one key per lane.
//
// With b the last bit of mt, node 2p of this level is the child b of node p of the level above, and the other child of
// node p is node 2p + 1 or 2p - 1 as b is 1 or 0 (mirrored: 0 or 1). One hash gives both. Children never lie below
// their parent's index, so the window is updated in place from the far end.
struct PrefixWindow {
    Nodes node[kMaxNodes];

    void descend(const C::Context& permutation, const Sides& sides, int depth, const KeyLanes& keys, size_t at,
                 int count, bool mirrored) {
        Vec beyond[C::kBatch];  // the other child of node p + 1
        for (int p = count >> 1; p >= 0; --p) {
            const Nodes parent = node[p];
            parent.children(
                permutation, keys, at, [&](int r) INLINE_LAMBDA { return sides.side[r][depth]; },
                [&](int r, Vec child) INLINE_LAMBDA {
                    const Vec other = C::bit_xor(child, C::bit_xor(parent.seed[r], C::halve(parent.seed[r])));
                    const Vec right = C::mask(sides.side[r][depth]);
                    if (2 * p + 1 < count)
                        node[2 * p + 1].seed[r] =
                            mirrored ? select(right, beyond[r], other) : select(right, other, beyond[r]);
                    if (2 * p < count) node[2 * p].seed[r] = child;
                    beyond[r] = other;
                });
        }
    }
};

// Sums of weighted bits. Bytes of payloads beyond the first word matter only if Word is wider than a word.
template <int Limbs, class Word> void prefix_sums_of(const PrefixCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes), kTile = 2;  // outputs at a time
    constexpr int kWords = sizeof(Word) / 8;
    const int bits = call.shape.bits, count = call.first_k + call.width;
    const Permutations permutations(call.tree);
    PrefixWindow window;
    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes keys(call.keys, call.shape.key_size(), at, end, 1);
        const Sides sides = sides_of(call.m, at, end, bits);
        for (size_t first = 0; first < call.outputs; first += kTile) {
            const size_t tile = call.outputs - first < kTile ? call.outputs - first : kTile;
            Word total[kTile][kG] = {};
            window.node[0].root(keys);
            for (int a = 1; a < count; ++a) window.node[a] = window.node[0];
            for (int level = 1; level <= bits; ++level) {
                // The nodes of the next level have half as many parents.
                const bool counts = call.shape.has_value(level);
                window.descend(permutations.tree, sides, level - 1, keys, call.shape.seed_at(level - 1),
                               counts ? count : count / 2 + 1, call.mirrored);
                if (!counts) continue;

                Sum<kWords> sum[C::kBatch];
                Vec word[C::kBatch];
                const size_t value_at = call.shape.value_at(level);
                for (int r = 0; r < C::kBatch; ++r)
                    word[r] = payload_word<kWords>(
                        [&](int l) INLINE_LAMBDA { return keys.key[r * C::kWidth + l] + value_at; });
                const uint64_t* weight = call.weights + Limbs * first +
                                         Limbs * call.outputs * size_t(call.width) *
                                             size_t((level - call.shape.first_value) / call.shape.stride);
                for (int a = 0; a < count; ++a) {
                    // On the first levels the window is wider than the level: a repeated node counts once. At full
                    // depth m itself counts on one side only.
                    const bool counted = !call.mirrored || a > 0 || level < bits;
                    if (counted && (level >= 7 || a < (1 << level))) {
                        window.node[a].payloads(
                            permutations.payload, [&](int r) INLINE_LAMBDA { return word[r]; },
                            [&](int r, Vec value) INLINE_LAMBDA { sum[r].add(value); });
                    }
                    if (a < call.first_k) continue;
                    Word bit[kG];
                    for (size_t l = 0; l < kG; ++l) bit[l] = Word(read_sum(sum[l / C::kWidth], l % C::kWidth));
                    for (size_t t = 0; t < tile; ++t) {
                        const Word factor = Word(load_element<Limbs>(weight + Limbs * t));
                        for (size_t l = 0; l < kG; ++l) total[t][l] += bit[l] * factor;
                    }
                    weight += Limbs * call.outputs;
                }
            }
            for (size_t l = 0; l < kG && at + l < end; ++l)
                for (size_t t = 0; t < tile; ++t)
                    store_share<Limbs>(call.out + Limbs * (call.outputs * (at + l) + first + t), total[t][l],
                                       call.party);
        }
    }
}

void prefix_sums(const PrefixCall& call, size_t begin, size_t end) {
    if (call.shape.limbs == 1) prefix_sums_of<1, uint64_t>(call, begin, end);
    else if (call.shape.value_bytes <= 8) prefix_sums_of<2, uint64_t>(call, begin, end);
    else prefix_sums_of<2, u128>(call, begin, end);
}

}  // namespace
}  // namespace ppca
