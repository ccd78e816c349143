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
#include "ipoib-neigh.h"

#include <stddef.h>
#include <string.h>

#include "coverage.h"
#include "dp-packet.h"
#include "hash.h"
#include "ipoib-index.h"
#include "ipoib-neigh-private.h"
#include "ipoib-peer.h"
#include "ipoib-slots.h"
#include "ipoib-table.h"
#include "random.h"
#include "unaligned.h"

COVERAGE_DEFINE(ipoib_neigh_new);
COVERAGE_DEFINE(ipoib_neigh_evicted);
COVERAGE_DEFINE(ipoib_neigh_aged);
COVERAGE_DEFINE(ipoib_neigh_reborn);
COVERAGE_DEFINE(ipoib_neigh_moved_ip);
COVERAGE_DEFINE(ipoib_neigh_mac_collision);
COVERAGE_DEFINE(ipoib_neigh_key_collision);

/* What a table in use may hold: as many slots may wait for a grace period. */
#define MAX_NEIGHS (IPOIB_SLOTS_MAX / 2)

/* Stand-in MACs of neighbours that are gone. */
#define N_FORGOTTEN 8192

/* Neighbours that evict() looks at before it takes one that was used. */
#define EVICT_TRIES 64

/* Key that nobody looks for, of the line that is no neighbour's. */
#define NOBODY_KEY (IPOIB_NEIGH_NO_KEY - 1)

/* When the table is full, a source keeps this part of it. */
#define SOURCE_SHARE 8

/* The neighbours that were heard from one LID, or if that is unknown, that
 * have one GUID. */
struct source {
    struct hmap_node node;      /* In ipoib_neigh_table. */
    uint64_t id;
    size_t n;
    struct ovs_list neighs;     /* Of ipoib_neigh, oldest first. */
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
    struct hmap by_ip;          /* Of ipoib_neigh_ip. */
    struct ovs_list lru;        /* Of ipoib_neigh, oldest first. */
    struct ovs_list aliases;    /* Of ipoib_neigh_alias, oldest first. */
    struct hmap sources;        /* Of struct source. */
    struct hmap shared_lids;    /* Of struct shared_lid. */
    uint32_t hash_basis;
    uint32_t age_pos;           /* Slot that ipoib_neigh_age() is at. */
    uint64_t forgotten[N_FORGOTTEN]; /* Stand-in MACs, by their last bits. */

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

static uint32_t
hash_ip(const struct ipoib_neigh_table *t, const struct in6_addr *ip)
{
    return hash_bytes(ip, sizeof *ip, t->hash_basis);
}

static uint64_t
gid_key(const struct ipoib_neigh_table *t, uint64_t guid, uint32_t qpn)
{
    return ipoib_table_key_128(guid, qpn, t->key_basis);
}

static uint64_t
mac_key(struct eth_addr mac)
{
    return ipoib_frame_mac(eth_addr_to_uint64(mac));
}

static bool
same_guid(const struct ipoib_addr *a, const struct ipoib_addr *b)
{
    return ib_gid_guid(&a->gid) == ib_gid_guid(&b->gid);
}

/* Look-ups. */

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
    struct ipoib_index_cursor c = ipoib_index_find(t->gids,
                                                   gid_key(t, guid, qpn));

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

static struct ipoib_neigh_ip *
find_ip(const struct ipoib_neigh_table *t, const struct in6_addr *addr)
{
    struct ipoib_neigh_ip *ip;

    HMAP_FOR_EACH_WITH_HASH (ip, by_ip, hash_ip(t, addr), &t->by_ip) {
        if (ipv6_addr_equals(&ip->ip, addr)) {
            return ip;
        }
    }
    return NULL;
}

struct ipoib_neigh *
ipoib_neigh_find_ip(const struct ipoib_neigh_table *t,
                    const struct in6_addr *addr)
{
    struct ipoib_neigh_ip *ip = find_ip(t, addr);

    return ip ? ip->neigh : NULL;
}

/* The slot of the neighbour whose own MAC has 'key'. */
static uint32_t
find_own_mac(const struct ipoib_neigh_table *t, uint64_t key)
{
    struct ipoib_index_cursor c = ipoib_index_find(t->macs, key);

    while (ipoib_index_next(&c)) {
        if (ipoib_neigh_has_mac(ipoib_neigh_fast(t, c.slot), key)) {
            return c.slot;
        }
    }
    return IPOIB_SLOT_NONE;
}

static uint32_t
find_mac(const struct ipoib_neigh_table *t, uint64_t key)
{
    uint32_t slot = find_own_mac(t, key);

    return (slot != IPOIB_SLOT_NONE
            ? slot : ipoib_table_lookup(t->alias_macs, key));
}

static uint32_t
find_lid(const struct ipoib_neigh_table *t, uint64_t key)
{
    struct ipoib_index_cursor c = ipoib_index_find(t->lids, key);

    while (ipoib_index_next(&c)) {
        if (ipoib_neigh_has_lid(ipoib_neigh_fast(t, c.slot), key)) {
            return c.slot;
        }
    }
    return IPOIB_SLOT_NONE;
}

struct ipoib_neigh *
ipoib_neigh_find_mac(const struct ipoib_neigh_table *t, struct eth_addr mac)
{
    return ipoib_neigh_of_slot(t, find_mac(t, mac_key(mac)));
}

bool
ipoib_neigh_was_forgotten(const struct ipoib_neigh_table *t,
                          struct eth_addr mac_)
{
    uint64_t mac = eth_addr_to_uint64(mac_);

    return mac && t->forgotten[mac % N_FORGOTTEN] == mac;
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
    return fast_or_null(t, find_lid(t, key));
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
        slots[i] = find_lid(t, keys[i]);
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

uint32_t
ipoib_neigh_by_ip(const struct ipoib_neigh_table *t,
                  const struct in6_addr *ip)
{
    return ipoib_table_lookup(t->ips, ipoib_table_key_ip(ip, t->key_basis));
}

/* LIDs.
 *
 * Readers find the neighbour of a (LID, QPN), of a LID, and the router of a
 * LID, only where there is a single one.  Of several, the number and the XOR
 * of their slots are kept, which tells the last one that is left. */

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
    uint32_t other = shared ? IPOIB_SLOT_NONE : find_lid(t, key);

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

/* Changes the LID of 'neigh' to 'lid', which may be 0, in the indexes. */
static void
set_lid(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh, uint16_t lid)
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
        set_lid(t, neigh, 0);
        neigh->routes = routes;
        set_lid(t, neigh, lid);
    }
}

/* IP addresses. */

/* Gives 'ip', which is in no neighbour's list, to 'neigh'. */
static void
give_ip(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
        struct ipoib_neigh_ip *ip)
{
    bool moved = ip->neigh != neigh;

    ip->neigh = neigh;
    ovs_list_push_front(&neigh->ips, &ip->node);
    neigh->n_ips++;
    if (moved && ip->published) {
        ipoib_table_insert(t->ips, ipoib_table_key_ip(&ip->ip, t->key_basis),
                           neigh->slot);
    }
}

/* Takes 'ip' out of its neighbour's list, to be given to another one or back
 * to be the first. */
static void
take_ip(struct ipoib_neigh_ip *ip)
{
    ovs_list_remove(&ip->node);
    ip->neigh->n_ips--;
}

static struct ipoib_neigh_ip *
new_ip(struct ipoib_neigh_table *t, const struct in6_addr *addr)
{
    struct ipoib_neigh_ip *ip = xmalloc(sizeof *ip);
    uint64_t key = ipoib_table_key_ip(addr, t->key_basis);

    ip->neigh = NULL;
    ip->ip = *addr;
    hmap_insert(&t->by_ip, &ip->by_ip, hash_ip(t, addr));

    /* Two IPv6 addresses with the same key: readers find one of them. */
    ip->published = ipoib_table_lookup(t->ips, key) == IPOIB_SLOT_NONE;
    if (!ip->published) {
        COVERAGE_INC(ipoib_neigh_key_collision);
    }
    return ip;
}

static void
delete_ip(struct ipoib_neigh_table *t, struct ipoib_neigh_ip *ip)
{
    take_ip(ip);
    if (ip->published) {
        ipoib_table_remove(t->ips, ipoib_table_key_ip(&ip->ip, t->key_basis));
    }
    hmap_remove(&t->by_ip, &ip->by_ip);
    free(ip);
}

void
ipoib_neigh_forget_ip(struct ipoib_neigh_table *t, const struct in6_addr *addr)
{
    struct ipoib_neigh_ip *ip = find_ip(t, addr);

    if (ip) {
        delete_ip(t, ip);
    }
}

static void
limit_ips(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh)
{
    while (neigh->n_ips > IPOIB_NEIGH_MAX_IPS) {
        delete_ip(t, CONTAINER_OF(ovs_list_back(&neigh->ips),
                                  struct ipoib_neigh_ip, node));
    }
}

/* Is there another IP address of the family of 'ip' at the same neighbour? */
static bool
has_more_of_family(const struct ipoib_neigh_ip *ip)
{
    bool v4 = IN6_IS_ADDR_V4MAPPED(&ip->ip);
    const struct ipoib_neigh_ip *other;

    LIST_FOR_EACH (other, node, &ip->neigh->ips) {
        if (other != ip && !!IN6_IS_ADDR_V4MAPPED(&other->ip) == v4) {
            return true;
        }
    }
    return false;
}

/* Stand-in MACs and aliases.  A MAC is that of one neighbour, or one alias. */

static void
delete_alias(struct ipoib_neigh_table *t, struct ipoib_neigh_alias *alias)
{
    ipoib_table_remove(t->alias_macs, mac_key(alias->mac));
    ovs_list_remove(&alias->node);
    ovs_list_remove(&alias->by_age);
    free(alias);
}

/* Makes 'mac' an alias of 'neigh', instead of what it was. */
static void
add_alias(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
          struct eth_addr mac, uint32_t qpn, long long int now)
{
    struct ipoib_neigh_alias *alias = xmalloc(sizeof *alias);

    alias->neigh = neigh;
    alias->mac = mac;
    alias->qpn = qpn;
    alias->until = now + IPOIB_NEIGH_ALIAS_MS;
    ovs_list_push_front(&neigh->aliases, &alias->node);
    ovs_list_push_back(&t->aliases, &alias->by_age);
    ipoib_table_insert(t->alias_macs, mac_key(mac), neigh->slot);
}

static void
limit_aliases(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh)
{
    while (ovs_list_size(&neigh->aliases) > IPOIB_NEIGH_MAX_ALIASES) {
        delete_alias(t, CONTAINER_OF(ovs_list_back(&neigh->aliases),
                                     struct ipoib_neigh_alias, node));
    }
}

/* If 'mac', which 'owner' has, is an alias from the time when the identity
 * 'addr' was taken for dead, returns that. */
static struct ipoib_neigh_alias *
own_alias(const struct ipoib_neigh *owner, const struct ipoib_addr *addr,
          struct eth_addr mac)
{
    struct ipoib_neigh_alias *alias;

    if (same_guid(&owner->addr, addr)) {
        LIST_FOR_EACH (alias, node, &owner->aliases) {
            if (eth_addr_equals(alias->mac, mac)) {
                return alias->qpn == ipoib_addr_qpn(addr) ? alias : NULL;
            }
        }
    }
    return NULL;
}

static struct eth_addr
standin_mac(const struct ipoib_neigh_table *t, const struct ipoib_addr *addr,
            unsigned int attempt)
{
    struct eth_addr mac = ipoib_standin_mac(t->pkey, addr, attempt);

    return t->share_guid ? ipoib_share_mac(t->share_guid, mac) : mac;
}

/* Chooses the stand-in MAC of 'neigh', beginning with its own 'mac', and
 * publishes it. */
static void
assign_mac(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
           struct eth_addr mac)
{
    struct ipoib_neigh_alias *alias = NULL;
    uint64_t key;

    for (;; mac = standin_mac(t, &neigh->addr, ++neigh->attempt)) {
        key = mac_key(mac);
        if (find_own_mac(t, key) == IPOIB_SLOT_NONE) {
            uint32_t owner = ipoib_table_lookup(t->alias_macs, key);

            if (owner == IPOIB_SLOT_NONE) {
                break;
            }
            alias = own_alias(ipoib_neigh_of_slot(t, owner), &neigh->addr,
                              mac);
            if (alias) {
                break;
            }
        }
        COVERAGE_INC(ipoib_neigh_mac_collision);
    }

    /* Readers compare the MAC with what they look for. */
    ipoib_neigh_fast(t, neigh->slot)->mac = key;
    ipoib_index_insert(t->macs, key, neigh->slot);
    if (alias) {
        delete_alias(t, alias);
    }
    neigh->mac = mac;
}

/* Sources. */

static void
leave_source(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh)
{
    struct source *source = neigh->source;

    ovs_list_remove(&neigh->by_source);
    neigh->source = NULL;
    if (!--source->n) {
        hmap_remove(&t->sources, &source->node);
        free(source);
    }
}

/* 'neigh' was heard from 'slid', 0 if that is unknown. */
static void
join_source(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
            uint16_t slid)
{
    uint64_t id = slid ? slid : ib_gid_guid(&neigh->addr.gid);
    uint32_t hash = hash_uint64_basis(id, t->hash_basis);
    struct source *source = neigh->source;

    if (source && (!slid || source->id == id)) {
        ovs_list_remove(&neigh->by_source);
        ovs_list_push_back(&source->neighs, &neigh->by_source);
        return;
    }
    if (source) {
        leave_source(t, neigh);
    }
    HMAP_FOR_EACH_WITH_HASH (source, node, hash, &t->sources) {
        if (source->id == id) {
            break;
        }
    }
    if (!source) {
        source = xmalloc(sizeof *source);
        source->id = id;
        source->n = 0;
        ovs_list_init(&source->neighs);
        hmap_insert(&t->sources, &source->node, hash);
    }
    source->n++;
    ovs_list_push_back(&source->neighs, &neigh->by_source);
    neigh->source = source;
}

/* Making and removing. */

static void
set_used(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
         long long int now)
{
    neigh->confirmed = neigh->queued = now;
    ovs_list_remove(&neigh->lru);
    ovs_list_push_back(&t->lru, &neigh->lru);
    ipoib_neigh_mark_used(ipoib_neigh_fast(t, neigh->slot), now / 1000);
}

static struct ipoib_neigh *
create(struct ipoib_neigh_table *t, const struct ipoib_addr *addr,
       uint16_t lid, long long int now)
{
    uint32_t slot = ipoib_slots_alloc(t->slots);
    if (slot == IPOIB_SLOT_NONE) {
        return NULL;
    }

    /* The indexes are in memory here and there: all fetch at a time. */
    struct eth_addr mac = standin_mac(t, addr, 0);
    uint64_t key = gid_key(t, ib_gid_guid(&addr->gid), ipoib_addr_qpn(addr));
    ipoib_index_prefetch(t->macs, mac_key(mac));
    ipoib_index_prefetch(t->gids, key);
    ipoib_index_prefetch(t->lids, ipoib_neigh_lid_key(lid,
                                                      ipoib_addr_qpn(addr)));

    struct ipoib_neigh *neigh = ipoib_neigh_of_slot(t, slot);
    struct ipoib_neigh_fast *fast = ipoib_neigh_fast(t, slot);
    uint32_t qpn = ipoib_addr_qpn(addr);

    neigh->slot = slot;
    neigh->addr = ipoib_addr_make(qpn, &addr->gid);
    neigh->created = now;
    ovs_list_init(&neigh->ips);
    ovs_list_init(&neigh->aliases);
    ovs_list_init(&neigh->wait);
    ovs_list_push_back(&t->lru, &neigh->lru);
    t->n++;

    fast->gid = addr->gid;
    fast->qpn = qpn;
    assign_mac(t, neigh, mac);
    ipoib_index_insert(t->gids, key, slot);
    COVERAGE_INC(ipoib_neigh_new);
    return neigh;
}

/* Removes 'neigh'.  If 'reborn' is true, its MAC is an alias of another one
 * from now on. */
static void
remove__(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh, bool reborn)
{
    struct ipoib_neigh_alias *alias;
    struct ipoib_neigh_ip *ip;

    LIST_FOR_EACH_SAFE (ip, node, &neigh->ips) {
        delete_ip(t, ip);
    }
    LIST_FOR_EACH_SAFE (alias, node, &neigh->aliases) {
        delete_alias(t, alias);
    }
    if (!reborn) {
        uint64_t mac = eth_addr_to_uint64(neigh->mac);

        t->forgotten[mac % N_FORGOTTEN] = mac;
    }
    ipoib_index_remove(t->macs, mac_key(neigh->mac), neigh->slot);
    ipoib_index_remove(t->gids, gid_key(t, ib_gid_guid(&neigh->addr.gid),
                                        ipoib_addr_qpn(&neigh->addr)),
                       neigh->slot);
    set_lid(t, neigh, 0);
    ovs_list_remove(&neigh->lru);
    leave_source(t, neigh);
    t->n--;

    if (t->ops && t->ops->removed) {
        t->ops->removed(t->aux, neigh);
    }
    ipoib_slots_free(t->slots, neigh->slot);
}

void
ipoib_neigh_remove(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh)
{
    remove__(t, neigh, false);
}

long long int
ipoib_neigh_used(const struct ipoib_neigh_table *t,
                 const struct ipoib_neigh *neigh)
{
    uint32_t used;

    atomic_read_relaxed(&ipoib_neigh_fast(t, neigh->slot)->used, &used);
    return MAX(neigh->confirmed, used * 1000LL);
}

static struct ipoib_neigh *
oldest(struct ipoib_neigh_table *t, struct source *source)
{
    return (source
            ? CONTAINER_OF(ovs_list_front(&source->neighs),
                           struct ipoib_neigh, by_source)
            : CONTAINER_OF(ovs_list_front(&t->lru), struct ipoib_neigh, lru));
}

/* Removes the neighbour that was used least recently, but not 'keep'; if
 * 'keep' is from a source that has more than its share, one from there.  There
 * is another.  The lists have them in the order in which they were heard; one
 * that the data path has used since goes to the end. */
static void
evict(struct ipoib_neigh_table *t, const struct ipoib_neigh *keep)
{
    struct source *source = keep ? keep->source : NULL;
    struct ipoib_neigh *victim = NULL;
    long long int victim_used = 0;

    if (source && (source->n < 2 || source->n <= t->max / SOURCE_SHARE)) {
        source = NULL;
    }
    for (int i = 0; i < EVICT_TRIES; i++) {
        struct ipoib_neigh *neigh = oldest(t, source);
        long long int used = ipoib_neigh_used(t, neigh);

        if (neigh == keep) {
            if (victim) {
                break;
            }
        } else if (!victim || used < victim_used) {
            victim = neigh;
            victim_used = used;
        }
        if (used <= neigh->queued && neigh != keep) {
            break;
        }
        neigh->queued = used;
        ovs_list_remove(&neigh->lru);
        ovs_list_push_back(&t->lru, &neigh->lru);
        join_source(t, neigh, 0);
    }
    COVERAGE_INC(ipoib_neigh_evicted);
    remove__(t, victim, false);
}

/* 'old' was taken for dead, and 'neigh' for what it has become: gives all that
 * was known of 'old' to 'neigh', and removes it. */
static void
absorb(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
       struct ipoib_neigh *old, long long int now)
{
    struct ipoib_neigh_alias *alias;
    struct ipoib_neigh_ip *ip;

    /* From the oldest on, so that their order stays. */
    LIST_FOR_EACH_REVERSE_SAFE (ip, node, &old->ips) {
        take_ip(ip);
        give_ip(t, neigh, ip);
    }
    LIST_FOR_EACH_REVERSE_SAFE (alias, node, &old->aliases) {
        ovs_list_remove(&alias->node);
        ovs_list_push_front(&neigh->aliases, &alias->node);
        alias->neigh = neigh;
        ipoib_table_insert(t->alias_macs, mac_key(alias->mac), neigh->slot);
    }
    add_alias(t, neigh, old->mac, ipoib_addr_qpn(&old->addr), now);
    limit_aliases(t, neigh);
    limit_ips(t, neigh);
    COVERAGE_INC(ipoib_neigh_reborn);
    remove__(t, old, true);
}

/* Learning. */

/* Learns that 'neigh' has the address 'addr', which '*ip' was for until now if
 * not NULL.  'reborn' says that its former neighbour is dead. */
static unsigned int
learn_ip(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
         struct ipoib_neigh_ip *ip, bool reborn, const struct in6_addr *addr,
         long long int now)
{
    unsigned int changes = 0;

    if (reborn) {
        absorb(t, neigh, ip->neigh, now);
        changes = IPOIB_NEIGH_REBORN;
        ip = find_ip(t, addr);
    } else if (ip && ip->neigh != neigh) {
        COVERAGE_INC(ipoib_neigh_moved_ip);
        changes = IPOIB_NEIGH_MOVED_IP;
    }

    if (ip) {
        take_ip(ip);
    } else {
        ip = new_ip(t, addr);
        changes |= IPOIB_NEIGH_NEW_IP;
    }
    give_ip(t, neigh, ip);
    ip->seen = now;
    limit_ips(t, neigh);
    return changes;
}

/* Adopts the GID prefix of 'gid'; returns true if it is another one. */
static bool
set_prefix(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
           const struct ib_gid *gid)
{
    if (ib_gid_equals(&neigh->addr.gid, gid)) {
        return false;
    }
    neigh->addr.gid = *gid;

    /* Readers may look at it: one store. */
    BUILD_ASSERT(offsetof(struct ipoib_neigh_fast, gid) % 8 == 0);
    ATOMIC(uint64_t) *prefix = (void *) &ipoib_neigh_fast(t, neigh->slot)->gid;
    uint64_t value;
    memcpy(&value, gid, sizeof value);
    atomic_store_relaxed(prefix, value);
    return true;
}

struct ipoib_neigh *
ipoib_neigh_learn(struct ipoib_neigh_table *t, const struct ipoib_addr *addr,
                  const struct in6_addr *ip_addr, uint16_t slid,
                  long long int now, unsigned int *changes)
{
    struct ipoib_neigh *neigh = ipoib_neigh_find(t, addr);
    struct ipoib_neigh_ip *ip = NULL;
    bool reborn = false;

    *changes = 0;
    if (ip_addr && !ipoib_ip_is_station(ip_addr)) {
        ip_addr = NULL;
    }
    if (ip_addr) {
        ipoib_table_prefetch(t->ips, ipoib_table_key_ip(ip_addr,
                                                        t->key_basis));
        ip = find_ip(t, ip_addr);
        reborn = (ip && ip->neigh != neigh
                  && same_guid(&ip->neigh->addr, addr)
                  && !has_more_of_family(ip));
    }

    if (!neigh) {
        neigh = create(t, addr, slid, now);
        if (!neigh) {
            return NULL;
        }
        *changes |= IPOIB_NEIGH_NEW;
    } else if (set_prefix(t, neigh, &addr->gid)
               || (slid && neigh->lid && slid != neigh->lid)) {
        *changes |= IPOIB_NEIGH_NEW_LID;
    }
    set_used(t, neigh, now);
    join_source(t, neigh, slid);
    if (slid && slid != neigh->lid) {
        set_lid(t, neigh, slid);
    }
    if (ip_addr) {
        *changes |= learn_ip(t, neigh, ip, reborn, ip_addr, now);
    }
    if (t->n > t->max) {
        evict(t, neigh);
    }
    return neigh;
}

void
ipoib_neigh_set_lid(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
                    uint16_t lid)
{
    if (lid && lid != neigh->lid) {
        set_lid(t, neigh, lid);
    }
}

void
ipoib_neigh_set_ah(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
                   struct ibv_ah *ah, uint16_t mtu)
{
    struct ipoib_neigh_fast *fast = ipoib_neigh_fast(t, neigh->slot);

    fast->mtu = mtu;
    atomic_store_explicit(&fast->ah, ah, memory_order_release);
}

void
ipoib_neigh_set_ahs(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
                    struct ipoib_neigh_ahs *ahs)
{
    atomic_store_explicit(&ipoib_neigh_fast(t, neigh->slot)->ahs, ahs,
                          memory_order_release);
}

/* Rounds. */

static void
age_aliases(struct ipoib_neigh_table *t, long long int now, size_t budget)
{
    while (budget-- && !ovs_list_is_empty(&t->aliases)) {
        struct ipoib_neigh_alias *alias
            = CONTAINER_OF(ovs_list_front(&t->aliases),
                           struct ipoib_neigh_alias, by_age);

        if (alias->until > now) {
            break;
        }
        delete_alias(t, alias);
    }
}

size_t
ipoib_neigh_age(struct ipoib_neigh_table *t, long long int now,
                long long int idle, size_t budget)
{
    uint32_t end = ipoib_slots_end(t->slots);
    size_t removed = 0;

    age_aliases(t, now, budget);
    for (budget = MIN(budget, end); budget; budget--) {
        if (t->age_pos >= end) {
            t->age_pos = 0;
        }

        /* Most have been used: a look at the fast part will do. */
        uint32_t slot = t->age_pos++, used;
        atomic_read_relaxed(&ipoib_neigh_fast(t, slot)->used, &used);
        if (now - used * 1000LL < idle) {
            continue;
        }

        struct ipoib_neigh *neigh = ipoib_neigh_of_slot(t, slot);
        if (neigh && now - ipoib_neigh_used(t, neigh) >= idle) {
            remove__(t, neigh, false);
            removed++;
        }
    }
    COVERAGE_ADD(ipoib_neigh_aged, removed);
    return removed;
}

bool
ipoib_neigh_walk(const struct ipoib_neigh_table *t, size_t *pos,
                 size_t budget, void (*cb)(struct ipoib_neigh *, void *aux),
                 void *aux)
{
    for (; budget && *pos < ipoib_slots_end(t->slots); budget--) {
        struct ipoib_neigh *neigh = ipoib_neigh_of_slot(t, (*pos)++);

        if (neigh) {
            cb(neigh, aux);
        }
    }
    return *pos < ipoib_slots_end(t->slots);
}

size_t
ipoib_neigh_flush(struct ipoib_neigh_table *t)
{
    size_t n = t->n;

    while (!ovs_list_is_empty(&t->lru)) {
        remove__(t, CONTAINER_OF(ovs_list_front(&t->lru),
                                 struct ipoib_neigh, lru), false);
    }
    return n;
}

/* The table. */

struct ipoib_neigh_table *
ipoib_neigh_table_create(uint16_t pkey, size_t max,
                         const struct ipoib_neigh_ops *ops, void *aux)
{
    struct ipoib_neigh_table *t = xzalloc(sizeof *t);
    struct ipoib_neigh_fast *nobody;

    t->pkey = pkey;
    t->ops = ops;
    t->aux = aux;
    t->slots = ipoib_slots_create(sizeof(struct ipoib_neigh));
    hmap_init(&t->by_ip);
    ovs_list_init(&t->lru);
    hmap_init(&t->sources);
    hmap_init(&t->shared_lids);
    ovs_list_init(&t->aliases);
    t->hash_basis = random_uint32();
    t->key_basis = (uint64_t) random_uint32() << 32 | random_uint32();
    t->macs = ipoib_index_create(0);
    t->alias_macs = ipoib_table_create(0);
    t->gids = ipoib_index_create(0);
    t->lids = ipoib_index_create(0);
    t->ips = ipoib_table_create(0);
    nobody = ALIGNED_CAST(struct ipoib_neigh_fast *,
                          ipoib_slots_lines(t->slots));
    nobody->mac = NOBODY_KEY;
    atomic_init(&nobody->lid_key, NOBODY_KEY);
    ipoib_neigh_table_set_max(t, max);
    return t;
}

void
ipoib_neigh_table_destroy(struct ipoib_neigh_table *t)
{
    if (t) {
        ipoib_neigh_flush(t);
        hmap_destroy(&t->by_ip);
        hmap_destroy(&t->sources);
        hmap_destroy(&t->shared_lids);
        ipoib_index_destroy(t->macs);
        ipoib_table_destroy(t->alias_macs);
        ipoib_index_destroy(t->gids);
        ipoib_index_destroy(t->lids);
        ipoib_table_destroy(t->ips);
        for (size_t i = 0; i < ARRAY_SIZE(t->lid_pages); i++) {
            struct lid *page;

            atomic_read_relaxed(&t->lid_pages[i], &page);
            free(page);
        }
        ipoib_slots_destroy(t->slots);
        free(t);
    }
}

void
ipoib_neigh_table_set_share(struct ipoib_neigh_table *t, uint64_t guid)
{
    t->share_guid = guid;
}

void
ipoib_neigh_table_set_max(struct ipoib_neigh_table *t, size_t max)
{
    t->max = MIN(MAX(max, 1), MAX_NEIGHS);
    while (t->n > t->max) {
        evict(t, NULL);
    }
}

size_t
ipoib_neigh_table_count(const struct ipoib_neigh_table *t)
{
    return t->n;
}
