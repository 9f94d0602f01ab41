// Runs a grid: blocks one after another (the blocks of a cluster together), their threads as fibers in a chosen order.
#pragma once

#include "emu_fiber.h"

namespace wb_emu {

struct Dim3 {
    u32 x, y, z;
};

// What a fiber does.
enum class State { Ready, Yielded, Barrier, Collective, Poll, Done };

struct Block;
struct Warp;
struct Entry;

// A copy that may land as late as the thread's wait for its group.
struct Copy {
    void* dst;
    const void* src;
    u32 bytes, zeros, group;
};

struct Fiber {
    Context context;
    Dim3 thread;
    u32 linear, lane;
    Block* block;
    Warp* warp;
    State state;
    // Collective: who takes part, what runs once all are there, this lane's part of it.
    u32 mask;
    void (*whole)(void**, u32);
    void* data;
    // Poll: ready when this returns true.
    bool (*ready)(void*, u64);
    void* ready_at;
    u64 ready_arg;
    const char* waits_for;
    u32 barrier;
    bool cluster_arrived;
    u64 cluster_phase;
    u32 group, bulk_group;
    std::vector<Copy> copies, bulk_stores;
};

struct Warp {
    Fiber* lanes[32];
    u32 live, pending;
};

struct Barrier {
    u32 arrived;
    const char* file;
    int line;
};

struct BulkLoad {
    void* dst;
    const void* src;
    u32 bytes;
    u64* bar;
};

struct Block {
    Dim3 index;
    u32 rank, first, live;
    Barrier barriers[16];
    std::vector<Warp> warps;
    std::vector<BulkLoad> loads;
    char* dynamic;
    // Static shared memory while another block of the cluster runs.
    std::vector<char> image;
};

// Static shared memory of this library on this host thread: the library's thread-local segment.
struct Segment {
    char* begin = nullptr;
    size_t size = 0;
};

struct Machine {
    Dim3 grid_dim, block_dim, cluster_dim;
    u32 threads, shared;
    std::vector<Fiber> fibers;
    std::vector<Block> blocks;
    Block* active;
    Segment segment;
    char* stacks = nullptr;
    size_t stack_count = 0;
    std::vector<char> dynamic;
    Context scheduler;
    Entry* kernel;
    void** args;
    u32 cluster_live, cluster_arrived;
    u64 cluster_phase;
    bool running = false, float_atomics = false, failed = false;
    std::string error;
    sigjmp_buf escape;
};

// Lives among the shared variables and is put back after they are poisoned.
struct Tls {
    Machine* machine;
    Fiber* fiber;
};
static thread_local Tls tls;

// The kernels of this library.
struct Entry {
    void (*target)();
    void (*unpack)(void (*)(), void**);
    std::vector<u32> sizes;
    template <class... A> Entry(const char* name, void (*f)(A...));
};
static std::map<std::string, Entry*>& entries() {
    static std::map<std::string, Entry*> map;
    return map;
}

// Notes what went wrong and gives the launch up. Never returns.
[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char* format, ...) {
    Machine& m = *tls.machine;
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    m.error = text;
    if (Fiber* f = tls.fiber) {
        char where[128];
        snprintf(where, sizeof where, "block (%u,%u,%u) thread (%u,%u,%u): ", f->block->index.x, f->block->index.y,
                 f->block->index.z, f->thread.x, f->thread.y, f->thread.z);
        m.error = where + m.error;
    }
    m.failed = true;
    if (tls.fiber) {
        switch_to(tls.fiber->context, m.scheduler, true);
        abort();
    }
    siglongjmp(m.escape, 1);
}

inline void pause(State state, const char* waits_for) {
    Fiber* f = tls.fiber;
    f->state = state;
    f->waits_for = waits_for;
    switch_to(f->context, tls.machine->scheduler);
}
// Lets the other threads run (a spin loop must call it).
inline void yield() { pause(State::Yielded, "a spin loop"); }
inline void poll(bool (*ready)(void*, u64), void* at, u64 arg, const char* waits_for) {
    if (ready(at, arg)) return;
    Fiber* f = tls.fiber;
    f->ready = ready;
    f->ready_at = at;
    f->ready_arg = arg;
    pause(State::Poll, waits_for);
}

inline char* dynamic_shared() { return tls.fiber->block->dynamic; }

// --- Barriers of a block.
inline void release(Block& b, u32 id) {
    Machine& m = *tls.machine;
    for (u32 t = 0; t < m.threads; t++) {
        Fiber& f = m.fibers[b.first + t];
        if (f.state == State::Barrier && f.barrier == id) f.state = State::Ready;
    }
    b.barriers[id] = Barrier{};
}
inline void barrier(u32 id, u32 count, const char* file, int line) {
    Fiber* f = tls.fiber;
    Block& b = *f->block;
    Barrier& bar = b.barriers[id];
    if (bar.arrived == 0) {
        bar.file = file;
        bar.line = line;
    } else if (id == 0 && (bar.line != line || strcmp(bar.file, file) != 0)) {
        fail("__syncthreads at %s:%d while others of the block wait in the one at %s:%d", file, line, bar.file, bar.line);
    }
    bar.arrived++;
    f->barrier = id;
    if (bar.arrived == (count ? count : b.live)) {
        release(b, id);
    } else {
        pause(State::Barrier, id == 0 ? "__syncthreads" : "a named barrier");
    }
}

// --- Collectives of a warp: each lane brings `data`; once all lanes of the mask are there, `whole` sees all of them.
inline bool complete(Warp& w, u32 mask) {
    u32 need = mask & w.live;
    if ((w.pending & need) != need || need == 0) return false;
    void* data[32] = {};
    Fiber* first = nullptr;
    for (u32 i = 0; i < 32; i++) {
        if (!(need >> i & 1)) continue;
        Fiber* f = w.lanes[i];
        if (first == nullptr) first = f;
        if (f->mask != first->mask || f->whole != first->whole) {
            fail("lanes of one warp meet in different collectives: %s with mask %08x and %s with mask %08x",
                 first->waits_for, first->mask, f->waits_for, f->mask);
        }
        data[i] = f->data;
    }
    first->whole(data, need);
    w.pending &= ~need;
    for (u32 i = 0; i < 32; i++) {
        if (need >> i & 1) w.lanes[i]->state = State::Ready;
    }
    return true;
}
inline void collective(u32 mask, void (*whole)(void**, u32), void* data, const char* name) {
    Fiber* f = tls.fiber;
    if (!(mask >> f->lane & 1)) fail("%s: lane %u is not in its mask %08x", name, f->lane, mask);
    f->mask = mask;
    f->whole = whole;
    f->data = data;
    f->waits_for = name;
    f->warp->pending |= 1u << f->lane;
    if (!complete(*f->warp, mask)) pause(State::Collective, name);
}

// --- Clusters.
inline void cluster_release_if_complete(Machine& m) {
    if (m.cluster_live == 0 || m.cluster_arrived < m.cluster_live) return;
    for (Fiber& f : m.fibers) f.cluster_arrived = false;
    m.cluster_arrived = 0;
    m.cluster_phase++;
}

// --- Copies that land late.
void land_bulk(BulkLoad& load);
inline void land(std::vector<Copy>& copies, u32 before) {
    size_t kept = 0;
    for (Copy& c : copies) {
        if (static_cast<i32>(c.group - before) < 0) {
            memcpy(c.dst, c.src, c.bytes);
            memset(static_cast<char*>(c.dst) + c.bytes, 0, c.zeros);
        } else {
            copies[kept++] = c;
        }
    }
    copies.resize(kept);
}

// A thread's whole life.
inline void fiber_main() {
    Machine& m = *tls.machine;
    entered(nullptr, &m.scheduler);
    m.kernel->unpack(m.kernel->target, m.args);
    Fiber* f = tls.fiber;
    Block& b = *f->block;
    land(f->bulk_stores, f->bulk_group + 1);
    f->copies.clear();
    f->state = State::Done;
    b.live--;
    f->warp->live &= ~(1u << f->lane);
    m.cluster_live--;
    if (f->cluster_arrived) m.cluster_arrived--;
    cluster_release_if_complete(m);
    // Those who stay need not wait for the dead.
    if (b.barriers[0].arrived > 0 && b.barriers[0].arrived == b.live) release(b, 0);
    for (u32 i = 0; i < 32; i++) {
        Fiber* lane = f->warp->lanes[i];
        if (f->warp->pending >> i & 1 && lane->state == State::Collective) complete(*f->warp, lane->mask);
    }
    switch_to(f->context, m.scheduler, true);
    abort();
}

}  // namespace wb_emu

#include "emu_launch.h"
