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
#include "ipoib-snoop.h"

#include <netinet/icmp6.h>
#include "csum.h"
#include "dp-packet.h"
#include "ipoib-packet.h"
#include "unaligned.h"
#include "util.h"

/* Messages. */

/* True if an IPv4 group is one that a port would join for a host: all but
 * 224.0.0.1, which everybody hears. */
static bool
group_is_joinable(ovs_be32 group)
{
    return ip_is_multicast(group) && group != htonl(0xe0000001);
}

static void
snoop_igmpv3(struct ipoib_snoop *snoop, const uint8_t *igmp, size_t len,
             struct eth_addr mac, long long int now)
{
    const struct igmpv3_header *header = ALIGNED_CAST(void *, igmp);
    size_t ofs = IGMPV3_HEADER_LEN;

    for (int i = 0; i < ntohs(header->ngrp); i++) {
        const struct igmpv3_record *record;
        struct in6_addr group;
        ovs_be32 ip;
        size_t size;

        if (len < ofs + IGMPV3_RECORD_LEN) {
            return;
        }
        record = ALIGNED_CAST(void *, igmp + ofs);
        size = IGMPV3_RECORD_LEN + ntohs(record->nsrcs) * 4
               + record->aux_len * 4;
        if (len < ofs + size) {
            return;
        }
        ip = get_16aligned_be32(&record->maddr);
        if (group_is_joinable(ip)) {
            group = in6_addr_mapped_ipv4(ip);
            ipoib_snoop_record(snoop, &group, mac, record->type,
                               igmp + ofs + IGMPV3_RECORD_LEN,
                               ntohs(record->nsrcs), 4, now);
        }
        ofs += size;
    }
}

void
ipoib_snoop_igmp(struct ipoib_snoop *snoop, const void *ip, size_t len,
                 size_t l4_ofs, struct eth_addr mac, long long int now)
{
    const uint8_t *l4 = (const uint8_t *) ip + l4_ofs;
    const struct igmp_header *igmp = ALIGNED_CAST(void *, l4);
    struct ipoib_query query;
    struct in6_addr group;
    ovs_be32 ip4;

    if (len < l4_ofs + IGMP_HEADER_LEN || csum(l4, len - l4_ofs)) {
        return;
    }
    ip4 = get_16aligned_be32(&igmp->group);
    group = in6_addr_mapped_ipv4(ip4);
    switch (igmp->igmp_type) {
    case IGMP_HOST_MEMBERSHIP_REPORT:
    case IGMPV2_HOST_MEMBERSHIP_REPORT:
        if (group_is_joinable(ip4)) {
            ipoib_snoop_report(snoop, &group, mac,
                               igmp->igmp_type == IGMP_HOST_MEMBERSHIP_REPORT
                               ? 1 : 2, now);
        }
        break;
    case IGMP_HOST_LEAVE_MESSAGE:
        ipoib_snoop_leave(snoop, &group, mac, now);
        break;
    case IGMP_HOST_MEMBERSHIP_QUERY:
        if (ipoib_query_parse_igmp(ip, len, l4_ofs, &query)) {
            ipoib_snoop_query(snoop, false, &query, true, now);
        }
        break;
    case IGMPV3_HOST_MEMBERSHIP_REPORT:
        snoop_igmpv3(snoop, l4, len - l4_ofs, mac, now);
        break;
    default:
        break;
    }
}

static bool
group6_is_joinable(const struct in6_addr *group)
{
    /* Scope 1 stays within its node; everybody hears ff02::1. */
    return ipv6_addr_is_multicast(group) && (group->s6_addr[1] & 0xf) > 1
           && !ipv6_addr_equals(group, &in6addr_all_hosts);
}

static void
snoop_mldv2(struct ipoib_snoop *snoop, const uint8_t *mld, size_t len,
            struct eth_addr mac, long long int now)
{
    size_t ofs = MLD_HEADER_LEN;
    unsigned int n = (mld[6] << 8) | mld[7];

    for (unsigned int i = 0; i < n; i++) {
        struct in6_addr group;
        uint16_t n_sources;
        size_t size;

        if (len < ofs + MLD2_RECORD_LEN) {
            return;
        }
        n_sources = (mld[ofs + 2] << 8) | mld[ofs + 3];
        size = MLD2_RECORD_LEN + n_sources * 16 + mld[ofs + 1] * 4;
        if (len < ofs + size) {
            return;
        }
        memcpy(&group, mld + ofs + 4, sizeof group);
        if (group6_is_joinable(&group)) {
            ipoib_snoop_record(snoop, &group, mac, mld[ofs],
                               mld + ofs + MLD2_RECORD_LEN, n_sources, 16,
                               now);
        }
        ofs += size;
    }
}

void
ipoib_snoop_mld(struct ipoib_snoop *snoop, const void *ip, size_t len,
                size_t l4_ofs, struct eth_addr mac, long long int now)
{
    const uint8_t *l4 = (const uint8_t *) ip + l4_ofs;
    size_t l4_len = len - l4_ofs;
    const struct ovs_16aligned_ip6_hdr *nh = ip;
    struct ipoib_query query;
    struct in6_addr group;

    /* A message from beyond a router is not to be heeded. */
    if (len < l4_ofs + MLD_HEADER_LEN
        || nh->ip6_ctlun.ip6_un1.ip6_un1_hlim != 1
        || packet_csum_upperlayer6(ip, l4, IPPROTO_ICMPV6, l4_len)) {
        return;
    }
    if (l4[0] == MLD2_REPORT) {
        snoop_mldv2(snoop, l4, l4_len, mac, now);
        return;
    } else if (l4[0] == MLD_QUERY) {
        if (ipoib_query_parse_mld(ip, len, l4_ofs, &query)) {
            ipoib_snoop_query(snoop, true, &query, true, now);
        }
        return;
    }
    if (l4_len < 24) {
        return;
    }
    memcpy(&group, l4 + 8, sizeof group);
    if (!group6_is_joinable(&group)) {
        return;
    }
    if (l4[0] == MLD_REPORT) {
        /* It is like IGMPv2. */
        ipoib_snoop_report(snoop, &group, mac, 2, now);
    } else if (l4[0] == MLD_DONE) {
        ipoib_snoop_leave(snoop, &group, mac, now);
    }
}


/* From the fabric, only queries are of interest: hosts answer them, too. */
void
ipoib_snoop_from_fabric(struct ipoib_snoop *snoop, bool v6, const void *ip,
                        size_t len, size_t l4_ofs, long long int now)
{
    const uint8_t *l4 = (const uint8_t *) ip + l4_ofs;
    const struct ovs_16aligned_ip6_hdr *nh = ip;
    struct ipoib_query query;

    if (v6 ? nh->ip6_ctlun.ip6_un1.ip6_un1_hlim == 1
             && ipoib_query_parse_mld(ip, len, l4_ofs, &query)
             && !packet_csum_upperlayer6(ip, l4, IPPROTO_ICMPV6, len - l4_ofs)
           : ipoib_query_parse_igmp(ip, len, l4_ofs, &query)
             && !csum(l4, len - l4_ofs)) {
        ipoib_snoop_query(snoop, v6, &query, false, now);
    }
}

void
ipoib_snoop_pim(struct ipoib_snoop *snoop, bool v6, const void *ip, size_t len,
                size_t l4_ofs, long long int now)
{
    const uint8_t *l4 = (const uint8_t *) ip + l4_ofs;
    long long int holdtime = ipoib_pim_hello_holdtime(ip, len, l4_ofs);

    if (holdtime >= 0
        && !(v6 ? packet_csum_upperlayer6(ip, l4, IPPROTO_PIM, len - l4_ofs)
             : csum(l4, len - l4_ofs))) {
        ipoib_snoop_pim_hello(snoop, v6, holdtime, now);
    }
}


/* Queries. */

#define QUERY_RESPONSE_TIME 10  /* Of hosts' answers, in units of 0.1 s. */
#define QUERY_INTERVAL 125      /* What they may expect, in seconds. */
#define QUERY_ROBUSTNESS 2

/* A frame of 'size' bytes, all zeros, but for the Ethernet header. */
static struct dp_packet *
query_new(struct eth_addr mac, struct eth_addr dst, uint16_t type, size_t size)
{
    struct dp_packet *frame = dp_packet_new_with_headroom(size, 64);
    struct eth_header *eth;

    eth = dp_packet_put_zeros(frame, MAX(size, ETH_TOTAL_MIN));
    eth->eth_dst = dst;
    eth->eth_src = mac;
    eth->eth_type = htons(type);
    return frame;
}

struct dp_packet *
ipoib_snoop_compose_igmp_query(struct eth_addr mac, ovs_be32 group)
{
    ovs_be32 dst = group ? group : htonl(0xe0000001);
    static const uint8_t router_alert[4] = { 0x94, 0x04, 0, 0 };
    struct dp_packet *frame;
    struct ip_header *ip;
    uint8_t *igmp;
    size_t len = IP_HEADER_LEN + sizeof router_alert + IGMPV3_QUERY_HEADER_LEN;
    ovs_be16 checksum;

    frame = query_new(mac, ipoib_group_mac_ipv4(dst), ETH_TYPE_IP,
                      ETH_HEADER_LEN + len);
    ip = ALIGNED_CAST(struct ip_header *,
                      (uint8_t *) dp_packet_data(frame) + ETH_HEADER_LEN);
    ip->ip_ihl_ver = IP_IHL_VER((IP_HEADER_LEN + sizeof router_alert) / 4, 4);
    ip->ip_tos = 0xc0;
    ip->ip_tot_len = htons(len);
    ip->ip_ttl = 1;
    ip->ip_proto = IPPROTO_IGMP;
    put_16aligned_be32(&ip->ip_dst, dst);
    memcpy(ip + 1, router_alert, sizeof router_alert);
    ip->ip_csum = csum(ip, IP_HEADER_LEN + sizeof router_alert);

    igmp = (uint8_t *) (ip + 1) + sizeof router_alert;
    igmp[0] = IGMP_HOST_MEMBERSHIP_QUERY;
    igmp[1] = QUERY_RESPONSE_TIME;
    memcpy(igmp + 4, &group, sizeof group);
    igmp[8] = QUERY_ROBUSTNESS;
    igmp[9] = QUERY_INTERVAL;
    checksum = csum(igmp, IGMPV3_QUERY_HEADER_LEN);
    memcpy(igmp + 2, &checksum, sizeof checksum);
    return frame;
}

struct dp_packet *
ipoib_snoop_compose_mld_query(struct eth_addr mac,
                              const struct in6_addr *group)
{
    const struct in6_addr *dst = group ? group : &in6addr_all_hosts;
    /* Hop-by-hop options: next header ICMPv6, router alert (RFC 2711) of
     * value 0, and padding. */
    static const uint8_t hop_by_hop[8] = { IPPROTO_ICMPV6, 0, 5, 2, 0, 0, 1,
                                           0 };
    enum { MLD_QUERY_LEN = 28 };
    const ovs_be16 response_time = htons(QUERY_RESPONSE_TIME * 100);
    struct ovs_16aligned_ip6_hdr *ip6;
    struct dp_packet *frame;
    struct in6_addr src;
    ovs_be16 checksum;
    uint8_t *mld;

    frame = query_new(mac, ipoib_group_mac_ipv6(dst), ETH_TYPE_IPV6,
                      ETH_HEADER_LEN + IPV6_HEADER_LEN + sizeof hop_by_hop
                      + MLD_QUERY_LEN);
    ip6 = ALIGNED_CAST(struct ovs_16aligned_ip6_hdr *,
                       (uint8_t *) dp_packet_data(frame) + ETH_HEADER_LEN);
    in6_generate_lla(mac, &src);
    put_16aligned_be32(&ip6->ip6_ctlun.ip6_un1.ip6_un1_flow, htonl(6 << 28));
    ip6->ip6_ctlun.ip6_un1.ip6_un1_plen = htons(sizeof hop_by_hop
                                                + MLD_QUERY_LEN);
    ip6->ip6_ctlun.ip6_un1.ip6_un1_nxt = IPPROTO_HOPOPTS;
    ip6->ip6_ctlun.ip6_un1.ip6_un1_hlim = 1;
    memcpy(&ip6->ip6_src, &src, sizeof src);
    memcpy(&ip6->ip6_dst, dst, sizeof *dst);
    memcpy(ip6 + 1, hop_by_hop, sizeof hop_by_hop);

    mld = (uint8_t *) (ip6 + 1) + sizeof hop_by_hop;
    mld[0] = MLD_QUERY;
    memcpy(mld + 4, &response_time, sizeof response_time);
    if (group) {
        memcpy(mld + 8, group, sizeof *group);
    }
    mld[24] = QUERY_ROBUSTNESS;
    mld[25] = QUERY_INTERVAL;
    checksum = packet_csum_upperlayer6(ip6, mld, IPPROTO_ICMPV6,
                                       MLD_QUERY_LEN);
    memcpy(mld + 2, &checksum, sizeof checksum);
    return frame;
}
