"""What every generated source begins with: functions that C and CUDA do not have.

The same text compiles for a GPU and, with `__global__` and its like defined, as C++: what a kernel
computes can be tried without a card. Only conversions of half-width floats have instructions of
their own on a GPU; the rules of the C++ ones are those of IEEE 754, ties to even.
"""

from __future__ import annotations

from typing import Final

PRELUDE: Final = """\
#ifndef __CUDACC__
#define __device__
#define __forceinline__ inline
#endif
#define CF_FUNCTION static __device__ __forceinline__
template <typename To, typename From> CF_FUNCTION To cf_bits(From from) {
  union { From from; To to; } both;
  both.from = from;
  return both.to;
}
CF_FUNCTION float cf_float_of(unsigned int bits) { return cf_bits<float>(bits); }
CF_FUNCTION double cf_double_of(unsigned long long bits) { return cf_bits<double>(bits); }

#ifdef __CUDA_ARCH__
CF_FUNCTION float cf_half_load(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
CF_FUNCTION unsigned short cf_half_store(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
#else
CF_FUNCTION float cf_half_load(unsigned short x) {
  const unsigned int sign = (unsigned int)(x & 0x8000u) << 16, rest = x & 0x7fffu;
  if (rest >= 0x7c00u) return cf_float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x400u) return cf_float_of(sign | ((rest << 13) + 0x38000000u));
  const float small = (float)rest * 0x1p-24f;
  return sign ? -small : small;
}
CF_FUNCTION unsigned short cf_half_store(float x) {
  const unsigned int bits = cf_bits<unsigned int>(x), sign = bits >> 16 & 0x8000u;
  const unsigned int rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return (unsigned short)(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
  if (rest >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  if (rest < 0x38800000u)  // the sum is rounded where the least half's bit is
    return (unsigned short)(sign | (cf_bits<unsigned int>(cf_float_of(rest) + 0.5f) - 0x3f000000u));
  const unsigned int odd = rest >> 13 & 1u;
  return (unsigned short)(sign | ((rest - 0x38000000u + 0xfffu + odd) >> 13));
}
#endif
CF_FUNCTION float cf_bfloat_load(unsigned short x) { return cf_float_of((unsigned int)x << 16); }
CF_FUNCTION unsigned short cf_bfloat_store(float x) {
  const unsigned int bits = cf_bits<unsigned int>(x);
  if (x != x) return (unsigned short)(bits >> 16 & 0x8000u | 0x7fc0u);
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
CF_FUNCTION float cf_half_rounded(float x) { return cf_half_load(cf_half_store(x)); }
CF_FUNCTION float cf_bfloat_rounded(float x) { return cf_bfloat_load(cf_bfloat_store(x)); }
// towards the odd neighbour, so that rounding again rounds once
CF_FUNCTION float cf_odd(double x) {
  const float y = (float)x;
  if ((double)y == x || y != y) return y;
  const unsigned int bits = cf_bits<unsigned int>(y);
  const double size = x < 0 ? -x : x, got = y < 0 ? -(double)y : (double)y;
  return cf_float_of(got > size ? bits - 1u | 1u : bits | 1u);
}

// beyond an integer's range as on x86: the least one
CF_FUNCTION int cf_int(double x) {
  return x > -2147483649.0 && x < 2147483648.0 ? (int)x : -2147483647 - 1;
}
CF_FUNCTION unsigned int cf_uint(double x) {
  return x < 2147483648.0 || x != x ? (unsigned int)cf_int(x)
    : (unsigned int)cf_int(x - 2147483648.0) ^ 0x80000000u;
}
CF_FUNCTION long long cf_long(double x) {
  return x >= -9223372036854775808.0 && x < 9223372036854775808.0
    ? (long long)x : -9223372036854775807ll - 1;
}
CF_FUNCTION unsigned long long cf_ulong(double x) {
  return x < 9223372036854775808.0 || x != x ? (unsigned long long)cf_long(x)
    : (unsigned long long)cf_long(x - 9223372036854775808.0) ^ 0x8000000000000000ull;
}
CF_FUNCTION unsigned char cf_ones(unsigned long long x) {
  unsigned char count = 0;
  for (; x; x &= x - 1) ++count;
  return count;
}

#define CF_FLOATS(T, s, two)                                                              \\
  CF_FUNCTION T cf_logaddexp##s(T x, T y) {                                               \\
    if (x == y) return x + (T)two;                                                        \\
    const T d = x - y;                                                                    \\
    return d > 0 ? x + log1p##s(exp##s(-d)) : d <= 0 ? y + log1p##s(exp##s(d)) : d;       \\
  }                                                                                       \\
  CF_FUNCTION T cf_remainder##s(T x, T y) {                                               \\
    const T r = fmod##s(x, y);                                                            \\
    if (y == 0) return r;                                                                 \\
    if (r == 0) return copysign##s((T)0, y);                                              \\
    return (y < 0) != (r < 0) ? r + y : r;                                                \\
  }
CF_FLOATS(float, f, 0.693147180559945309417232121458176568)
CF_FLOATS(double, , 0.693147180559945309417232121458176568)
"""
