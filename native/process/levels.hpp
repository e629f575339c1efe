// The instruction-set levels of a family of kernels that run on this machine, and the level in use.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

namespace ppca {

// Level is a table of kernels with a name.
template <class Level> class Levels {
public:
    // `usable` are those that this machine can run, best first.
    explicit Levels(std::vector<const Level*> usable) : usable_(std::move(usable)), current_(usable_.front()) {}

    const Level& current() const { return *current_.load(std::memory_order_relaxed); }

    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const Level* level : usable_) names.emplace_back(level->name);
        return names;
    }

    // Selects a level ("auto": the best one). Returns false if this machine cannot run it.
    bool force(const std::string& name) {
        for (const Level* level : usable_)
            if (name == level->name || name == "auto") {
                current_.store(level, std::memory_order_relaxed);
                return true;
            }
        return false;
    }

private:
    const std::vector<const Level*> usable_;
    std::atomic<const Level*> current_;
};

}  // namespace ppca
