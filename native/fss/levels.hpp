// Choice of the instruction-set level of the AES / FSS kernels at run time.
#pragma once

#include <string>
#include <vector>

#include "fss/kernels.hpp"

namespace ppca {

// The kernels in force: the best level of this machine, or the one pinned by force_fss.
const FssKernels& fss();

// Names of the levels that run on this machine, best first.
std::vector<std::string> fss_levels();

// Pins a level ("auto" returns to the best one). False if there is no such level here.
bool force_fss(const std::string& level);

}  // namespace ppca
