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

#ifndef IPOIB_CONTROL_PRIVATE_H
#define IPOIB_CONTROL_PRIVATE_H 1

/* What ipoib-control.c and its parts need of each other.  With the HCA's
 * mutex. */

#include "ipoib-control.h"

/* ipoib-control-seek.c. */
/* A sender that nobody knows has written to a host. */
void ipoib_control_rx_hint(struct ipoib_partition *,
                           const struct ipoib_msg *);
/* 'host' writes from 'src' (NULL: unknown) to 'dst' at 'mac', which may be
 * nobody's. */
void ipoib_control_seek(struct ipoib_partition *, const struct ipoib_host *,
                        struct eth_addr mac, const struct in6_addr *src,
                        const struct in6_addr *dst);
void ipoib_control_tx_hint(struct ipoib_partition *,
                           const struct ipoib_msg *, long long int now);
/* A host sends unicasts. */
void ipoib_control_tx_host(struct ipoib_partition *,
                           const struct ipoib_msg *, long long int now);

/* ipoib-control-guard.c. */
/* ARP or ND 'msg' says that 'addr' (NULL: not said) has 'ip' (NULL: not said).
 * Counts that if 'ip' belongs to a host that is alive, or 'addr' not to the
 * sender; returns true if the message is to be dropped, and was counted. */
bool ipoib_control_guard_rx(struct ipoib_partition *,
                            const struct ipoib_msg *msg,
                            const struct ipoib_addr *addr,
                            const struct in6_addr *ip, long long int now);
/* The same for a frame from 'src' that says that 'mac' has 'ip'. */
bool ipoib_control_guard_tx(struct ipoib_partition *, struct eth_addr src,
                            struct eth_addr mac, const struct in6_addr *ip,
                            long long int now);

#endif /* ipoib-control-private.h */
