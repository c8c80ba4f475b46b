// Streams: a queue and a thread each.
#pragma once

#include <cstddef>

namespace simulator {

/// Waits for all that was put on any stream.
void wait_for_streams();
/// Returns the number of streams that were not destroyed.
size_t count_streams();

}  // namespace simulator
