// Bindings of ext/src/scores.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_scores(nb::module_&) {}
