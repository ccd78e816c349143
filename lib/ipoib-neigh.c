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
#include "hash.h"
#include "ipoib-neigh-table.h"
#include "ipoib-peer.h"
#include "ipoib-table.h"
#include "random.h"
#include "unaligned.h"

COVERAGE_DEFINE(ipoib_neigh_new);
COVERAGE_DEFINE(ipoib_neigh_evicted);
COVERAGE_DEFINE(ipoib_neigh_aged);
COVERAGE_DEFINE(ipoib_neigh_reborn);
COVERAGE_DEFINE(ipoib_neigh_moved_ip);
COVERAGE_DEFINE(ipoib_neigh_mac_collision);

/* What a table in use may hold: as many slots may wait for a grace period. */
#define MAX_NEIGHS (IPOIB_SLOTS_MAX / 2)

/* Neighbours that evict() looks at before it takes one that was used. */
#define EVICT_TRIES 64

/* Key that nobody looks for, of the line that is no neighbour's. */
#define NOBODY_KEY (IPOIB_NEIGH_NO_KEY - 1)

/* When the table is full, a source keeps this part of it. */
#define SOURCE_SHARE 8

/* 'used' of a neighbour that is gone. */
#define USED_NEVER UINT32_MAX

static bool
same_guid(const struct ipoib_addr *a, const struct ipoib_addr *b)
{
    return ib_gid_guid(&a->gid) == ib_gid_guid(&b->gid);
}

bool
ipoib_neigh_was_forgotten(const struct ipoib_neigh_table *t,
                          struct eth_addr mac_)
{
    uint64_t mac = eth_addr_to_uint64(mac_);

    return (mac && t->forgotten
            && t->forgotten[mac % N_FORGOTTEN] == mac);
}

/* Stand-in MACs and aliases.  A MAC is that of one neighbour, or one alias. */

static void
delete_alias(struct ipoib_neigh_table *t, struct ipoib_neigh_alias *alias)
{
    ipoib_table_remove(t->alias_macs, ipoib_neigh_mac_key(alias->mac));
    ovs_list_remove(&alias->node);
    ovs_list_remove(&alias->by_age);
    ipoib_neigh_trim(alias->neigh);
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
    ovs_list_push_front(&ipoib_neigh_more(neigh)->aliases, &alias->node);
    ovs_list_push_back(&t->aliases, &alias->by_age);
    ipoib_table_insert(t->alias_macs, ipoib_neigh_mac_key(mac), neigh->slot);
}

static void
limit_aliases(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh)
{
    while (ovs_list_size(&neigh->more->aliases) > IPOIB_NEIGH_MAX_ALIASES) {
        delete_alias(t, CONTAINER_OF(ovs_list_back(&neigh->more->aliases),
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

    if (owner->more && same_guid(&owner->addr, addr)) {
        LIST_FOR_EACH (alias, node, &owner->more->aliases) {
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
        key = ipoib_neigh_mac_key(mac);
        if (ipoib_neigh_find_own_mac(t, key) == IPOIB_SLOT_NONE) {
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

/* Lists. */

void
ipoib_neigh_list_push_back(struct ipoib_neigh_table *t,
                           struct ipoib_neigh_list *list,
                           enum ipoib_neigh_order order,
                           struct ipoib_neigh *neigh)
{
    neigh->links[order].prev = list->last;
    neigh->links[order].next = IPOIB_SLOT_NONE;
    if (list->last == IPOIB_SLOT_NONE) {
        list->first = neigh->slot;
    } else {
        ipoib_neigh_of_slot(t, list->last)->links[order].next = neigh->slot;
    }
    list->last = neigh->slot;
}

void
ipoib_neigh_list_remove(struct ipoib_neigh_table *t,
                        struct ipoib_neigh_list *list,
                        enum ipoib_neigh_order order,
                        struct ipoib_neigh *neigh)
{
    uint32_t prev = neigh->links[order].prev;
    uint32_t next = neigh->links[order].next;

    if (prev == IPOIB_SLOT_NONE) {
        list->first = next;
    } else {
        ipoib_neigh_of_slot(t, prev)->links[order].next = next;
    }
    if (next == IPOIB_SLOT_NONE) {
        list->last = prev;
    } else {
        ipoib_neigh_of_slot(t, next)->links[order].prev = prev;
    }
}

/* Makes 'neigh' the last one. */
static void
move_to_back(struct ipoib_neigh_table *t, struct ipoib_neigh_list *list,
             enum ipoib_neigh_order order, struct ipoib_neigh *neigh)
{
    if (list->last != neigh->slot) {
        ipoib_neigh_list_remove(t, list, order, neigh);
        ipoib_neigh_list_push_back(t, list, order, neigh);
    }
}

/* Sources. */

static void
leave_source(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh)
{
    struct source *source = neigh->source;

    ipoib_neigh_list_remove(t, &source->neighs, IPOIB_NEIGH_BY_SOURCE, neigh);
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
        move_to_back(t, &source->neighs, IPOIB_NEIGH_BY_SOURCE, neigh);
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
        ipoib_neigh_list_init(&source->neighs);
        hmap_insert(&t->sources, &source->node, hash);
    }
    source->n++;
    ipoib_neigh_list_push_back(t, &source->neighs, IPOIB_NEIGH_BY_SOURCE,
                               neigh);
    neigh->source = source;
}

/* Making and removing. */

static void
set_used(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
         long long int now)
{
    neigh->confirmed = neigh->queued = now / 1000;
    move_to_back(t, &t->lru, IPOIB_NEIGH_LRU, neigh);
    ipoib_neigh_mark_used(ipoib_neigh_fast(t, neigh->slot), now / 1000);
}

static struct ipoib_neigh *
create(struct ipoib_neigh_table *t, const struct ipoib_addr *addr,
       uint16_t lid)
{
    uint32_t slot = ipoib_slots_alloc(t->slots);
    if (slot == IPOIB_SLOT_NONE) {
        return NULL;
    }

    /* The indexes are in memory here and there: all fetch at a time. */
    struct eth_addr mac = standin_mac(t, addr, 0);
    uint64_t key = ipoib_neigh_gid_key(t, &addr->gid, ipoib_addr_qpn(addr));
    ipoib_index_prefetch(t->macs, ipoib_neigh_mac_key(mac));
    ipoib_index_prefetch(t->gids, key);
    ipoib_index_prefetch(t->lids, ipoib_neigh_lid_key(lid,
                                                      ipoib_addr_qpn(addr)));

    struct ipoib_neigh *neigh = ipoib_neigh_of_slot(t, slot);
    struct ipoib_neigh_fast *fast = ipoib_neigh_fast(t, slot);
    uint32_t qpn = ipoib_addr_qpn(addr);

    neigh->slot = slot;
    neigh->addr = ipoib_addr_make(qpn, &addr->gid);
    ipoib_neigh_list_push_back(t, &t->lru, IPOIB_NEIGH_LRU, neigh);
    t->n++;

    fast->gid = addr->gid;
    fast->qpn = qpn;
    assign_mac(t, neigh, mac);
    ipoib_index_insert(t->gids, key, slot);
    COVERAGE_INC(ipoib_neigh_new);
    return neigh;
}

static void
forget_mac(struct ipoib_neigh_table *t, struct eth_addr mac_)
{
    uint64_t mac = eth_addr_to_uint64(mac_);

    if (!t->forgotten) {
        t->forgotten = xcalloc(N_FORGOTTEN, sizeof *t->forgotten);
    }
    t->forgotten[mac % N_FORGOTTEN] = mac;
}

/* Removes 'neigh'.  If 'reborn' is true, its MAC is an alias of another one
 * from now on. */
static void
remove__(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh, bool reborn)
{
    ipoib_neigh_remove_ips(t, neigh);
    while (neigh->more && !ovs_list_is_empty(&neigh->more->aliases)) {
        delete_alias(t, CONTAINER_OF(ovs_list_front(&neigh->more->aliases),
                                     struct ipoib_neigh_alias, node));
    }
    if (!reborn) {
        forget_mac(t, neigh->mac);
    }
    ipoib_index_remove(t->macs, ipoib_neigh_mac_key(neigh->mac), neigh->slot);
    ipoib_index_remove(t->gids,
                       ipoib_neigh_gid_key(t, &neigh->addr.gid,
                                           ipoib_addr_qpn(&neigh->addr)),
                       neigh->slot);
    ipoib_neigh_change_lid(t, neigh, 0);
    ipoib_neigh_list_remove(t, &t->lru, IPOIB_NEIGH_LRU, neigh);
    leave_source(t, neigh);
    t->n--;

    if (t->ops && t->ops->removed) {
        t->ops->removed(t->aux, neigh);
    }
    if (neigh->more) {
        free(neigh->more->ips);
        free(neigh->more);
    }
    atomic_store_relaxed(&ipoib_neigh_fast(t, neigh->slot)->used, USED_NEVER);
    ipoib_slots_free(t->slots, neigh->slot);
}

void
ipoib_neigh_remove(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh)
{
    remove__(t, neigh, false);
}

/* Second of the last packet, or ARP or ND. */
static uint32_t
used_at(const struct ipoib_neigh_table *t, const struct ipoib_neigh *neigh)
{
    uint32_t used;

    atomic_read_relaxed(&ipoib_neigh_fast(t, neigh->slot)->used, &used);
    return MAX(neigh->confirmed, used);
}

long long int
ipoib_neigh_used(const struct ipoib_neigh_table *t,
                 const struct ipoib_neigh *neigh)
{
    return used_at(t, neigh) * 1000LL;
}

static struct ipoib_neigh *
oldest(struct ipoib_neigh_table *t, struct source *source)
{
    return ipoib_neigh_of_slot(t, (source ? source->neighs.first
                                   : t->lru.first));
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
    uint32_t victim_used = 0;

    if (source && (source->n < 2 || source->n <= t->max / SOURCE_SHARE)) {
        source = NULL;
    }
    for (int i = 0; i < EVICT_TRIES; i++) {
        struct ipoib_neigh *neigh = oldest(t, source);
        uint32_t used = used_at(t, neigh);

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
        move_to_back(t, &t->lru, IPOIB_NEIGH_LRU, neigh);
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

    ipoib_neigh_give_ips(t, neigh, old);
    if (old->more) {
        /* From the oldest on, so that their order stays. */
        LIST_FOR_EACH_REVERSE_SAFE (alias, node, &old->more->aliases) {
            ovs_list_remove(&alias->node);
            ovs_list_push_front(&ipoib_neigh_more(neigh)->aliases,
                                &alias->node);
            alias->neigh = neigh;
            ipoib_table_insert(t->alias_macs, ipoib_neigh_mac_key(alias->mac),
                               neigh->slot);
        }
    }
    add_alias(t, neigh, old->mac, ipoib_addr_qpn(&old->addr), now);
    limit_aliases(t, neigh);
    COVERAGE_INC(ipoib_neigh_reborn);
    remove__(t, old, true);
}

/* Learning. */

/* Is there another address of the family of 'ip', which 'neigh' has? */
static bool
has_more_of_family(const struct ipoib_neigh *neigh, const struct in6_addr *ip)
{
    bool v4 = IN6_IS_ADDR_V4MAPPED(ip);

    for (size_t i = 0; i < ipoib_neigh_n_ips(neigh); i++) {
        const struct in6_addr *other = ipoib_neigh_ip(neigh, i);

        if (!ipv6_addr_equals(other, ip)
            && !!IN6_IS_ADDR_V4MAPPED(other) == v4) {
            return true;
        }
    }
    return false;
}

/* Learns that 'neigh' has the address 'ip', which was that of 'owner' until
 * now if not NULL.  'reborn' says that 'owner' is dead. */
static unsigned int
learn_ip(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
         struct ipoib_neigh *owner, bool reborn, const struct in6_addr *ip,
         long long int now)
{
    unsigned int changes = 0;

    if (reborn) {
        absorb(t, neigh, owner, now);
        changes = IPOIB_NEIGH_REBORN;
        owner = ipoib_neigh_find_ip(t, ip);
    } else if (owner && owner != neigh) {
        COVERAGE_INC(ipoib_neigh_moved_ip);
        changes = IPOIB_NEIGH_MOVED_IP;
    }
    if (!owner) {
        changes |= IPOIB_NEIGH_NEW_IP;
    }
    ipoib_neigh_give_ip(t, neigh, owner, ip);
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
                  const struct in6_addr *ip, uint16_t slid,
                  long long int now, unsigned int *changes)
{
    struct ipoib_neigh *neigh, *owner = NULL;
    bool reborn = false;

    *changes = 0;
    if (ip && !ipoib_ip_is_station(ip)) {
        ip = NULL;
    }
    if (ip) {
        ipoib_table_prefetch(t->ips, ipoib_table_key_ip(ip, t->key_basis));
    }
    neigh = ipoib_neigh_find(t, addr);
    if (ip) {
        owner = ipoib_neigh_find_ip(t, ip);
        reborn = (owner && owner != neigh && same_guid(&owner->addr, addr)
                  && !has_more_of_family(owner, ip));
    }

    if (!neigh) {
        neigh = create(t, addr, slid);
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
        ipoib_neigh_change_lid(t, neigh, slid);
    }
    if (ip) {
        *changes |= learn_ip(t, neigh, owner, reborn, ip, now);
    }
    if (t->n > t->max) {
        evict(t, neigh);
    }
    return neigh;
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

static bool
is_idle(uint32_t used, long long int now, long long int idle)
{
    return used != USED_NEVER && now - used * 1000LL >= idle;
}

/* Removes 'slot' if it has not been used for 'idle' ms; keeps in mind for its
 * chunk what was seen. */
static bool
age_slot(struct ipoib_neigh_table *t, uint32_t slot, long long int now,
         long long int idle)
{
    uint32_t used;

    atomic_read_relaxed(&ipoib_neigh_fast(t, slot)->used, &used);
    if (is_idle(used, now, idle)) {
        struct ipoib_neigh *neigh = ipoib_neigh_of_slot(t, slot);

        if (!neigh) {
            /* A reader was late: it has gone.  Later passes need not look. */
            atomic_store_relaxed(&ipoib_neigh_fast(t, slot)->used, USED_NEVER);
            return false;
        }
        used = used_at(t, neigh);
        if (is_idle(used, now, idle)) {
            remove__(t, neigh, false);
            return true;
        }
    }
    t->age_oldest = MIN(t->age_oldest, used);
    return false;
}

/* The least 'used' of 'n' slots from 'slot' on.  There is nothing else in the
 * loop, so that it is as fast as memory is. */
static uint32_t
least_used(const struct ipoib_neigh_table *t, uint32_t slot, size_t n)
{
    struct ipoib_neigh_fast *fast = ipoib_neigh_fast(t, slot);
    uint32_t least = USED_NEVER;

    for (size_t i = 0; i < n; i++) {
        uint32_t used;

        atomic_read_relaxed(&fast[i].used, &used);
        least = MIN(least, used);
    }
    return least;
}

/* age_slot() for 'n' slots of a chunk, from 'age_pos' on.  Returns how many
 * went. */
static size_t
age_slots(struct ipoib_neigh_table *t, size_t n, long long int now,
          long long int idle)
{
    uint32_t least = least_used(t, t->age_pos, n);
    uint32_t end = t->age_pos + n;
    size_t removed = 0;

    if (is_idle(least, now, idle)) {
        while (t->age_pos < end) {
            removed += age_slot(t, t->age_pos++, now, idle);
        }
    } else {
        t->age_oldest = MIN(t->age_oldest, least);
        t->age_pos = end;
    }
    if (end % IPOIB_SLOTS_CHUNK == 0) {
        t->oldest[end / IPOIB_SLOTS_CHUNK - 1] = t->age_oldest;
    }
    return removed;
}

/* 'age_pos' is at the beginning of a chunk.  Returns true if there may be a
 * neighbour in it that has not been used for 'idle' ms. */
static bool
chunk_may_be_old(struct ipoib_neigh_table *t, long long int now,
                 long long int idle)
{
    size_t chunk = t->age_pos / IPOIB_SLOTS_CHUNK;

    if (chunk == t->n_oldest) {
        if (t->n_oldest == t->allocated_oldest) {
            t->oldest = x2nrealloc(t->oldest, &t->allocated_oldest,
                                   sizeof *t->oldest);
        }
        t->oldest[t->n_oldest++] = 0;
    }
    t->age_oldest = now / 1000;
    return now - t->oldest[chunk] * 1000LL >= idle;
}

size_t
ipoib_neigh_age(struct ipoib_neigh_table *t, long long int now,
                long long int idle, size_t budget)
{
    uint32_t end = ipoib_slots_end(t->slots);
    size_t removed = 0;

    age_aliases(t, now, budget);
    budget = MIN(budget, end);
    while (budget) {
        if (t->age_pos >= end) {
            t->age_pos = 0;
        }

        uint32_t ofs = t->age_pos % IPOIB_SLOTS_CHUNK;
        size_t n = MIN(budget, IPOIB_SLOTS_CHUNK - ofs);
        if (!ofs && !chunk_may_be_old(t, now, idle)) {
            t->age_pos += IPOIB_SLOTS_CHUNK;
        } else {
            n = MIN(n, end - t->age_pos);
            removed += age_slots(t, n, now, idle);
        }
        budget -= n;
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

    while (!ipoib_neigh_list_is_empty(&t->lru)) {
        remove__(t, oldest(t, NULL), false);
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
    ipoib_neigh_list_init(&t->lru);
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
        hmap_destroy(&t->sources);
        ipoib_neigh_destroy_lids(t);
        ipoib_index_destroy(t->macs);
        ipoib_table_destroy(t->alias_macs);
        ipoib_index_destroy(t->gids);
        ipoib_index_destroy(t->lids);
        ipoib_table_destroy(t->ips);
        ipoib_slots_destroy(t->slots);
        free(t->oldest);
        free(t->forgotten);
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

static size_t
neigh_heap(const struct ipoib_neigh *neigh)
{
    const struct ipoib_neigh_more *more = neigh->more;

    return (!more ? 0
            : ipoib_neigh_heap(sizeof *more)
              + ipoib_neigh_heap(more->allocated_ips * sizeof *more->ips)
              + ovs_list_size(&more->aliases)
                * ipoib_neigh_heap(sizeof(struct ipoib_neigh_alias)));
}

void
ipoib_neigh_table_memory(const struct ipoib_neigh_table *t, size_t *fast,
                         size_t *all)
{
    size_t slow;

    ipoib_slots_memory(t->slots, fast, &slow);
    *fast += ipoib_index_memory(t->macs) + ipoib_index_memory(t->lids);
    *all = *fast + slow + sizeof *t + ipoib_index_memory(t->gids)
           + ipoib_table_memory(t->ips) + ipoib_table_memory(t->alias_macs)
           + ipoib_neigh_lids_memory(t)
           + hmap_count(&t->sources) * ipoib_neigh_heap(sizeof(struct source))
           + (t->sources.mask + 1) * sizeof *t->sources.buckets
           + t->allocated_oldest * sizeof *t->oldest
           + (t->forgotten ? N_FORGOTTEN * sizeof *t->forgotten : 0);
    for (uint32_t slot = 0; slot < ipoib_slots_end(t->slots); slot++) {
        const struct ipoib_neigh *neigh = ipoib_neigh_of_slot(t, slot);

        *all += neigh ? neigh_heap(neigh) : 0;
    }
}
