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

#ifndef HOST_HCA_H
#define HOST_HCA_H 1

/* The station's side towards the fabric: a device, UD queue pairs in one
 * partition, the subnet administrator's client, paths and groups.
 *
 * There may be several queue pairs ("identities"), each with a hardware
 * address of its own, so that one process plays many stations.  They share
 * the receive buffers and completion queues; identity 0 is the one that is
 * attached to groups.
 *
 * Everything belongs to one thread. */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ipoib-mcast.h"
#include "ipoib-packet.h"
#include "ipoib-path.h"
#include "ipoib-sa.h"

#define HOST_HCA_BATCH 64

struct host_hca_config {
    const char *device;
    int port;
    uint16_t pkey;              /* Host byte order. */
    unsigned int n_ids;         /* Identities, at least 1. */
};

/* A received packet. */
struct host_rx {
    unsigned int id;            /* Identity that received it. */
    uint16_t type;              /* ETH_TYPE_*, host byte order. */
    const uint8_t *data;        /* Behind the IPoIB header. */
    size_t len;
    uint32_t src_qpn;
    uint16_t slid;
    bool has_grh;
    bool multicast;             /* GRH with a multicast DGID. */
    struct ib_gid sgid;         /* If 'has_grh'. */
};

struct host_hca_ops {
    void (*receive)(void *aux, const struct host_rx *);
    /* The link went up or down, its MTU changed, or the hardware addresses
     * did ('readdressed'). */
    void (*changed)(void *aux, bool readdressed);
    void (*path_changed)(void *aux, struct ipoib_path *);
    void (*group_changed)(void *aux, struct ipoib_mcast_group *);
    void (*group_removed)(void *aux, struct ipoib_mcast_group *);
};

/* A buffer to be sent. */
struct host_tx {
    uint8_t *data;              /* IPoIB header first. */
    uint32_t slot;
    struct ibv_sge sge;
    struct ibv_send_wr wr;
};

struct host_hca_stats {
    uint64_t rx_packets, rx_bytes, rx_multicast, rx_own, rx_errors, rx_bad,
             rx_unknown_type;
    uint64_t tx_packets, tx_bytes, tx_multicast, tx_errors, tx_full;
};

struct host_hca;

/* On failure returns a positive errno value and stores a message in '*errp',
 * which the caller frees.  A fabric that does not answer is no failure. */
int host_hca_open(const struct host_hca_config *, const struct host_hca_ops *,
                  void *aux, struct host_hca **, char **errp);
void host_hca_close(struct host_hca *); /* Leaves all groups first. */

/* True if packets can be sent and received; otherwise '*reason', if nonnull,
 * says why not. */
bool host_hca_is_up(const struct host_hca *, const char **reason);
int host_hca_mtu(const struct host_hca *); /* Of IP; 0 if not known yet. */
uint64_t host_hca_guid(const struct host_hca *);
unsigned int host_hca_n_ids(const struct host_hca *);
struct ipoib_addr host_hca_addr(const struct host_hca *, unsigned int id);
bool host_hca_is_own(const struct host_hca *, const struct ipoib_addr *);
/* The LID and LMC, as the port says. */
const struct ibv_port_attr *host_hca_port(const struct host_hca *);
uint16_t host_hca_pkey(const struct host_hca *);
uint8_t host_hca_scope(const struct host_hca *); /* Of groups. */
const struct ib_gid *host_hca_gid(const struct host_hca *);
const struct host_hca_stats *host_hca_stats(const struct host_hca *);
struct ipoib_path_table *host_hca_paths(const struct host_hca *);
struct ipoib_mcast *host_hca_mcast(const struct host_hca *);
struct ipoib_sa *host_hca_sa(const struct host_hca *);

/* A free buffer of 'host_hca_tx_size()' bytes, or NULL. */
struct host_tx *host_hca_tx_get(struct host_hca *);
size_t host_hca_tx_size(const struct host_hca *);
void host_hca_tx_put(struct host_hca *, struct host_tx *); /* Unused. */
/* Queues the first 'len' bytes of the buffer for sending, from identity 'id';
 * they leave at the latest at host_hca_flush(). */
void host_hca_tx_unicast(struct host_hca *, struct host_tx *, size_t len,
                         unsigned int id, struct ibv_ah *, uint32_t qpn);
void host_hca_tx_group(struct host_hca *, struct host_tx *, size_t len,
                       unsigned int id, const struct ipoib_mcast_group *);
void host_hca_flush(struct host_hca *);

/* Takes events, timers and at most a few batches of packets.  Returns true if
 * there is more to receive. */
bool host_hca_run(struct host_hca *, long long int now);
void host_hca_wait(struct host_hca *);

#endif /* host-hca.h */
