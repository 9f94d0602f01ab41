// The traced program: launches, and leaves in the way that its argument names.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuLaunchKernel(const char*);
int cuCtxSynchronize(void);
int cuCtxDestroy(void);

static void work(int n) {
    cuInit(0);
    for (int i = 0; i < n; i++) cuLaunchKernel(i % 2 ? "_Z3fooILi4EEvPf" : "bar");
    cuCtxSynchronize();
}

static void on_interrupt(int s) {
    (void)s;
    static const char bye[] = "interrupted\n";
    (void)!write(1, bye, sizeof bye - 1);
    exit(7);
}

int main(int argc, char** argv) {
    const char* how = argc > 1 ? argv[1] : "return";
    int n = argc > 2 ? atoi(argv[2]) : 100;
    printf("hello from the program\n");
    fflush(stdout);
    if (!strcmp(how, "no-cuda")) return 5;
    if (!strcmp(how, "fork-then-cuda")) {
        // Two children, each with its own CUDA, and a parent without.
        for (int i = 0; i < 2; i++)
            if (fork() == 0) {
                work(n);
                exit(0);
            }
        while (wait(NULL) > 0) {}
        return 0;
    }
    if (!strcmp(how, "two-gpus")) {
        // In turn, and half as many again on the second.
        void* contexts[2];
        cuInit(0);
        for (int d = 0; d < 2; d++) cuDevicePrimaryCtxRetain(&contexts[d], d);
        for (int i = 0; i < n; i++)
            for (int d = 0; d < 2; d++) {
                cuCtxSetCurrent(contexts[d]);
                for (int k = 0; k < 1 + (d && i % 2); k++) cuLaunchKernel(d ? "second" : "first");
            }
        for (int d = 0; d < 2; d++) {
            cuCtxSetCurrent(contexts[d]);
            cuCtxSynchronize();
        }
        return 0;
    }
    work(n);
    if (!strcmp(how, "return")) return 3;
    if (!strcmp(how, "cuda-then-fork")) {
        // The child runs our exit handler and must leave the parent's recording alone.
        if (fork() == 0) exit(0);
        while (wait(NULL) > 0) {}
        work(n);
        return 0;
    }
    if (!strcmp(how, "destroy-then-_exit")) {
        cuCtxDestroy();
        _exit(4);
    }
    if (!strcmp(how, "_exit")) {
        usleep(200 * 1000);  // a young process is flushed more often than every 250 ms
        _exit(4);
    }
    if (!strcmp(how, "abort")) {
        usleep(200 * 1000);
        abort();
    }
    if (!strcmp(how, "interrupt")) {
        signal(SIGINT, on_interrupt);
        kill(getpid(), SIGINT);
        pause();
    }
    if (!strcmp(how, "exec")) {
        usleep(200 * 1000);  // the recording's first bytes are written by a thread of its own
        execl(argv[0], argv[0], "return", "20", NULL);
        return 99;
    }
    if (!strcmp(how, "busy")) {
        for (int i = 0; i < 100; i++) {
            work(n);
            usleep(20 * 1000);
        }
        return 0;
    }
    return 98;
}
