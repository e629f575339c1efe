// Shared parts of bindings and steps: array types, keys and streams, checks, use of the GIL and of threads.
#pragma once

#include "bind/arrays.hpp"
#include "fss/levels.hpp"
#include "process/threads.hpp"
#include "ring/elements.hpp"

namespace ppca {

using Words = Array<uint64_t>;
using Bytes = Array<uint8_t>;

// Rough costs in nanoseconds at the AES-NI level, only used to decide whether a call is worth the GIL switch or a
// thread.
constexpr double kBlockNs = 2, kGilNs = 2000, kPieceNs = 100000;
constexpr size_t kGroup = 320;  // pieces are multiples of it: whole groups of lanes (10, 16, 64) and of keys (80)

// Runs kernel(begin, end) over [0, count), without the GIL and on several threads if there is enough work. `blocks` is
// the number of AES calls per item.
template <class F> void run(size_t count, double blocks, F&& kernel) {
    if (count == 0) return;
    const double item_ns = blocks * kBlockNs;
    if (double(count) * item_ns < kGilNs) {
        kernel(size_t(0), count);
        return;
    }
    nb::gil_scoped_release release;
    const size_t grain = size_t(kPieceNs / item_ns / double(kGroup) + 1) * kGroup;
    parallel_for(count, grain, kernel);
}

// The expanded schedule of a secret AES-128 key.
struct Key {
    Schedule schedule;
    explicit Key(nb::bytes key) {
        if (key.size() != 16) fail("key has " + std::to_string(key.size()) + " bytes, expected 16");
        schedule = expand_key(reinterpret_cast<const uint8_t*>(key.c_str()));
    }
};

// The public keys of a run's FSS trees, from 32 bytes.
struct TreeKeyPair : TreeKey {
    explicit TreeKeyPair(nb::bytes keys) {
        if (keys.size() != 32) fail("keys has " + std::to_string(keys.size()) + " bytes, expected 32");
        const auto* bytes = reinterpret_cast<const uint8_t*>(keys.c_str());
        tree = expand_key(bytes);
        payload = expand_key(bytes + 16);
    }
};

constexpr size_t kGilWords = 8192;  // a few microseconds of work of a step: below, keep the GIL

// Elements of a step, or of an element-wise operation, that one thread takes at a time: about 100 microseconds. Packed,
// they are whole bytes for any number of bits.
constexpr size_t kStepElements = 1 << 16;

// Fills `out` with the stream (op, purpose) of a key.
inline void fill(uint64_t* out, size_t words, const Key& key, uint64_t op, uint64_t purpose) {
    run(words, 0.5,
        [&, prg = fss().prg](size_t begin, size_t end) { prg(key.schedule, op, purpose, out, begin, end); });
}

inline void require_bits(int bits, int least = 1, int most = 128) {
    if (bits < least || bits > most)
        fail("bits is " + std::to_string(bits) + ", expected " + std::to_string(least) + " to " + std::to_string(most));
}

// Calls f with the mode as a compile-time constant.
template <class F> void with_mode(int mode, F&& f) {
    switch (mode) {
        case 0: return f(std::integral_constant<Shift, Shift::floor>{});
        case 1: return f(std::integral_constant<Shift, Shift::negated>{});
        case 2: return f(std::integral_constant<Shift, Shift::arithmetic>{});
        default: fail("mode is " + std::to_string(mode) + ", expected 0 (floor), 1 (negated) or 2 (arithmetic)");
    }
}

}  // namespace ppca
