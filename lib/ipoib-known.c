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
#include "ipoib-known.h"

#include <string.h>
#include "hash.h"
#include "ipoib-wire.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"
#include "openvswitch/thread.h"
#include "ovs-atomic.h"
#include "ovs-thread.h"
#include "random.h"
#include "util.h"

/* As many as hosts of a port; what is beyond is not kept. */
#define MAX_KNOWN 65536

/* Of a port that is gone, in ms. */
#define KEEP (20 * 60 * 1000)

/* Between two searches for what can go, in ms. */
#define SEARCH_PAUSE 10000

/* A host as one port knows it. */
struct known_host {
    struct hmap_node node;      /* In 'known_hosts', by MAC. */
    struct ipoib_known *owner;  /* NULL: a port that is gone. */
    uint16_t pkey;
    struct eth_addr mac;
    long long int heard;
    size_t n_ips;
    struct in6_addr ips[IPOIB_KNOWN_MAX_IPS]; /* Latest first. */
};

/* A host that has left a port. */
struct known_leaver {
    struct ovs_list node;       /* In ipoib_known 'leavers'. */
    struct eth_addr mac;
    long long int when;
};

struct ipoib_known {
    uint16_t pkey;
    struct ovs_list leavers;    /* Of struct known_leaver. */
    atomic_bool has_leavers;
};

static struct ovs_mutex known_mutex = OVS_MUTEX_INITIALIZER;
static struct hmap known_hosts OVS_GUARDED_BY(known_mutex)
    = HMAP_INITIALIZER(&known_hosts);
static long long int next_search OVS_GUARDED_BY(known_mutex);

/* Nobody can choose MACs that are all in one place of the table. */
static uint32_t
known_hash(struct eth_addr mac)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    static uint32_t basis;

    if (ovsthread_once_start(&once)) {
        basis = random_uint32();
        ovsthread_once_done(&once);
    }
    return hash_mac(mac, 0, basis);
}

struct ipoib_known *
ipoib_known_create(uint16_t pkey)
{
    struct ipoib_known *known = xzalloc(sizeof *known);

    known->pkey = pkey & IB_PKEY_MASK;
    ovs_list_init(&known->leavers);
    atomic_init(&known->has_leavers, false);
    return known;
}

static struct known_host *
known_find(const struct ipoib_known *owner, struct eth_addr mac)
    OVS_REQUIRES(known_mutex)
{
    struct known_host *host;

    HMAP_FOR_EACH_WITH_HASH (host, node, known_hash(mac), &known_hosts) {
        if (eth_addr_equals(host->mac, mac) && host->owner == owner) {
            return host;
        }
    }
    return NULL;
}

/* What any other port of the same partition knows of 'mac'. */
static struct known_host *
known_find_other(const struct ipoib_known *known, struct eth_addr mac)
    OVS_REQUIRES(known_mutex)
{
    struct known_host *host;

    HMAP_FOR_EACH_WITH_HASH (host, node, known_hash(mac), &known_hosts) {
        if (eth_addr_equals(host->mac, mac) && host->owner != known
            && host->pkey == known->pkey) {
            return host;
        }
    }
    return NULL;
}

static void
known_remove(struct known_host *host)
    OVS_REQUIRES(known_mutex)
{
    hmap_remove(&known_hosts, &host->node);
    free(host);
}

/* The port of 'host' is gone, which is kept without an owner; there is one
 * such for a MAC. */
static void
known_disown(struct known_host *host)
    OVS_REQUIRES(known_mutex)
{
    struct known_host *old;

    HMAP_FOR_EACH_WITH_HASH (old, node, known_hash(host->mac),
                             &known_hosts) {
        if (!old->owner && eth_addr_equals(old->mac, host->mac)
            && old->pkey == host->pkey) {
            known_remove(old);
            break;
        }
    }
    host->owner = NULL;
}

void
ipoib_known_destroy(struct ipoib_known *known)
{
    struct known_leaver *leaver;
    struct known_host *host, **hosts;
    size_t n = 0;

    if (!known) {
        return;
    }
    ovs_mutex_lock(&known_mutex);
    hosts = xmalloc(hmap_count(&known_hosts) * sizeof *hosts);
    HMAP_FOR_EACH (host, node, &known_hosts) {
        if (host->owner == known) {
            hosts[n++] = host;
        }
    }
    while (n) {
        known_disown(hosts[--n]);
    }
    LIST_FOR_EACH_POP (leaver, node, &known->leavers) {
        free(leaver);
    }
    ovs_mutex_unlock(&known_mutex);
    free(hosts);
    free(known);
}

/* Makes room, if it was not tried just now: what ports that are gone knew long
 * ago goes. */
static bool
known_has_room(long long int now)
    OVS_REQUIRES(known_mutex)
{
    struct known_host *host;

    if (hmap_count(&known_hosts) < MAX_KNOWN) {
        return true;
    } else if (now < next_search) {
        return false;
    }
    next_search = now + SEARCH_PAUSE;
    HMAP_FOR_EACH_SAFE (host, node, &known_hosts) {
        if (!host->owner && now - host->heard >= KEEP) {
            known_remove(host);
        }
    }
    return hmap_count(&known_hosts) < MAX_KNOWN;
}

static void
host_drop_ip(struct known_host *host, const struct in6_addr *ip)
{
    for (size_t i = 0; i < host->n_ips; i++) {
        if (ipv6_addr_equals(&host->ips[i], ip)) {
            host->n_ips--;
            memmove(&host->ips[i], &host->ips[i + 1],
                    (host->n_ips - i) * sizeof *host->ips);
            return;
        }
    }
}

void
ipoib_known_add(struct ipoib_known *known, struct eth_addr mac,
                const struct in6_addr *ip, long long int now)
{
    struct known_host *host;

    ovs_mutex_lock(&known_mutex);
    host = known_find(known, mac);
    if (!host && known_has_room(now)) {
        host = xzalloc(sizeof *host);
        host->owner = known;
        host->pkey = known->pkey;
        host->mac = mac;
        hmap_insert(&known_hosts, &host->node, known_hash(mac));
    }
    if (host) {
        host->heard = now;
        host_drop_ip(host, ip);
        host->n_ips = MIN(host->n_ips, IPOIB_KNOWN_MAX_IPS - 1);
        memmove(&host->ips[1], &host->ips[0],
                host->n_ips * sizeof *host->ips);
        host->ips[0] = *ip;
        host->n_ips++;
    }
    ovs_mutex_unlock(&known_mutex);
}

void
ipoib_known_forget(struct ipoib_known *known, struct eth_addr mac,
                   const struct in6_addr *ip)
{
    struct known_host *host;

    ovs_mutex_lock(&known_mutex);
    host = known_find(known, mac);
    if (host) {
        if (ip) {
            host_drop_ip(host, ip);
        }
        if (!ip || !host->n_ips) {
            known_remove(host);
        }
    }
    ovs_mutex_unlock(&known_mutex);
}

static void
tell_owner(struct ipoib_known *owner, struct eth_addr mac, long long int now)
    OVS_REQUIRES(known_mutex)
{
    struct known_leaver *leaver = xmalloc(sizeof *leaver);

    leaver->mac = mac;
    leaver->when = now;
    ovs_list_push_back(&owner->leavers, &leaver->node);
    atomic_store_relaxed(&owner->has_leavers, true);
}

size_t
ipoib_known_take(struct ipoib_known *known, struct eth_addr mac,
                 long long int now, struct in6_addr ips[IPOIB_KNOWN_MAX_IPS])
{
    struct known_host *host, *latest = NULL;
    size_t n = 0;

    ovs_mutex_lock(&known_mutex);
    HMAP_FOR_EACH_WITH_HASH (host, node, known_hash(mac), &known_hosts) {
        if (eth_addr_equals(host->mac, mac) && host->pkey == known->pkey
            && host->owner != known
            && (host->owner || now - host->heard < KEEP)
            && (!latest || host->heard > latest->heard)) {
            latest = host;
        }
    }
    if (latest) {
        n = latest->n_ips;
        memcpy(ips, latest->ips, n * sizeof *ips);
    }
    while ((host = known_find_other(known, mac)) != NULL) {
        if (host->owner) {
            tell_owner(host->owner, mac, now);
        }
        known_remove(host);
    }
    ovs_mutex_unlock(&known_mutex);
    return n;
}

bool
ipoib_known_left(struct ipoib_known *known, struct eth_addr *mac,
                 long long int *when)
{
    bool has_leavers;

    atomic_read_relaxed(&known->has_leavers, &has_leavers);
    if (!has_leavers) {
        return false;
    }
    ovs_mutex_lock(&known_mutex);
    has_leavers = !ovs_list_is_empty(&known->leavers);
    if (has_leavers) {
        struct known_leaver *leaver
            = CONTAINER_OF(ovs_list_pop_front(&known->leavers),
                           struct known_leaver, node);

        *mac = leaver->mac;
        *when = leaver->when;
        free(leaver);
    } else {
        atomic_store_relaxed(&known->has_leavers, false);
    }
    ovs_mutex_unlock(&known_mutex);
    return has_leavers;
}

size_t
ipoib_known_count(void)
{
    size_t n;

    ovs_mutex_lock(&known_mutex);
    n = hmap_count(&known_hosts);
    ovs_mutex_unlock(&known_mutex);
    return n;
}
