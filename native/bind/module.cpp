// The extension module ppca.native._kernels: each file of bindings registers its part.
#include <nanobind/nanobind.h>

void register_ring(nanobind::module_& m);
void register_fss(nanobind::module_& m);
void register_dealing(nanobind::module_& m);
void register_products(nanobind::module_& m);
void register_resharing(nanobind::module_& m);
void register_random_bits(nanobind::module_& m);
void register_frames(nanobind::module_& m);
void register_memory(nanobind::module_& m);

NB_MODULE(_kernels, m) {
    register_ring(m);
    register_fss(m);
    register_dealing(m);
    register_products(m);
    register_resharing(m);
    register_random_bits(m);
    register_frames(m);
    register_memory(m);
}
