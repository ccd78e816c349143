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

/* A command that is carried out.  Its function returns NULL, and what is to be
 * replied stands in 'text' or 'result', or an error, which is freed. */
struct call {
    struct fabric *fabric;
    int argc;
    const char **argv;          /* Arguments from 'argv[1]' on. */
    bool json;                  /* A result is wanted as JSON. */

    struct ds text;
    struct json *result;        /* If 'json'; NULL: there is none. */
};

static char *wrong_usage(const struct call *);

/* Parsing. */

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

/* Finds the port that 's' names, or stores 0 in '*guid' for "all". */
static char *
parse_port_or_all(const struct fabric *fabric, const char *s, uint64_t *guid)
{
    struct fabric_port *port;
    char *error = NULL;

    *guid = 0;
    if (strcmp(s, "all")) {
        port = fabric_port_parse(fabric, s, &error);
        if (port) {
            *guid = port->guid;
        }
    }
    return error;
}

/* True if the last argument is 'word', which is then taken off. */
static bool
take_word(struct call *call, const char *word)
{
    if (call->argc > 1 && !strcmp(call->argv[call->argc - 1], word)) {
        call->argc--;
        return true;
    }
    return false;
}

/* Parses 's', a LID; whether a port can have it is not looked at. */
static char *
parse_lid(const char *s, unsigned int *lid)
{
    return (str_to_uint(s, 0, lid) && *lid < IB_LID_MULTICAST ? NULL
            : xasprintf("%s: not a LID (a number up to 0xbfff)", s));
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

static char *
fabric_show(struct call *call)
{
    struct summary summary;

    summary_init(call->fabric, &summary);
    if (call->json) {
        call->result = summary_to_json(call->fabric, &summary);
    } else {
        format_summary(call->fabric, &summary, &call->text);
    }
    summary_uninit(&summary);
    return NULL;
}

static char *
fabric_address(struct call *call)
{
    struct sset addresses = SSET_INITIALIZER(&addresses);
    const char **sorted;

    fabric_transport_format_addresses(call->fabric->transport, &addresses);
    sorted = sset_sort(&addresses);
    for (size_t i = 0; i < sset_count(&addresses); i++) {
        ds_put_format(&call->text, "%s\n", sorted[i]);
    }
    free(sorted);
    sset_destroy(&addresses);
    return NULL;
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

static char *
fabric_ports(struct call *call)
{
    struct fabric_port **ports;
    size_t n;

    call->result = call->json ? json_array_create_empty() : NULL;
    ports = fabric_ports_sorted(call->fabric, &n);
    for (size_t i = 0; i < n; i++) {
        if (!ports[i]->endpoint) {
            continue;           /* The subnet manager's, and made-up ones. */
        } else if (call->json) {
            json_array_add(call->result, port_to_json(ports[i]));
        } else {
            format_port(ports[i], &call->text);
        }
    }
    free(ports);
    return NULL;
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
show_tables(struct call *call)
{
    if (call->json) {
        call->result = fabric_opensm_groups_to_json(call->fabric);
    } else {
        fabric_opensm_format_groups(call->fabric, &call->text);
    }
}

static char *
fabric_groups(struct call *call)
{
    struct fabric_group **groups;
    size_t n;

    if (call->fabric->opensm) {
        show_tables(call);
        return NULL;
    }
    call->result = call->json ? json_array_create_empty() : NULL;
    groups = fabric_groups_sorted(call->fabric, &n);
    for (size_t i = 0; i < n; i++) {
        if (call->json) {
            json_array_add(call->result, group_to_json(groups[i]));
        } else {
            format_group(groups[i], &call->text);
        }
    }
    free(groups);
    return NULL;
}

static char *
fabric_counters(struct call *call)
{
    const uint64_t *counters = call->fabric->counters;

    if (call->argc > 1) {
        char *error;
        struct fabric_port *port = fabric_port_parse(call->fabric,
                                                     call->argv[1], &error);

        if (!port) {
            return error;
        }
        counters = port->counters;
    }
    call->result = call->json ? json_object_create() : NULL;
    for (int i = 0; i < FABRIC_N_COUNTERS; i++) {
        if (call->json) {
            json_object_put(call->result, fabric_counter_name(i),
                            json_integer_create(counters[i]));
        } else {
            ds_put_format(&call->text, "%-20s %"PRIu64"\n",
                          fabric_counter_name(i), counters[i]);
        }
    }
    return NULL;
}

static char *
fabric_switches(struct call *call)
{
    if (!call->fabric->topology) {
        return xstrdup("there are switches only with --sm=opensm:NAME");
    } else if (call->json) {
        call->result = fabric_opensm_to_json(call->fabric);
    } else {
        fabric_opensm_format(call->fabric, &call->text);
    }
    return NULL;
}

/* Changing ports. */

static char *
fabric_port_state(struct call *call)
{
    char *error;
    struct fabric_port *port = fabric_port_parse(call->fabric, call->argv[1],
                                                 &error);

    if (!port) {
        return error;
    }
    for (uint8_t state = FABRIC_PORT_DOWN; state <= FABRIC_PORT_ACTIVE;
         state++) {
        if (!strcmp(call->argv[2], fabric_port_state_to_string(state))) {
            fabric_port_set_state(call->fabric, port, state);
            return NULL;
        }
    }
    return xasprintf("%s: not down, init, armed or active", call->argv[2]);
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

static char *
fabric_set_lid(struct call *call)
{
    bool quiet = take_word(call, "--quiet");
    struct fabric_port *port;
    unsigned int lid;
    char *error;

    if (call->argc != 3) {
        return wrong_usage(call);
    }
    port = fabric_port_parse(call->fabric, call->argv[1], &error);
    if (port) {
        error = parse_lid(call->argv[2], &lid);
    }
    return error ? error
                 : change_lid(call->fabric, port, lid, port->lmc, quiet);
}

static char *
fabric_set_lmc(struct call *call)
{
    bool quiet = take_word(call, "--quiet");
    struct fabric *fabric = call->fabric;
    struct fabric_port *port;
    unsigned int lmc, lid;
    char *error;

    if (call->argc != 3) {
        return wrong_usage(call);
    }
    port = fabric_port_parse(fabric, call->argv[1], &error);
    if (!port) {
        return error;
    }
    if (!str_to_uint(call->argv[2], 0, &lmc) || lmc > 7) {
        return xasprintf("%s: not an LMC (0 to 7)", call->argv[2]);
    }
    /* Keep the LID if it is good for that LMC, otherwise take the next that
     * is. */
    error = change_lid(fabric, port, port->lid, lmc, quiet);
    for (lid = ROUND_UP(port->lid, 1u << lmc);
         error && lid + (1u << lmc) <= IB_LID_MULTICAST; lid += 1u << lmc) {
        free(error);
        error = change_lid(fabric, port, lid, lmc, quiet);
    }
    return error;
}

static char *
fabric_set_grh_required(struct call *call)
{
    struct fabric *fabric = call->fabric;
    bool on = !strcmp(call->argv[2], "on");
    char *error;
    struct fabric_port *port = fabric_port_parse(fabric, call->argv[1],
                                                 &error);

    if (!port) {
        return error;
    }
    if (!on && strcmp(call->argv[2], "off")) {
        return xasprintf("%s: neither on nor off", call->argv[2]);
    }
    if (!on && !fabric->topology
        && (port->lid_next
            || fabric_port_by_lid(fabric, port->lid) != port)) {
        return xstrdup("the port shares its LID: give it one of its own "
                       "first");
    }
    port->grh_required = on;
    fabric_port_tell(fabric, port);
    return NULL;
}

static char *
fabric_set_pkeys(struct call *call)
{
    struct fabric *fabric = call->fabric;
    uint16_t pkeys[IB_SOFT_MAX_PKEYS];
    struct fabric_port *port;
    uint64_t guid;
    char *error;
    size_t n;

    error = parse_port_or_all(fabric, call->argv[1], &guid);
    if (!error) {
        error = fabric_parse_pkeys(call->argv[2], pkeys, &n);
    }
    if (error) {
        return error;
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
    return NULL;
}

static char *
fabric_set_mtu(struct call *call)
{
    struct fabric *fabric = call->fabric;
    struct fabric_port *port;
    uint64_t guid;
    uint8_t mtu;
    char *error;

    error = parse_port_or_all(fabric, call->argv[1], &guid);
    if (!error) {
        error = fabric_parse_mtu(call->argv[2], &mtu);
    }
    if (error) {
        return error;
    }
    HMAP_FOR_EACH (port, guid_node, &fabric->ports) {
        if (guid ? port->guid == guid : port != fabric->sm) {
            fabric_port_set_mtu(fabric, port, mtu);
        }
    }
    if (!guid) {
        fabric->cfg.mtu = mtu;
    }
    return NULL;
}

static char *
fabric_reregister(struct call *call)
{
    if (call->argc < 2) {
        fabric_reregister_all(call->fabric);
    } else {
        char *error;
        struct fabric_port *port = fabric_port_parse(call->fabric,
                                                     call->argv[1], &error);

        if (!port) {
            return error;
        }
        fabric_port_reregister(call->fabric, port);
    }
    return NULL;
}

/* Groups. */

/* Parses 'word', "qkey=Q_KEY" or "mlid=MLID", into one of '*qkey' and
 * '*mlid'. */
static char *
parse_group_word(const char *word, uint32_t *qkey, uint16_t *mlid)
{
    const char *p = strchr(word, '=');
    unsigned int value;

    if (p && str_to_uint(p + 1, 0, &value)) {
        if (!strncmp(word, "qkey=", 5)) {
            *qkey = value;
            return NULL;
        } else if (!strncmp(word, "mlid=", 5) && value <= UINT16_MAX) {
            *mlid = value;
            return NULL;
        }
    }
    return xasprintf("%s: neither qkey=Q_KEY nor mlid=MLID", word);
}

static char *
fabric_set_group(struct call *call)
{
    struct fabric *fabric = call->fabric;
    struct fabric_group *group;
    struct in6_addr mgid;
    struct ib_gid gid;
    char *error = NULL;
    uint32_t qkey;
    uint16_t mlid;

    if (inet_pton(AF_INET6, call->argv[1], &mgid) != 1) {
        return xasprintf("%s: not an MGID", call->argv[1]);
    }
    memcpy(&gid, &mgid, sizeof gid);
    group = fabric_group_by_mgid(fabric, &gid);
    if (!group) {
        return xasprintf("%s: there is no such group", call->argv[1]);
    }
    /* All or nothing. */
    qkey = group->qkey;
    mlid = group->mlid;
    for (int i = 2; i < call->argc && !error; i++) {
        error = parse_group_word(call->argv[i], &qkey, &mlid);
    }
    if (!error) {
        error = fabric_group_set_mlid(fabric, group, mlid);
    }
    if (!error) {
        group->qkey = qkey;
        fabric_reregister_all(fabric);
    }
    return error;
}

/* The subnet manager. */

static char *
fabric_set_sm_lid(struct call *call)
{
    struct fabric *fabric = call->fabric;
    unsigned int lid;
    char *error = parse_lid(call->argv[1], &lid);

    return error ? error : change_lid(fabric, fabric->sm, lid, 0, false);
}

static char *
fabric_set_prefix(struct call *call)
{
    unsigned long long int prefix;

    if (!str_to_ullong(call->argv[1], 16, &prefix)) {
        return xasprintf("%s: not a GID prefix (up to 16 hex digits)",
                         call->argv[1]);
    }
    call->fabric->cfg.prefix = prefix;
    fabric_reregister_all(call->fabric);
    return NULL;
}

static char *
fabric_sm_restart(struct call *call)
{
    double seconds = 0;

    if (call->argc > 1) {
        const char *s = call->argv[call->argc - 1];
        char *tail;

        if (call->argc != 3 || strcmp(call->argv[1], "--down")) {
            return wrong_usage(call);
        }
        seconds = strtod(s, &tail);
        if (tail == s || *tail || !(seconds >= 0 && seconds <= 86400)) {
            return xasprintf("%s: not 0 to 86400 seconds", s);
        }
    }
    fabric_sa_restart(call->fabric, seconds * 1000);
    return NULL;
}

static char *
fabric_add_ports(struct call *call)
{
    struct fabric *fabric = call->fabric;
    uint64_t first = fabric->next_made_up;
    unsigned int n;
    char *error;

    if (!str_to_uint(call->argv[1], 10, &n) || !n || n >= FABRIC_N_LIDS) {
        return xasprintf("%s: not 1 to %d ports", call->argv[1],
                         FABRIC_N_LIDS - 1);
    }
    error = fabric_ports_make_up(fabric, n);
    if (!error) {
        ds_put_format(&call->text, "%016"PRIx64"-%016"PRIx64, first,
                      fabric->next_made_up - 1);
    }
    return error;
}


/* Faults and captures. */

static char *
list_faults(struct call *call)
{
    if (call->json) {
        call->result = fabric_fault_to_json(call->fabric);
    } else {
        fabric_fault_format(call->fabric, &call->text);
    }
    return NULL;
}

/* "add PORT|all TYPE ...": with 'sa', a fault of the SA's. */
static char *
add_fault(struct call *call, bool sa)
{
    const char *const *words = call->argv + 3;
    size_t n = call->argc - 3;
    unsigned int id;
    uint64_t guid;
    char *error;

    error = parse_port_or_all(call->fabric, call->argv[2], &guid);
    if (error) {
        return error;
    }
    error = (sa
             ? fabric_sa_fault_add(call->fabric, guid, words[0], words + 1,
                                   n - 1, &id)
             : fabric_fault_add(call->fabric, guid, words[0], words[1],
                                words + 2, n - 2, &id));
    if (!error) {
        ds_put_format(&call->text, "%u", id);
    }
    return error;
}

static char *
remove_fault(struct call *call)
{
    unsigned int id;

    return (str_to_uint(call->argv[2], 10, &id)
            && fabric_fault_remove(call->fabric, id)
            ? NULL : xasprintf("%s: no such fault", call->argv[2]));
}

static char *
fault(struct call *call, bool sa)
{
    const char *what = call->argv[1];

    if (call->argc == 2 && !strcmp(what, "list")) {
        return list_faults(call);
    } else if (call->argc == 2 && !strcmp(what, "clear")) {
        fabric_fault_clear(call->fabric);
        return NULL;
    } else if (call->argc == 3 && !strcmp(what, "remove")) {
        return remove_fault(call);
    } else if (call->argc >= (sa ? 4 : 5) && !strcmp(what, "add")) {
        return add_fault(call, sa);
    }
    return wrong_usage(call);
}

static char *
fabric_fault(struct call *call)
{
    return fault(call, false);
}

static char *
fabric_sa_fault(struct call *call)
{
    return fault(call, true);
}

static char *
fabric_pcap(struct call *call)
{
    struct fabric_pcap *pcap = NULL;

    if (strcmp(call->argv[1], "off")) {
        int error = fabric_pcap_open(call->argv[1], &pcap);

        if (error) {
            return xasprintf("%s: %s", call->argv[1], ovs_strerror(error));
        }
    }
    fabric_pcap_close(call->fabric->pcap);
    call->fabric->pcap = pcap;
    return NULL;
}

/* The commands. */

enum {
    SHOWS = 1 << 0,             /* Takes --format as well. */
    BUILTIN = 1 << 1,           /* Of the built-in subnet manager only. */
};

static const struct command {
    const char *name, *usage;
    int min, max;               /* Arguments, without --format. */
    char *(*run)(struct call *);
    int flags;
} commands[] = {
    { "fabric/show", "[--format=json]", 0, 0, fabric_show, SHOWS },
    { "fabric/address", "", 0, 0, fabric_address, 0 },
    { "fabric/ports", "[--format=json]", 0, 0, fabric_ports, SHOWS },
    { "fabric/switches", "[--format=json]", 0, 0, fabric_switches, SHOWS },
    { "fabric/groups", "[--format=json]", 0, 0, fabric_groups, SHOWS },
    { "fabric/counters", "[PORT] [--format=json]", 0, 1, fabric_counters,
      SHOWS },
    { "fabric/port-state", "PORT down|init|armed|active", 2, 2,
      fabric_port_state, 0 },
    { "fabric/set-lid", "PORT LID [--quiet]", 2, 3, fabric_set_lid, BUILTIN },
    { "fabric/set-lmc", "PORT LMC [--quiet]", 2, 3, fabric_set_lmc, BUILTIN },
    { "fabric/set-grh-required", "PORT on|off", 2, 2,
      fabric_set_grh_required, 0 },
    { "fabric/set-pkeys", "PORT|all PKEY[,PKEY]...", 2, 2, fabric_set_pkeys,
      BUILTIN },
    { "fabric/set-mtu", "PORT|all MTU", 2, 2, fabric_set_mtu, BUILTIN },
    { "fabric/reregister", "[PORT]", 0, 1, fabric_reregister, 0 },
    { "fabric/set-sm-lid", "LID", 1, 1, fabric_set_sm_lid, BUILTIN },
    { "fabric/set-prefix", "PREFIX", 1, 1, fabric_set_prefix, BUILTIN },
    { "fabric/sm-restart", "[--down SECONDS]", 0, 2, fabric_sm_restart,
      BUILTIN },
    { "fabric/add-ports", "N", 1, 1, fabric_add_ports, BUILTIN },
    { "fabric/set-group", "MGID qkey=Q_KEY|mlid=MLID...", 2, 3,
      fabric_set_group, BUILTIN },
    { "fabric/fault", "add PORT|all TYPE VALUE [WORD]... | list | "
      "remove ID | clear", 1, MANY, fabric_fault, SHOWS },
    { "fabric/sa-fault", "add PORT|all TYPE [WORD]... | list | "
      "remove ID | clear", 1, MANY, fabric_sa_fault, SHOWS },
    { "fabric/pcap", "FILE|off", 1, 1, fabric_pcap, 0 },
};

static const struct command *
find_command(const char *name)
{
    const struct command *command = commands;

    while (strcmp(command->name, name)) {
        command++;
    }
    return command;
}

/* The error for arguments that are too few, too many or in no order. */
static char *
wrong_usage(const struct call *call)
{
    const struct command *command = find_command(call->argv[0]);

    return xasprintf("usage: %s %s", command->name, command->usage);
}

static char *
run_call(struct unixctl_conn *conn, const struct command *command,
         struct call *call)
{
    if (call->fabric->opensm && command->flags & BUILTIN) {
        return xasprintf("%s: OpenSM is the subnet manager", command->name);
    }
    if (command->flags & SHOWS) {
        char *error = ipoib_take_format(conn, &call->argc, call->argv,
                                        &call->json);

        if (error) {
            return error;
        }
    }
    return (call->argc - 1 < command->min || call->argc - 1 > command->max
            ? wrong_usage(call) : command->run(call));
}

static void
command_cb(struct unixctl_conn *conn, int argc, const char *argv[],
           void *fabric)
{
    struct call call = {
        .fabric = fabric,
        .argc = argc,
        .argv = argv,
        .text = DS_EMPTY_INITIALIZER,
    };
    char *error = run_call(conn, find_command(argv[0]), &call);

    if (error) {
        unixctl_command_reply_error(conn, error);
        free(error);
    } else if (call.result) {
        ipoib_reply_json(conn, call.result);
    } else {
        unixctl_command_reply(conn, ds_cstr(&call.text));
    }
    ds_destroy(&call.text);
}

void
fabric_commands_init(struct fabric *fabric)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        const struct command *c = &commands[i];

        unixctl_command_register(c->name, c->usage, c->min,
                                 c->max + (c->flags & SHOWS
                                           ? IPOIB_JSON_ARG : 0),
                                 command_cb, fabric);
    }
}
