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

#ifndef IPOIB_PARTITION_H
#define IPOIB_PARTITION_H 1

/* A partition: one P_Key of an HCA port, with everything that belongs to it:
 * queues, host QPs, neighbours, hosts, paths and groups.
 *
 * Thread-safety: the HCA's mutex, but for the queues' data paths.  The
 * functions below are called with it; those that say "no PMD" while no PMD
 * uses the queues. */

#include <stdbool.h>
#include <stdint.h>
#include "ipoib-hca.h"
#include "ipoib-hostqp.h"
#include "ipoib-kernel.h"
#include "ipoib-known.h"
#include "ipoib-mcast.h"
#include "ipoib-path.h"
#include "ipoib-prio.h"
#include "ipoib-proof.h"
#include "ipoib-ring.h"
#include "ipoib-snoop.h"
#include "openvswitch/token-bucket.h"

/* Packets that wait, as in Linux's driver. */
#define IPOIB_MAX_WAIT_NEIGH 3
#define IPOIB_MAX_WAIT_GROUP 64

/* Idle neighbours and hosts go after so many ms.  Stations keep addresses in
 * their caches for long and revalidate them by unicast, which needs ours. */
#define IPOIB_NEIGH_IDLE (20 * 60 * 1000)
#define IPOIB_HOST_IDLE (20 * 60 * 1000)

#define IPOIB_MAX_HOSTS 65536
#define IPOIB_MTU_DEFAULT 2044  /* Until the broadcast group tells. */

/* options:ib-leave: whether the SA is told that groups are left. */
enum ipoib_leave {
    IPOIB_LEAVE_AUTO,           /* Unless the kernel has the partition, too. */
    IPOIB_LEAVE_ALWAYS,         /* Also of the broadcast group. */
    IPOIB_LEAVE_NEVER,
};

/* options:mcast-router: whether there is a multicast router on Ethernet, which
 * is to get what is sent to groups of the fabric. */
enum ipoib_mcast_router {
    IPOIB_ROUTER_AUTO,          /* If one is heard. */
    IPOIB_ROUTER_ALWAYS,
    IPOIB_ROUTER_NEVER,
};

/* Descriptors of a queue, at least. */
#define IPOIB_MIN_DESC 128

struct ipoib_partition_config {
    unsigned int n_rxq, n_txq, n_rxq_desc, n_txq_desc;
    size_t max_host_qps, max_neighbours;
    unsigned int host_queues;   /* options:host-queues, 0: all. */
    bool proxy_reply;           /* options:proxy=reply. */
    bool guard_strict;          /* options:guard=strict. */
    struct ipoib_prio_map prio; /* options:prio-map. */
    enum ipoib_sa_mode sa;      /* options:sa. */
    enum ipoib_leave leave;     /* options:ib-leave. */
    enum ipoib_peer_mode peers; /* options:peers. */
    unsigned int eth_mtu;       /* options:eth-mtu, 0: none. */
    bool clamp_mss;             /* options:clamp-mss. */
    enum ipoib_mcast_router mcast_router; /* options:mcast-router. */
    size_t max_groups, max_host_groups;
};

/* What was learned since the last beacon, for gateways on standby. */
#define IPOIB_MAX_CHANGES 512
struct ipoib_sync_change {
    bool is_host;
    struct eth_addr mac;        /* A host's, or a stand-in MAC. */
};

struct ipoib_partition_sync {
    struct ipoib_sync_change *changed; /* IPOIB_MAX_CHANGES at most. */
    size_t n_changed, allocated_changed;
    bool hosts_done;            /* The round is at the neighbours. */
    size_t pos;                 /* In the table that it is at. */
    bool announcing;            /* Announces all neighbours on Ethernet. */
    size_t announce_pos;
    long long int next_announce;
};

struct ipoib_partition_ops {
    /* MTU, carrier or the reason why the partition is down has changed. */
    void (*changed)(void *aux);
};

/* What the control thread does by itself is counted here, in addition to the
 * queues' own counters. */
struct ipoib_partition {
    struct ipoib_hca_client client;
    struct ipoib_hca *hca;
    struct ipoib_hca_port *port;
    char *name;                 /* Of the netdev, for the log. */
    const struct ipoib_partition_ops *ops;
    void *aux;

    uint16_t pkey;              /* With the full-member bit. */
    int pkey_index;             /* In the port's table, -1: not there. */
    struct ipoib_ud_params ud;  /* What all QPs have. */
    struct ipoib_partition_config config;

    struct ipoib_shared shared; /* What the queues read. */
    struct ipoib_pool *pool;
    struct {                    /* ipoib-partition-queues.c. */
        uint64_t no_buffer;     /* Of all receive queues, when it was last
                                 * looked at. */
        bool over;              /* The pool cannot grow any more. */
    } growth;
    struct ipoib_ctlq *ctlq;
    struct ipoib_rxq **rxqs;
    unsigned int n_rxq;
    struct ipoib_txq **txqs;
    unsigned int n_txq;
    struct ipoib_hostqps *hostqps;
    struct ipoib_path_table *paths;
    struct ipoib_prio_map prio;
    struct ipoib_path_table *prio_paths[IPOIB_MAX_CLASSES]; /* From 1 on. */
    struct ipoib_snoop *snoop;
    struct ipoib_known *known;  /* Hosts, for other ports of the process. */
    struct {                    /* ipoib-partition-born.c. */
        bool router;            /* Groups of the fabric are wanted. */
        struct ipoib_sa_request *request; /* For the table of groups. */
        unsigned int gen;       /* Of the last request. */
        unsigned int backoff;   /* Seconds. */
        long long int next_try; /* LLONG_MAX: none is to be made. */
    } born;

    struct ipoib_peers peers;   /* Other gateways: see ipoib-peer.h. */
    struct ipoib_partition_sync sync;
    struct ipoib_table *standins; /* The stand-in MACs that other gateways give
                                   * to our hosts, to their slots. */

    struct ipoib_rx_stats rx_stats;
    struct ipoib_tx_stats tx_stats;

    const char *reason;         /* Why it is down, NULL if it is up. */
    int group_mtu;              /* Largest IP packet that the group takes. */
    uint16_t group_mlid;        /* Of the broadcast group, 0 before it was
                                 * joined. */
    int mtu_limit;              /* 0, or what the user wants at most. */
    int warned_mtu;             /* 'group_mtu' when the log was told that it
                                 * is less than 'mtu_limit'. */
    long long int next_age;     /* Next slice of aging. */
    struct ovs_list announce;   /* Of struct ipoib_announcement. */
    long long int next_announce;
    struct token_bucket probes; /* For senders that nobody knows. */
    unsigned int n_queries;     /* IGMP and MLD queries still to be sent. */
    long long int next_query;
    bool remember;              /* Hosts or neighbours have changed. */
    bool removing;              /* Being destroyed: tell nobody. */
    struct ipoib_events events;
    struct {                    /* ipoib-partition-watch.c. */
        uint64_t n_recovered;   /* Queues that failed and work again; of
                                 * them, */
        uint64_t n_stalled;     /* those without an error. */
    } watch;
    struct ipoib_proof proof;   /* ipoib-partition-offload.c. */
    struct ipoib_kernel_netdev kernel; /* That has the same partition. */
};

/* Makes the partition 'pkey' (bit 15 is ignored) of 'port'; the queues come
 * with ipoib_partition_configure(). */
int ipoib_partition_create(struct ipoib_hca_port *port, uint16_t pkey,
                           const char *name,
                           const struct ipoib_partition_ops *, void *aux,
                           struct ipoib_partition **);
/* No PMD.  Adds what it has counted to 'rx' and 'tx', if they are not NULL. */
void ipoib_partition_destroy(struct ipoib_partition *,
                             struct ipoib_rx_stats *rx,
                             struct ipoib_tx_stats *tx);

/* Makes the queues as 'config' says; touches only what differs.  No PMD.  0
 * or errno, and then there are no queues. */
int ipoib_partition_configure(struct ipoib_partition *,
                              const struct ipoib_partition_config *config);

/* 'netdev' is what the kernel has of the same partition. */
void ipoib_partition_set_kernel(struct ipoib_partition *,
                                const struct ipoib_kernel_netdev *netdev);

/* True if groups of the fabric are joined for a multicast router. */
bool ipoib_partition_has_router(const struct ipoib_partition *);

/* Groups that the SA or the device has refused. */
size_t ipoib_partition_n_refused(const struct ipoib_partition *);

/* True if the partition carries traffic; otherwise '*reason' says, in a static
 * string, why not. */
bool ipoib_partition_is_up(const struct ipoib_partition *,
                           const char **reason);
/* Largest IP packet: what the broadcast group takes, or less if a limit was
 * set (0: none). */
int ipoib_partition_mtu(const struct ipoib_partition *);
void ipoib_partition_limit_mtu(struct ipoib_partition *, int limit);

/* Adds which checksums the device computes and checks, or why it does not. */
struct smap;
void ipoib_partition_offload_status(const struct ipoib_partition *,
                                    struct smap *);

/* For the control code: see ipoib-control.c. */

/* Address on the fabric of 'host', which has a QP. */
struct ipoib_addr ipoib_partition_host_addr(const struct ipoib_partition *,
                                            const struct ipoib_host *host);
/* The same as 'neigh' (NULL: everybody) is to know it, since a host may have
 * several QPs. */
struct ipoib_addr
ipoib_partition_host_addr_for(const struct ipoib_partition *,
                              const struct ipoib_host *host,
                              const struct ipoib_neigh *neigh);
/* The host one of whose own QPs is 'qpn', or NULL. */
struct ipoib_host *
ipoib_partition_host_of_qpn(const struct ipoib_partition *, uint32_t qpn);
/* 'neigh' was heard from 'lid' (0: unknown): asks for its path again if that
 * leads to another LID or GID. */
void ipoib_partition_suspect_path(struct ipoib_partition *,
                                  struct ipoib_neigh *neigh, uint16_t lid);
/* Sends 'packet' (from the IPoIB header on; taken), from QP 'sqpn' (a host's;
 * if that is gone, from a base QP), to a neighbour, waiting for its path if
 * need be, or to a group, waiting for the join if need be. */
void ipoib_partition_send_neigh(struct ipoib_partition *, uint32_t sqpn,
                                struct ipoib_neigh *, struct dp_packet *);
void ipoib_partition_send_group(struct ipoib_partition *, uint32_t sqpn,
                                const struct ib_gid *mgid, struct dp_packet *);
/* The path of 'neigh', or NULL if nothing was sent to it. */
const struct ipoib_path *
ipoib_partition_neigh_path(const struct ipoib_neigh *neigh);
/* Delivers 'frame' (taken) into the bridge by receive queue 'rxq'. */
void ipoib_partition_deliver(struct ipoib_partition *, unsigned int rxq,
                             struct dp_packet *frame);
/* Other gateways: see ipoib-partition-peers.c. */
void ipoib_partition_set_peers(struct ipoib_partition *,
                               enum ipoib_peer_mode);
void ipoib_partition_peer_message(struct ipoib_partition *,
                                  struct ipoib_msg *, long long int now);
bool ipoib_partition_is_peers_mac(struct ipoib_partition *,
                                  struct eth_addr mac, long long int now);
/* 'host' has got its QPN, or has it no more. */
void ipoib_partition_note_standin(struct ipoib_partition *,
                                  const struct ipoib_host *host, bool here);
bool ipoib_partition_neigh_is_ours(const struct ipoib_partition *,
                                   const struct ib_gid *);
bool ipoib_partition_host_is_ours(const struct ipoib_partition *,
                                  struct eth_addr mac);
void ipoib_partition_note_change(struct ipoib_partition *, bool is_host,
                                 struct eth_addr mac);
struct ds;
void ipoib_partition_peers_format(const struct ipoib_partition *,
                                  struct ds *);
/* Announces the addresses of 'host' on the fabric, soon. */
void ipoib_partition_announce(struct ipoib_partition *, struct ipoib_host *);

#endif /* ipoib-partition.h */
