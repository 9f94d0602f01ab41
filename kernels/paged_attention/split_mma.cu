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
    i32 side, rounds, place;  // heads side by side, heads of a list, this block's place in the list's shares
    i32 base = 0, extra = 0;  // the even share: the first `extra` of a list's blocks take base + 1 units

    WB_DEVICE Stream(const Problem& p, unsigned char* smem, int stages) : Base(p, smem, stages) {
        exchange = reinterpret_cast<float*>(smem + WARPS * stages * Base::STAGE);
        prepared = reinterpret_cast<unsigned char*>(exchange);
        last = reinterpret_cast<u32*>(smem + WARPS * stages * Base::STAGE + Base::EXCHANGE);
        side = p.plan_a < 0 ? -p.plan_a : 1;
        rounds = this->units_h / side;
        place = blockIdx.x / side;
    }

    WB_DEVICE i32 start_of(i32 block) const { return block * base + (block < extra ? block : extra); }
    WB_DEVICE i32 block_of(i32 unit) const {
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

    // Finds this block's run: the first unit and how many. Every warp computes the same.
    WB_DEVICE i32 plan(Cursor& c) {
        if (p.plan_a > 0) {
            i32 piece = blockIdx.x % p.plan_b, bh = blockIdx.x / p.plan_b;
            c.b = bh / this->units_h;
            c.h = bh % this->units_h;
            this->enter(c);
            this->enter_head(c);
            c.tile = piece * p.plan_a;
            i32 left = c.tiles - c.tile;
            return left <= 0 ? 0 : (left < p.plan_a ? left : p.plan_a);
        }
        i32 mine = 0;
        for (i32 b = this->lane; b < p.batch; b += 32) mine += Base::tiles_of(p.length(b));
#pragma unroll
        for (int d = 16; d > 0; d /= 2) mine += __shfl_xor_sync(WB_FULL_MASK, mine, d);
        i32 total = mine * rounds, most = static_cast<i32>(gridDim.x) / side;
        i32 blocks = total / p.plan_b;
        blocks = blocks < 1 ? 1 : (blocks > most ? most : blocks);
        base = total / blocks;
        extra = total - base * blocks;
        if (place >= blocks || total == 0) return 0;
        i32 first = start_of(place), n = base + (place < extra ? 1 : 0);
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
                c.h = round * side + static_cast<i32>(blockIdx.x) - place * side;
                c.tile = within - round * c.tiles;
                this->enter_head(c);
                return n;
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

    WB_DEVICE void run() {
        pdl_launch();
        Cursor c, ahead;
        i32 n = plan(c);
        // Keys and values of earlier tokens were written by earlier steps, so with `fused` they may be fetched while
        // the projections are still being computed; without it the kernel before this one appended a token.
        if (n > 0) prefetch_table(c, n);
        if (!p.fused) pdl_wait();
        ahead = c;
        i32 issued = 0;
        i32 id = n > 0 ? this->page_id(ahead) : -1;
        for (int s = 0; s < this->stages; s++) {
            issued = next(ahead, id, issued, n, s);
            cp_async_commit();
        }
        if (p.fused) pdl_wait();
        empty_rows();

        int slot = 0;
        i32 done = 0;
        while (done < n) {
            i32 first_tile = c.tile;
            i32 left = c.tiles - c.tile;
            i32 now = n - done < left ? n - done : left;
            bool has_new = p.fused && now == left;
            __syncthreads();  // the piece before may still be joining in the exchange
            this->prepare(c, prepared, has_new);
            __syncthreads();
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
                issued = next(ahead, id, issued, n, slot);
                cp_async_commit();
                slot = slot + 1 == this->stages ? 0 : slot + 1;
                this->advance(c);
            }
            done += now;
            finish(seg, first_tile, now, done);
        }
        cp_async_wait<0>();
    }

    WB_DEVICE i32 next(Cursor& ahead, i32& id, i32 issued, i32 n, int stage) const {
        if (issued == n) return n;
        this->issue(ahead, id, stage);
        if (++issued < n) {
            this->advance(ahead);
            id = this->page_id(ahead);
        }
        return issued;
    }

    // A piece is over: write the output if it is all of its (request, head tile), else hand it to the last to arrive.
    WB_DEVICE void finish(const Cursor& seg, i32 first_tile, i32 now, i32 done) {
        __syncthreads();  // every warp is done with what was prepared in the exchange
        this->publish(exchange);
        __syncthreads();
        i32 live = this->live_heads(seg), head0 = seg.kv * this->group + this->first_head(seg);
        bool whole = now == seg.tiles;
        float* piece = p.partial + static_cast<i64>(slot_of(first_tile, now, done)) * PIECE;
        for (int item = threadIdx.x; item < live * (D / 8); item += Base::THREADS) {
            int head = item / (D / 8), d0 = item % (D / 8) * 8;
            float acc[8], top, sum;
            Base::template join<8>(exchange, head, d0, acc, top, sum);
            if (whole) {
                write_out<T, D>(p, seg.b, head0 + head, d0, acc, top, sum);
            } else {
                st16(piece + head * D + d0, pack16<float>(acc));
                st16(piece + head * D + d0 + 4, pack16<float>(acc + 4));
                if (d0 == 0) {
                    piece[HEADS * D + head * 2] = top;
                    piece[HEADS * D + head * 2 + 1] = sum;
                }
            }
        }
        if (!whole) join_pieces(seg, first_tile, now, done, head0, live);
    }

    // Where this block's piece lies: with the even share a block has at most two, the end of one (request, head tile)
    // and the beginning of another.
    WB_DEVICE i32 slot_of(i32 first_tile, i32 now, i32 done) const {
        if (p.plan_a > 0) return blockIdx.x;
        return 2 * blockIdx.x + (done > now && first_tile == 0 ? 1 : 0);
    }

    WB_DEVICE void join_pieces(const Cursor& seg, i32 first_tile, i32 now, i32 done, i32 head0, i32 live) {
        i32 first_block, pieces, unit0 = 0;
        if (p.plan_a > 0) {
            first_block = blockIdx.x - first_tile / p.plan_a;
            pieces = (seg.tiles + p.plan_a - 1) / p.plan_a;
        } else {
            unit0 = start_of(place) + (done - now) - first_tile;  // where the (request, head tile) begins in the list
            first_block = block_of(unit0);
            pieces = block_of(unit0 + seg.tiles - 1) - first_block + 1;
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
                    int piece = i / (live * 2), at = i - piece * live * 2;
                    exchange[piece * HEADS * 2 + at] = piece_at(first_block, i0 + piece, unit0)[HEADS * D + at];
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
                        o[k] = ld16(piece_at(first_block, at, unit0) + head * D + d0);
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
    WB_DEVICE const float* piece_at(i32 first_block, i32 i, i32 unit0) const {
        i32 at = first_block + i;
        if (p.plan_a > 0) return p.partial + static_cast<i64>(at) * PIECE;
        i32 block = at * side + static_cast<i32>(blockIdx.x) - place * side;
        return p.partial + static_cast<i64>(2 * block + (start_of(at) < unit0 ? 1 : 0)) * PIECE;
    }
};

#define SPLIT_MMA(name, T, KV, D)                                          \
    WB_KERNEL void __launch_bounds__(128, 2) name(ATTN_PARAMS, i32 stages) { \
        WB_DYN_SHARED(unsigned char, smem);                                \
        Problem p{ATTN_ARGS};                                              \
        Stream<T, KV, D>(p, smem, stages).run();                           \
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
