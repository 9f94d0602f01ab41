// The emulator's door: wb_emu_launch, and the loop that gives each thread its turn.
#pragma once

namespace wb_emu {

// Finds static shared memory by the program header of the library that holds this code.
inline Segment static_shared() {
    tls.fiber = nullptr;  // touches the segment, so that it exists
    Segment out;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
            auto* out = static_cast<Segment*>(data);
            auto* own = reinterpret_cast<const char*>(&entries);
            bool mine = false;
            size_t size = 0;
            for (int i = 0; i < info->dlpi_phnum; i++) {
                const auto& p = info->dlpi_phdr[i];
                auto* from = reinterpret_cast<const char*>(info->dlpi_addr + p.p_vaddr);
                if (p.p_type == PT_LOAD && own >= from && own < from + p.p_memsz) mine = true;
                if (p.p_type == PT_TLS) size = p.p_memsz;
            }
            if (mine && info->dlpi_tls_data != nullptr) *out = Segment{static_cast<char*>(info->dlpi_tls_data), size};
            return mine ? 1 : 0;
        },
        &out);
    return out;
}

// The compiler cannot see that the segment holds `tls`.
inline Tls keep_tls() {
    asm volatile("" ::"r"(&tls) : "memory");
    return tls;
}
inline void poison(Segment s) {
    Tls keep = keep_tls();
    memset(s.begin, 0xff, s.size);
    tls = keep;
}

// Makes the block's shared memory the current one.
inline void activate(Machine& m, Block& b, Segment s) {
    if (m.active == &b) return;
    Tls keep = keep_tls();
    if (m.active) memcpy(m.active->image.data(), s.begin, s.size);
    memcpy(s.begin, b.image.data(), s.size);
    tls = keep;
    m.active = &b;
}

// Position `i` of `n` in one of three orders: ascending, descending, permuted (an affine map that hits each once).
inline u32 ordered(u32 i, u32 n, int order) {
    if (order == 0) return i;
    if (order == 1) return n - 1 - i;
    u64 step = n / 2 + 1;
    auto gcd = [](u64 a, u64 b) {
        while (b) {
            u64 r = a % b;
            a = b;
            b = r;
        }
        return a;
    };
    while (gcd(step, n) != 1) step++;
    return static_cast<u32>((i * step + n / 3) % n);
}

constexpr u32 CANARY = 256;

inline void check_canary(const Block& b, u32 shared) {
    for (u32 i = 0; i < CANARY; i++) {
        if (static_cast<u8>(b.dynamic[shared + i]) != 0xa5) {
            fail("block (%u,%u,%u) wrote %u bytes past its %u bytes of dynamic shared memory", b.index.x, b.index.y,
                 b.index.z, i, shared);
        }
    }
}

// What is missing at the mbarrier that a fiber polls, which may be in the image of a block that is not the current one.
std::string mbar_text(const void* bar);
bool polls_mbar(const Fiber& f);

// Gives up with everyone who waits, by what they wait for: how many, and where the first of them stands.
inline void describe_deadlock(Machine& m) {
    struct Group {
        std::string what;
        const Fiber* first;
        u32 threads;
    };
    std::vector<Group> groups;
    u32 waiting = 0;
    for (const Fiber& f : m.fibers) {
        if (f.state == State::Done) continue;
        waiting++;
        std::string what = f.waits_for;
        if (f.state == State::Barrier) {
            const Barrier& bar = f.block->barriers[f.barrier];
            what += std::string(" at ") + bar.file + ":" + std::to_string(bar.line);
        } else if (f.state == State::Poll && polls_mbar(f)) {
            const char* at = static_cast<const char*>(f.ready_at);
            bool statics = at >= m.segment.begin && at < m.segment.begin + m.segment.size;
            if (statics && m.active && m.active != f.block) at = f.block->image.data() + (at - m.segment.begin);
            what += " that lacks " + mbar_text(at);
        }
        auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.what == what; });
        if (found == groups.end())
            groups.push_back({what, &f, 1});
        else
            found->threads++;
    }
    std::string text;
    for (size_t i = 0; i < groups.size() && i < 5; i++) {
        const Fiber& f = *groups[i].first;
        char part[192];
        snprintf(part, sizeof part, "%s%u for %s (first block (%u,%u,%u) thread (%u,%u,%u))", i ? "; " : "", groups[i].threads,
                 groups[i].what.c_str(), f.block->index.x, f.block->index.y, f.block->index.z, f.thread.x, f.thread.y,
                 f.thread.z);
        text += part;
    }
    if (groups.size() > 5) text += "; and others";
    fail("deadlock: %u threads wait and none can go on: %s", waiting, text.c_str());
}

// Runs the blocks that m.blocks names, to their end.
inline void run_blocks(Machine& m, Segment s, int order) {
    const u32 n = static_cast<u32>(m.blocks.size());
    m.cluster_live = n * m.threads;
    m.cluster_arrived = 0;
    m.active = nullptr;
    m.fibers.resize(static_cast<size_t>(n) * m.threads);
    for (u32 r = 0; r < n; r++) {
        Block& b = m.blocks[r];
        b.first = r * m.threads;
        b.live = m.threads;
        memset(b.barriers, 0, sizeof b.barriers);
        b.loads.clear();
        b.warps.assign((m.threads + 31) / 32, Warp{});
        size_t pitch = (m.shared + CANARY + 1023) / 1024 * 1024;
        char* base = reinterpret_cast<char*>((reinterpret_cast<u64>(m.dynamic.data()) + 1023) / 1024 * 1024);
        b.dynamic = base + r * pitch;
        memset(b.dynamic, 0xff, m.shared);
        memset(b.dynamic + m.shared, 0xa5, CANARY);
        if (n > 1) b.image.assign(s.size, static_cast<char>(0xff));
        for (u32 t = 0; t < m.threads; t++) {
            Fiber& f = m.fibers[b.first + t];
            f.thread = Dim3{t % m.block_dim.x, t / m.block_dim.x % m.block_dim.y, t / (m.block_dim.x * m.block_dim.y)};
            f.linear = t;
            f.lane = t % 32;
            f.block = &b;
            f.warp = &b.warps[t / 32];
            f.warp->lanes[f.lane] = &f;
            f.warp->live |= 1u << f.lane;
            f.state = State::Ready;
            f.cluster_arrived = false;
            f.group = f.bulk_group = 0;
            f.copies.clear();
            f.bulk_stores.clear();
            prepare(f.context, m.stacks + (b.first + t) * STACK_BYTES, fiber_main);
        }
    }
    if (n == 1) {
        m.active = &m.blocks[0];
        poison(s);
    }
    u32 idle = 0;
    while (m.cluster_live > 0) {
        bool progress = false, spun = false;
        for (u32 r = 0; r < n; r++) {
            Block& b = m.blocks[ordered(r, n, order)];
            if (b.live == 0 && b.loads.empty()) continue;
            activate(m, b, s);
            for (u32 t = 0; t < m.threads; t++) {
                Fiber& f = m.fibers[b.first + ordered(t, m.threads, order)];
                if (f.state == State::Poll && f.ready(f.ready_at, f.ready_arg)) f.state = State::Ready;
                if (f.state != State::Ready && f.state != State::Yielded) continue;
                (f.state == State::Ready ? progress : spun) = true;
                f.state = State::Ready;
                tls.fiber = &f;
                switch_to(m.scheduler, f.context);
                tls.fiber = nullptr;
                if (m.failed) siglongjmp(m.escape, 1);
            }
            if (!b.loads.empty()) {
                progress = true;
                std::vector<BulkLoad> loads;
                loads.swap(b.loads);
                for (BulkLoad& l : loads) land_bulk(l);
            }
        }
        idle = progress ? 0 : idle + 1;
        if (!progress && (!spun || idle > 100000)) describe_deadlock(m);
    }
    for (Block& b : m.blocks) check_canary(b, m.shared);
}

#if !WB_ASAN
inline struct sigaction& former_action(int number) {
    static struct sigaction actions[2];
    return actions[number == SIGBUS];
}
// A kernel touched memory that is not there: ends the launch with the thread's coordinates instead of the process.
inline void on_fault(int number, siginfo_t* info, void* context) {
    Machine* m = tls.machine;
    if (m == nullptr || !m->running) {
        struct sigaction& old = former_action(number);
        if (old.sa_flags & SA_SIGINFO) {
            old.sa_sigaction(number, info, context);
        } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
            old.sa_handler(number);
        } else {
            signal(number, SIG_DFL);
        }
        return;
    }
    char text[256];
    const Fiber* f = tls.fiber;
    if (f) {
        snprintf(text, sizeof text, "block (%u,%u,%u) thread (%u,%u,%u): touched memory outside every array, at %p",
                 f->block->index.x, f->block->index.y, f->block->index.z, f->thread.x, f->thread.y, f->thread.z,
                 info->si_addr);
    } else {
        snprintf(text, sizeof text, "an asynchronous copy touched memory outside every array, at %p", info->si_addr);
    }
    m->error = text;
    m->failed = true;
    siglongjmp(m->escape, 1);
}
inline void catch_faults() {
    static bool once = [] {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        // An address that is no address at all may come as a bus error.
        for (int number : {SIGSEGV, SIGBUS}) sigaction(number, &action, &former_action(number));
        return true;
    }();
    (void)once;
    stack_t alternate = {};
    sigaltstack(nullptr, &alternate);
    if (alternate.ss_flags & SS_DISABLE) {
        alternate = {};
        alternate.ss_size = 64 << 10;
        alternate.ss_sp = malloc(alternate.ss_size);
        sigaltstack(&alternate, nullptr);
    }
}
#else
inline void catch_faults() {}
#endif

template <class T> T take(void* at) {
    T v;
    memcpy(&v, at, sizeof v);
    return v;
}
template <class... A, size_t... I> void call_with(void (*f)(A...), void** args, std::integer_sequence<size_t, I...>) {
    (void)args;
    f(take<std::decay_t<A>>(args[I])...);
}
template <class... A> Entry::Entry(const char* name, void (*f)(A...)) : sizes{static_cast<u32>(sizeof(A))...} {
    target = reinterpret_cast<void (*)()>(f);
    unpack = [](void (*target)(), void** args) {
        call_with(reinterpret_cast<void (*)(A...)>(target), args, std::index_sequence_for<A...>{});
    };
    entries()[name] = this;
}

// Everything of one launch; returns whether a float was added atomically.
inline bool launch(Machine& m, const char* entry, const u32* grid, const u32* block, const u32* cluster, u32 shared,
                   void** args, const u32* sizes, u32 count, int order) {
    auto found = entries().find(entry);
    if (found == entries().end()) fail("there is no kernel `%s` in this library (WB_ENTRY missing?)", entry);
    m.kernel = found->second;
    m.args = args;
    if (m.kernel->sizes.size() != count) fail("%s takes %zu arguments, not %u", entry, m.kernel->sizes.size(), count);
    for (u32 i = 0; i < count; i++) {
        if (sizes[i] != m.kernel->sizes[i]) {
            fail("%s: argument %u has %u bytes, the kernel takes %u", entry, i, sizes[i], m.kernel->sizes[i]);
        }
    }
    m.grid_dim = Dim3{grid[0], grid[1], grid[2]};
    m.block_dim = Dim3{block[0], block[1], block[2]};
    m.cluster_dim = Dim3{cluster[0], cluster[1], cluster[2]};
    u64 threads = u64(block[0]) * block[1] * block[2], together = u64(cluster[0]) * cluster[1] * cluster[2];
    if (threads == 0 || threads > 1024) fail("%s: %llu threads in a block, 1 to 1024 are possible", entry, threads);
    if (together == 0 || together > 16) fail("%s: %llu blocks in a cluster, 1 to 16 are possible", entry, together);
    if (shared > 232448) fail("%s: %u bytes of dynamic shared memory, at most 232448 are possible", entry, shared);
    for (int d = 0; d < 3; d++) {
        if (grid[d] == 0 || grid[d] % cluster[d] != 0 || (d > 0 && grid[d] > 65535) || grid[d] > 0x7fffffffu) {
            fail("%s: grid (%u,%u,%u) with cluster (%u,%u,%u) is invalid", entry, grid[0], grid[1], grid[2], cluster[0],
                 cluster[1], cluster[2]);
        }
    }
    m.threads = static_cast<u32>(threads);
    m.shared = shared;
    m.cluster_phase = 0;
    m.dynamic.resize((shared + CANARY + 1023) / 1024 * 1024 * together + 1024);
    if (m.stack_count < threads * together) {
        if (m.stacks) munmap(m.stacks, m.stack_count * STACK_BYTES);
        m.stack_count = threads * together;
        void* at = mmap(nullptr, m.stack_count * STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) {
            m.stacks = nullptr;
            m.stack_count = 0;
            fail("no memory for the stacks of %llu threads", threads * together);
        }
        m.stacks = static_cast<char*>(at);
    }
    Segment s = m.segment = static_shared();
    u32 clusters[3] = {grid[0] / cluster[0], grid[1] / cluster[1], grid[2] / cluster[2]};
    u64 total = u64(clusters[0]) * clusters[1] * clusters[2];
    if (total > 0xffffffffu) fail("%s: more than 2^32 clusters", entry);
    for (u64 i = 0; i < total; i++) {
        u32 c = ordered(static_cast<u32>(i), static_cast<u32>(total), order);
        u32 at[3] = {c % clusters[0], c / clusters[0] % clusters[1], c / (clusters[0] * clusters[1])};
        m.blocks.resize(together);
        for (u32 r = 0; r < together; r++) {
            m.blocks[r].rank = r;
            m.blocks[r].index = Dim3{at[0] * cluster[0] + r % cluster[0], at[1] * cluster[1] + r / cluster[0] % cluster[1],
                                     at[2] * cluster[2] + r / (cluster[0] * cluster[1])};
        }
        run_blocks(m, s, order);
    }
    return m.float_atomics;
}

}  // namespace wb_emu

// Runs a kernel of this library on the calling host thread. `args[i]` points to argument i of `sizes[i]` bytes; `order`
// is 0 ascending, 1 descending, 2 permuted. Returns 0, or 2 where floats were added atomically (their order is then not
// fixed), or 1 with the reason in `error`.
extern "C" __attribute__((visibility("default"))) int wb_emu_launch(const char* entry, const u32* grid, const u32* block,
                                                                    const u32* cluster, u32 shared, void** args,
                                                                    const u32* sizes, u32 count, int order, char* error,
                                                                    size_t capacity) {
    using namespace wb_emu;
    // Not thread-local: that segment is poisoned. Machines keep their stacks for the next launch.
    static std::mutex lock;
    static std::vector<Machine*> idle;
    Machine* own = nullptr;
    {
        std::lock_guard<std::mutex> guard(lock);
        if (!idle.empty()) {
            own = idle.back();
            idle.pop_back();
        }
    }
    if (own == nullptr) own = new Machine;
    Machine& m = *own;
    tls = Tls{&m, nullptr};
    m.failed = m.float_atomics = false;
    catch_faults();
    int result;
    // A failure anywhere comes back here; the fibers it leaves behind hold nothing that needs a destructor.
    if (sigsetjmp(m.escape, 1) == 0) {
        m.running = true;
        result = launch(m, entry, grid, block, cluster, shared, args, sizes, count, order) ? 2 : 0;
    } else {
        snprintf(error, capacity, "%s", m.error.c_str());
        result = 1;
    }
    m.running = false;
    tls = Tls{nullptr, nullptr};
    std::lock_guard<std::mutex> guard(lock);
    idle.push_back(own);
    return result;
}
