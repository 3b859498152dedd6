/* simd in plain C: the definition that every other instruction set equals bit for bit, and what runs where there is no
 * other. Activations are 32 int16 a block in their own order. */
#include <math.h>
#include <string.h>

#include "core/backend/simd.h"
#include "core/backend/simd_quant.h"
#include "core/tensor/half.h"

typedef struct bytes64 {
    uint8_t v[64];
} bytes64;

typedef struct quad {
    int8_t v[64];
} quad;
enum { QUAD_BYTES = 64, QUAD_PARTS = 1 };
typedef quad part;

typedef struct isum {
    int32_t v[SIMD_LANES];
} isum;

typedef struct lanes {
    float v[SIMD_LANES];
} lanes;

#define EACH(n) for (uint32_t i = 0; i < (n); i++)

static inline bytes64 bytes_load(const unsigned char *p)
{
    bytes64 x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline bytes64 bytes_and(bytes64 x, int mask)
{
    EACH(64) x.v[i] = (uint8_t)(x.v[i] & mask);
    return x;
}

static inline bytes64 bytes_or(bytes64 x, bytes64 y)
{
    EACH(64) x.v[i] |= y.v[i];
    return x;
}

static inline bytes64 bytes_sub(bytes64 x, int c)
{
    EACH(64) x.v[i] = (uint8_t)(x.v[i] - c);
    return x;
}

static inline bytes64 bytes_shl(bytes64 x, int n)
{
    EACH(64) x.v[i] = (uint8_t)(x.v[i] << n);
    return x;
}

static inline bytes64 bytes_shr(bytes64 x, int n)
{
    EACH(64) x.v[i] = (uint8_t)(x.v[i] >> n);
    return x;
}

static inline quad quad_of(bytes64 x)
{
    quad q;
    memcpy(&q, &x, sizeof q);
    return q;
}

static inline part part_load(const unsigned char *p)
{
    quad q;
    memcpy(&q, p, sizeof q);
    return q;
}

static inline void quad_store(unsigned char *p, quad q)
{
    memcpy(p, &q, sizeof q);
}

static inline isum isum_zero(void)
{
    return (isum){{0}};
}

static inline isum isum_dot(isum s, quad w, const unsigned char *x)
{
    int16_t v[4];
    memcpy(v, x, sizeof v);
    EACH(SIMD_LANES)
    {
        s.v[i] += w.v[4 * i] * v[0] + w.v[4 * i + 1] * v[1] + w.v[4 * i + 2] * v[2] + w.v[4 * i + 3] * v[3];
    }
    return s;
}

static inline isum isum_part(isum s, part w, const unsigned char *x)
{
    return isum_dot(s, w, x);
}

static inline lanes isum_lanes(isum s)
{
    lanes x;
    EACH(SIMD_LANES) x.v[i] = (float)s.v[i];
    return x;
}

static inline lanes lanes_zero(void)
{
    return (lanes){{0}};
}

static inline lanes lanes_set(float y)
{
    lanes x;
    EACH(SIMD_LANES) x.v[i] = y;
    return x;
}

static inline lanes lanes_load(const float *p)
{
    lanes x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline void lanes_store(float *p, lanes x)
{
    memcpy(p, &x, sizeof x);
}

static inline lanes lanes_f16(const unsigned char *p)
{
    lanes x;
    uint16_t h[SIMD_LANES];
    memcpy(h, p, sizeof h);
    EACH(SIMD_LANES) x.v[i] = half_f16_to_f32(h[i]);
    return x;
}

static inline lanes lanes_bf16(const unsigned char *p)
{
    lanes x;
    uint16_t h[SIMD_LANES];
    memcpy(h, p, sizeof h);
    EACH(SIMD_LANES) x.v[i] = half_bf16_to_f32(h[i]);
    return x;
}

static inline lanes lanes_u8(const unsigned char *p)
{
    lanes x;
    EACH(SIMD_LANES) x.v[i] = (float)p[i];
    return x;
}

static inline lanes lanes_s8(const unsigned char *p)
{
    lanes x;
    EACH(SIMD_LANES) x.v[i] = (float)(int8_t)p[i];
    return x;
}

static inline lanes lanes_neg(lanes x)
{
    EACH(SIMD_LANES) x.v[i] = -x.v[i];
    return x;
}

static inline lanes lanes_add(lanes x, lanes y)
{
    EACH(SIMD_LANES) x.v[i] += y.v[i];
    return x;
}

static inline lanes lanes_mul(lanes x, lanes y)
{
    EACH(SIMD_LANES) x.v[i] *= y.v[i];
    return x;
}

static inline lanes lanes_fma(lanes x, lanes y, lanes z)
{
    EACH(SIMD_LANES) z.v[i] = fmaf(x.v[i], y.v[i], z.v[i]);
    return z;
}

static inline void prefetch(uintptr_t at)
{
    (void)at;
}

#define SIMD_PANELS panels
#define SIMD_PLAIN
#include "core/backend/simd_matmul_body.h"

static int quantise_block(const float *x, float limit, unsigned char *q, float *d)
{
    uint32_t amax = 0, bits;
    int sum = 0;
    for (uint32_t i = 0; i < SIMD_BLOCK; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        amax = bits > amax ? bits : amax;
    }
    float inv = simd_quant_scale(amax, limit, d);
    for (uint32_t i = 0; i < SIMD_BLOCK; i++) {
        int16_t v = *d > 0.0f ? (int16_t)rintf(x[i] * inv) : 0;
        memcpy(q + 2 * i, &v, sizeof v);
        sum += v;
    }
    return sum;
}

static void quantise(const float *x, size_t stride, uint32_t n_rows, uint32_t n_in, float limit, unsigned char *to)
{
    simd_quantise_tile(x, stride, n_rows, n_in, limit, to, quantise_block);
}

const simd_isa simd_generic = {.name = "generic", .quantise = quantise, .panels = panels};
