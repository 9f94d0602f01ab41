// The row waits in shared memory as it came, not in registers as floats: the copy engine brings it, so that a
// multiprocessor holds 200 KB of rows, one being read, one computed and one written, where registers hold 64 KB. The
// price is a second exponential for each element: both passes begin with what was read.
//
// Each warp has its own run of the row, its own barrier and its own copies; warps meet for the row's statistic only.
// Blocks of a cluster send each other theirs as a copy that the receiver's barrier counts, and nobody waits for
// anybody's stores.
#include "exchange.cuh"

// Streaming stores where rows begin anywhere in a line (2048 x 50257: 103 µs instead of 115); plain ones elsewhere.
#define STREAM(FIT) ((FIT) == FIT_ANY)

// A warp's run of one row: whole vectors that it sees come by the copy engine; columns in a vector that is only partly of the
// row, or only partly seen under a causal mask, are fewer than 16 in a row, and the run that has them gives each a lane.
//
// Runs are `each` vectors on the grid of 128-byte lines, so that a warp's loads and stores of 512 bytes touch four of them: the
// first begins up to 7 vectors before the row. With KEPT, each lane has so many vectors more of the run in registers.
template <class T, int MASK, int FIT, int KEPT> struct Run {
    static constexpr i32 N = Lanes<T>::n, U = 2;
    const Row<T, MASK, FIT>& row;
    unsigned char* home;
    u64* arrived;
    i32 lane, base, end, middle;  // up to `middle` in shared memory, from there in registers
    Vec16 kept[KEPT > 0 ? KEPT : 1];
    i32 first, last;  // whole vectors that are seen
    i32 alone;        // this lane's own column, or -1
    float score;      // its score

    WB_DEVICE Run(const Row<T, MASK, FIT>& row, unsigned char* home, u64* arrived, i32 part, i32 each)
        : row(row), home(home), arrived(arrived), lane(static_cast<i32>(lane_id())), alone(-1), score(WB_NEG_INF) {
        base = part * (each + 32 * KEPT) - static_cast<i32>((reinterpret_cast<u64>(row.x) >> 4) & 7u);
        end = min(base + each + 32 * KEPT, row.vectors());
        i32 whole = row.shift > 0 ? 1 : 0, seen = (row.shift + row.limit) / N;
        first = max(base, whole), last = min(end, seen), middle = KEPT > 0 ? min(last, base + each) : last;
        if (FIT >= FIT_ALIGNED && MASK != MASK_CAUSAL) return;
        // The vector before the whole ones and the one behind them.
        i32 column = lane < N ? lane : -1, until = min(row.limit, N - row.shift), at = 0;
        bool head = row.shift > 0;
        if (lane >= N || !head) {
            column = lane >= N && lane < 2 * N ? row.column(seen) + lane - N : -1;
            until = seen >= whole ? row.limit : 0;
            at = seen;
        }
        if (column >= 0 && column < until && at >= base && at < end) alone = column;
    }
    WB_DEVICE unsigned char* at(i32 k) const { return home + (k - base) * 16; }
    // This lane's first vector: not one of those before the row, of which there are fewer than 32.
    WB_DEVICE i32 begin() const { return base + lane + (base + lane < first ? 32 : 0); }

    // Begins the copy, of lines that L2 gives up first where `once`; reads single columns; writes the zeros of hidden ones
    // meanwhile.
    WB_DEVICE void issue(bool once) {
        if (lane == 0 && first < middle) {
            u32 bytes = static_cast<u32>(middle - first) * 16;
            mbar_arrive_expect_tx(arrived, bytes);
            const T* from = row.x + row.column(first);
            once ? bulk_load_once(at(first), from, bytes, arrived) : bulk_load(at(first), from, bytes, arrived);
        }
#pragma unroll
        for (i32 e = 0; e < KEPT; e++) {
            i32 k = middle + e * 32 + lane;
            kept[e] = k >= first && k < last ? ld16(row.x + row.column(k)) : Vec16{{0, 0, 0, 0}};
        }
        // Products are rounded by themselves, as in three_pass.
        if (alone >= 0) score = fmaf(to_float(row.x[alone]), row.p.scale2, 0.0f);
        if (MASK == MASK_CAUSAL) {
            i32 hidden = (row.shift + row.limit) / N;
            for (i32 k = max(max(base, 0), hidden) + lane; k < end; k += 32) {
                i32 c = row.column(k);
                if (c >= row.limit && row.whole(c)) {
                    row.store_zero(c);
                } else {
#pragma unroll
                    for (i32 i = 0; i < N; i++) {
                        if (c + i >= row.limit && c + i < row.p.cols) row.out[c + i] = from_float<T>(0.0f);
                    }
                }
            }
        }
        __syncwarp();
    }
    // Takes COUNT vectors into a lane's maximum and sum.
    template <int COUNT> WB_DEVICE void meet(Stat& own, const Vec16* v, const bool* live) const {
        float t[COUNT * N], top = own.max;
#pragma unroll
        for (i32 u = 0; u < COUNT; u++) {
            // What is not there gets -inf through the multiply-add.
            float scale = live[u] ? row.p.scale2 : 0.0f, offset = live[u] ? 0.0f : WB_NEG_INF;
            unpack16<T>(v[u], t + u * N);
#pragma unroll
            for (i32 i = 0; i < N; i++) t[u * N + i] = t[u * N + i] * scale + offset;
        }
#pragma unroll
        for (i32 i = 0; i < COUNT * N; i++) top = fmaxf(top, t[i]);
        float reference = finite(top);
        own.sum *= ex2(own.max - reference);
        own.max = top;
#pragma unroll
        for (i32 i = 0; i < COUNT * N; i++) own.sum += ex2(t[i] - reference);
    }
    // Waits for the copy; the run's maximum and sum as far as this lane has met it.
    WB_DEVICE Stat take() const {
        Stat own{score, alone < 0 ? 0.0f : ex2(score - finite(score))};
        if (first < middle) mbar_wait(arrived, 0);
        for (i32 k = begin(); k < middle; k += 32 * U) {
            Vec16 v[U];
            bool live[U];
#pragma unroll
            for (i32 u = 0; u < U; u++) {
                live[u] = u == 0 || k + u * 32 < middle;
                v[u] = live[u] ? ld16(at(k + u * 32)) : Vec16{{0, 0, 0, 0}};
            }
            meet<U>(own, v, live);
        }
#pragma unroll
        for (i32 e = 0; e < KEPT; e++) {
            bool live = middle + e * 32 + lane >= first && middle + e * 32 + lane < last;
            meet<1>(own, kept + e, &live);
        }
        return own;
    }
    WB_DEVICE void put(Stat all) const {
        float reference = finite(all.max), f = all.sum == 0.0f ? 0.0f : rcp(all.sum);
        auto leave = [&](i32 k, const Vec16& v) {
            float y[N];
            unpack16<T>(v, y);
#pragma unroll
            for (i32 i = 0; i < N; i++) y[i] = ex2(fmaf(y[i], row.p.scale2, 0.0f) - reference) * f;
            STREAM(FIT) ? st16_stream(row.out + row.column(k), pack16<T>(y)) : st16(row.out + row.column(k), pack16<T>(y));
        };
#pragma unroll 2
        for (i32 k = begin(); k < middle; k += 32) leave(k, ld16(at(k)));
#pragma unroll
        for (i32 e = 0; e < KEPT; e++) {
            i32 k = middle + e * 32 + lane;
            if (k >= first && k < last) leave(k, kept[e]);
        }
        if (alone >= 0) row.out[alone] = from_float<T>(ex2(score - reference) * f);
    }
};

// A block a row, or the blocks of a cluster.
template <class T, int MASK, int FIT, int KEPT> WB_DEVICE void by_block(const Problem<T>& p, i32 each, i32 once) {
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
    __syncwarp();
    exchange.begin();
    pdl_wait();
    Row<T, MASK, FIT> row(p, blockIdx.x / blocks);
    Run<T, MASK, FIT, KEPT> run(row, smem + warp * each * 16, arrived + warp, rank * warps + warp, each);
    run.issue(once != 0);
    Stat all = block_combine(run.take(), scratch);
    pdl_launch();
    run.put(exchange.combine(all));
}

#define BULK(T, NAME, MASK, FORM, FIT, KEPT)                                                                            \
    WB_KERNEL void __launch_bounds__(1024, 1) softmax_bulk_##NAME##_##FORM(SOFTMAX_ARGS(T), i32 each, i32 once) {       \
        by_block<T, MASK, FIT, KEPT>(SOFTMAX_PROBLEM(T), each, once);                                                   \
    }                                                                                                                   \
    WB_ENTRY(softmax_bulk_##NAME##_##FORM)
// `most`: for rows longer than shared memory, two vectors of each lane in registers.
#define KERNELS(T, NAME, MASK)                    \
    BULK(T, NAME, MASK, aligned, FIT_ALIGNED, 0)  \
    BULK(T, NAME, MASK, any, FIT_ANY, 0)          \
    BULK(T, NAME, MASK, most, FIT_ANY, 2)

KERNELS(bf16, bf16_none, MASK_NONE)
KERNELS(bf16, bf16_causal, MASK_CAUSAL)
KERNELS(f16, f16_none, MASK_NONE)
KERNELS(f16, f16_causal, MASK_CAUSAL)
KERNELS(float, f32_none, MASK_NONE)
KERNELS(float, f32_causal, MASK_CAUSAL)
