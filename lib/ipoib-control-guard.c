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

/* Claims of addresses that belong to somebody on the other side, or that are
 * made in the name of somebody else. */

#include <config.h>
#include "ipoib-control-private.h"

#include "openvswitch/dynamic-string.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_control_guard);

/* Who was heard within this time, in ms, keeps its addresses with
 * options:guard=strict. */
#define GUARD_FRESH 60000

static bool
refuse(struct ipoib_partition *part, atomic_uint64_t *noticed,
       atomic_uint64_t *refused, const char *side, const char *what,
       const struct in6_addr *ip)
{
    static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 10);

    ipoib_count(noticed, 1);
    if (!VLOG_DROP_INFO(&rl)) {
        struct ds s = DS_EMPTY_INITIALIZER;

        if (ip) {
            ipv6_format_mapped(ip, &s);
        }
        VLOG_INFO("%s: from %s: %s%s%s", part->name, side, what,
                  ip ? " " : "", ds_cstr(&s));
        ds_destroy(&s);
    }
    if (part->config.guard_strict) {
        ipoib_count(refused, 1);
    }
    return part->config.guard_strict;
}

/* True if 'ip' is a host's that was heard of late. */
static bool
is_hosts(const struct ipoib_partition *part, const struct in6_addr *ip,
         long long int now)
{
    const struct ipoib_host *host;

    if (!ip || !ipoib_ip_is_station(ip)) {
        return false;
    }
    host = ipoib_host_find_ip(part->shared.hosts, ip);
    return host && now - host->heard < GUARD_FRESH;
}

bool
ipoib_control_guard_rx(struct ipoib_partition *part,
                       const struct ipoib_msg *msg,
                       const struct ipoib_addr *addr,
                       const struct in6_addr *ip, long long int now)
{
    struct ipoib_rx_stats *stats = &part->rx_stats;

    if (msg->has_grh && addr
        && ib_gid_guid(&msg->sgid) != ib_gid_guid(&addr->gid)) {
        return refuse(part, &stats->spoof, &stats->drop_spoof, "the fabric",
                      "an address of a port other than the sender's", NULL);
    }
    if (is_hosts(part, ip, now)) {
        return refuse(part, &stats->spoof, &stats->drop_spoof, "the fabric",
                      "a claim of a host's address", ip);
    }
    return false;
}

bool
ipoib_control_guard_tx(struct ipoib_partition *part, struct eth_addr src,
                       struct eth_addr mac, const struct in6_addr *ip,
                       long long int now)
{
    struct ipoib_tx_stats *stats = &part->tx_stats;
    const struct ipoib_neigh *neigh;

    if (!eth_addr_equals(src, mac)) {
        return refuse(part, &stats->spoof, &stats->drop_spoof, "Ethernet",
                      "a MAC address other than the sender's", NULL);
    }
    if (ip && ipoib_ip_is_station(ip)
        && !ipoib_neigh_find_mac(part->shared.neighs, mac)) {
        neigh = ipoib_neigh_find_ip(part->shared.neighs, ip);
        if (neigh && now - ipoib_neigh_confirmed(neigh) < GUARD_FRESH) {
            return refuse(part, &stats->spoof, &stats->drop_spoof,
                          "Ethernet", "a claim of a neighbour's address",
                          ip);
        }
    }
    return false;
}
