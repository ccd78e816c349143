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

#ifndef HOST_NEIGH_H
#define HOST_NEIGH_H 1

/* The station's neighbour cache: which hardware address an IP address has, as
 * RFC 4861, section 7.3 says for IPv6; IPv4 is treated the same.  No I/O. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ipoib-packet.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"

/* In ms. */
#define HOST_NEIGH_RETRANS 1000         /* Between two solicitations. */
#define HOST_NEIGH_REACHABLE_TIME 30000 /* 0.5 to 1.5 times this. */
#define HOST_NEIGH_DELAY 5000           /* Before the first probe. */
#define HOST_NEIGH_GC 60000             /* An entry unused for so long goes. */
#define HOST_NEIGH_HOLD_DOWN 1000       /* FAILED for so long. */
#define HOST_NEIGH_TRIES 3              /* Solicitations, and probes. */
#define HOST_NEIGH_QUEUE 3              /* Packets that wait. */
#define HOST_NEIGH_MAX 8192             /* Entries. */

enum host_neigh_state {
    HOST_NEIGH_INCOMPLETE,      /* Asked, no answer yet. */
    HOST_NEIGH_REACHABLE,
    HOST_NEIGH_STALE,           /* Known, but not confirmed lately. */
    HOST_NEIGH_DELAYED,         /* STALE and used: soon to be probed. */
    HOST_NEIGH_PROBE,           /* Being asked by unicast. */
    HOST_NEIGH_FAILED,          /* No answer. */
};
const char *host_neigh_state_to_string(enum host_neigh_state);

struct host_neigh {
    struct hmap_node node;      /* In host_neigh_cache, by 'ip'. */
    struct in6_addr ip;         /* IPv4 is IPv4-mapped. */
    enum host_neigh_state state;
    struct ipoib_addr addr;     /* Unless INCOMPLETE or FAILED. */
    struct in6_addr asker;      /* Our address that last wanted it. */
    long long int timer;        /* Next step; LLONG_MAX: none. */
    long long int used;         /* Last packet to it. */
    long long int updated;      /* Last word from it. */
    unsigned int n_tries;
    struct ovs_list wait;       /* struct host_wait, while INCOMPLETE. */
    size_t n_wait;
};

/* A packet that waits, from the IPoIB header on. */
struct host_wait {
    struct ovs_list node;
    struct in6_addr src;        /* Own address that it leaves from. */
    unsigned int id;            /* Identity, for the owner's use. */
    uint32_t qpn;               /* Of the destination, likewise. */
    size_t len;
    uint8_t data[];
};
struct host_wait *host_wait_create(const void *data, size_t len,
                                   const struct in6_addr *src);
size_t host_wait_destroy_all(struct ovs_list *);

struct host_neigh_ops {
    /* Ask for 'neigh': by unicast to its 'addr' or by multicast. */
    void (*solicit)(void *aux, const struct host_neigh *, bool unicast);
    /* Send what waits on 'neigh', whose address is known now.  The callee
     * takes the packets off the list. */
    void (*flush)(void *aux, struct host_neigh *);
    /* 'n' packets that waited were dropped, as nobody answered. */
    void (*dropped)(void *aux, const struct host_neigh *, size_t n);
};

struct host_neigh_cache;

struct host_neigh_cache *host_neigh_cache_create(const struct host_neigh_ops *,
                                                 void *aux);
void host_neigh_cache_destroy(struct host_neigh_cache *);
size_t host_neigh_count(const struct host_neigh_cache *);

struct host_neigh *host_neigh_find(const struct host_neigh_cache *,
                                   const struct in6_addr *ip);

/* The entry through which a packet from 'src' to 'ip' leaves; it is made, and
 * asked for, if need be.  If its address is not known, the caller may queue
 * the packet with host_neigh_queue(). */
struct host_neigh *host_neigh_use(struct host_neigh_cache *,
                                  const struct in6_addr *ip,
                                  const struct in6_addr *src,
                                  long long int now);
static inline bool
host_neigh_is_usable(const struct host_neigh *neigh)
{
    return (neigh->state != HOST_NEIGH_INCOMPLETE
            && neigh->state != HOST_NEIGH_FAILED);
}
/* Queues 'wait' on 'neigh', whose address is not known.  Returns the number of
 * packets that were dropped for it (0 or 1). */
size_t host_neigh_queue(struct host_neigh *, struct host_wait *);

/* What an ARP or ND message says of 'ip'. */
struct host_neigh_news {
    struct ipoib_addr addr;
    bool create;                /* Make an entry where there is none. */
    bool solicited;             /* An answer to us: confirms. */
    bool override;              /* May replace another address. */
};
/* Returns the entry, if there is one now. */
struct host_neigh *host_neigh_update(struct host_neigh_cache *,
                                     const struct in6_addr *ip,
                                     const struct host_neigh_news *,
                                     long long int now);
void host_neigh_flush(struct host_neigh_cache *);

void host_neigh_run(struct host_neigh_cache *, long long int now);
void host_neigh_wait(const struct host_neigh_cache *);

/* All entries, sorted by address; the caller frees the array. */
struct host_neigh **host_neigh_sort(const struct host_neigh_cache *);

#endif /* host-neigh.h */
