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

#ifndef TEST_IPOIB_TABLES_H
#define TEST_IPOIB_TABLES_H 1

/* What the tests of the tables have in common. */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "ipoib-neigh.h"
#include "ipoib-table.h"
#include "util.h"

#define PKEY 0xffff
#define GUID UINT64_C(0x0002c90300000000)

static inline struct ipoib_addr
make_addr(uint64_t guid, uint32_t qpn)
{
    struct ib_gid gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, guid);

    return ipoib_addr_make(qpn, &gid);
}

static inline struct in6_addr
ip4(uint32_t ip)
{
    return in6_addr_mapped_ipv4(htonl(0x0a000000 + ip));
}

static inline struct in6_addr
ip6(uint32_t ip)
{
    struct in6_addr addr;
    ovs_be32 low = htonl(ip);

    ovs_assert(inet_pton(AF_INET6, "2001:db8::", &addr) == 1);
    memcpy(&addr.s6_addr[12], &low, sizeof low);
    return addr;
}

/* A check of look-ups, single and batched. */
static inline void
check_table(const struct ipoib_table *t, const uint64_t keys[],
            const uint32_t expected[], size_t n)
{
    uint32_t *slots = xcalloc(n, sizeof *slots);

    ipoib_table_lookup_batch(t, keys, n, slots);
    for (size_t i = 0; i < n; i++) {
        ovs_assert(slots[i] == expected[i]);
        ovs_assert(ipoib_table_lookup(t, keys[i]) == expected[i]);
    }
    free(slots);
}

/* What a reader finds, as neighbours. */

static inline struct ipoib_neigh *
by_mac(const struct ipoib_neigh_table *t, struct eth_addr mac)
{
    uint64_t key = eth_addr_to_uint64(mac);
    uint32_t slot;

    ipoib_neigh_by_mac(t, &key, 1, &slot);
    struct ipoib_neigh *neigh = ipoib_neigh_of_slot(t, slot);
    ovs_assert(neigh == ipoib_neigh_find_mac(t, mac));
    return neigh;
}

static inline struct ipoib_neigh *
by_lid(const struct ipoib_neigh_table *t, uint16_t lid, uint32_t qpn)
{
    uint64_t key = ipoib_neigh_lid_key(lid, qpn);
    uint32_t slot;

    ipoib_neigh_by_lid(t, &key, 1, &slot);
    return ipoib_neigh_of_slot(t, slot);
}

static inline struct ipoib_neigh *
by_lid_alone(const struct ipoib_neigh_table *t, uint16_t lid)
{
    return ipoib_neigh_of_slot(t, ipoib_neigh_by_lid_alone(t, lid));
}

static inline struct ipoib_neigh *
by_addr(const struct ipoib_neigh_table *t, const struct ipoib_addr *addr)
{
    uint32_t slot = ipoib_neigh_by_gid(t, &addr->gid, ipoib_addr_qpn(addr));
    struct ipoib_neigh *neigh = ipoib_neigh_of_slot(t, slot);

    ovs_assert(neigh == ipoib_neigh_find(t, addr));
    return neigh;
}

static inline struct ipoib_neigh *
by_ip(const struct ipoib_neigh_table *t, struct in6_addr ip)
{
    struct ipoib_neigh *neigh = ipoib_neigh_of_slot(t, ipoib_neigh_by_ip(t,
                                                                         &ip));

    ovs_assert(neigh == ipoib_neigh_find_ip(t, &ip));
    return neigh;
}

/* Learns, and checks what is said to have changed. */
static inline struct ipoib_neigh *
learn(struct ipoib_neigh_table *t, struct ipoib_addr addr,
      const struct in6_addr *ip, uint16_t slid, long long int now,
      unsigned int expected)
{
    unsigned int changes;
    struct ipoib_neigh *neigh = ipoib_neigh_learn(t, &addr, ip, slid, now,
                                                  &changes);

    if (changes != expected) {
        ovs_fatal(0, "changes are %#x, should be %#x", changes, expected);
    }
    ovs_assert(ipoib_addr_equals(&neigh->addr, &addr));
    ovs_assert(ipoib_neigh_confirmed(neigh) == now / 1000 * 1000);
    return neigh;
}

#endif /* test-ipoib-tables.h */
