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
#include "ipoib-control-private.h"

#include "coverage.h"
#include "dp-packet.h"
#include "ipoib-dhcp.h"
#include "ovs-atomic.h"
#include "timeval.h"
#include "util.h"

/* With options:proxy=reply, what was confirmed within this time, in ms, is
 * answered for. */
#define PROXY_FRESH 60000

static const struct eth_addr eth_addr_null;

COVERAGE_DEFINE(ipoib_control_rx);
COVERAGE_DEFINE(ipoib_control_tx);


/* Learning. */

struct ipoib_host *
ipoib_control_learn_host(struct ipoib_partition *part, struct eth_addr mac,
                         const struct in6_addr *ip, long long int now)
{
    struct ipoib_host *host;
    unsigned int changes;
    uint32_t old_qpn;

    if (eth_addr_is_multicast(mac) || eth_addr_is_zero(mac)) {
        return NULL;
    }
    if (ipoib_neigh_find_mac(part->shared.neighs, mac)) {
        /* A neighbour's stand-in MAC comes back from the Ethernet side. */
        return NULL;
    }
    if (ipoib_partition_is_peers_mac(part, mac, now)) {
        return NULL;
    }
    if (ip && !ipoib_ip_is_station(ip)) {
        ip = NULL;
    }
    if (ip) {
        host = ipoib_host_find_ip(part->shared.hosts, ip);
        if (host && !eth_addr_equals(host->mac, mac)) {
            ipoib_known_forget(part->known, host->mac, ip);
        }
    }
    host = ipoib_host_learn(part->shared.hosts, mac, 0, ip, now, &changes);
    if (!host) {
        return NULL;
    }
    if (ip) {
        ipoib_known_add(part->known, mac, ip, now);
    }
    old_qpn = host->qpn;
    ipoib_hostqps_assign(part->hostqps, part->shared.hosts, host);
    if (host->qpn != old_qpn) {
        ipoib_partition_note_standin(part, host, true);
        if (old_qpn) {
            ipoib_partition_announce(part, host);
        }
    }
    if (changes) {
        part->remember = true;
        ipoib_partition_note_change(part, true, mac);
    }
    if (ip && changes & (IPOIB_HOST_NEW_IP | IPOIB_HOST_MOVED_IP)) {
        /* Who speaks last has the address. */
        ipoib_neigh_forget_ip(part->shared.neighs, ip);
        if (!IN6_IS_ADDR_V4MAPPED(ip)) {
            struct in6_addr group = ipoib_solicited_node(ip);

            ipoib_snoop_assume(part->snoop, &group, mac);
        }
    }
    return host;
}

void
ipoib_control_announce_neigh(struct ipoib_partition *part,
                             const struct ipoib_neigh *neigh)
{
    for (size_t i = 0; i < ipoib_neigh_n_ips(neigh); i++) {
        const struct in6_addr *ip = ipoib_neigh_ip(neigh, i);
        ovs_be32 ip4 = in6_addr_get_mapped_ipv4(ip);
        struct dp_packet *frame;

        if (ip4) {
            frame = ipoib_compose_arp_eth(ARP_OP_REQUEST, false, neigh->mac,
                                          eth_addr_broadcast, neigh->mac, ip4,
                                          eth_addr_null, ip4);
        } else {
            frame = ipoib_compose_na_eth(
                ip, &in6addr_all_hosts, 0x20, neigh->mac,
                ipoib_group_mac_ipv6(&in6addr_all_hosts));
        }
        ipoib_count(&part->rx_stats.own, 1);
        ipoib_partition_deliver(part, 0, frame);
    }
}

/* True if 'addr' is one of our own hosts'. */
static bool
addr_is_own(const struct ipoib_partition *part, const struct ipoib_addr *addr)
{
    return ib_gid_equals(&addr->gid, &part->port->gid)
           && ipoib_table_lookup(part->shared.own_qpns, ipoib_addr_qpn(addr))
              != IPOIB_SLOT_NONE;
}

struct ipoib_neigh *
ipoib_control_learn_neigh(struct ipoib_partition *part,
                          const struct ipoib_addr *addr,
                          const struct in6_addr *ip, uint16_t slid,
                          long long int now)
{
    struct ipoib_neigh *neigh;
    unsigned int changes;
    uint32_t mask;

    if (!ipoib_addr_is_station(addr) || addr_is_own(part, addr)
        || ipoib_peers_has(&part->peers, &addr->gid)) {
        return NULL;
    }
    atomic_read_relaxed(&part->shared.lid_mask, &mask);
    if (ip && !ipoib_ip_is_station(ip)) {
        ip = NULL;
    }
    neigh = ipoib_neigh_learn(part->shared.neighs, addr, ip, slid & mask, now,
                              &changes);
    if (!neigh) {
        return NULL;
    }
    if (ip && changes & (IPOIB_NEIGH_NEW_IP | IPOIB_NEIGH_MOVED_IP)) {
        struct ipoib_host *host = ipoib_host_find_ip(part->shared.hosts, ip);

        if (host) {
            ipoib_known_forget(part->known, host->mac, ip);
            ipoib_host_forget_ip(part->shared.hosts, ip);
        }
    }
    if (changes & IPOIB_NEIGH_NEW) {
        /* Another gateway may have named it on Ethernet before it was heard
         * here. */
        struct ipoib_host *host = ipoib_host_find(part->shared.hosts,
                                                  neigh->mac, 0);

        if (host) {
            ipoib_host_remove(part->shared.hosts, host);
        }
    }
    if (changes & IPOIB_NEIGH_REBORN
        && ipoib_partition_neigh_is_ours(part, &neigh->addr.gid)) {
        ipoib_control_announce_neigh(part, neigh);
    }
    /* Each time, as the answer to an earlier doubt may be out of date. */
    ipoib_partition_suspect_path(part, neigh, slid & mask);
    if (changes) {
        part->remember = true;
        ipoib_partition_note_change(part, false, neigh->mac);
    }
    return neigh;
}

/* The MAC under which 'addr' is known on the Ethernet side: a host's own, or a
 * stand-in MAC.  False if 'addr' is nobody's. */
static bool
mac_of_addr(struct ipoib_partition *part, const struct ipoib_addr *addr,
            long long int now, struct eth_addr *mac)
{
    struct ipoib_neigh *neigh;

    if (addr_is_own(part, addr)) {
        struct ipoib_host *host = ipoib_partition_host_of_qpn(
            part, ipoib_addr_qpn(addr));

        if (host) {
            *mac = host->mac;
        }
        return host != NULL;
    }
    neigh = ipoib_control_learn_neigh(part, addr, NULL, 0, now);
    if (neigh) {
        *mac = neigh->mac;
    }
    return neigh != NULL;
}

/* The 20-byte address under which 'mac' is known on the fabric. */
static bool
addr_of_mac(struct ipoib_partition *part, struct eth_addr mac,
            long long int now, struct ipoib_addr *addr)
{
    struct ipoib_neigh *neigh = ipoib_neigh_find_mac(part->shared.neighs, mac);
    struct ipoib_host *host;

    if (neigh) {
        *addr = neigh->addr;
        return true;
    }
    host = ipoib_control_learn_host(part, mac, NULL, now);
    if (host) {
        *addr = ipoib_partition_host_addr(part, host);
    }
    return host != NULL;
}

/* The neighbour that sent 'msg', whose source IP is 'src'. */
static uint32_t
sender_slot(const struct ipoib_partition *part, const struct ipoib_msg *msg,
            const struct in6_addr *src)
{
    const struct ipoib_neigh_table *neighs = part->shared.neighs;
    uint32_t slot = IPOIB_SLOT_NONE, mask;

    atomic_read_relaxed(&CONST_CAST(struct ipoib_partition *, part)
                        ->shared.lid_mask, &mask);
    if (msg->has_grh) {
        slot = ipoib_neigh_by_gid(neighs, &msg->sgid, msg->sqpn);
    } else {
        uint64_t key = ipoib_neigh_lid_key(msg->slid & mask, msg->sqpn);

        ipoib_neigh_by_lid(neighs, &key, 1, &slot);
    }
    if (slot == IPOIB_SLOT_NONE && ipoib_ip_is_station(src)) {
        slot = ipoib_neigh_by_ip(neighs, src);
    }
    return slot;
}

/* The stand-in MAC of that neighbour; the port's own if it is not known. */
static struct eth_addr
sender_mac(const struct ipoib_partition *part, const struct ipoib_msg *msg,
           const struct in6_addr *src)
{
    uint32_t slot = sender_slot(part, msg, src);

    return (slot == IPOIB_SLOT_NONE ? part->shared.mac
            : ipoib_neigh_of_slot(part->shared.neighs, slot)->mac);
}

/* If 'packet', from the IPoIB header on, is a router advertisement, as 'info'
 * says, with an MTU of more than 'mtu', lowers that and counts it. */
static void
lower_ra(struct dp_packet *packet, size_t l4_ofs,
         const struct ipoib_nd_info *info, uint32_t mtu,
         atomic_uint64_t *counter)
{
    if (info->type == ND_ROUTER_ADVERT
        && ipoib_mtu_lower_ra((uint8_t *) dp_packet_data(packet)
                              + IPOIB_HEADER_LEN,
                              dp_packet_size(packet) - IPOIB_HEADER_LEN,
                              l4_ofs, mtu)) {
        ipoib_count(counter, 1);
    }
}


/* From the fabric. */

/* The host that a unicast packet to QP 'dqpn' and IP 'dst' is for. */
static struct ipoib_host *
destination_host(const struct ipoib_partition *part, uint32_t dqpn,
                 const struct in6_addr *dst)
{
    struct ipoib_host *host = ipoib_partition_host_of_qpn(part, dqpn);

    return host ? host : ipoib_host_find_ip(part->shared.hosts, dst);
}

/* SLID of the sender of 'msg', 0 if it says nothing: behind an IB router it is
 * the router's. */
static uint16_t
usable_slid(const struct ipoib_partition *part, const struct ipoib_msg *msg)
{
    return msg->has_grh && ib_gid_prefix(&msg->sgid)
                           != ib_gid_prefix(&part->port->gid) ? 0 : msg->slid;
}

/* Answers the request 'arp' of 'neigh' for a host that is known and fresh, if
 * that is wanted. */
static bool
proxy_arp_to_ib(struct ipoib_partition *part, const struct ipoib_arp *arp,
                struct ipoib_neigh *neigh, long long int now)
{
    ovs_be32 spa = get_16aligned_be32(&arp->spa);
    ovs_be32 tpa = get_16aligned_be32(&arp->tpa);
    struct in6_addr ip = in6_addr_mapped_ipv4(tpa);
    struct ipoib_host *host;
    struct ipoib_addr sha;

    if (!part->config.proxy_reply || arp->op != htons(ARP_OP_REQUEST)
        || !spa || spa == tpa) {
        return false;
    }
    host = ipoib_host_find_ip(part->shared.hosts, &ip);
    if (!host || now - host->heard > PROXY_FRESH) {
        return false;
    }
    sha = ipoib_control_asked_addr(part, host, neigh);
    ipoib_count(&part->rx_stats.answered, 1);
    ipoib_count(&part->tx_stats.own, 1);
    ipoib_partition_send_neigh(
        part, ipoib_addr_qpn(&sha), neigh,
        ipoib_compose_arp_ib(ARP_OP_REPLY, false, &sha, tpa, &neigh->addr,
                             spa));
    return true;
}

/* If 'msg' came to a group, and another gateway is to deliver it, counts that
 * and returns true. */
static bool
drop_not_ours(struct ipoib_partition *part, const struct ipoib_msg *msg)
{
    if (msg->multicast
        && (ipoib_peers_has(&part->peers, &msg->sgid)
            || !ipoib_partition_neigh_is_ours(part, &msg->sgid))) {
        ipoib_count(&part->rx_stats.drop_peer, 1);
        return true;
    }
    return false;
}

static void
rx_arp(struct ipoib_partition *part, struct ipoib_msg *msg, long long int now)
{
    const struct ipoib_header *header = dp_packet_data(msg->packet);
    const struct ipoib_arp *arp
        = ipoib_arp_parse(header + 1, dp_packet_size(msg->packet)
                                      - sizeof *header);
    bool rarp = header->type == htons(ETH_TYPE_RARP);
    struct eth_addr dst = eth_addr_broadcast;
    struct in6_addr spa, tpa;
    struct ipoib_neigh *neigh;
    uint16_t op;

    if (!arp) {
        ipoib_count(&part->rx_stats.drop_bad_arp, 1);
        return;
    }
    op = ntohs(arp->op);
    spa = in6_addr_mapped_ipv4(get_16aligned_be32(&arp->spa));
    tpa = in6_addr_mapped_ipv4(get_16aligned_be32(&arp->tpa));
    if (ipoib_control_guard_rx(part, msg, &arp->sha, rarp ? NULL : &spa,
                               now)) {
        return;
    }
    neigh = ipoib_control_learn_neigh(part, &arp->sha, rarp ? NULL : &spa,
                                      usable_slid(part, msg), now);
    if (!neigh) {
        ipoib_count(addr_is_own(part, &arp->sha) ? &part->rx_stats.drop_own
                    : ipoib_peers_has(&part->peers, &arp->sha.gid)
                    ? &part->rx_stats.drop_peer
                    : &part->rx_stats.drop_bad_arp, 1);
        return;
    }
    if (drop_not_ours(part, msg)) {
        return;
    }
    if (!msg->multicast) {
        struct ipoib_host *host = destination_host(part, msg->dqpn, &tpa);

        if (!host) {
            ipoib_count(&part->rx_stats.drop_no_host, 1);
            return;
        }
        dst = host->mac;
    } else if (!rarp && proxy_arp_to_ib(part, arp, neigh, now)) {
        return;
    }
    ipoib_partition_deliver(
        part, msg->rxq,
        ipoib_compose_arp_eth(op, rarp, neigh->mac, dst, neigh->mac,
                              get_16aligned_be32(&arp->spa),
                              rarp ? neigh->mac
                              : op == ARP_OP_REQUEST ? eth_addr_null : dst,
                              get_16aligned_be32(&arp->tpa)));
}

/* Replaces the IPoIB header of 'packet' by an Ethernet header, and pads. */
static void
ipoib_to_frame(struct dp_packet *packet, struct eth_addr src,
               struct eth_addr dst)
{
    const struct ipoib_header *header = dp_packet_data(packet);
    ovs_be16 type = header->type;
    struct eth_header *eth;
    size_t size;

    dp_packet_reset_packet(packet, IPOIB_HEADER_LEN);
    eth = dp_packet_push_zeros(packet, ETH_HEADER_LEN);
    eth->eth_dst = dst;
    eth->eth_src = src;
    eth->eth_type = type;
    size = dp_packet_size(packet);
    if (size < ETH_TOTAL_MIN) {
        dp_packet_put_zeros(packet, ETH_TOTAL_MIN - size);
    }
}

/* Delivers the IP packet of 'msg' (taken from it) as it is. */
static void
rx_deliver_ip(struct ipoib_partition *part, struct ipoib_msg *msg,
              struct eth_addr src_mac, const struct in6_addr *dst)
{
    struct dp_packet *packet = msg->packet;
    struct eth_addr dst_mac;

    if (msg->multicast) {
        ovs_be32 dst4 = in6_addr_get_mapped_ipv4(dst);

        dst_mac = ipv6_addr_is_multicast(dst) ? ipoib_group_mac_ipv6(dst)
                  : ip_is_multicast(dst4) ? ipoib_group_mac_ipv4(dst4)
                  : eth_addr_broadcast;
    } else {
        struct ipoib_host *host = destination_host(part, msg->dqpn, dst);

        if (!host) {
            ipoib_count(&part->rx_stats.drop_no_host, 1);
            return;
        }
        dst_mac = host->mac;
    }
    ipoib_to_frame(packet, src_mac, dst_mac);
    ipoib_partition_deliver(part, msg->rxq, packet);
    msg->packet = NULL;
}

static bool
proxy_ns_to_ib(struct ipoib_partition *part, const struct ipoib_nd_info *info,
               struct ipoib_neigh *neigh, long long int now)
{
    struct ipoib_host *host;
    struct ipoib_addr addr;

    if (!part->config.proxy_reply || info->type != ND_NEIGHBOR_SOLICIT
        || !ipv6_addr_is_multicast(&info->dst)
        || !ipoib_ip_is_station(&info->src)) {
        return false;
    }
    host = ipoib_host_find_ip(part->shared.hosts, &info->target);
    if (!host || now - host->heard > PROXY_FRESH) {
        return false;
    }
    addr = ipoib_control_asked_addr(part, host, neigh);
    ipoib_count(&part->rx_stats.answered, 1);
    ipoib_count(&part->tx_stats.own, 1);
    ipoib_partition_send_neigh(
        part, ipoib_addr_qpn(&addr), neigh,
        ipoib_compose_na_ib(&info->target, &info->src,
                            0x60 | (host->is_router ? 0x80 : 0), &addr));
    return true;
}

/* Learns from the ND message 'info' of a neighbour.  Redirects tell of a third
 * station, whose address is not the sender's. */
static struct ipoib_neigh *
rx_learn_nd(struct ipoib_partition *part, const struct ipoib_msg *msg,
            const struct ipoib_nd_info *info, long long int now)
{
    const struct in6_addr *ip = info->type == ND_NEIGHBOR_ADVERT
                                ? &info->target : &info->src;
    struct ipoib_neigh *neigh;

    if (!info->has_lladdr || info->type == ND_REDIRECT) {
        return NULL;
    }
    neigh = ipoib_control_learn_neigh(part, &info->lladdr.ib, ip,
                                      usable_slid(part, msg), now);
    if (neigh && (info->type == ND_ROUTER_ADVERT
                  || info->type == ND_NEIGHBOR_ADVERT)) {
        neigh->is_router = info->type == ND_ROUTER_ADVERT
                           || info->na_flags & 0x80;
        ipoib_neigh_set_routes(part->shared.neighs, neigh,
                               neigh->is_router || neigh->forwards);
    }
    return neigh;
}

static void
rx_nd(struct ipoib_partition *part, struct ipoib_msg *msg, long long int now)
{
    const uint8_t *ip = (const uint8_t *) dp_packet_data(msg->packet)
                        + IPOIB_HEADER_LEN;
    size_t len = dp_packet_size(msg->packet) - IPOIB_HEADER_LEN;
    struct ipoib_nd_info info;
    struct ipoib_neigh *neigh;
    struct eth_addr lladdr = eth_addr_null;
    struct eth_addr src;

    if (!ipoib_nd_parse_ib(ip, len, msg->l4_ofs, &info)) {
        ipoib_count(&part->rx_stats.drop_bad_nd, 1);
        return;
    }
    if (info.has_lladdr && info.type != ND_REDIRECT
        && ipoib_control_guard_rx(part, msg, &info.lladdr.ib,
                                  info.type == ND_NEIGHBOR_ADVERT
                                  ? &info.target : &info.src, now)) {
        return;
    }
    neigh = rx_learn_nd(part, msg, &info, now);
    if (drop_not_ours(part, msg)) {
        return;
    }
    if (info.has_lladdr
        && !mac_of_addr(part, &info.lladdr.ib, now, &lladdr)) {
        ipoib_count(&part->rx_stats.drop_bad_nd, 1);
        return;
    }
    if (info.has_lladdr && info.type != ND_REDIRECT && !neigh) {
        ipoib_count(&part->rx_stats.drop_own, 1);
        return;
    }
    if (neigh && proxy_ns_to_ib(part, &info, neigh, now)) {
        return;
    }
    src = neigh ? neigh->mac : sender_mac(part, msg, &info.src);
    ipoib_nd_to_eth(msg->packet, IPOIB_HEADER_LEN, msg->l4_ofs, lladdr);
    lower_ra(msg->packet, msg->l4_ofs, &info,
             part->config.eth_mtu
             ? MIN(part->config.eth_mtu, ipoib_partition_mtu(part))
             : ipoib_partition_mtu(part), &part->rx_stats.ra_lowered);
    rx_deliver_ip(part, msg, src, &info.dst);
}

/* Source and destination of the IP packet at 'ip', whose header is there. */
static void
ip_addresses(ovs_be16 type, const void *ip, struct in6_addr *src,
             struct in6_addr *dst)
{
    if (type == htons(ETH_TYPE_IP)) {
        const struct ip_header *ip4 = ip;

        *src = in6_addr_mapped_ipv4(get_16aligned_be32(&ip4->ip_src));
        *dst = in6_addr_mapped_ipv4(get_16aligned_be32(&ip4->ip_dst));
    } else {
        const struct ovs_16aligned_ip6_hdr *ip6 = ip;

        memcpy(src, &ip6->ip6_src, sizeof *src);
        memcpy(dst, &ip6->ip6_dst, sizeof *dst);
    }
}

static void
rx_ip(struct ipoib_partition *part, struct ipoib_msg *msg, long long int now)
{
    const struct ipoib_header *header = dp_packet_data(msg->packet);
    struct in6_addr src, dst;

    if (msg->l4_ofs) {
        ipoib_snoop_from_fabric(part->snoop,
                                header->type != htons(ETH_TYPE_IP), header + 1,
                                dp_packet_size(msg->packet) - sizeof *header,
                                msg->l4_ofs, now);
    }
    if (drop_not_ours(part, msg)) {
        return;
    }
    ip_addresses(header->type, header + 1, &src, &dst);
    rx_deliver_ip(part, msg, sender_mac(part, msg, &src), &dst);
}

/* Sends the ICMP error of 'msg' (taken from it) to the sender of the packet
 * that was too long, in the name of the host that it was for. */
static void
rx_error(struct ipoib_partition *part, struct ipoib_msg *msg)
{
    struct ipoib_host *host = ipoib_partition_host_of_qpn(part, msg->dqpn);
    uint32_t slot = sender_slot(part, msg, &msg->src);
    struct ipoib_neigh *neigh = NULL;

    if (slot != IPOIB_SLOT_NONE) {
        neigh = ipoib_neigh_of_slot(part->shared.neighs, slot);
    }
    if (!neigh) {
        ipoib_count(&part->rx_stats.pmtu_suppressed, 1);
        return;
    }
    ipoib_count(&part->tx_stats.own, 1);
    ipoib_partition_send_neigh(part, host ? host->qpn : 0, neigh,
                               msg->packet);
    msg->packet = NULL;
    ipoib_count(&part->rx_stats.pmtu_errors, 1);
}

/* A neighbour's data came with another LID than it had.  That is no proof, as
 * anybody may send data in its name, but reason enough to ask the SA. */
static void
rx_moved(struct ipoib_partition *part, const struct ipoib_msg *msg)
{
    struct ipoib_neigh *neigh = ipoib_neigh_of_slot(part->shared.neighs,
                                                    msg->slot);
    uint16_t slid = usable_slid(part, msg);
    uint32_t mask;

    atomic_read_relaxed(&part->shared.lid_mask, &mask);
    if (neigh && slid && ipoib_addr_qpn(&neigh->addr) == msg->sqpn) {
        ipoib_partition_suspect_path(part, neigh, slid & mask);
    }
}


/* From the Ethernet side. */

/* Answers the request 'arp' of a host for a neighbour that is known and fresh,
 * if that is wanted. */
static bool
proxy_arp_to_eth(struct ipoib_partition *part,
                 const struct arp_eth_header *arp, long long int now)
{
    ovs_be32 spa = get_16aligned_be32(&arp->ar_spa);
    ovs_be32 tpa = get_16aligned_be32(&arp->ar_tpa);
    struct in6_addr ip = in6_addr_mapped_ipv4(tpa);
    struct ipoib_neigh *neigh;

    if (!part->config.proxy_reply || arp->ar_op != htons(ARP_OP_REQUEST)
        || !spa || spa == tpa) {
        return false;
    }
    neigh = ipoib_neigh_find_ip(part->shared.neighs, &ip);
    if (!neigh || now - ipoib_neigh_confirmed(neigh) > PROXY_FRESH) {
        return false;
    }
    ipoib_count(&part->tx_stats.answered, 1);
    ipoib_count(&part->rx_stats.own, 1);
    ipoib_partition_deliver(
        part, 0, ipoib_compose_arp_eth(ARP_OP_REPLY, false, neigh->mac,
                                       arp->ar_sha, neigh->mac, tpa,
                                       arp->ar_sha, spa));
    return true;
}

/* If another gateway is to send a frame from 'src' to the group 'dst', counts
 * that and returns true. */
static bool
tx_not_ours(struct ipoib_partition *part, struct eth_addr src,
            struct eth_addr dst)
{
    if (eth_addr_is_multicast(dst)
        && !ipoib_partition_host_is_ours(part, src)) {
        ipoib_count(&part->tx_stats.drop_peer, 1);
        return true;
    }
    return false;
}

/* A RARP of 'host', as hypervisors send after a migration, and bonds when they
 * fail over: on the fabric, gratuitous ARP for what is known of the host says
 * the same, also if another port knew it; without any address, RARP of
 * hardware type 32 does. */
static void
tx_rarp(struct ipoib_partition *part, struct ipoib_host *host,
        const struct arp_eth_header *arp, long long int now)
{
    struct in6_addr ips[IPOIB_KNOWN_MAX_IPS];
    struct eth_addr mac = host->mac;
    struct ipoib_addr sha;
    size_t n;

    n = ipoib_known_take(part->known, mac, now, ips);
    for (size_t i = n; host && i > 0; i--) {
        host = ipoib_control_learn_host(part, mac, &ips[i - 1], now);
    }
    if (!host) {
        ipoib_count(&part->tx_stats.drop_loop, 1);
        return;
    }
    sha = ipoib_partition_host_addr(part, host);
    if (host->n_ips) {
        ipoib_count(&part->tx_stats.taken, 1);
        ipoib_partition_announce(part, host);
        return;
    }
    ipoib_partition_send_group(
        part, host->qpn, &part->shared.broadcast,
        ipoib_compose_arp_ib(ntohs(arp->ar_op), true, &sha,
                             get_16aligned_be32(&arp->ar_spa), &sha,
                             get_16aligned_be32(&arp->ar_tpa)));
}

static void
tx_arp(struct ipoib_partition *part, struct ipoib_msg *msg, long long int now)
{
    const struct eth_header *eth = dp_packet_data(msg->packet);
    const struct arp_eth_header *arp
        = ipoib_arp_eth_parse(eth + 1,
                              dp_packet_size(msg->packet) - sizeof *eth);
    struct ipoib_neigh *neigh = NULL;
    struct dp_packet *packet;
    struct ipoib_host *host;
    struct ipoib_addr sha;
    struct in6_addr spa;
    bool rarp;

    if (!arp) {
        ipoib_count(&part->tx_stats.drop_bad_arp, 1);
        return;
    }
    rarp = eth->eth_type == htons(ETH_TYPE_RARP);
    spa = in6_addr_mapped_ipv4(get_16aligned_be32(&arp->ar_spa));
    if (ipoib_control_guard_tx(part, eth->eth_src, arp->ar_sha,
                               rarp ? NULL : &spa, now)) {
        return;
    }
    host = ipoib_control_learn_host(part, arp->ar_sha, rarp ? NULL : &spa,
                                    now);
    if (!host) {
        ipoib_count(ipoib_neigh_find_mac(part->shared.neighs, arp->ar_sha)
                    || ipoib_partition_is_peers_mac(part, arp->ar_sha, now)
                    ? &part->tx_stats.drop_loop
                    : &part->tx_stats.drop_bad_arp, 1);
        return;
    }
    if (tx_not_ours(part, eth->eth_src, eth->eth_dst)) {
        return;
    }
    if (eth_addr_equals(eth->eth_dst, part->shared.mac)) {
        /* The answer to ask_host(). */
        ipoib_count(&part->tx_stats.taken, 1);
        ipoib_partition_announce(part, host);
        return;
    }
    if (!eth_addr_is_multicast(eth->eth_dst)) {
        neigh = ipoib_neigh_find_mac(part->shared.neighs, eth->eth_dst);
        if (!neigh) {
            struct in6_addr tpa
                = in6_addr_mapped_ipv4(get_16aligned_be32(&arp->ar_tpa));

            ipoib_count(&part->tx_stats.drop_unknown_mac, 1);
            if (!rarp && arp->ar_op == htons(ARP_OP_REQUEST)
                && ipoib_neigh_was_forgotten(part->shared.neighs,
                                             eth->eth_dst)) {
                ipoib_control_seek(part, host, eth->eth_dst, NULL, &tpa);
            }
            return;
        }
    } else if (!rarp && proxy_arp_to_eth(part, arp, now)) {
        return;
    }
    if (rarp) {
        tx_rarp(part, host, arp, now);
        return;
    }
    sha = (neigh && arp->ar_op == htons(ARP_OP_REPLY)
           ? ipoib_control_asked_addr(part, host, neigh)
           : ipoib_partition_host_addr_for(part, host, neigh));
    packet = ipoib_compose_arp_ib(ntohs(arp->ar_op), false, &sha,
                                  get_16aligned_be32(&arp->ar_spa),
                                  neigh && arp->ar_op == htons(ARP_OP_REPLY)
                                  ? &neigh->addr : NULL,
                                  get_16aligned_be32(&arp->ar_tpa));
    if (neigh) {
        ipoib_partition_send_neigh(part, ipoib_addr_qpn(&sha), neigh, packet);
    } else {
        ipoib_partition_send_group(part, host->qpn, &part->shared.broadcast,
                                   packet);
    }
}

/* Replaces the Ethernet header of the IP packet 'frame' by an IPoIB header,
 * and takes padding away. */
static bool
frame_to_ipoib(struct dp_packet *frame)
{
    const struct eth_header *eth = dp_packet_data(frame);
    ovs_be16 type = eth->eth_type;
    struct ipoib_header *header;
    size_t ip_len, l4_ofs;

    if (ipoib_packet_check_ip(ntohs(type), eth + 1,
                              dp_packet_size(frame) - sizeof *eth, &ip_len,
                              &l4_ofs) == IPOIB_IP_BAD) {
        return false;
    }
    dp_packet_set_size(frame, ETH_HEADER_LEN + ip_len);
    dp_packet_reset_packet(frame, ETH_HEADER_LEN - IPOIB_HEADER_LEN);
    header = dp_packet_data(frame);
    header->type = type;
    header->reserved = 0;
    return true;
}

static bool
proxy_ns_to_eth(struct ipoib_partition *part, const struct ipoib_nd_info *info,
                struct eth_addr asker, long long int now)
{
    struct ipoib_neigh *neigh;

    if (!part->config.proxy_reply || info->type != ND_NEIGHBOR_SOLICIT
        || !ipv6_addr_is_multicast(&info->dst)
        || !ipoib_ip_is_station(&info->src)) {
        return false;
    }
    neigh = ipoib_neigh_find_ip(part->shared.neighs, &info->target);
    if (!neigh || now - ipoib_neigh_confirmed(neigh) > PROXY_FRESH) {
        return false;
    }
    ipoib_count(&part->tx_stats.answered, 1);
    ipoib_count(&part->rx_stats.own, 1);
    ipoib_partition_deliver(
        part, 0, ipoib_compose_na_eth(&info->target, &info->src,
                                      0x60 | (neigh->is_router ? 0x80 : 0),
                                      neigh->mac, asker));
    return true;
}

/* Learns from the ND message 'info' of the host 'mac'.  An address that the
 * host only tries to get (DAD) is not its own yet, but its solicited-node
 * group is listened to. */
static struct ipoib_host *
tx_learn_nd(struct ipoib_partition *part, const struct ipoib_nd_info *info,
            struct eth_addr mac, long long int now)
{
    bool own = !info->has_lladdr || eth_addr_equals(info->lladdr.mac, mac);
    struct ipoib_host *host;

    host = ipoib_control_learn_host(part, mac, own ? &info->src : NULL, now);
    if (!host) {
        return NULL;
    }
    if (info->type == ND_NEIGHBOR_ADVERT && own) {
        host = ipoib_control_learn_host(part, mac, &info->target, now);
        if (host) {
            ipoib_host_set_router(part->shared.hosts, host,
                                  info->na_flags & 0x80);
        }
    } else if (info->type == ND_ROUTER_ADVERT) {
        ipoib_host_set_router(part->shared.hosts, host, true);
    } else if (info->type == ND_NEIGHBOR_SOLICIT
               && ipv6_mask_is_any(&info->src)) {
        struct in6_addr group = ipoib_solicited_node(&info->target);

        ipoib_snoop_assume(part->snoop, &group, mac);
    }
    return host;
}

static void
tx_nd(struct ipoib_partition *part, struct ipoib_msg *msg, long long int now)
{
    const struct eth_header *eth = dp_packet_data(msg->packet);
    struct eth_addr dst_mac = eth->eth_dst, src_mac = eth->eth_src;
    struct ipoib_addr lladdr = { .flags_qpn = { 0 } };
    struct ipoib_nd_info info;
    struct ipoib_neigh *neigh;
    struct ipoib_host *host;
    uint32_t sqpn;

    if (!frame_to_ipoib(msg->packet)
        || !ipoib_nd_parse_eth((const uint8_t *) dp_packet_data(msg->packet)
                               + IPOIB_HEADER_LEN,
                               dp_packet_size(msg->packet) - IPOIB_HEADER_LEN,
                               msg->l4_ofs, &info)) {
        ipoib_count(&part->tx_stats.drop_bad_nd, 1);
        return;
    }
    if (ipoib_control_guard_tx(part, src_mac,
                               info.has_lladdr && info.type != ND_REDIRECT
                               ? info.lladdr.mac : src_mac,
                               info.type == ND_NEIGHBOR_ADVERT
                               ? &info.target : &info.src, now)) {
        return;
    }
    host = tx_learn_nd(part, &info, src_mac, now);
    if (!host) {
        ipoib_count(&part->tx_stats.drop_loop, 1);
        return;
    }
    if (tx_not_ours(part, src_mac, dst_mac)) {
        return;
    }
    if (info.has_lladdr
        && !addr_of_mac(part, info.lladdr.mac, now, &lladdr)) {
        ipoib_count(&part->tx_stats.drop_bad_nd, 1);
        return;
    }
    if (proxy_ns_to_eth(part, &info, src_mac, now)) {
        return;
    }
    neigh = ipoib_neigh_find_mac(part->shared.neighs, dst_mac);
    sqpn = host->qpn;
    if (neigh && info.has_lladdr
        && eth_addr_equals(info.lladdr.mac, src_mac)) {
        lladdr = (info.type == ND_NEIGHBOR_ADVERT
                  ? ipoib_control_asked_addr(part, host, neigh)
                  : ipoib_partition_host_addr_for(part, host, neigh));
        sqpn = ipoib_addr_qpn(&lladdr);
    }
    ipoib_nd_to_ib(msg->packet, IPOIB_HEADER_LEN, msg->l4_ofs, &lladdr);
    lower_ra(msg->packet, msg->l4_ofs, &info, ipoib_partition_mtu(part),
             &part->tx_stats.ra_lowered);
    if (ipv6_addr_is_multicast(&info.dst)) {
        struct ib_gid mgid = ipoib_mgid_ipv6(&info.dst, part->pkey,
                                             part->shared.scope);

        ipoib_partition_send_group(part, host->qpn, &mgid, msg->packet);
        msg->packet = NULL;
        return;
    }
    if (!neigh) {
        ipoib_count(&part->tx_stats.drop_unknown_mac, 1);
        if (info.type == ND_NEIGHBOR_SOLICIT
            && ipoib_neigh_was_forgotten(part->shared.neighs, dst_mac)) {
            ipoib_control_seek(part, host, dst_mac, &info.src, &info.target);
        }
        return;
    }
    ipoib_partition_send_neigh(part, sqpn, neigh, msg->packet);
    msg->packet = NULL;
}

/* Learns from an IGMP, MLD or PIM message of the host 'mac'. */
static void
tx_snoop(struct ipoib_partition *part, ovs_be16 type, const void *ip,
         size_t len, size_t l4_ofs, struct eth_addr mac, long long int now)
{
    const struct ip_header *ip4 = ip;

    if (type != htons(ETH_TYPE_IP)) {
        if (*((const uint8_t *) ip + l4_ofs) >= MLD_QUERY) {
            ipoib_snoop_mld(part->snoop, ip, len, l4_ofs, mac, now);
        } else {
            ipoib_snoop_pim(part->snoop, true, ip, len, l4_ofs, now);
        }
    } else if (ip4->ip_proto == IPPROTO_IGMP) {
        ipoib_snoop_igmp(part->snoop, ip, len, l4_ofs, mac, now);
    } else {
        ipoib_snoop_pim(part->snoop, false, ip, len, l4_ofs, now);
    }
}

/* An IP packet to the broadcast group or to another group; IGMP and MLD teach
 * which groups hosts listen to. */
static void
tx_group(struct ipoib_partition *part, struct ipoib_msg *msg,
         const struct ib_gid *mgid, long long int now)
{
    const struct eth_header *eth = dp_packet_data(msg->packet);
    struct eth_addr mac = eth->eth_src;
    ovs_be16 type = eth->eth_type;
    struct ipoib_host *host;
    const void *ip;
    size_t len;

    host = ipoib_control_learn_host(part, mac, NULL, now);
    if (!host) {
        ipoib_count(&part->tx_stats.drop_loop, 1);
        return;
    }
    if (!frame_to_ipoib(msg->packet)) {
        ipoib_count(&part->tx_stats.drop_bad_ip, 1);
        return;
    }
    ip = (const uint8_t *) dp_packet_data(msg->packet) + IPOIB_HEADER_LEN;
    len = dp_packet_size(msg->packet) - IPOIB_HEADER_LEN;
    if (msg->type == IPOIB_MSG_TX_BROADCAST && type == htons(ETH_TYPE_IP)
        && ipoib_dhcp_set_broadcast(CONST_CAST(void *, ip), len)) {
        ipoib_count(&part->tx_stats.dhcp_broadcast, 1);
    }
    if (msg->l4_ofs) {
        tx_snoop(part, type, ip, len, msg->l4_ofs, mac, now);
    }
    if (tx_not_ours(part, mac, eth_addr_broadcast)) {
        return;
    }
    ipoib_partition_send_group(part, host->qpn, mgid, msg->packet);
    msg->packet = NULL;
}

static void
tx_no_path(struct ipoib_partition *part, struct ipoib_msg *msg)
{
    struct ipoib_neigh *neigh = ipoib_neigh_of_slot(part->shared.neighs,
                                                    msg->slot);

    if (!neigh || !frame_to_ipoib(msg->packet)) {
        ipoib_count(&part->tx_stats.drop_no_path, 1);
        return;
    }
    /* From a base QP: bulk traffic is not known by its sender's QPN. */
    ipoib_partition_send_neigh(part, 0, neigh, msg->packet);
    msg->packet = NULL;
}

void
ipoib_control_message(struct ipoib_partition *part, struct ipoib_msg *msg,
                      long long int now)
{
    bool is_beacon = (msg->type == IPOIB_MSG_RX_PEER
                      || msg->type == IPOIB_MSG_TX_PEER);
    bool standby;

    if (ipoib_msg_is_received(msg)) {
        COVERAGE_INC(ipoib_control_rx);
    } else if (ipoib_msg_is_to_send(msg)) {
        COVERAGE_INC(ipoib_control_tx);
    }
    atomic_read_relaxed(&part->shared.standby, &standby);
    if (standby && !is_beacon) {
        /* It came before another gateway was the active one. */
        ipoib_msg_drop(msg, &part->rx_stats.drop_standby,
                       &part->tx_stats.drop_standby);
        return;
    }
    ipoib_host_set_source(part->shared.hosts, msg->in_port);
    switch (msg->type) {
    case IPOIB_MSG_RX_PEER:
    case IPOIB_MSG_TX_PEER:
        ipoib_partition_peer_message(part, msg, now);
        break;
    case IPOIB_MSG_RX_ARP:
        rx_arp(part, msg, now);
        break;
    case IPOIB_MSG_RX_ND:
        rx_nd(part, msg, now);
        break;
    case IPOIB_MSG_RX_IP:
        rx_ip(part, msg, now);
        break;
    case IPOIB_MSG_RX_HINT:
        ipoib_control_rx_hint(part, msg);
        break;
    case IPOIB_MSG_RX_MOVED:
        rx_moved(part, msg);
        break;
    case IPOIB_MSG_RX_ERROR:
        rx_error(part, msg);
        break;
    case IPOIB_MSG_RX_PROBE:
        ipoib_hostqps_probed(part->hostqps, msg->dqpn, now);
        break;
    case IPOIB_MSG_TX_ARP:
        tx_arp(part, msg, now);
        break;
    case IPOIB_MSG_TX_ND:
        tx_nd(part, msg, now);
        break;
    case IPOIB_MSG_TX_BROADCAST:
        tx_group(part, msg, &part->shared.broadcast, now);
        break;
    case IPOIB_MSG_TX_GROUP:
        tx_group(part, msg, &msg->mgid, now);
        break;
    case IPOIB_MSG_TX_NO_PATH:
        tx_no_path(part, msg);
        break;
    case IPOIB_MSG_TX_HINT:
        ipoib_control_tx_hint(part, msg, now);
        break;
    case IPOIB_MSG_TX_ERROR:
        ipoib_count(&part->tx_stats.pmtu_errors, 1);
        ipoib_count(&part->rx_stats.own, 1);
        ipoib_partition_deliver(part, 0, msg->packet);
        msg->packet = NULL;
        break;
    case IPOIB_MSG_TX_HOST:
        ipoib_control_tx_host(part, msg, now);
        break;
    }
    dp_packet_delete(msg->packet);
}

void
ipoib_control_announce_host(struct ipoib_partition *part,
                            const struct ipoib_host *host,
                            const struct in6_addr *ip)
{
    struct ipoib_addr addr = ipoib_partition_host_addr(part, host);
    ovs_be32 ip4 = in6_addr_get_mapped_ipv4(ip);

    ipoib_count(&part->tx_stats.own, 1);
    if (ip4) {
        ipoib_partition_send_group(
            part, host->qpn, &part->shared.broadcast,
            ipoib_compose_arp_ib(ARP_OP_REQUEST, false, &addr, ip4, NULL,
                                 ip4));
    } else {
        struct ib_gid mgid = ipoib_mgid_ipv6(&in6addr_all_hosts, part->pkey,
                                             part->shared.scope);

        ipoib_partition_send_group(
            part, host->qpn, &mgid,
            ipoib_compose_na_ib(ip, &in6addr_all_hosts,
                                0x20 | (host->is_router ? 0x80 : 0), &addr));
    }
}
