// Stands in for uring_engine.cpp where the build found no liburing.
#include <cerrno>
#include <tiering/io/read_engine.hpp>

namespace tiering {

std::string uring_unavailable() {
  return "this build has no io_uring engine because liburing was not found: install liburing-dev and "
         "pkg-config, "
         "then reinstall the package";
}

std::unique_ptr<ReadEngine> make_uring_engine(const ImageSet&, const EngineOptions&) {
  throw RingError(ENOSYS, uring_unavailable());
}

}  // namespace tiering
