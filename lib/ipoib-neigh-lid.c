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

/* Neighbours: LIDs.
 *
 * Readers find the neighbour of a (LID, QPN), of a LID, and the router of a
 * LID, only where there is a single one.  Of several, the number and the XOR
 * of their slots are kept, which tells the last one that is left. */

#include <config.h>
#include "ipoib-neigh.h"

#include <stdlib.h>

#include "hash.h"
#include "ipoib-neigh-table.h"
#include "util.h"

static void
slot_set_add(struct slot_set *set, uint32_t slot)
{
    set->n++;
    set->xor ^= slot;
}

static void
slot_set_remove(struct slot_set *set, uint32_t slot)
{
    set->n--;
    set->xor ^= slot;
}

static struct lid *
get_lid(struct ipoib_neigh_table *t, uint16_t lid)
{
    struct lid *page;

    atomic_read_relaxed(&t->lid_pages[lid / LID_PAGE], &page);
    if (!page) {
        page = xcalloc(LID_PAGE, sizeof *page);
        for (int i = 0; i < LID_PAGE; i++) {
            for (int set = 0; set < N_LID_SETS; set++) {
                atomic_init(&page[i].alone[set], IPOIB_SLOT_NONE);
            }
        }
        atomic_store_explicit(&t->lid_pages[lid / LID_PAGE], page,
                              memory_order_release);
    }
    return &page[lid % LID_PAGE];
}

static struct shared_lid *
find_shared_lid(const struct ipoib_neigh_table *t, uint64_t key)
{
    struct shared_lid *shared;

    HMAP_FOR_EACH_WITH_HASH (shared, node, hash_uint64(key),
                             &t->shared_lids) {
        if (shared->key == key) {
            return shared;
        }
    }
    return NULL;
}

/* Lets readers find 'slot' by 'key', a (LID, QPN). */
static void
publish_lid(struct ipoib_neigh_table *t, uint32_t slot, uint64_t key)
{
    atomic_store_relaxed(&ipoib_neigh_fast(t, slot)->lid_key, key);
    ipoib_index_insert(t->lids, key, slot);
}

static void
unpublish_lid(struct ipoib_neigh_table *t, uint32_t slot, uint64_t key)
{
    atomic_store_relaxed(&ipoib_neigh_fast(t, slot)->lid_key, 0);
    ipoib_index_remove(t->lids, key, slot);
}

static void
add_lid_qpn(struct ipoib_neigh_table *t, uint32_t slot, uint64_t key)
{
    struct shared_lid *shared = find_shared_lid(t, key);
    uint32_t other = (shared ? IPOIB_SLOT_NONE
                      : ipoib_neigh_find_lid_key(t, key));

    if (other != IPOIB_SLOT_NONE) {
        unpublish_lid(t, other, key);
        shared = xzalloc(sizeof *shared);
        shared->key = key;
        slot_set_add(&shared->neighs, other);
        hmap_insert(&t->shared_lids, &shared->node, hash_uint64(key));
    }
    if (shared) {
        slot_set_add(&shared->neighs, slot);
    } else {
        publish_lid(t, slot, key);
    }
}

static void
remove_lid_qpn(struct ipoib_neigh_table *t, uint32_t slot, uint64_t key)
{
    struct shared_lid *shared;

    if (ipoib_neigh_has_lid(ipoib_neigh_fast(t, slot), key)) {
        unpublish_lid(t, slot, key);
        return;
    }
    shared = find_shared_lid(t, key);
    slot_set_remove(&shared->neighs, slot);
    if (shared->neighs.n == 1) {
        publish_lid(t, shared->neighs.xor, key);
        hmap_remove(&t->shared_lids, &shared->node);
        free(shared);
    }
}

/* Adds 'neigh' to the sets of its LID that it belongs to, or removes it. */
static void
change_lid_sets(struct ipoib_neigh_table *t, const struct ipoib_neigh *neigh,
                void (*change)(struct slot_set *, uint32_t slot))
{
    struct lid *lid = get_lid(t, neigh->lid);
    int n = neigh->routes ? N_LID_SETS : LID_ROUTERS;

    for (int i = 0; i < n; i++) {
        struct slot_set *set = &lid->sets[i];

        change(set, neigh->slot);
        atomic_store_explicit(&lid->alone[i],
                              set->n == 1 ? set->xor : IPOIB_SLOT_NONE,
                              memory_order_release);
    }
}

void
ipoib_neigh_change_lid(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
                       uint16_t lid)
{
    uint32_t qpn = ipoib_addr_qpn(&neigh->addr);

    if (neigh->lid) {
        remove_lid_qpn(t, neigh->slot, ipoib_neigh_lid_key(neigh->lid, qpn));
        change_lid_sets(t, neigh, slot_set_remove);
    }
    neigh->lid = lid;
    if (neigh->lid) {
        add_lid_qpn(t, neigh->slot, ipoib_neigh_lid_key(neigh->lid, qpn));
        change_lid_sets(t, neigh, slot_set_add);
    }
}

void
ipoib_neigh_set_routes(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
                       bool routes)
{
    uint16_t lid = neigh->lid;

    if (neigh->routes != routes) {
        ipoib_neigh_change_lid(t, neigh, 0);
        neigh->routes = routes;
        ipoib_neigh_change_lid(t, neigh, lid);
    }
}

void
ipoib_neigh_set_lid(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
                    uint16_t lid)
{
    if (lid && lid != neigh->lid) {
        ipoib_neigh_change_lid(t, neigh, lid);
    }
}

void
ipoib_neigh_destroy_lids(struct ipoib_neigh_table *t)
{
    hmap_destroy(&t->shared_lids);
    for (size_t i = 0; i < ARRAY_SIZE(t->lid_pages); i++) {
        struct lid *page;

        atomic_read_relaxed(&t->lid_pages[i], &page);
        free(page);
    }
}

size_t
ipoib_neigh_lids_memory(const struct ipoib_neigh_table *t_)
{
    struct ipoib_neigh_table *t = CONST_CAST(struct ipoib_neigh_table *, t_);
    size_t size = hmap_count(&t->shared_lids)
                  * ipoib_neigh_heap(sizeof(struct shared_lid));

    for (size_t i = 0; i < ARRAY_SIZE(t->lid_pages); i++) {
        struct lid *page;

        atomic_read_relaxed(&t->lid_pages[i], &page);
        size += page ? ipoib_neigh_heap(LID_PAGE * sizeof *page) : 0;
    }
    return size;
}
