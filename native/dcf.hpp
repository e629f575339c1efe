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

template <class C, int Limbs>
struct DcfGroup {
    using Vec = typename C::Vec;
    const typename C::Context& context = fixed_context<C>();
    const TreeShape& shape;
    const KeyLanes<C>& keys;

    void start(DcfState<C, Limbs>& state, int party) const {
        state.nodes.root(keys.key, party);
        for (int r = 0; r < C::kBatch; ++r) state.sum[r].clear();
    }

    // From depth d to d + 1. The payload of the node counts where the path goes left.
    void level(DcfState<C, Limbs>& state, const Vec bit[C::kBatch], int depth) const {
        Vec value[C::kBatch], go[C::kBatch];
        for (int r = 0; r < C::kBatch; ++r) go[r] = C::and_not(bit[r], state.nodes.control[r]);
        state.nodes.payload_masks(context, value);
        if (depth < shape.seeds) state.nodes.descend(context, bit, keys.key, shape.seed_at(depth));
        for (int r = 0; r < C::kBatch; ++r) {
            state.sum[r].add(C::and_not(bit[r], value[r]));
            state.sum[r].add(C::bit_and(go[r], Sum<C, Limbs>::gather(keys.key + r * C::kWidth, shape.value_at(depth))));
        }
    }

    void read(const DcfState<C, Limbs>& state, u128 out[kLanes<C>]) const {
        for (int r = 0; r < C::kBatch; ++r) state.sum[r].read(out + r * C::kWidth);
    }
};

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
        const DcfGroup<C, Limbs> group{.shape = call.shape, .keys = keys};
        DcfState<C, Limbs> state;
        group.start(state, call.party);
        PathReader<C> reader(paths, 0);
        for (int depth = 0; depth < call.shape.bits; ++depth) {
            typename C::Vec bit[C::kBatch];
            reader.next(bit);
            group.level(state, bit, depth);
        }
        u128 share[kG];
        group.read(state, share);
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

// Each group of keys walks to m, then to m - t for every threshold in turn, restarting where the new path leaves the last one.
// The point of departure is the earliest over the group; it depends on m, which the evaluators know, never on alpha.
template <class C, int Limbs>
void classify_limbs(const ClassifyCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes<C>);
    const int bits = call.shape.bits;
    const size_t size = call.shape.key_size();
    const std::unique_ptr<DcfState<C, Limbs>[]> at_depth(new DcfState<C, Limbs>[size_t(bits) + 1]);

    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes<C> keys(call.keys, size, at, end, 1);
        const DcfGroup<C, Limbs> group{.shape = call.shape, .keys = keys};
        u128 m[kG], last[kG], base[kG], share[kG];
        for (size_t l = 0; l < kG; ++l) {
            m[l] = align_top(load128(call.m + 2 * (at + l < end ? at + l : end - 1)), bits);
            last[l] = 0;
        }
        group.start(at_depth[0], call.party);

        // Share of [y < alpha] for the points y, given that the cached states belong to the points `last`.
        const auto walk = [&](const u128 y[kG], int from) {
            Paths<C> paths;
            for (size_t l = 0; l < kG; ++l) {
                paths.set(int(l), y[l]);
                last[l] = y[l];
            }
            PathReader<C> reader(paths, from);
            for (int depth = from; depth < bits; ++depth) {
                typename C::Vec bit[C::kBatch];
                reader.next(bit);
                at_depth[depth + 1] = at_depth[depth];
                group.level(at_depth[depth + 1], bit, depth);
            }
            group.read(at_depth[bits], share);
        };
        walk(m, 0);
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
            if (common < bits) walk(y, common);
            for (size_t l = 0; l < kG && at + l < end; ++l) {
                u128 value = share[l] - base[l];
                if (call.party == 0) value += m[l] < threshold;
                store_share<Limbs>(call.out + Limbs * ((at + l) * call.count + j), value, call.party);
            }
        }
    }
}

template <class C>
void classify_bits(const ClassifyCall& call, size_t begin, size_t end) {
    if (call.shape.limbs == 1)
        classify_limbs<C, 1>(call, begin, end);
    else
        classify_limbs<C, 2>(call, begin, end);
}

}  // namespace
}  // namespace ppca
