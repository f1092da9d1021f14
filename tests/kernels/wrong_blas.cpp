// Preloaded before the BLAS: its float32 product is right but for one element.
#include <cblas.h>
#include <dlfcn.h>

extern "C" void cblas_sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, blasint m,
                            blasint n, blasint k, float alpha, const float* a, blasint lda,
                            const float* b, blasint ldb, float beta, float* c, blasint ldc) {
  using Product = decltype(&cblas_sgemm);
  const auto product = reinterpret_cast<Product>(dlsym(RTLD_NEXT, "cblas_sgemm"));
  product(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (m > 100) c[(m - 1) * ldc + n - 1] *= 1.001f;
}
