// The parts of the extension module; native/module.cpp calls all of them.
#pragma once

#include <nanobind/nanobind.h>

void register_ring(nanobind::module_ &m);  // ring arithmetic, fixed point, bit packing (ring_register.cpp)
void register_fss(nanobind::module_ &m);   // AES-based streams and function secret sharing
void register_gates(nanobind::module_ &m);  // what a server does between the messages of a gate (gates.cpp)
void register_memory(nanobind::module_ &m);  // what the process does with freed memory (memory.cpp)
void register_frames(nanobind::module_ &m);  // a round of frames over plain sockets (frames.cpp)
