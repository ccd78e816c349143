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
#include "ipoib-host.h"

#include <string.h>

#include "coverage.h"
#include "hash.h"
#include "ipoib-slots.h"
#include "random.h"

COVERAGE_DEFINE(ipoib_host_new);
COVERAGE_DEFINE(ipoib_host_evicted);
COVERAGE_DEFINE(ipoib_host_aged);
COVERAGE_DEFINE(ipoib_host_moved_ip);
COVERAGE_DEFINE(ipoib_host_key_collision);

/* What a table in use may hold: as many slots may wait for a grace period. */
#define MAX_HOSTS (IPOIB_SLOTS_MAX / 2)

/* When the table is full, a source keeps this part of it. */
#define SOURCE_SHARE 8

/* The hosts of one source. */
struct source {
    struct hmap_node node;      /* In ipoib_host_table. */
    uint32_t id;
    size_t n;
    struct ovs_list hosts;      /* Of ipoib_host, the longest silent first. */
};

struct ipoib_host_table {
    size_t max;
    size_t n;
    const struct ipoib_host_ops *ops;
    void *aux;
    struct ipoib_slots *slots;  /* Of ipoib_host_fast and ipoib_host. */

    /* Writer's. */
    struct hmap by_mac;         /* Of ipoib_host, by MAC and VLAN. */
    struct hmap by_ip;          /* Of ipoib_host_ip. */
    struct ovs_list lru;        /* Of ipoib_host, the longest silent first. */
    struct hmap sources;        /* Of struct source. */
    uint32_t source;            /* Of what is learned. */
    uint32_t hash_basis;
    uint32_t age_pos;           /* Slot that ipoib_host_age() is at. */

    /* Readers'. */
    uint64_t key_basis;
    struct ipoib_table *qpns;   /* QPNs that belong to a single host. */
    struct ipoib_table *ips;    /* ipoib_table_key_ip(). */
};

static uint32_t
hash_ip(const struct ipoib_host_table *t, const struct in6_addr *ip)
{
    return hash_bytes(ip, sizeof *ip, t->hash_basis);
}

/* Look-ups. */

struct ipoib_host *
ipoib_host_of_slot(const struct ipoib_host_table *t, uint32_t slot)
{
    return ipoib_slots_get(t->slots, slot);
}

struct ipoib_host_fast *
ipoib_host_fast(const struct ipoib_host_table *t, uint32_t slot)
{
    return ipoib_slots_fast(t->slots, slot);
}

struct ipoib_host *
ipoib_host_find(const struct ipoib_host_table *t, struct eth_addr mac,
                uint16_t vlan)
{
    struct ipoib_host *host;

    HMAP_FOR_EACH_WITH_HASH (host, by_mac,
                             hash_mac(mac, vlan, t->hash_basis), &t->by_mac) {
        if (eth_addr_equals(host->mac, mac) && host->vlan == vlan) {
            return host;
        }
    }
    return NULL;
}

static struct ipoib_host_ip *
find_ip(const struct ipoib_host_table *t, const struct in6_addr *addr)
{
    struct ipoib_host_ip *ip;

    HMAP_FOR_EACH_WITH_HASH (ip, by_ip, hash_ip(t, addr), &t->by_ip) {
        if (ipv6_addr_equals(&ip->ip, addr)) {
            return ip;
        }
    }
    return NULL;
}

struct ipoib_host *
ipoib_host_find_ip(const struct ipoib_host_table *t,
                   const struct in6_addr *addr)
{
    struct ipoib_host_ip *ip = find_ip(t, addr);

    return ip ? ip->host : NULL;
}

void
ipoib_host_by_qpn(const struct ipoib_host_table *t, const uint64_t qpns[],
                  size_t n, uint32_t slots[])
{
    ipoib_table_lookup_batch(t->qpns, qpns, n, slots);
}

uint32_t
ipoib_host_by_ip(const struct ipoib_host_table *t, const struct in6_addr *ip)
{
    return ipoib_table_lookup(t->ips, ipoib_table_key_ip(ip, t->key_basis));
}

/* IP addresses. */

static void
delete_ip(struct ipoib_host_table *t, struct ipoib_host_ip *ip)
{
    ovs_list_remove(&ip->node);
    ip->host->n_ips--;
    if (ip->published) {
        ipoib_table_remove(t->ips, ipoib_table_key_ip(&ip->ip, t->key_basis));
    }
    hmap_remove(&t->by_ip, &ip->by_ip);
    free(ip);
}

void
ipoib_host_forget_ip(struct ipoib_host_table *t, const struct in6_addr *addr)
{
    struct ipoib_host_ip *ip = find_ip(t, addr);

    if (ip) {
        delete_ip(t, ip);
    }
}

static struct ipoib_host_ip *
new_ip(struct ipoib_host_table *t, const struct in6_addr *addr)
{
    struct ipoib_host_ip *ip = xmalloc(sizeof *ip);
    uint64_t key = ipoib_table_key_ip(addr, t->key_basis);

    ip->host = NULL;
    ip->ip = *addr;
    hmap_insert(&t->by_ip, &ip->by_ip, hash_ip(t, addr));

    /* Two IPv6 addresses with the same key: readers find one of them. */
    ip->published = ipoib_table_lookup(t->ips, key) == IPOIB_SLOT_NONE;
    if (!ip->published) {
        COVERAGE_INC(ipoib_host_key_collision);
    }
    return ip;
}

static unsigned int
learn_ip(struct ipoib_host_table *t, struct ipoib_host *host,
         const struct in6_addr *addr, long long int now)
{
    struct ipoib_host_ip *ip = find_ip(t, addr);
    unsigned int changes = 0;

    if (!ip) {
        ip = new_ip(t, addr);
        changes = IPOIB_HOST_NEW_IP;
    } else {
        if (ip->host != host) {
            COVERAGE_INC(ipoib_host_moved_ip);
            changes = IPOIB_HOST_MOVED_IP;
        }
        ovs_list_remove(&ip->node);
        ip->host->n_ips--;
    }
    ip->host = host;
    ip->seen = now;
    ovs_list_push_front(&host->ips, &ip->node);
    if (changes && ip->published) {
        ipoib_table_insert(t->ips, ipoib_table_key_ip(addr, t->key_basis),
                           host->slot);
    }
    if (++host->n_ips > IPOIB_HOST_MAX_IPS) {
        delete_ip(t, CONTAINER_OF(ovs_list_back(&host->ips),
                                  struct ipoib_host_ip, node));
    }
    return changes;
}

/* Sources. */

static struct source *
find_source(const struct ipoib_host_table *t, uint32_t id)
{
    struct source *source;

    HMAP_FOR_EACH_WITH_HASH (source, node, hash_int(id, t->hash_basis),
                             &t->sources) {
        if (source->id == id) {
            return source;
        }
    }
    return NULL;
}

static void
join_source(struct ipoib_host_table *t, struct ipoib_host *host)
{
    struct source *source = find_source(t, t->source);

    if (!source) {
        source = xmalloc(sizeof *source);
        source->id = t->source;
        source->n = 0;
        ovs_list_init(&source->hosts);
        hmap_insert(&t->sources, &source->node,
                    hash_int(source->id, t->hash_basis));
    }
    host->source = source->id;
    source->n++;
    ovs_list_push_back(&source->hosts, &host->by_source);
}

static void
leave_source(struct ipoib_host_table *t, struct ipoib_host *host)
{
    struct source *source = find_source(t, host->source);

    ovs_list_remove(&host->by_source);
    if (!--source->n) {
        hmap_remove(&t->sources, &source->node);
        free(source);
    }
}

void
ipoib_host_set_source(struct ipoib_host_table *t, uint32_t source)
{
    t->source = source;
}

/* The host that goes when 'keep' is one too many. */
static struct ipoib_host *
choose_victim(struct ipoib_host_table *t, const struct ipoib_host *keep)
{
    struct source *source = find_source(t, keep->source);

    if (source->n > 1 && source->n > t->max / SOURCE_SHARE) {
        return CONTAINER_OF(ovs_list_front(&source->hosts),
                            struct ipoib_host, by_source);
    }
    return CONTAINER_OF(ovs_list_front(&t->lru), struct ipoib_host, lru);
}

/* Making and removing. */

static struct ipoib_host *
create(struct ipoib_host_table *t, struct eth_addr mac, uint16_t vlan,
       long long int now)
{
    uint32_t slot = ipoib_slots_alloc(t->slots);
    if (slot == IPOIB_SLOT_NONE) {
        return NULL;
    }

    struct ipoib_host *host = ipoib_host_of_slot(t, slot);
    struct ipoib_host_fast *fast = ipoib_host_fast(t, slot);

    host->slot = slot;
    host->mac = mac;
    host->vlan = vlan;
    host->created = now;
    ovs_list_init(&host->ips);
    hmap_insert(&t->by_mac, &host->by_mac,
                hash_mac(mac, vlan, t->hash_basis));
    ovs_list_push_back(&t->lru, &host->lru);
    join_source(t, host);
    t->n++;

    fast->mac = eth_addr_to_uint64(mac);
    fast->vlan = vlan;
    COVERAGE_INC(ipoib_host_new);
    return host;
}

/* Withdraws the QPN that is the host's own. */
static void
withdraw_qpn(struct ipoib_host_table *t, struct ipoib_host *host)
{
    if (host->qpn && !host->shares_qp
        && ipoib_table_lookup(t->qpns, host->qpn) == host->slot) {
        ipoib_table_remove(t->qpns, host->qpn);
    }
    host->qpn = 0;
    host->shares_qp = false;
}

void
ipoib_host_remove(struct ipoib_host_table *t, struct ipoib_host *host)
{
    struct ipoib_host_ip *ip;
    uint32_t qpn = host->qpn;
    bool shares_qp = host->shares_qp;

    LIST_FOR_EACH_SAFE (ip, node, &host->ips) {
        delete_ip(t, ip);
    }
    withdraw_qpn(t, host);
    hmap_remove(&t->by_mac, &host->by_mac);
    ovs_list_remove(&host->lru);
    leave_source(t, host);
    t->n--;

    if (t->ops && t->ops->removed) {
        host->qpn = qpn;        /* The owner may want to know. */
        host->shares_qp = shares_qp;
        t->ops->removed(t->aux, host);
    }
    ipoib_slots_free(t->slots, host->slot);
}

struct ipoib_host *
ipoib_host_learn(struct ipoib_host_table *t, struct eth_addr mac,
                 uint16_t vlan, const struct in6_addr *ip, long long int now,
                 unsigned int *changes)
{
    struct ipoib_host *host = ipoib_host_find(t, mac, vlan);

    *changes = 0;
    if (!host) {
        host = create(t, mac, vlan, now);
        if (!host) {
            return NULL;
        }
        *changes |= IPOIB_HOST_NEW;
    }
    host->heard = now;
    ovs_list_remove(&host->lru);
    ovs_list_push_back(&t->lru, &host->lru);
    leave_source(t, host);
    join_source(t, host);
    if (ip && ipoib_ip_is_station(ip)) {
        *changes |= learn_ip(t, host, ip, now);
    }
    if (t->n > t->max) {
        COVERAGE_INC(ipoib_host_evicted);
        ipoib_host_remove(t, choose_victim(t, host));
    }
    return host;
}

void
ipoib_host_set_qpn(struct ipoib_host_table *t, struct ipoib_host *host,
                   uint32_t qpn, bool shares)
{
    if (host->qpn != qpn || host->shares_qp != shares) {
        withdraw_qpn(t, host);
        host->qpn = qpn;
        host->shares_qp = qpn && shares;
    }
    if (qpn && !shares) {
        ipoib_table_insert(t->qpns, qpn, host->slot);
    }
}

void
ipoib_host_add_qpn(struct ipoib_host_table *t, struct ipoib_host *host,
                   uint32_t qpn)
{
    ipoib_table_insert(t->qpns, qpn, host->slot);
}

void
ipoib_host_del_qpn(struct ipoib_host_table *t, struct ipoib_host *host,
                   uint32_t qpn)
{
    if (ipoib_table_lookup(t->qpns, qpn) == host->slot) {
        ipoib_table_remove(t->qpns, qpn);
    }
}

void
ipoib_host_set_router(struct ipoib_host_table *t, struct ipoib_host *host,
                      bool is_router)
{
    host->is_router = is_router;
    ipoib_host_fast(t, host->slot)->is_router = ipoib_host_routes(host);
}

void
ipoib_host_set_forwards(struct ipoib_host_table *t, struct ipoib_host *host)
{
    host->forwards = true;
    ipoib_host_fast(t, host->slot)->is_router = true;
}

/* Rounds. */

/* When the host was last sent anything, or heard. */
static long long int
host_used(const struct ipoib_host_table *t, const struct ipoib_host *host)
{
    uint32_t used;

    atomic_read_relaxed(&ipoib_host_fast(t, host->slot)->used, &used);
    return MAX(host->heard, used * 1000LL);
}

size_t
ipoib_host_age(struct ipoib_host_table *t, long long int now,
               long long int idle, size_t budget)
{
    uint32_t end = ipoib_slots_end(t->slots);
    size_t removed = 0;

    for (budget = MIN(budget, end); budget; budget--) {
        if (t->age_pos >= end) {
            t->age_pos = 0;
        }

        struct ipoib_host *host = ipoib_host_of_slot(t, t->age_pos++);
        if (host && now - host_used(t, host) >= idle) {
            ipoib_host_remove(t, host);
            removed++;
        }
    }
    COVERAGE_ADD(ipoib_host_aged, removed);
    return removed;
}

bool
ipoib_host_walk(const struct ipoib_host_table *t, size_t *pos, size_t budget,
                void (*cb)(struct ipoib_host *, void *aux), void *aux)
{
    for (; budget && *pos < ipoib_slots_end(t->slots); budget--) {
        struct ipoib_host *host = ipoib_host_of_slot(t, (*pos)++);

        if (host) {
            cb(host, aux);
        }
    }
    return *pos < ipoib_slots_end(t->slots);
}

size_t
ipoib_host_flush(struct ipoib_host_table *t)
{
    size_t n = t->n;

    while (!ovs_list_is_empty(&t->lru)) {
        ipoib_host_remove(t, CONTAINER_OF(ovs_list_front(&t->lru),
                                          struct ipoib_host, lru));
    }
    return n;
}

/* The table. */

struct ipoib_host_table *
ipoib_host_table_create(size_t max, const struct ipoib_host_ops *ops,
                        void *aux)
{
    struct ipoib_host_table *t = xzalloc(sizeof *t);

    t->max = MIN(MAX(max, 1), MAX_HOSTS);
    t->ops = ops;
    t->aux = aux;
    t->slots = ipoib_slots_create(sizeof(struct ipoib_host));
    hmap_init(&t->by_mac);
    hmap_init(&t->by_ip);
    ovs_list_init(&t->lru);
    hmap_init(&t->sources);
    t->hash_basis = random_uint32();
    t->key_basis = (uint64_t) random_uint32() << 32 | random_uint32();
    t->qpns = ipoib_table_create(0);
    t->ips = ipoib_table_create(0);
    return t;
}

void
ipoib_host_table_destroy(struct ipoib_host_table *t)
{
    if (t) {
        ipoib_host_flush(t);
        hmap_destroy(&t->by_mac);
        hmap_destroy(&t->by_ip);
        hmap_destroy(&t->sources);
        ipoib_table_destroy(t->qpns);
        ipoib_table_destroy(t->ips);
        ipoib_slots_destroy(t->slots);
        free(t);
    }
}

size_t
ipoib_host_table_count(const struct ipoib_host_table *t)
{
    return t->n;
}
