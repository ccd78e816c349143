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

#ifndef IPOIB_KNOWN_H
#define IPOIB_KNOWN_H 1

/* What all ports of the process know of hosts: the IP addresses that a MAC was
 * heard with.  A port that a host moves to (a bond's active member changes, or
 * a virtual machine comes from another bridge) hears a RARP at first, which
 * names no address, and takes them from the port that had the host.
 *
 * Thread-safety: any thread; a mutex of its own, within which nothing else is
 * locked. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "packets.h"

/* Addresses of a host that are kept here. */
#define IPOIB_KNOWN_MAX_IPS 16

/* A port, of partition 'pkey' (bit 15 does not count). */
struct ipoib_known;
struct ipoib_known *ipoib_known_create(uint16_t pkey);
/* What the port knew stays known for 20 minutes. */
void ipoib_known_destroy(struct ipoib_known *);

/* The host 'mac' was heard by the port at time 'now', with 'ip'. */
void ipoib_known_add(struct ipoib_known *, struct eth_addr mac,
                     const struct in6_addr *ip, long long int now);
/* It has 'ip' no more; if 'ip' is NULL, the host has gone. */
void ipoib_known_forget(struct ipoib_known *, struct eth_addr mac,
                        const struct in6_addr *ip);

/* The host 'mac' is the port's from time 'now' on.  Stores in 'ips' what other
 * ports of the same partition knew of it, and returns how many addresses that
 * are.  Those ports get to know that it has left them. */
size_t ipoib_known_take(struct ipoib_known *, struct eth_addr mac,
                        long long int now,
                        struct in6_addr ips[IPOIB_KNOWN_MAX_IPS]);
/* If a host has left the port for another one, stores its MAC, and when it
 * left, and returns true.  Each is told of once. */
bool ipoib_known_left(struct ipoib_known *, struct eth_addr *mac,
                      long long int *when);

/* Hosts that are known, for tests. */
size_t ipoib_known_count(void);

#endif /* ipoib-known.h */
