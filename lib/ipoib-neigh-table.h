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

#ifndef IPOIB_NEIGH_TABLE_H
#define IPOIB_NEIGH_TABLE_H 1

/* The inside of the table of neighbours, for ipoib-neigh*.c alone. */

#include "ipoib-index.h"
#include "ipoib-neigh-private.h"
#include "ipoib-slots.h"
#include "openvswitch/hmap.h"

/* Stand-in MACs of neighbours that are gone. */
#define N_FORGOTTEN 8192

/* The neighbours that were heard from one LID, or if that is unknown, that
 * have one GUID. */
struct source {
    struct hmap_node node;      /* In ipoib_neigh_table. */
    uint64_t id;
    size_t n;
    struct ipoib_neigh_list neighs; /* IPOIB_NEIGH_BY_SOURCE. */
};

/* Some neighbours, of which it is of interest which one it is if they are but
 * one. */
struct slot_set {
    uint32_t n;
    uint32_t xor;               /* Of their slots: the slot of a single one. */
};

/* Several neighbours with the same (LID, QPN). */
struct shared_lid {
    struct hmap_node node;      /* In ipoib_neigh_table. */
    uint64_t key;               /* ipoib_neigh_lid_key(). */
    struct slot_set neighs;
};

/* The neighbours of a LID. */
enum lid_set {
    LID_ALL,
    LID_ROUTERS,
    N_LID_SETS
};
struct lid {
    struct slot_set sets[N_LID_SETS];
    atomic_uint32_t alone[N_LID_SETS]; /* The single one's slot, or NONE. */
};

/* LIDs are kept in pages. */
#define LID_PAGE 256

struct ipoib_neigh_table {
    uint16_t pkey;
    uint64_t share_guid;        /* 0: not shared with other gateways. */
    size_t max;
    size_t n;
    const struct ipoib_neigh_ops *ops;
    void *aux;
    struct ipoib_slots *slots;  /* Of ipoib_neigh_fast and ipoib_neigh. */

    /* Writer's. */
    struct ipoib_neigh_list lru; /* IPOIB_NEIGH_LRU. */
    struct ovs_list aliases;    /* Of ipoib_neigh_alias, oldest first. */
    struct hmap sources;        /* Of struct source. */
    struct hmap shared_lids;    /* Of struct shared_lid. */
    uint32_t hash_basis;
    uint32_t age_pos;           /* Slot that ipoib_neigh_age() is at. */
    uint32_t age_oldest;        /* Least 'used' that it has seen in the chunk
                                 * of slots which it is at. */
    uint32_t *oldest;           /* The same of each chunk that it has been
                                 * at: none can be less. */
    size_t n_oldest, allocated_oldest;
    uint64_t *forgotten;        /* Stand-in MACs, by their last bits: of
                                 * N_FORGOTTEN neighbours.  Or NULL. */

    /* Readers'. */
    uint64_t key_basis;
    struct ipoib_index *macs;   /* ipoib_frame_mac(). */
    struct ipoib_table *alias_macs; /* The same; aliases. */
    struct ipoib_index *gids;   /* gid_key(). */
    struct ipoib_index *lids;   /* ipoib_neigh_lid_key(). */
    struct ipoib_table *ips;    /* ipoib_table_key_ip(). */
    ATOMIC(struct lid *) lid_pages[(UINT16_MAX + 1) / LID_PAGE];
};

/* Keys. */

/* The prefix does not count. */
static inline uint64_t
ipoib_neigh_gid_key(const struct ipoib_neigh_table *t,
                    const struct ib_gid *gid, uint32_t qpn)
{
    return ipoib_table_key_128(ib_gid_guid(gid), qpn, t->key_basis);
}

static inline uint64_t
ipoib_neigh_mac_key(struct eth_addr mac)
{
    return ipoib_frame_mac(eth_addr_to_uint64(mac));
}

/* ipoib-neigh-find.c, for the writer. */
/* The slot of the neighbour whose own MAC has 'key'. */
uint32_t ipoib_neigh_find_own_mac(const struct ipoib_neigh_table *,
                                  uint64_t key);
uint32_t ipoib_neigh_find_lid_key(const struct ipoib_neigh_table *,
                                  uint64_t key);

/* ipoib-neigh-lid.c. */
/* Changes the LID of a neighbour, which may be 0, in the indexes. */
void ipoib_neigh_change_lid(struct ipoib_neigh_table *, struct ipoib_neigh *,
                            uint16_t lid);
void ipoib_neigh_destroy_lids(struct ipoib_neigh_table *);
size_t ipoib_neigh_lids_memory(const struct ipoib_neigh_table *);

/* ipoib-neigh-ip.c. */
/* Gives 'ip' to 'neigh', as its latest one; from 'owner', who has it if not
 * NULL. */
void ipoib_neigh_give_ip(struct ipoib_neigh_table *, struct ipoib_neigh *,
                         struct ipoib_neigh *owner,
                         const struct in6_addr *ip);
/* Gives all to 'neigh'. */
void ipoib_neigh_give_ips(struct ipoib_neigh_table *,
                          struct ipoib_neigh *neigh,
                          struct ipoib_neigh *owner);
void ipoib_neigh_remove_ips(struct ipoib_neigh_table *, struct ipoib_neigh *);

/* What malloc() takes for 'size' bytes. */
static inline size_t
ipoib_neigh_heap(size_t size)
{
    return ROUND_UP(size + sizeof(size_t), 2 * sizeof(size_t));
}

#endif /* ipoib-neigh-table.h */
