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

#include <config.h>
#include "ipoib-table.h"

#include <netinet/in.h>

#include "ipoib-table-private.h"
#include "openvswitch/compiler.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "random.h"
#include "unaligned.h"
#include "util.h"

/* How it works
 * ============
 *
 * A key's home bucket follows from its hash.  If that is full, the entry goes
 * to the next one that is not, and each bucket that it passed counts it in its
 * 'state', so that a look-up knows whether it has to go on.
 *
 * Buckets are in order of the hash, so that growing the map copies from one
 * end to the other and does not jump about in memory; and since it is scaled
 * and not masked, the map grows by half and not to the double.
 *
 * Readers and the writer meet in single entries.  An entry is free if its key
 * is 0.  To insert, the writer stores the slot and then the key.  To remove,
 * it stores 0 as the key and then counts up the bucket's version.  A reader
 * that saw a key and then a slot takes the slot if the version is what it was
 * before: whatever was stored to the entry since the key was removed comes
 * after a change of the version.  So a reader tries again only if the writer
 * has got further meanwhile.
 *
 * The table has a version as well, which counts up together with that of any
 * bucket.  So the same goes for it; and a reader that looks up many keys needs
 * to compare it only once, before the first of them and after the last.  If it
 * has changed, the reader looks at each key once more, with the versions of
 * the buckets, lest a busy writer keep it from getting anywhere. */

/* How many entries passed the bucket.  Once there were that many, the count
 * stays until the map grows. */
#define PASSED_MASK 0xff
#define VERSION_ONE 0x100

/* Keys that are looked up at a time: enough to hide a cache miss. */
#define BATCH 32

/* A bijection of 64 bits in which each bit depends on each bit. */
static inline uint64_t
mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    x ^= x >> 33;
    return x;
}

uint64_t
ipoib_table_key_128(uint64_t high, uint64_t low, uint64_t basis)
{
    uint64_t key = mix(mix(high ^ basis) ^ low);

    return key ? key : 1;
}

uint64_t
ipoib_table_key_ip(const struct in6_addr *ip, uint64_t basis)
{
    const ovs_be64 *be64 = ALIGNED_CAST(const ovs_be64 *, ip);
    uint64_t high = ntohll(get_unaligned_be64(be64));
    uint64_t low = ntohll(get_unaligned_be64(be64 + 1));

    if (!high && low >> 32 == 0xffff) {
        return UINT64_C(1) << 62 | (low & UINT32_MAX);
    }
    return UINT64_C(1) << 63 | ipoib_table_key_128(high, low, basis);
}

static inline uint32_t
home_of(const struct ipoib_table_impl *impl, uint64_t key)
{
    return ipoib_table_home__(impl->basis, impl->n_buckets, key);
}

static inline uint32_t
next_of(const struct ipoib_table_impl *impl, uint32_t i)
{
    return i + 1 < impl->n_buckets ? i + 1 : 0;
}

/* Writer's reads: nobody else writes. */

static inline uint64_t
get_key(const struct ipoib_bucket *b, int i)
{
    uint64_t key;

    atomic_read_relaxed(&CONST_CAST(struct ipoib_bucket *, b)->keys[i], &key);
    return key;
}

static inline uint32_t
get_slot(const struct ipoib_bucket *b, int i)
{
    uint32_t slot;

    atomic_read_relaxed(&CONST_CAST(struct ipoib_bucket *, b)->slots[i],
                        &slot);
    return slot;
}

static inline uint32_t
get_state(const struct ipoib_bucket *b)
{
    uint32_t state;

    atomic_read_relaxed(&CONST_CAST(struct ipoib_bucket *, b)->state, &state);
    return state;
}

/* Index of 'key' in 'b', or -1. */
static inline int
find_in_bucket(const struct ipoib_bucket *b, uint64_t key)
{
    int found = -1;

    for (int i = 0; i < IPOIB_BUCKET_ENTRIES; i++) {
        found = get_key(b, i) == key ? i : found;
    }
    return found;
}

static struct ipoib_table_impl *
impl_create(size_t n)
{
    struct ipoib_table_impl *impl = xmalloc(sizeof *impl);

    /* 0.7 of the entries in use. */
    impl->n_buckets = MAX(4, DIV_ROUND_UP(n * 2,
                                          IPOIB_BUCKET_ENTRIES * 7 / 5));
    ovs_assert(impl->n_buckets <= UINT32_MAX / IPOIB_BUCKET_ENTRIES);
    impl->max = (uint64_t) impl->n_buckets * IPOIB_BUCKET_ENTRIES * 7 / 10;
    impl->basis = (uint64_t) random_uint32() << 32 | random_uint32();
    impl->buckets = xzalloc_cacheline(impl->n_buckets
                                      * sizeof *impl->buckets);
    return impl;
}

static void
impl_destroy(struct ipoib_table_impl *impl)
{
    free_cacheline(impl->buckets);
    free(impl);
}

static struct ipoib_table_impl *
impl_get_protected(const struct ipoib_table *t)
{
    return ovsrcu_get_protected(struct ipoib_table_impl *,
                                &CONST_CAST(struct ipoib_table *, t)->impl);
}

/* Inserts 'key', which is not there, into 'impl', which has room. */
static void
impl_insert(struct ipoib_table_impl *impl, uint64_t key, uint32_t slot)
{
    uint32_t i = home_of(impl, key);

    for (;; i = next_of(impl, i)) {
        struct ipoib_bucket *b = &impl->buckets[i];
        int free_idx = find_in_bucket(b, 0);

        if (free_idx >= 0) {
            atomic_store_explicit(&b->slots[free_idx], slot,
                                  memory_order_release);
            atomic_store_explicit(&b->keys[free_idx], key,
                                  memory_order_release);
            return;
        }

        uint32_t state = get_state(b);
        if ((state & PASSED_MASK) != PASSED_MASK) {
            atomic_store_relaxed(&b->state, state + 1);
        }
    }
}

/* Finds 'key': stores its bucket and returns the index there, or -1. */
static int
impl_find(const struct ipoib_table_impl *impl, uint64_t key, uint32_t *bucket)
{
    uint32_t i = home_of(impl, key);

    for (uint32_t n = 0; n < impl->n_buckets; n++, i = next_of(impl, i)) {
        const struct ipoib_bucket *b = &impl->buckets[i];
        int idx = find_in_bucket(b, key);

        if (idx >= 0 || !(get_state(b) & PASSED_MASK)) {
            *bucket = i;
            return idx;
        }
    }
    return -1;
}

struct ipoib_table *
ipoib_table_create(size_t n)
{
    struct ipoib_table *t = xzalloc_cacheline(sizeof *t);

    ovsrcu_init(&t->impl, impl_create(n));
    return t;
}

void
ipoib_table_destroy(struct ipoib_table *t)
{
    if (t) {
        ovsrcu_postpone(impl_destroy, impl_get_protected(t));
        free_cacheline(t);
    }
}

/* Replaces the buckets of 't' by more. */
static void
grow(struct ipoib_table *t)
{
    struct ipoib_table_impl *old = impl_get_protected(t);
    struct ipoib_table_impl *new = impl_create(old->max + old->max / 2);

    new->basis = old->basis;    /* So that the order stays. */
    for (uint32_t i = 0; i < old->n_buckets; i++) {
        const struct ipoib_bucket *b = &old->buckets[i];

        for (int j = 0; j < IPOIB_BUCKET_ENTRIES; j++) {
            uint64_t key = get_key(b, j);

            if (key) {
                impl_insert(new, key, get_slot(b, j));
            }
        }
    }
    ovsrcu_set(&t->impl, new);
    ovsrcu_postpone(impl_destroy, old);
}

/* Inserts 'key', which is not there. */
static void
insert__(struct ipoib_table *t, uint64_t key, uint32_t slot)
{
    if (t->n >= impl_get_protected(t)->max) {
        grow(t);
    }
    impl_insert(impl_get_protected(t), key, slot);
    t->n++;
}

void
ipoib_table_insert(struct ipoib_table *t, uint64_t key, uint32_t slot)
{
    struct ipoib_table_impl *impl = impl_get_protected(t);
    uint32_t bucket;

    ovs_assert(key);
    int idx = impl_find(impl, key, &bucket);
    if (idx >= 0) {
        atomic_store_explicit(&impl->buckets[bucket].slots[idx], slot,
                              memory_order_release);
        return;
    }

    insert__(t, key, slot);
}

uint32_t
ipoib_table_insert_new(struct ipoib_table *t, uint64_t key, uint32_t slot)
{
    struct ipoib_table_impl *impl = impl_get_protected(t);
    uint32_t bucket;

    ovs_assert(key);
    int idx = impl_find(impl, key, &bucket);
    if (idx >= 0) {
        return get_slot(&impl->buckets[bucket], idx);
    }
    insert__(t, key, slot);
    return slot;
}

void
ipoib_table_prefetch(const struct ipoib_table *t, uint64_t key)
{
    const struct ipoib_table_impl *impl = impl_get_protected(t);

    OVS_PREFETCH_WRITE(&impl->buckets[home_of(impl, key)]);
}

uint32_t
ipoib_table_remove(struct ipoib_table *t, uint64_t key)
{
    struct ipoib_table_impl *impl = impl_get_protected(t);
    uint32_t bucket, version;
    int idx = key ? impl_find(impl, key, &bucket) : -1;

    if (idx < 0) {
        return IPOIB_SLOT_NONE;
    }

    struct ipoib_bucket *b = &impl->buckets[bucket];
    uint32_t slot = get_slot(b, idx);
    atomic_store_relaxed(&b->keys[idx], 0);
    atomic_store_explicit(&b->state, get_state(b) + VERSION_ONE,
                          memory_order_release);
    atomic_read_relaxed(&t->version, &version);
    atomic_store_explicit(&t->version, version + 1, memory_order_release);

    for (uint32_t i = home_of(impl, key); i != bucket; i = next_of(impl, i)) {
        struct ipoib_bucket *passed = &impl->buckets[i];
        uint32_t state = get_state(passed);

        if ((state & PASSED_MASK) != PASSED_MASK) {
            atomic_store_relaxed(&passed->state, state - 1);
        }
    }
    t->n--;
    return slot;
}

size_t
ipoib_table_count(const struct ipoib_table *t)
{
    return t->n;
}

size_t
ipoib_table_memory(const struct ipoib_table *t)
{
    const struct ipoib_table_impl *impl = impl_get_protected(t);

    return sizeof *t + sizeof *impl
           + impl->n_buckets * sizeof *impl->buckets;
}

/* Reader's look-up of 'key' in 'b'.  Returns true, with '*slot' set, if the
 * search ends here. */
static inline bool
search_bucket(struct ipoib_bucket *b, uint64_t key, uint32_t *slot)
{
    for (;;) {
        uint32_t before, after;
        int found = -1;

        atomic_read_explicit(&b->state, &before, memory_order_acquire);
        for (int i = 0; i < IPOIB_BUCKET_ENTRIES; i++) {
            uint64_t k;

            atomic_read_explicit(&b->keys[i], &k, memory_order_acquire);
            found = k == key ? i : found;
        }
        if (found < 0) {
            *slot = IPOIB_SLOT_NONE;
            return !(before & PASSED_MASK);
        }

        IPOIB_TABLE_PAUSE();
        atomic_read_explicit(&b->slots[found], slot, memory_order_acquire);
        IPOIB_TABLE_PAUSE();
        atomic_read_relaxed(&b->state, &after);
        if (OVS_LIKELY(!((before ^ after) & ~PASSED_MASK))) {
            return true;
        }
    }
}

/* Reader's look-up from bucket 'b' on. */
uint32_t
ipoib_table_search_all(const struct ipoib_table_impl *impl,
                       struct ipoib_bucket *b, uint64_t key)
{
    uint32_t slot = IPOIB_SLOT_NONE;
    uint32_t i = b - impl->buckets;

    for (uint32_t n = 0; n < impl->n_buckets; n++) {
        if (search_bucket(&impl->buckets[i], key, &slot)) {
            break;
        }
        i = next_of(impl, i);
    }
    return slot;
}

/* The rest of ipoib_table_search(), where 'key' is not in its home 'b': it is
 * most likely to be in the next bucket. */
uint32_t
ipoib_table_search_next(const struct ipoib_table_impl *impl,
                        struct ipoib_bucket *b, uint64_t key)
{
    uint32_t next = next_of(impl, b - impl->buckets);
    uint32_t slot;

    return (ipoib_bucket_search(&impl->buckets[next], key, &slot)
            ? slot : ipoib_table_search_all(impl, b, key));
}

uint32_t
ipoib_table_lookup(const struct ipoib_table *t, uint64_t key)
{
    struct ipoib_table_view view = ipoib_table_view(t);
    struct ipoib_bucket *home = ipoib_table_home(&view, key);
    uint32_t slot;

    if (OVS_UNLIKELY(!key)) {
        return IPOIB_SLOT_NONE;
    }
    slot = ipoib_table_search(&view, home, key);
    return (ipoib_table_view_holds(&view)
            ? slot : ipoib_table_search_all(view.impl, home, key));
}

void
ipoib_table_lookup_batch(const struct ipoib_table *t, const uint64_t keys[],
                         size_t n, uint32_t slots[])
{
    struct ipoib_bucket *homes[BATCH];

    for (; n; n -= MIN(n, BATCH), keys += BATCH, slots += BATCH) {
        struct ipoib_table_view view = ipoib_table_view(t);
        size_t this_n = MIN(n, BATCH);

        for (size_t i = 0; i < this_n; i++) {
            homes[i] = ipoib_table_home(&view, keys[i]);
        }
        for (size_t i = 0; i < this_n; i++) {
            slots[i] = (OVS_LIKELY(keys[i])
                        ? ipoib_table_search(&view, homes[i], keys[i])
                        : IPOIB_SLOT_NONE);
        }
        if (!ipoib_table_view_holds(&view)) {
            for (size_t i = 0; i < this_n; i++) {
                slots[i] = ipoib_table_lookup(t, keys[i]);
            }
        }
    }
}
