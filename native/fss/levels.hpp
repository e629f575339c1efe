// The levels of the stream and FSS kernels, and the level in use.
#pragma once

#include "fss/kernels.hpp"
#include "process/levels.hpp"

namespace ppca {

extern Levels<FssKernels> fss_levels;

// The kernels in use: the best level of this machine, or the one that a test selected.
inline const FssKernels& fss() { return fss_levels.current(); }

}  // namespace ppca
