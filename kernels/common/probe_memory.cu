// What the memory can do: read, write and copy at the best of several shapes, and reading what L2 holds.
//
// A block takes chunks of blockDim.x * U vectors in turn, so U independent 16-byte accesses are in flight in each
// thread. n counts 16-byte vectors. No kernel here waits on a programmatic edge: none is launched with one.
#include "../common/ptx_once.cuh"

WB_DEVICE u32 words(const Vec16& v) { return v.w[0] + v.w[1] + v.w[2] + v.w[3]; }

// Adds a warp's sums to *out, wrapping.
WB_DEVICE void gather(u32 sum, u32* out) {
    for (int lane = 16; lane; lane >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (lane_id() == 0) atomicAdd(out, sum);
}

// AHEAD: with the hint that makes L2 ask DRAM for 256 bytes at a time.
template <bool AHEAD> WB_DEVICE Vec16 load(const Vec16* p) { return AHEAD ? ld16_nc(p) : ld16_once(p); }

template <int U, bool AHEAD = true> WB_DEVICE u32 read_chunk(const Vec16* p, i64 n, i64 chunk) {
    const i64 size = static_cast<i64>(blockDim.x) * U;
    i64 i = chunk * size + threadIdx.x;
    u32 sum = 0;
    if ((chunk + 1) * size <= n) {
        Vec16 v[U];
#pragma unroll
        for (int u = 0; u < U; u++) v[u] = load<AHEAD>(p + i + u * static_cast<i64>(blockDim.x));
#pragma unroll
        for (int u = 0; u < U; u++) sum += words(v[u]);
    } else {
        for (; i < n; i += blockDim.x) sum += words(ld16_nc(p + i));
    }
    return sum;
}

// Wrapping sum of all 32-bit words, added to *out.
template <int U, bool AHEAD> WB_DEVICE void read_all(const Vec16* p, i64 n, u32* out) {
    const i64 size = static_cast<i64>(blockDim.x) * U;
    u32 sum = 0;
    for (i64 c = blockIdx.x; c * size < n; c += gridDim.x) sum += read_chunk<U, AHEAD>(p, n, c);
    gather(sum, out);
}

template <int U> WB_DEVICE void write_all(Vec16* p, i64 n, u32 seed) {
    const i64 size = static_cast<i64>(blockDim.x) * U;
    for (i64 c = blockIdx.x; c * size < n; c += gridDim.x) {
#pragma unroll
        for (int u = 0; u < U; u++) {
            i64 i = c * size + u * static_cast<i64>(blockDim.x) + threadIdx.x;
            u32 h = static_cast<u32>(i) * 2654435761u + seed;
            if (i < n) st16(p + i, Vec16{{h, h ^ 0x9e3779b9u, h * 3u, ~h}});
        }
    }
}

template <int U, bool AHEAD> WB_DEVICE void copy_all(const Vec16* p, Vec16* q, i64 n) {
    const i64 size = static_cast<i64>(blockDim.x) * U;
    for (i64 c = blockIdx.x; c * size < n; c += gridDim.x) {
        i64 i = c * size + threadIdx.x;
        if ((c + 1) * size <= n) {
            Vec16 v[U];
#pragma unroll
            for (int u = 0; u < U; u++) v[u] = load<AHEAD>(p + i + u * static_cast<i64>(blockDim.x));
#pragma unroll
            for (int u = 0; u < U; u++) st16(q + i + u * static_cast<i64>(blockDim.x), v[u]);
        } else {
            for (; i < n; i += blockDim.x) st16(q + i, ld16_nc(p + i));
        }
    }
}

// Reads an array that L2 holds `passes` times, as one run of chunks that the blocks take in turn: the load is even, and
// a multiprocessor does not meet the same lines again before it has read far more than its own L1 could keep.
template <int U> WB_DEVICE void read_l2(const Vec16* p, i64 n, i32 passes, u32* out) {
    const i64 chunks = n / (static_cast<i64>(blockDim.x) * U);
    const i64 total = chunks * passes, step = gridDim.x % chunks;
    i64 chunk = blockIdx.x % chunks;
    u32 sum = 0;
    for (i64 t = blockIdx.x; t < total; t += gridDim.x) {
        sum += read_chunk<U>(p, n, chunk);
        chunk += step;
        if (chunk >= chunks) chunk -= chunks;
    }
    gather(sum, out);
}

#define WB_PROBES(U)                                                                                              \
    WB_KERNEL void probe_read_u##U(const Vec16* p, i64 n, u32* out) { read_all<U, true>(p, n, out); }              \
    WB_ENTRY(probe_read_u##U)                                                                                      \
    WB_KERNEL void probe_read_once_u##U(const Vec16* p, i64 n, u32* out) { read_all<U, false>(p, n, out); }        \
    WB_ENTRY(probe_read_once_u##U)                                                                                 \
    WB_KERNEL void probe_write_u##U(Vec16* p, i64 n, u32 seed) { write_all<U>(p, n, seed); }                       \
    WB_ENTRY(probe_write_u##U)                                                                                     \
    WB_KERNEL void probe_copy_u##U(const Vec16* p, Vec16* q, i64 n) { copy_all<U, true>(p, q, n); }                \
    WB_ENTRY(probe_copy_u##U)                                                                                      \
    WB_KERNEL void probe_copy_once_u##U(const Vec16* p, Vec16* q, i64 n) { copy_all<U, false>(p, q, n); }          \
    WB_ENTRY(probe_copy_once_u##U)                                                                                 \
    WB_KERNEL void probe_l2_u##U(const Vec16* p, i64 n, i32 passes, u32* out) { read_l2<U>(p, n, passes, out); }   \
    WB_ENTRY(probe_l2_u##U)

WB_PROBES(1)
WB_PROBES(2)
WB_PROBES(4)
WB_PROBES(8)
