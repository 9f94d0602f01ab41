// A driver with no GPU behind it: memory is the host's, a clock advances by a fixed time for each launch, and kernels
// compute nothing. Enough to test how work is allocated, captured, timed, judged and reported; tests/measuring.rs and
// tests/cust.rs use it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef struct { u64 nodes; double ns; } Graph;
typedef struct { double at; } Event;

static double clock_ns;
static Graph* capture;
static u64 free_bytes, total_bytes;

static double setting(const char* name, double otherwise) {
    const char* text = getenv(name);
    return text ? atof(text) : otherwise;
}
// Enqueues work of a length: into the capture if there is one, else it happens now. True when it happens.
static int pass(double ns) {
    if (capture) {
        capture->nodes++;
        capture->ns += ns;
        return 0;
    }
    clock_ns += ns;
    return 1;
}

int cuInit(unsigned flags) {
    total_bytes = free_bytes = (u64)(setting("FAKE_MEMORY_MIB", 1024) * (1 << 20));
    return 0;
}
int cuDriverGetVersion(int* v) { return *v = (int)setting("FAKE_CUDA", 13000), 0; }
int cuDeviceGetCount(int* n) { return *n = (int)setting("FAKE_GPUS", 1), *n ? 0 : 100; }
int cuDeviceGet(int* d, int i) { return *d = i, 0; }
int cuDeviceGetName(char* name, int n, int d) { return strncpy(name, "NVIDIA H200", n), 0; }
int cuDeviceGetUuid_v2(unsigned char* u, int d) { return memset(u, 0x10 + d, 16), 0; }
int cuDeviceTotalMem_v2(size_t* n, int d) { return *n = total_bytes, 0; }
int cuDeviceGetAttribute(int* v, int a, int d) {
    // capability 9.0, 132 multiprocessors, L2, shared memory of a block after opting in
    switch (a) {
        case 75: *v = 9; break;
        case 76: *v = 0; break;
        case 16: *v = (int)setting("FAKE_SMS", 132); break;
        case 38: *v = (int)setting("FAKE_L2_MIB", 4) << 20; break;
        case 97: *v = 232448; break;
        default: *v = 1;
    }
    return 0;
}
int cuDevicePrimaryCtxRetain(void** c, int d) { return *c = &clock_ns, 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
int cuCtxSetCurrent(void* c) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuGetErrorString(int e, const char** text) { return *text = "as the fake driver has it", 0; }
int cuMemGetInfo_v2(size_t* f, size_t* t) { return *f = free_bytes, *t = total_bytes, 0; }
int cuMemAlloc_v2(u64* p, size_t n) {
    if (n > free_bytes) return 2;
    char* block = aligned_alloc(256, (n + 511) / 256 * 256);
    *(u64*)block = n;
    free_bytes -= n;
    return *p = (u64)block + 256, 0;
}
int cuMemFree_v2(u64 p) { return free_bytes += *(u64*)(p - 256), free((void*)(p - 256)), 0; }
int cuMemcpyDtoH_v2(void* to, u64 from, size_t n) { return memcpy(to, (void*)from, n), 0; }
int cuMemcpyHtoD_v2(u64 to, const void* from, size_t n) { return memcpy((void*)to, from, n), 0; }
int cuMemsetD8Async(u64 to, unsigned char v, size_t n, void* stream) {
    if (pass((double)n / 4000)) memset((void*)to, v, n);
    return 0;
}
int cuModuleLoadDataEx(void** m, const void* data, unsigned n, void* options, void* values) { return *m = &clock_ns, 0; }
int cuModuleLoadData(void** m, const void* data) { return *m = &clock_ns, 0; }
int cuModuleUnload(void* m) { return 0; }
int cuModuleGetFunction(void** f, void* m, const char* name) { return *f = strdup(name), 0; }
int cuFuncGetAttribute(int* v, int a, void* f) { return *v = a == 0 ? 1024 : a == 4 ? 32 : 0, 0; }
// One multiprocessor of 9.0 and the 32 registers of every kernel here; FAKE_OCCUPANCY adds blocks that do not fit.
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* f, int threads, size_t shared) {
    int warps = (threads + 31) / 32, by_shared = 233472 / ((shared + 1024 + 127) / 128 * 128);
    int most = 64 / warps < 32 ? 64 / warps : 32;
    *blocks = (by_shared < most ? by_shared : most) + (int)setting("FAKE_OCCUPANCY", 0);
    return 0;
}
int cuFuncSetAttribute(void* f, int a, int v) { return 0; }
int cuTensorMapEncodeTiled(void* map) { return memset(map, 1, 128), 0; }
int cuStreamCreate(void** s, unsigned flags) { return *s = malloc(1), 0; }
int cuStreamCreateWithPriority(void** s, unsigned flags, int priority) { return cuStreamCreate(s, flags); }
int cuStreamDestroy_v2(void* s) { return free(s), 0; }
// Waiting inside a capture breaks a real one. FAKE_SYNC_FAILS and FAKE_LAUNCH_FAILS are what the call returns.
int cuStreamSynchronize(void* s) { return capture ? 900 : (int)setting("FAKE_SYNC_FAILS", 0); }
int cuStreamBeginCapture_v2(void* s, int mode) { return capture = calloc(1, sizeof *capture), 0; }
int cuStreamEndCapture(void* s, Graph** g) { return *g = capture, capture = 0, 0; }
int cuGraphGetNodes(Graph* g, void* nodes, size_t* n) { return *n = g->nodes, 0; }
int cuGraphInstantiateWithFlags(Graph** x, Graph* g, u64 flags) {
    *x = malloc(sizeof **x);
    return **x = *g, 0;
}
int cuGraphUpload(Graph* x, void* s) { return 0; }
int cuGraphLaunch(Graph* x, void* s) { return pass(x->ns * (1 + setting("FAKE_NOISE", 0) * (rand() % 100))), 0; }
int cuGraphDestroy(Graph* g) { return free(g), 0; }
int cuGraphExecDestroy(Graph* g) { return free(g), 0; }
int cuEventCreate(Event** e, unsigned flags) { return *e = calloc(1, sizeof **e), 0; }
int cuEventDestroy_v2(Event* e) { return free(e), 0; }
int cuEventRecord(Event* e, void* s) { return e->at = clock_ns, 0; }
int cuEventElapsedTime_v2(float* ms, Event* a, Event* b) { return *ms = (float)((b->at - a->at) / 1e6), 0; }
int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void* stream, void** args, void** extra) {
    int failed = (int)setting("FAKE_LAUNCH_FAILS", 0);
    if (failed) return failed;
    return pass(setting("FAKE_KERNEL_NS", 100000)), 0;
}
int cuLaunchKernelEx(const void* config, const char* name, void** args, void** extra) {
    return pass(setting("FAKE_KERNEL_NS", 100000)), 0;
}
