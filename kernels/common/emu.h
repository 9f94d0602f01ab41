// The host emulator: the same kernel text compiled by g++ (-DWB_EMULATE -x c++) into one shared library per .cu, one
// fiber per CUDA thread. This file gives C++ the CUDA words; emu_sched.h runs them; emu_twins.h replaces the assembly.
//
// What it sees: wrong results, missing barriers (three thread orders must agree; shared memory starts as NaN in every
// block), collectives that lanes do not share, barriers that never complete, misaligned vectors, missing waits on
// asynchronous copies (they land as late as allowed), accesses outside arrays. What it cannot see: weak memory
// ordering between threads, divergence and reconvergence, the last bits of approximate instructions, time.
//
// Compile: g++ -std=c++17 -O1 -g -fPIC -shared -fno-strict-aliasing -Wno-unknown-pragmas -DWB_EMULATE -x c++ F.cu -o F.so
#pragma once

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <link.h>
#include <map>
#include <math.h>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __constant__ static
// One copy for each host thread, in a segment of the library that holds nothing else of note: poisoned per block.
#define __shared__ static thread_local
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

#define WB_KERNEL extern "C"
#define WB_ENTRY(name) static const wb_emu::Entry wb_entry_##name(#name, name);
#define WB_DYN_SHARED(T, name) T* name = reinterpret_cast<T*>(wb_emu::dynamic_shared())

#include "emu_sched.h"

#define threadIdx (wb_emu::tls.fiber->thread)
#define blockIdx (wb_emu::tls.fiber->block->index)
#define blockDim (wb_emu::tls.machine->block_dim)
#define gridDim (wb_emu::tls.machine->grid_dim)
#define warpSize 32

#include "emu_builtins.h"
