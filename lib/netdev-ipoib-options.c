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
#include "netdev-ipoib-options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "openvswitch/vlog.h"
#include "smap.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(netdev_ipoib_options);

#define MAX_RXQ 64
#define DEFAULT_N_DESC 1024
#define MAX_DESC 16384
#define DEFAULT_HOST_QPS 4096
#define MAX_HOST_QPS 1000000
#define DEFAULT_NEIGHBOURS 65536
#define DEFAULT_GROUPS 8192
#define MIN_GROUPS 64
#define DEFAULT_HOST_GROUPS 256
#define MAX_NEIGHBOURS (1 << 21)

/* Parses 's', the value of 'option', as a number between 'min' and 'max'. */
static bool
parse_number(const char *name, const char *option, const char *s,
             unsigned long long int min, unsigned long long int max,
             unsigned long long int *value, char **errp)
{
    char *tail;

    errno = 0;
    *value = strtoull(s, &tail, 0);
    if (tail == s || *tail) {
        VLOG_WARN_BUF(errp, "%s: options:%s=%s is not a number", name, option,
                      s);
        return false;
    }
    if (errno || s[0] == '-' || *value < min || *value > max) {
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
parse_prio(const char *name, const struct smap *args,
           struct ipoib_prio_map *map, char **errp)
{
    const char *s = smap_get(args, "prio-map");
    char *error = s ? ipoib_prio_map_parse(map, s) : NULL;

    if (error) {
        VLOG_WARN_BUF(errp, "%s: options:prio-map=%s: %s", name, s, error);
        free(error);
    }
    return !error;
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
parse_guard(const char *name, const struct smap *args, bool *strict,
            char **errp)
{
    const char *s = smap_get_def(args, "guard", "note");

    *strict = !strcmp(s, "strict");
    if (!*strict && strcmp(s, "note")) {
        VLOG_WARN_BUF(errp, "%s: options:guard=%s is neither 'note' nor "
                      "'strict'", name, s);
        return false;
    }
    return true;
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

    if (!get_number(name, args, option, DEFAULT_N_DESC, IPOIB_MIN_DESC,
                    MAX_DESC, &value, errp)) {
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

bool
netdev_ipoib_parse_options(const char *name, const struct smap *args,
                           struct ipoib_dev_options *options,
                           struct ipoib_vlan_map *vlans, char **errp)
{
    struct ipoib_partition_config *config = &options->config;
    unsigned long long int port, n_rxq, host_qps, host_queues, neighbours;
    unsigned long long int groups, host_groups;

    memset(options, 0, sizeof *options);
    if (!get_number(name, args, "port", 1, 1, UINT8_MAX, &port, errp)
        || !parse_vlans(name, args, vlans, errp)
        || !parse_prio(name, args, &config->prio, errp)
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
        || !parse_guard(name, args, &config->guard_strict, errp)
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

void
netdev_ipoib_log_unknown_options(const char *name, const struct smap *args)
{
    static const char *const known[] = {
        "device", "port", "pkey", "pkey-map", "prio-map", "n_rxq",
        "n_rxq_desc", "n_txq_desc", "max-host-qps", "host-queues",
        "max-neighbours", "proxy", "peers", "guard", "sa", "ib-leave",
        "eth-mtu", "clamp-mss", "mcast-router", "max-groups",
        "max-host-groups",
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

static void
get_prio(const struct ipoib_prio_map *map, struct smap *args)
{
    if (map->n) {
        struct ds s = DS_EMPTY_INITIALIZER;

        ipoib_prio_map_format(map, &s);
        smap_add(args, "prio-map", ds_cstr(&s));
        ds_destroy(&s);
    }
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

void
netdev_ipoib_format_options(const struct ipoib_dev_options *options,
                            const struct ipoib_vlan_map *vlans,
                            struct smap *args)
{
    smap_add(args, "device", options->device);
    smap_add_format(args, "port", "%"PRIu8, options->port);
    get_vlans(vlans, args);
    get_prio(&options->config.prio, args);
    smap_add_format(args, "n_rxq", "%u", options->config.n_rxq);
    smap_add_format(args, "n_rxq_desc", "%u", options->config.n_rxq_desc);
    smap_add_format(args, "n_txq_desc", "%u", options->config.n_txq_desc);
    smap_add_format(args, "max-host-qps", "%"PRIuSIZE,
                    options->config.max_host_qps);
    smap_add_format(args, "host-queues", "%u",
                    options->config.host_queues);
    smap_add_format(args, "max-neighbours", "%"PRIuSIZE,
                    options->config.max_neighbours);
    smap_add(args, "guard", options->config.guard_strict ? "strict" : "note");
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
