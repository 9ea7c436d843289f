// Enough of CUDA's C++ for memory.cu to be compiled by g++ and run on host memory: a grid becomes
// two loops (host_launch.cpp). No kernel there synchronises threads, so one after the other is a
// legal schedule.
#pragma once

#define __global__
#define __device__
#define __forceinline__ inline

struct ulonglong2 {
    unsigned long long x, y;
};

struct dim {
    unsigned x;
};

static thread_local dim gridDim, blockDim, blockIdx, threadIdx;

static inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long by)
{
    return __atomic_fetch_add(at, by, __ATOMIC_RELAXED);
}

template <typename T> static inline T __ldcv(const T* at)
{
    return *at;
}
