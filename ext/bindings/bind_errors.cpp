// Maps the core's errors to those of tiering.errors: InputError -> RefusedError, IoError -> StorageError.
#include <nanobind/nanobind.h>

#include <exception>
#include <tiering/errors.hpp>

namespace nb = nanobind;

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
