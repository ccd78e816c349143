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

/* Questions that the control thread asks by itself: for senders and
 * destinations that nobody knows, and for the addresses of hosts. */

#include <config.h>
#include "ipoib-control-private.h"

#include "dp-packet.h"
#include "util.h"

/* Asks on the fabric who has 'ip', in the name of 'host', which sends from
 * 'src'.  As long as no address is known to be its own, IPv4 asks without one,
 * as in RFC 5227, which teaches nobody anything; IPv6 knows no such question
 * but DAD, so that 'src' is taken for the host's, unless it is a router. */
static void
probe(struct ipoib_partition *part, const struct ipoib_host *host,
      const struct in6_addr *src, const struct in6_addr *ip)
{
    struct ipoib_addr addr = ipoib_partition_host_addr(part, host);
    bool v4 = IN6_IS_ADDR_V4MAPPED(ip);
    const struct in6_addr *own = NULL;
    struct ipoib_host_ip *hip;

    LIST_FOR_EACH (hip, node, &host->ips) {
        if (v4 == !!IN6_IS_ADDR_V4MAPPED(&hip->ip)) {
            own = &hip->ip;
            break;
        }
    }
    if (v4) {
        ipoib_count(&part->tx_stats.own, 1);
        ipoib_partition_send_group(
            part, host->qpn, &part->shared.broadcast,
            ipoib_compose_arp_ib(ARP_OP_REQUEST, false, &addr,
                                 own ? in6_addr_get_mapped_ipv4(own) : 0,
                                 NULL, in6_addr_get_mapped_ipv4(ip)));
        return;
    }
    if (!own && src && !host->is_router && ipoib_ip_is_station(src)) {
        own = src;
    }
    if (own) {
        struct in6_addr group = ipoib_solicited_node(ip);
        struct ib_gid mgid = ipoib_mgid_ipv6(&group, part->pkey,
                                             part->shared.scope);

        ipoib_count(&part->tx_stats.own, 1);
        ipoib_partition_send_group(part, host->qpn, &mgid,
                                   ipoib_compose_ns_ib(own, ip, &addr));
    }
}

/* A sender that nobody knows: it is asked who it is, in the name of the host
 * that it wrote to. */
void
ipoib_control_rx_hint(struct ipoib_partition *part,
                      const struct ipoib_msg *msg)
{
    struct ipoib_host *host = ipoib_partition_host_of_qpn(part, msg->dqpn);

    if (host && ipoib_ip_is_station(&msg->src)
        && !ipoib_neigh_find_ip(part->shared.neighs, &msg->src)
        && token_bucket_withdraw(&part->probes, 1)) {
        probe(part, host, NULL, &msg->src);
    }
}

/* 'host' writes from 'src' (NULL: unknown) to 'dst' at 'mac', which is
 * nobody's.  Where that was a neighbour's which the gateway has forgotten,
 * asking for the IP address brings the neighbour, and with it the same
 * stand-in MAC, back; where the neighbour has another MAC by now, the Ethernet
 * side is told. */
void
ipoib_control_seek(struct ipoib_partition *part,
                   const struct ipoib_host *host, struct eth_addr mac,
                   const struct in6_addr *src, const struct in6_addr *dst)
{
    struct ipoib_neigh *neigh;

    if (!ipoib_ip_is_station(dst) || !(mac.ea[0] & 2)
        || ipoib_host_find(part->shared.hosts, mac, 0)
        || ipoib_neigh_find_mac(part->shared.neighs, mac)
        || !token_bucket_withdraw(&part->probes, 1)) {
        return;
    }
    neigh = ipoib_neigh_find_ip(part->shared.neighs, dst);
    if (neigh) {
        ipoib_control_announce_neigh(part, neigh);
    } else {
        probe(part, host, src, dst);
    }
}

/* 'host' sends from 'src', and no IPv4 address is known to be its own: asks it
 * whether that is, since it may be a router.  Neighbours remember the QPN that
 * the host had before the gateway lost its memory. */
static void
ask_host(struct ipoib_partition *part, const struct ipoib_host *host,
         const struct in6_addr *src)
{
    struct ipoib_host_ip *hip;

    LIST_FOR_EACH (hip, node, &host->ips) {
        if (IN6_IS_ADDR_V4MAPPED(&hip->ip)) {
            return;
        }
    }
    if (IN6_IS_ADDR_V4MAPPED(src) && ipoib_ip_is_station(src)
        && !ipoib_host_find_ip(part->shared.hosts, src)
        && !ipoib_neigh_find_ip(part->shared.neighs, src)
        && token_bucket_withdraw(&part->probes, 1)) {
        ipoib_count(&part->rx_stats.own, 1);
        ipoib_partition_deliver(
            part, 0,
            ipoib_compose_arp_eth(ARP_OP_REQUEST, false, part->shared.mac,
                                  host->mac, part->shared.mac, 0,
                                  eth_addr_zero,
                                  in6_addr_get_mapped_ipv4(src)));
    }
}

void
ipoib_control_tx_hint(struct ipoib_partition *part,
                      const struct ipoib_msg *msg, long long int now)
{
    struct ipoib_host *host = ipoib_control_learn_host(part, msg->src_mac,
                                                       NULL, now);

    if (host) {
        ipoib_control_seek(part, host, msg->mac, &msg->src, &msg->dst);
        ask_host(part, host, &msg->src);
    }
}

/* A host sends unicasts. */
void
ipoib_control_tx_host(struct ipoib_partition *part,
                      const struct ipoib_msg *msg, long long int now)
{
    struct ipoib_host *host = ipoib_control_learn_host(part, msg->mac, NULL,
                                                       now);

    if (host) {
        ipoib_control_heard_source(part, host, &msg->src, now);
        ipoib_control_sent_to(part, msg->slot, &msg->dst, now);
        ask_host(part, host, &msg->src);
    }
}
