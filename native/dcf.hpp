// Evaluation of distributed comparison functions: shares of [y < alpha]. See fss_tree.hpp for the scheme.
#pragma once

#include <memory>

#include "fss_tree.hpp"

namespace ppca {
namespace {

// A group of lanes at some depth: nodes, and the payloads summed on the way there.
template <class C, int Limbs>
struct DcfState {
    Nodes<C> nodes;
    Sum<C, Limbs> sum[C::kBatch];
};

// Walks a group of lanes down the tree, half a group at a time: two blocks per lane and level, one for the child on the
// path and one for the payload of the node, which counts where the path goes left.
template <class C, int Limbs>
class DcfWalk {
public:
    using State = DcfState<C, Limbs>;

    DcfWalk(const TreeShape& shape, const KeyLanes<C>& keys) : shape(shape), keys(keys) {}

    void start(State& state, int party) const {
        state.nodes.root(keys.key, party);
        for (int r = 0; r < C::kBatch; ++r) state.sum[r].clear();
    }

    // From depth `depth` to the next; `to` may be `from`.
    void level(const State& from, State& to, const PathReader<C>& reader, int depth) const {
        // The last level has no child: its block is corrected with whatever the key starts with and never used.
        const size_t seed_at = depth < shape.seeds ? shape.seed_at(depth) : 0, value_at = shape.value_at(depth);
        for (int base = 0; base < C::kBatch; base += kHalf) {
            Vec x[C::kFlight], in[C::kFlight], bits[kHalf];
            C::template each<kHalf>([&](auto i) INLINE_LAMBDA {
                const Vec seed = from.nodes.seed[base + i];
                bits[i] = reader.bit(base + i);
                x[i] = in[i] = C::bit_xor(seed, C::tweak(bits[i]));
                x[kHalf + i] = in[kHalf + i] = C::bit_xor(seed, C::low_word(2));
            });
            C::park(in);
            C::park(bits);
            C::rounds(context, x);
            C::template each<kHalf>([&](auto i) INLINE_LAMBDA {
                const int r = base + i;
                const uint8_t* const* key = keys.key + r * C::kWidth;
                const Vec bit = bits[i], control = from.nodes.control[r];
                const Vec seed_word = C::bit_and(control, C::gather(key, seed_at));
                const Vec value_word = C::bit_and(control, Sum<C, Limbs>::gather(key, value_at));
                const Vec child = C::last(context, x[i], C::bit_xor(in[i], seed_word));
                const Vec value = C::last(context, x[kHalf + i], C::bit_xor(in[kHalf + i], value_word));
                Sum<C, Limbs> sum = from.sum[r];
                sum.add(C::and_not(bit, value));
                to.sum[r] = sum;
                to.nodes.take(r, child, bit);
            });
        }
    }

private:
    static constexpr int kHalf = C::kFlight / 2;
    using Vec = typename C::Vec;

    const typename C::Context& context = fixed_context<C>();
    const TreeShape& shape;
    const KeyLanes<C>& keys;
};

template <class C, int Limbs>
static void read_sums(const DcfState<C, Limbs>& state, u128 out[kLanes<C>]) {
    for (int r = 0; r < C::kBatch; ++r) state.sum[r].read(out + r * C::kWidth);
}

template <class C, int Limbs>
void dcf_eval_limbs(const EvalCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes<C>);
    const size_t size = call.shape.key_size();
    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes<C> keys(call.keys, size, at, end, call.per_key);
        Paths<C> paths;
        for (size_t l = 0; l < kG; ++l) {
            const size_t index = at + l < end ? at + l : end - 1;
            paths.set(int(l), align_top(load128(call.points + 2 * index), call.shape.bits));
        }
        const DcfWalk<C, Limbs> walk(call.shape, keys);
        DcfState<C, Limbs> state;
        walk.start(state, call.party);
        PathReader<C> reader(paths);
        const bool more = call.per_key == 1 && end - at >= 2 * kG;
        for (int depth = 0; depth < call.shape.bits; ++depth) {
            if (more && depth % 4 == 0)
                keys.prefetch(kG * size + call.shape.seed_at(depth), kG * size + call.shape.value_at(depth));
            reader.go_to(depth);
            walk.level(state, state, reader, depth);
        }
        u128 share[kG];
        read_sums(state, share);
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

// Each group of keys walks to m, then to m - t for every threshold in turn, restarting where the new path leaves the
// last one. The point of departure is the earliest over the group; it depends on m, which the evaluators know, never on
// alpha.
template <class C, int Limbs>
void classify_limbs(const ClassifyCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes<C>);
    const int bits = call.shape.bits;
    const size_t size = call.shape.key_size();
    const std::unique_ptr<DcfState<C, Limbs>[]> at_depth(new DcfState<C, Limbs>[size_t(bits) + 1]);

    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes<C> keys(call.keys, size, at, end, 1);
        const DcfWalk<C, Limbs> walk(call.shape, keys);
        u128 m[kG], last[kG], base[kG], share[kG];
        for (size_t l = 0; l < kG; ++l) {
            m[l] = align_top(load128(call.m + 2 * (at + l < end ? at + l : end - 1)), bits);
            last[l] = 0;
        }
        walk.start(at_depth[0], call.party);

        // Share of [y < alpha] for the points y, given that the cached states belong to the points `last`.
        const auto evaluate = [&](const u128 y[kG], int from) {
            Paths<C> paths;
            for (size_t l = 0; l < kG; ++l) {
                paths.set(int(l), y[l]);
                last[l] = y[l];
            }
            PathReader<C> reader(paths);
            for (int depth = from; depth < bits; ++depth) {
                reader.go_to(depth);
                walk.level(at_depth[depth], at_depth[depth + 1], reader, depth);
            }
            read_sums(at_depth[bits], share);
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
