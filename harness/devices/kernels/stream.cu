// Streams through memory: the copy and the triad whose rate is the bandwidth of a GPU, and the
// check of the triad. One text for nvrtc, nvcc and g++, as memory.cu.
//
// Every parameter is 64 bits wide. Arrays are aligned to 32 bytes and hold a multiple of 8 words.
// A thread has four loads of 16 bytes in flight (the triad two of each array), which covers the
// latency of an 8 TB/s memory, and neighbouring lanes touch neighbouring addresses.
//
// The triad a = b + s c is in 64-bit integers: moving the words costs the same, and what is right
// is exact whatever the words are.

typedef unsigned long long u64;

// The word of Pattern("random", seed) at index i: splitmix64, as harness/devices/patterns.py.
static __device__ __forceinline__ u64 drawn(u64 seed, u64 i)
{
    u64 z = i + 0x9E3779B97F4A7C15ull * (seed + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

extern "C" __global__ void stream_copy(u64* to, const u64* from, u64 words)
{
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 pairs = words / 2, i = first;
    const ulonglong2* f = (const ulonglong2*)from;
    ulonglong2* t = (ulonglong2*)to;
    for (; i + 3 * stride < pairs; i += 4 * stride) {
        ulonglong2 one = f[i], two = f[i + stride];
        ulonglong2 three = f[i + 2 * stride], four = f[i + 3 * stride];
        t[i] = one;
        t[i + stride] = two;
        t[i + 2 * stride] = three;
        t[i + 3 * stride] = four;
    }
    for (; i < pairs; i += stride) t[i] = f[i];
}

extern "C" __global__ void stream_triad(u64* a, const u64* b, const u64* c, u64 words, u64 s)
{
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 pairs = words / 2, i = first;
    const ulonglong2* m = (const ulonglong2*)b;
    const ulonglong2* n = (const ulonglong2*)c;
    ulonglong2* t = (ulonglong2*)a;
    for (; i + stride < pairs; i += 2 * stride) {
        ulonglong2 one = m[i], two = m[i + stride];
        ulonglong2 three = n[i], four = n[i + stride];
        one.x += s * three.x;
        one.y += s * three.y;
        two.x += s * four.x;
        two.y += s * four.y;
        t[i] = one;
        t[i + stride] = two;
    }
    if (i < pairs) {
        ulonglong2 one = m[i], two = n[i];
        one.x += s * two.x;
        one.y += s * two.y;
        t[i] = one;
    }
}

// found[0] counts the words of a that are not b + s c, with b and c drawn afresh.
extern "C" __global__ void triad_differs(const u64* a, u64 words, u64 s, u64 b_seed, u64 c_seed,
                                         u64* found)
{
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 wrong = 0;
    for (u64 i = first; i < words; i += stride)
        wrong += a[i] != drawn(b_seed, i) + s * drawn(c_seed, i);
    if (wrong) atomicAdd(&found[0], wrong);
}
