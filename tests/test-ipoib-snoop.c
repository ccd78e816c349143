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

/* Which groups hosts listen to: joined with the first host, left some time
 * after the last, and no more of either than there is room for. */

#include <config.h>
#undef NDEBUG

#include "csum.h"
#include "dp-packet.h"
#include "ipoib-packet.h"
#include "ipoib-snoop.h"
#include "ovstest.h"
#include "util.h"

/* Groups that were joined and not left. */
static int n_joined;

static void
joined(void *aux OVS_UNUSED, const struct in6_addr *group OVS_UNUSED)
{
    n_joined++;
}

static void
left(void *aux OVS_UNUSED, const struct in6_addr *group OVS_UNUSED)
{
    n_joined--;
}

static const struct ipoib_snoop_ops ops = { .joined = joined, .left = left };

static struct in6_addr
group(uint32_t i)
{
    return in6_addr_mapped_ipv4(htonl(0xef000000 + i));
}

static struct eth_addr
host(uint32_t i)
{
    struct eth_addr mac;

    eth_addr_from_uint64(UINT64_C(0x020000000000) + i, &mac);
    return mac;
}

static void
report(struct ipoib_snoop *snoop, uint32_t group_, uint32_t host_)
{
    struct in6_addr ip = group(group_);

    ipoib_snoop_report(snoop, &ip, host(host_), 2, 1000);
}

static void
leave(struct ipoib_snoop *snoop, uint32_t group_, uint32_t host_,
      long long int now)
{
    struct in6_addr ip = group(group_);

    ipoib_snoop_leave(snoop, &ip, host(host_), now);
}

/* A group is left a while after its last host, unless one comes by then. */
static void
check_leave(void)
{
    struct ipoib_snoop *snoop = ipoib_snoop_create(&ops, NULL);
    long long int now = 1000, late = now + IPOIB_SNOOP_LAST_MEMBER;

    report(snoop, 1, 1);
    report(snoop, 1, 1);
    report(snoop, 1, 2);
    report(snoop, 2, 2);
    ovs_assert(n_joined == 2);

    leave(snoop, 1, 1, now);
    leave(snoop, 1, 3, now);
    leave(snoop, 3, 1, now);
    ipoib_snoop_run(snoop, late);
    ovs_assert(n_joined == 2);

    leave(snoop, 1, 2, now);
    ipoib_snoop_run(snoop, late - 1);
    ovs_assert(n_joined == 2);
    report(snoop, 1, 4);
    ipoib_snoop_run(snoop, late);
    ovs_assert(n_joined == 2);

    ipoib_snoop_host_gone(snoop, host(4), late);
    ipoib_snoop_run(snoop, late + IPOIB_SNOOP_LAST_MEMBER);
    ovs_assert(n_joined == 1);
    ipoib_snoop_host_gone(snoop, host(2), late);
    ipoib_snoop_host_gone(snoop, host(2), late);
    ipoib_snoop_run(snoop, late + IPOIB_SNOOP_LAST_MEMBER);
    ovs_assert(!n_joined);
    ipoib_snoop_destroy(snoop);
}

/* One host cannot take all the room, and all of them not more than there
 * is. */
static void
check_limits(void)
{
    struct ipoib_snoop *snoop = ipoib_snoop_create(&ops, NULL);
    int n;

    for (uint32_t i = 0; i < 20000; i++) {
        report(snoop, i, 1);
    }
    n = n_joined;
    ovs_assert(n >= 100 && n <= 1000);
    report(snoop, 20000, 2);
    ovs_assert(n_joined == n + 1);

    for (uint32_t i = 0; i < 40000; i++) {
        report(snoop, 20001 + i, 3 + i / 100);
    }
    n = n_joined;
    ovs_assert(n > 10000 && n < 40000);

    /* What goes makes room. */
    ipoib_snoop_host_gone(snoop, host(1), 0);
    ipoib_snoop_run(snoop, IPOIB_SNOOP_LAST_MEMBER);
    ovs_assert(n_joined < n);
    report(snoop, 70000, 1);
    n = n_joined;
    report(snoop, 70001, 1);
    ovs_assert(n_joined == n + 1);
    ipoib_snoop_destroy(snoop);
}

/* The queries are what hosts accept: lengths and checksums are right, and the
 * gateway's own parser finds the message behind the router alert. */
static void
check_queries(void)
{
    struct dp_packet *igmp = ipoib_snoop_compose_igmp_query(host(1), 0);
    struct dp_packet *mld = ipoib_snoop_compose_mld_query(host(1), NULL);
    const uint8_t *ip = (const uint8_t *) dp_packet_data(igmp)
                        + ETH_HEADER_LEN;
    size_t ip_len, l4_ofs;

    ovs_assert(ipoib_packet_check_ip(ETH_TYPE_IP, ip,
                                     dp_packet_size(igmp) - ETH_HEADER_LEN,
                                     &ip_len, &l4_ofs) == IPOIB_IP_IGMP);
    ovs_assert(ip_len == 36 && l4_ofs == 24);
    ovs_assert(!csum(ip, l4_ofs) && !csum(ip + l4_ofs, ip_len - l4_ofs));
    ovs_assert(ip[l4_ofs] == IGMP_HOST_MEMBERSHIP_QUERY);

    ip = (const uint8_t *) dp_packet_data(mld) + ETH_HEADER_LEN;
    ovs_assert(ipoib_packet_check_ip(ETH_TYPE_IPV6, ip,
                                     dp_packet_size(mld) - ETH_HEADER_LEN,
                                     &ip_len, &l4_ofs) == IPOIB_IP_MLD);
    ovs_assert(ip_len == 76 && l4_ofs == 48 && ip[l4_ofs] == MLD_QUERY);
    ovs_assert(!packet_csum_upperlayer6(ALIGNED_CAST(void *, ip),
                                        ip + l4_ofs, IPPROTO_ICMPV6,
                                        ip_len - l4_ofs));
    dp_packet_delete(igmp);
    dp_packet_delete(mld);
}

static void
test_ipoib_snoop_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    check_leave();
    check_limits();
    check_queries();
}

OVSTEST_REGISTER("test-ipoib-snoop", test_ipoib_snoop_main);
