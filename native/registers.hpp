// The two halves of the extension module; native/module.cpp calls both.
#pragma once

#include <nanobind/nanobind.h>

void register_ring(nanobind::module_ &m);  // ring arithmetic, fixed point, bit packing (ring_register.cpp)
void register_fss(nanobind::module_ &m);   // AES-based streams and function secret sharing
