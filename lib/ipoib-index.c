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
#include "ipoib-index.h"

#include "ipoib-index-private.h"
#include "ipoib-pages.h"
#include "ipoib-table.h"
#include "random.h"
#include "util.h"

/* How it works
 * ============
 *
 * A bucket is a cache line of eight entries: a hash and the place of a slot's
 * cache line.  The number of the key's home bucket is the hash, scaled.  If
 * the bucket is full, the entry goes to the next one that is not, and each
 * bucket that it passed counts it, so that a look-up knows whether it has to
 * go on.  The counts are in an array of their own: few look-ups need them.
 *
 * Buckets are in order of the hash, so that growing the index copies from one
 * end to the other, needs no keys, and does not jump about in memory; and
 * since the hash is scaled and not masked, the index grows by less than the
 * double.  More than a half of the entries are always in use, so that each
 * takes less than 16 bytes; and no more than 0.7 of them, so that nearly all
 * are in their home buckets.
 *
 * To insert, the writer stores the line and then the hash.  To remove, it
 * stores 0 as the line.  A reader that has seen the hash may find the line of
 * another slot, or none, if the writer changes the entry meanwhile.  Then it
 * sees that the slot does not have the key.  As entries do not move, it cannot
 * miss one that is there all the time.
 *
 * The multiplier of the hash is random, so that nobody can choose addresses
 * that end in the same bucket. */

/* Counts in 'passed' stay, once they are so high, until the index grows. */
#define PASSED_MAX UINT8_MAX

static inline uint32_t
get_line(struct ipoib_index_bucket *b, size_t i)
{
    uint32_t line;

    atomic_read_explicit(&b->lines[i], &line, memory_order_acquire);
    return line;
}

static inline uint32_t
get_hash(struct ipoib_index_bucket *b, size_t i)
{
    uint32_t hash;

    atomic_read_explicit(&b->hashes[i], &hash, memory_order_acquire);
    return hash;
}

static inline uint8_t
get_passed(const struct ipoib_index_impl *impl, uint32_t bucket)
{
    uint8_t passed;

    atomic_read_relaxed(&impl->passed[bucket], &passed);
    return passed;
}

static inline uint32_t
next_of(const struct ipoib_index_impl *impl, uint32_t bucket)
{
    return bucket + 1 < impl->n_buckets ? bucket + 1 : 0;
}

static size_t
impl_size(const struct ipoib_index_impl *impl)
{
    return ((impl->n_buckets + IPOIB_INDEX_PAD) * sizeof *impl->buckets
            + impl->n_buckets * sizeof *impl->passed);
}

/* For 'n' entries, and not many more. */
static struct ipoib_index_impl *
impl_create(size_t n, uint64_t multiplier)
{
    struct ipoib_index_impl *impl = xmalloc(sizeof *impl);

    /* At most 0.7 of the entries are in use. */
    n = MAX(n, 20);
    ovs_assert(n < UINT32_MAX / 4);
    impl->multiplier = multiplier;
    impl->n_buckets = DIV_ROUND_UP(n * 10, 7 * IPOIB_INDEX_ENTRIES);
    impl->max = (size_t) impl->n_buckets * IPOIB_INDEX_ENTRIES * 7 / 10;
    impl->buckets = ipoib_pages_alloc(impl_size(impl));
    impl->passed = (atomic_uint8_t *) (impl->buckets + impl->n_buckets
                                       + IPOIB_INDEX_PAD);
    return impl;
}

static void
impl_destroy(struct ipoib_index_impl *impl)
{
    ipoib_pages_free(impl->buckets, impl_size(impl));
    free(impl);
}

static struct ipoib_index_impl *
impl_get_protected(const struct ipoib_index *index)
{
    return ovsrcu_get_protected(
        struct ipoib_index_impl *,
        &CONST_CAST(struct ipoib_index *, index)->impl);
}

/* Counts one entry more ('delta' 1) or less (-1) that passed 'bucket'. */
static void
count_passed(struct ipoib_index_impl *impl, uint32_t bucket, int delta)
{
    uint8_t passed = get_passed(impl, bucket);

    if (passed != PASSED_MAX) {
        atomic_store_relaxed(&impl->passed[bucket], passed + delta);
    }
}

static inline void
set_entry(struct ipoib_index_bucket *b, size_t i, uint32_t hash, uint32_t line)
{
    atomic_store_explicit(&b->lines[i], line, memory_order_release);
    atomic_store_explicit(&b->hashes[i], hash, memory_order_release);
}

/* Inserts an entry into 'impl', which has room.  (Without branches that are
 * hard to predict, so that CPUs insert several at a time.) */
static inline void
impl_insert(struct ipoib_index_impl *impl, uint32_t hash, uint32_t line)
{
    uint32_t bucket = ipoib_index_home__(hash, impl->n_buckets);
    unsigned int mask;

    while (OVS_UNLIKELY(!(mask = ipoib_index_mask(impl->buckets[bucket].lines,
                                                  0)))) {
        count_passed(impl, bucket, 1);
        bucket = next_of(impl, bucket);
    }
    set_entry(&impl->buckets[bucket], ipoib_index_first(mask), hash, line);
}

/* The same if all entries are inserted so, 'n_used' says how many each bucket
 * has, and the buckets are near each other: then this is faster, as nothing is
 * read that was just written in parts. */
static inline void
impl_append(struct ipoib_index_impl *impl, uint8_t n_used[], uint32_t hash,
            uint32_t line)
{
    uint32_t bucket = ipoib_index_home__(hash, impl->n_buckets);

    while (OVS_UNLIKELY(n_used[bucket] == IPOIB_INDEX_ENTRIES)) {
        count_passed(impl, bucket, 1);
        bucket = next_of(impl, bucket);
    }
    set_entry(&impl->buckets[bucket], n_used[bucket]++, hash, line);
}

struct ipoib_index *
ipoib_index_create(size_t n)
{
    struct ipoib_index *index = xzalloc(sizeof *index);
    uint64_t multiplier = (uint64_t) random_uint32() << 32 | random_uint32();

    ovsrcu_init(&index->impl, impl_create(n, multiplier | 1));
    return index;
}

void
ipoib_index_destroy(struct ipoib_index *index)
{
    if (index) {
        ovsrcu_postpone(impl_destroy, impl_get_protected(index));
        free(index);
    }
}

/* Replaces the buckets by more. */
static void
grow(struct ipoib_index *index)
{
    struct ipoib_index_impl *old = impl_get_protected(index);
    struct ipoib_index_impl *new = impl_create(old->max + old->max * 3 / 10,
                                               old->multiplier);
    uint8_t *n_used = xcalloc(new->n_buckets, sizeof *n_used);

    for (uint32_t i = 0; i < old->n_buckets; i++) {
        struct ipoib_index_bucket *b = &old->buckets[i];

        for (int j = 0; j < IPOIB_INDEX_ENTRIES; j++) {
            uint32_t line = get_line(b, j);

            if (line) {
                impl_append(new, n_used, get_hash(b, j), line);
            }
        }
    }
    free(n_used);
    ovsrcu_set(&index->impl, new);
    ovsrcu_postpone(impl_destroy, old);
}

void
ipoib_index_insert(struct ipoib_index *index, uint64_t key, uint32_t slot)
{
    struct ipoib_index_impl *impl = impl_get_protected(index);

    if (index->n >= impl->max) {
        grow(index);
        impl = impl_get_protected(index);
    }
    impl_insert(impl, ipoib_index_hash(impl->multiplier, key),
                ipoib_index_line(slot));
    index->n++;
}

void
ipoib_index_remove(struct ipoib_index *index, uint64_t key, uint32_t slot)
{
    struct ipoib_index_impl *impl = impl_get_protected(index);
    uint32_t hash = ipoib_index_hash(impl->multiplier, key);
    uint32_t home = ipoib_index_home__(hash, impl->n_buckets);
    uint32_t bucket = home;
    unsigned int mask;

    while (!(mask = ipoib_index_mask(impl->buckets[bucket].lines,
                                     ipoib_index_line(slot)))) {
        ovs_assert(get_passed(impl, bucket));
        bucket = next_of(impl, bucket);
    }
    atomic_store_relaxed(
        &impl->buckets[bucket].lines[ipoib_index_first(mask)], 0);
    for (uint32_t b = home; b != bucket; b = next_of(impl, b)) {
        count_passed(impl, b, -1);
    }
    index->n--;
}

void
ipoib_index_prefetch(const struct ipoib_index *index, uint64_t key)
{
    const struct ipoib_index_impl *impl = impl_get_protected(index);
    uint32_t hash = ipoib_index_hash(impl->multiplier, key);

    OVS_PREFETCH_WRITE(&impl->buckets[ipoib_index_home__(hash,
                                                         impl->n_buckets)]);
}

size_t
ipoib_index_count(const struct ipoib_index *index)
{
    return index->n;
}

size_t
ipoib_index_memory(const struct ipoib_index *index)
{
    const struct ipoib_index_impl *impl = impl_get_protected(index);

    return sizeof *index + sizeof *impl + impl_size(impl);
}

static inline struct ipoib_index_cursor
find__(const struct ipoib_index *index, uint64_t key)
{
    const struct ipoib_index_impl *impl
        = ovsrcu_get(struct ipoib_index_impl *,
                     &CONST_CAST(struct ipoib_index *, index)->impl);
    uint32_t hash = ipoib_index_hash(impl->multiplier, key);
    uint32_t bucket = ipoib_index_home__(hash, impl->n_buckets);

    return (struct ipoib_index_cursor) {
        .slot = IPOIB_SLOT_NONE,
        .impl = impl,
        .hash = hash,
        .bucket = bucket,
        .n_buckets = impl->n_buckets,
        .mask = ipoib_index_mask(impl->buckets[bucket].hashes, hash),
    };
}

struct ipoib_index_cursor
ipoib_index_find(const struct ipoib_index *index, uint64_t key)
{
    return find__(index, key);
}

static inline bool
next__(struct ipoib_index_cursor *c)
{
    const struct ipoib_index_impl *impl = c->impl;

    for (;;) {
        struct ipoib_index_bucket *b = &impl->buckets[c->bucket];

        while (OVS_UNLIKELY(c->mask)) {
            uint32_t line = ipoib_index_first_line(b, c->mask);

            for (int i = 0; i < IPOIB_INDEX_MASK_BITS; i++) {
                c->mask &= c->mask - 1;
            }
            if (line) {
                c->slot = line / CACHE_LINE_SIZE - 1;
                return true;
            }
        }
        if (!get_passed(impl, c->bucket) || !--c->n_buckets) {
            return false;
        }
        c->bucket = next_of(impl, c->bucket);
        c->mask = ipoib_index_mask(impl->buckets[c->bucket].hashes, c->hash);
    }
}

bool
ipoib_index_next(struct ipoib_index_cursor *c)
{
    return next__(c);
}

uint32_t
ipoib_index_search(const struct ipoib_index *index, uint64_t key,
                   const char *lines, size_t ofs)
{
    struct ipoib_index_cursor c = find__(index, key);

    while (next__(&c)) {
        char *line = CONST_CAST(char *, lines) + ipoib_index_line(c.slot);
        uint64_t k;

        atomic_read_relaxed(ALIGNED_CAST(ATOMIC(uint64_t) *, line + ofs), &k);
        if (k == key) {
            return c.slot;
        }
    }
    return IPOIB_SLOT_NONE;
}
