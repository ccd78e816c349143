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
#include "host-station.h"

#include <inttypes.h>
#include <stdlib.h>

#include "ipoib-compat.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "packets.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

/* The commands of ovs-ipoib-host, for ovs-appctl.
 *
 * Each builds JSON; the text is made from the same JSON where it is a plain
 * list of names and values. */

static char *
format_addr(const struct ipoib_addr *addr)
{
    struct ds ds = DS_EMPTY_INITIALIZER;

    ipoib_addr_format(addr, &ds);
    return ds_steal_cstr(&ds);
}

static char *
format_gid(const struct ib_gid *gid)
{
    struct ds ds = DS_EMPTY_INITIALIZER;

    ib_gid_format(gid, &ds);
    return ds_steal_cstr(&ds);
}

static char *
format_ip(const struct in6_addr *ip)
{
    struct ds ds = DS_EMPTY_INITIALIZER;

    ipv6_format_mapped(ip, &ds);
    return ds_steal_cstr(&ds);
}

static int
compare_owns(const void *a_, const void *b_)
{
    const struct host_own *const *a = a_;
    const struct host_own *const *b = b_;

    return memcmp(&(*a)->ip.addr, &(*b)->ip.addr, sizeof (*a)->ip.addr);
}

/* Our addresses, sorted; the caller frees the array. */
static struct host_own **
sort_owns(const struct host_station *s)
{
    size_t n = hmap_count(&s->own);
    struct host_own **owns = xmalloc(MAX(n, 1) * sizeof *owns);
    struct host_own *own;
    size_t i = 0;

    HMAP_FOR_EACH (own, node, &s->own) {
        owns[i++] = own;
    }
    qsort(owns, n, sizeof *owns, compare_owns);
    return owns;
}

/* Counters. */

struct counter {
    const char *name;
    uint64_t value;
};

#define MAX_COUNTERS 64
static size_t
get_counters(const struct host_station *s, struct counter counters[])
{
    const struct host_hca_stats *h = host_hca_stats(s->hca);
    const struct host_station_stats *st = &s->stats;
    struct ipoib_sa_stats sa;
    size_t n = 0;

    ipoib_sa_get_stats(host_hca_sa(s->hca), &sa);
#define COUNTER(NAME, VALUE) counters[n++] = (struct counter) { NAME, VALUE }
    COUNTER("rx_packets", h->rx_packets);
    COUNTER("rx_bytes", h->rx_bytes);
    COUNTER("rx_multicast", h->rx_multicast);
    COUNTER("rx_own", h->rx_own);
    COUNTER("rx_errors", h->rx_errors);
    COUNTER("rx_bad", h->rx_bad + st->rx_bad);
    COUNTER("rx_unknown_type", h->rx_unknown_type);
    COUNTER("rx_arp", st->rx_arp);
    COUNTER("rx_nd", st->rx_nd);
    COUNTER("rx_conflict", st->rx_conflict);
    COUNTER("tx_packets", h->tx_packets);
    COUNTER("tx_bytes", h->tx_bytes);
    COUNTER("tx_multicast", h->tx_multicast);
    COUNTER("tx_errors", h->tx_errors);
    COUNTER("tx_full", h->tx_full);
    COUNTER("tx_solicit", st->tx_solicit);
    COUNTER("tx_reply", st->tx_reply);
    COUNTER("tx_announce", st->tx_announce);
    COUNTER("tun_rx_packets", st->tun_rx_packets);
    COUNTER("tun_tx_packets", st->tun_tx_packets);
    COUNTER("tun_tx_errors", st->tun_tx_errors);
    COUNTER("drop_no_route", st->drop_no_route);
    COUNTER("drop_no_neigh", st->drop_no_neigh);
    COUNTER("drop_queue", st->drop_queue);
    COUNTER("drop_no_path", st->drop_no_path);
    COUNTER("drop_no_group", st->drop_no_group);
    COUNTER("drop_down", st->drop_down);
    COUNTER("drop_too_long", st->drop_too_long);
    COUNTER("drop_bad", st->drop_bad);
    COUNTER("sa_sent", sa.n_sent);
    COUNTER("sa_resent", sa.n_resent);
    COUNTER("sa_answers", sa.n_answers);
    COUNTER("sa_timeouts", sa.n_timeouts);
    COUNTER("sa_refused", sa.n_refused);
#undef COUNTER
    ovs_assert(n <= MAX_COUNTERS);
    return n;
}

/* host/show. */

struct group_list {
    struct json *json;          /* Either of the two. */
    struct ds *ds;
};

static void
show_group(const struct ipoib_mcast_group *group, void *list_)
{
    struct group_list *list = list_;
    const char *state = ipoib_mcast_state_to_string(group->state);
    const char *status = (group->last_status
                          ? ib_sa_status_to_string(group->last_status)
                          : group->last_error
                          ? ovs_strerror(group->last_error) : NULL);
    char *mgid = format_gid(&group->mgid);

    if (list->json) {
        struct json *json = json_object_create();

        json_object_put_string(json, "mgid", mgid);
        json_object_put_string(json, "state", state);
        json_object_put(json, "mlid", json_integer_create(group->mlid));
        json_object_put(json, "receive",
                        json_boolean_create(group->want & IPOIB_MCAST_RECV));
        if (status) {
            json_object_put_string(json, "error", status);
        }
        json_array_add(list->json, json);
    } else {
        ds_put_format(list->ds, "    %s  %s", mgid, state);
        if (group->state == IPOIB_MCAST_JOINED) {
            ds_put_format(list->ds, ", MLID 0x%04x", group->mlid);
        }
        if (!(group->want & IPOIB_MCAST_RECV)) {
            ds_put_cstr(list->ds, ", send only");
        }
        if (status) {
            ds_put_format(list->ds, ", %s", status);
        }
        ds_put_char(list->ds, '\n');
    }
    free(mgid);
}

static struct json *
show_json(const struct host_station *s)
{
    const struct ibv_port_attr *port = host_hca_port(s->hca);
    struct json *json = json_object_create();
    struct counter counters[MAX_COUNTERS];
    struct host_own **owns = sort_owns(s);
    struct group_list groups = { .json = json_array_create_empty() };
    struct json *addresses = json_array_create_empty();
    struct json *stats = json_object_create();
    const char *reason;
    size_t n;

    json_object_put_string(json, "tun", host_tun_name(s->tun));
    json_object_put(json, "up",
                    json_boolean_create(host_hca_is_up(s->hca, &reason)));
    if (reason) {
        json_object_put_string(json, "reason", reason);
    }
    json_object_put_format(json, "port_guid", "%016"PRIx64,
                           host_hca_guid(s->hca));
    json_object_put(json, "lid", json_integer_create(port->lid));
    json_object_put(json, "sm_lid", json_integer_create(port->sm_lid));
    json_object_put_format(json, "pkey", "0x%04x", host_hca_pkey(s->hca));
    json_object_put(json, "mtu", json_integer_create(host_hca_mtu(s->hca)));

    for (size_t i = 0; i < hmap_count(&s->own); i++) {
        struct ipoib_addr addr = host_hca_addr(s->hca, owns[i]->id);
        struct json *own = json_object_create();

        json_object_put(own, "ip", json_string_create_nocopy(
                                       format_ip(&owns[i]->ip.addr)));
        json_object_put(own, "prefix_length",
                        json_integer_create(owns[i]->ip.plen));
        json_object_put(own, "address",
                        json_string_create_nocopy(format_addr(&addr)));
        json_array_add(addresses, own);
    }
    free(owns);
    json_object_put(json, "addresses", addresses);

    ipoib_mcast_for_each(host_hca_mcast(s->hca), show_group, &groups);
    json_object_put(json, "groups", groups.json);

    n = get_counters(s, counters);
    for (size_t i = 0; i < n; i++) {
        json_object_put(stats, counters[i].name,
                        json_integer_create(counters[i].value));
    }
    json_object_put(json, "statistics", stats);
    return json;
}

static void
show_text(const struct host_station *s, struct ds *ds)
{
    const struct ibv_port_attr *port = host_hca_port(s->hca);
    struct counter counters[MAX_COUNTERS];
    struct host_own **owns = sort_owns(s);
    struct group_list groups = { .ds = ds };
    const char *reason;
    size_t n;

    ds_put_format(ds, "%s: ", host_tun_name(s->tun));
    if (host_hca_is_up(s->hca, &reason)) {
        ds_put_cstr(ds, "up\n");
    } else {
        ds_put_format(ds, "down: %s\n", reason);
    }
    ds_put_format(ds, "  port GUID %016"PRIx64", LID %d, SM LID %d, "
                  "P_Key 0x%04x, MTU %d\n", host_hca_guid(s->hca), port->lid,
                  port->sm_lid, host_hca_pkey(s->hca), host_hca_mtu(s->hca));

    ds_put_cstr(ds, "  addresses:\n");
    for (size_t i = 0; i < hmap_count(&s->own); i++) {
        struct ipoib_addr addr = host_hca_addr(s->hca, owns[i]->id);

        ds_put_cstr(ds, "    ");
        ipv6_format_mapped(&owns[i]->ip.addr, ds);
        ds_put_format(ds, "/%d  ", owns[i]->ip.plen);
        ipoib_addr_format(&addr, ds);
        ds_put_char(ds, '\n');
    }
    free(owns);

    ds_put_cstr(ds, "  groups:\n");
    ipoib_mcast_for_each(host_hca_mcast(s->hca), show_group, &groups);

    ds_put_cstr(ds, "  statistics:\n");
    n = get_counters(s, counters);
    for (size_t i = 0; i < n; i++) {
        if (counters[i].value) {
            ds_put_format(ds, "    %s: %"PRIu64"\n", counters[i].name,
                          counters[i].value);
        }
    }
}

/* Stores in '*json' whether JSON is wanted.  Returns false, with an error
 * sent, if there are other arguments. */
static bool
take_format(struct unixctl_conn *conn, int argc, const char *argv[],
            bool *json)
{
    char *error = ipoib_take_format(conn, &argc, argv, json);

    if (!error && argc > 1) {
        error = xasprintf("%s: only --format=json or --format=text is known",
                          argv[1]);
    }
    if (error) {
        unixctl_command_reply_error(conn, error);
        free(error);
        return false;
    }
    return true;
}

static void
host_show(struct unixctl_conn *conn, int argc, const char *argv[], void *s_)
{
    const struct host_station *s = s_;
    bool json;

    if (!take_format(conn, argc, argv, &json)) {
        return;
    }
    if (json) {
        ipoib_reply_json(conn, show_json(s));
    } else {
        struct ds ds = DS_EMPTY_INITIALIZER;

        show_text(s, &ds);
        unixctl_command_reply(conn, ds_cstr(&ds));
        ds_destroy(&ds);
    }
}

/* host/neigh. */

static struct json *
neigh_json(const struct host_neigh *neigh, long long int now)
{
    struct json *json = json_object_create();

    json_object_put(json, "ip",
                    json_string_create_nocopy(format_ip(&neigh->ip)));
    json_object_put_string(json, "state",
                           host_neigh_state_to_string(neigh->state));
    if (host_neigh_is_usable(neigh)) {
        json_object_put(json, "address",
                        json_string_create_nocopy(format_addr(&neigh->addr)));
    }
    json_object_put(json, "used", json_integer_create(
                                      (now - neigh->used) / 1000));
    json_object_put(json, "updated", json_integer_create(
                                         (now - neigh->updated) / 1000));
    return json;
}

static void
neigh_text(const struct host_neigh *neigh, long long int now, struct ds *ds)
{
    ipv6_format_mapped(&neigh->ip, ds);
    ds_put_cstr(ds, "  ");
    if (host_neigh_is_usable(neigh)) {
        ipoib_addr_format(&neigh->addr, ds);
        ds_put_cstr(ds, "  ");
    }
    ds_put_format(ds, "%s, used %lld s ago\n",
                  host_neigh_state_to_string(neigh->state),
                  (now - neigh->used) / 1000);
}

static void
host_neigh(struct unixctl_conn *conn, int argc, const char *argv[], void *s_)
{
    const struct host_station *s = s_;
    struct ds ds = DS_EMPTY_INITIALIZER;
    long long int now = time_msec();
    struct host_neigh **neighs;
    struct json *json;
    bool want_json;

    if (!take_format(conn, argc, argv, &want_json)) {
        return;
    }
    json = want_json ? json_array_create_empty() : NULL;
    neighs = host_neigh_sort(s->neighs);
    for (size_t i = 0; i < host_neigh_count(s->neighs); i++) {
        if (json) {
            json_array_add(json, neigh_json(neighs[i], now));
        } else {
            neigh_text(neighs[i], now, &ds);
        }
    }
    free(neighs);
    if (json) {
        ipoib_reply_json(conn, json);
    } else {
        unixctl_command_reply(conn, ds_cstr(&ds));
    }
    ds_destroy(&ds);
}

/* host/neigh/flush. */
static void
host_neigh_flush_cmd(struct unixctl_conn *conn, int argc OVS_UNUSED,
                     const char *argv[] OVS_UNUSED, void *s_)
{
    struct host_station *s = s_;

    host_neigh_flush(s->neighs);
    unixctl_command_reply(conn, NULL);
}

/* host/announce. */
static void
host_announce(struct unixctl_conn *conn, int argc OVS_UNUSED,
              const char *argv[] OVS_UNUSED, void *s_)
{
    struct host_station *s = s_;
    const char *reason;

    if (!host_hca_is_up(s->hca, &reason)) {
        unixctl_command_reply_error(conn, reason);
        return;
    }
    host_station_announce(s);
    unixctl_command_reply(conn, NULL);
}

void
host_show_init(struct host_station *s)
{
    unixctl_command_register("host/show", "[--format=json]", 0,
                             IPOIB_JSON_ARG, host_show, s);
    unixctl_command_register("host/neigh", "[--format=json]", 0,
                             IPOIB_JSON_ARG, host_neigh, s);
    unixctl_command_register("host/neigh/flush", "", 0, 0,
                             host_neigh_flush_cmd, s);
    unixctl_command_register("host/announce", "", 0, 0, host_announce, s);
}
