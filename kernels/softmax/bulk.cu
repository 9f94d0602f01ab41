// The row waits in shared memory as it came, not in registers as floats: the copy engine brings it, so that a
// multiprocessor holds 200 KB of rows, one being read, one computed and one written, where registers hold 64 KB. The
// price is a second exponential for each element: both passes begin with what was read.
//
// Each warp has its own run of the row, its own barriers and its own copies; warps meet for the row's statistic only.
// Blocks of a cluster send each other theirs as a copy that the receiver's barrier counts, and nobody waits for
// anybody's stores.
#include "exchange.cuh"

// Copies of a run: the first pass begins when the first has landed.
#define COPIES 4

// A warp's run of one row: vectors [begin, end), of which [live, end) are hidden by a causal mask. Runs begin on the
// memory's own lines of 128 bytes whatever the row's width, so that each store of a warp fills whole lines.
template <class T, int MASK, bool ALIGNED> struct Run {
    static constexpr i32 N = Lanes<T>::n, U = 2, STEP = 32 * U;
    const Row<T, MASK, ALIGNED>& row;
    unsigned char* home;
    u64* arrived;
    i32 lane, origin, begin, live, end;
    i32 first, last;  // whole vectors among the live: what the copy engine brings
    i32 part;         // vectors of a copy

    WB_DEVICE Run(const Row<T, MASK, ALIGNED>& row, unsigned char* home, u64* arrived, i32 nth, i32 each)
        : row(row), home(home), arrived(arrived), lane(static_cast<i32>(lane_id())) {
        u64 line = (reinterpret_cast<u64>(row.x) >> 4) - (reinterpret_cast<u64>(row.p.x) >> 4);
        origin = nth * each - static_cast<i32>(line & 7u);
        begin = max(origin, 0);
        end = min(origin + each, row.vectors());
        live = end;
        if (MASK == MASK_CAUSAL) live = min(end, row.limit > 0 ? (row.shift + row.limit + N - 1) / N : 0);
        first = begin, last = live;
        if (!ALIGNED && begin < live) {
            first += row.whole(row.column(begin)) ? 0 : 1;
            last -= row.whole(row.column(live - 1)) ? 0 : 1;
        }
        part = (each + COPIES * STEP - 1) / (COPIES * STEP) * STEP;
    }
    WB_DEVICE unsigned char* at(i32 k) const { return home + (k - origin) * 16; }

    // Begins the copies; a row's two partial vectors come by plain loads. Zeros of hidden columns are written meanwhile.
    WB_DEVICE void issue() const {
        i32 from = max(first, origin + lane * part), to = min(last, origin + (lane + 1) * part);
        if (lane < COPIES) {
            u32 bytes = from < to ? static_cast<u32>(to - from) * 16 : 0;
            mbar_arrive_expect_tx(arrived + lane, bytes);
            if (bytes > 0) bulk_load(at(from), row.x + row.column(from), bytes, arrived + lane);
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
    // The run's maximum and sum as far as this lane meets it, copy by copy as they land.
    WB_DEVICE Stat take() const {
        Stat own{WB_NEG_INF, 0.0f};
        for (i32 nth = 0; nth < COPIES; nth++) {
            mbar_wait(arrived + nth, 0);
            i32 stop = min(live, origin + (nth + 1) * part);
            for (i32 k0 = origin + nth * part; k0 < stop; k0 += STEP) {
                float t[U * N], top = own.max;
#pragma unroll
                for (i32 u = 0; u < U; u++) {
                    i32 k = k0 + u * 32 + lane;
                    bool ok = k >= begin && k < live;
                    Vec16 v{{0, 0, 0, 0}};
                    if (ok) v = ld16(at(k));
                    row.scores(row.column(k), ok, v, v, t + u * N);
                }
#pragma unroll
                for (i32 i = 0; i < U * N; i++) top = fmaxf(top, t[i]);
                float reference = finite(top);
                own.sum *= ex2(own.max - reference);
                own.max = top;
#pragma unroll
                for (i32 i = 0; i < U * N; i++) own.sum += ex2(t[i] - reference);
            }
        }
        return own;
    }
    WB_DEVICE void put(Stat all) const {
        float reference = finite(all.max), f = all.sum == 0.0f ? 0.0f : rcp(all.sum);
#pragma unroll 2
        for (i32 k = origin + lane; k < live; k += 32) {
            if (k < begin) continue;
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
    __shared__ __align__(8) u64 arrived[32 * COPIES];
    i32 warp = static_cast<i32>(warp_id());
    if (lane_id() < COPIES) {
        mbar_init(arrived + warp * COPIES + lane_id(), 1);
        fence_mbar_init();
    }
    pdl_wait();
    i64 r = static_cast<i64>(blockIdx.x) * (blockDim.x >> 5) + warp;
    if (r >= p.rows) return;
    Row<T, MASK, ALIGNED> row(p, r);
    Run<T, MASK, ALIGNED> run(row, smem + warp * each * 16, arrived + warp * COPIES, 0, each);
    run.issue();
    Stat own = run.take();
    pdl_launch();
    run.put(warp_combine<32>(own));
}

// A block a row, or the blocks of a cluster.
template <class T, int MASK, bool ALIGNED> WB_DEVICE void by_block(const Problem<T>& p, i32 each) {
    WB_DYN_SHARED(unsigned char, smem);
    __shared__ __align__(16) Exchange exchange;
    __shared__ __align__(8) u64 arrived[32 * COPIES];
    __shared__ Stat scratch[32];
    i32 warp = static_cast<i32>(warp_id()), warps = static_cast<i32>(blockDim.x >> 5);
    i32 blocks = static_cast<i32>(cluster_size()), rank = static_cast<i32>(cluster_rank());
    if (lane_id() < COPIES) {
        mbar_init(arrived + warp * COPIES + lane_id(), 1);
        fence_mbar_init();
    }
    exchange.begin();
    pdl_wait();
    Row<T, MASK, ALIGNED> row(p, blockIdx.x / blocks);
    Run<T, MASK, ALIGNED> run(row, smem + warp * each * 16, arrived + warp * COPIES, rank * warps + warp, each);
    run.issue();
    Stat all = block_combine(run.take(), scratch);
    pdl_launch();
    run.put(exchange.combine(all));
}

#define BULK(T, NAME, MASK, FIT, ALIGNED, FORM)                                                                         \
    WB_KERNEL void FORM##_##FIT##_LIMIT softmax_bulk_##NAME##_##FIT##_##FORM(SOFTMAX_ARGS(T), i32 each) {    \
        by_##FORM<T, MASK, ALIGNED>(SOFTMAX_PROBLEM(T), each);                                                          \
    }                                                                                                                   \
    WB_ENTRY(softmax_bulk_##NAME##_##FIT##_##FORM)
// Registers: for 32 warps on a multiprocessor, in blocks for three of 16 warps.
#ifdef WB_EMULATE
#define __maxnreg__(N)
#endif
#define warp_aligned_LIMIT __launch_bounds__(256, 4)
#define warp_any_LIMIT __launch_bounds__(256, 4)
#define block_aligned_LIMIT __maxnreg__(40)
#define block_any_LIMIT __maxnreg__(48)
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
