// Memory opened from other processes.
#pragma once

#include <cstddef>

namespace simulator {

/// How many times memory of another process was opened and not closed.
size_t opened_from_others();

}  // namespace simulator
