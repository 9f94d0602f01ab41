// One stack of execution: a custom switch on x86-64 (a few nanoseconds), ucontext elsewhere. AddressSanitizer is told
// of every switch, or it would take another fiber's stack for an overflow.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define WB_ASAN 1
#else
#define WB_ASAN 0
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace wb_emu {

constexpr size_t STACK_BYTES = WB_ASAN ? 256 << 10 : 64 << 10;

struct Context {
#if defined(__x86_64__)
    void* sp = nullptr;
#else
    ucontext_t uc;
#endif
    // Where AddressSanitizer finds this stack; filled on the first switch away for the scheduler's own.
    const void* bottom = nullptr;
    size_t size = 0;
    void* fake = nullptr;
};

#if defined(__x86_64__)
// Saves the callee-saved registers on the old stack, takes them from the new one, and returns there.
// noipa: the compiler must not conclude that it leaves the other registers alone.
__attribute__((naked, noinline, noipa)) static void switch_stacks(void**, void*) {
    asm volatile(
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
#endif

// Prepares a context that begins in `entry` on `stack`; entry never returns.
inline void prepare(Context& c, char* stack, void (*entry)()) {
    c.bottom = stack;
    c.size = STACK_BYTES;
    c.fake = nullptr;
#if WB_ASAN
    __asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
#if defined(__x86_64__)
    void** top = reinterpret_cast<void**>(stack + STACK_BYTES) - 2;
    // The alignment that a call leaves behind: the slot above the return address is a multiple of 16.
    top[0] = reinterpret_cast<void*>(entry);
    top[1] = nullptr;
    for (int i = 1; i <= 6; i++) top[-i] = nullptr;
    c.sp = top - 6;
#else
    getcontext(&c.uc);
    c.uc.uc_stack.ss_sp = stack;
    c.uc.uc_stack.ss_size = STACK_BYTES;
    c.uc.uc_link = nullptr;
    makecontext(&c.uc, entry, 0);
#endif
}

// To be called first on a stack just entered; `from` is where the switch came from.
inline void entered(Context* own, Context* from) {
#if WB_ASAN
    __sanitizer_finish_switch_fiber(own ? own->fake : nullptr, &from->bottom, &from->size);
#else
    (void)own, (void)from;
#endif
}

inline void switch_to(Context& from, Context& to, bool last = false) {
#if WB_ASAN
    __sanitizer_start_switch_fiber(last ? nullptr : &from.fake, to.bottom, to.size);
#else
    (void)last;
#endif
#if defined(__x86_64__)
    switch_stacks(&from.sp, to.sp);
#else
    swapcontext(&from.uc, &to.uc);
#endif
    entered(&from, &to);
}

}  // namespace wb_emu
