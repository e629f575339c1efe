// Splitting one big kernel call over a few threads.
//
// Threads are started per call and joined before it returns (about 20 microseconds): there is no pool that a
// fork() could break. Kernels therefore choose a grain worth at least ~100 microseconds of work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace ppca {

inline std::atomic<unsigned>& thread_limit() {
    static std::atomic<unsigned> limit{std::clamp(std::thread::hardware_concurrency(), 1u, 2u)};
    return limit;
}

// The largest number of threads one kernel call may use, itself included.
inline unsigned threads() { return thread_limit().load(std::memory_order_relaxed); }

// n = 1 means: never start a thread. The caller checks n >= 1.
inline void set_threads(unsigned n) { thread_limit().store(n, std::memory_order_relaxed); }

// Calls f(begin, end) on disjoint pieces of [0, n) of at most `grain` items each, until all are done. Pieces are
// assigned on demand, so they need not take the same time. n <= grain, or threads() == 1, is one plain call f(0, n). f
// must neither throw nor touch Python.
template <class F> void parallel_for(std::size_t n, std::size_t grain, F&& f) {
    if (n == 0) return;
    grain = std::max<std::size_t>(grain, 1);
    const std::size_t pieces = (n + grain - 1) / grain;
    const std::size_t helpers = std::min<std::size_t>(threads(), pieces) - 1;
    if (helpers == 0) {
        f(std::size_t{0}, n);
        return;
    }
    std::atomic<std::size_t> next{0};
    auto work = [&] {
        for (;;) {
            const std::size_t begin = next.fetch_add(grain, std::memory_order_relaxed);
            if (begin >= n) return;
            f(begin, std::min(begin + grain, n));
        }
    };
    std::vector<std::jthread> crew;
    crew.reserve(helpers);
    try {
        for (std::size_t i = 0; i < helpers; ++i) crew.emplace_back(work);
    } catch (const std::system_error&) {
        // The system refuses more threads: the running ones share the work, and this thread alone would be enough.
    }
    work();
}

}  // namespace ppca
