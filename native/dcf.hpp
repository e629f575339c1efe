// Evaluation of distributed comparison functions: shares of [y < alpha]. See fss_tree.hpp for the scheme.
#pragma once

#include <memory>

#include "fss_tree.hpp"

namespace ppca {
namespace {

// Walks a group of lanes down the tree, kChunk levels at a time and each chunk in two phases: the nodes on the paths,
// one block per lane and level, then the payloads of the nodes where the path goes left, which are the ones that count.
// The paths are public to the parties, so the blocks of the second phase are packed densely, whatever their lanes and
// levels.
template <class C, int Limbs>
class DcfWalk {
public:
    explicit DcfWalk(const TreeShape& shape) : shape(shape) {}

    void start(const KeyLanes<C>& group) {
        keys = &group;
        for (int r = 0; r < C::kBatch; ++r) trail[0][r] = group.word(r, 0);
    }

    // Walks along the paths y from depth `from`, down to which the last walk went the same way. For each chunk and lane
    // calls use(lane), which may ask for sums of the payloads that count. Keys at distance `next_group`, if any, will be
    // needed next.
    template <class Use>
    void evaluate(const u128 y[kLanes<C>], int from, size_t next_group, Use use) {
        const Sides<C> sides(y, shape.bits);
        while (from < shape.bits) {
            const int chunk = (from / kChunk + 1) * kChunk, to = chunk < shape.bits ? chunk : shape.bits;
            descend(sides, from, to < shape.seeds ? to : shape.seeds, next_group);
            hash_payloads(list_left(y, from, to));
            for (int l = 0; l <= kLanes<C>; ++l) total_at[l] = total(first[l]);
            for (int l = 0; l < kLanes<C>; ++l) use(l);
            from = to;
        }
    }

    // The sum of the payloads of a lane in this chunk.
    u128 sum(int lane) const { return total_at[lane + 1] - total_at[lane]; }

    // Calls use(sum of the first payloads) for one payload, two payloads, ... of a lane in this chunk.
    template <class Use>
    void each_sum(int lane, Use use) const {
        for (size_t at = first[lane] + 1; at <= first[lane + 1]; ++at) use(total(at) - total_at[lane]);
    }

private:
    using Vec = typename C::Vec;
    using Eight [[gnu::vector_size(16)]] = uint16_t;
    using EightBytes [[gnu::vector_size(8)]] = uint8_t;
    static constexpr int kLevels = 128, kChunk = 32, kAhead = 4;

    const Permutations<C>& permutations = Permutations<C>::get();
    const TreeShape& shape;
    const KeyLanes<C>* keys = nullptr;
    Vec trail[kLevels + 1][C::kBatch];  // seeds by depth

    // The blocks of the second phase: where the seed and the word are, in units of 8 bytes, and running sums of the
    // payloads, one for each block of a Vec. Those of lane l start at first[l]. Lists are written 8 at a time and read
    // kLanes at a time.
    static constexpr size_t kBlocks = size_t(kLanes<C>) * (kChunk + 1) + 8;
    uint16_t seed_at[kBlocks], word_at[kBlocks];
    size_t first[kLanes<C> + 1];
    u128 total_at[kLanes<C> + 1];  // total(first[l])
    Sum<C, Limbs> sums[kBlocks / C::kWidth + 1];

    // The sum of the first `count` blocks.
    u128 total(size_t count) const {
        u128 sum = 0;
        for (size_t l = 0; l < C::kWidth; ++l) sum += read_sum(sums[(count + C::kWidth - 1 - l) / C::kWidth], l);
        return sum;
    }

    void descend(const Sides<C>& sides, int from, int to, size_t next_group) {
        Vec x[C::kBatch];
        C::template each<C::kBatch>([&](auto r) INLINE_LAMBDA { x[r] = trail[from][r]; });
        for (int begin = from, end; begin < to; begin = end) {
            // Words are read a line of each key at a time: the lines of many keys may share a few places in the first
            // cache and not stay there.
            end = (begin + 1 + kAhead) / kAhead * kAhead - 1;
            if (end > to) end = to;
            Vec word[kAhead][C::kBatch];
            for (int r = 0; r < C::kBatch; ++r)
                for (int depth = begin; depth < end; ++depth)
                    word[depth - begin][r] = keys->word(r, shape.seed_at(depth));
            for (int depth = begin; depth < end; ++depth) {
                if (next_group)
                    keys->prefetch(next_group + size_t(depth) * shape.key_size() / size_t(shape.bits), depth & 1);
                C::rounds(permutations.tree, x);
                C::template each<C::kBatch>([&](auto r) INLINE_LAMBDA {
                    x[r] = C::last(x[r], child_mask<C>(trail[depth][r], sides.side[r][depth], word[depth - begin][r]));
                    trail[depth + 1][r] = x[r];
                });
            }
        }
    }

    size_t list_left(const u128 y[kLanes<C>], int from, int to) {
        // Levels outside of from .. to - 1 do not count, as if the path went right there.
        const u128 ones = ~u128(0);
        const u128 skip = (from ? ones << (128 - from) : 0) | (to < 128 ? ones >> to : 0);
        size_t at = 0;
        for (int l = 0; l < kLanes<C>; ++l) {
            first[l] = at;
            const u128 path = y[l] | skip;
            const int begin = from / 8;
            Eight seed = Eight{} + uint16_t(2 * (8 * begin * kLanes<C> + l));
            Eight word = Eight{} + uint16_t(keys->offset[l] + shape.value_at(8 * begin) / 8);
            for (int byte = begin; 8 * byte < to; ++byte) {
                const uint8_t sides = path_byte(path, byte);
                EightBytes levels;
                std::memcpy(&levels, path_bytes.left[sides], 8);
                const Eight level = __builtin_convertvector(levels, Eight);
                const Eight seeds = seed + level * uint16_t(2 * kLanes<C>), words = word + level * uint16_t(Limbs);
                std::memcpy(seed_at + at, &seeds, 16);
                std::memcpy(word_at + at, &words, 16);
                seed += uint16_t(2 * 8 * kLanes<C>);
                word += uint16_t(8 * Limbs);
                at += path_bytes.left_count[sides];
            }
        }
        first[kLanes<C>] = at;
        for (size_t l = 0; l < size_t(kLanes<C>); ++l) seed_at[at + l] = word_at[at + l] = 0;
        return at;
    }

    void hash_payloads(size_t count) {
        const auto* seeds = reinterpret_cast<const uint8_t*>(trail);
        Sum<C, Limbs> sum, *next = sums;
        *next++ = sum;
        for (size_t at = 0; at < count; at += size_t(kLanes<C>)) {
            Vec x[C::kBatch], seed[C::kBatch];
            C::template each<C::kBatch>(
                [&](auto r) INLINE_LAMBDA { x[r] = seed[r] = C::gather(seeds, seed_at + at + r * C::kWidth); });
            C::rounds(permutations.payload, x);
            C::template each<C::kBatch>([&](auto r) INLINE_LAMBDA {
                const Vec word = payload_word<C, Limbs>(keys->base, word_at + at + r * C::kWidth);
                sum.add(C::last(x[r], payload_mask<C>(seed[r], word)));
                *next++ = sum;
            });
        }
    }
};

template <class C, int Limbs>
void dcf_eval_limbs(const EvalCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes<C>);
    const size_t size = call.shape.key_size();
    const std::unique_ptr<DcfWalk<C, Limbs>> walk(new DcfWalk<C, Limbs>(call.shape));
    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes<C> keys(call.keys, size, at, end, call.per_key);
        u128 y[kG], share[kG];
        for (size_t l = 0; l < kG; ++l) {
            y[l] = align_top(load128(call.points + 2 * (at + l < end ? at + l : end - 1)), call.shape.bits);
            share[l] = 0;
        }
        walk->start(keys);
        const bool more = call.per_key == 1 && end - at >= 2 * kG;
        walk->evaluate(y, 0, more ? kG * size : 0, [&](int l) INLINE_LAMBDA { share[l] += walk->sum(l); });
        for (size_t l = 0; l < kG && at + l < end; ++l)
            store_share<Limbs>(call.out + Limbs * (at + l), share[l], call.party);
    }
}

template <class C>
void dcf_eval(const EvalCall& call, size_t begin, size_t end) {
    if (call.shape.limbs == 1)
        dcf_eval_limbs<C, 1>(call, begin, end);
    else
        dcf_eval_limbs<C, 2>(call, begin, end);
}

// The number of ones in x.
static int ones(u128 x) { return __builtin_popcountll(uint64_t(x)) + __builtin_popcountll(uint64_t(x >> 64)); }

// Each group of keys walks to m, then to m - t for every threshold in turn, restarting where the new path leaves the
// last one. The point of departure is the earliest over the group; it depends on m, which the evaluators know, never on
// alpha.
template <class C, int Limbs>
void classify_limbs(const ClassifyCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes<C>);
    const int bits = call.shape.bits;
    const size_t size = call.shape.key_size();
    // Per lane, the sums of the payloads at the first 0, 1, 2, ... levels where the path goes left.
    struct Sums {
        u128 sum[kG][129];
    };
    const std::unique_ptr<Sums> known(new Sums);
    const std::unique_ptr<DcfWalk<C, Limbs>> walk(new DcfWalk<C, Limbs>(call.shape));

    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes<C> keys(call.keys, size, at, end, 1);
        u128 m[kG], last[kG], base[kG], share[kG];
        for (size_t l = 0; l < kG; ++l) {
            m[l] = align_top(load128(call.m + 2 * (at + l < end ? at + l : end - 1)), bits);
            known->sum[l][0] = 0;
        }
        walk->start(keys);

        // Share of [y < alpha] for the points y, given that the walk belongs to points with the same first `from` bits.
        const auto evaluate = [&](const u128 y[kG], int from) {
            std::memcpy(last, y, sizeof last);
            u128* end_of[kG];
            for (size_t l = 0; l < kG; ++l) end_of[l] = known->sum[l] + from - (from ? ones(y[l] >> (128 - from)) : 0);
            walk->evaluate(y, from, 0, [&](int l) INLINE_LAMBDA {
                const u128 before = *end_of[l];
                walk->each_sum(l, [&](u128 sum) INLINE_LAMBDA { *++end_of[l] = before + sum; });
            });
            for (size_t l = 0; l < kG; ++l) share[l] = *end_of[l];
        };
        evaluate(m, 0);
        std::memcpy(base, share, sizeof base);

        for (size_t j = 0; j < call.count; ++j) {
            const u128 threshold = align_top(load128(call.thresholds + 2 * j), bits);
            u128 y[kG], differ = 0;
            for (size_t l = 0; l < kG; ++l) {
                y[l] = m[l] - threshold;
                differ |= y[l] ^ last[l];
            }
            const auto high = static_cast<uint64_t>(differ >> 64), low = static_cast<uint64_t>(differ);
            const int common = high ? __builtin_clzll(high) : low ? 64 + __builtin_clzll(low) : 128;
            if (common < bits) evaluate(y, common);
            for (size_t l = 0; l < kG && at + l < end; ++l) {
                u128 value = share[l] - base[l];
                if (call.party == 0) value += m[l] < threshold;
                store_share<Limbs>(call.out + Limbs * ((at + l) * call.count + j), value, call.party);
            }
        }
    }
}
// A group shared by all thresholds leaves most lanes idle when there are few keys: then every (key, threshold) gets its
// own lane.
template <class C, int Limbs>
void classify_few(const ClassifyCall& call, size_t begin, size_t end) {
    struct Integer {
        uint64_t word[2];
    };
    const size_t keys = end - begin, per_key = call.count + 1;
    const std::unique_ptr<Integer[]> points(new Integer[keys * per_key]), shares(new Integer[keys * per_key]);
    for (size_t i = 0; i < keys; ++i) {
        const u128 m = load128(call.m + 2 * (begin + i));
        for (size_t j = 0; j < per_key; ++j) {
            const u128 y = j ? m - load128(call.thresholds + 2 * (j - 1)) : m;
            points[i * per_key + j] = {{uint64_t(y), uint64_t(y >> 64)}};
        }
    }
    const size_t size = call.shape.key_size();
    uint64_t* share = shares[0].word;
    dcf_eval_limbs<C, Limbs>({call.shape, call.party, share, call.keys + size * begin, points[0].word, per_key}, 0,
                             keys * per_key);
    for (size_t i = 0; i < keys; ++i) {
        const u128 m = align_top(load128(points[i * per_key].word), call.shape.bits);
        for (size_t j = 0; j < call.count; ++j) {
            u128 value = load_element<Limbs>(share + Limbs * (i * per_key + j + 1)) -
                         load_element<Limbs>(share + Limbs * (i * per_key));
            if (call.party == 0) value += m < align_top(load128(call.thresholds + 2 * j), call.shape.bits);
            std::memcpy(call.out + Limbs * ((begin + i) * call.count + j), &value, 8 * Limbs);
        }
    }
}

template <class C>
void classify_bits(const ClassifyCall& call, size_t begin, size_t end) {
    // Groups of lanes to walk: one per threshold, about 0.6 of the way on average, or one per kLanes pairs, all the
    // way.
    const size_t lanes = size_t(kLanes<C>), per_key = call.count + 1, keys = end - begin;
    const bool few = (keys * per_key + lanes - 1) / lanes * 10 < (keys + lanes - 1) / lanes * per_key * 6;
    if (call.shape.limbs == 1)
        few ? classify_few<C, 1>(call, begin, end) : classify_limbs<C, 1>(call, begin, end);
    else
        few ? classify_few<C, 2>(call, begin, end) : classify_limbs<C, 2>(call, begin, end);
}

}  // namespace
}  // namespace ppca
