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

#ifndef IPOIB_NEIGH_PRIVATE_H
#define IPOIB_NEIGH_PRIVATE_H 1

/* Neighbours as the data path looks them up: a batch at a time.
 *
 *     view = ipoib_neigh_macs(table), or ipoib_neigh_lids(table);
 *     for each packet i: homes[i] = ipoib_index_home(&view.index, keys[i],
 *                                                    &hashes[i]);
 *     ipoib_neigh_find_batch(&view, homes, hashes, n, neighs);
 *     for each packet i: neigh = (ipoib_neigh_has_mac(neighs[i], keys[i])
 *                                 ? neighs[i]
 *                                 : ipoib_neigh_search_mac(table, keys[i]));
 *
 * The keys are those of ipoib_frame_mac(), or of ipoib_neigh_lid_key(); for
 * the latter there are ipoib_neigh_has_lid() and ipoib_neigh_search_lid().
 * What is found in the batch is the right one nearly always, if there is one;
 * only the last step tells. */

#include "ipoib-compat.h"
#include "ipoib-index-private.h"
#include "ipoib-neigh.h"

struct ipoib_neigh_view {
    struct ipoib_index_view index;
    char *lines;                /* ipoib_slots_lines(). */
};

struct ipoib_neigh_view ipoib_neigh_macs(const struct ipoib_neigh_table *);
struct ipoib_neigh_view ipoib_neigh_lids(const struct ipoib_neigh_table *);

/* An index with so many buckets is of more neighbours than have room in a
 * processor's own caches. */
#define IPOIB_NEIGH_MANY 8192

/* Reads what was prefetched, since a processor may drop prefetches while it
 * waits for many lines.  Reads are not dropped, and close together, so that it
 * waits for all at a time. */
static inline void
ipoib_neigh_read_batch(struct ipoib_neigh_fast *const neighs[], size_t n)
{
    IPOIB_UNROLL
    for (size_t i = 0; i < n; i++) {
        const volatile uint32_t *qpn = &neighs[i]->qpn;

        (void) *qpn;
    }
}

/* Stores, and prefetches, the neighbour that each of 'n' packets seems to be
 * of: if none, the line of zeros, which is nobody's. */
static inline void
ipoib_neigh_find_batch(const struct ipoib_neigh_view *view,
                       struct ipoib_index_bucket *const homes[],
                       const uint64_t hashes[], size_t n,
                       struct ipoib_neigh_fast *neighs[])
{
    char *lines = view->lines;

    IPOIB_UNROLL
    for (size_t i = 0; i < n; i++) {
        char *line = lines + ipoib_index_guess(homes[i], hashes[i]);

        OVS_PREFETCH(line);
        neighs[i] = ALIGNED_CAST(struct ipoib_neigh_fast *, line);
    }
    if (OVS_UNLIKELY(view->index.n_buckets >= IPOIB_NEIGH_MANY)) {
        ipoib_neigh_read_batch(neighs, n);
    }
}

/* The neighbour with 'key', or NULL. */
struct ipoib_neigh_fast *
ipoib_neigh_search_mac(const struct ipoib_neigh_table *, uint64_t key);
struct ipoib_neigh_fast *
ipoib_neigh_search_lid(const struct ipoib_neigh_table *, uint64_t key);

static inline bool
ipoib_neigh_has_mac(const struct ipoib_neigh_fast *fast, uint64_t key)
{
    return OVS_LIKELY(fast->mac == key);
}

static inline bool
ipoib_neigh_has_lid(struct ipoib_neigh_fast *fast, uint64_t key)
{
    uint64_t lid_key;

    atomic_read_relaxed(&fast->lid_key, &lid_key);
    return OVS_LIKELY(lid_key == key);
}

#endif /* ipoib-neigh-private.h */
