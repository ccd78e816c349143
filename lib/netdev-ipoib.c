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

#define MAX_RXQ 64
#define DEFAULT_N_DESC 1024
#define MIN_DESC 128
#define MAX_DESC 16384
#define DEFAULT_HOST_QPS 4096
#define MAX_HOST_QPS 1000000
#define DEFAULT_NEIGHBOURS 65536
#define DEFAULT_GROUPS 8192
#define MIN_GROUPS 64
#define DEFAULT_HOST_GROUPS 256
#define MAX_NEIGHBOURS (1 << 21)
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

/* Parses 's', the value of 'option', as a number between 'min' and 'max'. */
static bool
parse_number(const char *name, const char *option, const char *s,
             unsigned long long int min, unsigned long long int max,
             unsigned long long int *value, char **errp)
{
    char *tail;

    errno = 0;
    *value = strtoull(s, &tail, 0);
    if (errno || tail == s || *tail || s[0] == '-' || *value < min
        || *value > max) {
        VLOG_WARN_BUF(errp, "%s: options:%s=%s is not between %llu and %llu",
                      name, option, s, min, max);
        return false;
    }
    return true;
}

/* The number 'option' of 'args', or 'def' if it is not there. */
static bool
get_number(const char *name, const struct smap *args, const char *option,
           unsigned long long int def, unsigned long long int min,
           unsigned long long int max, unsigned long long int *value,
           char **errp)
{
    const char *s = smap_get(args, option);

    if (!s) {
        *value = def;
        return true;
    }
    return parse_number(name, option, s, min, max, value, errp);
}

/* Adds the partition of untagged frames, 's', to 'vlans'. */
static bool
parse_pkey(const char *name, const char *s, struct ipoib_vlan_map *vlans,
           char **errp)
{
    unsigned long long int value;

    if (!parse_number(name, "pkey", s, 1, UINT16_MAX, &value, errp)) {
        return false;
    }
    if (!(value & IB_PKEY_MASK)) {
        VLOG_WARN_BUF(errp, "%s: options:pkey=%s is not a partition (0x0000 "
                      "and 0x8000 are reserved)", name, s);
        return false;
    }
    free(ipoib_vlan_map_add(vlans, 0, value)); /* The first: no error. */
    return true;
}

/* Adds the partitions of options:pkey-map, 's', to 'vlans'. */
static bool
parse_pkey_map(const char *name, const char *s, struct ipoib_vlan_map *vlans,
               char **errp)
{
    char *error = ipoib_vlan_map_parse(vlans, s);

    if (error) {
        VLOG_WARN_BUF(errp, "%s: options:pkey-map=%s: %s", name, s, error);
        free(error);
    }
    return !error;
}

/* Parses options:pkey and options:pkey-map.  Where only the map is given, and
 * has the default partition, untagged frames have none. */
static bool
parse_vlans(const char *name, const struct smap *args,
            struct ipoib_vlan_map *vlans, char **errp)
{
    const char *pkey = smap_get(args, "pkey");
    const char *map = smap_get(args, "pkey-map");
    bool none = pkey && !strcmp(pkey, "none");

    vlans->n = 0;
    if (none && !map) {
        VLOG_WARN_BUF(errp, "%s: options:pkey=none needs options:pkey-map",
                      name);
        return false;
    }
    if (!pkey && map) {
        if (!parse_pkey_map(name, map, vlans, errp)) {
            return false;
        }
        none = ipoib_vlan_map_find(vlans, IB_PKEY_DEFAULT);
        vlans->n = 0;
    }
    return ((none || parse_pkey(name, pkey ? pkey : "0xffff", vlans, errp))
            && (!map || parse_pkey_map(name, map, vlans, errp)));
}

static bool
parse_proxy(const char *name, const struct smap *args, bool *reply,
            char **errp)
{
    const char *s = smap_get_def(args, "proxy", "forward");

    *reply = !strcmp(s, "reply");
    if (!*reply && strcmp(s, "forward")) {
        VLOG_WARN_BUF(errp, "%s: options:proxy=%s is neither 'forward' nor "
                      "'reply'", name, s);
        return false;
    }
    return true;
}

static bool
parse_mtu_options(const char *name, const struct smap *args,
                  struct ipoib_partition_config *config, char **errp)
{
    const char *s = smap_get_def(args, "clamp-mss", "false");
    unsigned long long int mtu;

    config->clamp_mss = !strcmp(s, "true");
    if (!config->clamp_mss && strcmp(s, "false")) {
        VLOG_WARN_BUF(errp, "%s: options:clamp-mss=%s is neither 'true' nor "
                      "'false'", name, s);
        return false;
    }
    if (!get_number(name, args, "eth-mtu", 0, IPOIB_MTU_IPV6_MIN, UINT16_MAX,
                    &mtu, errp)) {
        return false;
    }
    config->eth_mtu = mtu;
    return true;
}

static bool
parse_sa(const char *name, const struct smap *args, enum ipoib_sa_mode *mode,
         char **errp)
{
    const char *s = smap_get_def(args, "sa", "auto");

    for (*mode = IPOIB_SA_AUTO; *mode <= IPOIB_SA_UMAD; ++*mode) {
        if (!strcmp(s, ipoib_sa_mode_to_string(*mode))) {
            return true;
        }
    }
    VLOG_WARN_BUF(errp, "%s: options:sa=%s is neither 'auto' nor 'qp' nor "
                  "'umad'", name, s);
    return false;
}

static bool
parse_peers(const char *name, const struct smap *args,
            enum ipoib_peer_mode *mode, char **errp)
{
    const char *s = smap_get_def(args, "peers", "guard");

    if (!ipoib_peer_mode_from_string(s, mode)) {
        VLOG_WARN_BUF(errp, "%s: options:peers=%s is neither 'guard' nor "
                      "'standby' nor 'share' nor 'off'", name, s);
        return false;
    }
    return true;
}

static const char *const leave_names[] = {
    [IPOIB_LEAVE_AUTO] = "auto",
    [IPOIB_LEAVE_ALWAYS] = "always",
    [IPOIB_LEAVE_NEVER] = "never",
};

static bool
parse_leave(const char *name, const struct smap *args, enum ipoib_leave *leave,
            char **errp)
{
    const char *s = smap_get_def(args, "ib-leave", "auto");

    for (size_t i = 0; i < ARRAY_SIZE(leave_names); i++) {
        if (!strcmp(s, leave_names[i])) {
            *leave = i;
            return true;
        }
    }
    VLOG_WARN_BUF(errp, "%s: options:ib-leave=%s is neither 'auto' nor "
                  "'always' nor 'never'", name, s);
    return false;
}

static const char *const router_names[] = {
    [IPOIB_ROUTER_AUTO] = "auto",
    [IPOIB_ROUTER_ALWAYS] = "always",
    [IPOIB_ROUTER_NEVER] = "never",
};

static bool
parse_mcast_router(const char *name, const struct smap *args,
                   enum ipoib_mcast_router *router, char **errp)
{
    const char *s = smap_get_def(args, "mcast-router", "auto");

    for (size_t i = 0; i < ARRAY_SIZE(router_names); i++) {
        if (!strcmp(s, router_names[i])) {
            *router = i;
            return true;
        }
    }
    VLOG_WARN_BUF(errp, "%s: options:mcast-router=%s is neither 'auto' nor "
                  "'always' nor 'never'", name, s);
    return false;
}

static bool
parse_n_desc(const char *name, const struct smap *args, const char *option,
             unsigned int *n_desc, char **errp)
{
    unsigned long long int value;

    if (!get_number(name, args, option, DEFAULT_N_DESC, MIN_DESC, MAX_DESC,
                    &value, errp)) {
        return false;
    }
    if (!IS_POW2(value)) {
        VLOG_WARN_BUF(errp, "%s: options:%s=%llu is not a power of 2", name,
                      option, value);
        return false;
    }
    *n_desc = value;
    return true;
}

static bool
parse_device(const char *name, const struct smap *args, char **device,
             char **errp)
{
    const char *s = smap_get(args, "device");
    char *error = NULL;

    *device = NULL;
    if (!s || !*s) {
        VLOG_WARN_BUF(errp, "%s: options:device is missing: name an "
                      "InfiniBand device, or soft:unix:PATH", name);
        return false;
    }
    if (ipoib_soft_name_parse(s, &error) && error) {
        VLOG_WARN_BUF(errp, "%s: options:device=%s: %s", name, s, error);
        free(error);
        return false;
    }
    *device = xstrdup(s);
    return true;
}

/* Parses 'args' into 'options', whose 'device' belongs to the caller. */
static bool
parse_options(const char *name, const struct smap *args,
              struct ipoib_dev_options *options,
              struct ipoib_vlan_map *vlans, char **errp)
{
    struct ipoib_partition_config *config = &options->config;
    unsigned long long int port, n_rxq, host_qps, host_queues, neighbours;
    unsigned long long int groups, host_groups;

    memset(options, 0, sizeof *options);
    if (!get_number(name, args, "port", 1, 1, UINT8_MAX, &port, errp)
        || !parse_vlans(name, args, vlans, errp)
        || !get_number(name, args, "n_rxq", 1, 1, MAX_RXQ, &n_rxq, errp)
        || !parse_n_desc(name, args, "n_rxq_desc", &config->n_rxq_desc, errp)
        || !parse_n_desc(name, args, "n_txq_desc", &config->n_txq_desc, errp)
        || !get_number(name, args, "max-host-qps", DEFAULT_HOST_QPS, 0,
                       MAX_HOST_QPS, &host_qps, errp)
        || !get_number(name, args, "host-queues", 0, 0, MAX_RXQ, &host_queues,
                       errp)
        || !get_number(name, args, "max-neighbours", DEFAULT_NEIGHBOURS, 1,
                       MAX_NEIGHBOURS, &neighbours, errp)
        || !parse_proxy(name, args, &config->proxy_reply, errp)
        || !parse_mtu_options(name, args, config, errp)
        || !parse_sa(name, args, &config->sa, errp)
        || !parse_leave(name, args, &config->leave, errp)
        || !get_number(name, args, "max-groups", DEFAULT_GROUPS, MIN_GROUPS,
                       IPOIB_MCAST_MAX, &groups, errp)
        || !get_number(name, args, "max-host-groups", DEFAULT_HOST_GROUPS, 1,
                       IPOIB_MCAST_MAX, &host_groups, errp)
        || !parse_peers(name, args, &config->peers, errp)
        || !parse_mcast_router(name, args, &config->mcast_router, errp)
        || !parse_device(name, args, &options->device, errp)) {
        return false;
    }
    options->port = port;
    config->n_rxq = n_rxq;
    config->max_host_qps = host_qps;
    config->host_queues = host_queues;
    config->max_neighbours = neighbours;
    config->max_groups = groups;
    config->max_host_groups = host_groups;
    return true;
}

/* Says which of 'args' the class does not know, since a typing error is easy
 * to make and hard to see. */
static void
log_unknown_options(const char *name, const struct smap *args)
{
    static const char *const known[] = {
        "device", "port", "pkey", "pkey-map", "n_rxq", "n_rxq_desc",
        "n_txq_desc", "max-host-qps", "host-queues", "max-neighbours",
        "proxy", "peers", "sa", "ib-leave", "eth-mtu", "clamp-mss",
        "mcast-router",
        "max-groups", "max-host-groups",
    };
    const struct smap_node *node;

    SMAP_FOR_EACH (node, args) {
        bool found = false;

        for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
            found |= !strcmp(node->key, known[i]);
        }
        if (!found) {
            VLOG_INFO("%s: ignores options:%s, which it does not know", name,
                      node->key);
        }
    }
}

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
        log_unknown_options(name, args);
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

    if (!parse_options(name, args, &options, &vlans, errp)) {
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

static void
get_vlans(const struct ipoib_vlan_map *vlans, struct smap *args)
{
    if (vlans->vlans[0].vid) {
        smap_add(args, "pkey", "none");
    } else {
        smap_add_format(args, "pkey", "0x%04"PRIx16, vlans->vlans[0].pkey);
    }
    if (vlans->n > 1 || vlans->vlans[0].vid) {
        struct ds s = DS_EMPTY_INITIALIZER;

        ipoib_vlan_map_format(vlans, &s);
        smap_add(args, "pkey-map", ds_cstr(&s));
        ds_destroy(&s);
    }
}

static int
netdev_ipoib_get_config(const struct netdev *netdev_, struct smap *args)
{
    struct netdev_ipoib *netdev = netdev_ipoib_cast(netdev_);
    const struct ipoib_dev_options *options = &netdev->options;

    ovs_mutex_lock(&netdev->mutex);
    if (options->device) {
        smap_add(args, "device", options->device);
        smap_add_format(args, "port", "%"PRIu8, options->port);
        get_vlans(&netdev->vlans, args);
        smap_add_format(args, "n_rxq", "%u", options->config.n_rxq);
        smap_add_format(args, "n_rxq_desc", "%u", options->config.n_rxq_desc);
        smap_add_format(args, "n_txq_desc", "%u", options->config.n_txq_desc);
        smap_add_format(args, "max-host-qps", "%"PRIuSIZE,
                        options->config.max_host_qps);
        smap_add_format(args, "host-queues", "%u",
                        options->config.host_queues);
        smap_add_format(args, "max-neighbours", "%"PRIuSIZE,
                        options->config.max_neighbours);
        smap_add(args, "peers",
                 ipoib_peer_mode_to_string(options->config.peers));
        smap_add(args, "proxy",
                 options->config.proxy_reply ? "reply" : "forward");
        smap_add(args, "sa", ipoib_sa_mode_to_string(options->config.sa));
        smap_add(args, "ib-leave", leave_names[options->config.leave]);
        if (options->config.eth_mtu) {
            smap_add_format(args, "eth-mtu", "%u", options->config.eth_mtu);
        }
        smap_add(args, "clamp-mss",
                 options->config.clamp_mss ? "true" : "false");
        smap_add_format(args, "max-groups", "%"PRIuSIZE,
                        options->config.max_groups);
        smap_add_format(args, "max-host-groups", "%"PRIuSIZE,
                        options->config.max_host_groups);
        smap_add(args, "mcast-router",
                 router_names[options->config.mcast_router]);
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

/* Adds up the counters of 'stats' that are drops, but for those that are
 * errors. */
static uint64_t
rx_dropped(const struct ipoib_rx_stats *stats)
{
    uint64_t sum = 0;

#define COUNTER(MEMBER, NAME, HELP)                     \
    if (!strncmp(#MEMBER, "drop_", 5)) {                \
        sum += ipoib_counter_read(&stats->MEMBER);      \
    }
    IPOIB_RX_COUNTERS
#undef COUNTER
    return sum - ipoib_counter_read(&stats->drop_error);
}

static uint64_t
tx_dropped(const struct ipoib_tx_stats *stats)
{
    uint64_t sum = 0;

#define COUNTER(MEMBER, NAME, HELP)                     \
    if (!strncmp(#MEMBER, "drop_", 5)) {                \
        sum += ipoib_counter_read(&stats->MEMBER);      \
    }
    IPOIB_TX_COUNTERS
#undef COUNTER
    return sum - ipoib_counter_read(&stats->drop_error);
}

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
    stats->rx_dropped = rx_dropped(&rx);
    stats->tx_packets = ipoib_counter_read(&tx.packets);
    stats->tx_bytes = ipoib_counter_read(&tx.bytes);
    stats->tx_errors = ipoib_counter_read(&tx.drop_error);
    stats->tx_dropped = tx_dropped(&tx);
    return 0;
}

static void
custom_counter(struct netdev_custom_stats *custom, const char *name,
               uint64_t value)
{
    struct netdev_custom_counter *counter = &custom->counters[custom->size++];

    ovs_strlcpy(counter->name, name, sizeof counter->name);
    counter->value = value;
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
    custom->counters = xcalloc((sizeof rx + sizeof tx) / sizeof(uint64_t),
                               sizeof *custom->counters);
#define COUNTER(MEMBER, NAME, HELP) \
    custom_counter(custom, NAME, ipoib_counter_read(&rx.MEMBER));
    IPOIB_RX_COUNTERS
#undef COUNTER
#define COUNTER(MEMBER, NAME, HELP) \
    custom_counter(custom, NAME, ipoib_counter_read(&tx.MEMBER));
    IPOIB_TX_COUNTERS
#undef COUNTER
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
