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
#include "ipoib-dev.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include "dirs.h"
#include "fatal-signal.h"
#include "if-notifier.h"
#include "ipoib-state.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "smap.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_dev);

/* What is remembered is written at most once in this time, in ms, for each
 * 1000 hosts and neighbours. */
#define SAVE_INTERVAL 500

/* The kernel's network devices are looked at no more often than this, in
 * ms. */
#define CHECK_INTERVAL 1000

static struct ovs_mutex devs_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list all_devs OVS_GUARDED_BY(devs_mutex)
    = OVS_LIST_INITIALIZER(&all_devs);
/* Of changes of network devices; run by the bridge, with its own. */
static struct if_notifier *notifier OVS_GUARDED_BY(devs_mutex);


/* What is remembered. */

static struct ipoib_dev *
dev_of_client(struct ipoib_hca_client *client)
{
    return CONTAINER_OF(client, struct ipoib_dev, client);
}

/* Writes 'dev->text' to the file, and frees it. */
static void
dev_write(struct ipoib_dev *dev)
{
    int error = ipoib_state_write(dev->text, dev->file);

    if (error && error != dev->save_error) {
        VLOG_WARN("%s: cannot write %s (%s): a restart will forget the hosts",
                  dev->name, dev->file, ovs_strerror(error));
    }
    dev->save_error = error;
    free(dev->text);
    dev->text = NULL;
}

/* One file at a time is written: threads that are at work side by side have a
 * stack each, and their memory stays. */
static atomic_bool is_writing = ATOMIC_VAR_INIT(false);
#define WRITER_PAUSE 50         /* Until it is tried again, ms. */

static void *
dev_writer_main(void *dev_)
{
    struct ipoib_dev *dev = dev_;

    ovsrcu_quiesce_start();
    dev_write(dev);
    atomic_store_explicit(&dev->writing, false, memory_order_release);
    atomic_store_explicit(&is_writing, false, memory_order_release);
    return NULL;
}

static void
dev_join_writer(struct ipoib_dev *dev)
{
    if (dev->has_writer) {
        xpthread_join(dev->writer, NULL);
        dev->has_writer = false;
    }
}

/* Takes down what is to be remembered.  No writer is at work. */
static void
dev_take_down(struct ipoib_dev *dev, long long int now)
{
    size_t n = ipoib_host_table_count(dev->part->shared.hosts)
               + ipoib_neigh_table_count(dev->part->shared.neighs);

    dev->text = ipoib_state_to_text(dev->part);
    dev->part->remember = false;
    dev->next_save = now + SAVE_INTERVAL * (1 + n / 1000);
}

/* The daemon ends without closing 'dev': what was learned since the file was
 * written last is written now.  Who has the mutex, and a disk, are waited for
 * for a moment only. */
static void
dev_save_at_exit(struct ipoib_dev *dev)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    bool writing;

    for (int i = 0; ovs_mutex_trylock(&dev->hca->mutex); i++) {
        if (i >= 200) {
            return;
        }
        xnanosleep(5 * 1000 * 1000);
    }
    for (int i = 0; i < 200; i++) {
        atomic_read_explicit(&dev->writing, &writing, memory_order_acquire);
        if (!writing) {
            break;
        }
        xnanosleep(5 * 1000 * 1000);
    }
    if (!writing && dev->part->remember) {
        dev_take_down(dev, time_msec());
        dev_write(dev);
    }
    ovs_mutex_unlock(&dev->hca->mutex);
}

/* The main thread: some network device has changed. */
static void
dev_link_changed(struct ipoib_dev *dev, void *aux OVS_UNUSED)
{
    dev->check_kernel = true;
    ipoib_hca_kick(dev->hca);
}

static void
devs_link_changed(void *aux OVS_UNUSED)
{
    ipoib_dev_for_each(NULL, dev_link_changed, NULL);
}

/* Looks for the kernel's own devices in the same partition, which a software
 * HCA has none of. */
static void
dev_check_kernel(struct ipoib_dev *dev, long long int now)
{
    struct ipoib_kernel_netdev netdev;

    dev->check_kernel = false;
    dev->next_check = now + CHECK_INTERVAL;
    if (dev->hca->verbs != &ipoib_verbs_soft) {
        ipoib_kernel_find("/sys", dev->hca->ctx->device->name, dev->port_num,
                          dev->pkey, &netdev);
        ipoib_partition_set_kernel(dev->part, &netdev);
    }
}

/* Has what is to be remembered be written, if it is time. */
static void
dev_save(struct ipoib_dev *dev, long long int now)
{
    bool writing, other = false;

    atomic_read_explicit(&dev->writing, &writing, memory_order_acquire);
    if (!writing) {
        dev_join_writer(dev);   /* It has a stack until then. */
    }
    if (!dev->part->remember || now < dev->next_save) {
        return;
    }
    if (writing
        || !atomic_compare_exchange_strong(&is_writing, &other, true)) {
        dev->next_save = now + WRITER_PAUSE;
        return;
    }
    dev_take_down(dev, now);
    atomic_store_relaxed(&dev->writing, true);
    dev->has_writer = true;
    dev->writer = ovs_thread_create("ipoib_state", dev_writer_main, dev);
}

static bool
dev_run(struct ipoib_hca_client *client, long long int now)
{
    struct ipoib_dev *dev = dev_of_client(client);

    dev_save(dev, now);
    if (dev->check_kernel && now >= dev->next_check) {
        dev_check_kernel(dev, now);
    }
    return false;
}

static void
dev_wait(struct ipoib_hca_client *client)
{
    struct ipoib_dev *dev = dev_of_client(client);

    if (dev->part->remember) {
        poll_timer_wait_until(dev->next_save);
    }
    if (dev->check_kernel) {
        poll_timer_wait_until(dev->next_check);
    }
}

static bool
dev_pending(struct ipoib_hca_client *client OVS_UNUSED)
{
    return false;
}

static void
dev_port_changed(struct ipoib_hca_client *client OVS_UNUSED,
                 unsigned int changes OVS_UNUSED)
{
}

static void
dev_qp_event(struct ipoib_hca_client *client OVS_UNUSED,
             enum ibv_event_type type OVS_UNUSED, uint32_t qpn OVS_UNUSED)
{
}

static const struct ipoib_hca_client_ops dev_client_ops = {
    .run = dev_run,
    .wait = dev_wait,
    .pending = dev_pending,
    .port_changed = dev_port_changed,
    .qp_event = dev_qp_event,
};

/* The file is named after the port, and for a VLAN after the partition as
 * well, since that is what hosts and neighbours belong to; '/' cannot be part
 * of an interface's name in a path. */
static char *
dev_file_name(const char *name, const struct ipoib_dev_options *options)
{
    char *file = (options->vid
                  ? xasprintf("%s/ipoib-%s-0x%04"PRIx16".json", ovs_dbdir(),
                              name, options->pkey)
                  : xasprintf("%s/ipoib-%s.json", ovs_dbdir(), name));

    for (char *s = file + strlen(ovs_dbdir()) + 1; *s; s++) {
        if (*s == '/') {
            *s = '_';
        }
    }
    return file;
}


static void
devs_save_at_exit(void *aux OVS_UNUSED)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct ipoib_dev *dev;

    if (!ovs_mutex_trylock(&devs_mutex)) {
        LIST_FOR_EACH (dev, node, &all_devs) {
            dev_save_at_exit(dev);
        }
        ovs_mutex_unlock(&devs_mutex);
    }
}


/* Opening and closing. */

/* The netdev that has the partition of 'options' open, or NULL. */
static const char *
dev_owner(const struct ipoib_dev_options *options)
    OVS_REQUIRES(devs_mutex)
{
    struct ipoib_dev *dev;

    LIST_FOR_EACH (dev, node, &all_devs) {
        if (ipoib_dev_matches(dev, options)
            && !((dev->pkey ^ options->pkey) & IB_PKEY_MASK)) {
            return dev->name;
        }
    }
    return NULL;
}

/* Why 'options' cannot be opened: 'owner' has the partition. */
static char *
dev_owner_error(const struct ipoib_dev_options *options, const char *owner)
{
    char *option = (options->vid
                    ? xasprintf("pkey-map=%"PRIu16":", options->vid)
                    : xstrdup("pkey="));
    char *error = xasprintf("options:%s0x%04"PRIx16": interface '%s' has this "
                            "P_Key (0x%04"PRIx16") of port %"PRIu8" of '%s' "
                            "already", option, options->pkey_given, owner,
                            options->pkey, options->port, options->device);

    free(option);
    return error;
}

static int
dev_open_port(struct ipoib_dev *dev, char **errp)
    OVS_REQUIRES(dev->hca->mutex)
{
    int error = ipoib_hca_port_ref(dev->hca, dev->port_num, &dev->port);

    if (error == EPROTONOSUPPORT) {
        *errp = xasprintf("options:device=%s: port %"PRIu8" is RoCE (its link "
                          "layer is Ethernet), not InfiniBand",
                          dev->device, dev->port_num);
    } else if (error) {
        *errp = xasprintf("options:port=%"PRIu8": device '%s' has %d port(s)",
                          dev->port_num, dev->device,
                          dev->hca->attr.phys_port_cnt);
    }
    return error;
}

/* The name for the log: "ib0", or "ib0 (VLAN 100)". */
static char *
dev_log_name(const struct ipoib_dev *dev)
{
    return (dev->vid ? xasprintf("%s (VLAN %"PRIu16")", dev->name, dev->vid)
            : xstrdup(dev->name));
}

static int
dev_open_partition(struct ipoib_dev *dev, enum ipoib_peer_mode peers,
                   const struct ipoib_partition_ops *ops, void *aux,
                   char **errp)
    OVS_REQUIRES(dev->hca->mutex)
{
    char *name = dev_log_name(dev);
    int error = ipoib_partition_create(dev->port, dev->pkey, name, ops, aux,
                                       &dev->part);
    size_t n;

    free(name);
    if (error) {
        *errp = xasprintf("options:device=%s: cannot allocate queues (%s)",
                          dev->device, ovs_strerror(error));
        return error;
    }
    ipoib_partition_set_peers(dev->part, peers);
    n = ipoib_state_load(dev->part, dev->file);
    if (n) {
        VLOG_INFO("%s: remembers %"PRIuSIZE" hosts and neighbours", dev->name,
                  n);
    }
    dev->check_kernel = true;
    dev->client.ops = &dev_client_ops;
    ipoib_hca_port_add_client(dev->port, &dev->client);
    return 0;
}

static void
dev_free(struct ipoib_dev *dev)
{
    free(dev->name);
    free(dev->device);
    free(dev->file);
    free(dev);
}

int
ipoib_dev_open(const char *name, const struct ipoib_dev_options *options,
               const struct ipoib_partition_ops *ops, void *aux,
               struct ipoib_dev **devp, char **errp)
{
    struct ipoib_dev *dev = xzalloc(sizeof *dev);
    const char *owner;
    int error = 0;

    *devp = NULL;
    *errp = NULL;
    dev->name = xstrdup(name);
    dev->device = xstrdup(options->device);
    dev->port_num = options->port;
    dev->pkey = options->pkey;
    dev->vid = options->vid;
    dev->file = dev_file_name(name, options);
    atomic_init(&dev->writing, false);

    ovs_mutex_lock(&devs_mutex);
    if (!notifier) {
        notifier = if_notifier_create(devs_link_changed, NULL);
        fatal_signal_add_hook(devs_save_at_exit, NULL, NULL, true);
    }
    owner = dev_owner(options);
    if (owner) {
        *errp = dev_owner_error(options, owner);
        error = EADDRINUSE;
    }
    if (!error) {
        error = ipoib_hca_ref(dev->device, &dev->hca, errp);
        if (error) {
            char *reason = *errp;

            *errp = xasprintf("options:device=%s: %s", dev->device, reason);
            free(reason);
        }
    }
    if (!error) {
        ovs_mutex_lock(&dev->hca->mutex);
        error = dev_open_port(dev, errp);
        if (!error) {
            ipoib_hca_port_set_sa_mode(dev->port, options->config.sa);
            error = dev_open_partition(dev, options->config.peers, ops, aux,
                                       errp);
            if (error) {
                ipoib_hca_port_unref(dev->port);
            }
        }
        if (!error) {
            /* From now on the control thread may call 'ops'. */
            *devp = dev;
        }
        ovs_mutex_unlock(&dev->hca->mutex);
        if (error) {
            ipoib_hca_unref(dev->hca);
        }
    }
    if (error) {
        dev_free(dev);
    } else {
        ovs_list_push_back(&all_devs, &dev->node);
    }
    ovs_mutex_unlock(&devs_mutex);
    return error;
}

void
ipoib_dev_close(struct ipoib_dev *dev, struct ipoib_rx_stats *rx,
                struct ipoib_tx_stats *tx)
{
    char *text = NULL;

    if (!dev) {
        return;
    }
    ovs_mutex_lock(&devs_mutex);
    ovs_list_remove(&dev->node);
    ovs_mutex_unlock(&devs_mutex);

    ovs_mutex_lock(&dev->hca->mutex);
    ipoib_hca_port_remove_client(dev->port, &dev->client);
    if (dev->part->remember) {
        text = ipoib_state_to_text(dev->part);
    }
    ipoib_partition_destroy(dev->part, rx, tx);
    ipoib_hca_port_unref(dev->port);
    ovs_mutex_unlock(&dev->hca->mutex);
    ipoib_hca_unref(dev->hca);

    dev_join_writer(dev);
    if (text) {
        dev->text = text;
        dev_write(dev);
    }
    dev_free(dev);
}

bool
ipoib_dev_has_failed(const struct ipoib_dev *dev)
{
    return ipoib_hca_has_failed(dev->hca);
}

bool
ipoib_dev_matches(const struct ipoib_dev *dev,
                  const struct ipoib_dev_options *options)
{
    return !strcmp(dev->device, options->device)
           && dev->port_num == options->port;
}

void
ipoib_dev_set_vlan(struct ipoib_dev *dev, uint16_t vid, bool is_first)
{
    dev->vid = vid;
    dev->is_first = is_first;
    free(dev->part->name);
    dev->part->name = dev_log_name(dev);
}

int
ipoib_dev_configure(struct ipoib_dev *dev,
                    const struct ipoib_partition_config *config)
{
    int error;

    ovs_mutex_lock(&dev->hca->mutex);
    ipoib_hca_port_set_sa_mode(dev->port, config->sa);
    error = ipoib_partition_configure(dev->part, config);
    ovs_mutex_unlock(&dev->hca->mutex);
    return error;
}


/* What is asked of a port. */

bool
ipoib_dev_is_up(const struct ipoib_dev *dev)
{
    bool up;

    atomic_read_relaxed(&dev->part->shared.up, &up);
    return up;
}

struct eth_addr
ipoib_dev_mac(const struct ipoib_dev *dev)
{
    return dev->part->shared.mac;
}

int
ipoib_dev_mtu(const struct ipoib_dev *dev)
{
    return ipoib_partition_mtu(dev->part);
}

void
ipoib_dev_set_mtu(struct ipoib_dev *dev, int mtu)
{
    ovs_mutex_lock(&dev->hca->mutex);
    ipoib_partition_limit_mtu(dev->part, mtu);
    ovs_mutex_unlock(&dev->hca->mutex);
}

int
ipoib_dev_max_mtu(const struct ipoib_dev *dev)
{
    int mtu;

    ovs_mutex_lock(&dev->hca->mutex);
    mtu = (ipoib_mcast_broadcast(dev->part->shared.mcast)
           ? dev->part->group_mtu : INT_MAX);
    ovs_mutex_unlock(&dev->hca->mutex);
    return mtu;
}

/* Mb/s of a lane by the bits of the active speed. */
static uint32_t
lane_speed(uint8_t active_speed)
{
    switch (active_speed) {
    case 1: return 2500;        /* SDR. */
    case 2: return 5000;        /* DDR. */
    case 4: return 10000;       /* QDR. */
    case 8: return 10000;       /* FDR-10. */
    case 16: return 14000;      /* FDR. */
    case 32: return 25000;      /* EDR. */
    case 64: return 50000;      /* HDR. */
    case 128: return 100000;    /* NDR. */
    default: return 0;
    }
}

static uint32_t
link_width(uint8_t active_width)
{
    switch (active_width) {
    case 1: return 1;
    case 2: return 4;
    case 4: return 8;
    case 8: return 12;
    case 16: return 2;
    default: return 0;
    }
}

uint32_t
ipoib_dev_speed(struct ipoib_dev *dev)
{
    const struct ibv_port_attr *attr = &dev->port->attr;
    uint32_t speed = 0;

    ovs_mutex_lock(&dev->hca->mutex);
    if (attr->state == IBV_PORT_ACTIVE) {
        speed = (lane_speed(attr->active_speed)
                 * link_width(attr->active_width));
    }
    ovs_mutex_unlock(&dev->hca->mutex);
    return speed;
}

static void
dev_get_address_status(struct ipoib_dev *dev, struct smap *smap)
{
    const struct ipoib_partition *part = dev->part;
    struct ds s = DS_EMPTY_INITIALIZER;

    ib_gid_format(&dev->port->gid, &s);
    smap_add(smap, "gid", ds_cstr(&s));
    ds_clear(&s);
    if (part->n_rxq) {
        struct ipoib_addr addr
            = ipoib_addr_make(part->rxqs[0]->base_qp->qp_num, &dev->port->gid);

        ipoib_addr_format(&addr, &s);
        smap_add(smap, "hwaddr", ds_cstr(&s));
    }
    ds_destroy(&s);
}

/* Why the port is down, 'reason'; if that is the broadcast group, also why it
 * is not joined. */
static char *
dev_reason(const struct ipoib_dev *dev, const char *reason)
{
    const struct ipoib_partition *part = dev->part;
    const struct ipoib_mcast_group *group
        = ipoib_mcast_find(part->shared.mcast, &part->shared.broadcast);
    const char *failure = group ? ipoib_mcast_failure(group) : NULL;

    if (failure && part->port->attr.state == IBV_PORT_ACTIVE
        && part->pkey_index >= 0) {
        return xasprintf("%s: %s", reason, failure);
    }
    return xstrdup(reason);
}

char *
ipoib_dev_state(const struct ipoib_dev *dev)
{
    const char *reason;
    char *state;

    ovs_mutex_lock(&dev->hca->mutex);
    if (ipoib_partition_is_up(dev->part, &reason)) {
        state = xstrdup("up");
    } else {
        char *s = dev_reason(dev, reason);

        state = xasprintf("down: %s", s);
        free(s);
    }
    ovs_mutex_unlock(&dev->hca->mutex);
    return state;
}

void
ipoib_dev_get_status(struct ipoib_dev *dev, struct smap *smap)
{
    const struct ipoib_partition *part = dev->part;
    const struct ipoib_hca_port *port = dev->port;
    const char *reason;

    ovs_mutex_lock(&dev->hca->mutex);
    smap_add(smap, "driver_name", "ipoib");
    smap_add(smap, "hca", dev->device);
    smap_add_format(smap, "hca_port", "%"PRIu8, dev->port_num);
    smap_add(smap, "port_state", ipoib_port_state_to_string(port->attr.state));
    smap_add_format(smap, "lid", "%"PRIu16, port->attr.lid);
    smap_add_format(smap, "sm_lid", "%"PRIu16, port->attr.sm_lid);
    smap_add_format(smap, "pkey", "0x%04"PRIx16, part->pkey);
    smap_add_format(smap, "mtu", "%d", ipoib_partition_mtu(part));
    smap_add(smap, "sa_transport",
             port->transport ? port->transport->class->name : "none");
    dev_get_address_status(dev, smap);
    if (part->pkey_index >= 0) {
        smap_add_format(smap, "pkey_index", "%d", part->pkey_index);
        smap_add(smap, "membership",
                 port->pkeys[part->pkey_index] & IB_PKEY_FULL
                 ? "full" : "limited");
    }
    if (!ipoib_partition_is_up(part, &reason)) {
        smap_add_nocopy(smap, xstrdup("reason"), dev_reason(dev, reason));
    }
    smap_add_format(smap, "groups_refused", "%"PRIuSIZE,
                    ipoib_partition_n_refused(part));
    ipoib_partition_offload_status(part, smap);
    if (part->kernel.name[0]) {
        smap_add(smap, "shared_with", part->kernel.name);
    }
    if (ipoib_peers_talk(&part->peers)) {
        struct ds s = DS_EMPTY_INITIALIZER;

        ipoib_partition_peers_format(part, &s);
        smap_add(smap, "peers", ds_cstr(&s));
        ds_destroy(&s);
    }
    ovs_mutex_unlock(&dev->hca->mutex);
}

void
ipoib_dev_get_stats(struct ipoib_dev *dev, struct ipoib_rx_stats *rx,
                    struct ipoib_tx_stats *tx)
{
    const struct ipoib_partition *part = dev->part;

    memset(rx, 0, sizeof *rx);
    memset(tx, 0, sizeof *tx);
    ovs_mutex_lock(&dev->hca->mutex);
    ipoib_rx_stats_add(rx, &part->rx_stats);
    ipoib_tx_stats_add(tx, &part->tx_stats);
    for (unsigned int i = 0; i < part->n_rxq; i++) {
        ipoib_rx_stats_add(rx, &part->rxqs[i]->stats);
    }
    for (unsigned int i = 0; i < part->n_txq; i++) {
        ipoib_tx_stats_add(tx, &part->txqs[i]->stats);
    }
    ovs_mutex_unlock(&dev->hca->mutex);
}

size_t
ipoib_dev_for_each(const char *name,
                   void (*cb)(struct ipoib_dev *, void *aux), void *aux)
{
    struct ipoib_dev *dev;
    size_t n = 0;

    ovs_mutex_lock(&devs_mutex);
    LIST_FOR_EACH (dev, node, &all_devs) {
        if (!name || !strcmp(dev->name, name)) {
            ovs_mutex_lock(&dev->hca->mutex);
            cb(dev, aux);
            ovs_mutex_unlock(&dev->hca->mutex);
            n++;
        }
    }
    ovs_mutex_unlock(&devs_mutex);
    return n;
}
