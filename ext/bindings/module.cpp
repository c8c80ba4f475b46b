// The Python module: lists what is bound, nothing else. Each bind_* converts, releases the GIL, calls.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <map>
#include <tiering/errors.hpp>

namespace nb = nanobind;

void bind_graph(nb::module_& m);
void bind_scores(nb::module_& m);
void bind_reorder(nb::module_& m);
void bind_sampling(nb::module_& m);
void bind_codec(nb::module_& m);
void bind_io(nb::module_& m);
void bind_lookahead(nb::module_& m);

namespace {

/// Maps the core's errors to those of tiering.errors: InputError -> RefusedError, IoError -> StorageError.
void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const tiering::InputError& e) {
      const nb::object type = nb::module_::import_("tiering.errors").attr("RefusedError");
      constexpr const char* kSubjects[] = {"argument", "adjacency", "weights"};
      const nb::object error = type(e.what(), kSubjects[static_cast<size_t>(e.subject())], e.relation());
      PyErr_SetObject(type.ptr(), error.ptr());
    } catch (const tiering::IoError& e) {
      const nb::object type = nb::module_::import_("tiering.errors").attr("StorageError");
      const nb::object error = type(e.code(), e.what());
      PyErr_SetObject(type.ptr(), error.ptr());
    }
  });
}

}  // namespace

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
  bind_codec(m);
  bind_io(m);
  bind_lookahead(m);
}
