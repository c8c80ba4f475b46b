// Batches in parts: one that takes many slots is planned, read and copied part by part, in page order.
#pragma once

#include <cstdint>
#include <span>
#include <tiering/lookahead/plan.hpp>
#include <tiering/lookahead/ssd_rows.hpp>
#include <vector>

namespace tiering {

/// Some of a batch's rows; to a plan it is a batch of its own.
struct BatchPart {
  std::vector<uint32_t> rows{};
  std::vector<uint32_t> places{};  ///< of each row among the batch's; empty: the part is the batch
};

/// A part takes at most this share of the slots: while one is copied others are read, and slots go to rows of parts to
/// come as soon as a part is copied. Smaller shares read no less.
inline constexpr int64_t kPartsOfSlots = 8;
/// A part of so few rows stays whole where there are slots for it, however few these are.
inline constexpr int64_t kLeastPart = 16;

/// Cuts the rows of a batch, each given once, into parts of about equal size. A batch that needs few slots stays whole,
/// in the order it was given in; parts follow each other in page order.
std::vector<BatchPart> cut_batch(const SsdRows& rows, std::span<const SlotPool> pools, std::vector<uint32_t> batch);

}  // namespace tiering
