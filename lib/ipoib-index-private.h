/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#ifndef IPOIB_INDEX_PRIVATE_H
#define IPOIB_INDEX_PRIVATE_H 1

/* The inside of an index, for ipoib-index.c and for those who look up many
 * keys in loops of their own, for each packet of a batch in particular:
 *
 *     view = ipoib_index_view(index);
 *     for each key: home = ipoib_index_home(&view, key, &hash);
 *     for each key: line = ipoib_index_guess(home, hash);
 *                   prefetch the line;
 *     for each key: if the line does not have the key: ipoib_index_find() etc.
 *
 * See ipoib-index.c for how it works. */

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#if defined(__AVX2__) || defined(__BMI__)
#include <immintrin.h>
#endif

#include "ipoib-compat.h"
#include "ipoib-index.h"
#include "openvswitch/compiler.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "util.h"

#define IPOIB_INDEX_ENTRIES 8
struct ipoib_index_bucket {
    /* Hashes; of an entry that is free, any. */
    atomic_uint32_t hashes[IPOIB_INDEX_ENTRIES];
    /* ipoib_index_line() of the slots; of an entry that is free, 0. */
    atomic_uint32_t lines[IPOIB_INDEX_ENTRIES];
};
BUILD_ASSERT_DECL(sizeof(struct ipoib_index_bucket) == CACHE_LINE_SIZE);

struct ipoib_index_impl {
    uint64_t multiplier;
    uint32_t n_buckets;
    size_t max;                 /* Entries at which it grows. */
    struct ipoib_index_bucket *buckets;
    atomic_uint8_t *passed;     /* By bucket: entries that found it full. */
};

struct ipoib_index {
    OVSRCU_TYPE(struct ipoib_index_impl *) impl;

    /* The writer's. */
    size_t n;
};

/* Around a reader's look at the line, the hash of which it has seen.  A test
 * has it wait here. */
#ifndef IPOIB_INDEX_PAUSE
#define IPOIB_INDEX_PAUSE()
#endif

/* An index as a reader sees it between two quiescent states. */
struct ipoib_index_view {
    struct ipoib_index_bucket *buckets;
    uint64_t n_buckets;
    uint64_t multiplier;
};

static inline struct ipoib_index_view
ipoib_index_view(const struct ipoib_index *index_)
{
    struct ipoib_index *index = CONST_CAST(struct ipoib_index *, index_);
    const struct ipoib_index_impl *impl
        = ovsrcu_get(struct ipoib_index_impl *, &index->impl);

    return (struct ipoib_index_view) {
        .buckets = impl->buckets,
        .n_buckets = impl->n_buckets,
        .multiplier = impl->multiplier,
    };
}

/* Where 'slot' is in the lines of ipoib_slots_lines(), the first of which is
 * nobody's. */
static inline uint32_t
ipoib_index_line(uint32_t slot)
{
    return (slot + 1) * CACHE_LINE_SIZE;
}

/* The product alone would leave keys that are at equal distances at equal
 * distances, of which the wrong one brings many into few buckets.  Not all of
 * the low 16 bits of the key may be 0. */
static inline uint32_t
ipoib_index_hash(uint64_t multiplier, uint64_t key)
{
    uint64_t x = key * multiplier;

    return (x * x) >> 32;
}

static inline uint32_t
ipoib_index_home__(uint32_t hash, uint64_t n_buckets)
{
    return (hash * n_buckets) >> 32;
}

/* The bucket in which 'key' is, if it is not full; prefetched. */
static inline struct ipoib_index_bucket *
ipoib_index_home(const struct ipoib_index_view *view, uint64_t key,
                 uint64_t *hash)
{
    struct ipoib_index_bucket *home;

    *hash = ipoib_index_hash(view->multiplier, key);
    home = &view->buckets[ipoib_index_home__(*hash, view->n_buckets)];
    OVS_PREFETCH(home);
    return home;
}

#ifdef IPOIB_LANES
/* The low 64 bits of products. */
static inline ALWAYS_INLINE __m256i
ipoib_index_multiply_four(__m256i a, __m256i b)
{
    __m256i ab = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
    __m256i ba = _mm256_mul_epu32(_mm256_srli_epi64(b, 32), a);

    return _mm256_add_epi64(_mm256_mul_epu32(a, b),
                            _mm256_slli_epi64(_mm256_add_epi64(ab, ba), 32));
}

/* ipoib_index_home() of four keys at once. */
static inline ALWAYS_INLINE void
ipoib_index_home_four(const struct ipoib_index_view *view,
                      const uint64_t keys[], uint64_t hashes[],
                      struct ipoib_index_bucket *homes[])
{
    __m256i x, hash, home;

    x = ipoib_index_multiply_four(
        _mm256_loadu_si256((const void *) keys),
        _mm256_set1_epi64x(view->multiplier));
    hash = _mm256_srli_epi64(ipoib_index_multiply_four(x, x), 32);
    _mm256_storeu_si256((void *) hashes, hash);

    BUILD_ASSERT(sizeof **homes == 1 << 6);
    home = _mm256_mul_epu32(hash, _mm256_set1_epi64x(view->n_buckets));
    home = _mm256_slli_epi64(_mm256_srli_epi64(home, 32), 6);
    home = _mm256_add_epi64(home, _mm256_set1_epi64x(
                                      (uintptr_t) view->buckets));
    _mm256_storeu_si256((void *) homes, home);
    IPOIB_UNROLL
    for (size_t i = 0; i < 4; i++) {
        OVS_PREFETCH(homes[i]);
    }
}
#endif

/* Which of 'hashes', or 'lines', of a bucket are 'value': a number with
 * IPOIB_INDEX_MASK_BITS bits for each. */
#if defined(__SSE2__) && !defined(__AVX2__)
#define IPOIB_INDEX_MASK_BITS 2
#else
#define IPOIB_INDEX_MASK_BITS 1
#endif
static inline unsigned int
ipoib_index_mask(atomic_uint32_t values_[], uint32_t value)
{
    BUILD_ASSERT(IPOIB_INDEX_ENTRIES == 8);
#ifdef __SSE2__
    /* It does not matter that such loads are not atomic. */
    const __m128i *values = ALIGNED_CAST(const __m128i *, values_);
#endif
#ifdef __AVX2__
    __m256i equal = _mm256_cmpeq_epi32(_mm256_load_si256((void *) values),
                                       _mm256_set1_epi32(value));

    return _mm256_movemask_ps(_mm256_castsi256_ps(equal));
#elif defined(__SSE2__)
    __m128i wanted = _mm_set1_epi32(value);
    __m128i equal = _mm_packs_epi32(_mm_cmpeq_epi32(values[0], wanted),
                                    _mm_cmpeq_epi32(values[1], wanted));

    return _mm_movemask_epi8(equal);
#else
    unsigned int mask = 0;

    for (int i = 0; i < IPOIB_INDEX_ENTRIES; i++) {
        uint32_t v;

        atomic_read_relaxed(&values_[i], &v);
        mask |= (v == value) << i;
    }
    return mask;
#endif
}

/* The first entry in 'mask', which is not 0.  The writer's. */
static inline size_t
ipoib_index_first(unsigned int mask)
{
    return raw_ctz(mask) / IPOIB_INDEX_MASK_BITS;
}

/* The line of the first entry in 'mask'.  If it is 0, that of some entry of
 * the buckets behind 'b'; so there are IPOIB_INDEX_PAD more than n_buckets, as
 * 'b' may be the one behind the last. */
#define IPOIB_INDEX_PAD 5
static inline uint32_t
ipoib_index_first_line(struct ipoib_index_bucket *b, unsigned int mask)
{
    enum { BEHIND = 64 };       /* Of an entry four buckets on, at most. */
    atomic_uint32_t *lines = b->lines;
    uint32_t line;
    size_t bit;

#if defined(__BMI__) && defined(__x86_64__)
    bit = _tzcnt_u64(mask);     /* BEHIND, for 0. */
#else
    bit = mask ? raw_ctz(mask) : BEHIND;
#endif
    atomic_thread_fence(memory_order_acquire);
    IPOIB_INDEX_PAUSE();
    atomic_read_explicit(&lines[bit / IPOIB_INDEX_MASK_BITS], &line,
                         memory_order_acquire);
    return line;
}

/* Returns ipoib_index_line() of a slot whose key has 'hash' and is in 'b' or
 * the next bucket; or that of any slot, or 0.  If the key is there, it is this
 * slot's in nearly all cases. */
static inline uint32_t
ipoib_index_guess(struct ipoib_index_bucket *b, uint32_t hash)
{
    unsigned int mask = ipoib_index_mask(b->hashes, hash);

    if (OVS_UNLIKELY(!mask)) {
        b++;                    /* Perhaps it found the first one full. */
        mask = ipoib_index_mask(b->hashes, hash);
    }
    return ipoib_index_first_line(b, mask);
}

#endif /* ipoib-index-private.h */
