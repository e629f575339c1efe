// The levels of the stream and FSS kernels, and the one in force.
#pragma once

#include "fss/kernels.hpp"
#include "process/levels.hpp"

namespace ppca {

extern Levels<FssKernels> fss_levels;

// The kernels in force: the best level of this machine, or the one that a test pinned.
inline const FssKernels& fss() { return fss_levels.current(); }

}  // namespace ppca
