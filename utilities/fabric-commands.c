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
#include "fabric-commands.h"

#include <stdlib.h>
#include <string.h>

#include "fabric-fault.h"
#include "fabric-groups.h"
#include "fabric-opensm.h"
#include "fabric-pcap.h"
#include "fabric-ports.h"
#include "fabric-sa.h"
#include "fabric-sa-records.h"
#include "fabric-transport.h"
#include "ipoib-compat.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "sset.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

/* Commands that take words without number. */
#define MANY 16

/* Parsing. */

/* Stores in '*json' whether the caller wants JSON, and takes the word that
 * says so off the '*argc' words of 'argv'.  Returns false, with an error sent,
 * if another format is asked for. */
static bool
take_format(struct unixctl_conn *conn, int *argc, const char *argv[],
            bool *json)
{
    const char *last = argv[*argc - 1];

    *json = ipoib_reply_json_wanted(conn, argc, argv);
    if (!*json && *argc > 1 && !strncmp(last, "--format=", 9)) {
        char *error;

        if (!strcmp(last + 9, "text")) {
            --*argc;
            return true;
        }
        error = xasprintf("%s: neither text nor json", last + 9);
        unixctl_command_reply_error(conn, error);
        free(error);
        return false;
    }
    return true;
}

static void
reply_error_and_free(struct unixctl_conn *conn, char *error)
{
    unixctl_command_reply_error(conn, error);
    free(error);
}

/* Replies with 'error', which it frees, or with nothing if 'error' is NULL. */
static void
reply_result(struct unixctl_conn *conn, char *error)
{
    if (error) {
        reply_error_and_free(conn, error);
    } else {
        unixctl_command_reply(conn, NULL);
    }
}

static void
reply_ds_and_free(struct unixctl_conn *conn, struct ds *ds)
{
    unixctl_command_reply(conn, ds_cstr(ds));
    ds_destroy(ds);
}

/* Parses the P_Keys of 's', separated by commas.  Returns NULL or an error,
 * which the caller must free. */
char *
fabric_parse_pkeys(const char *s, uint16_t pkeys[IB_SOFT_MAX_PKEYS], size_t *n)
{
    char *copy = xstrdup(s);
    char *save = NULL;
    char *error = NULL;

    *n = 0;
    for (char *word = strtok_r(copy, ",", &save); word && !error;
         word = strtok_r(NULL, ",", &save)) {
        unsigned int pkey;

        if (!str_to_uint(word, 0, &pkey) || pkey > UINT16_MAX) {
            error = xasprintf("%s: not a P_Key (0 to 0xffff)", word);
        } else if (*n >= IB_SOFT_MAX_PKEYS) {
            error = xasprintf("more than %d P_Keys", IB_SOFT_MAX_PKEYS);
        } else {
            pkeys[(*n)++] = pkey;
        }
    }
    if (!error && !*n) {
        error = xstrdup("no P_Key");
    }
    free(copy);
    return error;
}

/* Parses an MTU: 1 to 5, or 256 to 4096 bytes.  Returns NULL or an error,
 * which the caller must free. */
char *
fabric_parse_mtu(const char *s, uint8_t *mtu)
{
    unsigned int x;

    if (str_to_uint(s, 10, &x)) {
        for (int i = 1; i <= 5; i++) {
            if (x == i || x == ib_mtu_bytes(i)) {
                *mtu = i;
                return NULL;
            }
        }
    }
    return xasprintf("%s: not an MTU (256, 512, 1024, 2048, 4096)", s);
}

/* Finds the port that 's' names; sends an error if there is none. */
static struct fabric_port *
parse_port(struct unixctl_conn *conn, const struct fabric *fabric,
           const char *s)
{
    char *error;
    struct fabric_port *port = fabric_port_parse(fabric, s, &error);

    if (!port) {
        reply_error_and_free(conn, error);
    }
    return port;
}

/* As parse_port(), but stores 0 in '*guid' for "all". */
static bool
parse_port_or_all(struct unixctl_conn *conn, const struct fabric *fabric,
                  const char *s, uint64_t *guid)
{
    struct fabric_port *port;

    *guid = 0;
    if (!strcmp(s, "all")) {
        return true;
    }
    port = parse_port(conn, fabric, s);
    if (port) {
        *guid = port->guid;
    }
    return port != NULL;
}

/* True if the last of the '*argc' words is 'word', which is then taken off. */
static bool
take_word(int *argc, const char *argv[], const char *word)
{
    if (*argc > 1 && !strcmp(argv[*argc - 1], word)) {
        --*argc;
        return true;
    }
    return false;
}

/* Showing. */

static char *
rate_to_string(uint8_t rate)
{
    return xasprintf("%g Gb/s", fabric_sa_rate_value(rate) / 10.0);
}

/* What fabric/show shows. */
struct summary {
    struct sset addresses;
    bool sm_up;
    char *rate, *group_rate;
    size_t n_groups;
};

static void
summary_init(const struct fabric *fabric, struct summary *s)
{
    sset_init(&s->addresses);
    fabric_transport_format_addresses(fabric->transport, &s->addresses);
    s->rate = rate_to_string(fabric->cfg.rate);
    s->group_rate = rate_to_string(fabric->cfg.group_rate);
    if (fabric->opensm) {
        s->sm_up = fabric_opensm_is_up(fabric);
        s->n_groups = fabric_opensm_count_groups(fabric);
    } else {
        s->sm_up = fabric->sm_down_until == LLONG_MIN;
        s->n_groups = hmap_count(&fabric->groups);
    }
}

static void
summary_uninit(struct summary *s)
{
    sset_destroy(&s->addresses);
    free(s->rate);
    free(s->group_rate);
}

static struct json *
summary_to_json(const struct fabric *fabric, const struct summary *s)
{
    const struct fabric_config *cfg = &fabric->cfg;
    struct json *j = json_object_create();
    struct json *array = json_array_create_empty();
    const char *address;

    SSET_FOR_EACH (address, &s->addresses) {
        json_array_add(array, json_string_create(address));
    }
    json_object_put(j, "addresses", array);
    json_object_put_string(j, "sm", s->sm_up ? "up" : "down");
    json_object_put(j, "sm-lid", json_integer_create(fabric->sm->lid));
    json_object_put(j, "mtu", json_integer_create(ib_mtu_bytes(cfg->mtu)));
    json_object_put_string(j, "rate", s->rate);
    if (fabric->opensm) {
        json_object_put_string(j, "opensm", fabric_opensm_name(fabric));
    } else {
        json_object_put_format(j, "gid-prefix", "%016"PRIx64, cfg->prefix);
        json_object_put_string(j, "group-rate", s->group_rate);
        json_object_put(j, "sl", json_integer_create(cfg->sl));
        json_object_put(j, "lmc", json_integer_create(cfg->lmc));
        json_object_put_format(j, "qkey", "0x%08"PRIx32, cfg->qkey);
    }
    json_object_put(j, "ports", json_integer_create(fabric->n_attached));
    json_object_put(j, "groups", json_integer_create(s->n_groups));
    if (fabric->pcap) {
        json_object_put_string(j, "pcap", fabric_pcap_name(fabric->pcap));
    }
    return j;
}

static void
format_summary(const struct fabric *fabric, const struct summary *s,
               struct ds *ds)
{
    const struct fabric_config *cfg = &fabric->cfg;
    const char *address;

    SSET_FOR_EACH (address, &s->addresses) {
        ds_put_format(ds, "listening: %s\n", address);
    }
    ds_put_format(ds, "subnet manager: %s, LID %"PRIu16,
                  s->sm_up ? "up" : "down", fabric->sm->lid);
    if (fabric->opensm) {
        ds_put_format(ds, ", opensm:%s\n", fabric_opensm_name(fabric));
        ds_put_format(ds, "links: MTU %d, %s\n", ib_mtu_bytes(cfg->mtu),
                      s->rate);
    } else {
        ds_put_format(ds, "\nGID prefix: %016"PRIx64"\n", cfg->prefix);
        ds_put_format(ds, "links: MTU %d, %s, LMC %"PRIu8"\n",
                      ib_mtu_bytes(cfg->mtu), s->rate, cfg->lmc);
        ds_put_format(ds, "groups: %s, SL %"PRIu8", Q_Key 0x%08"PRIx32"\n",
                      s->group_rate, cfg->sl, cfg->qkey);
    }
    ds_put_format(ds, "%"PRIuSIZE" ports, %"PRIuSIZE" groups\n",
                  fabric->n_attached, s->n_groups);
    if (fabric->pcap) {
        ds_put_format(ds, "capture: %s\n", fabric_pcap_name(fabric->pcap));
    }
}

static void
fabric_show(struct unixctl_conn *conn, int argc, const char *argv[],
            void *fabric_)
{
    struct fabric *fabric = fabric_;
    struct summary summary;
    bool json;

    if (!take_format(conn, &argc, argv, &json)) {
        return;
    }
    summary_init(fabric, &summary);
    if (json) {
        ipoib_reply_json(conn, summary_to_json(fabric, &summary));
    } else {
        struct ds ds = DS_EMPTY_INITIALIZER;

        format_summary(fabric, &summary, &ds);
        reply_ds_and_free(conn, &ds);
    }
    summary_uninit(&summary);
}

static void
fabric_address(struct unixctl_conn *conn, int argc OVS_UNUSED,
               const char *argv[] OVS_UNUSED, void *fabric_)
{
    struct fabric *fabric = fabric_;
    struct sset addresses = SSET_INITIALIZER(&addresses);
    struct ds ds = DS_EMPTY_INITIALIZER;
    const char **sorted;

    fabric_transport_format_addresses(fabric->transport, &addresses);
    sorted = sset_sort(&addresses);
    for (size_t i = 0; i < sset_count(&addresses); i++) {
        ds_put_format(&ds, "%s\n", sorted[i]);
    }
    free(sorted);
    sset_destroy(&addresses);
    reply_ds_and_free(conn, &ds);
}

static struct json *
port_to_json(const struct fabric_port *port)
{
    struct json *j = json_object_create();
    struct json *pkeys = json_array_create_empty();
    struct ds ds = DS_EMPTY_INITIALIZER;

    json_object_put_format(j, "guid", "%016"PRIx64, port->guid);
    json_object_put_format(j, "node-guid", "%016"PRIx64, port->node_guid);
    json_object_put(j, "lid", json_integer_create(port->lid));
    json_object_put(j, "lmc", json_integer_create(port->lmc));
    json_object_put_string(j, "state",
                           fabric_port_state_to_string(port->state));
    json_object_put(j, "mtu", json_integer_create(ib_mtu_bytes(port->mtu)));
    json_object_put(j, "grh-required",
                    json_boolean_create(port->grh_required));
    json_object_put(j, "groups",
                    json_integer_create(hmap_count(&port->members)));
    for (size_t i = 0; i < port->n_pkeys; i++) {
        json_array_add(pkeys, json_string_create_nocopy(
                           xasprintf("0x%04"PRIx16, port->pkeys[i])));
    }
    json_object_put(j, "pkeys", pkeys);
    fabric_port_format_description(port, &ds);
    json_object_put_string(j, "description", ds_cstr(&ds));
    ds_clear(&ds);
    fabric_endpoint_format(port->endpoint, &ds);
    json_object_put_string(j, "address", ds_cstr(&ds));
    ds_destroy(&ds);
    return j;
}

static void
format_port(const struct fabric_port *port, struct ds *ds)
{
    ds_put_format(ds, "%016"PRIx64" LID %"PRIu16"/%"PRIu8" %s MTU %d"
                  " groups %"PRIuSIZE"%s P_Keys", port->guid, port->lid,
                  port->lmc, fabric_port_state_to_string(port->state),
                  ib_mtu_bytes(port->mtu), hmap_count(&port->members),
                  port->grh_required ? " GRH" : "");
    for (size_t i = 0; i < port->n_pkeys; i++) {
        ds_put_format(ds, "%c0x%04"PRIx16, i ? ',' : ' ', port->pkeys[i]);
    }
    ds_put_char(ds, ' ');
    fabric_endpoint_format(port->endpoint, ds);
    ds_put_cstr(ds, " \"");
    fabric_port_format_description(port, ds);
    ds_put_cstr(ds, "\"\n");
}

static void
fabric_ports(struct unixctl_conn *conn, int argc, const char *argv[],
             void *fabric_)
{
    struct fabric *fabric = fabric_;
    struct json *array = json_array_create_empty();
    struct ds ds = DS_EMPTY_INITIALIZER;
    struct fabric_port **ports;
    bool json;
    size_t n;

    if (!take_format(conn, &argc, argv, &json)) {
        json_destroy(array);
        return;
    }
    ports = fabric_ports_sorted(fabric, &n);
    for (size_t i = 0; i < n; i++) {
        if (!ports[i]->endpoint) {
            continue;           /* The subnet manager's. */
        } else if (json) {
            json_array_add(array, port_to_json(ports[i]));
        } else {
            format_port(ports[i], &ds);
        }
    }
    free(ports);
    if (json) {
        ipoib_reply_json(conn, array);
    } else {
        json_destroy(array);
        unixctl_command_reply(conn, ds_cstr(&ds));
    }
    ds_destroy(&ds);
}

static struct json *
group_to_json(const struct fabric_group *group)
{
    struct json *j = json_object_create();
    struct json *members = json_array_create_empty();
    const struct fabric_member *member;
    struct ds ds = DS_EMPTY_INITIALIZER;

    ib_gid_format(&group->mgid, &ds);
    json_object_put_string(j, "mgid", ds_cstr(&ds));
    ds_destroy(&ds);
    json_object_put_format(j, "mlid", "0x%04"PRIx16, group->mlid);
    json_object_put_format(j, "pkey", "0x%04"PRIx16, group->pkey);
    json_object_put_format(j, "qkey", "0x%08"PRIx32, group->qkey);
    json_object_put(j, "mtu", json_integer_create(ib_mtu_bytes(group->mtu)));
    json_object_put(j, "rate", json_real_create(
                        fabric_sa_rate_value(group->rate) / 10.0));
    json_object_put(j, "sl", json_integer_create(group->sl));
    json_object_put(j, "permanent", json_boolean_create(group->permanent));
    LIST_FOR_EACH (member, group_node, &group->members) {
        struct json *m = json_object_create();

        json_object_put_format(m, "guid", "%016"PRIx64, member->port->guid);
        json_object_put(m, "state", json_integer_create(member->state));
        json_array_add(members, m);
    }
    json_object_put(j, "members", members);
    return j;
}

static void
format_group(const struct fabric_group *group, struct ds *ds)
{
    const struct fabric_member *member;

    ib_gid_format(&group->mgid, ds);
    ds_put_format(ds, " MLID 0x%04"PRIx16" P_Key 0x%04"PRIx16
                  " Q_Key 0x%08"PRIx32" MTU %d SL %"PRIu8"%s members",
                  group->mlid, group->pkey, group->qkey,
                  ib_mtu_bytes(group->mtu), group->sl,
                  group->permanent ? " permanent" : "");
    if (!group->n_members) {
        ds_put_cstr(ds, " none");
    }
    LIST_FOR_EACH (member, group_node, &group->members) {
        ds_put_format(ds, " %016"PRIx64"/0x%"PRIx8, member->port->guid,
                      member->state);
    }
    ds_put_char(ds, '\n');
}

/* fabric_groups() where all that is known of groups is in the tables of
 * switches. */
static void
show_tables(struct unixctl_conn *conn, const struct fabric *fabric, bool json)
{
    if (json) {
        ipoib_reply_json(conn, fabric_opensm_groups_to_json(fabric));
    } else {
        struct ds ds = DS_EMPTY_INITIALIZER;

        fabric_opensm_format_groups(fabric, &ds);
        reply_ds_and_free(conn, &ds);
    }
}

static void
fabric_groups(struct unixctl_conn *conn, int argc, const char *argv[],
              void *fabric_)
{
    struct fabric *fabric = fabric_;
    struct json *array = json_array_create_empty();
    struct ds ds = DS_EMPTY_INITIALIZER;
    struct fabric_group **groups;
    bool json;
    size_t n;

    if (!take_format(conn, &argc, argv, &json)) {
        json_destroy(array);
        return;
    }
    if (fabric->opensm) {
        json_destroy(array);
        show_tables(conn, fabric, json);
        return;
    }
    groups = fabric_groups_sorted(fabric, &n);
    for (size_t i = 0; i < n; i++) {
        if (json) {
            json_array_add(array, group_to_json(groups[i]));
        } else {
            format_group(groups[i], &ds);
        }
    }
    free(groups);
    if (json) {
        ipoib_reply_json(conn, array);
    } else {
        json_destroy(array);
        unixctl_command_reply(conn, ds_cstr(&ds));
    }
    ds_destroy(&ds);
}

static void
fabric_counters(struct unixctl_conn *conn, int argc, const char *argv[],
                void *fabric_)
{
    struct fabric *fabric = fabric_;
    const uint64_t *counters = fabric->counters;
    struct ds ds = DS_EMPTY_INITIALIZER;
    struct json *j;
    bool json;

    if (!take_format(conn, &argc, argv, &json)) {
        return;
    }
    if (argc > 1) {
        struct fabric_port *port = parse_port(conn, fabric, argv[1]);

        if (!port) {
            return;
        }
        counters = port->counters;
    }
    j = json_object_create();
    for (int i = 0; i < FABRIC_N_COUNTERS; i++) {
        if (json) {
            json_object_put(j, fabric_counter_name(i),
                            json_integer_create(counters[i]));
        } else {
            ds_put_format(&ds, "%-20s %"PRIu64"\n", fabric_counter_name(i),
                          counters[i]);
        }
    }
    if (json) {
        ipoib_reply_json(conn, j);
    } else {
        json_destroy(j);
        unixctl_command_reply(conn, ds_cstr(&ds));
    }
    ds_destroy(&ds);
}

/* Changing ports. */

static void
fabric_port_state(struct unixctl_conn *conn, int argc OVS_UNUSED,
                  const char *argv[], void *fabric_)
{
    struct fabric *fabric = fabric_;
    struct fabric_port *port = parse_port(conn, fabric, argv[1]);

    if (!port) {
        return;
    }
    for (uint8_t state = FABRIC_PORT_DOWN; state <= FABRIC_PORT_ACTIVE;
         state++) {
        if (!strcmp(argv[2], fabric_port_state_to_string(state))) {
            fabric_port_set_state(fabric, port, state);
            unixctl_command_reply(conn, NULL);
            return;
        }
    }
    reply_error_and_free(conn, xasprintf("%s: not down, init, armed or "
                                         "active", argv[2]));
}

/* Changes the LID of 'port' and tells those who must know. */
static char *
change_lid(struct fabric *fabric, struct fabric_port *port, unsigned int lid,
           unsigned int lmc, bool quiet)
{
    char *error = fabric_port_set_lid(fabric, port, lid, lmc);

    if (error) {
        return error;
    }
    if (quiet) {
        fabric_port_tell(fabric, port);
    } else {
        fabric_reregister_all(fabric);
    }
    return NULL;
}

static void
fabric_set_lid(struct unixctl_conn *conn, int argc, const char *argv[],
               void *fabric_)
{
    struct fabric *fabric = fabric_;
    bool quiet = take_word(&argc, argv, "--quiet");
    struct fabric_port *port = parse_port(conn, fabric, argv[1]);
    unsigned int lid;

    if (!port) {
        return;
    }
    if (argc < 3 || !str_to_uint(argv[2], 0, &lid) || lid > UINT16_MAX) {
        unixctl_command_reply_error(conn, "a LID is a number up to 0xbfff");
        return;
    }
    reply_result(conn, change_lid(fabric, port, lid, port->lmc, quiet));
}

static void
fabric_set_lmc(struct unixctl_conn *conn, int argc, const char *argv[],
               void *fabric_)
{
    struct fabric *fabric = fabric_;
    bool quiet = take_word(&argc, argv, "--quiet");
    struct fabric_port *port = parse_port(conn, fabric, argv[1]);
    unsigned int lmc, lid;
    char *error;

    if (!port) {
        return;
    }
    if (argc < 3 || !str_to_uint(argv[2], 0, &lmc) || lmc > 7) {
        unixctl_command_reply_error(conn, "an LMC is 0 to 7");
        return;
    }
    /* Keep the LID if it is good for that LMC, otherwise take the next that
     * is. */
    error = change_lid(fabric, port, port->lid, lmc, quiet);
    for (lid = ROUND_UP(port->lid, 1u << lmc);
         error && lid + (1u << lmc) <= IB_LID_MULTICAST; lid += 1u << lmc) {
        free(error);
        error = change_lid(fabric, port, lid, lmc, quiet);
    }
    reply_result(conn, error);
}

static void
fabric_set_grh_required(struct unixctl_conn *conn, int argc OVS_UNUSED,
                        const char *argv[], void *fabric_)
{
    struct fabric *fabric = fabric_;
    struct fabric_port *port = parse_port(conn, fabric, argv[1]);
    bool on = !strcmp(argv[2], "on");

    if (!port) {
        return;
    }
    if (!on && strcmp(argv[2], "off")) {
        reply_error_and_free(conn, xasprintf("%s: neither on nor off",
                                             argv[2]));
        return;
    }
    if (!on && !fabric->topology
        && (port->lid_next
            || fabric_port_by_lid(fabric, port->lid) != port)) {
        unixctl_command_reply_error(conn, "the port shares its LID: give it "
                                    "one of its own first");
        return;
    }
    port->grh_required = on;
    fabric_port_tell(fabric, port);
    unixctl_command_reply(conn, NULL);
}

static void
fabric_set_pkeys(struct unixctl_conn *conn, int argc OVS_UNUSED,
                 const char *argv[], void *fabric_)
{
    struct fabric *fabric = fabric_;
    uint16_t pkeys[IB_SOFT_MAX_PKEYS];
    struct fabric_port *port;
    uint64_t guid;
    char *error;
    size_t n;

    if (!parse_port_or_all(conn, fabric, argv[1], &guid)) {
        return;
    }
    error = fabric_parse_pkeys(argv[2], pkeys, &n);
    if (error) {
        reply_error_and_free(conn, error);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        fabric_make_broadcast_group(fabric, pkeys[i]);
    }
    HMAP_FOR_EACH (port, guid_node, &fabric->ports) {
        if (!guid || port->guid == guid) {
            fabric_port_set_pkeys(fabric, port, pkeys, n);
        }
    }
    if (!guid) {
        memcpy(fabric->cfg.pkeys, pkeys, n * sizeof *pkeys);
        fabric->cfg.n_pkeys = n;
    }
    unixctl_command_reply(conn, NULL);
}

static void
fabric_set_mtu(struct unixctl_conn *conn, int argc OVS_UNUSED,
               const char *argv[], void *fabric_)
{
    struct fabric *fabric = fabric_;
    struct fabric_port *port;
    uint64_t guid;
    uint8_t mtu;
    char *error;

    if (!parse_port_or_all(conn, fabric, argv[1], &guid)) {
        return;
    }
    error = fabric_parse_mtu(argv[2], &mtu);
    if (error) {
        reply_error_and_free(conn, error);
        return;
    }
    HMAP_FOR_EACH (port, guid_node, &fabric->ports) {
        if (guid ? port->guid == guid : port != fabric->sm) {
            fabric_port_set_mtu(fabric, port, mtu);
        }
    }
    if (!guid) {
        fabric->cfg.mtu = mtu;
    }
    unixctl_command_reply(conn, NULL);
}

static void
fabric_reregister(struct unixctl_conn *conn, int argc, const char *argv[],
                  void *fabric_)
{
    struct fabric *fabric = fabric_;

    if (argc < 2) {
        fabric_reregister_all(fabric);
    } else {
        struct fabric_port *port = parse_port(conn, fabric, argv[1]);

        if (!port) {
            return;
        }
        fabric_port_reregister(fabric, port);
    }
    unixctl_command_reply(conn, NULL);
}

/* Groups. */

/* Does to 'group' what 'word' says: "qkey=Q_KEY" or "mlid=MLID". */
static char *
change_group(struct fabric *fabric, struct fabric_group *group,
             const char *word)
{
    unsigned long long int value;
    const char *p = strchr(word, '=');

    if (!p || !str_to_ullong(p + 1, 0, &value) || value > UINT32_MAX) {
        return xasprintf("%s: neither qkey=Q_KEY nor mlid=MLID", word);
    } else if (!strncmp(word, "qkey=", 5)) {
        group->qkey = value;
        return NULL;
    } else if (!strncmp(word, "mlid=", 5)) {
        return fabric_group_set_mlid(fabric, group,
                                     MIN(value, UINT16_MAX));
    }
    return xasprintf("%s: neither qkey=Q_KEY nor mlid=MLID", word);
}

static void
fabric_set_group(struct unixctl_conn *conn, int argc, const char *argv[],
                 void *fabric_)
{
    struct fabric *fabric = fabric_;
    struct fabric_group *group;
    struct in6_addr mgid;
    struct ib_gid gid;
    char *error = NULL;

    if (inet_pton(AF_INET6, argv[1], &mgid) != 1) {
        reply_error_and_free(conn, xasprintf("%s: not an MGID", argv[1]));
        return;
    }
    memcpy(&gid, &mgid, sizeof gid);
    group = fabric_group_by_mgid(fabric, &gid);
    if (!group) {
        reply_error_and_free(conn, xasprintf("%s: there is no such group",
                                             argv[1]));
        return;
    }
    for (int i = 2; i < argc && !error; i++) {
        error = change_group(fabric, group, argv[i]);
    }
    if (!error) {
        fabric_reregister_all(fabric);
    }
    reply_result(conn, error);
}

/* The subnet manager. */

static void
fabric_set_sm_lid(struct unixctl_conn *conn, int argc OVS_UNUSED,
                  const char *argv[], void *fabric_)
{
    struct fabric *fabric = fabric_;
    unsigned int lid;

    if (!str_to_uint(argv[1], 0, &lid) || lid > UINT16_MAX) {
        unixctl_command_reply_error(conn, "a LID is a number up to 0xbfff");
        return;
    }
    reply_result(conn, change_lid(fabric, fabric->sm, lid, 0, false));
}

static void
fabric_set_prefix(struct unixctl_conn *conn, int argc OVS_UNUSED,
                  const char *argv[], void *fabric_)
{
    struct fabric *fabric = fabric_;
    unsigned long long int prefix;

    if (!str_to_ullong(argv[1], 16, &prefix)) {
        unixctl_command_reply_error(conn, "a GID prefix has up to 16 hex "
                                    "digits");
        return;
    }
    fabric->cfg.prefix = prefix;
    fabric_reregister_all(fabric);
    unixctl_command_reply(conn, NULL);
}

static void
fabric_sm_restart(struct unixctl_conn *conn, int argc, const char *argv[],
                  void *fabric_)
{
    double seconds = 0;

    if (argc > 1) {
        char *tail;

        if (strcmp(argv[1], "--down") || argc < 3) {
            unixctl_command_reply_error(conn, "only --down SECONDS is known");
            return;
        }
        seconds = strtod(argv[2], &tail);
        if (tail == argv[2] || *tail || !(seconds >= 0 && seconds <= 86400)) {
            reply_error_and_free(conn, xasprintf("%s: not 0 to 86400 seconds",
                                                 argv[2]));
            return;
        }
    }
    fabric_sa_restart(fabric_, seconds * 1000);
    unixctl_command_reply(conn, NULL);
}

static void
fabric_switches(struct unixctl_conn *conn, int argc, const char *argv[],
                void *fabric_)
{
    struct fabric *fabric = fabric_;
    bool json;

    if (!take_format(conn, &argc, argv, &json)) {
        return;
    }
    if (!fabric->topology) {
        unixctl_command_reply_error(conn, "there are switches only with "
                                    "--sm=opensm:NAME");
    } else if (json) {
        ipoib_reply_json(conn, fabric_opensm_to_json(fabric));
    } else {
        struct ds ds = DS_EMPTY_INITIALIZER;

        fabric_opensm_format(fabric, &ds);
        reply_ds_and_free(conn, &ds);
    }
}

static void
fabric_add_ports(struct unixctl_conn *conn, int argc OVS_UNUSED,
                 const char *argv[], void *fabric_)
{
    struct fabric *fabric = fabric_;
    uint64_t first = fabric->next_made_up;
    unsigned int n;
    char *error;

    if (!str_to_uint(argv[1], 10, &n) || !n || n >= FABRIC_N_LIDS) {
        reply_error_and_free(conn, xasprintf("%s: not 1 to %d ports", argv[1],
                                             FABRIC_N_LIDS - 1));
        return;
    }
    error = fabric_ports_make_up(fabric, n);
    if (error) {
        reply_error_and_free(conn, error);
    } else {
        char *s = xasprintf("%016"PRIx64"-%016"PRIx64, first,
                            fabric->next_made_up - 1);

        unixctl_command_reply(conn, s);
        free(s);
    }
}


/* Faults and captures. */

static void
reply_id(struct unixctl_conn *conn, char *error, unsigned int id)
{
    if (error) {
        reply_error_and_free(conn, error);
    } else {
        char *s = xasprintf("%u", id);

        unixctl_command_reply(conn, s);
        free(s);
    }
}

static void
fabric_fault(struct unixctl_conn *conn, int argc, const char *argv[],
             void *fabric_)
{
    struct fabric *fabric = fabric_;
    bool json, sa = !strcmp(argv[0], "fabric/sa-fault");
    unsigned int id = 0;
    uint64_t guid;

    if (!take_format(conn, &argc, argv, &json)) {
        return;
    }
    if (!strcmp(argv[1], "list") && argc == 2) {
        if (json) {
            ipoib_reply_json(conn, fabric_fault_to_json(fabric));
        } else {
            struct ds ds = DS_EMPTY_INITIALIZER;

            fabric_fault_format(fabric, &ds);
            reply_ds_and_free(conn, &ds);
        }
    } else if (!strcmp(argv[1], "clear") && argc == 2) {
        fabric_fault_clear(fabric);
        unixctl_command_reply(conn, NULL);
    } else if (!strcmp(argv[1], "remove") && argc == 3) {
        reply_result(conn, (str_to_uint(argv[2], 10, &id)
                            && fabric_fault_remove(fabric, id)
                            ? NULL
                            : xasprintf("%s: no such fault", argv[2])));
    } else if (!strcmp(argv[1], "add") && argc >= (sa ? 4 : 5)) {
        if (!parse_port_or_all(conn, fabric, argv[2], &guid)) {
            return;
        }
        char *error = (sa
                       ? fabric_sa_fault_add(fabric, guid, argv[3], argv + 4,
                                             argc - 4, &id)
                       : fabric_fault_add(fabric, guid, argv[3], argv[4],
                                          argv + 5, argc - 5, &id));
        reply_id(conn, error, id);
    } else {
        unixctl_command_reply_error(conn, sa
                                    ? "usage: add PORT|all TYPE [WORD]..."
                                    : "usage: add PORT|all TYPE VALUE "
                                      "[WORD]... | list | remove ID | clear");
    }
}

static void
fabric_pcap(struct unixctl_conn *conn, int argc OVS_UNUSED,
            const char *argv[], void *fabric_)
{
    struct fabric *fabric = fabric_;
    struct fabric_pcap *pcap = NULL;

    if (strcmp(argv[1], "off")) {
        int error = fabric_pcap_open(argv[1], &pcap);

        if (error) {
            reply_error_and_free(conn, xasprintf("%s: %s", argv[1],
                                                 ovs_strerror(error)));
            return;
        }
    }
    fabric_pcap_close(fabric->pcap);
    fabric->pcap = pcap;
    unixctl_command_reply(conn, NULL);
}

/* In place of commands that tell the built-in subnet manager what to do. */
static void
refuse(struct unixctl_conn *conn, int argc OVS_UNUSED, const char *argv[],
       void *fabric OVS_UNUSED)
{
    reply_error_and_free(conn, xasprintf("%s: OpenSM is the subnet manager",
                                         argv[0]));
}

void
fabric_commands_init(struct fabric *fabric)
{
    static const struct {
        const char *name, *usage;
        int min, max;
        unixctl_cb_func *cb;
        bool builtin;           /* Of the built-in subnet manager. */
    } commands[] = {
        { "fabric/show", "[--format=json]", 0, 1, fabric_show, false },
        { "fabric/address", "", 0, 0, fabric_address, false },
        { "fabric/ports", "[--format=json]", 0, 1, fabric_ports, false },
        { "fabric/switches", "[--format=json]", 0, 1, fabric_switches, false },
        { "fabric/groups", "[--format=json]", 0, 1, fabric_groups, false },
        { "fabric/counters", "[PORT] [--format=json]", 0, 2,
          fabric_counters, false },
        { "fabric/port-state", "PORT down|init|armed|active", 2, 2,
          fabric_port_state, false },
        { "fabric/set-lid", "PORT LID [--quiet]", 2, 3, fabric_set_lid, true },
        { "fabric/set-lmc", "PORT LMC [--quiet]", 2, 3, fabric_set_lmc, true },
        { "fabric/set-grh-required", "PORT on|off", 2, 2,
          fabric_set_grh_required, false },
        { "fabric/set-pkeys", "PORT|all PKEY[,PKEY]...", 2, 2,
          fabric_set_pkeys, true },
        { "fabric/set-mtu", "PORT|all MTU", 2, 2, fabric_set_mtu, true },
        { "fabric/reregister", "[PORT]", 0, 1, fabric_reregister, false },
        { "fabric/set-sm-lid", "LID", 1, 1, fabric_set_sm_lid, true },
        { "fabric/set-prefix", "PREFIX", 1, 1, fabric_set_prefix, true },
        { "fabric/sm-restart", "[--down SECONDS]", 0, 2, fabric_sm_restart,
          true },
        { "fabric/add-ports", "N", 1, 1, fabric_add_ports, true },
        { "fabric/set-group", "MGID qkey=Q_KEY|mlid=MLID...", 2, 3,
          fabric_set_group, true },
        { "fabric/fault", "add PORT|all TYPE VALUE [WORD]... | list | "
          "remove ID | clear", 1, MANY, fabric_fault, false },
        { "fabric/sa-fault", "add PORT|all TYPE [WORD]... | list | "
          "remove ID | clear", 1, MANY, fabric_fault, false },
        { "fabric/pcap", "FILE|off", 1, 1, fabric_pcap, false },
    };

    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        unixctl_command_register(commands[i].name, commands[i].usage,
                                 commands[i].min, commands[i].max,
                                 fabric->opensm && commands[i].builtin
                                 ? refuse : commands[i].cb, fabric);
    }
}
