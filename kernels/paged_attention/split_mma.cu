// Split-KV decode on tensor cores, one launch: a fixed grid of blocks shares the tokens of all requests evenly.
//
// The work is a list of units, 64 tokens (128 of e4m3) of one (request, head tile), in order of request, head tile, position. A block
// takes an equal run of the list, whatever request it falls in, so that a request of 128 tokens and one of 32768 cost
// what their tokens cost and no block is held up by the longest. The list is never stored: each warp finds the block's
// first unit from prefix sums over the lengths, on the device, so a captured graph replays with other lengths.
//
// `side` neighbouring blocks have a list each, of every side-th head tile, and walk the same tokens at the same time:
// heads of a token lie side by side in memory, and what one block opens (a row of DRAM, a page of the address
// translation) the others find open.
//
// Equal bytes are not equal time: the multiprocessors of a small processing cluster (GPC) share its port with fewer
// others and are through a fifth sooner. So the last eighth of long lists is cut into short pieces that blocks draw, one
// ahead, from a counter. Where runs begin and end does not depend on who draws them, nor does the result.
//
// A run that covers a whole (request, head tile) writes its output; otherwise its piece goes to the workspace and the
// block that arrives last (a counter) joins all pieces in list order: the sum does not depend on who came last.
//
// plan_a: fixed units of a piece, or -side for the even share. Fixed pieces make a request's result independent of the
// rest of the batch, at the price of an even load. plan_b: with the even share the least units of a block, with fixed
// pieces the pieces of the longest request.
#include "mma.cuh"

template <class T, class KV, int D> struct Stream : Decode<T, KV, D, 4> {
    using Base = Decode<T, KV, D, 4>;
    using Base::p;
    static constexpr int WARPS = 4, HEADS = Base::HEADS;
    // A piece in the workspace: o [8][D], then top and sum [8][2].
    static constexpr int PIECE = HEADS * D + HEADS * 2;

    float* exchange;
    unsigned char* prepared;  // at the exchange's place: queries and the new token, until the piece ends
    u32* last;
    i32 side, rounds;      // heads side by side, heads of a list
    i32 run, beside;       // the run at hand, by its number in the list, and which of the lists
    i32 base = 0, extra = 0, blocks = 0;     // the even share: the first `extra` of a list's blocks take base + 1 units
    i32 fixed = 0, piece = 1, pool = 0;      // units that are shared out, units of a piece to draw, such pieces of a list
    u32* draws;            // draws of this launch, by all blocks
    i32* board;            // the piece that the block has drawn for its next run
    Cursor upcoming;       // where that begins
    bool has_next = false;

    WB_DEVICE Stream(const Problem& p, unsigned char* smem, int stages) : Base(p, smem, stages) {
        exchange = reinterpret_cast<float*>(smem + WARPS * stages * Base::STAGE);
        prepared = reinterpret_cast<unsigned char*>(exchange);
        last = reinterpret_cast<u32*>(smem + WARPS * stages * Base::STAGE + Base::EXCHANGE);
        side = p.plan_a < 0 ? -p.plan_a : 1;
        rounds = this->units_h / side;
        run = blockIdx.x / side;
        beside = blockIdx.x - run * side;
        draws = p.counters + p.batch * this->units_h;
        board = reinterpret_cast<i32*>(last + 1);
    }

    WB_DEVICE i32 start_of(i32 run) const {
        if (run >= blocks) return fixed + (run - blocks) * piece;
        return run * base + (run < extra ? run : extra);
    }
    WB_DEVICE i32 run_of(i32 unit) const {
        if (unit >= fixed) return blocks + (unit - fixed) / piece;
        i32 big = extra * (base + 1);
        return unit < big ? unit / (base + 1) : extra + (unit - big) / base;
    }

    // On to the next unit of this block's list.
    WB_DEVICE void advance(Cursor& c) const {
        if (++c.tile < c.tiles) return;
        c.tile = 0;
        if ((c.h += side) >= this->units_h) {
            c.h -= rounds * side;
            do {
                if (++c.b >= p.batch) return;
                this->enter(c);
            } while (c.tiles == 0);
        }
        this->enter_head(c);
    }

    // Finds this block's first run: where it begins and how many units. Every warp computes the same.
    WB_DEVICE i32 plan(Cursor& c, i32 least_piece) {
        if (p.plan_a > 0) {
            i32 nth = blockIdx.x % p.plan_b, bh = blockIdx.x / p.plan_b;
            c.b = bh / this->units_h;
            c.h = bh % this->units_h;
            this->enter(c);
            this->enter_head(c);
            c.tile = nth * p.plan_a;
            i32 left = c.tiles - c.tile;
            return left <= 0 ? 0 : (left < p.plan_a ? left : p.plan_a);
        }
        i32 mine = 0;
        for (i32 b = this->lane; b < p.batch; b += 32) mine += Base::tiles_of(p.length(b));
#pragma unroll
        for (int d = 16; d > 0; d /= 2) mine += __shfl_xor_sync(WB_FULL_MASK, mine, d);
        i32 total = mine * rounds, most = static_cast<i32>(gridDim.x) / side;
        blocks = total / p.plan_b;
        blocks = blocks < 1 ? 1 : (blocks > most ? most : blocks);
        fixed = total;
        // Shares of at least 16 units: below, what could be evened out is less than a piece costs.
        if (least_piece > 0 && total >= 16 * most) {
            i32 loose = total / 8;
            piece = (loose + 8 * most - 1) / (8 * most);
            if (piece < least_piece) piece = least_piece;
            pool = loose / piece;
            fixed = total - pool * piece;
        }
        base = fixed / blocks;
        extra = fixed - base * blocks;
        if (run >= blocks || total == 0) return 0;
        locate(c, start_of(run));
        return base + (run < extra ? 1 : 0);
    }

    // The unit with that number in the list.
    WB_DEVICE void locate(Cursor& c, i32 first) const {
        i32 before = 0;  // tiles of the requests before the 32 at hand
        i32 want = first / rounds;
        for (i32 b0 = 0;; b0 += 32) {
            i32 b = b0 + this->lane;
            i32 tiles = b < p.batch ? Base::tiles_of(p.length(b)) : 0;
            i32 sum = tiles;
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                i32 lower = __shfl_up_sync(WB_FULL_MASK, sum, d);
                if (this->lane >= d) sum += lower;
            }
            u32 past = __ballot_sync(WB_FULL_MASK, before + sum > want);
            if (past != 0) {
                int owner = __ffs(past) - 1;
                i32 prior = before + __shfl_sync(WB_FULL_MASK, sum - tiles, owner);
                c.b = b0 + owner;
                this->enter(c);
                i32 within = first - prior * rounds, round = within / c.tiles;
                c.h = round * side + beside;
                c.tile = within - round * c.tiles;
                this->enter_head(c);
                return;
            }
            before += __shfl_sync(WB_FULL_MASK, sum, 31);
        }
    }

    // Sends for the first request's page ids of this run, all of them: one at a time each 32nd would be waited for.
    WB_DEVICE void prefetch_table(const Cursor& c, i32 n) const {
        i32 left = c.tiles - c.tile, now = n < left ? n : left;
        i32 t0 = c.tile * Base::UNIT, t1 = (c.tile + now) * Base::UNIT;
        i32 from = p.page_of(t0), to = p.page_of(t1 < c.len ? t1 - 1 : c.len - 1);
        const i32* row = p.table + static_cast<i64>(c.b) * p.max_pages;
        for (i32 i = from + static_cast<i32>(threadIdx.x) * 32; i <= to; i += Base::THREADS * 32) prefetch_l2(row + i);
    }

    // Requests without tokens have no unit; their rows are written here.
    WB_DEVICE void empty_rows() const {
        for (i32 b = blockIdx.x; b < p.batch; b += gridDim.x) {
            if (p.length(b) > 0) continue;
            T* out = static_cast<T*>(p.out) + static_cast<i64>(b) * p.heads * D;
            for (i32 i = threadIdx.x; i < p.heads * D; i += Base::THREADS) out[i] = from_float<T>(0.0f);
            for (i32 i = threadIdx.x; i < p.heads; i += Base::THREADS) p.lse[b * p.heads + i] = WB_NEG_INF;
        }
    }

    WB_DEVICE void work(i32 least_piece) {
        pdl_launch();
        Cursor c;
        i32 n = plan(c, least_piece);
        // Keys and values of earlier tokens were written by earlier steps, so with `fused` they may be fetched while
        // the projections are still being computed; without it the kernel before this one appended a token.
        if (n > 0) prefetch_table(c, n);
        if (!p.fused) pdl_wait();
        Ahead ahead{c, n, n > 0 ? this->page_id(c) : -1};
        for (int s = 0; s < this->stages; s++) {
            next(ahead, s);
            cp_async_commit();
        }
        if (p.fused) pdl_wait();
        empty_rows();

        int slot = 0;
        for (;;) {
            i32 done = 0, drawn = -1;
            while (done < n) {
                i32 first_tile = c.tile;
                i32 left = c.tiles - c.tile;
                i32 now = n - done < left ? n - done : left;
                bool has_new = p.fused && now == left, draw = pool > 0 && done == 0;
                __syncthreads();  // the piece before may still be joining in the exchange
                if (draw && threadIdx.x == 0) drawn = static_cast<i32>(atomicAdd(draws, 1u));
                this->prepare(c, prepared, has_new);
                if (draw && threadIdx.x == 0) *board = drawn;
                __syncthreads();
                if (draw) {
                    drawn = *board;
                    has_next = drawn < pool * side;
                    take_up(ahead, drawn);
                }
                this->take_q(prepared);
                has_new = has_new && this->holds_last(c);
                this->reset();
                Cursor seg = c;
                for (i32 i = 0; i < now; i++) {
                    cp_async_wait_upto(this->stages - 1);
                    __syncwarp();
                    if (has_new && i == now - 1) this->patch(c, prepared + HEADS * Base::Q_PITCH, slot);
                    this->fold(c, slot);
                    __syncwarp();  // every lane has read the stage before it is filled again
                    next(ahead, slot);
                    take_up(ahead, drawn);
                    cp_async_commit();
                    slot = slot + 1 == this->stages ? 0 : slot + 1;
                    this->advance(c);
                }
                done += now;
                finish(seg, first_tile, now, done);
            }
            // A draw beyond the pool is a block's last; the last of all leaves the counter as it found it.
            if (pool == 0 || drawn >= pool * side) {
                if (threadIdx.x == 0 && pool > 0 && drawn == pool * side + static_cast<i32>(gridDim.x) - 1) *draws = 0;
                break;
            }
            run = blocks + drawn / side;
            beside = drawn - drawn / side * side;
            c = upcoming;
            n = piece;
        }
        cp_async_wait<0>();
    }

    // What is asked for next: the unit, how many are left of its run, the page of this lane's key.
    struct Ahead {
        Cursor c;
        i32 left, id;
    };
    WB_DEVICE void next(Ahead& a, int stage) const {
        if (a.left == 0) return;
        this->issue(a.c, a.id, stage);
        if (--a.left > 0) {
            advance(a.c);
            a.id = this->page_id(a.c);
        }
    }
    // Goes on with the piece that was drawn where everything of the run at hand has been asked for. A run has at least
    // as many units as the ring has stages, so this happens before the ring would miss one.
    WB_DEVICE void take_up(Ahead& a, i32 drawn) {
        if (a.left > 0 || !has_next) return;
        has_next = false;
        i32 nth = drawn / side, own = beside;
        beside = drawn - nth * side;
        locate(upcoming, fixed + nth * piece);
        beside = own;
        a.c = upcoming;
        a.left = piece;
        a.id = this->page_id(a.c);
    }

    // A piece is over: write the output if it is all of its (request, head tile), else hand it to the last to arrive.
    WB_DEVICE void finish(const Cursor& seg, i32 first_tile, i32 now, i32 done) {
        __syncthreads();  // every warp is done with what was prepared in the exchange
        this->publish(exchange);
        __syncthreads();
        i32 live = this->live_heads(seg), head0 = seg.kv * this->group + this->first_head(seg);
        bool whole = now == seg.tiles;
        float* to = p.partial + static_cast<i64>(slot_of(first_tile, now, done)) * PIECE;
        for (int item = threadIdx.x; item < live * (D / 8); item += Base::THREADS) {
            int head = item / (D / 8), d0 = item % (D / 8) * 8;
            float acc[8], top, sum;
            Base::template join<8>(exchange, head, d0, acc, top, sum);
            if (whole) {
                write_out<T, D>(p, seg.b, head0 + head, d0, acc, top, sum);
            } else {
                st16(to + head * D + d0, pack16<float>(acc));
                st16(to + head * D + d0 + 4, pack16<float>(acc + 4));
                if (d0 == 0) {
                    to[HEADS * D + head * 2] = top;
                    to[HEADS * D + head * 2 + 1] = sum;
                }
            }
        }
        if (!whole) join_pieces(seg, first_tile, now, done, head0, live);
    }

    // Where this run's piece lies: with the even share a run has at most two, the end of one (request, head tile) and the
    // beginning of another.
    WB_DEVICE i32 slot_of(i32 first_tile, i32 now, i32 done) const {
        if (p.plan_a > 0) return blockIdx.x;
        return 2 * (run * side + beside) + (done > now && first_tile == 0 ? 1 : 0);
    }

    WB_DEVICE void join_pieces(const Cursor& seg, i32 first_tile, i32 now, i32 done, i32 head0, i32 live) {
        i32 first_run, pieces, unit0 = 0;
        if (p.plan_a > 0) {
            first_run = blockIdx.x - first_tile / p.plan_a;
            pieces = (seg.tiles + p.plan_a - 1) / p.plan_a;
        } else {
            unit0 = start_of(run) + (done - now) - first_tile;  // where the (request, head tile) begins in the list
            first_run = run_of(unit0);
            pieces = run_of(unit0 + seg.tiles - 1) - first_run + 1;
        }
        u32* counter = p.counters + seg.b * this->units_h + seg.h;
        // The barrier puts every thread's stores before thread 0's release, and its acquire before every thread's loads.
        __syncthreads();
        if (threadIdx.x == 0) *last = atomic_add_acq_rel(counter, 1) == static_cast<u32>(pieces - 1);
        __syncthreads();
        if (*last == 0) return;
        if (threadIdx.x == 0) *counter = 0;
        // Every trip to L2 is 0.7 µs, so there are few: one for the maxima and sums of up to CHUNK pieces, which wait in
        // the exchange, then BATCH pieces at a time.
        constexpr int CHUNK = 64, BATCH = 16, THREADS = Base::THREADS;
        static_assert(CHUNK * HEADS * 2 * 4 <= Base::EXCHANGE, "the exchange holds a chunk's maxima and sums");
        int items = live * (D / 4);
        for (int item0 = 0; item0 < items; item0 += THREADS) {
            int item = item0 + threadIdx.x, head = min(item / (D / 4), live - 1), d0 = item % (D / 4) * 4;
            float top = WB_NEG_INF, sum = 0.0f, acc[4] = {0, 0, 0, 0};
            for (i32 i0 = 0; i0 < pieces; i0 += CHUNK) {
                i32 now_pieces = min(pieces - i0, CHUNK);
                __syncthreads();  // the exchange is free
                for (int i = threadIdx.x; i < now_pieces * live * 2; i += THREADS) {
                    int nth = i / (live * 2), at = i - nth * live * 2;
                    exchange[nth * HEADS * 2 + at] = piece_at(first_run, i0 + nth, unit0)[HEADS * D + at];
                }
                __syncthreads();
                const float* ml = exchange + head * 2;
                float next = top;
                for (i32 i = 0; i < now_pieces; i++) next = fmaxf(next, ml[i * HEADS * 2]);
                float from = finite_max(next), keep = ex2(top - from);
                top = next;
                sum *= keep;
#pragma unroll
                for (int j = 0; j < 4; j++) acc[j] *= keep;
                for (i32 i = 0; i < now_pieces; i += BATCH) {
                    Vec16 o[BATCH];
#pragma unroll
                    for (int k = 0; k < BATCH; k++) {
                        i32 at = i0 + min(i + k, now_pieces - 1);
                        o[k] = ld16(piece_at(first_run, at, unit0) + head * D + d0);
                    }
#pragma unroll
                    for (int k = 0; k < BATCH; k++) {
                        if (i + k >= now_pieces) break;
                        float f = ex2(ml[(i + k) * HEADS * 2] - from);
                        sum += f * ml[(i + k) * HEADS * 2 + 1];
#pragma unroll
                        for (int j = 0; j < 4; j++) acc[j] += f * __uint_as_float(o[k].w[j]);
                    }
                }
            }
            if (item < items) write_four(seg.b, head0 + head, d0, acc, top, sum);
        }
    }
    WB_DEVICE void write_four(i32 b, i32 head, int d0, float (&acc)[4], float top, float sum) const {
        float f = sum > 0.0f ? p.v_scale / sum : (sum == 0.0f ? 0.0f : WB_NAN);
        i64 row = static_cast<i64>(b) * p.heads + head;
        u32* out = reinterpret_cast<u32*>(static_cast<T*>(p.out) + row * D + d0);
        out[0] = pack2<T>(acc[0] * f, acc[1] * f);
        out[1] = pack2<T>(acc[2] * f, acc[3] * f);
        if (d0 == 0) p.lse[row] = sum == 0.0f ? WB_NEG_INF : (top + lg2(sum)) * ATTN_LN2;
    }
    WB_DEVICE const float* piece_at(i32 first_run, i32 i, i32 unit0) const {
        i32 at = first_run + i;
        if (p.plan_a > 0) return p.partial + static_cast<i64>(at) * PIECE;
        return p.partial + static_cast<i64>(2 * (at * side + beside) + (start_of(at) < unit0 ? 1 : 0)) * PIECE;
    }
};

#define SPLIT_MMA(name, T, KV, D)                                          \
    WB_KERNEL void __launch_bounds__(128, 2) name(ATTN_PARAMS, i32 stages, i32 least_piece) { \
        WB_DYN_SHARED(unsigned char, smem);                                \
        Problem p{ATTN_ARGS};                                              \
        Stream<T, KV, D>(p, smem, stages).work(least_piece);                \
    }                                                                      \
    WB_ENTRY(name)
#define SPLIT_MMA_DIMS(T, KV, types)                                       \
    SPLIT_MMA(paged_attention_split_mma_##types##_d64, T, KV, 64)          \
    SPLIT_MMA(paged_attention_split_mma_##types##_d96, T, KV, 96)          \
    SPLIT_MMA(paged_attention_split_mma_##types##_d128, T, KV, 128)        \
    SPLIT_MMA(paged_attention_split_mma_##types##_d192, T, KV, 192)        \
    SPLIT_MMA(paged_attention_split_mma_##types##_d256, T, KV, 256)

SPLIT_MMA_DIMS(bf16, bf16, bf16)
SPLIT_MMA_DIMS(f16, f16, f16)
SPLIT_MMA_DIMS(bf16, e4m3, bf16_e4m3)
SPLIT_MMA_DIMS(f16, e4m3, f16_e4m3)
