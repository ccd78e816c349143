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

/* The software station's neighbour cache, at made-up times. */

#include <config.h>
#undef NDEBUG
#include "utilities/host-neigh.h"
#include "utilities/host-remac.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "ovstest.h"
#include "packets.h"
#include "util.h"

/* What the cache has asked for. */
struct record {
    unsigned int n_multicast, n_unicast, n_flushed, n_dropped;
};

static void
record_solicit(void *r_, const struct host_neigh *neigh OVS_UNUSED,
               bool unicast)
{
    struct record *r = r_;

    if (unicast) {
        r->n_unicast++;
    } else {
        r->n_multicast++;
    }
}

static void
record_flush(void *r_, struct host_neigh *neigh)
{
    struct record *r = r_;

    r->n_flushed += host_wait_destroy_all(&neigh->wait);
}

static void
record_dropped(void *r_, const struct host_neigh *neigh OVS_UNUSED, size_t n)
{
    struct record *r = r_;

    r->n_dropped += n;
}

static const struct host_neigh_ops ops = {
    .solicit = record_solicit,
    .flush = record_flush,
    .dropped = record_dropped,
};

static struct in6_addr
ip_from(const char *s)
{
    struct in6_addr ip;

    ovs_assert(inet_pton(AF_INET6, s, &ip) == 1);
    return ip;
}

static struct host_neigh_news
news_from(uint32_t qpn)
{
    struct ib_gid gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, 0x1234);

    return (struct host_neigh_news) { .addr = ipoib_addr_make(qpn, &gid) };
}

/* Uses 'ip' and queues a packet if need be. */
static struct host_neigh *
use(struct host_neigh_cache *cache, const struct in6_addr *ip,
    struct record *r, long long int now)
{
    struct in6_addr src = ip_from("2001:db8::1");
    struct host_neigh *neigh = host_neigh_use(cache, ip, &src, now);

    if (!host_neigh_is_usable(neigh)) {
        r->n_dropped += host_neigh_queue(neigh,
                                         host_wait_create("x", 1, &src));
    }
    return neigh;
}

/* Three solicitations, a second apart, three packets that wait, then FAILED;
 * and again, after a while. */
static void
test_unanswered(void)
{
    struct record r = { 0, 0, 0, 0 };
    struct host_neigh_cache *cache = host_neigh_cache_create(&ops, &r);
    struct in6_addr ip = ip_from("2001:db8::2");
    struct host_neigh *neigh = NULL;

    for (int i = 0; i < 5; i++) {
        neigh = use(cache, &ip, &r, 1000);
    }
    ovs_assert(neigh->state == HOST_NEIGH_INCOMPLETE);
    ovs_assert(r.n_multicast == 1 && r.n_dropped == 2);
    for (long long int now = 1000; now < 4000; now += 100) {
        host_neigh_run(cache, now);
    }
    ovs_assert(neigh->state == HOST_NEIGH_INCOMPLETE && r.n_multicast == 3);
    host_neigh_run(cache, 4000);
    ovs_assert(neigh->state == HOST_NEIGH_FAILED);
    ovs_assert(r.n_dropped == 5 && r.n_multicast == 3);

    use(cache, &ip, &r, 4100);
    ovs_assert(r.n_dropped == 6 && r.n_multicast == 3);
    use(cache, &ip, &r, 5000);
    ovs_assert(neigh->state == HOST_NEIGH_INCOMPLETE);
    ovs_assert(r.n_dropped == 6 && r.n_multicast == 4);
    host_neigh_cache_destroy(cache);
    ovs_assert(r.n_dropped == 7 && !r.n_unicast && !r.n_flushed);
}

/* An answer confirms for a while; then the entry is STALE, and when it is
 * used, probed by unicast; and if that is not answered, asked for anew. */
static void
test_probe(void)
{
    struct record r = { 0, 0, 0, 0 };
    struct host_neigh_cache *cache = host_neigh_cache_create(&ops, &r);
    struct in6_addr ip = ip_from("2001:db8::2");
    struct host_neigh_news news = news_from(100);
    struct host_neigh *neigh = use(cache, &ip, &r, 1000);
    long long int now = 100000;

    news.solicited = news.override = true;
    ovs_assert(host_neigh_update(cache, &ip, &news, 1001) == neigh);
    ovs_assert(neigh->state == HOST_NEIGH_REACHABLE && r.n_flushed == 1);
    neigh->used = now;          /* Not for the garbage collector. */
    host_neigh_run(cache, 1001 + HOST_NEIGH_REACHABLE_TIME / 2 - 1);
    ovs_assert(neigh->state == HOST_NEIGH_REACHABLE);
    host_neigh_run(cache, 1001 + 2 * HOST_NEIGH_REACHABLE_TIME);
    ovs_assert(neigh->state == HOST_NEIGH_STALE);

    use(cache, &ip, &r, now);
    ovs_assert(neigh->state == HOST_NEIGH_DELAYED && !r.n_unicast);
    now += HOST_NEIGH_DELAY;
    host_neigh_run(cache, now);
    ovs_assert(neigh->state == HOST_NEIGH_PROBE && r.n_unicast == 1);
    ovs_assert(host_neigh_is_usable(neigh));
    host_neigh_update(cache, &ip, &news, now);
    ovs_assert(neigh->state == HOST_NEIGH_REACHABLE && r.n_multicast == 1);

    now += 2 * HOST_NEIGH_REACHABLE_TIME;
    neigh->used = now;
    host_neigh_run(cache, now);
    use(cache, &ip, &r, now);
    for (int i = 0; i < 12; i++) {
        now += 1000;
        use(cache, &ip, &r, now);
        host_neigh_run(cache, now);
        if (neigh->state == HOST_NEIGH_INCOMPLETE) {
            break;
        }
    }
    ovs_assert(neigh->state == HOST_NEIGH_INCOMPLETE);
    ovs_assert(r.n_unicast == 4 && r.n_multicast == 2);
    host_neigh_cache_destroy(cache);
}

/* What a message may change (RFC 4861, 7.2.5). */
static void
test_update(void)
{
    struct record r = { 0, 0, 0, 0 };
    struct host_neigh_cache *cache = host_neigh_cache_create(&ops, &r);
    struct in6_addr ip = ip_from("2001:db8::2");
    struct host_neigh_news news = news_from(100);
    struct host_neigh *neigh;

    /* No entry without a reason. */
    ovs_assert(!host_neigh_update(cache, &ip, &news, 1000));
    news.create = true;
    neigh = host_neigh_update(cache, &ip, &news, 1000);
    ovs_assert(neigh->state == HOST_NEIGH_STALE);
    news.solicited = true;
    host_neigh_update(cache, &ip, &news, 1000);
    ovs_assert(neigh->state == HOST_NEIGH_REACHABLE);

    /* Without the override flag another address is only a doubt... */
    news = news_from(200);
    host_neigh_update(cache, &ip, &news, 1000);
    ovs_assert(neigh->state == HOST_NEIGH_STALE);
    ovs_assert(ipoib_addr_qpn(&neigh->addr) == 100);
    /* ...and with it, it is taken, but not confirmed. */
    news.override = true;
    host_neigh_update(cache, &ip, &news, 1000);
    ovs_assert(neigh->state == HOST_NEIGH_STALE);
    ovs_assert(ipoib_addr_qpn(&neigh->addr) == 200);
    /* Said again without being asked: nothing changes. */
    news.solicited = true;
    host_neigh_update(cache, &ip, &news, 1000);
    news.solicited = false;
    host_neigh_update(cache, &ip, &news, 1000);
    ovs_assert(neigh->state == HOST_NEIGH_REACHABLE);
    host_neigh_cache_destroy(cache);
    ovs_assert(!r.n_multicast && !r.n_unicast && !r.n_dropped);
}

/* Unused entries go, and there are never too many. */
static void
test_limits(void)
{
    struct record r = { 0, 0, 0, 0 };
    struct host_neigh_cache *cache = host_neigh_cache_create(&ops, &r);
    struct in6_addr ip = ip_from("2001:db8::");
    struct host_neigh_news news = news_from(100);

    news.create = true;
    for (uint32_t i = 0; i < HOST_NEIGH_MAX + 10; i++) {
        ovs_be32 x = htonl(i);

        memcpy(&ip.s6_addr[12], &x, sizeof x);
        ovs_assert(host_neigh_update(cache, &ip, &news, 1000 + i));
    }
    ovs_assert(host_neigh_count(cache) == HOST_NEIGH_MAX);
    ovs_assert(host_neigh_find(cache, &ip));
    ip.s6_addr[14] = ip.s6_addr[15] = 0;
    ovs_assert(!host_neigh_find(cache, &ip));

    host_neigh_run(cache, 1000 + HOST_NEIGH_MAX + 10 + 2 * HOST_NEIGH_GC);
    ovs_assert(!host_neigh_count(cache));
    host_neigh_cache_destroy(cache);
}

/* Known by where ARP comes from. */
static void
test_remacs(void)
{
    struct ipoib_addr a, b, at_a, at_b, at_c;
    struct host_remacs remacs;
    struct ib_gid gid;

    memset(&gid, 0xfe, sizeof gid);
    a = ipoib_addr_make(0x100, &gid);
    gid.raw[15]++;
    b = ipoib_addr_make(0x200, &gid);
    host_remacs_init(&remacs);
    at_a = host_remacs_learn(&remacs, 0x100, 0x1234, &a);
    at_b = host_remacs_learn(&remacs, 0x200, 0x1234, &b);
    ovs_assert(ipoib_addr_qpn(&at_a) == 0x100 && !ib_gid_prefix(&at_a.gid));
    ovs_assert(!ipoib_addr_equals(&at_a, &at_b));
    ovs_assert(ipoib_addr_equals(host_remacs_find(&remacs, &at_a), &a));
    ovs_assert(ipoib_addr_equals(host_remacs_find(&remacs, &at_b), &b));
    ovs_assert(!host_remacs_find(&remacs, &a));

    /* Who speaks from another's queue pair is taken for it. */
    at_c = host_remacs_learn(&remacs, 0x100, 0x1234, &b);
    ovs_assert(ipoib_addr_equals(&at_a, &at_c));
    ovs_assert(ipoib_addr_equals(host_remacs_find(&remacs, &at_a), &b));
    at_c = host_remacs_learn(&remacs, 0x100, 0x1235, &a);
    ovs_assert(!ipoib_addr_equals(&at_a, &at_c));

    for (uint32_t i = 0; i < HOST_REMAC_MAX; i++) {
        at_c = host_remacs_learn(&remacs, 0x1000 + i, 1, &a);
        ovs_assert(host_remacs_find(&remacs, &at_c));
    }
    ovs_assert(!host_remacs_find(&remacs, &at_a));
    host_remacs_destroy(&remacs);
}

static void
test_ipoib_host_neigh_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    test_unanswered();
    test_probe();
    test_update();
    test_limits();
    test_remacs();
}

OVSTEST_REGISTER("test-ipoib-host-neigh", test_ipoib_host_neigh_main);
