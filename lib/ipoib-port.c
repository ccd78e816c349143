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

#include <config.h>
#include "ipoib-port.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-packet.h"
#include "ipoib-rx.h"
#include "ipoib-tx.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "smap.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_port);


/* Life. */

struct ipoib_port *
ipoib_port_create(const char *name, const struct ipoib_partition_ops *ops,
                  void *aux)
{
    struct ipoib_port *port = xzalloc(sizeof *port);

    port->name = xstrdup(name);
    port->ops = ops;
    port->aux = aux;
    return port;
}

void
ipoib_port_destroy(struct ipoib_port *port)
{
    if (port) {
        ipoib_port_close(port);
        free(port->devs);
        free(port->name);
        free(port);
    }
}

static struct ovs_mutex *
port_mutex(const struct ipoib_port *port)
{
    return &port->devs[0].dev->hca->mutex;
}

/* Takes devs[i] out, keeping what it has counted, and closes it. */
static void
port_close_dev(struct ipoib_port *port, size_t i)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct ovs_mutex *mutex = port_mutex(port);
    struct ipoib_dev *dev = port->devs[i].dev;

    ovs_mutex_lock(mutex);
    port->n--;
    memmove(&port->devs[i], &port->devs[i + 1],
            (port->n - i) * sizeof port->devs[i]);
    if (port->n) {
        port->ops->changed(port->aux);
    }
    ovs_mutex_unlock(mutex);
    ipoib_dev_close(dev, &port->rx_stats, &port->tx_stats);
}

void
ipoib_port_close(struct ipoib_port *port)
{
    while (port->n) {
        port_close_dev(port, port->n - 1);
    }
    port->vlans.n = 0;
    free(port->table);
    port->table = NULL;
}


/* Configuration. */

/* Index in 'devs' of partition 'pkey', or 'n'. */
static size_t
port_find(const struct ipoib_port *port, uint16_t pkey)
{
    size_t i = 0;

    while (i < port->n
           && (port->devs[i].dev->pkey ^ pkey) & IB_PKEY_MASK) {
        i++;
    }
    return i;
}

/* Opens the partition of 'vlan'. */
static int
port_open(struct ipoib_port *port, const struct ipoib_dev_options *options_,
          const struct ipoib_vlan *vlan, char **errp)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct ipoib_dev_options options = *options_;
    struct ipoib_dev *dev;
    int error;

    options.pkey = vlan->pkey;
    options.pkey_given = vlan->given;
    options.vid = vlan->vid;
    error = ipoib_dev_open(port->name, &options, port->ops, port->aux, &dev,
                           errp);
    if (!error) {
        ovs_mutex_lock(&dev->hca->mutex);
        if (port->n == port->allocated) {
            port->devs = x2nrealloc(port->devs, &port->allocated,
                                    sizeof *port->devs);
        }
        port->devs[port->n].dev = dev;
        port->devs[port->n].active = false;
        port->n++;
        ovs_mutex_unlock(&dev->hca->mutex);
    }
    return error;
}

/* Closes what 'vlans' does not have, unless it is in use and not 'all' is to
 * go. */
static void
port_close_others(struct ipoib_port *port, const struct ipoib_vlan_map *vlans,
                  bool all)
{
    for (size_t i = port->n; i-- > 0; ) {
        if ((all || !port->devs[i].active)
            && !ipoib_vlan_map_find(vlans, port->devs[i].dev->pkey)) {
            port_close_dev(port, i);
        }
    }
}

int
ipoib_port_set(struct ipoib_port *port,
               const struct ipoib_dev_options *options,
               const struct ipoib_vlan_map *vlans, char **errp)
{
    int error = 0;

    *errp = NULL;
    for (size_t i = 0; !error && i < vlans->n; i++) {
        if (port_find(port, vlans->vlans[i].pkey) == port->n) {
            error = port_open(port, options, &vlans->vlans[i], errp);
        }
    }
    if (!error) {
        port->vlans = *vlans;
    }
    port_close_others(port, &port->vlans, false);
    return error;
}

/* Brings 'devs' in the order of 'vlans', and tells each its VLAN. */
static void
port_sort(struct ipoib_port *port)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct ovs_mutex *mutex = port_mutex(port);

    ovs_mutex_lock(mutex);
    for (size_t i = 0; i < port->vlans.n; i++) {
        size_t j = port_find(port, port->vlans.vlans[i].pkey);
        struct ipoib_dev *dev = port->devs[j].dev;

        port->devs[j].dev = port->devs[i].dev;
        port->devs[i].dev = dev;
        ipoib_dev_set_vlan(dev, port->vlans.vlans[i].vid, !i);
    }
    ovs_mutex_unlock(mutex);
}

/* Makes the table of the data path. */
static void
port_make_table(struct ipoib_port *port, const struct ipoib_prio_map *prio)
{
    struct ipoib_port_table *table;

    free(port->table);
    port->table = NULL;
    if (port->n == 1 && !port->devs[0].dev->vid && !prio->n) {
        return;
    }

    table = port->table = xzalloc(sizeof *table);
    table->main = port->devs[0].dev->part;
    table->prio = *prio;
    memset(table->of_vid, IPOIB_PORT_NONE, sizeof table->of_vid);
    for (size_t i = 0; i < port->n; i++) {
        const struct ipoib_dev *dev = port->devs[i].dev;

        if (dev->part->n_rxq) {
            table->members[table->n].part = dev->part;
            table->members[table->n].vid = dev->vid;
            table->of_vid[dev->vid] = table->n++;
        }
    }
}

int
ipoib_port_configure(struct ipoib_port *port,
                     const struct ipoib_partition_config *config)
{
    int error = 0;

    BUILD_ASSERT_DECL(IPOIB_MAX_VLANS < IPOIB_PORT_NONE);
    port_close_others(port, &port->vlans, true);
    port_sort(port);
    for (size_t i = 0; i < port->n; i++) {
        struct ipoib_dev *dev = port->devs[i].dev;
        int e = ipoib_dev_configure(dev, config);

        port->devs[i].active = true;
        if (e && i) {
            VLOG_ERR("%s: VLAN %"PRIu16" (P_Key 0x%04"PRIx16") has no queues "
                     "(%s)", port->name, dev->vid, dev->pkey, ovs_strerror(e));
        } else if (e) {
            error = e;
        }
    }
    port_make_table(port, &config->prio);
    return error;
}


/* What is asked of a port. */

bool
ipoib_port_is_up(const struct ipoib_port *port)
{
    for (size_t i = 0; i < port->n; i++) {
        if (ipoib_dev_is_up(port->devs[i].dev)) {
            return true;
        }
    }
    return false;
}

int
ipoib_port_mtu(const struct ipoib_port *port)
{
    bool any_up = ipoib_port_is_up(port);
    int min = INT_MAX;

    for (size_t i = 0; i < port->n; i++) {
        const struct ipoib_dev *dev = port->devs[i].dev;

        if (!any_up || ipoib_dev_is_up(dev)) {
            min = MIN(min, ipoib_dev_mtu(dev));
        }
    }
    return min == INT_MAX ? IPOIB_MTU_DEFAULT : min;
}

int
ipoib_port_set_mtu(struct ipoib_port *port, int mtu)
{
    for (size_t i = 0; i < port->n; i++) {
        if (mtu > ipoib_dev_max_mtu(port->devs[i].dev)) {
            return EINVAL;
        }
    }
    for (size_t i = 0; i < port->n; i++) {
        ipoib_dev_set_mtu(port->devs[i].dev, mtu);
    }
    return 0;
}

/* Adds the partition of a VLAN: "vlan_100" is "0x8064 up", or "0x8064 down:
 * REASON". */
static void
port_add_vlan_status(struct ipoib_dev *dev, struct smap *smap)
{
    char *state = ipoib_dev_state(dev);
    char *key = xasprintf("vlan_%"PRIu16, dev->vid);

    smap_add_format(smap, key, "0x%04"PRIx16" %s", dev->pkey, state);
    free(key);
    free(state);
}

void
ipoib_port_get_status(const struct ipoib_port *port, struct smap *smap)
{
    ipoib_dev_get_status(ipoib_port_main(port), smap);
    for (size_t i = 0; i < port->n; i++) {
        if (port->devs[i].dev->vid) {
            port_add_vlan_status(port->devs[i].dev, smap);
        }
    }
}

void
ipoib_port_get_stats(const struct ipoib_port *port, struct ipoib_rx_stats *rx,
                     struct ipoib_tx_stats *tx)
{
    memset(rx, 0, sizeof *rx);
    memset(tx, 0, sizeof *tx);
    ipoib_rx_stats_add(rx, &port->rx_stats);
    ipoib_tx_stats_add(tx, &port->tx_stats);
    for (size_t i = 0; i < port->n; i++) {
        struct ipoib_rx_stats dev_rx;
        struct ipoib_tx_stats dev_tx;

        ipoib_dev_get_stats(port->devs[i].dev, &dev_rx, &dev_tx);
        ipoib_rx_stats_add(rx, &dev_rx);
        ipoib_tx_stats_add(tx, &dev_tx);
    }
}


/* Data path. */

int
ipoib_port_recv(const struct ipoib_port_table *table, unsigned int queue,
                size_t *next, struct dp_packet_batch *batch)
{
    for (size_t i = 0; i < table->n; i++) {
        size_t member = *next;
        ovs_be16 tci = htons(table->members[member].vid);
        int error;

        *next = member + 1 < table->n ? member + 1 : 0;
        error = ipoib_rx_batch(table->members[member].part->rxqs[queue],
                               batch);
        if (!error) {
            struct dp_packet *packet;

            if (tci) {
                DP_PACKET_BATCH_FOR_EACH (j, packet, batch) {
                    eth_push_vlan(packet, htons(ETH_TYPE_VLAN_8021Q), tci);
                }
            }
            return 0;
        } else if (error != EAGAIN) {
            return error;
        }
    }
    return EAGAIN;
}

/* What becomes of a packet. */
struct verdict {
    uint8_t member;             /* Or IPOIB_PORT_NONE. */
    uint8_t class;              /* Of options:prio-map. */
    bool tagged;                /* With a VLAN. */
};

static bool
verdict_equals(const struct verdict *a, const struct verdict *b)
{
    return (a->member == b->member && a->class == b->class
            && (a->member != IPOIB_PORT_NONE || a->tagged == b->tagged));
}

/* Says what becomes of 'packet'.  If it has a member, its tag is taken off. */
static void
port_classify(const struct ipoib_port_table *table, struct dp_packet *packet,
              struct verdict *v)
{
    const struct vlan_eth_header *veh = dp_packet_data(packet);

    v->class = (table->prio.n ? ipoib_prio_classify(&table->prio, packet) : 0);
    if (dp_packet_size(packet) < ETH_HEADER_LEN
        || !eth_type_vlan(veh->veth_type)) {
        v->tagged = false;
        v->member = table->of_vid[0];
        return;
    }
    v->tagged = true;
    v->member = IPOIB_PORT_NONE;
    if (veh->veth_type != htons(ETH_TYPE_VLAN_8021Q)
        || dp_packet_size(packet) < VLAN_ETH_HEADER_LEN) {
        return;
    }
    /* VID 0 says that there is only a priority. */
    v->tagged = vlan_tci_to_vid(veh->veth_tci) != 0;
    v->member = table->of_vid[vlan_tci_to_vid(veh->veth_tci)];
    if (v->member != IPOIB_PORT_NONE) {
        ipoib_packet_pop_tag(packet);
    }
}

/* Sends 'batch', whose packets have all the same verdict 'v', or drops it for
 * want of a member. */
static void
port_send_same(const struct ipoib_port_table *table, const struct verdict *v,
               unsigned int queue, struct dp_packet_batch *batch,
               bool concurrent)
{
    const struct ipoib_partition *part
        = (v->member == IPOIB_PORT_NONE ? table->main
                                        : table->members[v->member].part);
    struct ipoib_txq *txq = part->txqs[queue];

    if (concurrent) {
        ovs_spin_lock(&txq->lock);
    }
    if (v->member != IPOIB_PORT_NONE) {
        ipoib_tx_batch_class(txq, batch, v->class);
    } else {
        ipoib_count(v->tagged ? &txq->stats.drop_vlan
                              : &txq->stats.drop_untagged,
                    dp_packet_batch_size(batch));
        dp_packet_delete_batch(batch, true);
    }
    if (concurrent) {
        ovs_spin_unlock(&txq->lock);
    }
}

void
ipoib_port_send(const struct ipoib_port_table *table, unsigned int queue,
                struct dp_packet_batch *batch, bool concurrent)
{
    struct dp_packet **packets;
    size_t n;

    IPOIB_BATCH_SLICES (packets, n, batch) {
        struct verdict verdicts[NETDEV_MAX_BURST];

        for (size_t i = 0; i < n; i++) {
            port_classify(table, packets[i], &verdicts[i]);
        }
        /* The packets of one member and class, in order, then of the next. */
        for (size_t i = 0; i < n; i++) {
            struct dp_packet_batch same;

            if (!packets[i]) {
                continue;
            }
            ipoib_batch_init(&same);
            for (size_t j = i; j < n; j++) {
                if (packets[j] && verdict_equals(&verdicts[i], &verdicts[j])) {
                    ipoib_batch_push(&same, packets[j]);
                    packets[j] = NULL;
                }
            }
            port_send_same(table, &verdicts[i], queue, &same, concurrent);
            ipoib_batch_destroy(&same);
        }
    }
}
