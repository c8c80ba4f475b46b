// Drives of the simulator: each plays a stripe file.
#pragma once

#include <memory>
#include <string>
#include <tiering/nvme/drive.hpp>

namespace simulator {

/// A drive whose content is that of the file at `path`; as a real one, it has one user at a time.
std::unique_ptr<tiering::DriveBus> open_drive_bus(const std::string& path);

}  // namespace simulator

#pragma GCC visibility push(default)  // tests find these in a module through ctypes
extern "C" {

/// Lets a drive that is open refuse reads of a block, or (`block` below 0) fall silent; returns 0 if there is none.
int simulator_break_drive(const char* path, long long block);
/// Returns the reads of a drive that is open; below 0: there is none.
long long simulator_drive_reads(const char* path);

}  // extern "C"
#pragma GCC visibility pop
