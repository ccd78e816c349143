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

/* Hosts for which much is sent: routers, which are recognised by what they
 * send, and hosts that many neighbours ask for.  They get a queue pair in each
 * of several receive queues; the asking neighbour decides which of them an
 * answer names. */

#include <config.h>
#include "ipoib-control.h"

#include "util.h"

/* So many bits of 'askers' make a host, or a router, one that gets several
 * queue pairs. */
#define HOT_HOST 16
#define HOT_ROUTER 2

/* So many packets from addresses that are not its own, a second apart at
 * least, show that a host is a router. */
#define FOREIGN_PACKETS 2
#define FOREIGN_PAUSE 900

struct ipoib_addr
ipoib_control_asked_addr(struct ipoib_partition *part,
                         struct ipoib_host *host,
                         const struct ipoib_neigh *neigh)
{
    unsigned int n = part->config.host_queues;

    n = n ? MIN(n, part->n_rxq) : part->n_rxq;
    /* A stand-in MAC is a hash already. */
    host->askers |= UINT64_C(1) << (eth_addr_to_uint64(neigh->mac) & 63);
    if (host->qp && host->n_qps < n
        && count_1bits(host->askers) >= (ipoib_host_routes(host)
                                         ? HOT_ROUTER : HOT_HOST)) {
        ipoib_hostqps_spread(part->hostqps, part->shared.hosts, host, n);
    }
    return ipoib_partition_host_addr_for(part, host, neigh);
}

void
ipoib_control_heard_source(struct ipoib_partition *part,
                           struct ipoib_host *host,
                           const struct in6_addr *src, long long int now)
{
    if (host->forwards || !ipoib_ip_is_station(src)
        || now < host->foreign + FOREIGN_PAUSE
        || ipoib_host_find_ip(part->shared.hosts, src) == host
        || ipoib_neigh_find_ip(part->shared.neighs, src)) {
        return;
    }
    host->foreign = now;
    if (++host->n_foreign >= FOREIGN_PACKETS) {
        ipoib_host_set_forwards(part->shared.hosts, host);
        /* If it shared a queue pair, it gets one of its own. */
        ipoib_control_learn_host(part, host->mac, NULL, now);
    }
}

/* A router that is a neighbour, maybe behind another gateway: hosts send it
 * what is for nobody that is known. */
void
ipoib_control_sent_to(struct ipoib_partition *part, uint32_t slot,
                      const struct in6_addr *dst, long long int now)
{
    struct ipoib_neigh *neigh = ipoib_neigh_of_slot(part->shared.neighs, slot);
    struct ipoib_neigh_more *more;

    if (!neigh || neigh->forwards || !ipoib_ip_is_station(dst)
        || (neigh->more && now < neigh->more->foreign + FOREIGN_PAUSE)
        || ipoib_neigh_find_ip(part->shared.neighs, dst)
        || ipoib_host_find_ip(part->shared.hosts, dst)) {
        return;
    }
    more = ipoib_neigh_more(neigh);
    more->foreign = now;
    if (++more->n_foreign >= FOREIGN_PACKETS) {
        more->n_foreign = 0;
        ipoib_neigh_trim(neigh);
        neigh->forwards = true;
        ipoib_neigh_set_routes(part->shared.neighs, neigh, true);
    }
}
