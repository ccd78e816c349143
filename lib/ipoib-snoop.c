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
#include "coverage.h"
#include "csum.h"
#include "dp-packet.h"
#include "hash.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"
#include "openvswitch/poll-loop.h"
#include "random.h"
#include "timeval.h"
#include "unaligned.h"
#include "util.h"

COVERAGE_DEFINE(ipoib_snoop_too_many);

/* What is kept track of at most: groups, groups of one host, and members of
 * all groups together. */
#define MAX_GROUPS 16384
#define MAX_HOST_GROUPS 512
#define MAX_MEMBERS (16 * MAX_GROUPS)

struct snoop_group {
    struct hmap_node node;      /* In ipoib_snoop 'groups'. */
    struct in6_addr ip;
    struct ovs_list members;    /* Of struct snoop_member. */
    long long int expires;      /* Without members: when it ends. */
};

struct snoop_member {
    struct ovs_list node;       /* In 'group->members'. */
    struct hmap_node by_mac;    /* In ipoib_snoop 'members'. */
    struct snoop_group *group;
    struct eth_addr mac;
};

struct ipoib_snoop {
    const struct ipoib_snoop_ops *ops;
    void *aux;
    struct hmap groups;
    struct hmap members;        /* Of all groups. */
    uint32_t basis;             /* Of hashes of MACs. */
    long long int next_expiry;  /* LLONG_MAX: none. */
};

struct ipoib_snoop *
ipoib_snoop_create(const struct ipoib_snoop_ops *ops, void *aux)
{
    struct ipoib_snoop *snoop = xmalloc(sizeof *snoop);

    *snoop = (struct ipoib_snoop) {
        .ops = ops,
        .aux = aux,
        .basis = random_uint32(),
        .next_expiry = LLONG_MAX,
    };
    hmap_init(&snoop->groups);
    hmap_init(&snoop->members);
    return snoop;
}

static void
member_free(struct ipoib_snoop *snoop, struct snoop_member *member)
{
    ovs_list_remove(&member->node);
    hmap_remove(&snoop->members, &member->by_mac);
    free(member);
}

static void
group_free(struct ipoib_snoop *snoop, struct snoop_group *group)
{
    struct snoop_member *member;

    LIST_FOR_EACH_SAFE (member, node, &group->members) {
        member_free(snoop, member);
    }
    hmap_remove(&snoop->groups, &group->node);
    free(group);
}

void
ipoib_snoop_destroy(struct ipoib_snoop *snoop)
{
    struct snoop_group *group;

    if (snoop) {
        HMAP_FOR_EACH_SAFE (group, node, &snoop->groups) {
            group_free(snoop, group);
        }
        hmap_destroy(&snoop->groups);
        hmap_destroy(&snoop->members);
        free(snoop);
    }
}

static struct snoop_group *
group_find(const struct ipoib_snoop *snoop, const struct in6_addr *ip)
{
    struct snoop_group *group;

    HMAP_FOR_EACH_WITH_HASH (group, node, hash_bytes(ip, sizeof *ip, 0),
                             &snoop->groups) {
        if (ipv6_addr_equals(&group->ip, ip)) {
            return group;
        }
    }
    return NULL;
}

static uint32_t
mac_hash(const struct ipoib_snoop *snoop, struct eth_addr mac)
{
    return hash_mac(mac, 0, snoop->basis);
}

/* The host 'mac' as a member of 'group', or of any group if that is NULL. */
static struct snoop_member *
member_find(const struct ipoib_snoop *snoop, const struct snoop_group *group,
            struct eth_addr mac)
{
    struct snoop_member *member;

    HMAP_FOR_EACH_WITH_HASH (member, by_mac, mac_hash(snoop, mac),
                             &snoop->members) {
        if (eth_addr_equals(member->mac, mac)
            && (!group || member->group == group)) {
            return member;
        }
    }
    return NULL;
}

/* True if the host 'mac' may be in one more group. */
static bool
host_has_room(const struct ipoib_snoop *snoop, struct eth_addr mac)
{
    struct snoop_member *member;
    size_t n = 0;

    HMAP_FOR_EACH_WITH_HASH (member, by_mac, mac_hash(snoop, mac),
                             &snoop->members) {
        n += eth_addr_equals(member->mac, mac);
    }
    return n < MAX_HOST_GROUPS && hmap_count(&snoop->members) < MAX_MEMBERS;
}

/* Adds the host 'mac', which is not there, to 'group'. */
static void
member_add(struct ipoib_snoop *snoop, struct snoop_group *group,
           struct eth_addr mac)
{
    struct snoop_member *member = xmalloc(sizeof *member);

    member->group = group;
    member->mac = mac;
    ovs_list_push_back(&group->members, &member->node);
    hmap_insert(&snoop->members, &member->by_mac, mac_hash(snoop, mac));
}

void
ipoib_snoop_report(struct ipoib_snoop *snoop, const struct in6_addr *ip,
                   struct eth_addr mac)
{
    struct snoop_group *group = group_find(snoop, ip);
    bool is_new = !group;

    if (group && member_find(snoop, group, mac)) {
        return;
    }
    if (!host_has_room(snoop, mac)
        || (is_new && hmap_count(&snoop->groups) >= MAX_GROUPS)) {
        COVERAGE_INC(ipoib_snoop_too_many);
        return;
    }
    if (is_new) {
        group = xzalloc(sizeof *group);
        group->ip = *ip;
        ovs_list_init(&group->members);
        hmap_insert(&snoop->groups, &group->node,
                    hash_bytes(ip, sizeof *ip, 0));
    }
    member_add(snoop, group, mac);
    if (is_new) {
        snoop->ops->joined(snoop->aux, ip);
    }
}

/* Takes 'member' out of its group. */
static void
member_remove(struct ipoib_snoop *snoop, struct snoop_member *member,
              long long int now)
{
    struct snoop_group *group = member->group;

    member_free(snoop, member);
    if (ovs_list_is_empty(&group->members)) {
        group->expires = now + IPOIB_SNOOP_LAST_MEMBER;
        snoop->next_expiry = MIN(snoop->next_expiry, group->expires);
    }
}

void
ipoib_snoop_leave(struct ipoib_snoop *snoop, const struct in6_addr *ip,
                  struct eth_addr mac, long long int now)
{
    struct snoop_group *group = group_find(snoop, ip);
    struct snoop_member *member = group ? member_find(snoop, group, mac)
                                        : NULL;

    if (member) {
        member_remove(snoop, member, now);
    }
}

void
ipoib_snoop_host_gone(struct ipoib_snoop *snoop, struct eth_addr mac,
                      long long int now)
{
    struct snoop_member *member;

    while ((member = member_find(snoop, NULL, mac))) {
        member_remove(snoop, member, now);
    }
}

void
ipoib_snoop_run(struct ipoib_snoop *snoop, long long int now)
{
    struct snoop_group *group;

    if (now < snoop->next_expiry) {
        return;
    }
    snoop->next_expiry = LLONG_MAX;
    HMAP_FOR_EACH_SAFE (group, node, &snoop->groups) {
        if (!ovs_list_is_empty(&group->members)) {
            continue;
        }
        if (now >= group->expires) {
            struct in6_addr ip = group->ip;

            group_free(snoop, group);
            snoop->ops->left(snoop->aux, &ip);
        } else {
            snoop->next_expiry = MIN(snoop->next_expiry, group->expires);
        }
    }
}

void
ipoib_snoop_wait(struct ipoib_snoop *snoop)
{
    if (snoop->next_expiry != LLONG_MAX) {
        poll_timer_wait_until(snoop->next_expiry);
    }
}


/* Messages. */

/* A group record of IGMPv3 (RFC 3376, 4.2.12) or MLDv2 (RFC 3810, 5.2.12):
 * a host that includes no source listens to nothing. */
static void
snoop_record(struct ipoib_snoop *snoop, uint8_t type, uint16_t n_sources,
             const struct in6_addr *group, struct eth_addr mac,
             long long int now)
{
    switch (type) {
    case IGMPV3_MODE_IS_INCLUDE:
    case IGMPV3_CHANGE_TO_INCLUDE_MODE:
        if (!n_sources) {
            ipoib_snoop_leave(snoop, group, mac, now);
            break;
        }
        /* Fall through. */
    case IGMPV3_MODE_IS_EXCLUDE:
    case IGMPV3_CHANGE_TO_EXCLUDE_MODE:
    case IGMPV3_ALLOW_NEW_SOURCES:
        ipoib_snoop_report(snoop, group, mac);
        break;
    case IGMPV3_BLOCK_OLD_SOURCES:
    default:
        break;
    }
}

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
            snoop_record(snoop, record->type, ntohs(record->nsrcs), &group,
                         mac, now);
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
            ipoib_snoop_report(snoop, &group, mac);
        }
        break;
    case IGMP_HOST_LEAVE_MESSAGE:
        ipoib_snoop_leave(snoop, &group, mac, now);
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
            snoop_record(snoop, mld[ofs], n_sources, &group, mac, now);
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
    struct in6_addr group;

    if (len < l4_ofs + MLD_HEADER_LEN
        || packet_csum_upperlayer6(ip, l4, IPPROTO_ICMPV6, l4_len)) {
        return;
    }
    if (l4[0] == MLD2_REPORT) {
        snoop_mldv2(snoop, l4, l4_len, mac, now);
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
        ipoib_snoop_report(snoop, &group, mac);
    } else if (l4[0] == MLD_DONE) {
        ipoib_snoop_leave(snoop, &group, mac, now);
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
ipoib_snoop_compose_igmp_query(struct eth_addr mac)
{
    static const uint8_t router_alert[4] = { 0x94, 0x04, 0, 0 };
    struct dp_packet *frame;
    struct ip_header *ip;
    uint8_t *igmp;
    size_t len = IP_HEADER_LEN + sizeof router_alert + IGMPV3_QUERY_HEADER_LEN;
    ovs_be16 checksum;

    frame = query_new(mac, (struct eth_addr) ETH_ADDR_C(01,00,5e,00,00,01),
                      ETH_TYPE_IP, ETH_HEADER_LEN + len);
    ip = ALIGNED_CAST(struct ip_header *,
                      (uint8_t *) dp_packet_data(frame) + ETH_HEADER_LEN);
    ip->ip_ihl_ver = IP_IHL_VER((IP_HEADER_LEN + sizeof router_alert) / 4, 4);
    ip->ip_tos = 0xc0;
    ip->ip_tot_len = htons(len);
    ip->ip_ttl = 1;
    ip->ip_proto = IPPROTO_IGMP;
    put_16aligned_be32(&ip->ip_dst, htonl(0xe0000001));
    memcpy(ip + 1, router_alert, sizeof router_alert);
    ip->ip_csum = csum(ip, IP_HEADER_LEN + sizeof router_alert);

    igmp = (uint8_t *) (ip + 1) + sizeof router_alert;
    igmp[0] = IGMP_HOST_MEMBERSHIP_QUERY;
    igmp[1] = QUERY_RESPONSE_TIME;
    igmp[8] = QUERY_ROBUSTNESS;
    igmp[9] = QUERY_INTERVAL;
    checksum = csum(igmp, IGMPV3_QUERY_HEADER_LEN);
    memcpy(igmp + 2, &checksum, sizeof checksum);
    return frame;
}

struct dp_packet *
ipoib_snoop_compose_mld_query(struct eth_addr mac)
{
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

    frame = query_new(mac, (struct eth_addr) ETH_ADDR_C(33,33,00,00,00,01),
                      ETH_TYPE_IPV6, ETH_HEADER_LEN + IPV6_HEADER_LEN
                                     + sizeof hop_by_hop + MLD_QUERY_LEN);
    ip6 = ALIGNED_CAST(struct ovs_16aligned_ip6_hdr *,
                       (uint8_t *) dp_packet_data(frame) + ETH_HEADER_LEN);
    in6_generate_lla(mac, &src);
    put_16aligned_be32(&ip6->ip6_ctlun.ip6_un1.ip6_un1_flow, htonl(6 << 28));
    ip6->ip6_ctlun.ip6_un1.ip6_un1_plen = htons(sizeof hop_by_hop
                                                + MLD_QUERY_LEN);
    ip6->ip6_ctlun.ip6_un1.ip6_un1_nxt = IPPROTO_HOPOPTS;
    ip6->ip6_ctlun.ip6_un1.ip6_un1_hlim = 1;
    memcpy(&ip6->ip6_src, &src, sizeof src);
    memcpy(&ip6->ip6_dst, &in6addr_all_hosts, sizeof in6addr_all_hosts);
    memcpy(ip6 + 1, hop_by_hop, sizeof hop_by_hop);

    mld = (uint8_t *) (ip6 + 1) + sizeof hop_by_hop;
    mld[0] = MLD_QUERY;
    memcpy(mld + 4, &response_time, sizeof response_time);
    mld[24] = QUERY_ROBUSTNESS;
    mld[25] = QUERY_INTERVAL;
    checksum = packet_csum_upperlayer6(ip6, mld, IPPROTO_ICMPV6,
                                       MLD_QUERY_LEN);
    memcpy(mld + 2, &checksum, sizeof checksum);
    return frame;
}
