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
#include "ipoib-unixctl.h"

#include <errno.h>
#include <inttypes.h>
#include "ipoib-compat.h"
#include "ipoib-dev.h"
#include "ipoib-pool.h"
#include "ipoib-soft.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/shash.h"
#include "smap.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

/* Each command makes an array of flat JSON objects; text is made of that. */

/* Rows of a table that are shown at most. */
#define MAX_ROWS 65536

struct column {
    const char *title;          /* In text. */
    const char *key;            /* In JSON. */
};

/* What a command is made of. */
struct show {
    /* Adds the objects of 'dev' to the array 'rows'. */
    void (*add)(struct ipoib_dev *dev, struct json *rows);
    /* Columns of the text, ended by a null title; NULL: a block of lines
     * "key: value" for each object. */
    const struct column *columns;
};


/* JSON. */

static void
put_int(struct json *json, const char *key, long long int value)
{
    json_object_put(json, key, json_integer_create(value));
}

static void
put_mac(struct json *json, const char *key, struct eth_addr mac)
{
    json_object_put_format(json, key, ETH_ADDR_FMT, ETH_ADDR_ARGS(mac));
}

static void
put_gid(struct json *json, const char *key, const struct ib_gid *gid)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    ib_gid_format(gid, &s);
    json_object_put_string(json, key, ds_cstr(&s));
    ds_destroy(&s);
}

static void
put_addr(struct json *json, const char *key, const struct ipoib_addr *addr)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    ipoib_addr_format(addr, &s);
    json_object_put_string(json, key, ds_cstr(&s));
    ds_destroy(&s);
}

static void
add_ip(struct json *array, const struct in6_addr *ip)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    ipv6_format_mapped(ip, &s);
    json_array_add(array, json_string_create(ds_cstr(&s)));
    ds_destroy(&s);
}

/* Which port, and which of its partitions. */
static void
put_dev(struct json *json, const struct ipoib_dev *dev)
{
    json_object_put_string(json, "port", dev->name);
    put_int(json, "vlan", dev->vid);
    json_object_put_format(json, "pkey", "0x%04"PRIx16, dev->pkey);
}

/* What came of the last request to the subnet administrator: an errno value
 * if there was no answer or a useless one, else a status. */
static void
put_sa_status(struct json *json, int error, uint16_t status)
{
    json_object_put_string(json, "sa-status",
                           error == ETIMEDOUT ? "no answer"
                           : error ? ovs_strerror(error)
                           : ib_sa_status_to_string(status));
}

/* Seconds since 'when', a time_msec(). */
static long long int
age(long long int when)
{
    return (time_msec() - when) / 1000;
}


/* Text. */

/* Appends the value 'json', the elements of an array separated by spaces. */
static void
format_value(const struct json *json, struct ds *s)
{
    if (!json || json->type == JSON_NULL) {
        ds_put_char(s, '-');
    } else if (json->type == JSON_STRING) {
        ds_put_cstr(s, json_string(json));
    } else if (json->type == JSON_ARRAY) {
        for (size_t i = 0; i < ipoib_json_array_size(json); i++) {
            ds_put_cstr(s, i ? " " : "");
            format_value(ipoib_json_array_at(json, i), s);
        }
        if (!ipoib_json_array_size(json)) {
            ds_put_char(s, '-');
        }
    } else if (json->type == JSON_OBJECT) {
        const struct shash_node **nodes = shash_sort(json_object(json));

        for (size_t i = 0; i < shash_count(json_object(json)); i++) {
            ds_put_format(s, "%s%s=", i ? "," : "", nodes[i]->name);
            format_value(nodes[i]->data, s);
        }
        free(nodes);
    } else if (json->type == JSON_TRUE || json->type == JSON_FALSE) {
        ds_put_cstr(s, json->type == JSON_TRUE ? "yes" : "no");
    } else {
        json_to_ds(json, 0, s);
    }
}

static const struct json *
cell(const struct json *row, const struct column *column)
{
    return shash_find_data(json_object(row), column->key);
}

/* True if the table is to have 'column'.  Those of VLANs and classes are left
 * out where there are none. */
static bool
column_is_shown(const struct json *rows, const struct column *column)
{
    if (strcmp(column->key, "vlan") && strcmp(column->key, "class")) {
        return true;
    }
    for (size_t i = 0; i < ipoib_json_array_size(rows); i++) {
        if (json_integer(cell(ipoib_json_array_at(rows, i), column))) {
            return true;
        }
    }
    return false;
}

static size_t
column_width(const struct json *rows, const struct column *column)
{
    size_t width = strlen(column->title);
    struct ds s = DS_EMPTY_INITIALIZER;

    for (size_t i = 0; i < ipoib_json_array_size(rows); i++) {
        ds_clear(&s);
        format_value(cell(ipoib_json_array_at(rows, i), column), &s);
        width = MAX(width, s.length);
    }
    ds_destroy(&s);
    return width;
}

static void
put_padded(struct ds *out, const char *text, size_t width, bool last)
{
    if (last) {
        ds_put_format(out, "%s\n", text);
    } else {
        ds_put_format(out, "%-*s  ", (int) width, text);
    }
}

/* Appends 'rows' as a table, the columns aligned. */
static void
format_table(const struct json *rows, const struct column *all,
             struct ds *out)
{
    struct ds s = DS_EMPTY_INITIALIZER;
    struct column columns[16];
    size_t width[16];
    size_t n = 0;

    for (; all->title; all++) {
        if (column_is_shown(rows, all)) {
            ovs_assert(n + 1 < ARRAY_SIZE(columns));
            columns[n++] = *all;
        }
    }
    columns[n].title = NULL;
    for (size_t i = 0; columns[i].title; i++) {
        width[i] = column_width(rows, &columns[i]);
        put_padded(out, columns[i].title, width[i], !columns[i + 1].title);
    }
    for (size_t row = 0; row < ipoib_json_array_size(rows); row++) {
        for (size_t i = 0; columns[i].title; i++) {
            ds_clear(&s);
            format_value(cell(ipoib_json_array_at(rows, row), &columns[i]),
                         &s);
            put_padded(out, ds_cstr(&s), width[i], !columns[i + 1].title);
        }
    }
    ds_destroy(&s);
}

static void
format_line(const char *name, const struct json *value, struct ds *out)
{
    ds_put_format(out, "%s: ", name);
    format_value(value, out);
    ds_put_char(out, '\n');
}

/* Appends each of 'rows' as a block of lines: what it is about, then the rest
 * by name. */
static void
format_blocks(const struct json *rows, struct ds *out)
{
    static const char *const first[] = { "port", "queue" };

    for (size_t row = 0; row < ipoib_json_array_size(rows); row++) {
        const struct json *json = ipoib_json_array_at(rows, row);
        const struct shash_node **nodes = shash_sort(json_object(json));

        ds_put_cstr(out, row ? "\n" : "");
        for (size_t i = 0; i < ARRAY_SIZE(first); i++) {
            const struct json *value = shash_find_data(json_object(json),
                                                       first[i]);

            if (value) {
                format_line(first[i], value, out);
            }
        }
        for (size_t i = 0; i < shash_count(json_object(json)); i++) {
            if (strcmp(nodes[i]->name, first[0])
                && strcmp(nodes[i]->name, first[1])) {
                format_line(nodes[i]->name, nodes[i]->data, out);
            }
        }
        free(nodes);
    }
}


/* ipoib/show. */

static void
put_offloads(struct json *json, const struct ipoib_partition *part)
{
    struct smap smap = SMAP_INITIALIZER(&smap);

    ipoib_partition_offload_status(part, &smap);
    json_object_put_string(json, "checksum-tx",
                           smap_get(&smap, "checksum_tx"));
    json_object_put_string(json, "checksum-rx",
                           smap_get(&smap, "checksum_rx"));
    json_object_put_string(json, "segmentation-tx",
                           smap_get(&smap, "segmentation_tx"));
    smap_destroy(&smap);
}

static void
port_add(struct ipoib_dev *dev, struct json *rows)
{
    struct ds peers = DS_EMPTY_INITIALIZER;
    const struct ipoib_partition *part = dev->part;
    const struct ipoib_hca_port *port = dev->port;
    struct json *json = json_object_create();
    struct ipoib_mcast_stats groups;
    struct ipoib_hostqp_stats qps;
    const char *reason;

    ipoib_hostqps_get_stats(part->hostqps, &qps);
    put_dev(json, dev);
    json_object_put_string(json, "device", dev->device);
    put_int(json, "device-port", dev->port_num);
    json_object_put_string(json, "state",
                           ipoib_partition_is_up(part, &reason)
                           ? "up" : "down");
    json_object_put_string(json, "reason", reason ? reason : "-");
    json_object_put_string(json, "port-state",
                           ipoib_port_state_to_string(port->attr.state));
    put_int(json, "lid", port->attr.lid);
    put_int(json, "lmc", port->attr.lmc);
    put_int(json, "sm-lid", port->attr.sm_lid);
    put_gid(json, "gid", &port->gid);
    json_object_put_format(json, "guid", "0x%016"PRIx64, port->guid);
    json_object_put_format(json, "partition", "0x%04x",
                           part->pkey & IB_PKEY_MASK);
    put_int(json, "pkey-index", part->pkey_index);
    json_object_put_string(json, "membership",
                           part->pkey_index < 0 ? "-"
                           : port->pkeys[part->pkey_index] & IB_PKEY_FULL
                           ? "full" : "limited");
    json_object_put_format(json, "qkey", "0x%08x", part->ud.qkey);
    put_mac(json, "mac", part->shared.mac);
    if (part->n_rxq) {
        struct ipoib_addr addr
            = ipoib_addr_make(part->rxqs[0]->base_qp->qp_num, &port->gid);

        put_addr(json, "address", &addr);
    }
    put_int(json, "mtu", ipoib_partition_mtu(part));
    put_int(json, "rx-queues", part->n_rxq);
    put_int(json, "tx-queues", part->n_txq);
    put_int(json, "hosts", ipoib_host_table_count(part->shared.hosts));
    put_int(json, "hosts-sharing-a-qp", qps.n_sharing);
    put_int(json, "host-qps-in-use", qps.n_in_use);
    put_int(json, "host-qps-ready", qps.n_ready);
    put_int(json, "host-qps-retired", qps.n_draining + qps.n_resting);
    put_int(json, "neighbours", ipoib_neigh_table_count(part->shared.neighs));
    json_object_put_string(json, "shared-with", part->kernel.name[0]
                           ? part->kernel.name : "-");
    put_int(json, "groups-refused", ipoib_partition_n_refused(part));
    ipoib_mcast_get_stats(part->shared.mcast, &groups);
    put_int(json, "groups", groups.n_groups);
    put_int(json, "groups-sent-to", groups.n_send);
    put_int(json, "groups-for-routers", groups.n_router);
    put_int(json, "groups-over-limit", ipoib_snoop_n_refused(part->snoop)
                                       + groups.n_send_refused
                                       + groups.n_router_refused);
    json_object_put(json, "mcast-router", json_boolean_create(
        ipoib_partition_has_router(part)));
    ipoib_partition_peers_format(part, &peers);
    json_object_put_string(json, "peers", ds_cstr(&peers));
    ds_destroy(&peers);
    json_object_put_string(json, "proxy",
                           part->config.proxy_reply ? "reply" : "forward");
    put_offloads(json, part);
    json_array_add(rows, json);
}

static const struct show show_port = { .add = port_add };


/* ipoib/neigh/show. */

struct row_aux {
    struct ipoib_dev *dev;
    struct json *rows;
    unsigned int class;         /* Of paths. */
};

static void
neigh_add_row(struct ipoib_neigh *neigh, void *aux_)
{
    const struct row_aux *aux = aux_;
    const struct ipoib_partition *part = aux->dev->part;
    struct json *json = json_object_create();
    struct json *ips = json_array_create_empty();
    struct json *aliases = json_array_create_empty();
    struct ipoib_neigh_alias *alias;
    const struct ipoib_path *path;

    for (size_t i = 0; i < ipoib_neigh_n_ips(neigh); i++) {
        add_ip(ips, ipoib_neigh_ip(neigh, i));
    }
    if (neigh->more) {
        LIST_FOR_EACH (alias, node, &neigh->more->aliases) {
            json_array_add(aliases, json_string_create_nocopy(
                xasprintf(ETH_ADDR_FMT, ETH_ADDR_ARGS(alias->mac))));
        }
    }
    path = ipoib_partition_neigh_path(neigh);
    put_dev(json, aux->dev);
    put_addr(json, "address", &neigh->addr);
    put_mac(json, "mac", neigh->mac);
    json_object_put(json, "aliases", aliases);
    json_object_put(json, "ips", ips);
    put_int(json, "qpn", ipoib_addr_qpn(&neigh->addr));
    put_int(json, "lid", path && path->ah ? path->dlid : neigh->lid);
    json_object_put_string(json, "path",
                           path ? ipoib_path_state_to_string(path->state)
                           : "none");
    json_object_put(json, "router", json_boolean_create(neigh->routes));
    put_int(json, "waiting", neigh->more ? neigh->more->n_wait : 0);
    put_int(json, "confirmed", age(ipoib_neigh_confirmed(neigh)));
    put_int(json, "used", age(ipoib_neigh_used(part->shared.neighs, neigh)));
    json_array_add(aux->rows, json);
}

static void
neigh_add(struct ipoib_dev *dev, struct json *rows)
{
    struct row_aux aux = { .dev = dev, .rows = rows };
    size_t pos = 0;

    ipoib_neigh_walk(dev->part->shared.neighs, &pos, MAX_ROWS, neigh_add_row,
                     &aux);
}

static const struct column neigh_columns[] = {
    { "port", "port" }, { "VLAN", "vlan" }, { "address", "address" },
    { "stand-in MAC", "mac" }, { "LID", "lid" }, { "path", "path" },
    { "confirmed", "confirmed" }, { "used", "used" }, { "IP", "ips" },
    { NULL, NULL },
};
static const struct show show_neigh = { neigh_add, neigh_columns };


/* ipoib/host/show. */

static void
host_add_row(struct ipoib_host *host, void *aux_)
{
    const struct row_aux *aux = aux_;
    struct json *json = json_object_create();
    struct json *ips = json_array_create_empty();
    struct ipoib_host_ip *hip;

    LIST_FOR_EACH (hip, node, &host->ips) {
        add_ip(ips, &hip->ip);
    }
    put_dev(json, aux->dev);
    put_mac(json, "mac", host->mac);
    json_object_put_format(json, "qpn", "0x%06x", host->qpn);
    json_object_put(json, "shared-qp", json_boolean_create(host->shares_qp));
    put_int(json, "rx-queue", host->rxq);
    put_int(json, "qps", host->n_qps);
    json_object_put(json, "router",
                    json_boolean_create(ipoib_host_routes(host)));
    put_int(json, "heard", age(host->heard));
    json_object_put(json, "ips", ips);
    json_array_add(aux->rows, json);
}

static void
host_add(struct ipoib_dev *dev, struct json *rows)
{
    struct row_aux aux = { .dev = dev, .rows = rows };
    size_t pos = 0;

    ipoib_host_walk(dev->part->shared.hosts, &pos, MAX_ROWS, host_add_row,
                    &aux);
}

static const struct column host_columns[] = {
    { "port", "port" }, { "VLAN", "vlan" }, { "MAC", "mac" }, { "QPN", "qpn" },
    { "shared", "shared-qp" }, { "queue", "rx-queue" }, { "QPs", "qps" },
    { "router", "router" }, { "heard", "heard" }, { "IP", "ips" },
    { NULL, NULL },
};
static const struct show show_host = { host_add, host_columns };


/* ipoib/path/show. */

static void
path_add_row(const struct ipoib_path *path, void *aux_)
{
    const struct row_aux *aux = aux_;
    struct json *json = json_object_create();

    put_dev(json, aux->dev);
    put_gid(json, "gid", &path->dgid);
    json_object_put_string(json, "state",
                           ipoib_path_state_to_string(path->state));
    put_int(json, "lid", path->ah ? path->dlid : 0);
    put_int(json, "class", aux->class);
    put_int(json, "sl", path->ah || !aux->class ? path->sl
            : MAX(aux->dev->part->prio.classes[aux->class].sl, 0));
    put_int(json, "tclass", path->tclass);
    put_int(json, "mtu", ib_mtu_bytes(path->mtu));
    put_int(json, "rate", MAX(ibv_rate_to_mbps(path->rate), 0));
    put_int(json, "neighbours", path->n_users);
    json_object_put(json, "stale", json_boolean_create(path->stale));
    put_sa_status(json, path->last_error, path->last_status);
    json_array_add(aux->rows, json);
}

static void
path_add(struct ipoib_dev *dev, struct json *rows)
{
    struct row_aux aux = { .dev = dev, .rows = rows };

    ipoib_path_for_each(dev->part->paths, path_add_row, &aux);
    for (unsigned int i = 1; i <= dev->part->prio.n; i++) {
        aux.class = i;
        ipoib_path_for_each(dev->part->prio_paths[i], path_add_row, &aux);
    }
}

static const struct column path_columns[] = {
    { "port", "port" }, { "VLAN", "vlan" }, { "GID", "gid" },
    { "state", "state" },
    { "LID", "lid" }, { "class", "class" }, { "SL", "sl" }, { "MTU", "mtu" },
    { "Mb/s", "rate" },
    { "neighbours", "neighbours" }, { "stale", "stale" },
    { "SA status", "sa-status" }, { NULL, NULL },
};
static const struct show show_path = { path_add, path_columns };


/* ipoib/mcast/show. */

static void
mcast_add_row(const struct ipoib_mcast_group *group, void *aux_)
{
    const struct row_aux *aux = aux_;
    struct json *json = json_object_create();

    put_dev(json, aux->dev);
    put_gid(json, "mgid", &group->mgid);
    json_object_put_string(json, "state",
                           ipoib_mcast_state_to_string(group->state));
    json_object_put_string(json, "want",
                           group->want & IPOIB_MCAST_RECV ? "receive"
                           : group->want & IPOIB_MCAST_ROUTER ? "router"
                           : group->want & IPOIB_MCAST_SEND ? "send"
                           : "nothing");
    put_int(json, "join-state", group->join_state);
    json_object_put_format(json, "mlid", "0x%04x", group->mlid);
    json_object_put_format(json, "qkey", "0x%08x", group->qkey);
    put_int(json, "mtu", ib_mtu_bytes(group->mtu));
    put_int(json, "sl", group->sl);
    json_object_put(json, "attached", json_boolean_create(group->attached));
    put_int(json, "waiting", group->n_wait);
    json_object_put_string(json, "sa-status",
                           ipoib_mcast_failure(group)
                           ? ipoib_mcast_failure(group) : "ok");
    json_array_add(aux->rows, json);
}

static void
mcast_add(struct ipoib_dev *dev, struct json *rows)
{
    struct row_aux aux = { .dev = dev, .rows = rows };

    ipoib_mcast_for_each(dev->part->shared.mcast, mcast_add_row, &aux);
}

static const struct column mcast_columns[] = {
    { "port", "port" }, { "VLAN", "vlan" }, { "MGID", "mgid" },
    { "state", "state" },
    { "want", "want" }, { "join", "join-state" }, { "MLID", "mlid" },
    { "MTU", "mtu" }, { "attached", "attached" }, { "SA status", "sa-status" },
    { NULL, NULL },
};
static const struct show show_mcast = { mcast_add, mcast_columns };


/* ipoib/snoop/show. */

static void
snoop_add_row(const struct in6_addr *group, struct eth_addr mac, bool exclude,
              size_t n_sources, long long int heard, void *aux_)
{
    const struct row_aux *aux = aux_;
    struct json *json = json_object_create();
    struct ds s = DS_EMPTY_INITIALIZER;

    json_object_put_string(json, "port", aux->dev->name);
    ipv6_format_mapped(group, &s);
    json_object_put_string(json, "group", ds_cstr(&s));
    ds_destroy(&s);
    put_mac(json, "host", mac);
    json_object_put_string(json, "filter", exclude ? "exclude" : "include");
    put_int(json, "sources", n_sources);
    if (heard) {
        put_int(json, "reported", (time_msec() - heard) / 1000);
    } else {
        json_object_put_string(json, "reported", "never");
    }
    json_array_add(aux->rows, json);
}

static void
snoop_add(struct ipoib_dev *dev, struct json *rows)
{
    struct row_aux aux = { .dev = dev, .rows = rows };

    ipoib_snoop_for_each(dev->part->snoop, snoop_add_row, &aux);
}

static const struct column snoop_columns[] = {
    { "port", "port" }, { "group", "group" }, { "host", "host" },
    { "filter", "filter" }, { "sources", "sources" },
    { "reported", "reported" }, { NULL, NULL },
};
static const struct show show_snoop = { snoop_add, snoop_columns };


/* ipoib/queue/show. */

/* The counters of 'stats' that are not 0. */
static void
put_counters(struct json *json, const struct ipoib_counter counters[],
             size_t n, const void *stats)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value
            = ipoib_counter_read(ipoib_counter_of(&counters[i], stats));

        if (value) {
            put_int(json, counters[i].name, value);
        }
    }
}

static void
rxq_add(const struct ipoib_dev *dev, const struct ipoib_rxq *rxq,
        struct json *rows)
{
    struct json *json = json_object_create();

    put_dev(json, dev);
    json_object_put_format(json, "queue", "rx %u", rxq->id);
    json_object_put_format(json, "qpn", "0x%06x", rxq->base_qp->qp_num);
    put_int(json, "descriptors", rxq->n_desc);
    put_counters(json, ipoib_rx_counters, IPOIB_N_RX_COUNTERS,
                 &rxq->stats);
    json_array_add(rows, json);
}

static void
txq_add(const struct ipoib_dev *dev, const struct ipoib_txq *txq,
        struct json *rows)
{
    struct json *json = json_object_create();

    put_dev(json, dev);
    json_object_put_format(json, "queue", "tx %u", txq->id);
    json_object_put_format(json, "qpn", "0x%06x", txq->qp->qp_num);
    put_int(json, "descriptors", txq->n_desc);
    put_counters(json, ipoib_tx_counters, IPOIB_N_TX_COUNTERS,
                 &txq->stats);
    json_array_add(rows, json);
}

static void
put_buffers(struct json *json, const struct ipoib_pool_stats *stats)
{
    put_int(json, "buffers", stats->n_bufs);
    put_int(json, "buffers-free", stats->n_free);
    put_int(json, "buffers-posted", stats->n_posted);
    put_int(json, "buffers-in-packets", stats->n_packets);
}

/* What the control thread sends and delivers by itself, and the buffers. */
static void
control_add(const struct ipoib_dev *dev, struct json *rows)
{
    const struct ipoib_partition *part = dev->part;
    struct json *json = json_object_create();

    put_dev(json, dev);
    json_object_put_string(json, "queue", "control");
    put_counters(json, ipoib_rx_counters, IPOIB_N_RX_COUNTERS,
                 &part->rx_stats);
    put_counters(json, ipoib_tx_counters, IPOIB_N_TX_COUNTERS,
                 &part->tx_stats);
    put_int(json, "recovered", part->watch.n_recovered);
    put_int(json, "stalled", part->watch.n_stalled);
    if (part->pool) {
        struct ipoib_pool_stats stats;

        ipoib_pool_get_stats(part->pool, &stats);
        put_buffers(json, &stats);
        json_object_put(json, "zero-copy",
                        json_boolean_create(stats.zero_copy));
    }
    json_array_add(rows, json);
}

static void
queue_add(struct ipoib_dev *dev, struct json *rows)
{
    for (unsigned int i = 0; i < dev->part->n_rxq; i++) {
        rxq_add(dev, dev->part->rxqs[i], rows);
    }
    for (unsigned int i = 0; i < dev->part->n_txq; i++) {
        txq_add(dev, dev->part->txqs[i], rows);
    }
    control_add(dev, rows);
}

static const struct show show_queue = { .add = queue_add };


/* ipoib/memory. */

static void
memory_add(struct ipoib_dev *dev, struct json *rows)
{
    const struct ipoib_partition *part = dev->part;
    struct json *json = json_object_create();
    size_t rx = 0, tx = 0, neighs_fast, neighs;

    put_dev(json, dev);
    if (part->pool) {
        struct ipoib_pool_stats stats;

        ipoib_pool_get_stats(part->pool, &stats);
        json_object_put_string(json, "kind", stats.kind);
        put_buffers(json, &stats);
        put_int(json, "buffer-bytes", stats.memory);
    }
    for (unsigned int i = 0; i < part->n_rxq; i++) {
        rx += ipoib_rxq_memory(part->rxqs[i]);
    }
    for (unsigned int i = 0; i < part->n_txq; i++) {
        tx += ipoib_txq_memory(part->txqs[i]);
    }
    put_int(json, "receive-queue-bytes", rx);
    put_int(json, "transmit-queue-bytes", tx);
    ipoib_neigh_table_memory(part->shared.neighs, &neighs_fast, &neighs);
    put_int(json, "neighbours", ipoib_neigh_table_count(part->shared.neighs));
    put_int(json, "neighbour-bytes", neighs);
    put_int(json, "neighbour-bytes-data-path", neighs_fast);
    json_array_add(rows, json);
}

static const struct show show_memory = { .add = memory_add };


/* ipoib/sa/show. */

static void
sa_put_info(struct json *json, const struct ipoib_sa *sa)
{
    struct ipoib_sa_info info;

    ipoib_sa_get_info(sa, &info);
    json_object_put(json, "capabilities-known",
                    json_boolean_create(info.known));
    json_object_put_format(json, "capability-mask", "0x%04"PRIx16,
                           info.cap_mask);
    json_object_put_format(json, "capability-mask-2", "0x%07"PRIx32,
                           info.cap_mask2);
    put_int(json, "class-version", info.class_version);
    put_int(json, "response-time-value", info.resp_time);
    json_object_put(json, "send-only-full-member",
                    json_boolean_create(ipoib_sa_send_only_full_member(sa)));
}

/* Of the histogram, the buckets that have something in them. */
static void
sa_put_latencies(struct json *json, const struct ipoib_sa_stats *stats)
{
    struct json *array = json_array_create_empty();

    for (unsigned int i = 0; i < IPOIB_SA_N_LATENCIES; i++) {
        uint64_t limit = ipoib_sa_latency_limit(i);
        struct json *bucket;

        if (!stats->latencies[i]) {
            continue;
        }
        bucket = json_object_create();
        put_int(bucket, "n", stats->latencies[i]);
        if (limit != UINT64_MAX) {
            put_int(bucket, "us", limit);
        }
        json_array_add(array, bucket);
    }
    json_object_put(json, "latencies", array);
}

static void
sa_put_refusals(struct json *json, const struct ipoib_sa_stats *stats)
{
    struct json *array = json_array_create_empty();

    for (unsigned int i = 0; i < IPOIB_SA_N_STATUSES; i++) {
        const struct ipoib_sa_refusals *r = &stats->refusals[i];
        struct json *refusals;

        if (!r->n) {
            break;
        }
        refusals = json_object_create();
        put_int(refusals, "n", r->n);
        json_object_put_format(refusals, "status", "0x%04"PRIx16, r->status);
        json_object_put_string(refusals, "text",
                               ib_sa_status_to_string(r->status));
        json_array_add(array, refusals);
    }
    json_object_put(json, "refusals", array);
}

static void
sa_add(struct ipoib_dev *dev, struct json *rows)
{
    const struct ipoib_hca_port *port = dev->port;
    struct json *json = json_object_create();
    struct ipoib_sa_stats stats;

    ipoib_sa_get_stats(port->sa, &stats);
    put_dev(json, dev);
    json_object_put_string(json, "transport",
                           port->transport ? port->transport->class->name
                           : ovs_strerror(port->transport_error));
    json_object_put_string(json, "transport-wanted",
                           ipoib_sa_mode_to_string(port->sa_mode));
    put_int(json, "sm-lid", port->attr.sm_lid);
    put_int(json, "sm-sl", port->attr.sm_sl);
    put_int(json, "window", stats.window);
    put_int(json, "outstanding", stats.n_outstanding);
    put_int(json, "queued", stats.n_queued);
    put_int(json, "sent", stats.n_sent);
    put_int(json, "sent-again", stats.n_resent);
    put_int(json, "answers", stats.n_answers);
    put_int(json, "refused", stats.n_refused);
    put_int(json, "timeouts", stats.n_timeouts);
    put_int(json, "undelivered", stats.n_undelivered);
    put_int(json, "busy", stats.n_busy);
    put_int(json, "late", stats.n_late);
    put_int(json, "bad", stats.n_bad);
    put_int(json, "reports", stats.n_reports);
    if (port->transport) {
        json_object_put_format(json, "qpn", "0x%06"PRIx32,
                               port->transport->qpn);
        put_int(json, "recovered", port->transport->n_recovered);
    }
    sa_put_latencies(json, &stats);
    sa_put_refusals(json, &stats);
    sa_put_info(json, port->sa);
    json_array_add(rows, json);
}

static const struct show show_sa = { .add = sa_add };


/* ipoib/events. */

static void
event_add_row(const struct ipoib_event *event, void *aux_)
{
    const struct row_aux *aux = aux_;
    struct json *json = json_object_create();

    put_dev(json, aux->dev);
    json_object_put(json, "time", json_string_create_nocopy(
        xastrftime_msec("%Y-%m-%dT%H:%M:%S.###Z", event->when, true)));
    json_object_put_string(json, "type",
                           ipoib_event_type_to_string(event->type));
    json_object_put_string(json, "event", event->text);
    put_int(json, "more", event->n_more);
    json_array_add(aux->rows, json);
}

static void
events_add(struct ipoib_dev *dev, struct json *rows)
{
    static const struct ipoib_events none;
    struct row_aux aux = { .dev = dev, .rows = rows };

    /* Those of the HCA port once for each netdev. */
    ipoib_events_merge(dev->is_first ? &dev->port->events : &none,
                       &dev->part->events, event_add_row, &aux);
}

static const struct column event_columns[] = {
    { "port", "port" }, { "VLAN", "vlan" }, { "time", "time" },
    { "type", "type" }, { "more", "more" }, { "event", "event" },
    { NULL, NULL },
};
static const struct show show_events = { events_add, event_columns };


/* Commands. */

struct show_aux {
    const struct show *show;
    struct json *rows;
};

static void
show_dev(struct ipoib_dev *dev, void *aux_)
{
    const struct show_aux *aux = aux_;

    aux->show->add(dev, aux->rows);
}

/* Replies that something is wrong with the argument 'what'. */
static void
reply_bad(struct unixctl_conn *conn, const char *what, const char *reason)
{
    char *error = xasprintf("%s: %s", what, reason);

    unixctl_command_reply_error(conn, error);
    free(error);
}

static void
reply_no_port(struct unixctl_conn *conn, const char *name)
{
    reply_bad(conn, name, "no such ipoib port");
}

/* Replies with 'rows', which it frees, as JSON or text. */
static void
reply_rows(struct unixctl_conn *conn, const struct show *show,
           struct json *rows, bool json)
{
    if (json) {
        ipoib_reply_json(conn, rows);
    } else {
        struct ds s = DS_EMPTY_INITIALIZER;

        if (show->columns) {
            format_table(rows, show->columns, &s);
        } else {
            format_blocks(rows, &s);
        }
        unixctl_command_reply(conn, ds_cstr(&s));
        ds_destroy(&s);
        json_destroy(rows);
    }
}

static void
ipoib_unixctl_show(struct unixctl_conn *conn, int argc, const char *argv[],
                   void *show)
{
    struct show_aux aux = { .show = show };
    const char *name;
    char *error;
    bool json;

    error = ipoib_take_format(conn, &argc, argv, &json);
    if (error) {
        unixctl_command_reply_error(conn, error);
        free(error);
        return;
    }
    if (argc > 2) {
        unixctl_command_reply_error(conn, "one port at most");
        return;
    }
    name = argc > 1 ? argv[1] : NULL;
    aux.rows = json_array_create_empty();
    if (!ipoib_dev_for_each(name, show_dev, &aux) && name) {
        reply_no_port(conn, name);
        json_destroy(aux.rows);
    } else {
        reply_rows(conn, show, aux.rows, json);
    }
}

static void
flush_dev(struct ipoib_dev *dev, void *n_)
{
    size_t *n = n_;

    *n += ipoib_neigh_flush(dev->part->shared.neighs);
}

static void
ipoib_unixctl_neigh_flush(struct unixctl_conn *conn, int argc,
                          const char *argv[], void *aux OVS_UNUSED)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    size_t n = 0;

    if (!ipoib_dev_for_each(name, flush_dev, &n) && name) {
        reply_no_port(conn, name);
    } else {
        char *reply = xasprintf("%"PRIuSIZE" neighbours flushed", n);

        unixctl_command_reply(conn, reply);
        free(reply);
    }
}

struct failing {
    int msec;
    int error;
    const struct ipoib_hca *hca; /* Has failed; a port may have it several
                                  * times. */
};

static void
fail_dev(struct ipoib_dev *dev, void *failing_)
{
    struct failing *failing = failing_;

    if (failing->hca == dev->hca) {
        return;
    }
    failing->hca = dev->hca;
    failing->error = (dev->hca->verbs == &ipoib_verbs_soft
                      ? ipoib_soft_fail(dev->hca->ctx, failing->msec)
                      : EOPNOTSUPP);
}

static void
ipoib_unixctl_soft_fail(struct unixctl_conn *conn, int argc,
                        const char *argv[], void *aux OVS_UNUSED)
{
    struct failing failing = { .msec = 0 };

    if (argc > 2 && (!str_to_int(argv[2], 10, &failing.msec)
                     || failing.msec < 0)) {
        reply_bad(conn, argv[2], "not a number of milliseconds");
    } else if (!ipoib_dev_for_each(argv[1], fail_dev, &failing)) {
        reply_no_port(conn, argv[1]);
    } else if (failing.error) {
        reply_bad(conn, argv[1], "not a port of a fabric in software");
    } else {
        unixctl_command_reply(conn, NULL);
    }
}

void
ipoib_unixctl_init(void)
{
    static const struct {
        const char *name;
        const struct show *show;
    } commands[] = {
        { "ipoib/show", &show_port },
        { "ipoib/neigh/show", &show_neigh },
        { "ipoib/host/show", &show_host },
        { "ipoib/path/show", &show_path },
        { "ipoib/mcast/show", &show_mcast },
        { "ipoib/snoop/show", &show_snoop },
        { "ipoib/queue/show", &show_queue },
        { "ipoib/memory", &show_memory },
        { "ipoib/sa/show", &show_sa },
        { "ipoib/events", &show_events },
    };

    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        unixctl_command_register(commands[i].name, "[PORT]", 0,
                                 1 + IPOIB_JSON_ARG, ipoib_unixctl_show,
                                 CONST_CAST(struct show *, commands[i].show));
    }
    unixctl_command_register("ipoib/soft/fail", "PORT [MSEC]", 1, 2,
                             ipoib_unixctl_soft_fail, NULL);
    unixctl_command_register("ipoib/neigh/flush", "[PORT]", 0, 1,
                             ipoib_unixctl_neigh_flush, NULL);
}
