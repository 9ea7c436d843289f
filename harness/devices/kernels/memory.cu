// Memory under test: fill, verify, march, copy. One text for three compilers: nvrtc (through
// CuPy's RawModule), nvcc, and g++ behind host_shim.h, so CI runs the very lines that a GPU runs.
//
// Every parameter is 64 bits wide: a device pointer or an unsigned integer. `base` is the byte
// address, in the memory under test, of mem[0]. The word at a byte address is the function of
// harness/devices/patterns.py, whose `numbers` gives (kind, one, two): kind 0 constant, 1 address,
// 2 random, 3 modulo. mem is aligned to 32 bytes.
//
// Do reads reach the memory? __ldcv (ld.global.cv) keeps lines out of L1, so no SM answers from
// its own cache. L2 is shared and cannot be bypassed; a pass over much more than L2 (50-126 MB)
// finds none of it still there, and after each pass the plane writes a scratch area larger than
// L2, so that what the pass wrote last is in memory too before anybody reads it back.

typedef unsigned long long u64;

#define KEPT 64  // mismatches that are kept in `found`

static __device__ __forceinline__ u64 word(u64 kind, u64 one, u64 two, u64 address)
{
    if (kind == 0) return one;
    if (kind == 1) return (address - two) ^ one;
    if (kind == 3) return address / 8 % 20 == one ? two : ~two;
    // splitmix64: Steele, Lea, Flood, OOPSLA 2014
    u64 z = address / 8 + one;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31) ^ two;
}

// found[0] counts mismatches, found[1] slots taken, then KEPT times (address, expected, actual).
static __device__ void keep(u64* found, u64 address, u64 expected, u64 actual)
{
    // Looked at first: a memory that is all wrong must not queue up at one counter.
    if (*(volatile u64*)&found[1] >= KEPT) return;
    u64 slot = atomicAdd(&found[1], 1ull);
    if (slot >= KEPT) return;
    found[2 + 3 * slot] = address;
    found[3 + 3 * slot] = expected;
    found[4 + 3 * slot] = actual;
}

static __device__ __forceinline__ u64 differs(u64* found, u64 address, u64 expected, u64 actual)
{
    if (actual == expected) return 0;
    keep(found, address, expected, actual);
    return 1;
}

// Grid-stride by 16 bytes, the widest access of a thread: neighbouring lanes touch neighbouring
// addresses. A last odd word is left to the first thread.
extern "C" __global__ void fill(u64* mem, u64 base, u64 words, u64 kind, u64 one, u64 two)
{
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = first; i < words / 2; i += stride) {
        ulonglong2 pair;
        pair.x = word(kind, one, two, base + 16 * i);
        pair.y = word(kind, one, two, base + 16 * i + 8);
        ((ulonglong2*)mem)[i] = pair;
    }
    if (first == 0 && words % 2) mem[words - 1] = word(kind, one, two, base + 8 * (words - 1));
}

static __device__ __forceinline__ u64 pair_differs(u64* found, u64 address, ulonglong2 pair,
                                                   u64 kind, u64 one, u64 two)
{
    return differs(found, address, word(kind, one, two, address), pair.x) +
           differs(found, address + 8, word(kind, one, two, address + 8), pair.y);
}

// As fill, but with two loads in flight for each thread: one load of 16 bytes each does not cover
// the latency of an 8 TB/s memory.
extern "C" __global__ void verify(const u64* mem, u64 base, u64 words, u64 kind, u64 one, u64 two,
                                  u64* found)
{
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 pairs = words / 2, wrong = 0, i = first;
    const ulonglong2* m = (const ulonglong2*)mem;
    for (; i + stride < pairs; i += 2 * stride) {
        ulonglong2 here = __ldcv(&m[i]), there = __ldcv(&m[i + stride]);
        wrong += pair_differs(found, base + 16 * i, here, kind, one, two);
        wrong += pair_differs(found, base + 16 * (i + stride), there, kind, one, two);
    }
    if (i < pairs) wrong += pair_differs(found, base + 16 * i, __ldcv(&m[i]), kind, one, two);
    if (first == 0 && words % 2) {
        u64 address = base + 8 * (words - 1);
        wrong += differs(found, address, word(kind, one, two, address), __ldcv(&mem[words - 1]));
    }
    if (wrong) atomicAdd(&found[0], wrong);
}

// March: thread t owns the words [t * chunk, (t + 1) * chunk) and goes through them in address
// order, up or down: read, compare, write, then the next. `chunk` is a multiple of 4 words.
// The step is a 32-byte sector where a whole one is left: DRAM reads, writes and protects (ECC)
// a sector as a whole, so the order of the four words inside it never reaches the cells, and a
// step of 8 bytes would fetch each sector four times from L2. The order holds inside a chunk;
// coupling across chunks is not covered.
extern "C" __global__ void march(u64* mem, u64 base, u64 words, u64 chunk, u64 up,
                                 u64 expect_kind, u64 expect_one, u64 expect_two,
                                 u64 write_kind, u64 write_one, u64 write_two, u64* found)
{
    u64 lo = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * chunk;
    if (lo >= words) return;
    u64 hi = words - lo < chunk ? words : lo + chunk;
    u64 wrong = 0, done = 0;
    while (done < hi - lo) {
        // The words left are [lo + done, hi) going up and [lo, hi - done) going down.
        u64 left = hi - lo - done;
        u64 n = up ? (left >= 4 ? 4 : 1) : (left % 4 ? 1 : 4);
        u64 at = up ? lo + done : hi - done - n;
        u64 actual[4];
        if (n == 4) {
            const ulonglong2* m = (const ulonglong2*)&mem[at];
            ulonglong2 one = __ldcv(&m[0]), two = __ldcv(&m[1]);
            actual[0] = one.x; actual[1] = one.y; actual[2] = two.x; actual[3] = two.y;
        } else {
            actual[0] = __ldcv(&mem[at]);
        }
        for (u64 k = 0; k < n; k++) {
            u64 address = base + 8 * (at + k);
            u64 expected = word(expect_kind, expect_one, expect_two, address);
            wrong += differs(found, address, expected, actual[k]);
            actual[k] = word(write_kind, write_one, write_two, address);
        }
        if (n == 4) {
            ulonglong2* m = (ulonglong2*)&mem[at];
            ulonglong2 one, two;
            one.x = actual[0]; one.y = actual[1]; two.x = actual[2]; two.y = actual[3];
            m[0] = one;
            m[1] = two;
        } else {
            mem[at] = actual[0];
        }
        done += n;
    }
    if (wrong) atomicAdd(&found[0], wrong);
}

// The reference rate: bytes moved by the plainest copy, in the same run and on the same memory.
extern "C" __global__ void copy(u64* to, const u64* from, u64 words)
{
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 stride = (u64)gridDim.x * blockDim.x;
    const ulonglong2* f = (const ulonglong2*)from;
    ulonglong2* t = (ulonglong2*)to;
    for (u64 i = first; i < words / 2; i += stride) t[i] = __ldcv(&f[i]);
    if (first == 0 && words % 2) to[words - 1] = __ldcv(&from[words - 1]);
}
