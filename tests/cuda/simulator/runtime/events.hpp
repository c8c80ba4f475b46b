// Events.
#pragma once

#include <cstddef>

namespace simulator {

size_t live_events();

}  // namespace simulator
