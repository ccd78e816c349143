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

#ifndef HOST_TUN_H
#define HOST_TUN_H 1

/* The station's side towards the kernel of its network namespace: a TUN
 * device, and what the kernel has configured on it. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "openvswitch/types.h"

/* An address with its prefix length; IPv4 is IPv4-mapped, with the prefix
 * length of IPv4. */
struct host_ip {
    struct in6_addr addr;
    uint8_t plen;
};

struct host_tun;

/* Makes the TUN device 'name' and sets it up.  On failure returns a positive
 * errno value and stores a message in '*errp', which the caller frees. */
int host_tun_open(const char *name, struct host_tun **, char **errp);
void host_tun_close(struct host_tun *); /* The device goes away. */
const char *host_tun_name(const struct host_tun *);

int host_tun_add_ip(struct host_tun *, const struct host_ip *);
int host_tun_del_ip(struct host_tun *, const struct host_ip *);
int host_tun_set_mtu(struct host_tun *, int mtu);
int host_tun_set_carrier(struct host_tun *, bool up);

/* True if the kernel forwards what it gets on the device in IPv6. */
bool host_tun_is_router(const struct host_tun *);

/* Reads one IP packet; returns its length, 0 if there is none. */
size_t host_tun_read(struct host_tun *, void *data, size_t size);
/* Gives the kernel an IP packet. */
int host_tun_write(struct host_tun *, const void *data, size_t len);

/* Stores the addresses of the device in '*ips' (the caller frees it), and
 * their number in '*n'. */
int host_tun_get_ips(struct host_tun *, struct host_ip **ips, size_t *n);

/* Stores the groups that the kernel has joined on the device in '*groups' (the
 * caller frees it), and their number in '*n'.  IPv4 is IPv4-mapped. */
void host_tun_get_groups(struct host_tun *, struct in6_addr **groups,
                         size_t *n);

/* Where the kernel sends packets to a destination out of this device. */
enum host_route_type {
    HOST_ROUTE_NONE,            /* Nowhere. */
    HOST_ROUTE_UNICAST,         /* To the next hop. */
    HOST_ROUTE_BROADCAST,
};
enum host_route_type host_tun_get_route(struct host_tun *,
                                        const struct in6_addr *dst,
                                        struct in6_addr *next_hop);

/* Takes the kernel's notifications; returns true if addresses or routes may
 * have changed. */
bool host_tun_run(struct host_tun *);
/* Waits for notifications and, if 'packets', for packets. */
void host_tun_wait(struct host_tun *, bool packets);

#endif /* host-tun.h */
