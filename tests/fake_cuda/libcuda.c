// A driver that only keeps time. Calls are reported to the fake CUPTI, if that has been loaded.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// A call has been made on a device; kernel is NULL where it launched nothing.
typedef void (*OnCall)(uint32_t cbid, uint64_t start, uint64_t end, int device, const char* kernel);
static OnCall on_call;
static void (*on_context_end)(void);
// Two devices; a thread works on the one whose context it made current.
static __thread int current;

void fake_listen(OnCall call, void (*context_end)(void)) {
    on_call = call;
    on_context_end = context_end;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int done(uint32_t cbid, uint64_t start, const char* kernel) {
    if (on_call) on_call(cbid, start, now(), current, kernel);
    return 0;
}

int cuInit(unsigned flags) {
    static int once;
    (void)flags;
    if (once++) return 0;
    const char* path = getenv("CUDA_INJECTION64_PATH");
    if (path && *path) {
        void* lib = dlopen(path, RTLD_NOW);
        int (*begin)(void) = lib ? (int (*)(void))dlsym(lib, "InitializeInjection") : NULL;
        if (!lib) fprintf(stderr, "fake driver: %s\n", dlerror());
        if (begin) begin();
    }
    return 0;
}
int cuDriverGetVersion(int* v) { return *v = 13000, 0; }
int cuDeviceGetCount(int* n) { return *n = 2, 0; }
int cuDeviceGet(int* d, int i) { return *d = i, i < 0 || i > 1 ? 101 : 0; }
int cuDeviceGetName(char* name, int n, int d) { return snprintf(name, n, "Fake GPU %d", d), 0; }
int cuDeviceGetUuid_v2(unsigned char* u, int d) { return memset(u, 0x10 + d, 16), 0; }
int cuDeviceGetAttribute(int* v, int a, int d) {
    (void)d;
    *v = a == 75 ? 9 : a == 76 ? 0 : a == 16 ? 132 : 0;
    return done(4, now(), NULL);
}
// A context is its device's number plus one.
int cuDevicePrimaryCtxRetain(void** context, int d) { return *context = (void*)(intptr_t)(d + 1), d < 0 || d > 1 ? 101 : 0; }
int cuCtxSetCurrent(void* context) { return current = (int)(intptr_t)context - 1, 0; }
int cuLaunchKernel(const char* kernel) { return done(1, now(), kernel); }
int cuCtxSynchronize(void) {
    uint64_t start = now();
    usleep(200);
    return done(2, start, NULL);
}
int cuCtxDestroy(void) {
    if (on_context_end) on_context_end();
    return done(3, now(), NULL);
}
