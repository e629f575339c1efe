#include <nanobind/nanobind.h>
NB_MODULE(_kernels, m) { m.attr("ready") = true; }
