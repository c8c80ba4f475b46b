#include <algorithm>
#include <cerrno>
#include <tiering/nvme/engine_reads.hpp>

namespace tiering::nvme {
namespace {

const char* explain(uint32_t status) {
  switch (status) {
    case kInvalidOpcode:
      return "invalid opcode";
    case kInvalidField:
      return "invalid field";
    case kDataTransferError:
      return "data transfer error";
    case kInvalidNamespace:
      return "invalid namespace";
    case kLbaOutOfRange:
      return "logical block out of range";
    case kUnrecoveredReadError:
      return "unrecovered read error";
    default:
      return "see the NVMe specification";
  }
}

std::string in_hex(uint32_t value) {
  std::string text;
  for (int shift = 8; shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 15];
  return "0x" + text;
}

}  // namespace

BlockRead blocks_of(const Controller& controller, const Read& read) {
  const uint64_t block_bytes = controller.block_bytes();
  BlockRead found{.block = static_cast<uint64_t>(read.offset) / block_bytes};
  const uint64_t wanted = (read.bytes + block_bytes - 1) / block_bytes;
  const uint64_t there = found.block < controller.blocks() ? controller.blocks() - found.block : wanted;
  found.blocks = static_cast<uint32_t>(std::min(wanted, there));
  return found;
}

IoError refused_error(const ImageFile& image, const Read& read, uint32_t status, const std::string& trouble) {
  std::string text = image.path() + ": reading " + std::to_string(read.bytes) + " bytes at byte " +
                     std::to_string(read.offset) + ": NVMe status " + in_hex(status) + " (" + explain(status) + ")";
  if (!trouble.empty()) text += ": " + trouble;
  return IoError(EIO, text);
}

}  // namespace tiering::nvme
