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
#include "host-neigh.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "coverage.h"
#include "hash.h"
#include "openvswitch/poll-loop.h"
#include "packets.h"
#include "random.h"
#include "timeval.h"
#include "util.h"

COVERAGE_DEFINE(host_neigh_full);
COVERAGE_DEFINE(host_neigh_moved);

struct host_neigh_cache {
    struct hmap neighs;         /* struct host_neigh. */
    const struct host_neigh_ops *ops;
    void *aux;
    long long int next_run;     /* Earliest timer, or earlier. */
    long long int next_gc;
};

const char *
host_neigh_state_to_string(enum host_neigh_state state)
{
    switch (state) {
    case HOST_NEIGH_INCOMPLETE: return "incomplete";
    case HOST_NEIGH_REACHABLE: return "reachable";
    case HOST_NEIGH_STALE: return "stale";
    case HOST_NEIGH_DELAYED: return "delay";
    case HOST_NEIGH_PROBE: return "probe";
    case HOST_NEIGH_FAILED: return "failed";
    default: return "unknown";
    }
}

struct host_wait *
host_wait_create(const void *data, size_t len, const struct in6_addr *src)
{
    struct host_wait *wait = xmalloc(sizeof *wait + len);

    wait->src = *src;
    wait->id = 0;
    wait->qpn = 0;
    wait->len = len;
    memcpy(wait->data, data, len);
    return wait;
}

/* Destroys the packets of 'list' and returns how many there were. */
size_t
host_wait_destroy_all(struct ovs_list *list)
{
    struct host_wait *wait;
    size_t n = 0;

    LIST_FOR_EACH_POP (wait, node, list) {
        free(wait);
        n++;
    }
    return n;
}

struct host_neigh_cache *
host_neigh_cache_create(const struct host_neigh_ops *ops, void *aux)
{
    struct host_neigh_cache *cache = xzalloc(sizeof *cache);

    hmap_init(&cache->neighs);
    cache->ops = ops;
    cache->aux = aux;
    cache->next_run = LLONG_MAX;
    return cache;
}

static void
neigh_destroy(struct host_neigh_cache *cache, struct host_neigh *neigh)
{
    size_t n = host_wait_destroy_all(&neigh->wait);

    if (n) {
        cache->ops->dropped(cache->aux, neigh, n);
    }
    hmap_remove(&cache->neighs, &neigh->node);
    free(neigh);
}

void
host_neigh_flush(struct host_neigh_cache *cache)
{
    struct host_neigh *neigh;

    HMAP_FOR_EACH_SAFE (neigh, node, &cache->neighs) {
        neigh_destroy(cache, neigh);
    }
}

void
host_neigh_cache_destroy(struct host_neigh_cache *cache)
{
    if (cache) {
        host_neigh_flush(cache);
        hmap_destroy(&cache->neighs);
        free(cache);
    }
}

size_t
host_neigh_count(const struct host_neigh_cache *cache)
{
    return hmap_count(&cache->neighs);
}

static uint32_t
neigh_hash(const struct in6_addr *ip)
{
    return hash_bytes(ip, sizeof *ip, 0);
}

struct host_neigh *
host_neigh_find(const struct host_neigh_cache *cache,
                const struct in6_addr *ip)
{
    struct host_neigh *neigh;

    HMAP_FOR_EACH_WITH_HASH (neigh, node, neigh_hash(ip), &cache->neighs) {
        if (ipv6_addr_equals(&neigh->ip, ip)) {
            return neigh;
        }
    }
    return NULL;
}

static void
neigh_set_timer(struct host_neigh_cache *cache, struct host_neigh *neigh,
                long long int when)
{
    neigh->timer = when;
    cache->next_run = MIN(cache->next_run, when);
}

/* Makes room for one entry more by removing the one that was not used for the
 * longest time. */
static void
neigh_evict(struct host_neigh_cache *cache)
{
    struct host_neigh *oldest = NULL;
    struct host_neigh *neigh;

    COVERAGE_INC(host_neigh_full);
    HMAP_FOR_EACH (neigh, node, &cache->neighs) {
        if (!oldest || neigh->used < oldest->used) {
            oldest = neigh;
        }
    }
    if (oldest) {
        neigh_destroy(cache, oldest);
    }
}

static struct host_neigh *
neigh_create(struct host_neigh_cache *cache, const struct in6_addr *ip,
             long long int now)
{
    struct host_neigh *neigh;

    if (hmap_count(&cache->neighs) >= HOST_NEIGH_MAX) {
        neigh_evict(cache);
    }
    neigh = xzalloc(sizeof *neigh);
    neigh->ip = *ip;
    neigh->state = HOST_NEIGH_FAILED;
    neigh->timer = LLONG_MAX;
    neigh->used = neigh->updated = now;
    ovs_list_init(&neigh->wait);
    hmap_insert(&cache->neighs, &neigh->node, neigh_hash(ip));
    return neigh;
}

static void
neigh_solicit(struct host_neigh_cache *cache, struct host_neigh *neigh,
              enum host_neigh_state state, long long int now)
{
    neigh->state = state;
    neigh->n_tries++;
    neigh_set_timer(cache, neigh, now + HOST_NEIGH_RETRANS);
    cache->ops->solicit(cache->aux, neigh, state == HOST_NEIGH_PROBE);
}

struct host_neigh *
host_neigh_use(struct host_neigh_cache *cache, const struct in6_addr *ip,
               const struct in6_addr *src, long long int now)
{
    struct host_neigh *neigh = host_neigh_find(cache, ip);

    if (!neigh) {
        neigh = neigh_create(cache, ip, now);
    }
    neigh->used = now;
    neigh->asker = *src;
    switch (neigh->state) {
    case HOST_NEIGH_FAILED:
        if (neigh->timer == LLONG_MAX || now >= neigh->timer) {
            neigh->n_tries = 0;
            neigh_solicit(cache, neigh, HOST_NEIGH_INCOMPLETE, now);
        }
        break;
    case HOST_NEIGH_STALE:
        neigh->state = HOST_NEIGH_DELAYED;
        neigh_set_timer(cache, neigh, now + HOST_NEIGH_DELAY);
        break;
    case HOST_NEIGH_INCOMPLETE:
    case HOST_NEIGH_REACHABLE:
    case HOST_NEIGH_DELAYED:
    case HOST_NEIGH_PROBE:
        break;
    }
    return neigh;
}

size_t
host_neigh_queue(struct host_neigh *neigh, struct host_wait *wait)
{
    size_t n_dropped = 0;

    if (neigh->state == HOST_NEIGH_FAILED) {
        free(wait);
        return 1;
    }
    if (neigh->n_wait >= HOST_NEIGH_QUEUE) {
        free(CONTAINER_OF(ovs_list_pop_front(&neigh->wait), struct host_wait,
                          node));
        neigh->n_wait--;
        n_dropped = 1;
    }
    ovs_list_push_back(&neigh->wait, &wait->node);
    neigh->n_wait++;
    return n_dropped;
}

struct host_neigh *
host_neigh_update(struct host_neigh_cache *cache, const struct in6_addr *ip,
                  const struct host_neigh_news *news, long long int now)
{
    struct host_neigh *neigh = host_neigh_find(cache, ip);
    bool usable, same;

    if (!neigh) {
        if (!news->create) {
            return NULL;
        }
        neigh = neigh_create(cache, ip, now);
    }

    usable = host_neigh_is_usable(neigh);
    same = usable && ipoib_addr_equals(&neigh->addr, &news->addr);
    if (usable && !same && !news->override) {
        /* Another address, which may not replace ours: find out. */
        if (neigh->state == HOST_NEIGH_REACHABLE) {
            neigh->state = HOST_NEIGH_STALE;
            neigh->timer = LLONG_MAX;
        }
        return neigh;
    }

    neigh->updated = now;
    if (usable && !same) {
        COVERAGE_INC(host_neigh_moved);
    }
    neigh->addr = news->addr;
    if (news->solicited) {
        neigh->state = HOST_NEIGH_REACHABLE;
        neigh->n_tries = 0;
        neigh_set_timer(cache, neigh,
                        now + HOST_NEIGH_REACHABLE_TIME / 2
                        + random_range(HOST_NEIGH_REACHABLE_TIME));
    } else if (!same) {
        neigh->state = HOST_NEIGH_STALE;
        neigh->n_tries = 0;
        neigh->timer = LLONG_MAX;
    }
    if (!ovs_list_is_empty(&neigh->wait)) {
        neigh->n_wait = 0;
        cache->ops->flush(cache->aux, neigh);
    }
    return neigh;
}

/* 'neigh' did not answer. */
static void
neigh_fail(struct host_neigh_cache *cache, struct host_neigh *neigh,
           long long int now)
{
    size_t n = host_wait_destroy_all(&neigh->wait);

    neigh->n_wait = 0;
    neigh->state = HOST_NEIGH_FAILED;
    neigh_set_timer(cache, neigh, now + HOST_NEIGH_HOLD_DOWN);
    if (n) {
        cache->ops->dropped(cache->aux, neigh, n);
    }
}

/* The timer of 'neigh' is over. */
static void
neigh_step(struct host_neigh_cache *cache, struct host_neigh *neigh,
           long long int now)
{
    neigh->timer = LLONG_MAX;
    switch (neigh->state) {
    case HOST_NEIGH_INCOMPLETE:
        if (neigh->n_tries < HOST_NEIGH_TRIES) {
            neigh_solicit(cache, neigh, HOST_NEIGH_INCOMPLETE, now);
        } else {
            neigh_fail(cache, neigh, now);
        }
        break;
    case HOST_NEIGH_REACHABLE:
        neigh->state = HOST_NEIGH_STALE;
        break;
    case HOST_NEIGH_DELAYED:
        neigh->n_tries = 0;
        neigh_solicit(cache, neigh, HOST_NEIGH_PROBE, now);
        break;
    case HOST_NEIGH_PROBE:
        if (neigh->n_tries < HOST_NEIGH_TRIES) {
            neigh_solicit(cache, neigh, HOST_NEIGH_PROBE, now);
        } else if (now - neigh->used < HOST_NEIGH_DELAY) {
            /* In use, but its address is dead: ask everybody. */
            neigh->n_tries = 0;
            neigh_solicit(cache, neigh, HOST_NEIGH_INCOMPLETE, now);
        } else {
            neigh_fail(cache, neigh, now);
        }
        break;
    case HOST_NEIGH_STALE:
    case HOST_NEIGH_FAILED:
        break;
    }
}

void
host_neigh_run(struct host_neigh_cache *cache, long long int now)
{
    struct host_neigh *neigh;
    bool gc = now >= cache->next_gc;

    if (now < cache->next_run && !gc) {
        return;
    }
    cache->next_run = LLONG_MAX;
    if (gc) {
        cache->next_gc = now + HOST_NEIGH_GC / 4;
    }
    HMAP_FOR_EACH_SAFE (neigh, node, &cache->neighs) {
        if (now >= neigh->timer) {
            neigh_step(cache, neigh, now);
        }
        if (gc && now - MAX(neigh->used, neigh->updated) >= HOST_NEIGH_GC
            && neigh->state != HOST_NEIGH_INCOMPLETE) {
            neigh_destroy(cache, neigh);
            continue;
        }
        cache->next_run = MIN(cache->next_run, neigh->timer);
    }
}

void
host_neigh_wait(const struct host_neigh_cache *cache)
{
    if (!hmap_is_empty(&cache->neighs)) {
        poll_timer_wait_until(MIN(cache->next_run, cache->next_gc));
    }
}

static int
compare_neighs(const void *a_, const void *b_)
{
    const struct host_neigh *const *a = a_;
    const struct host_neigh *const *b = b_;

    return memcmp(&(*a)->ip, &(*b)->ip, sizeof (*a)->ip);
}

struct host_neigh **
host_neigh_sort(const struct host_neigh_cache *cache)
{
    size_t n = hmap_count(&cache->neighs);
    struct host_neigh **neighs = xmalloc(MAX(n, 1) * sizeof *neighs);
    struct host_neigh *neigh;
    size_t i = 0;

    HMAP_FOR_EACH (neigh, node, &cache->neighs) {
        neighs[i++] = neigh;
    }
    qsort(neighs, n, sizeof *neighs, compare_neighs);
    return neighs;
}
