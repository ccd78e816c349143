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
 * and MLD messages and from what is known of their addresses.
 *
 * IPv4 groups are v4-mapped.  Thread-safety: none (control thread). */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "packets.h"

struct dp_packet;

/* After the last listener has left, a group is kept for this long, in ms, in
 * which others can report it: the last-member interval of IGMP and MLD. */
#define IPOIB_SNOOP_LAST_MEMBER 3000

struct ipoib_snoop;
struct ipoib_snoop_ops {
    void (*joined)(void *aux, const struct in6_addr *group);
    void (*left)(void *aux, const struct in6_addr *group);
};

struct ipoib_snoop *ipoib_snoop_create(const struct ipoib_snoop_ops *,
                                       void *aux);
/* Without calling 'left'. */
void ipoib_snoop_destroy(struct ipoib_snoop *);

/* Host 'mac' listens to 'group', or does no more.  Beyond 512 groups of one
 * host, and 16384 of all, reports are not heeded. */
void ipoib_snoop_report(struct ipoib_snoop *, const struct in6_addr *group,
                        struct eth_addr mac);
void ipoib_snoop_leave(struct ipoib_snoop *, const struct in6_addr *group,
                       struct eth_addr mac, long long int now);
/* Host 'mac' is gone. */
void ipoib_snoop_host_gone(struct ipoib_snoop *, struct eth_addr mac,
                           long long int now);

/* Takes in the IGMP (IPv4) or MLD (IPv6) message at 'l4_ofs' of the IP packet
 * of 'len' bytes at 'ip' from host 'mac'.  What is malformed teaches
 * nothing. */
void ipoib_snoop_igmp(struct ipoib_snoop *, const void *ip, size_t len,
                      size_t l4_ofs, struct eth_addr mac, long long int now);
void ipoib_snoop_mld(struct ipoib_snoop *, const void *ip, size_t len,
                     size_t l4_ofs, struct eth_addr mac, long long int now);

void ipoib_snoop_run(struct ipoib_snoop *, long long int now);
void ipoib_snoop_wait(struct ipoib_snoop *);

/* Compose a general query of IGMPv3 (RFC 3376, 4.1) or MLDv2 (RFC 3810, 5.1),
 * an Ethernet frame from 'mac', to which hosts answer within a second.  The
 * IGMP query has no source address, as a switch that only wants to know
 * (RFC 4541, 2.1.1), so that it never becomes the querier; an MLD query needs
 * one, and has the link-local address of 'mac'. */
struct dp_packet *ipoib_snoop_compose_igmp_query(struct eth_addr mac);
struct dp_packet *ipoib_snoop_compose_mld_query(struct eth_addr mac);

#endif /* ipoib-snoop.h */
