// Settings of the allocator: freed memory is kept for reuse.
#include <nanobind/nanobind.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace {

// A protocol repeatedly allocates and frees large arrays of the same sizes. By default each is mapped and unmapped by
// the system, and the first access to its pages costs more than the arithmetic on them. With these settings arrays of
// up to 32 MB (the maximum of glibc) come from the heap, which returns free memory beyond `kept` bytes.
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
