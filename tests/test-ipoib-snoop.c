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
#include "random.h"
#include "util.h"

/* Groups that were joined and not left. */
static int n_joined;
/* Questions for one group. */
static int n_asked;

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

static void
ask(void *aux OVS_UNUSED, const struct in6_addr *group OVS_UNUSED)
{
    n_asked++;
}

static const struct ipoib_snoop_ops ops = {
    .joined = joined,
    .left = left,
    .ask = ask,
};

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
report_at(struct ipoib_snoop *snoop, uint32_t group_, uint32_t host_,
          int version, long long int now)
{
    struct in6_addr ip = group(group_);

    ipoib_snoop_report(snoop, &ip, host(host_), version, now);
}

static void
report(struct ipoib_snoop *snoop, uint32_t group_, uint32_t host_)
{
    report_at(snoop, group_, host_, 2, 1000);
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

    /* There is no querier: we ask, twice. */
    n_asked = 0;
    leave(snoop, 1, 2, now);
    ipoib_snoop_run(snoop, now);
    ipoib_snoop_run(snoop, now + 500);
    ovs_assert(n_asked == 1);
    ipoib_snoop_run(snoop, late - 1);
    ovs_assert(n_joined == 2 && n_asked == 2);
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

struct host_has {
    struct in6_addr group;
    struct eth_addr mac;
    bool found;
};

static void
host_has_cb(const struct in6_addr *ip, struct eth_addr mac,
            bool exclude OVS_UNUSED, size_t n_sources OVS_UNUSED,
            long long int heard OVS_UNUSED, void *has_)
{
    struct host_has *has = has_;

    has->found |= (ipv6_addr_equals(ip, &has->group)
                   && eth_addr_equals(mac, has->mac));
}

static bool
host_has(const struct ipoib_snoop *snoop, uint32_t group_, uint32_t host_)
{
    struct host_has has = { group(group_), host(host_), false };

    ipoib_snoop_for_each(snoop, host_has_cb, &has);
    return has.found;
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

    /* A host with none gets one from a host that has more, some of them a
     * second. */
    xnanosleep(100 * 1000000);
    report(snoop, 80000, 50000);
    ovs_assert(n_joined == n);
    report(snoop, 80001, 50000);
    ovs_assert(n_joined == n);
    ovs_assert(host_has(snoop, 80000, 50000) && host_has(snoop, 80001, 50000));

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

/* A record of IGMPv3 or MLDv2, with sources 10.0.0.'first' and so on. */
static void
record(struct ipoib_snoop *snoop, uint8_t type, uint8_t first, size_t n,
       long long int now)
{
    struct in6_addr ip = group(1);
    uint8_t sources[256 * 4];

    for (size_t i = 0; i < n; i++) {
        const uint8_t source[4] = { 10, 0, i / 256, first + i };

        memcpy(sources + i * 4, source, sizeof source);
    }
    ipoib_snoop_record(snoop, &ip, host(1), type, sources, n, 4, now);
}

/* All hosts have answered to a question. */
static void
all_asked(struct ipoib_snoop *snoop, bool v6, long long int now)
{
    const struct ipoib_query query = {
        .general = true, .sourceless = true, .max_resp = 1000
    };

    ipoib_snoop_query(snoop, v6, &query, false, now);
}

/* A host with sources is a member as long as one of them is left.  Each case
 * begins and ends without membership, and with fast leave. */
static void
check_filters(void)
{
    struct ipoib_snoop *snoop = ipoib_snoop_create(&ops, NULL);
    const long long int now = 10000;

    n_joined = 0;
    all_asked(snoop, false, now - 5000);

    record(snoop, IGMPV3_MODE_IS_INCLUDE, 1, 0, now);
    record(snoop, IGMPV3_CHANGE_TO_INCLUDE_MODE, 1, 0, now);
    record(snoop, IGMPV3_BLOCK_OLD_SOURCES, 1, 2, now);
    record(snoop, IGMPV3_ALLOW_NEW_SOURCES, 1, 0, now);
    record(snoop, 7, 1, 2, now);
    ovs_assert(!n_joined);

    record(snoop, IGMPV3_CHANGE_TO_EXCLUDE_MODE, 1, 0, now);
    ovs_assert(n_joined == 1);
    record(snoop, IGMPV3_BLOCK_OLD_SOURCES, 1, 2, now);
    record(snoop, IGMPV3_MODE_IS_INCLUDE, 1, 1, now);
    record(snoop, IGMPV3_BLOCK_OLD_SOURCES, 1, 1, now);
    ovs_assert(n_joined == 1);
    record(snoop, IGMPV3_CHANGE_TO_INCLUDE_MODE, 1, 0, now);
    ovs_assert(!n_joined);

    record(snoop, IGMPV3_ALLOW_NEW_SOURCES, 1, 2, now);
    record(snoop, IGMPV3_ALLOW_NEW_SOURCES, 3, 1, now);
    record(snoop, IGMPV3_BLOCK_OLD_SOURCES, 2, 5, now);
    ovs_assert(n_joined == 1);
    record(snoop, IGMPV3_BLOCK_OLD_SOURCES, 1, 1, now);
    ovs_assert(!n_joined);

    record(snoop, IGMPV3_CHANGE_TO_INCLUDE_MODE, 1, 3, now);
    record(snoop, IGMPV3_CHANGE_TO_INCLUDE_MODE, 3, 1, now);
    record(snoop, IGMPV3_BLOCK_OLD_SOURCES, 3, 1, now);
    ovs_assert(!n_joined);

    /* So many that it is taken for a member for all. */
    record(snoop, IGMPV3_ALLOW_NEW_SOURCES, 0, 200, now);
    record(snoop, IGMPV3_BLOCK_OLD_SOURCES, 0, 200, now);
    ovs_assert(n_joined == 1);
    record(snoop, IGMPV3_MODE_IS_INCLUDE, 1, 0, now);
    ovs_assert(!n_joined);
    ipoib_snoop_destroy(snoop);
}

/* What is left at once, and what is not. */
static void
check_fast_leave(void)
{
    struct ipoib_snoop *snoop = ipoib_snoop_create(&ops, NULL);
    long long int now = 10000;

    /* Not all were asked. */
    record(snoop, IGMPV3_CHANGE_TO_EXCLUDE_MODE, 1, 0, now);
    record(snoop, IGMPV3_CHANGE_TO_INCLUDE_MODE, 1, 0, now);
    ovs_assert(n_joined == 1);
    now += IPOIB_SNOOP_LAST_MEMBER;
    ipoib_snoop_run(snoop, now);
    ovs_assert(!n_joined);

    /* They were, but did not have the time to answer; then they did.  MLD is
     * another matter. */
    all_asked(snoop, true, now - 10000);
    all_asked(snoop, false, now);
    record(snoop, IGMPV3_CHANGE_TO_EXCLUDE_MODE, 1, 0, now);
    record(snoop, IGMPV3_CHANGE_TO_INCLUDE_MODE, 1, 0, now + 1500);
    ovs_assert(n_joined == 1);
    record(snoop, IGMPV3_CHANGE_TO_EXCLUDE_MODE, 1, 0, now + 1500);
    record(snoop, IGMPV3_CHANGE_TO_INCLUDE_MODE, 1, 0, now + 2000);
    ovs_assert(!n_joined);

    /* One with IGMPv2 has reported of late. */
    now += 10000;
    record(snoop, IGMPV3_CHANGE_TO_EXCLUDE_MODE, 1, 0, now);
    report_at(snoop, 1, 2, 2, now);
    leave(snoop, 1, 2, now);
    record(snoop, IGMPV3_CHANGE_TO_INCLUDE_MODE, 1, 0, now);
    ovs_assert(n_joined == 1);
    record(snoop, IGMPV3_CHANGE_TO_EXCLUDE_MODE, 1, 0, now);
    record(snoop, IGMPV3_CHANGE_TO_INCLUDE_MODE, 1, 0, now + 260000);
    ovs_assert(!n_joined);

    /* One with IGMPv1, which leaves without a word. */
    now += 400000;
    report_at(snoop, 1, 2, 1, now);
    leave(snoop, 1, 2, now);
    ipoib_snoop_run(snoop, now + 200000);
    ovs_assert(n_joined == 1);
    ipoib_snoop_run(snoop, now + 260000);
    ovs_assert(!n_joined);
    ipoib_snoop_destroy(snoop);
}

/* A querier's times count; without one nobody need say anything. */
static void
check_querier(void)
{
    struct ipoib_snoop *snoop = ipoib_snoop_create(&ops, NULL);
    struct in6_addr ip6 = { .s6_addr = { 0xff, 2, [11] = 1, 0xff, 1, 2, 3 } };
    const struct ipoib_query query = {
        .general = true, .timed = true, .robustness = 3, .interval = 20000,
        .max_resp = 5000
    };
    const struct ipoib_query specific = {
        .group = group(1), .max_resp = 500
    };
    const struct ipoib_query sourceless = {
        .general = true, .sourceless = true, .max_resp = 1000
    };
    long long int now = 1000;

    report(snoop, 1, 1);
    ipoib_snoop_assume(snoop, &ip6, host(1));
    ipoib_snoop_query(snoop, false, &sourceless, true, now);
    ipoib_snoop_run(snoop, now += 1000000);
    ovs_assert(n_joined == 2);
    ovs_assert(!ipoib_snoop_has_router(snoop, now));

    /* From the fabric: a querier, but no router on Ethernet. */
    ipoib_snoop_query(snoop, false, &query, false, now);
    ovs_assert(!ipoib_snoop_has_router(snoop, now));
    ipoib_snoop_query(snoop, false, &query, true, now);
    ipoib_snoop_query(snoop, true, &query, true, now);
    ovs_assert(ipoib_snoop_has_router(snoop, now));

    /* 65 s from when it was there; what is only assumed, stays. */
    ipoib_snoop_run(snoop, now + 64999);
    ovs_assert(n_joined == 2);
    ipoib_snoop_query(snoop, false, &query, true, now + 60000);
    ipoib_snoop_query(snoop, true, &query, true, now + 60000);
    ipoib_snoop_run(snoop, now + 65000);
    ipoib_snoop_run(snoop, now + 65000 + 4000);
    ovs_assert(n_joined == 1);

    /* After a leave, robustness times the last member interval. */
    now += 70000;
    report_at(snoop, 1, 1, 2, now);
    ipoib_snoop_query(snoop, false, &specific, true, now);
    n_asked = 0;
    leave(snoop, 1, 1, now);
    ipoib_snoop_run(snoop, now + 2499);
    ovs_assert(n_joined == 2);
    ipoib_snoop_run(snoop, now + 2500);
    ovs_assert(n_joined == 1 && !n_asked);

    /* It goes, and the router with it; a PIM router comes. */
    now += 66000;
    ovs_assert(!ipoib_snoop_has_router(snoop, now));
    report_at(snoop, 1, 1, 2, now);
    ipoib_snoop_run(snoop, now + 1000000);
    ovs_assert(n_joined == 2);
    ipoib_snoop_pim_hello(snoop, false, 105000, now);
    ovs_assert(ipoib_snoop_has_router(snoop, now + 104999));
    ovs_assert(!ipoib_snoop_has_router(snoop, now + 105000));
    ipoib_snoop_pim_hello(snoop, false, 0, now + 5);
    ovs_assert(ipoib_snoop_has_router(snoop, now + 10004));
    ovs_assert(!ipoib_snoop_has_router(snoop, now + 10005));

    /* Nobody makes routers come and go all the time, nor takes one away that
     * queries. */
    ipoib_snoop_pim_hello(snoop, false, 1, now + 20000);
    ovs_assert(ipoib_snoop_has_router(snoop, now + 29999));
    ipoib_snoop_query(snoop, false, &query, true, now + 20000);
    ipoib_snoop_pim_hello(snoop, false, 0, now + 20001);
    ovs_assert(ipoib_snoop_has_router(snoop, now + 80000));
    ipoib_snoop_host_gone(snoop, host(1), now);
    ipoib_snoop_run(snoop, now + 10000);
    ovs_assert(!n_joined);
    ipoib_snoop_destroy(snoop);
}

static bool
parse_igmp_query(const char *hex, struct ipoib_query *query)
{
    uint8_t packet[64];
    bool ok;

    for (size_t i = 0; i < strlen(hex) / 2; i++) {
        packet[i] = hexits_value(hex + 2 * i, 2, &ok);
        ovs_assert(ok);
    }
    return ipoib_query_parse_igmp(packet, strlen(hex) / 2, 24, query);
}

/* Queries of all versions, byte by byte. */
static void
check_parsing(void)
{
#define IP4(SRC) "46c00020000000000102000" "0" SRC "e000000194040000"
    struct ipoib_query q;

    ovs_assert(parse_igmp_query(IP4("0a000001") "1100eeff00000000", &q));
    ovs_assert(q.general && !q.sourceless && !q.timed && q.max_resp == 10000);
    ovs_assert(parse_igmp_query(IP4("00000000") "110aeeffef010203", &q));
    ovs_assert(!q.general && q.sourceless && q.max_resp == 1000);
    ovs_assert(!parse_igmp_query(IP4("0a000001") "11ffeeff0a000001", &q));
    ovs_assert(!parse_igmp_query(IP4("0a000001") "160aeeff00000000", &q));
    ovs_assert(parse_igmp_query(IP4("0a000001")
                                "118feeff00000000" "0b9c0000", &q));
    ovs_assert(q.timed && q.robustness == 3);
    /* Floating point: (16 + 15) << 3, and (16 + 12) << 4. */
    ovs_assert(q.max_resp == 24800 && q.interval == 448000);
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

/* Messages of all types whose bytes are at random, but for the checksum, in
 * buffers that are no longer than they are, so that valgrind sees what is read
 * behind them. */
static void
check_random(void)
{
    static const uint8_t types4[] = { 0x11, 0x12, 0x16, 0x17, 0x22 };
    static const uint8_t types6[] = { 130, 131, 132, 143 };
    struct ipoib_snoop *snoop = ipoib_snoop_create(&ops, NULL);
    long long int now = 1000;

    random_set_seed(0x1234);
    for (int i = 0; i < 30000; i++) {
        size_t len = 8 + random_range(random_range(4) ? 40 : 300);
        bool v6 = random_range(2), pim = !random_range(8);
        size_t l4_ofs = v6 ? IPV6_HEADER_LEN : IP_HEADER_LEN;
        uint8_t *ip = xzalloc(l4_ofs + len), *l4 = ip + l4_ofs;
        ovs_be16 sum;

        random_bytes(l4, len);
        for (size_t j = 4; j < len; j++) {
            /* Lengths that fit, and groups, must not be rare. */
            l4[j] &= random_range(3) ? 3 : 0xff;
            l4[j] = random_range(16) ? l4[j] : v6 ? 0xff : 0xe0;
        }
        l4[0] = (pim ? 0x20 : v6 ? types6[random_range(ARRAY_SIZE(types6))]
                 : types4[random_range(ARRAY_SIZE(types4))]);
        l4[2] = l4[3] = 0;
        if (!random_range(3)) {
            /* For all groups, if it is a query. */
            memset(l4 + 4, 0, MIN(len - 4, 20));
        }
        if (v6) {
            ip[0] = 0x60;
            ip[5] = len;
            ip[7] = 1;
            ip[8] = 0xfe;
            ip[9] = 0x80;
            sum = packet_csum_upperlayer6(ALIGNED_CAST(void *, ip), l4,
                                          pim ? IPPROTO_PIM : IPPROTO_ICMPV6,
                                          len);
        } else {
            ip[12] = 10;
            sum = csum(l4, len);
        }
        memcpy(l4 + 2, &sum, sizeof sum);
        now += random_range(2000);
        if (pim) {
            ipoib_snoop_pim(snoop, v6, ip, l4_ofs + len, l4_ofs, now);
        } else if (!random_range(4)) {
            ipoib_snoop_from_fabric(snoop, v6, ip, l4_ofs + len, l4_ofs, now);
        } else if (v6) {
            ipoib_snoop_mld(snoop, ip, l4_ofs + len, l4_ofs,
                            host(random_range(20)), now);
        } else {
            ipoib_snoop_igmp(snoop, ip, l4_ofs + len, l4_ofs,
                             host(random_range(20)), now);
        }
        ipoib_snoop_run(snoop, now);
        ovs_assert(n_joined == ipoib_snoop_n_groups(snoop));
        free(ip);
    }
    ovs_assert(ipoib_snoop_querier(snoop, false)->since
               && ipoib_snoop_querier(snoop, true)->since);

    /* All go in the end. */
    for (uint32_t i = 0; i < 20; i++) {
        ipoib_snoop_host_gone(snoop, host(i), now);
    }
    ovs_assert(!ipoib_snoop_n_members(snoop));
    ipoib_snoop_run(snoop, now + 4000000);
    ovs_assert(!n_joined);
    ipoib_snoop_destroy(snoop);
}

static void
test_ipoib_snoop_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    check_leave();
    check_limits();
    check_filters();
    check_fast_leave();
    check_querier();
    check_parsing();
    check_random();
    check_queries();
}

OVSTEST_REGISTER("test-ipoib-snoop", test_ipoib_snoop_main);
