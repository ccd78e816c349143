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

#ifndef IPOIB_PORT_H
#define IPOIB_PORT_H 1

/* A port as a netdev has it: the partition of its untagged frames, and one for
 * each VLAN of options:pkey-map, all of one HCA port.
 *
 * Each partition is a struct ipoib_dev, with queues, hosts, neighbours, paths
 * and groups of its own, and knows nothing of tags: those are put on and taken
 * off here.
 *
 * Thread-safety: the main thread, but for what says otherwise. */

#include <stdbool.h>
#include <stdint.h>
#include "ipoib-dev.h"
#include "ipoib-vlan.h"

struct dp_packet_batch;
struct smap;

/* What PMDs read of a port that has more than one partition, or priorities; it
 * does not change. */
#define IPOIB_PORT_NONE UINT8_MAX
struct ipoib_port_table {
    struct ipoib_partition *main; /* Counts what has no partition. */
    size_t n;
    struct {
        struct ipoib_partition *part;
        uint16_t vid;           /* 0: untagged. */
    } members[IPOIB_MAX_VLANS];
    uint8_t of_vid[1 << 12];    /* Index in 'members', or IPOIB_PORT_NONE. */
    struct ipoib_prio_map prio; /* options:prio-map. */
};

struct ipoib_port {
    char *name;                 /* Of the netdev. */
    const struct ipoib_partition_ops *ops;
    void *aux;

    /* What is open.  Changes with the HCA's mutex, so that the control thread
     * can read it.  The first is the one that the netdev has its MAC of. */
    size_t n, allocated;
    struct ipoib_port_dev {
        struct ipoib_dev *dev;
        bool active;            /* PMDs may use its queues. */
    } *devs;

    struct ipoib_vlan_map vlans; /* As ipoib_port_set() was told. */
    struct ipoib_port_table *table; /* NULL: untagged frames of class 0
                                     * only. */
    struct ipoib_rx_stats rx_stats; /* Of partitions that are gone. */
    struct ipoib_tx_stats tx_stats;
};

/* Makes a port without partitions.  'ops' are called by the control thread,
 * with the HCA's mutex. */
struct ipoib_port *ipoib_port_create(const char *name,
                                     const struct ipoib_partition_ops *ops,
                                     void *aux);
/* No PMD. */
void ipoib_port_destroy(struct ipoib_port *);
/* Closes all partitions.  No PMD. */
void ipoib_port_close(struct ipoib_port *);

/* Opens what 'vlans' has in addition to what is open, with the device and port
 * of 'options'.  What it has no longer goes with the next
 * ipoib_port_configure().  On failure returns a positive errno value, stores
 * in '*errp' a message that names the option and the value, which the caller
 * frees, and changes nothing. */
int ipoib_port_set(struct ipoib_port *, const struct ipoib_dev_options *,
                   const struct ipoib_vlan_map *vlans, char **errp);

/* Makes the queues of all partitions.  If the first has none, fails with a
 * positive errno value.  No PMD. */
int ipoib_port_configure(struct ipoib_port *,
                         const struct ipoib_partition_config *);

/* The partition that the netdev has its MAC of, or NULL. */
static inline struct ipoib_dev *
ipoib_port_main(const struct ipoib_port *port)
{
    return port->n ? port->devs[0].dev : NULL;
}

/* True if a partition carries traffic.  Also for the control thread. */
bool ipoib_port_is_up(const struct ipoib_port *);

/* The smallest of those that are up, or of all if none is. */
int ipoib_port_mtu(const struct ipoib_port *);
/* Limits the MTU to 'mtu' (0: no longer).  EINVAL if a broadcast group does
 * not take it; then nothing changes. */
int ipoib_port_set_mtu(struct ipoib_port *, int mtu);
void ipoib_port_get_status(const struct ipoib_port *, struct smap *);
void ipoib_port_get_stats(const struct ipoib_port *, struct ipoib_rx_stats *,
                          struct ipoib_tx_stats *);

/* Data path. */

/* Receives from queue 'queue' of the partitions in turn; '*next' is the
 * caller's, at first 0.  0, or EAGAIN if there is nothing. */
int ipoib_port_recv(const struct ipoib_port_table *, unsigned int queue,
                    size_t *next, struct dp_packet_batch *);
/* Sends 'batch' (taken) by transmit queue 'queue' of the partitions;
 * 'concurrent' as in netdev_send(). */
void ipoib_port_send(const struct ipoib_port_table *, unsigned int queue,
                     struct dp_packet_batch *batch, bool concurrent);

#endif /* ipoib-port.h */
