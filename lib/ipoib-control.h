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

#ifndef IPOIB_CONTROL_H
#define IPOIB_CONTROL_H 1

/* What the control thread does with the packets that the queues hand to it:
 * learning, translation of ARP and ND between the two sides, broadcasts,
 * proxying.  With the HCA's mutex. */

#include "ipoib-partition.h"

/* Handles 'msg' and takes its packet. */
void ipoib_control_message(struct ipoib_partition *, struct ipoib_msg *msg,
                           long long int now);

/* Learns host 'mac', gives it a QP if it has none, and returns it; with the
 * address 'ip', unless NULL.  NULL if 'mac' cannot be a host's. */
struct ipoib_host *ipoib_control_learn_host(struct ipoib_partition *,
                                            struct eth_addr mac,
                                            const struct in6_addr *ip,
                                            long long int now);
/* Learns a neighbour, as ipoib_neigh_learn(), and does what follows. */
struct ipoib_neigh *ipoib_control_learn_neigh(struct ipoib_partition *,
                                              const struct ipoib_addr *,
                                              const struct in6_addr *ip,
                                              uint16_t slid,
                                              long long int now);

/* Neighbour 'neigh' has asked for 'host', which has a QPN: the address to
 * answer it with.  (ipoib-control-router.c, as the next one.) */
struct ipoib_addr
ipoib_control_asked_addr(struct ipoib_partition *, struct ipoib_host *host,
                         const struct ipoib_neigh *neigh);
/* 'host' sends unicasts, lately one from 'src'. */
void ipoib_control_heard_source(struct ipoib_partition *, struct ipoib_host *,
                                const struct in6_addr *src,
                                long long int now);
/* Tells the Ethernet side the stand-in MAC of a neighbour: gratuitous ARP and
 * unsolicited NA. */
void ipoib_control_announce_neigh(struct ipoib_partition *,
                                  const struct ipoib_neigh *);

/* Hosts send unicasts to the neighbour in 'slot' (or none), lately one for
 * 'dst'. */
void ipoib_control_sent_to(struct ipoib_partition *, uint32_t slot,
                           const struct in6_addr *dst, long long int now);

/* Announces 'ip' of 'host' on the fabric: gratuitous ARP, or an unsolicited
 * neighbour advertisement. */
void ipoib_control_announce_host(struct ipoib_partition *,
                                 const struct ipoib_host *,
                                 const struct in6_addr *ip);

#endif /* ipoib-control.h */
