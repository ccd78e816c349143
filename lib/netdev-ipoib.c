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
#include "netdev-ipoib.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include "connectivity.h"
#include "dp-packet.h"
#include "hash.h"
#include "ipoib-compat.h"
#include "ipoib-dev.h"
#include "ipoib-pool.h"
#include "ipoib-port.h"
#include "ipoib-rx.h"
#include "ipoib-tx.h"
#include "ipoib-unixctl.h"
#include "netdev-ipoib-options.h"
#include "netdev-provider.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/shash.h"
#include "openvswitch/vlog.h"
#include "ovs-atomic.h"
#include "ovs-numa.h"
#include "seq.h"
#include "smap.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(netdev_ipoib);

#define MIN_MTU 68
#define REOPEN_INTERVAL 1000    /* To look for a device that failed, ms. */
#define MAX_MTU 4092            /* IB MTU of 4096, less the IPoIB header. */

struct netdev_ipoib {
    struct netdev up;
    struct ovs_mutex mutex;
    struct ipoib_port *port;
    struct ipoib_dev *dev;      /* The first of 'port', NULL until the first
                                 * good set_config(). */
    const struct ipoib_port_table *table; /* Of 'port'; NULL: 'dev' alone. */

    /* Guarded by 'mutex'.  What the user asked for; queues are made as it says
     * by reconfigure(). */
    struct ipoib_dev_options options;
    struct ipoib_vlan_map vlans; /* Untagged, and options:pkey-map. */
    struct smap user_options;   /* For get_config(). */
    int requested_mtu;          /* 0: none. */
    struct ipoib_hca *returned; /* The device, which failed, is back. */
    long long int next_try;     /* To open a device that has failed. */
    unsigned int requested_n_txq;

    /* Main thread writes, all read. */
    atomic_bool admin_up;
    atomic_uint64_t carrier_resets;
    atomic_bool carrier;
    atomic_bool changed;        /* netdev_ipoib_changed() was called. */
    long long int tell_again;   /* Main thread: LLONG_MAX, or when. */
};

struct netdev_rxq_ipoib {
    struct netdev_rxq up;
    struct ipoib_rxq *rxq;
    const struct ipoib_port_table *table; /* NULL: 'rxq' alone. */
    size_t next;                /* Member of 'table'. */
};

static const struct netdev_class netdev_ipoib_class;

/* When a netdev's 'tell_again' is due first. */
static long long int next_tell = LLONG_MAX;

static struct netdev_ipoib *
netdev_ipoib_cast(const struct netdev *netdev)
{
    ovs_assert(netdev_get_class(netdev) == &netdev_ipoib_class);
    return CONTAINER_OF(netdev, struct netdev_ipoib, up);
}

static struct netdev_rxq_ipoib *
netdev_rxq_ipoib_cast(const struct netdev_rxq *rxq)
{
    return CONTAINER_OF(rxq, struct netdev_rxq_ipoib, up);
}


/* Life. */

/* The control thread says that carrier, MTU or status have changed. */
static void
netdev_ipoib_changed(void *netdev_)
{
    struct netdev_ipoib *netdev = netdev_;
    bool up = ipoib_port_is_up(netdev->port);
    bool was_up;

    atomic_read_relaxed(&netdev->carrier, &was_up);
    if (up != was_up) {
        atomic_store_relaxed(&netdev->carrier, up);
        ipoib_count(&netdev->carrier_resets, 1);
    }
    atomic_store(&netdev->changed, true);
    netdev_change_seq_changed(&netdev->up);
    /* That wakes the main thread before it changes what the main thread looks
     * at, which is right only within the main thread. */
    seq_change(connectivity_seq_get());
}

static const struct ipoib_partition_ops dev_ops = {
    .changed = netdev_ipoib_changed,
};

static struct netdev *
netdev_ipoib_alloc(void)
{
    struct netdev_ipoib *netdev = xzalloc(sizeof *netdev);

    return &netdev->up;
}

static int
netdev_ipoib_construct(struct netdev *netdev_)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);

    ovs_mutex_init(&netdev->mutex);
    netdev->port = ipoib_port_create(netdev_get_name(netdev_), &dev_ops,
                                     netdev);
    smap_init(&netdev->user_options);
    netdev->options.config.n_rxq = 1;
    netdev->requested_n_txq = 1;
    netdev_->n_rxq = 0;
    netdev_->n_txq = 0;
    netdev_->ol_flags = IPOIB_NETDEV_OL_FLAGS;
    atomic_init(&netdev->admin_up, true);
    atomic_init(&netdev->carrier, false);
    atomic_init(&netdev->changed, false);
    netdev->tell_again = LLONG_MAX;
    atomic_init(&netdev->carrier_resets, 0);
    return 0;
}

static void
netdev_ipoib_destruct(struct netdev *netdev_)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);

    ipoib_port_destroy(netdev->port);
    ipoib_hca_unref(netdev->returned);
    free(netdev->options.device);
    smap_destroy(&netdev->user_options);
    ovs_mutex_destroy(&netdev->mutex);
}

static void
netdev_ipoib_dealloc(struct netdev *netdev_)
{
    free(netdev_ipoib_cast(netdev_));
}


/* Options. */

/* Takes over 'options' (and its 'device'); queues follow in reconfigure(). */
static void
netdev_ipoib_adopt(struct netdev_ipoib *netdev, const struct smap *args,
                   struct ipoib_dev_options *options)
    OVS_REQUIRES(netdev->mutex)
{
    const char *name = netdev_get_name(&netdev->up);

    options->config.n_txq = netdev->options.config.n_txq;
    if (!netdev->options.device
        || memcmp(&options->config, &netdev->options.config,
                  sizeof options->config)) {
        netdev_request_reconfigure(&netdev->up);
    }
    free(netdev->options.device);
    netdev->options = *options;
    if (!smap_equal(args, &netdev->user_options)) {
        netdev_ipoib_log_unknown_options(name, args);
        smap_destroy(&netdev->user_options);
        smap_clone(&netdev->user_options, args);
    }
}

/* True if a port without VLANs is to have another partition than it has:
 * nothing of it remains. */
static bool
is_other_pkey(const struct ipoib_vlan_map *old,
              const struct ipoib_vlan_map *new)
{
    return (old->n == 1 && !old->vlans[0].vid
            && new->n == 1 && !new->vlans[0].vid
            && !ipoib_vlan_map_equals(old, new));
}

/* Opens the partitions of 'vlans'; queues follow in reconfigure(). */
static int
netdev_ipoib_set_vlans(struct netdev_ipoib *netdev,
                       const struct ipoib_dev_options *options,
                       const struct ipoib_vlan_map *vlans, char **errp)
    OVS_REQUIRES(netdev->mutex)
{
    char *reason;
    int error = ipoib_port_set(netdev->port, options, vlans, &reason);

    netdev->dev = ipoib_port_main(netdev->port);
    if (error) {
        VLOG_WARN_BUF(errp, "%s: %s", netdev_get_name(&netdev->up), reason);
        free(reason);
        return error;
    }
    netdev->vlans = *vlans;
    if (netdev->requested_mtu) {
        ipoib_port_set_mtu(netdev->port, netdev->requested_mtu);
    }
    netdev_request_reconfigure(&netdev->up);
    return 0;
}

static int
netdev_ipoib_set_config(struct netdev *netdev_, const struct smap *args,
                        char **errp)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    const char *name = netdev_get_name(netdev_);
    struct ipoib_dev_options options;
    struct ipoib_vlan_map vlans;
    int error = 0;

    if (!netdev_ipoib_parse_options(name, args, &options, &vlans, errp)) {
        free(options.device);
        return EINVAL;
    }

    ovs_mutex_lock(&netdev->mutex);
    if (netdev->dev && (!ipoib_dev_matches(netdev->dev, &options)
                        || is_other_pkey(&netdev->vlans, &vlans))) {
        /* Another device: the caller deletes this netdev and makes a new
         * one. */
        error = EAGAIN;
    } else if (!netdev->dev
               || !ipoib_vlan_map_equals(&netdev->vlans, &vlans)) {
        error = netdev_ipoib_set_vlans(netdev, &options, &vlans, errp);
    }
    if (error) {
        free(options.device);
    } else {
        netdev_ipoib_adopt(netdev, args, &options);
    }
    ovs_mutex_unlock(&netdev->mutex);
    return error;
}

static int
netdev_ipoib_get_config(const struct netdev *netdev_, struct smap *args)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    const struct ipoib_dev_options *options = &netdev->options;

    ovs_mutex_lock(&netdev->mutex);
    if (options->device) {
        netdev_ipoib_format_options(options, &netdev->vlans, args);
    }
    ovs_mutex_unlock(&netdev->mutex);
    return 0;
}

static int
netdev_ipoib_set_tx_multiq(struct netdev *netdev_, unsigned int n_txq)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);

    ovs_mutex_lock(&netdev->mutex);
    if (netdev->requested_n_txq != n_txq) {
        netdev->requested_n_txq = n_txq;
        netdev_request_reconfigure(netdev_);
    }
    ovs_mutex_unlock(&netdev->mutex);
    return 0;
}

/* Tells of the last change once more, a second later.  A change in the moment
 * when the daemon starts comes while the bridge writes to the database what
 * was before it; the bridge compares with what the database had from an
 * earlier run, and takes what it should write for written. */
static void
netdev_ipoib_tell_again(struct netdev_ipoib *netdev, long long int now)
{
    bool changed;

    atomic_read(&netdev->changed, &changed);
    if (changed) {
        atomic_store(&netdev->changed, false);
        netdev->tell_again = now + 1000;
    } else if (now >= netdev->tell_again) {
        netdev->tell_again = LLONG_MAX;
        netdev_change_seq_changed(&netdev->up);
        seq_change(connectivity_seq_get());
    }
    next_tell = MIN(next_tell, netdev->tell_again);
}

/* Looks whether the device of 'netdev', if it has failed, is back.  Returns
 * true if it is not. */
static bool
netdev_ipoib_look_for_device(struct netdev_ipoib *netdev, long long int now)
{
    bool failed;
    char *reason;

    ovs_mutex_lock(&netdev->mutex);
    failed = (netdev->dev && !netdev->returned
              && ipoib_dev_has_failed(netdev->dev));
    if (failed && now >= netdev->next_try) {
        netdev->next_try = now + REOPEN_INTERVAL;
        if (!ipoib_hca_ref(netdev->options.device, &netdev->returned,
                           &reason)) {
            netdev_request_reconfigure(&netdev->up);
            failed = false;
        }
        free(reason);
    }
    ovs_mutex_unlock(&netdev->mutex);
    return failed;
}

/* Lifts the limit of the MTU if it is not requested any more, of which nobody
 * tells. */
static void
netdev_ipoib_check_mtu_request(struct netdev_ipoib *netdev)
{
    ovs_mutex_lock(&netdev->mutex);
    if (netdev->requested_mtu && netdev->dev
        && !netdev_mtu_is_user_config(&netdev->up)) {
        netdev->requested_mtu = 0;
        ipoib_port_set_mtu(netdev->port, 0);
    }
    ovs_mutex_unlock(&netdev->mutex);
}

/* Moves 'netdev' to the device that has returned. */
static void
netdev_ipoib_reopen(struct netdev_ipoib *netdev)
    OVS_REQUIRES(netdev->mutex)
{
    const char *name = netdev_get_name(&netdev->up);
    char *reason = NULL;

    ipoib_port_close(netdev->port);
    if (ipoib_port_set(netdev->port, &netdev->options, &netdev->vlans,
                       &reason)) {
        VLOG_WARN("%s: the device is back, but: %s", name, reason);
    } else {
        VLOG_INFO("%s: the device is back", name);
        if (netdev->requested_mtu) {
            ipoib_port_set_mtu(netdev->port, netdev->requested_mtu);
        }
    }
    netdev->dev = ipoib_port_main(netdev->port);
    free(reason);
    ipoib_hca_unref(netdev->returned);
    netdev->returned = NULL;
}

static int
netdev_ipoib_reconfigure(struct netdev *netdev_)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    struct ipoib_partition_config *config = &netdev->options.config;
    int error;

    ovs_mutex_lock(&netdev->mutex);
    if (netdev->returned) {
        netdev_ipoib_reopen(netdev);
    }
    if (!netdev->dev) {
        error = ENODEV;
    } else {
        config->n_txq = netdev->requested_n_txq;
        error = ipoib_port_configure(netdev->port, config);
        netdev->dev = ipoib_port_main(netdev->port);
    }
    netdev->table = netdev->port->table;
    netdev_->n_rxq = error ? 0 : config->n_rxq;
    netdev_->n_txq = error ? 0 : config->n_txq;
    if (error) {
        VLOG_ERR("%s: cannot make %u receive and %u transmit queues (%s)",
                 netdev_get_name(netdev_), config->n_rxq, config->n_txq,
                 ovs_strerror(error));
    }
    ovs_mutex_unlock(&netdev->mutex);
    ipoib_pool_sweep();
    return error;
}

static int
netdev_ipoib_get_numa_id(const struct netdev *netdev_)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    int numa_id;

    ovs_mutex_lock(&netdev->mutex);
    numa_id = netdev->dev ? netdev->dev->hca->numa_id : -1;
    ovs_mutex_unlock(&netdev->mutex);
    return numa_id >= 0 && ovs_numa_numa_id_is_valid(numa_id) ? numa_id : 0;
}


/* Properties. */

static int
netdev_ipoib_set_etheraddr(struct netdev *netdev OVS_UNUSED,
                           const struct eth_addr mac OVS_UNUSED)
{
    /* The MAC is derived from the port's GUID. */
    return EOPNOTSUPP;
}

static int
netdev_ipoib_get_etheraddr(const struct netdev *netdev_, struct eth_addr *mac)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);

    ovs_mutex_lock(&netdev->mutex);
    *mac = netdev->dev ? ipoib_dev_mac(netdev->dev) : eth_addr_zero;
    ovs_mutex_unlock(&netdev->mutex);
    return 0;
}

static int
netdev_ipoib_get_mtu(const struct netdev *netdev_, int *mtup)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);

    ovs_mutex_lock(&netdev->mutex);
    *mtup = ipoib_port_mtu(netdev->port);
    ovs_mutex_unlock(&netdev->mutex);
    return 0;
}

static int
netdev_ipoib_set_mtu(struct netdev *netdev_, int mtu)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    int error = 0;

    if (mtu < MIN_MTU || mtu > MAX_MTU) {
        VLOG_WARN("%s: MTU %d is not between %d and %d",
                  netdev_get_name(netdev_), mtu, MIN_MTU, MAX_MTU);
        return EINVAL;
    }
    ovs_mutex_lock(&netdev->mutex);
    if (!netdev->dev) {
        error = ENODEV;
    } else if (netdev->requested_mtu != mtu) {
        error = ipoib_port_set_mtu(netdev->port, mtu);
        if (error) {
            VLOG_WARN("%s: MTU %d is more than the %d that the broadcast "
                      "group takes", netdev_get_name(netdev_), mtu,
                      netdev->dev->part->group_mtu);
        } else {
            netdev->requested_mtu = mtu;
        }
    }
    ovs_mutex_unlock(&netdev->mutex);
    return error;
}

static int
netdev_ipoib_get_ifindex(const struct netdev *netdev_)
{
    /* As netdev-dpdk does: not 0, and within 24 bits. */
    return hash_string(netdev_get_name(netdev_), 0) % 0xfffffe + 1;
}

static int
netdev_ipoib_get_carrier(const struct netdev *netdev_, bool *carrier)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);

    atomic_read_relaxed(&netdev->carrier, carrier);
    return 0;
}

static long long int
netdev_ipoib_get_carrier_resets(const struct netdev *netdev_)
{
    return ipoib_counter_read(&netdev_ipoib_cast(netdev_)->carrier_resets);
}

static int
netdev_ipoib_get_features(const struct netdev *netdev_,
                          enum netdev_features *current,
                          enum netdev_features *advertised,
                          enum netdev_features *supported,
                          enum netdev_features *peer)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    uint32_t speed = netdev->dev ? ipoib_dev_speed(netdev->dev) : 0;

    *current = !speed ? 0
               : speed >= 1000000 ? NETDEV_F_1TB_FD
               : speed == 100000 ? NETDEV_F_100GB_FD
               : speed == 40000 ? NETDEV_F_40GB_FD
               : speed == 10000 ? NETDEV_F_10GB_FD
               : NETDEV_F_OTHER;
    *current |= NETDEV_F_FIBER;
    *advertised = *supported = *peer = 0;
    return 0;
}

static int OVS_UNUSED
netdev_ipoib_get_speed(const struct netdev *netdev_, uint32_t *current,
                       uint32_t *max)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);

    *current = netdev->dev ? ipoib_dev_speed(netdev->dev) : 0;
    *max = 0;
    return 0;
}

static int OVS_UNUSED
netdev_ipoib_get_duplex(const struct netdev *netdev OVS_UNUSED,
                        bool *full_duplex)
{
    *full_duplex = true;
    return 0;
}

static int
netdev_ipoib_update_flags(struct netdev *netdev_, enum netdev_flags off,
                          enum netdev_flags on, enum netdev_flags *old_flagsp)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    bool up;

    if ((off | on) & ~(NETDEV_UP | NETDEV_PROMISC)) {
        return EINVAL;
    }
    atomic_read_relaxed(&netdev->admin_up, &up);
    *old_flagsp = NETDEV_PROMISC | (up ? NETDEV_UP : 0);
    if (off & NETDEV_UP || on & NETDEV_UP) {
        bool new_up = on & NETDEV_UP;

        if (new_up != up) {
            atomic_store_relaxed(&netdev->admin_up, new_up);
            netdev_change_seq_changed(netdev_);
        }
    }
    return 0;
}

static int
netdev_ipoib_get_status(const struct netdev *netdev_, struct smap *smap)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    int error = 0;

    ovs_mutex_lock(&netdev->mutex);
    if (netdev->dev) {
        ipoib_port_get_status(netdev->port, smap);
    } else {
        error = ENODEV;
    }
    ovs_mutex_unlock(&netdev->mutex);
    return error;
}


/* Statistics. */

static int
netdev_ipoib_get_stats(const struct netdev *netdev_,
                       struct netdev_stats *stats)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    struct ipoib_rx_stats rx;
    struct ipoib_tx_stats tx;

    if (!netdev->dev) {
        return ENODEV;
    }
    ipoib_port_get_stats(netdev->port, &rx, &tx);
    stats->rx_packets = ipoib_counter_read(&rx.packets);
    stats->rx_bytes = ipoib_counter_read(&rx.bytes);
    stats->multicast = ipoib_counter_read(&rx.multicast);
    stats->rx_errors = ipoib_counter_read(&rx.drop_error);
    stats->rx_dropped = ipoib_rx_stats_dropped(&rx);
    stats->tx_packets = ipoib_counter_read(&tx.packets);
    stats->tx_bytes = ipoib_counter_read(&tx.bytes);
    stats->tx_errors = ipoib_counter_read(&tx.drop_error);
    stats->tx_dropped = ipoib_tx_stats_dropped(&tx);
    return 0;
}

/* Adds the 'n' counters of 'stats'. */
static void
add_custom_counters(struct netdev_custom_stats *custom,
                    const struct ipoib_counter counters[], size_t n,
                    const void *stats)
{
    for (size_t i = 0; i < n; i++) {
        struct netdev_custom_counter *c = &custom->counters[custom->size++];

        ovs_strlcpy(c->name, counters[i].name, sizeof c->name);
        c->value = ipoib_counter_read(ipoib_counter_of(&counters[i], stats));
    }
}

static int
netdev_ipoib_get_custom_stats(const struct netdev *netdev_,
                              struct netdev_custom_stats *custom)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    struct ipoib_rx_stats rx;
    struct ipoib_tx_stats tx;

    if (!netdev->dev) {
        return ENODEV;
    }
    ipoib_port_get_stats(netdev->port, &rx, &tx);
    custom->size = 0;
    custom->counters = xcalloc(IPOIB_N_RX_COUNTERS + IPOIB_N_TX_COUNTERS,
                               sizeof *custom->counters);
    add_custom_counters(custom, ipoib_rx_counters, IPOIB_N_RX_COUNTERS, &rx);
    add_custom_counters(custom, ipoib_tx_counters, IPOIB_N_TX_COUNTERS, &tx);
    return 0;
}


/* Queues. */

static struct netdev_rxq *
netdev_ipoib_rxq_alloc(void)
{
    struct netdev_rxq_ipoib *rxq = xzalloc(sizeof *rxq);

    return &rxq->up;
}

static int
netdev_ipoib_rxq_construct(struct netdev_rxq *rxq_)
{
    struct netdev_rxq_ipoib *rxq = netdev_rxq_ipoib_cast(rxq_);
    struct netdev_ipoib *netdev = netdev_ipoib_cast(rxq_->netdev);
    const struct ipoib_partition *part;

    ovs_mutex_lock(&netdev->mutex);
    part = netdev->dev ? netdev->dev->part : NULL;
    rxq->table = netdev->table;
    if (part && rxq_->queue_id < part->n_rxq) {
        rxq->rxq = part->rxqs[rxq_->queue_id];
    }
    ovs_mutex_unlock(&netdev->mutex);
    return rxq->rxq ? 0 : ENODEV;
}

static void
netdev_ipoib_rxq_destruct(struct netdev_rxq *rxq OVS_UNUSED)
{
    /* The queue belongs to the device, since hosts are known by it. */
}

static void
netdev_ipoib_rxq_dealloc(struct netdev_rxq *rxq_)
{
    free(netdev_rxq_ipoib_cast(rxq_));
}

static int
netdev_ipoib_rxq_recv(struct netdev_rxq *rxq_, struct dp_packet_batch *batch,
                      int *qfill)
{
    struct netdev_rxq_ipoib *rxq = netdev_rxq_ipoib_cast(rxq_);
    struct netdev_ipoib *netdev = netdev_ipoib_cast(rxq_->netdev);
    bool up;

    if (qfill) {
        *qfill = -ENOTSUP;
    }
    atomic_read_relaxed(&netdev->admin_up, &up);
    if (OVS_UNLIKELY(!up)) {
        return EAGAIN;
    } else if (OVS_UNLIKELY(rxq->table)) {
        return ipoib_port_recv(rxq->table, rxq_->queue_id, &rxq->next, batch);
    }
    return ipoib_rx_batch(rxq->rxq, batch);
}

static int
netdev_ipoib_send(struct netdev *netdev_, int qid,
                  struct dp_packet_batch *batch, bool concurrent_txq)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    const struct ipoib_partition *part = netdev->dev->part;
    unsigned int queue = qid % netdev_->n_txq;
    struct ipoib_txq *txq = part->txqs[queue];
    bool up;

    atomic_read_relaxed(&netdev->admin_up, &up);
    if (OVS_UNLIKELY(netdev->table) && up) {
        ipoib_port_send(netdev->table, queue, batch, concurrent_txq);
        return 0;
    }
    if (OVS_UNLIKELY(concurrent_txq)) {
        ovs_spin_lock(&txq->lock);
    }
    if (OVS_LIKELY(up)) {
        ipoib_tx_batch(txq, batch);
    } else {
        ipoib_count(&txq->stats.drop_down, dp_packet_batch_size(batch));
        dp_packet_delete_batch(batch, true);
    }
    if (OVS_UNLIKELY(concurrent_txq)) {
        ovs_spin_unlock(&txq->lock);
    }
    return 0;
}

static int
netdev_ipoib_class_init(void)
{
    ipoib_unixctl_init();
    return 0;
}

/* Some device has failed.  Main thread. */
static bool any_failed;

/* Memory of packets that were in OVS when their port went, and devices that
 * come back. */
static void
netdev_ipoib_run(const struct netdev_class *class)
{
    struct shash_node *node;
    struct shash devices;

    ipoib_pool_sweep();
    any_failed = false;
    next_tell = LLONG_MAX;
    shash_init(&devices);
    netdev_get_devices(class, &devices);
    SHASH_FOR_EACH (node, &devices) {
        netdev_ipoib_check_mtu_request(netdev_ipoib_cast(node->data));
        any_failed |= netdev_ipoib_look_for_device(
            netdev_ipoib_cast(node->data), time_msec());
        netdev_ipoib_tell_again(netdev_ipoib_cast(node->data), time_msec());
        netdev_close(node->data);
    }
    shash_destroy(&devices);
}

static void
netdev_ipoib_wait(const struct netdev_class *class OVS_UNUSED)
{
    if (any_failed) {
        poll_timer_wait(REOPEN_INTERVAL);
    }
    if (next_tell != LLONG_MAX) {
        poll_timer_wait_until(next_tell);
    }
}

static const struct netdev_class netdev_ipoib_class = {
    .type = "ipoib",
    .is_pmd = true,
    .init = netdev_ipoib_class_init,
    .run = netdev_ipoib_run,
    .wait = netdev_ipoib_wait,
    .alloc = netdev_ipoib_alloc,
    .construct = netdev_ipoib_construct,
    .destruct = netdev_ipoib_destruct,
    .dealloc = netdev_ipoib_dealloc,
    .get_config = netdev_ipoib_get_config,
    .set_config = netdev_ipoib_set_config,
    .get_numa_id = netdev_ipoib_get_numa_id,
    .set_tx_multiq = netdev_ipoib_set_tx_multiq,
    .send = netdev_ipoib_send,
    .set_etheraddr = netdev_ipoib_set_etheraddr,
    .get_etheraddr = netdev_ipoib_get_etheraddr,
    .get_mtu = netdev_ipoib_get_mtu,
    .set_mtu = netdev_ipoib_set_mtu,
    .get_ifindex = netdev_ipoib_get_ifindex,
    .get_carrier = netdev_ipoib_get_carrier,
    .get_carrier_resets = netdev_ipoib_get_carrier_resets,
    .get_stats = netdev_ipoib_get_stats,
    .get_custom_stats = netdev_ipoib_get_custom_stats,
    .get_features = netdev_ipoib_get_features,
    IPOIB_NETDEV_GET_SPEED(netdev_ipoib_get_speed)
    IPOIB_NETDEV_GET_DUPLEX(netdev_ipoib_get_duplex)
    .get_status = netdev_ipoib_get_status,
    .update_flags = netdev_ipoib_update_flags,
    .reconfigure = netdev_ipoib_reconfigure,
    .rxq_alloc = netdev_ipoib_rxq_alloc,
    .rxq_construct = netdev_ipoib_rxq_construct,
    .rxq_destruct = netdev_ipoib_rxq_destruct,
    .rxq_dealloc = netdev_ipoib_rxq_dealloc,
    .rxq_recv = netdev_ipoib_rxq_recv,
};

void
netdev_ipoib_register(void)
{
    netdev_register_provider(&netdev_ipoib_class);
}
