// The Python module: lists what is bound, nothing else. Each bind_* converts, releases the GIL, calls.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <map>
#include <string>

namespace nb = nanobind;

void bind_errors(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_scores(nb::module_& m);
void bind_reorder(nb::module_& m);
void bind_sampling(nb::module_& m);
void bind_io(nb::module_& m);
void bind_lookahead(nb::module_& m);

NB_MODULE(_native, m) {
  // A process that multiprocessing spawned keeps its arguments, such as an open layout, until after the interpreter
  // has ended, and nanobind would call each of them a leak.
  nb::set_leak_warnings(false);
  m.def("build_info", [] {
    return std::map<std::string, std::string>{
        {"compiler", TIERING_COMPILER},
        {"build_type", TIERING_BUILD_TYPE},
        {"liburing", TIERING_LIBURING_STATUS},
        {"nvcc", TIERING_NVCC_STATUS},
    };
  });
  bind_errors(m);
  bind_graph(m);
  bind_scores(m);
  bind_reorder(m);
  bind_sampling(m);
  bind_io(m);
  bind_lookahead(m);
}
