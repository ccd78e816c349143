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

/* Neighbours: look-ups, by readers and by the writer. */

#include <config.h>
#include "ipoib-neigh.h"

#include "ipoib-neigh-table.h"
#include "ipoib-table.h"
#include "util.h"

struct ipoib_neigh *
ipoib_neigh_of_slot(const struct ipoib_neigh_table *t, uint32_t slot)
{
    return ipoib_slots_get(t->slots, slot);
}

struct ipoib_neigh_fast *
ipoib_neigh_fast(const struct ipoib_neigh_table *t, uint32_t slot)
{
    return ipoib_slots_fast(t->slots, slot);
}

/* Readers and writer. */
uint32_t
ipoib_neigh_by_gid(const struct ipoib_neigh_table *t,
                   const struct ib_gid *gid, uint32_t qpn)
{
    uint64_t guid = ib_gid_guid(gid);
    uint64_t key = ipoib_neigh_gid_key(t, gid, qpn);
    struct ipoib_index_cursor c = ipoib_index_find(t->gids, key);

    while (ipoib_index_next(&c)) {
        const struct ipoib_neigh_fast *fast = ipoib_neigh_fast(t, c.slot);

        if (fast->qpn == qpn && ib_gid_guid(&fast->gid) == guid) {
            return c.slot;
        }
    }
    return IPOIB_SLOT_NONE;
}

struct ipoib_neigh *
ipoib_neigh_find(const struct ipoib_neigh_table *t,
                 const struct ipoib_addr *addr)
{
    return ipoib_neigh_of_slot(t, ipoib_neigh_by_gid(t, &addr->gid,
                                                     ipoib_addr_qpn(addr)));
}

uint32_t
ipoib_neigh_find_own_mac(const struct ipoib_neigh_table *t, uint64_t key)
{
    return ipoib_index_search(t->macs, key, ipoib_slots_lines(t->slots),
                              offsetof(struct ipoib_neigh_fast, mac));
}

static uint32_t
find_mac(const struct ipoib_neigh_table *t, uint64_t key)
{
    uint32_t slot = ipoib_neigh_find_own_mac(t, key);

    return (slot != IPOIB_SLOT_NONE
            ? slot : ipoib_table_lookup(t->alias_macs, key));
}

uint32_t
ipoib_neigh_find_lid_key(const struct ipoib_neigh_table *t, uint64_t key)
{
    return ipoib_index_search(t->lids, key, ipoib_slots_lines(t->slots),
                              offsetof(struct ipoib_neigh_fast, lid_key));
}

struct ipoib_neigh *
ipoib_neigh_find_mac(const struct ipoib_neigh_table *t, struct eth_addr mac)
{
    return ipoib_neigh_of_slot(t, find_mac(t, ipoib_neigh_mac_key(mac)));
}

static struct ipoib_neigh_view
view(const struct ipoib_neigh_table *t, const struct ipoib_index *index)
{
    return (struct ipoib_neigh_view) {
        .index = ipoib_index_view(index),
        .lines = ipoib_slots_lines(t->slots),
    };
}

struct ipoib_neigh_view
ipoib_neigh_macs(const struct ipoib_neigh_table *t)
{
    return view(t, t->macs);
}

struct ipoib_neigh_view
ipoib_neigh_lids(const struct ipoib_neigh_table *t)
{
    return view(t, t->lids);
}

static struct ipoib_neigh_fast *
fast_or_null(const struct ipoib_neigh_table *t, uint32_t slot)
{
    return slot == IPOIB_SLOT_NONE ? NULL : ipoib_neigh_fast(t, slot);
}

struct ipoib_neigh_fast *
ipoib_neigh_search_mac(const struct ipoib_neigh_table *t, uint64_t key)
{
    return fast_or_null(t, find_mac(t, key));
}

struct ipoib_neigh_fast *
ipoib_neigh_search_lid(const struct ipoib_neigh_table *t, uint64_t key)
{
    return fast_or_null(t, ipoib_neigh_find_lid_key(t, key));
}

void
ipoib_neigh_by_mac(const struct ipoib_neigh_table *t, const uint64_t macs[],
                   size_t n, uint32_t slots[])
{
    for (size_t i = 0; i < n; i++) {
        slots[i] = find_mac(t, ipoib_frame_mac(macs[i]));
    }
}

void
ipoib_neigh_by_lid(const struct ipoib_neigh_table *t, const uint64_t keys[],
                   size_t n, uint32_t slots[])
{
    for (size_t i = 0; i < n; i++) {
        slots[i] = ipoib_neigh_find_lid_key(t, keys[i]);
    }
}

static uint32_t
alone_of_lid(const struct ipoib_neigh_table *t_, uint16_t lid,
             enum lid_set set)
{
    struct ipoib_neigh_table *t = CONST_CAST(struct ipoib_neigh_table *, t_);
    uint32_t slot = IPOIB_SLOT_NONE;
    struct lid *page;

    atomic_read_explicit(&t->lid_pages[lid / LID_PAGE], &page,
                         memory_order_acquire);
    if (page) {
        atomic_read_explicit(&page[lid % LID_PAGE].alone[set], &slot,
                             memory_order_acquire);
    }
    return slot;
}

uint32_t
ipoib_neigh_by_lid_alone(const struct ipoib_neigh_table *t, uint16_t lid)
{
    return alone_of_lid(t, lid, LID_ALL);
}

uint32_t
ipoib_neigh_router_of_lid(const struct ipoib_neigh_table *t, uint16_t lid)
{
    return alone_of_lid(t, lid, LID_ROUTERS);
}
