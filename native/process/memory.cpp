// How the process keeps the memory it has freed.
#include <nanobind/nanobind.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace {

// A protocol allocates and frees the same large arrays again and again. By default every one of them comes fresh from
// the system and goes back to it, and touching its pages for the first time costs more than the arithmetic on them.
// Arrays of up to 32 MB (the most that glibc allows) then come from the heap, which gives back what is free beyond
// `kept` bytes.
void keep_memory(int kept) {
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, kept);
    mallopt(M_TOP_PAD, 16 << 20);
#else
    (void)kept;
#endif
}

}  // namespace

void register_memory(nanobind::module_& m) {
    m.def("keep_memory", &keep_memory, nanobind::sig("def keep_memory(kept: int, /) -> None"),
          "Keeps up to `kept` bytes of freed memory for the next arrays instead of giving them back to the system.");
}
