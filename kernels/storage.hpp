// Rows of elements between the types they are stored in and computed with. Internal to the kernels.
#pragma once

#include "loops.hpp"

#include <cstdint>

namespace longstraw {

/// to = value, rounded once where it is stored in less. (The compiler makes no vector code of loops
/// that assign a whole bfloat16: 12 times slower in swiglu.)
inline void store(float& to, float value) { to = value; }
inline void store(double& to, double value) { to = value; }
inline void store(bfloat16& to, float value) { to.bits = bfloat16(value).bits; }

/// to = from, widened or rounded.
template <class To, class From>
void convert_row(To* to, const From* from, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) store(to[i], from[i]);
}

/// Rounds x to bfloat16 where it is.
template <class T>
void round_row(T* x, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<T>(bfloat16(x[i]));
}

/// Whether a row of y may take results of a computation in the type of x: same extents, and that
/// type or, of float32, bfloat16.
inline bool takes(const Tensor& y, const Tensor& x) {
  return same_extents(y, x) && compute_type(y.type()) == x.type();
}

/// Whether w is a vector of weights for the columns of x, of its type or bfloat16.
inline bool weighs_columns(const Tensor& w, const Tensor& x) {
  return is_vector(w, x.extent(1)) && compute_type(w.type()) == x.type();
}

/// Calls `body(T{}, A{}, B{})`: T is what `type` computes in, A and B what `a` and `b` are stored
/// in.
template <class Body>
void dispatch_stored(DType type, DType a, DType b, const Body& body) {
  dispatch(type, [&]<class T>(T t) {
    dispatch_stored<T>(a, [&]<class A>(A stored) {
      dispatch_stored<T>(b, [&]<class B>(B other) { body(t, stored, other); });
    });
  });
}

}  // namespace longstraw
