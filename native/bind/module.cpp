#include "bind/registers.hpp"

NB_MODULE(_kernels, m) {
    register_ring(m);
    register_fss(m);
    register_dealing(m);
    register_resharing(m);
    register_random_bits(m);
    register_memory(m);
    register_frames(m);
}
