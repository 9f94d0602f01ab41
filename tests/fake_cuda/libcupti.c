// A CUPTI that writes its records at once. Layouts are those of CUPTI 13.0.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    uint32_t kind, cache_and_registers, partitioned[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], static_shared, dynamic_shared;
    uint32_t local, local_total, correlation;
    int64_t grid_id;
    const char* name;
    void* reserved;
    uint64_t queued, submitted;
    uint8_t launch[4];
    uint32_t shared_executed;
    uint64_t graph_node;
    uint32_t shmem_limit, graph;
    void* policy;
    uint32_t channel[2], cluster[4];
    uint64_t local_v2;
    uint32_t max_cluster[2];
    uint8_t device_launched[8];
} Kernel;
_Static_assert(sizeof(Kernel) == 216 && offsetof(Kernel, name) == 104 && offsetof(Kernel, graph_node) == 144, "layout");

typedef struct {
    uint32_t kind, cbid;
    uint64_t start, end;
    uint32_t process, thread, correlation, result;
} Call;
_Static_assert(sizeof(Call) == 40, "layout");

static void (*requested)(uint8_t**, size_t*, size_t*);
static void (*completed)(void*, uint32_t, uint8_t*, size_t, size_t);
static void (*callback)(void*, int, uint32_t, const void*);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint8_t* buffer;
static size_t size, used, dropped;
static uint64_t enabled;
static uint32_t correlation;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void give_back(void) {
    uint8_t* b = buffer;
    size_t n = used;
    buffer = NULL;
    used = 0;
    pthread_mutex_unlock(&mutex);
    if (b) completed(NULL, 0, b, size, n);
    pthread_mutex_lock(&mutex);
}

static void put(const void* record, size_t n) {
    // As if there were no buffer for some, after the first hundred.
    static int seen;
    const char* drops = getenv("FAKE_CUPTI_DROPS");
    if (drops && ++seen > 100 && seen <= 100 + atoi(drops)) {
        dropped++;
        return;
    }
    if (buffer && used + n > size) give_back();
    if (!buffer) {
        size_t max = 0;
        requested(&buffer, &size, &max);
        used = 0;
    }
    if (!buffer) {
        dropped++;
        return;
    }
    memcpy(buffer + used, record, n);
    used += n;
}

static void on_call(uint32_t cbid, uint64_t start, uint64_t end, int device, const char* kernel) {
    pthread_mutex_lock(&mutex);
    uint32_t id = ++correlation;
    if (enabled >> 4 & 1) {
        Call c = {4, cbid, start, end, getpid(), syscall(SYS_gettid), id, 0};
        put(&c, sizeof c);
    }
    if (kernel && enabled >> 10 & 1) {
        // One after the other, as on one stream of each device.
        static uint64_t free_at[2];
        uint64_t at = free_at[device] > end + 500 ? free_at[device] : end + 500;
        free_at[device] = at + 2000;
        Kernel k = {.kind = 10, .start = at, .end = at + 2000, .device = device, .context = device + 1, .stream = 7,
                    .grid = {4, 1, 1}, .block = {128, 1, 1}, .correlation = id, .name = kernel};
        put(&k, sizeof k);
    }
    pthread_mutex_unlock(&mutex);
}

int cuptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    pthread_mutex_lock(&mutex);
    give_back();
    pthread_mutex_unlock(&mutex);
    return 0;
}

static void on_context_end(void) {
    void* data[3] = {0};
    if (callback) callback(NULL, 3, 2, data);
}

int cuptiSubscribe(void** s, void* f, void* user) {
    (void)user;
    const char* refuse = getenv("FAKE_CUPTI_REFUSES");
    if (refuse) return atoi(refuse);
    *s = &enabled;
    callback = (void (*)(void*, int, uint32_t, const void*))f;
    // The driver tells us of its calls.
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void (*listen)(void*, void*) = driver ? (void (*)(void*, void*))dlsym(driver, "fake_listen") : NULL;
    if (!listen) return 999;
    listen((void*)on_call, (void*)on_context_end);
    return 0;
}
typedef struct { size_t size; const char* name; char* old; size_t old_size; } Params;
int cuptiSubscribe_v2(void** s, void* f, void* user, Params* p) {
    (void)s, (void)f, (void)user;
    snprintf(p->old, p->old_size, "Fake Systems");
    return 39;
}
int cuptiUnsubscribe(void* s) { return (void)s, callback = NULL, 0; }
int cuptiGetVersion(uint32_t* v) { return *v = 130001, 0; }
int cuptiGetTimestamp(uint64_t* t) { return *t = now(), 0; }
int cuptiActivityRegisterCallbacks(void* r, void* c) {
    requested = (void (*)(uint8_t**, size_t*, size_t*))r;
    completed = (void (*)(void*, uint32_t, uint8_t*, size_t, size_t))c;
    return 0;
}
int cuptiActivityEnable(uint32_t kind) { return enabled |= 1ull << kind, 0; }
int cuptiActivityDisable(uint32_t kind) { return enabled &= ~(1ull << kind), 0; }
int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on) {
    (void)cbid;
    return on ? cuptiActivityEnable(4) : cuptiActivityDisable(4);
}
int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on) { return (void)cbid, (void)on, 0; }
int cuptiActivityGetNumDroppedRecords(void* c, uint32_t s, size_t* n) {
    (void)c, (void)s;
    *n = dropped;
    dropped = 0;
    return 0;
}
int cuptiActivityGetNextRecord(uint8_t* b, size_t valid, uint8_t** record) {
    uint8_t* next = *record ? *record + (*(uint32_t*)*record == 10 ? sizeof(Kernel) : sizeof(Call)) : b;
    if (next >= b + valid) return 12;
    *record = next;
    return 0;
}
int cuptiActivitySetAttribute(int a, size_t* n, void* v) { return (void)a, (void)n, (void)v, 0; }
int cuptiSetThreadIdType(int t) { return (void)t, 0; }
int cuptiEnableCallback(uint32_t on, void* s, int domain, uint32_t id) { return (void)on, (void)s, (void)domain, (void)id, 0; }
int cuptiEnableDomain(uint32_t on, void* s, int domain) { return (void)on, (void)s, (void)domain, 0; }
int cuptiFinalize(void) { return enabled = 0, 0; }
int cuptiGetCallbackName(int domain, uint32_t id, const char** name) {
    static const char* names[] = {0, "cuLaunchKernel", "cuCtxSynchronize", "cuCtxDestroy_v2", "cuDeviceGetAttribute"};
    if (domain != 1 || id == 0 || id > 4) return 1;
    *name = names[id];
    return 0;
}
