// The row waits in shared memory as it came, not in registers as floats: the copy engine brings it, so that a
// multiprocessor holds 200 KB of rows, one being read, one computed and one written, where registers hold 64 KB. The
// price is a second exponential for each element: both passes begin with what was read.
//
// Each warp has its own run of the row, its own barrier and its own copies; warps meet for the row's statistic only.
// Blocks of a cluster send each other theirs as a copy that the receiver's barrier counts, and nobody waits for
// anybody's stores.
#include "exchange.cuh"

// A warp's run of one row, vectors [begin, end), of which [live, end) are hidden by a causal mask.
template <class T, int MASK, bool ALIGNED> struct Run {
    static constexpr i32 N = Lanes<T>::n, U = 2;
    const Row<T, MASK, ALIGNED>& row;
    unsigned char* home;
    u64* arrived;
    i32 lane, begin, live, end;
    i32 first, last;  // whole vectors among the live: what the copy engine brings

    WB_DEVICE Run(const Row<T, MASK, ALIGNED>& row, unsigned char* home, u64* arrived, i32 begin, i32 each)
        : row(row), home(home), arrived(arrived), lane(static_cast<i32>(lane_id())), begin(begin) {
        end = min(begin + each, row.vectors());
        live = end;
        if (MASK == MASK_CAUSAL) live = min(end, row.limit > 0 ? (row.shift + row.limit + N - 1) / N : 0);
        first = begin, last = live;
        if (!ALIGNED && begin < live) {
            first += row.whole(row.column(begin)) ? 0 : 1;
            last -= row.whole(row.column(live - 1)) ? 0 : 1;
        }
    }
    WB_DEVICE unsigned char* at(i32 k) const { return home + (k - begin) * 16; }

    // Begins the copy; a row's two partial vectors come by plain loads. Zeros of hidden columns are written meanwhile.
    WB_DEVICE void issue() const {
        if (lane == 0 && first < last) {
            u32 bytes = static_cast<u32>(last - first) * 16;
            mbar_arrive_expect_tx(arrived, bytes);
            bulk_load(at(first), row.x + row.column(first), bytes, arrived);
        }
        if (!ALIGNED) {
            if (lane == 0 && begin < live && begin < first) st16(at(begin), row.load(row.column(begin)));
            if (lane == 1 && last < live && live - 1 >= first) st16(at(live - 1), row.load(row.column(live - 1)));
        }
        if (MASK == MASK_CAUSAL) {
            for (i32 k = max(begin, live) + lane; k < end; k += 32) row.store_zero(row.column(k));
        }
        __syncwarp();
    }
    // Waits for the copy; the run's maximum and sum as far as this lane has met it.
    WB_DEVICE Stat take() const {
        if (first < last) mbar_wait(arrived, 0);
        Stat own{WB_NEG_INF, 0.0f};
        for (i32 k0 = begin; k0 < live; k0 += 32 * U) {
            float t[U * N], top = own.max;
#pragma unroll
            for (i32 u = 0; u < U; u++) {
                i32 k = k0 + u * 32 + lane;
                Vec16 v{{0, 0, 0, 0}};
                if (k < live) v = ld16(at(k));
                row.scores(row.column(k), k < live, v, v, t + u * N);
            }
#pragma unroll
            for (i32 i = 0; i < U * N; i++) top = fmaxf(top, t[i]);
            float reference = finite(top);
            own.sum *= ex2(own.max - reference);
            own.max = top;
#pragma unroll
            for (i32 i = 0; i < U * N; i++) own.sum += ex2(t[i] - reference);
        }
        return own;
    }
    WB_DEVICE void put(Stat all) const {
        float reference = finite(all.max), f = all.sum == 0.0f ? 0.0f : rcp(all.sum);
#pragma unroll 2
        for (i32 k = begin + lane; k < live; k += 32) {
            Vec16 v = ld16(at(k));
            i32 c = row.column(k);
            float y[N];
            row.scores(c, true, v, v, y);
#pragma unroll
            for (i32 i = 0; i < N; i++) {
                y[i] = ex2(y[i] - reference) * f;
                // Hidden columns are 0 even where the row is NaN.
                if (MASK == MASK_CAUSAL && c + i >= row.limit) y[i] = 0.0f;
            }
            row.store(c, y);
        }
    }
};

// A warp a row: nothing is shared, no barrier but the copy's own.
template <class T, int MASK, bool ALIGNED> WB_DEVICE void by_warp(const Problem<T>& p, i32 each) {
    WB_DYN_SHARED(unsigned char, smem);
    __shared__ __align__(8) u64 arrived[32];
    i32 warp = static_cast<i32>(warp_id());
    if (lane_id() == 0) {
        mbar_init(arrived + warp, 1);
        fence_mbar_init();
    }
    pdl_wait();
    i64 r = static_cast<i64>(blockIdx.x) * (blockDim.x >> 5) + warp;
    if (r >= p.rows) return;
    Row<T, MASK, ALIGNED> row(p, r);
    Run<T, MASK, ALIGNED> run(row, smem + warp * each * 16, arrived + warp, 0, each);
    run.issue();
    Stat own = run.take();
    pdl_launch();
    run.put(warp_combine<32>(own));
}

// A block a row, or the blocks of a cluster.
template <class T, int MASK, bool ALIGNED> WB_DEVICE void by_block(const Problem<T>& p, i32 each) {
    WB_DYN_SHARED(unsigned char, smem);
    __shared__ __align__(16) Exchange exchange;
    __shared__ __align__(8) u64 arrived[32];
    __shared__ Stat scratch[32];
    i32 warp = static_cast<i32>(warp_id()), warps = static_cast<i32>(blockDim.x >> 5);
    i32 blocks = static_cast<i32>(cluster_size()), rank = static_cast<i32>(cluster_rank());
    if (lane_id() == 0) {
        mbar_init(arrived + warp, 1);
        fence_mbar_init();
    }
    exchange.begin();
    pdl_wait();
    Row<T, MASK, ALIGNED> row(p, blockIdx.x / blocks);
    Run<T, MASK, ALIGNED> run(row, smem + warp * each * 16, arrived + warp, (rank * warps + warp) * each, each);
    run.issue();
    Stat all = block_combine(run.take(), scratch);
    pdl_launch();
    run.put(exchange.combine(all));
}

#define BULK(T, NAME, MASK, FIT, ALIGNED, FORM)                                                                         \
    WB_KERNEL void __launch_bounds__(FORM##_MOST) softmax_bulk_##NAME##_##FIT##_##FORM(SOFTMAX_ARGS(T), i32 each) {    \
        by_##FORM<T, MASK, ALIGNED>(SOFTMAX_PROBLEM(T), each);                                                          \
    }                                                                                                                   \
    WB_ENTRY(softmax_bulk_##NAME##_##FIT##_##FORM)
// Registers for 32 warps on a multiprocessor at least. Whole-vector rows need 40, for three blocks of 16 warps.
#define warp_MOST 256, 4
#define block_MOST 1024, 1
#define KERNELS(T, NAME, MASK)                       \
    BULK(T, NAME, MASK, aligned, true, warp)         \
    BULK(T, NAME, MASK, aligned, true, block)        \
    BULK(T, NAME, MASK, any, false, warp)            \
    BULK(T, NAME, MASK, any, false, block)

KERNELS(bf16, bf16_none, MASK_NONE)
KERNELS(bf16, bf16_causal, MASK_CAUSAL)
KERNELS(f16, f16_none, MASK_NONE)
KERNELS(f16, f16_causal, MASK_CAUSAL)
KERNELS(float, f32_none, MASK_NONE)
KERNELS(float, f32_causal, MASK_CAUSAL)
