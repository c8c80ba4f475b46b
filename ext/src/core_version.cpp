// Keeps the static library non-empty while kernels land.
namespace tiering {
const char* core_version() { return "0.1.0"; }
}  // namespace tiering
