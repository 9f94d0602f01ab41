// The bf16 kernel of 128 with copies that ask L2 for nothing ahead, for a comparison.
#include "../common/once.cuh"
#define cp_async16 cp_async16_once
#define SPLIT_MMA_ONLY_D128
#include "split_mma.cu"
