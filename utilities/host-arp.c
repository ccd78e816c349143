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
#include "host-station.h"

#include <netinet/icmp6.h>
#include <string.h>

#include "csum.h"
#include "dp-packet.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(host_arp);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

#define IPV6_PLEN_OFS 4          /* Of the payload length. */

#define NA_ROUTER    0x80
#define NA_SOLICITED 0x40
#define NA_OVERRIDE  0x20

/* Sends 'packet', which begins with the IPoIB header, and frees it. */
static void
send_packet(struct host_station *s, struct dp_packet *packet, unsigned int id,
            const struct ipoib_addr *addr)
{
    host_station_send_to(s, dp_packet_data(packet), dp_packet_size(packet),
                         id, addr);
    dp_packet_delete(packet);
}

static void
send_packet_group(struct host_station *s, struct dp_packet *packet,
                  unsigned int id, const struct ib_gid *mgid)
{
    host_station_send_group(s, dp_packet_data(packet), dp_packet_size(packet),
                            id, mgid);
    dp_packet_delete(packet);
}

static struct ib_gid
broadcast_mgid(const struct host_station *s)
{
    return ipoib_mgid_broadcast(host_hca_pkey(s->hca),
                                host_hca_scope(s->hca));
}

static struct ib_gid
ipv6_mgid(const struct host_station *s, const struct in6_addr *group)
{
    return ipoib_mgid_ipv6(group, host_hca_pkey(s->hca),
                           host_hca_scope(s->hca));
}

/* Another station says that 'ip', which is ours, has 'addr'. */
static void
report_conflict(struct host_station *s, const struct in6_addr *ip,
                const struct ipoib_addr *addr)
{
    struct ds ds = DS_EMPTY_INITIALIZER;

    s->stats.rx_conflict++;
    ipv6_format_mapped(ip, &ds);
    ds_put_cstr(&ds, " is ours, but is used by ");
    ipoib_addr_format(addr, &ds);
    VLOG_WARN_RL(&rl, "address conflict: %s", ds_cstr(&ds));
    ds_destroy(&ds);
}

/* Makes 'packet', a neighbour solicitation to the solicited-node group of
 * 'target', one to 'target' itself. */
static void
solicitation_to_unicast(struct dp_packet *packet,
                        const struct in6_addr *target)
{
    uint8_t *ip = (uint8_t *) dp_packet_data(packet) + IPOIB_HEADER_LEN;
    uint8_t *dst = ip + offsetof(struct ovs_16aligned_ip6_hdr, ip6_dst);
    uint8_t *csum = ip + IPV6_HEADER_LEN + offsetof(struct icmp6_header,
                                                    icmp6_cksum);
    ovs_16aligned_be32 old[4], new[4];
    ovs_be16 sum;

    memcpy(old, dst, sizeof old);
    memcpy(new, target, sizeof new);
    memcpy(dst, target, sizeof *target);
    memcpy(&sum, csum, sizeof sum);
    for (int i = 0; i < 4; i++) {
        sum = recalc_csum32(sum, get_16aligned_be32(&old[i]),
                            get_16aligned_be32(&new[i]));
    }
    memcpy(csum, &sum, sizeof sum);
}

/* Asks for 'neigh'. */
static void
solicit(void *s_, const struct host_neigh *neigh, bool unicast)
{
    struct host_station *s = s_;
    const struct host_own *own = host_station_own(s, &neigh->asker);
    struct dp_packet *packet;
    struct ipoib_addr addr;
    struct ib_gid mgid;

    if (!own) {
        own = host_station_source_for(s, &neigh->ip);
        if (!own) {
            return;
        }
    }
    s->stats.tx_solicit++;
    addr = host_hca_addr(s->hca, own->id);
    if (IN6_IS_ADDR_V4MAPPED(&neigh->ip)) {
        packet = ipoib_compose_arp_ib(ARP_OP_REQUEST, false, &addr,
                                      in6_addr_get_mapped_ipv4(&own->ip.addr),
                                      NULL,
                                      in6_addr_get_mapped_ipv4(&neigh->ip));
        mgid = broadcast_mgid(s);
    } else {
        struct in6_addr group = ipoib_solicited_node(&neigh->ip);

        packet = ipoib_compose_ns_ib(&own->ip.addr, &neigh->ip, &addr);
        if (unicast) {
            solicitation_to_unicast(packet, &neigh->ip);
        }
        mgid = ipv6_mgid(s, &group);
    }
    if (unicast) {
        send_packet(s, packet, own->id, &neigh->addr);
    } else {
        send_packet_group(s, packet, own->id, &mgid);
    }
}

static void
flush(void *s_, struct host_neigh *neigh)
{
    host_station_flush_neigh(s_, neigh);
}

static void
dropped(void *s_, const struct host_neigh *neigh OVS_UNUSED, size_t n)
{
    struct host_station *s = s_;

    s->stats.drop_no_neigh += n;
}

const struct host_neigh_ops host_arp_neigh_ops = {
    .solicit = solicit,
    .flush = flush,
    .dropped = dropped,
};

void
host_arp_receive(struct host_station *s, const struct host_rx *rx)
{
    const struct ipoib_arp *arp = ipoib_arp_parse(rx->data, rx->len);
    struct host_neigh_news news = { .override = true };
    const struct host_own *target;
    struct in6_addr spa, tpa;
    uint16_t op;

    if (!arp) {
        s->stats.rx_bad++;
        return;
    }
    s->stats.rx_arp++;
    op = ntohs(arp->op);
    if ((op != ARP_OP_REQUEST && op != ARP_OP_REPLY)
        || !ipoib_addr_is_station(&arp->sha)) {
        s->stats.rx_bad++;
        return;
    }
    if (host_hca_is_own(s->hca, &arp->sha)) {
        return;
    }
    news.addr = (s->learn_completion
                 ? host_remacs_learn(&s->remacs, rx->src_qpn, rx->slid,
                                     &arp->sha)
                 : arp->sha);

    in6_addr_set_mapped_ipv4(&spa, get_16aligned_be32(&arp->spa));
    in6_addr_set_mapped_ipv4(&tpa, get_16aligned_be32(&arp->tpa));
    target = host_station_own(s, &tpa);
    host_station_check_path(s, &arp->sha.gid, rx->slid, rx->has_grh);
    if (host_station_own(s, &spa)) {
        report_conflict(s, &spa, &arp->sha);
    } else if (get_16aligned_be32(&arp->spa)) {
        news.create = target && op == ARP_OP_REQUEST;
        news.solicited = target && op == ARP_OP_REPLY && !rx->multicast;
        host_neigh_update(s->neighs, &spa, &news, time_msec());
    }

    if (op == ARP_OP_REQUEST && target) {
        struct ipoib_addr addr = host_hca_addr(s->hca, target->id);
        struct dp_packet *reply;

        reply = ipoib_compose_arp_ib(ARP_OP_REPLY, false, &addr,
                                     get_16aligned_be32(&arp->tpa), &arp->sha,
                                     get_16aligned_be32(&arp->spa));
        s->stats.tx_reply++;
        send_packet(s, reply, target->id, &arp->sha);
    }
}

/* What a neighbour advertisement says of us. */
static uint8_t
na_flags(const struct host_station *s)
{
    return NA_OVERRIDE | (host_tun_is_router(s->tun) ? NA_ROUTER : 0);
}

/* Answers the solicitation 'info' for our address 'target'. */
static void
reply_to_ns(struct host_station *s, const struct ipoib_nd_info *info,
            const struct host_own *target)
{
    struct ipoib_addr addr = host_hca_addr(s->hca, target->id);
    bool dad = IN6_IS_ADDR_UNSPECIFIED(&info->src);
    const struct in6_addr *dst = dad ? &in6addr_all_hosts : &info->src;
    struct dp_packet *na;

    na = ipoib_compose_na_ib(&target->ip.addr, dst,
                             na_flags(s) | (dad ? 0 : NA_SOLICITED), &addr);
    s->stats.tx_reply++;
    if (dad) {
        struct ib_gid mgid = ipv6_mgid(s, dst);

        send_packet_group(s, na, target->id, &mgid);
    } else if (info->has_lladdr) {
        send_packet(s, na, target->id, &info->lladdr.ib);
    } else {
        struct host_neigh *neigh;

        neigh = host_neigh_use(s->neighs, &info->src, &target->ip.addr,
                               time_msec());
        if (host_neigh_is_usable(neigh)) {
            send_packet(s, na, target->id, &neigh->addr);
        } else {
            s->stats.drop_queue += host_neigh_queue(
                neigh, host_wait_create(dp_packet_data(na),
                                        dp_packet_size(na),
                                        &target->ip.addr));
            dp_packet_delete(na);
        }
    }
}

static void
receive_ns(struct host_station *s, const struct ipoib_nd_info *info)
{
    const struct host_own *target = host_station_own(s, &info->target);

    if (!target) {
        return;
    }
    if (info->has_lladdr && !IN6_IS_ADDR_UNSPECIFIED(&info->src)) {
        struct host_neigh_news news = {
            .addr = info->lladdr.ib,
            .create = true,
            .override = true,
        };

        host_neigh_update(s->neighs, &info->src, &news, time_msec());
    }
    reply_to_ns(s, info, target);
}

static void
receive_na(struct host_station *s, const struct host_rx *rx,
           const struct ipoib_nd_info *info)
{
    struct host_neigh_news news = {
        .solicited = info->na_flags & NA_SOLICITED && !rx->multicast,
        .override = (info->na_flags & NA_OVERRIDE) != 0,
    };

    if (host_station_own(s, &info->target)) {
        if (info->has_lladdr) {
            report_conflict(s, &info->target, &info->lladdr.ib);
        }
        return;
    }
    if (info->has_lladdr) {
        news.addr = info->lladdr.ib;
    } else {
        const struct host_neigh *neigh = host_neigh_find(s->neighs,
                                                         &info->target);

        if (!neigh || !host_neigh_is_usable(neigh)) {
            return;
        }
        news.addr = neigh->addr;
    }
    host_neigh_update(s->neighs, &info->target, &news, time_msec());
}

/* Gives the kernel a router solicitation or advertisement, or a redirect,
 * which passed ipoib_nd_parse_ib(), without the link-layer addresses in it:
 * the TUN has none, and the kernel would refuse them. */
static void
nd_to_kernel(struct host_station *s, const uint8_t *ip, size_t ip_len,
             size_t l4_ofs, uint8_t type)
{
    size_t ofs = l4_ofs + (type == ND_ROUTER_SOLICIT ? 8
                           : type == ND_ROUTER_ADVERT ? 16 : 40);
    uint8_t *copy = xmalloc(ip_len);
    size_t len = ofs;
    ovs_be16 sum;

    memcpy(copy, ip, ofs);
    while (ofs < ip_len) {
        size_t opt_len = ip[ofs + 1] * 8;

        if (ip[ofs] != ND_OPT_SOURCE_LINKADDR
            && ip[ofs] != ND_OPT_TARGET_LINKADDR) {
            memcpy(copy + len, ip + ofs, opt_len);
            len += opt_len;
        }
        ofs += opt_len;
    }
    sum = htons(len - IPV6_HEADER_LEN);
    memcpy(copy + IPV6_PLEN_OFS, &sum, sizeof sum);
    memset(copy + l4_ofs + 2, 0, 2);
    sum = csum_finish(csum_continue(
        packet_csum_pseudoheader6(
            ALIGNED_CAST(const struct ovs_16aligned_ip6_hdr *, copy)),
        copy + l4_ofs, len - l4_ofs));
    memcpy(copy + l4_ofs + 2, &sum, sizeof sum);
    if (host_tun_write(s->tun, copy, len)) {
        s->stats.tun_tx_errors++;
    } else {
        s->stats.tun_tx_packets++;
    }
    free(copy);
}

void
host_nd_receive(struct host_station *s, const struct host_rx *rx,
                size_t ip_len, size_t l4_ofs)
{
    struct ipoib_nd_info info;

    if (!ipoib_nd_parse_ib(rx->data, ip_len, l4_ofs, &info)
        || (info.has_lladdr && !ipoib_addr_is_station(&info.lladdr.ib))) {
        s->stats.rx_bad++;
        return;
    }
    s->stats.rx_nd++;
    if (host_station_own(s, &info.src)) {
        if (info.has_lladdr && !host_hca_is_own(s->hca, &info.lladdr.ib)) {
            report_conflict(s, &info.src, &info.lladdr.ib);
        }
        return;
    }
    if (info.has_lladdr && info.type != ND_REDIRECT) {
        host_station_check_path(s, &info.lladdr.ib.gid, rx->slid,
                                rx->has_grh);
    }

    switch (info.type) {
    case ND_NEIGHBOR_SOLICIT:
        receive_ns(s, &info);
        break;
    case ND_NEIGHBOR_ADVERT:
        receive_na(s, rx, &info);
        break;
    case ND_ROUTER_ADVERT:
    case ND_ROUTER_SOLICIT:
        if (info.has_lladdr) {
            struct host_neigh_news news = {
                .addr = info.lladdr.ib,
                .override = true,
            };

            host_neigh_update(s->neighs, &info.src, &news, time_msec());
        }
        nd_to_kernel(s, rx->data, ip_len, l4_ofs, info.type);
        break;
    default:                    /* Redirect: the kernel decides on routes. */
        if (info.has_lladdr) {
            struct host_neigh_news news = {
                .addr = info.lladdr.ib,
                .create = true,
                .override = true,
            };

            host_neigh_update(s->neighs, &info.target, &news, time_msec());
        }
        nd_to_kernel(s, rx->data, ip_len, l4_ofs, info.type);
        break;
    }
}

/* Sends a gratuitous ARP or an unsolicited advertisement for 'own'. */
void
host_arp_announce(struct host_station *s, const struct host_own *own)
{
    struct ipoib_addr addr = host_hca_addr(s->hca, own->id);
    struct dp_packet *packet;
    struct ib_gid mgid;

    if (IN6_IS_ADDR_V4MAPPED(&own->ip.addr)) {
        ovs_be32 ip = in6_addr_get_mapped_ipv4(&own->ip.addr);

        packet = ipoib_compose_arp_ib(ARP_OP_REQUEST, false, &addr, ip, NULL,
                                      ip);
        mgid = broadcast_mgid(s);
    } else {
        packet = ipoib_compose_na_ib(&own->ip.addr, &in6addr_all_hosts,
                                     na_flags(s), &addr);
        mgid = ipv6_mgid(s, &in6addr_all_hosts);
    }
    s->stats.tx_announce++;
    send_packet_group(s, packet, own->id, &mgid);
}
