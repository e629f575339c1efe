// Evaluation of distributed comparison functions: shares of [y < alpha]. See tree.hpp for the scheme.
#pragma once

#include <memory>

#include "fss/tree.hpp"

namespace ppca {
namespace {

// Walks a group of lanes down the tree in two phases: the nodes on the paths, one block per lane and level, then the
// payloads of the nodes where the path goes left; only these count. Both parties know the paths, so the second phase
// selects the levels of each lane that it needs.
template <int Limbs> class DcfWalk {
    static constexpr int kLevels = 128;

public:
    DcfWalk(const TreeKey& tree, const TreeShape& shape) : permutations(tree), shape(shape) {}

    void start(const KeyLanes& group) {
        keys = &group;
        for (int r = 0; r < C::kBatch; ++r) trail[r][0] = group.word(r, 0);
    }

    // Computes the nodes on the paths y below depth `from`; the last walk had the same path down to there. Keys at
    // distance `next_group`, if any, are needed next.
    void descend(const u128 y[kLanes], int from, size_t next_group) {
        const Sides sides(y, shape.bits);
        Vec x[C::kBatch];
        C::each<C::kBatch>([&](auto r) INLINE_LAMBDA { x[r] = trail[r][from]; });
        for (int depth = from; depth < shape.seeds; ++depth) {
            if (next_group) keys->prefetch(next_group + 32 * size_t(depth), depth & 1);
            C::rounds(permutations.tree, x);
            C::each<C::kBatch>([&](auto r) INLINE_LAMBDA {
                const Vec word = keys->word(r, shape.seed_at(depth));
                x[r] = C::last(x[r], child_mask(trail[r][depth], sides.side[r][depth], word));
                trail[r][depth + 1] = x[r];
            });
        }
    }

    // The levels from `from` on at which the lanes of one Vec go left, in order.
    struct LeftTurns {
        int count[C::kWidth], most = 0;
        // Levels times 16, written 8 or kFill at a time. All lanes are filled up to whole flights of the longest list,
        // by repeating the last level.
        static constexpr int kFill = 2 * C::kBatch;
        uint16_t level[C::kWidth][kLevels + C::kBatch + kFill];

        LeftTurns(const u128* y, int from, int to) {
            // Levels outside from .. to - 1 do not count, as if the path went right there.
            const u128 ones = ~u128(0);
            const u128 skip = (from ? ones << (128 - from) : 0) | (to < 128 ? ones >> to : 0);
            for (int l = 0; l < C::kWidth; ++l) {
                const u128 path = y[l] | skip;
                uint16_t* next = level[l];
                for (int byte = from / 8; 8 * byte < to; ++byte) {
                    const uint8_t sides = path_byte(path, byte);
                    for (int i = 0; i < 8; ++i) next[i] = uint16_t(path_bytes.left[sides][i] + 128 * byte);
                    next += path_bytes.left_count[sides];
                }
                count[l] = int(next - level[l]);
                most = most < count[l] ? count[l] : most;
            }
            for (int l = 0; l < C::kWidth; ++l) {
                const uint16_t last = count[l] ? level[l][count[l] - 1] : 0;
                int at = count[l];
                do {
                    for (int i = 0; i < kFill; ++i) level[l][at + i] = last;
                    at += kFill;
                } while (at < most + C::kBatch);
            }
        }
    };

    // Calls use(payloads) for each flight of kBatch of them.
    template <class Use> void payloads(int r, const LeftTurns& turns, Use use) const {
        const uint8_t* words[C::kWidth];
        for (int l = 0; l < C::kWidth; ++l) words[l] = keys->key[r * C::kWidth + l] + shape.value_at(0);
        const auto* seeds = reinterpret_cast<const uint8_t*>(trail[r]);
        for (int at = 0; at < turns.most; at += C::kBatch) {
            const auto seed = [&](int i) INLINE_LAMBDA {
                return C::gather(
                    [&](int l) INLINE_LAMBDA { return seeds + size_t(turns.level[l][at + i]) * C::kWidth + 16 * l; });
            };
            Vec x[C::kBatch];
            C::each<C::kBatch>([&](auto i) INLINE_LAMBDA { x[i] = seed(i); });
            C::rounds(permutations.payload, x);
            C::each<C::kBatch>([&](auto i) INLINE_LAMBDA {
                const Vec word = payload_word<Limbs>(
                    [&](int l) INLINE_LAMBDA { return words[l] + turns.level[l][at + i] * size_t(Limbs) / 2; });
                x[i] = C::last(x[i], payload_mask(seed(i), word));
            });
            use(x);
        }
    }

private:
    const Permutations permutations;
    const TreeShape& shape;
    const KeyLanes* keys = nullptr;
    // Seeds by depth. (The distance of rows keeps a store from hiding the load of another row 4 KiB apart.)
    Vec trail[C::kBatch][kLevels + 8];
};

template <int Limbs> void dcf_eval_limbs(const EvalCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes);
    using Walk = DcfWalk<Limbs>;
    const size_t size = call.shape.key_size();
    const std::unique_ptr<Walk> walk(new Walk(call.tree, call.shape));
    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes keys(call.keys, size, at, end, call.per_key);
        u128 y[kG];
        for (size_t l = 0; l < kG; ++l)
            y[l] = align_top(load128(call.points + 2 * (at + l < end ? at + l : end - 1)), call.shape.bits);
        const bool more = call.per_key == 1 && end - at >= 2 * kG;
        walk->start(keys);
        walk->descend(y, 0, more ? kG * size : 0);
        for (int r = 0; r < C::kBatch; ++r) {
            const typename Walk::LeftTurns turns(y + r * C::kWidth, 0, call.shape.bits);
            Sum<Limbs> sum;
            int added = 0;
            alignas(32) Block last[C::kWidth] = {};
            walk->payloads(r, turns, [&](const Vec(&value)[C::kBatch]) INLINE_LAMBDA {
                C::each<C::kBatch>([&](auto i) INLINE_LAMBDA { sum.add(value[i]); });
                C::store(last, value[C::kBatch - 1]);
                added += C::kBatch;
            });
            for (int l = 0; l < C::kWidth; ++l) {
                const size_t index = at + size_t(r * C::kWidth + l);
                if (index >= end) break;
                // The padding of the last flight repeats the last payload.
                const u128 padding = load128(&last[l]) * unsigned(added - turns.count[l]);
                store_share<Limbs>(call.out + Limbs * index, read_sum(sum, size_t(l)) - padding, call.party);
            }
        }
    }
}

void dcf_eval(const EvalCall& call, size_t begin, size_t end) {
    if (call.shape.limbs == 1) dcf_eval_limbs<1>(call, begin, end);
    else dcf_eval_limbs<2>(call, begin, end);
}

// The number of ones in x.
static int ones(u128 x) { return __builtin_popcountll(uint64_t(x)) + __builtin_popcountll(uint64_t(x >> 64)); }

// Each group of keys walks to m, then to m - t for every threshold, restarting at the depth at which the new path
// leaves the previous one. This depth is the minimum over the group. It depends on m, which the evaluators know, and
// not on alpha.
template <int Limbs> void classify_limbs(const ClassifyCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes);
    const int bits = call.shape.bits;
    const size_t size = call.shape.key_size();
    // Per lane, the sums of the payloads at the first 0, 1, 2, ... levels where the path goes left.
    struct Sums {
        u128 sum[kG][129];
    };
    const std::unique_ptr<Sums> known(new Sums);
    using Walk = DcfWalk<Limbs>;
    const std::unique_ptr<Walk> walk(new Walk(call.tree, call.shape));

    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes keys(call.keys, size, at, end, 1);
        u128 m[kG], last[kG], base[kG], share[kG];
        for (size_t l = 0; l < kG; ++l) {
            m[l] = align_top(load128(call.m + 2 * (at + l < end ? at + l : end - 1)), bits);
            known->sum[l][0] = 0;
        }
        walk->start(keys);

        // Share of [y < alpha] for the points y, given that the walk belongs to points with the same first `from` bits.
        const auto evaluate = [&](const u128 y[kG], int from) {
            std::memcpy(last, y, sizeof last);
            walk->descend(y, from, 0);
            for (int r = 0; r < C::kBatch; ++r) {
                const typename Walk::LeftTurns turns(y + r * C::kWidth, from, bits);
                u128* next[C::kWidth];
                for (int l = 0; l < C::kWidth; ++l) {
                    const int lane = r * C::kWidth + l;
                    next[l] = known->sum[lane] + from - (from ? ones(y[lane] >> (128 - from)) : 0);
                    share[lane] = *next[l];
                }
                int left[C::kWidth];
                std::memcpy(left, turns.count, sizeof left);
                walk->payloads(r, turns, [&](const Vec(&value)[C::kBatch]) INLINE_LAMBDA {
                    alignas(32) Block block[C::kBatch][C::kWidth];
                    C::each<C::kBatch>([&](auto i) INLINE_LAMBDA { C::store(block[i], value[i]); });
                    for (int l = 0; l < C::kWidth; ++l) {
                        for (int i = 0; i < C::kBatch && left[l] > 0; ++i, --left[l]) {
                            share[r * C::kWidth + l] += Limbs == 1 ? block[i][l].lo : load128(&block[i][l]);
                            *++next[l] = share[r * C::kWidth + l];
                        }
                    }
                });
            }
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
                else value = -value;
                add_weighted<Limbs>(call.out + Limbs * call.outputs * (at + l), call.weights + Limbs * call.outputs * j,
                                    call.outputs, value);
            }
        }
    }
}

// With few keys, a group shared by all thresholds leaves most lanes idle. Then every (key, threshold) has its own lane.
template <int Limbs> void classify_few(const ClassifyCall& call, size_t begin, size_t end) {
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
    dcf_eval_limbs<Limbs>({call.tree, call.shape, call.party, share, call.keys + size * begin, points[0].word, per_key},
                          0, keys * per_key);
    for (size_t i = 0; i < keys; ++i) {
        const u128 m = align_top(load128(points[i * per_key].word), call.shape.bits);
        for (size_t j = 0; j < call.count; ++j) {
            u128 value = load_element<Limbs>(share + Limbs * (i * per_key + j + 1)) -
                         load_element<Limbs>(share + Limbs * (i * per_key));
            if (call.party == 0) value += m < align_top(load128(call.thresholds + 2 * j), call.shape.bits);
            add_weighted<Limbs>(call.out + Limbs * call.outputs * (begin + i), call.weights + Limbs * call.outputs * j,
                                call.outputs, value);
        }
    }
}

void classify_sums(const ClassifyCall& call, size_t begin, size_t end) {
    const size_t row = size_t(call.shape.limbs) * call.outputs;
    std::memset(call.out + row * begin, 0, 8 * row * (end - begin));
    // Groups of lanes to walk: one per threshold, about 0.6 of the way on average, or one per kLanes pairs, all the
    // way.
    const size_t lanes = size_t(kLanes), per_key = call.count + 1, keys = end - begin;
    const bool few = (keys * per_key + lanes - 1) / lanes * 10 < (keys + lanes - 1) / lanes * per_key * 6;
    if (call.shape.limbs == 1) few ? classify_few<1>(call, begin, end) : classify_limbs<1>(call, begin, end);
    else few ? classify_few<2>(call, begin, end) : classify_limbs<2>(call, begin, end);
}

}  // namespace
}  // namespace ppca
