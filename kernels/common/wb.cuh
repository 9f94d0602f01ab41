// The one header every kernel includes. It needs no other header, so that nvcc, NVRTC without a toolkit on disk, and
// g++ under the host emulator (-DWB_EMULATE) all read the same text.
//
//   WB_KERNEL void name(args) { ... }     an extern "C" kernel
//   WB_ENTRY(name)                        after it: makes it known to the emulator; nothing under nvcc
//   WB_DYN_SHARED(T, name)                inside it: `T* name` is the block's dynamic shared memory, 1024-byte aligned
//   __shared__ T x[n];                    static shared memory, as usual
//
// Sizes are i32/u32/i64/u64, floats are f16, bf16, e4m3 (vec.cuh) and float. Inline assembly lives in ptx*.cuh only.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifdef WB_EMULATE
#include "emu.h"
#else
#define WB_KERNEL extern "C" __global__
#define WB_ENTRY(name)
// At file scope, or each kernel's declaration would have the linkage of its kernel.
extern __shared__ __align__(1024) unsigned char wb_dyn_shared[];
#define WB_DYN_SHARED(T, name) T* name = reinterpret_cast<T*>(wb_dyn_shared)
#endif

#define WB_DEVICE __device__ __forceinline__

// Whether this compilation may use instructions that came with 9.0 (clusters, mbarriers, bulk copies, PDL).
#if defined(WB_EMULATE) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define WB_SM90 1
#else
#define WB_SM90 0
#endif

#include "ptx.cuh"
#include "vec.cuh"
#include "warp.cuh"
