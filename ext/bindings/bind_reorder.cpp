// Bindings of ext/src/reorder.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_reorder(nb::module_&) {}
