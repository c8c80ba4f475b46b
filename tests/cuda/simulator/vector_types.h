// Vector types of CUDA, with the sizes and alignments that they have there.
#pragma once

// A pair and a set of four are read in one access where they are aligned to their size, so their alignment is part of
// what is simulated: the sanitizers see an access that a GPU would refuse.
#define SIMULATOR_VECTORS(base, value, align2, align4) \
  struct alignas(align2) base##2 { value x, y; };      \
  struct base##3 { value x, y, z; };                   \
  struct alignas(align4) base##4 { value x, y, z, w; }

SIMULATOR_VECTORS(char, signed char, 2, 4);
SIMULATOR_VECTORS(uchar, unsigned char, 2, 4);
SIMULATOR_VECTORS(short, short, 4, 8);
SIMULATOR_VECTORS(ushort, unsigned short, 4, 8);
SIMULATOR_VECTORS(int, int, 8, 16);
SIMULATOR_VECTORS(uint, unsigned, 8, 16);
SIMULATOR_VECTORS(float, float, 8, 16);
#undef SIMULATOR_VECTORS

struct alignas(16) longlong2 {
  long long x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
struct alignas(16) double2 {
  double x, y;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

constexpr int2 make_int2(int x, int y) { return {x, y}; }
constexpr int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
constexpr uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
constexpr float2 make_float2(float x, float y) { return {x, y}; }
constexpr float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
constexpr longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
constexpr ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
constexpr double2 make_double2(double x, double y) { return {x, y}; }
