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

#ifndef IPOIB_SNOOP_H
#define IPOIB_SNOOP_H 1

/* Which IP groups the hosts on the Ethernet side listen to, from their IGMP
 * and MLD messages and from what is known of their addresses; and who asks
 * them.
 *
 * Each host is kept track of by its MAC, with its filter (RFC 3376, RFC 3810):
 * one that includes no source any more listens to nothing.  But of two hosts
 * with IGMPv1, IGMPv2 or MLDv1, one may keep silent because the other has
 * reported: after the last member that is known has left, a group is kept
 * until others had the time to report, unless it can be known that there is
 * nobody else.  Where there is a querier, it asks them, and who does not
 * answer it for long enough is a member no more.
 *
 * IPv4 groups are v4-mapped.  Thread-safety: none (control thread). */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ipoib-snoop-querier.h"
#include "openvswitch/types.h"
#include "packets.h"

struct dp_packet;

/* Without a querier we ask, twice; after so many ms a group of which nobody
 * reports is left. */
#define IPOIB_SNOOP_LAST_MEMBER 3000

struct ipoib_snoop;
struct ipoib_snoop_ops {
    void (*joined)(void *aux, const struct in6_addr *group);
    void (*left)(void *aux, const struct in6_addr *group);
    /* There is no querier: whoever listens to 'group' is to be asked to
     * report.  May be NULL. */
    void (*ask)(void *aux, const struct in6_addr *group);
};

struct ipoib_snoop *ipoib_snoop_create(const struct ipoib_snoop_ops *,
                                       void *aux);
/* Without calling 'left'. */
void ipoib_snoop_destroy(struct ipoib_snoop *);

/* What is kept track of at most: groups, and groups of one host.  Reports
 * beyond that are not heeded. */
#define IPOIB_SNOOP_MAX_GROUPS 16384
#define IPOIB_SNOOP_MAX_HOST_GROUPS 256
void ipoib_snoop_set_limits(struct ipoib_snoop *, size_t max_groups,
                            size_t max_host_groups);
/* Reports that were not heeded. */
uint64_t ipoib_snoop_n_refused(const struct ipoib_snoop *);

/* Host 'mac' has reported 'group', by IGMP of 'version' 1 or 2, or as IGMPv2
 * does. */
void ipoib_snoop_report(struct ipoib_snoop *, const struct in6_addr *group,
                        struct eth_addr mac, int version, long long int now);
/* A group record of 'type' (IGMPV3_*), with 'n_sources' sources of
 * 'source_len' bytes. */
void ipoib_snoop_record(struct ipoib_snoop *, const struct in6_addr *group,
                        struct eth_addr mac, uint8_t type,
                        const uint8_t *sources, size_t n_sources,
                        size_t source_len, long long int now);
/* Host 'mac' listens to 'group', a solicited-node group, because of an address
 * that it has.  It need not report it. */
void ipoib_snoop_assume(struct ipoib_snoop *, const struct in6_addr *group,
                        struct eth_addr mac);
void ipoib_snoop_leave(struct ipoib_snoop *, const struct in6_addr *group,
                       struct eth_addr mac, long long int now);
/* Host 'mac' is gone. */
void ipoib_snoop_host_gone(struct ipoib_snoop *, struct eth_addr mac,
                           long long int now);
/* Hosts have heard 'query', of MLD or of IGMP, also if it was ours. */
void ipoib_snoop_query(struct ipoib_snoop *, bool v6,
                       const struct ipoib_query *, bool from_ethernet,
                       long long int now);
/* A PIM hello came from Ethernet. */
void ipoib_snoop_pim_hello(struct ipoib_snoop *, bool v6,
                           long long int holdtime, long long int now);

/* ipoib-snoop-msg.c: messages.  What is malformed teaches nothing. */

/* Takes in the IGMP (IPv4) or MLD (IPv6) message at 'l4_ofs' of the IP packet
 * of 'len' bytes at 'ip' from host 'mac'; or a PIM message; or an IGMP or MLD
 * message from the fabric. */
void ipoib_snoop_igmp(struct ipoib_snoop *, const void *ip, size_t len,
                      size_t l4_ofs, struct eth_addr mac, long long int now);
void ipoib_snoop_mld(struct ipoib_snoop *, const void *ip, size_t len,
                     size_t l4_ofs, struct eth_addr mac, long long int now);
void ipoib_snoop_pim(struct ipoib_snoop *, bool v6, const void *ip, size_t len,
                     size_t l4_ofs, long long int now);
void ipoib_snoop_from_fabric(struct ipoib_snoop *, bool v6, const void *ip,
                             size_t len, size_t l4_ofs, long long int now);

/* Compose a query of IGMPv3 (RFC 3376, 4.1) or MLDv2 (RFC 3810, 5.1), for
 * 'group' or (0, NULL) for all, an Ethernet frame from 'mac', to which hosts
 * answer within a second.  The IGMP query has no source address, as a switch
 * that only wants to know (RFC 4541, 2.1.1), so that it never becomes the
 * querier; an MLD query needs one, and has the link-local address of 'mac'. */
struct dp_packet *ipoib_snoop_compose_igmp_query(struct eth_addr mac,
                                                 ovs_be32 group);
struct dp_packet *ipoib_snoop_compose_mld_query(struct eth_addr mac,
                                                const struct in6_addr *group);

/* Time. */

void ipoib_snoop_run(struct ipoib_snoop *, long long int now);
void ipoib_snoop_wait(struct ipoib_snoop *);

/* True if a multicast router is known on the Ethernet side. */
bool ipoib_snoop_has_router(const struct ipoib_snoop *, long long int now);

/* For people. */
const struct ipoib_querier *ipoib_snoop_querier(const struct ipoib_snoop *,
                                                bool v6);
void ipoib_snoop_for_each(const struct ipoib_snoop *,
                          void (*cb)(const struct in6_addr *group,
                                     struct eth_addr mac, bool exclude,
                                     size_t n_sources, /* If not 'exclude'. */
                                     long long int heard, /* 0: never. */
                                     void *aux), void *aux);
size_t ipoib_snoop_n_groups(const struct ipoib_snoop *);
size_t ipoib_snoop_n_members(const struct ipoib_snoop *);

#endif /* ipoib-snoop.h */
