// The parts of the extension module; module.cpp calls all of them.
#pragma once

#include <nanobind/nanobind.h>

void register_ring(nanobind::module_& m);  // ring arithmetic, fixed point, bit packing (bind/ring.cpp)
void register_fss(nanobind::module_& m);   // AES-based streams and function secret sharing
void register_dealing(nanobind::module_& m);
void register_resharing(nanobind::module_& m);
void register_random_bits(nanobind::module_& m);
void register_memory(nanobind::module_& m);  // what the process does with freed memory (process/memory.cpp)
void register_frames(nanobind::module_& m);  // a round of frames over plain sockets (wire/frames.cpp)
