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

#ifndef IPOIB_HOST_H
#define IPOIB_HOST_H 1

/* Hosts: the stations on the Ethernet side, known by MAC and VLAN, and the
 * queue pair numbers under which they appear on the fabric.
 *
 * The data path finds a host by the QPN that a packet was sent to, and, where
 * several hosts share a base QP, by destination IP.
 *
 * Thread-safety: as ipoib-neigh.h: one writer; "readers" are RCU readers. */

#include <netinet/in.h>
#include "ipoib-packet.h"
#include "ipoib-table.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"
#include "ovs-atomic.h"
#include "util.h"

struct ipoib_host_fast {
    uint64_t mac;               /* As eth_addr_to_uint64(). */
    atomic_uint32_t used;       /* Second of the last packet to it. */
    uint16_t vlan;              /* 0: untagged. */
    bool is_router;             /* Takes packets for any IP address: says or
                                 * was seen to. */
    uint8_t pad[64 - 8 - 4 - 2 - 1];
};
BUILD_ASSERT_DECL(sizeof(struct ipoib_host_fast) == CACHE_LINE_SIZE);

struct ipoib_host_ip {
    struct hmap_node by_ip;     /* In ipoib_host_table. */
    struct ovs_list node;       /* In ipoib_host 'ips', latest first. */
    struct ipoib_host *host;
    struct in6_addr ip;
    long long int seen;         /* Last announced, time_msec(). */
    bool published;             /* Private: readers find it. */
};

#define IPOIB_HOST_MAX_IPS 64

struct ipoib_host {
    struct hmap_node by_mac;    /* In ipoib_host_table. */
    struct ovs_list lru;
    uint32_t slot;
    struct eth_addr mac;
    uint16_t vlan;
    bool is_router;             /* Says so. */
    bool forwards;              /* Was seen to send what is not its own. */
    struct ovs_list ips;        /* Of struct ipoib_host_ip. */
    size_t n_ips;
    uint32_t qpn;               /* Host QPN, or the base QP's; 0: none yet. */
    bool shares_qp;             /* 'qpn' is a base QP's. */
    uint32_t source;            /* ipoib_host_set_source(). */
    struct ovs_list by_source;  /* Private, as 'lru'. */
    long long int created;
    long long int heard;        /* Last packet from it, time_msec(). */

    /* For the owner of the table; 0 and empty in a new host. */
    void *qp;                   /* Its queue pair. */
    unsigned int rxq;           /* Receive queue of the QP. */
    unsigned int n_qps;         /* More than 1: it has others, too. */
    uint64_t askers;            /* One bit or more for each neighbour that has
                                 * asked for it; see ipoib-control-router.c. */
    unsigned int n_foreign;     /* Packets seen from addresses not its own. */
    long long int foreign;      /* When the last one was, time_msec(). */
    bool announcing;            /* Waits to be announced. */
};

struct ipoib_host_table;
struct ipoib_host_ops {
    /* 'host' is about to go, and cannot be found any more: release 'qp'.
     * Must not call a writer's function. */
    void (*removed)(void *aux, struct ipoib_host *);
};

struct ipoib_host_table *
ipoib_host_table_create(size_t max, const struct ipoib_host_ops *, void *aux);
void ipoib_host_table_destroy(struct ipoib_host_table *);
size_t ipoib_host_table_count(const struct ipoib_host_table *);

enum {
    IPOIB_HOST_NEW      = 1 << 0,
    IPOIB_HOST_NEW_IP   = 1 << 1,
    IPOIB_HOST_MOVED_IP = 1 << 2, /* It was another host's. */
};

/* Learns that the host 'mac' in 'vlan' lives and has 'ip' (NULL or the
 * unspecified address: nothing is said).  Makes the host; evicts the least
 * recently heard one if the table is full.  At most 64 addresses a host: the
 * oldest goes.  The result is valid until the next call of a writer's
 * function.  Returns NULL only as ipoib_neigh_learn() does. */
struct ipoib_host *ipoib_host_learn(struct ipoib_host_table *,
                                    struct eth_addr mac, uint16_t vlan,
                                    const struct in6_addr *ip,
                                    long long int now, unsigned int *changes);
/* What is learned from now on comes from 'source', a port of the bridge.  When
 * the table is full, and more than an eighth of it are from the source of a
 * new host, one of these goes. */
void ipoib_host_set_source(struct ipoib_host_table *, uint32_t source);
struct ipoib_host *ipoib_host_find(const struct ipoib_host_table *,
                                   struct eth_addr mac, uint16_t vlan);
struct ipoib_host *ipoib_host_find_ip(const struct ipoib_host_table *,
                                      const struct in6_addr *);
struct ipoib_host *ipoib_host_of_slot(const struct ipoib_host_table *,
                                      uint32_t slot);
/* No host has the address any more. */
void ipoib_host_forget_ip(struct ipoib_host_table *, const struct in6_addr *);
void ipoib_host_remove(struct ipoib_host_table *, struct ipoib_host *);
size_t ipoib_host_flush(struct ipoib_host_table *);

/* Publishes that packets to 'qpn' are for 'host' ('shares' is false), or that
 * 'host' is found by IP behind base QP 'qpn' ('shares' is true).  Replaces
 * what was published before; QPN 0 only withdraws.
 *
 * ipoib_host_by_ip() finds the IP addresses of all hosts, whether they share a
 * QP or not: what is sent to one host's QPN for another's IP is to be seen. */
void ipoib_host_set_qpn(struct ipoib_host_table *, struct ipoib_host *,
                        uint32_t qpn, bool shares);
/* Publishes, or withdraws, a further QPN of 'host'. */
void ipoib_host_add_qpn(struct ipoib_host_table *, struct ipoib_host *,
                        uint32_t qpn);
void ipoib_host_del_qpn(struct ipoib_host_table *, struct ipoib_host *,
                        uint32_t qpn);
void ipoib_host_set_router(struct ipoib_host_table *, struct ipoib_host *,
                           bool is_router);
void ipoib_host_set_forwards(struct ipoib_host_table *, struct ipoib_host *);
/* True if 'host' takes packets for other addresses than its own. */
static inline bool
ipoib_host_routes(const struct ipoib_host *host)
{
    return host->is_router || host->forwards;
}

/* As ipoib_neigh_age() and ipoib_neigh_walk(). */
size_t ipoib_host_age(struct ipoib_host_table *, long long int now,
                      long long int idle, size_t budget);
bool ipoib_host_walk(const struct ipoib_host_table *, size_t *pos,
                     size_t budget,
                     void (*cb)(struct ipoib_host *, void *aux), void *aux);

/* Readers. */
struct ipoib_host_fast *ipoib_host_fast(const struct ipoib_host_table *,
                                        uint32_t slot);
void ipoib_host_by_qpn(const struct ipoib_host_table *,
                       const uint64_t qpns[], size_t n, uint32_t slots[]);
uint32_t ipoib_host_by_ip(const struct ipoib_host_table *,
                          const struct in6_addr *);

#endif /* ipoib-host.h */
