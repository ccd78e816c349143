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

#ifndef IPOIB_TABLE_PRIVATE_H
#define IPOIB_TABLE_PRIVATE_H 1

/* The inside of a table, for ipoib-table.c and for those who look up many keys
 * in a loop of their own, for each packet of a batch in particular:
 *
 *     view = ipoib_table_view(t);
 *     for each key: home = ipoib_table_home(&view, key);
 *     for each key: slot = ipoib_table_search(&view, home, key);
 *     if (!ipoib_table_view_holds(&view)) {
 *         for each key: slot = ipoib_table_lookup(t, key);
 *     }
 *
 * Without the last step a slot may be another key's.  See ipoib-table.c for
 * how it works. */

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "ipoib-table.h"
#include "openvswitch/compiler.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "util.h"

#define IPOIB_BUCKET_ENTRIES 5
struct ipoib_bucket {
    ATOMIC(uint64_t) keys[IPOIB_BUCKET_ENTRIES];
    atomic_uint32_t slots[IPOIB_BUCKET_ENTRIES];
    atomic_uint32_t state;      /* Version (24 bits), passed (8 bits). */
};
BUILD_ASSERT_DECL(sizeof(struct ipoib_bucket) == CACHE_LINE_SIZE);

struct ipoib_table_impl {
    uint32_t n_buckets;
    size_t max;                 /* Entries at which it grows. */
    uint64_t basis;
    struct ipoib_bucket *buckets;
};

struct ipoib_table {
    /* What readers read. */
    OVSRCU_TYPE(struct ipoib_table_impl *) impl;
    atomic_uint32_t version;    /* Changes with each key that is removed. */
    uint8_t pad[CACHE_LINE_SIZE - sizeof(void *) - sizeof(uint32_t)];

    /* The writer's. */
    size_t n;
};

/* Around a reader's look at a slot, whose key it has seen.  A test has it
 * wait here. */
#ifndef IPOIB_TABLE_PAUSE
#define IPOIB_TABLE_PAUSE()
#endif

/* A table as a reader sees it between two quiescent states. */
struct ipoib_table_view {
    const struct ipoib_table *table;
    const struct ipoib_table_impl *impl;
    struct ipoib_bucket *buckets;
    uint64_t n_buckets;
    uint64_t basis;
    uint32_t version;
};

static inline struct ipoib_table_view
ipoib_table_view(const struct ipoib_table *table)
{
    struct ipoib_table *t = CONST_CAST(struct ipoib_table *, table);
    struct ipoib_table_view view;

    atomic_read_explicit(&t->version, &view.version, memory_order_acquire);
    view.table = table;
    view.impl = ovsrcu_get(struct ipoib_table_impl *, &t->impl);
    view.buckets = view.impl->buckets;
    view.n_buckets = view.impl->n_buckets;
    view.basis = view.impl->basis;
    return view;
}

/* False if a key was removed since the view was made.  What was found by it
 * may be wrong then. */
static inline bool
ipoib_table_view_holds(const struct ipoib_table_view *view)
{
    struct ipoib_table *t = CONST_CAST(struct ipoib_table *, view->table);
    uint32_t version;

    atomic_read_relaxed(&t->version, &version);
    return OVS_LIKELY(version == view->version);
}

/* Both halves of the product mix all bits of the key; the number of the bucket
 * is then in the high half of another product. */
static inline size_t
ipoib_table_home__(uint64_t basis, uint64_t n_buckets, uint64_t key)
{
#ifdef __SIZEOF_INT128__
    unsigned __int128 product = ((unsigned __int128) (key ^ basis)
                                 * UINT64_C(0xff51afd7ed558ccd));
    uint64_t x = (uint64_t) (product >> 64) ^ (uint64_t) product;

    return ((unsigned __int128) x * n_buckets) >> 64;
#else
    uint64_t x = key ^ basis;

    x ^= x >> 32;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return ((x >> 32) * n_buckets) >> 32;
#endif
}

/* The bucket in which 'key' is, if it is not full; prefetched. */
static inline struct ipoib_bucket *
ipoib_table_home(const struct ipoib_table_view *view, uint64_t key)
{
    struct ipoib_bucket *home
        = &view->buckets[ipoib_table_home__(view->basis, view->n_buckets,
                                            key)];

    OVS_PREFETCH(home);
    return home;
}

/* If 'key' is in 'b', returns its index, in nearly all cases; else any. */
static inline size_t
ipoib_bucket_guess(struct ipoib_bucket *b, uint64_t key)
{
#ifdef __SSE2__
    /* Compares the low halves of the first four keys.  It does not matter that
     * such loads are not atomic, since this is just a guess. */
    const float *lows = (const float *) b->keys;
    __m128i low = _mm_castps_si128(_mm_shuffle_ps(_mm_load_ps(lows),
                                                  _mm_load_ps(lows + 4),
                                                  _MM_SHUFFLE(2, 0, 2, 0)));
    __m128i equal = _mm_cmpeq_epi32(low, _mm_set1_epi32((uint32_t) key));

    unsigned int mask = _mm_movemask_ps(_mm_castsi128_ps(equal));

    BUILD_ASSERT(IPOIB_BUCKET_ENTRIES == 5);
    return (unsigned int) raw_ctz(mask | 1 << 4);
#else
    size_t guess = 0;

    for (size_t i = 1; i < IPOIB_BUCKET_ENTRIES; i++) {
        uint64_t k;

        atomic_read_relaxed(&b->keys[i], &k);
        guess = k == key ? i : guess;
    }
    return guess;
#endif
}

uint32_t ipoib_table_search_all(const struct ipoib_table_impl *,
                                struct ipoib_bucket *, uint64_t key);
uint32_t ipoib_table_search_next(const struct ipoib_table_impl *,
                                 struct ipoib_bucket *, uint64_t key);

/* Looks for 'key' in 'b' alone.  It may not be found though it is there. */
static inline bool
ipoib_bucket_search(struct ipoib_bucket *b, uint64_t key, uint32_t *slot)
{
    size_t i = ipoib_bucket_guess(b, key);
    uint64_t k;

    atomic_read_explicit(&b->keys[i], &k, memory_order_acquire);
    if (OVS_LIKELY(k == key)) {
        atomic_uint32_t *slots = b->slots;

        IPOIB_TABLE_PAUSE();
        atomic_read_explicit(&slots[i], slot, memory_order_acquire);
        IPOIB_TABLE_PAUSE();
        return true;
    }
    return false;
}

/* Looks for 'key', which is not 0 and whose home is 'b'. */
static inline uint32_t
ipoib_table_search(const struct ipoib_table_view *view,
                   struct ipoib_bucket *b, uint64_t key)
{
    uint32_t slot;

    return (OVS_LIKELY(ipoib_bucket_search(b, key, &slot))
            ? slot : ipoib_table_search_next(view->impl, b, key));
}

#endif /* ipoib-table-private.h */
